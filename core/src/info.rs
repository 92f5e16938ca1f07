//! What a provider offers and what an application asks for: `struct fi_info` as values (fi_getinfo(3)).

use crate::addr::Addr;
use crate::caps::{Caps, Mode, MrMode, MsgOrder, OpFlags};
use crate::kinds::{
    AddrFormat, AvType, EndpointType, ProgressModel, Protocol, ResourceMgmt, Threading, TrafficClass, Version,
};

/// How an endpoint transmits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxAttr {
    /// Capabilities of transmitting.
    pub caps: Caps,
    /// Modes of transmitting.
    pub mode: Mode,
    /// Flags that calls without flags of their own get.
    pub op_flags: OpFlags,
    /// Which pairs of operations keep their order.
    pub msg_order: MsgOrder,
    /// Order of completions; must be 0 since 2.0.
    pub comp_order: u64,
    /// Largest message of an inject call, in bytes.
    pub inject_size: usize,
    /// Operations that may be outstanding.
    pub size: usize,
    /// Elements of a vector.
    pub iov_limit: usize,
    /// Elements of a remote vector.
    pub rma_iov_limit: usize,
    /// Traffic class.
    pub tclass: TrafficClass,
}

/// How an endpoint receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxAttr {
    /// Capabilities of receiving.
    pub caps: Caps,
    /// Modes of receiving.
    pub mode: Mode,
    /// Flags that calls without flags of their own get.
    pub op_flags: OpFlags,
    /// Which pairs of operations keep their order.
    pub msg_order: MsgOrder,
    /// Order of completions; must be 0 since 2.0.
    pub comp_order: u64,
    /// Buffer space for unexpected messages; must be 0 since 2.0.
    pub total_buffered_recv: usize,
    /// Receives that may be posted.
    pub size: usize,
    /// Elements of a vector.
    pub iov_limit: usize,
}

/// The endpoint itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpAttr {
    /// Kind of the endpoint.
    pub kind: EndpointType,
    /// What travels on the wire.
    pub protocol: Protocol,
    /// Version of that.
    pub protocol_version: u32,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Room for a header in front of messages, in bytes.
    pub msg_prefix_size: usize,
    /// Largest read after write in order, in bytes.
    pub max_order_raw_size: usize,
    /// Largest write after read in order, in bytes.
    pub max_order_war_size: usize,
    /// Largest write after write in order, in bytes.
    pub max_order_waw_size: usize,
    /// Layout of tags.
    pub mem_tag_format: u64,
    /// Transmit contexts.
    pub tx_ctx_cnt: usize,
    /// Receive contexts.
    pub rx_ctx_cnt: usize,
    /// Authorization key.
    pub auth_key: Vec<u8>,
}

/// The domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainAttr {
    /// Its name; for socket providers that of the interface.
    pub name: Option<String>,
    /// Which calls may run at once.
    pub threading: Threading,
    /// Who moves connections on.
    pub control_progress: ProgressModel,
    /// Who moves data on.
    pub progress: ProgressModel,
    /// Whether queues are protected.
    pub resource_mgmt: ResourceMgmt,
    /// Kind of address vectors.
    pub av_type: AvType,
    /// What memory registration requires.
    pub mr_mode: MrMode,
    /// Bytes of a key.
    pub mr_key_size: usize,
    /// Bytes of completion data.
    pub cq_data_size: usize,
    /// Completion queues that work well.
    pub cq_cnt: usize,
    /// Endpoints that work well.
    pub ep_cnt: usize,
    /// Transmit contexts that work well.
    pub tx_ctx_cnt: usize,
    /// Receive contexts that work well.
    pub rx_ctx_cnt: usize,
    /// Transmit contexts an endpoint.
    pub max_ep_tx_ctx: usize,
    /// Receive contexts an endpoint.
    pub max_ep_rx_ctx: usize,
    /// Shared transmit contexts.
    pub max_ep_stx_ctx: usize,
    /// Shared receive contexts.
    pub max_ep_srx_ctx: usize,
    /// Counters.
    pub cntr_cnt: usize,
    /// Elements of a registered vector.
    pub mr_iov_limit: usize,
    /// Capabilities of the domain.
    pub caps: Caps,
    /// Modes of the domain.
    pub mode: Mode,
    /// Authorization key.
    pub auth_key: Vec<u8>,
    /// True if keys come from address vectors (`auth_key_size` is `FI_AV_AUTH_KEY`).
    pub av_auth_key: bool,
    /// Largest error data, in bytes.
    pub max_err_data: usize,
    /// Regions.
    pub mr_cnt: usize,
    /// Traffic class.
    pub tclass: TrafficClass,
    /// Authorization keys an endpoint.
    pub max_ep_auth_key: usize,
    /// Largest group id.
    pub max_group_id: u32,
    /// Largest counter value.
    pub max_cntr_value: u64,
    /// Largest counter error value.
    pub max_err_cntr_value: u64,
}

/// The fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricAttr {
    /// Its name; for socket providers the network.
    pub name: Option<String>,
    /// The provider's name.
    pub prov_name: Option<String>,
    /// The provider's version.
    pub prov_version: u32,
    /// The interface version that the application asked for.
    pub api_version: Version,
}

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// Not known.
    #[default]
    Unknown,
    /// No carrier.
    Down,
    /// Works.
    Up,
}

/// A network interface (fi_nic(3)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: Option<String>,
    /// PCI device id, or as the driver says.
    pub device_id: Option<String>,
    /// The device's revision.
    pub device_version: Option<String>,
    /// PCI vendor id, or as the driver says.
    pub vendor_id: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// Version of the firmware.
    pub firmware: Option<String>,
    /// PCI domain, bus, device, function.
    pub pci: Option<(u16, u8, u8, u8)>,
    /// Link-layer address.
    pub address: Option<String>,
    /// Largest packet, in bytes.
    pub mtu: usize,
    /// Speed in bits a second.
    pub speed: u64,
    /// State of the link.
    pub state: LinkState,
    /// Kind of network.
    pub network: Option<String>,
}

/// One way to communicate, complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Capabilities.
    pub caps: Caps,
    /// Modes that the application must honour.
    pub mode: Mode,
    /// How addresses are written.
    pub addr_format: AddrFormat,
    /// This side's address.
    pub src_addr: Option<Addr>,
    /// The peer's address.
    pub dest_addr: Option<Addr>,
    /// How it transmits.
    pub tx: TxAttr,
    /// How it receives.
    pub rx: RxAttr,
    /// The endpoint.
    pub ep: EpAttr,
    /// The domain.
    pub domain: DomainAttr,
    /// The fabric.
    pub fabric: FabricAttr,
    /// The network interface.
    pub nic: Option<Nic>,
}

/// What a provider can do at most.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The limits.
    pub most: Info,
    /// `tx_attr->size` and `rx_attr->size` if the hints do not say.
    pub default_size: usize,
    /// The environment's choice of interfaces for it, by the parameter's name; none for what stays within the host.
    pub interfaces: Option<crate::param::Param>,
    /// Messages are packets: `max_msg_size` is what an interface carries whole.
    pub packets: bool,
    /// Makes a fresh address for this side, where addresses are names within this host.
    pub fresh_name: Option<fn() -> Addr>,
    /// What it sends can carry a traffic class.
    pub classes: bool,
}

impl Offer {
    /// Whether its traffic can be of that class: any, if packets carry it, or else the default one, by any name.
    pub fn can_carry(&self, class: TrafficClass) -> bool {
        self.classes || class.dscp().is_none_or(|point| point == 0)
    }
}

/// What an application asks for; what is `None` it does not care about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Capabilities, 0 for whatever there is.
    pub caps: Caps,
    /// Modes that it can honour.
    pub mode: Mode,
    /// How addresses are written.
    pub addr_format: AddrFormat,
    /// This side's address.
    pub src_addr: Option<Addr>,
    /// The peer's address.
    pub dest_addr: Option<Addr>,
    /// How it wants to transmit.
    pub tx: Option<TxAttr>,
    /// How it wants to receive.
    pub rx: Option<RxAttr>,
    /// The endpoint it wants.
    pub ep: Option<EpAttr>,
    /// The domain it wants.
    pub domain: Option<DomainAttr>,
    /// The fabric it wants.
    pub fabric: Option<FabricAttr>,
}

impl From<Info> for Hints {
    fn from(info: Info) -> Self {
        let Info { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric, nic: _ } = info;
        Self {
            caps,
            mode,
            addr_format,
            src_addr,
            dest_addr,
            tx: Some(tx),
            rx: Some(rx),
            ep: Some(ep),
            domain: Some(domain),
            fabric: Some(fabric),
        }
    }
}
