//! The offer of endpoints with links over any transport: the engine implements it. A provider
//! describes its medium, and changes the offer where the medium sets limits.

use crate::op::MOST_REMOTE_RANGES;
use crate::scalable::MOST_CONTEXTS;
use crate::target::ORDERED;
use crate::wire::hello::MAX_USER_DATA;
use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Info, Offer, RxAttr, TxAttr};
use ofi_core::{
    AddrFormat, Caps, EndpointType, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt, Threading, Version,
};

/// The largest message of an inject call, in bytes.
pub const INJECT_SIZE: usize = 4096;
/// Outstanding operations, unless the application asks for more.
const DEFAULT_SIZE: usize = 1024;
/// Outstanding operations at most.
const MOST: usize = 1 << 20;
/// Elements of an I/O vector.
const IOV_LIMIT: usize = 8;

/// A medium of endpoints with links.
#[derive(Clone, Copy, Debug)]
pub struct Medium {
    /// The provider, as in `prov_name`.
    pub provider: &'static str,
    /// The wire protocol on the medium, and its version.
    pub protocol: (Protocol, u32),
    /// The format of its addresses.
    pub addr_format: AddrFormat,
    /// FI_LOCAL_COMM, FI_REMOTE_COMM or both.
    pub reach: Caps,
}

/// The offer of a provider that has [`LinkProvider::open_context`]: scalable endpoints with many
/// contexts, and receive contexts that peers can name.
///
/// [`LinkProvider::open_context`]: crate::provider::LinkProvider::open_context
#[must_use]
pub fn with_contexts(mut offer: Offer) -> Offer {
    let info = &mut offer.most;
    (info.domain.max_ep_tx_ctx, info.domain.max_ep_rx_ctx) = (MOST_CONTEXTS, MOST_CONTEXTS);
    info.caps |= Caps::NAMED_RX_CTX;
    info.tx.caps |= Caps::NAMED_RX_CTX;
    offer
}

impl Medium {
    /// The offer of endpoints of that type, MSG or RDM.
    pub fn offer(self, kind: EndpointType) -> Offer {
        let Self { provider, protocol: (protocol, protocol_version), addr_format, reach } = self;
        let connectionless = kind == EndpointType::RDM;
        let of_many = Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV | Caps::SOURCE | Caps::SOURCE_ERR;
        let directed = if connectionless { of_many } else { Caps::empty() };
        let multi_recv = Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV;
        let transfers = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC | Caps::RMA_PMEM | Caps::TRIGGER;
        let groups = if connectionless { Caps::COLLECTIVE } else { Caps::empty() };
        let transfers = transfers | groups;
        let tx_caps = transfers | Caps::SEND | Caps::READ | Caps::WRITE | Caps::FENCE;
        let targets = Caps::REMOTE_READ | Caps::REMOTE_WRITE | Caps::RMA_EVENT;
        let rx_caps = transfers | Caps::RECV | targets | multi_recv | directed;
        let of_addresses = Caps::AV_USER_ID | Caps::DIRECTED_RECV | Caps::SHARED_AV;
        let domain_caps = if connectionless { reach | of_addresses } else { reach };
        let tx_flags = OpFlags::COMPLETION
            | OpFlags::INJECT
            | OpFlags::INJECT_COMPLETE
            | OpFlags::TRANSMIT_COMPLETE
            | OpFlags::DELIVERY_COMPLETE
            | OpFlags::MATCH_COMPLETE
            | OpFlags::MORE
            | OpFlags::FENCE;
        // Discovery names the fabric and the domain of a network after each of its interfaces.
        let name = (!reach.contains(Caps::REMOTE_COMM)).then(|| provider.to_owned());
        let most = Info {
            caps: tx_caps | rx_caps | domain_caps,
            addr_format,
            tx: TxAttr {
                caps: tx_caps,
                op_flags: tx_flags,
                msg_order: MsgOrder::ALL,
                inject_size: INJECT_SIZE,
                size: MOST,
                iov_limit: IOV_LIMIT,
                rma_iov_limit: MOST_REMOTE_RANGES,
                ..TxAttr::default()
            },
            rx: RxAttr {
                caps: rx_caps,
                op_flags: OpFlags::COMPLETION | OpFlags::MULTI_RECV,
                msg_order: MsgOrder::ALL,
                size: MOST,
                iov_limit: IOV_LIMIT,
                ..RxAttr::default()
            },
            ep: EpAttr {
                kind,
                protocol,
                protocol_version,
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
                name: name.clone(),
                threading: Threading::SAFE,
                control_progress: ProgressModel::MANUAL,
                progress: ProgressModel::MANUAL,
                resource_mgmt: ResourceMgmt::ENABLED,
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
                max_err_data: MAX_USER_DATA,
                max_cntr_value: u64::MAX,
                max_err_cntr_value: u64::MAX,
                ..DomainAttr::default()
            },
            fabric: FabricAttr {
                name,
                prov_name: Some(provider.to_owned()),
                prov_version: Version::new(206, 0).0,
                api_version: Version::API,
            },
            ..Info::default()
        };
        Offer {
            most,
            default_size: DEFAULT_SIZE,
            interfaces: None,
            packets: None,
            fresh_name: None,
            classes: false,
            devices: None,
        }
    }
}
