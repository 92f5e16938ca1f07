//! `rdma/fabric.h`: attributes, infos, and the header of every object.

use core::ffi::{c_char, c_int, c_void};

/// A pointer to the header of any object (`fid_t`).
pub type fid_t = *mut fid;

/// The header of every object (`struct fid`, fi_fabric(3)): its class, the application's context,
/// the general operations.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

/// General operations of every object (`struct fi_ops`): fi_close(3), fi_control(3) and the like.
#[derive(Debug)]
#[repr(C)]
pub struct fi_ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    pub ops_open: unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    pub tostr: unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int,
    pub ops_set: unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
}

impl fi_ops {
    /// The names of the slots with their types, in order.
    pub const SLOTS: &'static [(&'static str, &'static str)] = &[
        ("close", "fn(*mut fid) -> c_int"),
        ("bind", "fn(*mut fid, *mut fid, u64) -> c_int"),
        ("control", "fn(*mut fid, c_int, *mut c_void) -> c_int"),
        ("ops_open", "fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int"),
        ("tostr", "fn(*const fid, *mut c_char, usize) -> c_int"),
        ("ops_set", "fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int"),
    ];
}

/// How an endpoint transmits (`struct fi_tx_attr`, fi_endpoint(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// How an endpoint receives (`struct fi_rx_attr`, fi_endpoint(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// An endpoint's type, protocol and limits (`struct fi_ep_attr`, fi_endpoint(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_ep_attr {
    pub r#type: u32,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// Threading, progress and limits of a domain (`struct fi_domain_attr`, fi_domain(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_domain_attr {
    pub domain: *mut fid,
    pub name: *mut c_char,
    pub threading: u32,
    pub control_progress: u32,
    pub progress: u32,
    pub resource_mgmt: u32,
    pub av_type: u32,
    pub mr_mode: u32,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    pub max_ep_auth_key: usize,
    pub max_group_id: u32,
    pub max_cntr_value: u64,
    pub max_err_cntr_value: u64,
}

/// The fabric and its provider (`struct fi_fabric_attr`, fi_fabric(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// An offer of a provider, or hints for one (`struct fi_info`, fi_getinfo(3)); `next` links a list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_info {
    pub next: *mut Self,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut fid,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut fid_nic,
}

/// Names and versions of a network interface (`struct fi_device_attr`, fi_nic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_device_attr {
    pub name: *mut c_char,
    pub device_id: *mut c_char,
    pub device_version: *mut c_char,
    pub vendor_id: *mut c_char,
    pub driver: *mut c_char,
    pub firmware: *mut c_char,
}

/// A device's place on the PCI bus (`struct fi_pci_attr`, fi_nic(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

/// The bus of a network interface (`struct fi_bus_attr`, fi_nic(3)). In C `attr` is a union of one
/// member.
#[derive(Debug)]
#[repr(C)]
pub struct fi_bus_attr {
    pub bus_type: u32,
    pub attr: fi_pci_attr,
}

/// The link of a network interface (`struct fi_link_attr`, fi_nic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    pub mtu: usize,
    pub speed: usize,
    pub state: u32,
    pub network_type: *mut c_char,
}

/// A network interface (`struct fid_nic`, fi_nic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

/// A parameter of the library or a provider (`struct fi_param`, fi_getparams(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_param {
    pub name: *const c_char,
    pub r#type: u32,
    pub help_string: *const c_char,
    pub value: *const c_char,
}

/// A provider's fi_getinfo(3).
pub type fi_getinfo_fn =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
/// A provider's fi_fabric(3).
pub type fi_fabric_fn = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut crate::fid_fabric, *mut c_void) -> c_int;

/// What a provider registers (`struct fi_provider`, fi_provider(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: [u64; 4],
    pub name: *const c_char,
    pub getinfo: Option<fi_getinfo_fn>,
    pub fabric: Option<fi_fabric_fn>,
    pub cleanup: Option<unsafe extern "C" fn()>,
}

/// Class of a fabric.
pub const FI_CLASS_FABRIC: usize = 1;
/// Class of a domain.
pub const FI_CLASS_DOMAIN: usize = 2;
/// Class of an endpoint.
pub const FI_CLASS_EP: usize = 3;
/// A scalable endpoint.
pub const FI_CLASS_SEP: usize = 4;
/// A receive context of a scalable endpoint.
pub const FI_CLASS_RX_CTX: usize = 5;
/// Class of a shared receive context.
pub const FI_CLASS_SRX_CTX: usize = 6;
/// A transmit context of a scalable endpoint.
pub const FI_CLASS_TX_CTX: usize = 7;
/// Class of a shared transmit context.
pub const FI_CLASS_STX_CTX: usize = 8;
/// Class of a passive endpoint.
pub const FI_CLASS_PEP: usize = 9;
/// Class of an address vector.
pub const FI_CLASS_AV: usize = 11;
/// Class of a memory region.
pub const FI_CLASS_MR: usize = 12;
/// Class of an event queue.
pub const FI_CLASS_EQ: usize = 13;
/// Class of a completion queue.
pub const FI_CLASS_CQ: usize = 14;
/// Class of a counter.
pub const FI_CLASS_CNTR: usize = 15;
/// Class of a wait set.
pub const FI_CLASS_WAIT: usize = 16;
/// Class of a poll set.
pub const FI_CLASS_POLL: usize = 17;
/// Class of a connection request.
pub const FI_CLASS_CONNREQ: usize = 18;
/// Class of a joined multicast group.
pub const FI_CLASS_MC: usize = 19;
/// Class of a network interface.
pub const FI_CLASS_NIC: usize = 20;
/// Class of a set of addresses.
pub const FI_CLASS_AV_SET: usize = 21;
/// Class of the log, for fi_import_log(3).
pub const FI_CLASS_LOG: usize = 26;
/// Class of a profile.
pub const FI_CLASS_PROFILE: usize = 30;

/// fi_control(3): reads an endpoint's default flags.
pub const FI_GETOPSFLAG: c_int = 2;
/// fi_control(3): sets an endpoint's default flags.
pub const FI_SETOPSFLAG: c_int = 3;
/// fi_control(3): makes an alias of an endpoint, with a `struct fi_alias`.
pub const FI_ALIAS: c_int = 4;
/// fi_control(3): reads the wait object.
pub const FI_GETWAIT: c_int = 5;
/// fi_control(3): enables an endpoint (fi_enable(3)).
pub const FI_ENABLE: c_int = 6;
/// fi_control(3): sets how many connection requests may wait.
pub const FI_BACKLOG: c_int = 7;
/// fi_control(3): reads a region's raw key (fi_mr_raw_attr, fi_mr(3)).
pub const FI_GET_RAW_MR: c_int = 8;
/// fi_control(3): makes a key of a raw key (fi_mr_map_raw, fi_mr(3)).
pub const FI_MAP_RAW_MR: c_int = 9;
/// fi_control(3): releases such a key (fi_mr_unmap_key, fi_mr(3)).
pub const FI_UNMAP_KEY: c_int = 10;
/// fi_control(3): queues deferred work (fi_trigger(3)).
pub const FI_QUEUE_WORK: c_int = 11;
/// fi_control(3): cancels a piece of deferred work.
pub const FI_CANCEL_WORK: c_int = 12;
/// fi_control(3): cancels all deferred work, or that which waits for a counter.
pub const FI_FLUSH_WORK: c_int = 13;
/// fi_control(3): a region's pages have changed (fi_mr_refresh, fi_mr(3)).
pub const FI_REFRESH: c_int = 14;
/// fi_control(3): copies a network interface.
pub const FI_DUP: c_int = 15;
/// fi_control(3): reads the kind of the wait object.
pub const FI_GETWAITOBJ: c_int = 16;

/// fi_getinfo(3): node and service name the source address.
pub const FI_SOURCE: u64 = 1 << 57;
/// fi_getinfo(3): the node is a numeric address.
pub const FI_NUMERICHOST: u64 = 1 << 55;
/// fi_getinfo(3): only names and versions of providers are wanted.
pub const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
/// fi_getinfo(3): looks for devices again.
pub const FI_RESCAN: u64 = 1 << 35;
/// fi_getinfo(3) between providers: only providers that layers of them can use.
pub const OFI_CORE_PROV_ONLY: u64 = 1 << 59;
/// fi_getinfo(3) between providers: only providers of offloaded collective operations.
pub const OFI_OFFLOAD_PROV_ONLY: u64 = 1 << 61;
/// fi_cq(3), fi_eq(3): `signaling_vector` names an interrupt vector.
pub const FI_AFFINITY: u64 = 1 << 29;
/// fi_eq(3), fi_tagged(3): looks without taking.
pub const FI_PEEK: u64 = 1 << 19;
