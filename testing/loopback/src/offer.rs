//! What the provider offers, stated once: discovery and the tables of operations follow from it.

use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Info, Offer, RxAttr, TxAttr};
use ofi_core::{
    AddrFormat, Caps, EndpointType, MsgOrder, OpFlags, ProgressModel, Protocol, ResourceMgmt, Threading, Version,
};

const NAME: &str = "loopback";
/// Outstanding operations at most.
const MOST: usize = 1 << 20;

/// Endpoints of a type, with everything that the engine does over any link.
pub(crate) fn of(kind: EndpointType) -> Offer {
    let many = Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV | Caps::SOURCE | Caps::SOURCE_ERR;
    let many = if kind == EndpointType::RDM { many } else { Caps::empty() };
    let tx = Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::FENCE;
    let rx = Caps::MSG | Caps::TAGGED | Caps::RECV | Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV | many;
    let levels = OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE | OpFlags::DELIVERY_COMPLETE;
    let op_flags = OpFlags::COMPLETION | OpFlags::INJECT | OpFlags::MORE | OpFlags::FENCE | levels;
    let (caps, msg_order, size, iov_limit) = (Caps::LOCAL_COMM, MsgOrder::SAS, MOST, 8);
    let most = Info {
        caps: tx | rx | caps,
        addr_format: AddrFormat::ADDR_STR,
        tx: TxAttr { caps: tx, op_flags, msg_order, inject_size: 4096, size, iov_limit, ..TxAttr::default() },
        rx: RxAttr { caps: rx, op_flags: OpFlags::COMPLETION, msg_order, size, iov_limit, ..RxAttr::default() },
        ep: EpAttr {
            kind,
            protocol: Protocol::UNSPEC,
            protocol_version: 1,
            max_msg_size: usize::MAX,
            mem_tag_format: 0xaaaa_aaaa_aaaa_aaaa,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: Some(NAME.to_owned()),
            threading: Threading::SAFE,
            control_progress: ProgressModel::MANUAL,
            progress: ProgressModel::MANUAL,
            resource_mgmt: ResourceMgmt::ENABLED,
            cq_data_size: 8,
            caps,
            max_ep_tx_ctx: 1,
            max_ep_rx_ctx: 1,
            max_err_data: ofi_engine::wire::hello::MAX_USER_DATA,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: Some(NAME.to_owned()),
            prov_name: Some(NAME.to_owned()),
            prov_version: 1,
            api_version: Version::API,
        },
        ..Info::default()
    };
    Offer { most, default_size: 1024, interfaces: None, packets: false, fresh_name: None, classes: false }
}
