//! Offers of providers and hints of applications: `struct fi_info` as values (fi_getinfo(3)).

use crate::addr::Addr;
use crate::caps::{Caps, Mode, MrMode, MsgOrder, OpFlags};
use crate::kinds::{
    AddrFormat, AvType, EndpointType, ProgressModel, Protocol, ResourceMgmt, Threading, TrafficClass, Version,
};

/// `FI_SHARED_CONTEXT` as a context count.
pub const SHARED_CONTEXT: usize = usize::MAX;

/// How an endpoint transmits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxAttr {
    /// Capabilities of transmitting.
    pub caps: Caps,
    /// Modes of transmitting.
    pub mode: Mode,
    /// Default flags, for calls without a flags argument.
    pub op_flags: OpFlags,
    /// Which pairs of operations keep their order.
    pub msg_order: MsgOrder,
    /// Order of completions; must be 0 since 2.0.
    pub comp_order: u64,
    /// Largest injected message, in bytes.
    pub inject_size: usize,
    /// Operations that may be outstanding.
    pub size: usize,
    /// Maximum elements of an I/O vector.
    pub iov_limit: usize,
    /// Maximum elements of a remote I/O vector.
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
    /// Default flags, for calls without a flags argument.
    pub op_flags: OpFlags,
    /// Which pairs of operations keep their order.
    pub msg_order: MsgOrder,
    /// Order of completions; must be 0 since 2.0.
    pub comp_order: u64,
    /// Buffer space for unexpected messages; must be 0 since 2.0.
    pub total_buffered_recv: usize,
    /// Receives that may be posted.
    pub size: usize,
    /// Maximum elements of an I/O vector.
    pub iov_limit: usize,
}

/// The endpoint itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpAttr {
    /// Kind of the endpoint.
    pub kind: EndpointType,
    /// Wire protocol.
    pub protocol: Protocol,
    /// Version of the wire protocol.
    pub protocol_version: u32,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Room for a header in front of messages, in bytes.
    pub msg_prefix_size: usize,
    /// Largest read after write that stays ordered, in bytes.
    pub max_order_raw_size: usize,
    /// Largest write after read that stays ordered, in bytes.
    pub max_order_war_size: usize,
    /// Largest write after write that stays ordered, in bytes.
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
    /// Its name; for socket providers the interface's.
    pub name: Option<String>,
    /// Which calls may run concurrently.
    pub threading: Threading,
    /// Progress model of control operations, before 2.0.
    pub control_progress: ProgressModel,
    /// Progress model of data operations.
    pub progress: ProgressModel,
    /// Whether queues are protected from overrun.
    pub resource_mgmt: ResourceMgmt,
    /// Kind of address vectors.
    pub av_type: AvType,
    /// What memory registration requires.
    pub mr_mode: MrMode,
    /// Bytes of a key.
    pub mr_key_size: usize,
    /// Bytes of completion data.
    pub cq_data_size: usize,
    /// Optimal number of completion queues.
    pub cq_cnt: usize,
    /// Optimal number of endpoints.
    pub ep_cnt: usize,
    /// Optimal number of transmit contexts.
    pub tx_ctx_cnt: usize,
    /// Optimal number of receive contexts.
    pub rx_ctx_cnt: usize,
    /// Maximum transmit contexts per endpoint.
    pub max_ep_tx_ctx: usize,
    /// Maximum receive contexts per endpoint.
    pub max_ep_rx_ctx: usize,
    /// Maximum endpoints per shared transmit context.
    pub max_ep_stx_ctx: usize,
    /// Maximum endpoints per shared receive context.
    pub max_ep_srx_ctx: usize,
    /// Optimal number of counters.
    pub cntr_cnt: usize,
    /// Maximum elements of a registered vector.
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
    /// Optimal number of memory regions.
    pub mr_cnt: usize,
    /// Traffic class.
    pub tclass: TrafficClass,
    /// Maximum authorization keys per endpoint.
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
    /// Its name; for socket providers the network's.
    pub name: Option<String>,
    /// The provider's name.
    pub prov_name: Option<String>,
    /// The provider's version.
    pub prov_version: u32,
    /// The interface version that the application requests.
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
    /// PCI device id, or the driver's text for it.
    pub device_id: Option<String>,
    /// The device's revision.
    pub device_version: Option<String>,
    /// PCI vendor id, or the driver's text for it.
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
    /// Speed in bits per second.
    pub speed: u64,
    /// State of the link.
    pub state: LinkState,
    /// Kind of network.
    pub network: Option<String>,
}

/// A complete description of one way to communicate (`struct fi_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Capabilities.
    pub caps: Caps,
    /// Modes that the application must honor.
    pub mode: Mode,
    /// Address format.
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

/// A device of a provider that does not work on every network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The name of its network interface.
    pub interface: String,
}

/// Finds a provider's devices, or says why there is none that it can use.
pub type FindDevices = fn() -> Result<Vec<Device>, String>;

/// The bytes of a message in one packet over an interface of this MTU in bytes, with IPv6 addresses
/// if true.
pub type PayloadOf = fn(usize, bool) -> usize;

/// A provider's offer, before negotiation with hints.
#[derive(Clone, Debug)]
pub struct Offer {
    /// All its capabilities, and its limits.
    pub most: Info,
    /// `tx_attr->size` and `rx_attr->size` if the hints leave them 0.
    pub default_size: usize,
    /// The parameter that selects its interfaces; `None` for a provider within this host.
    pub interfaces: Option<crate::param::Param>,
    /// Messages are packets: how the interface's MTU limits `max_msg_size`.
    pub packets: Option<PayloadOf>,
    /// Generates a source address, if addresses are names within this host.
    pub fresh_name: Option<fn() -> Addr>,
    /// Its packets can carry a traffic class.
    pub classes: bool,
    /// Finds the devices that it works on; `None` if every interface will do.
    pub devices: Option<FindDevices>,
}

impl DomainAttr {
    /// Whether the library makes progress without calls, at least on control operations.
    pub fn is_automatic(&self, api: Version) -> bool {
        let controls = api < Version::new(2, 0) && self.control_progress == ProgressModel::AUTO;
        self.progress == ProgressModel::AUTO || controls
    }
}

impl Offer {
    /// Whether its traffic can have that class; without `classes`, only code point 0 or none.
    pub fn can_carry(&self, class: TrafficClass) -> bool {
        self.classes || class.dscp().is_none_or(|point| point == 0)
    }
}

/// What an application asks for; `None` means no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Capabilities; 0 for all that are available.
    pub caps: Caps,
    /// Modes that it can honor.
    pub mode: Mode,
    /// Address format.
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
