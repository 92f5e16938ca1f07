//! The provider's attributes (fi_getinfo(3)), stated once.

use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Info, Offer, RxAttr, TxAttr};
use ofi_core::{
    AddrFormat, AvType, Caps, EndpointType, Mode, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt, Threading,
    Version,
};

/// The largest packet of the protocol over IPv4, in bytes; an interface may carry less.
const LARGEST: usize = 65_507;
/// Receives that may be posted, by default.
const DEFAULT_SIZE: usize = 1024;
/// Receives that may be posted, at most.
const MOST: usize = 1 << 20;
/// Maximum elements of an I/O vector.
const IOV_LIMIT: usize = 8;

/// What the IP and UDP headers leave.
fn payload_of(mtu: usize, v6: bool) -> usize {
    mtu.saturating_sub(if v6 { 48 } else { 28 })
}

/// The attributes of datagram endpoints.
pub fn dgram() -> Offer {
    let tx_caps = Caps::MSG | Caps::MULTICAST | Caps::SEND;
    let rx_caps = Caps::MSG | Caps::RECV | Caps::SOURCE | Caps::SOURCE_ERR;
    let domain_caps = Caps::LOCAL_COMM | Caps::REMOTE_COMM | Caps::AV_USER_ID | Caps::SHARED_AV;
    let op_flags = OpFlags::COMPLETION | OpFlags::INJECT | OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE;
    let most = Info {
        caps: tx_caps | rx_caps | domain_caps,
        mode: Mode::empty(),
        addr_format: AddrFormat::SOCKADDR_IN,
        src_addr: None,
        dest_addr: None,
        tx: TxAttr {
            caps: tx_caps,
            op_flags: op_flags | OpFlags::MORE | OpFlags::MULTICAST,
            inject_size: LARGEST,
            size: MOST,
            iov_limit: IOV_LIMIT,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: rx_caps,
            op_flags: OpFlags::COMPLETION,
            msg_order: MsgOrder::empty(),
            size: MOST,
            iov_limit: IOV_LIMIT,
            ..RxAttr::default()
        },
        ep: EpAttr {
            kind: EndpointType::DGRAM,
            protocol: Protocol::UDP,
            protocol_version: 0,
            max_msg_size: LARGEST,
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
            cq_cnt: 1 << 16,
            ep_cnt: 1 << 15,
            tx_ctx_cnt: 1 << 15,
            rx_ctx_cnt: 1 << 15,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            cntr_cnt: 1 << 16,
            max_err_data: ofi_core::addr::MAX_LEN,
            caps: domain_caps,
            max_cntr_value: u64::MAX,
            max_err_cntr_value: u64::MAX,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: None,
            prov_name: Some("udp".to_owned()),
            prov_version: Version::new(206, 0).0,
            api_version: Version::API,
        },
        nic: None,
    };
    Offer {
        most,
        default_size: DEFAULT_SIZE,
        interfaces: Some(crate::IFACE),
        packets: Some(payload_of),
        fresh_name: None,
        classes: true,
        devices: None,
    }
}
