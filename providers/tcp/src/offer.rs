//! The capabilities and limits that the provider reports in fi_getinfo.

use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Info, Offer, RxAttr, TxAttr};
use ofi_core::{
    AddrFormat, AvType, Caps, EndpointType, Mode, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt, Threading,
    TrafficClass, Version,
};
use ofi_engine::op::MOST_REMOTE_RANGES;
use ofi_engine::target::ORDERED;

/// The largest injected message, in bytes.
pub const INJECT_SIZE: usize = 4096;
/// Outstanding operations of an endpoint, unless the hints ask for more.
const DEFAULT_SIZE: usize = 1024;
/// The limit on outstanding operations.
const MOST: usize = 1 << 20;
/// Most elements of an I/O vector.
const IOV_LIMIT: usize = 8;
/// The largest error data, in bytes: the connection data with which a peer rejects a connection.
const MAX_ERR_DATA: usize = ofi_engine::wire::hello::MAX_USER_DATA;
/// The `protocol_version` of `fi_ep_attr`.
pub const PROTOCOL_VERSION: u32 = 1;

fn base(kind: EndpointType, protocol: Protocol, name: &str) -> Offer {
    let connectionless = kind == EndpointType::RDM;
    let of_many = Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV | Caps::SOURCE | Caps::SOURCE_ERR;
    let directed = if connectionless { of_many } else { Caps::empty() };
    let several = Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV;
    let transfers = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC;
    let tx_caps = transfers | Caps::SEND | Caps::READ | Caps::WRITE | Caps::FENCE;
    let targets = Caps::REMOTE_READ | Caps::REMOTE_WRITE | Caps::RMA_EVENT;
    let rx_caps = transfers | Caps::RECV | targets | several | directed;
    let reach = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let domain_caps = if connectionless { reach | Caps::AV_USER_ID | Caps::DIRECTED_RECV } else { reach };
    let levels = OpFlags::COMPLETION
        | OpFlags::INJECT
        | OpFlags::INJECT_COMPLETE
        | OpFlags::TRANSMIT_COMPLETE
        | OpFlags::DELIVERY_COMPLETE
        | OpFlags::MATCH_COMPLETE
        | OpFlags::MORE
        | OpFlags::FENCE;
    let most = Info {
        caps: tx_caps | rx_caps | domain_caps,
        mode: Mode::empty(),
        addr_format: AddrFormat::SOCKADDR_IN,
        src_addr: None,
        dest_addr: None,
        tx: TxAttr {
            caps: tx_caps,
            mode: Mode::empty(),
            op_flags: levels,
            msg_order: MsgOrder::ALL,
            comp_order: 0,
            inject_size: INJECT_SIZE,
            size: MOST,
            iov_limit: IOV_LIMIT,
            rma_iov_limit: MOST_REMOTE_RANGES,
            tclass: TrafficClass::UNSPEC,
        },
        rx: RxAttr {
            caps: rx_caps,
            mode: Mode::empty(),
            op_flags: OpFlags::COMPLETION | OpFlags::MULTI_RECV,
            msg_order: MsgOrder::ALL,
            comp_order: 0,
            total_buffered_recv: 0,
            size: MOST,
            iov_limit: IOV_LIMIT,
        },
        ep: EpAttr {
            kind,
            protocol,
            protocol_version: PROTOCOL_VERSION,
            max_msg_size: usize::MAX,
            max_order_raw_size: usize::MAX,
            max_order_war_size: ORDERED,
            max_order_waw_size: usize::MAX,
            mem_tag_format: 0xaaaa_aaaa_aaaa_aaaa,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            threading: Threading::SAFE,
            control_progress: ProgressModel::MANUAL,
            progress: ProgressModel::MANUAL,
            resource_mgmt: ResourceMgmt::ENABLED,
            av_type: AvType::UNSPEC,
            mr_key_size: 8,
            mr_iov_limit: IOV_LIMIT,
            mr_cnt: 1 << 20,
            cq_data_size: 8,
            cq_cnt: 1 << 16,
            ep_cnt: 1 << 15,
            tx_ctx_cnt: 1 << 15,
            rx_ctx_cnt: 1 << 15,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_ep_stx_ctx: 1 << 15,
            max_ep_srx_ctx: 1 << 15,
            cntr_cnt: 1 << 16,
            caps: domain_caps,
            max_err_data: MAX_ERR_DATA,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: None,
            prov_name: Some(name.to_owned()),
            prov_version: Version::new(206, 0).0,
            api_version: Version::API,
        },
        nic: None,
    };
    Offer {
        most,
        default_size: DEFAULT_SIZE,
        interfaces: Some(crate::IFACE),
        packets: false,
        fresh_name: None,
        classes: true,
    }
}

/// Connectionless endpoints under the provider's own name.
pub fn rdm() -> Offer {
    base(EndpointType::RDM, Protocol::XNET, "tcp")
}

/// Connectionless endpoints under the layered name that some programs request by string.
pub fn rdm_layered() -> Offer {
    base(EndpointType::RDM, Protocol::RXM, "tcp;ofi_rxm")
}

/// Connected endpoints.
pub fn msg() -> Offer {
    base(EndpointType::MSG, Protocol::SOCK_TCP, "tcp")
}
