//! Arguments and results of calls: attributes, messages, completions, events (`rdma/fi_endpoint.h`,
//! `fi_tagged.h`, `fi_eq.h`, `fi_domain.h`).

use crate::fabric::{fi_info, fid};
use core::ffi::{c_char, c_int, c_void};

/// A handle for a peer's address (`fi_addr_t`, fi_av(3)).
pub type fi_addr_t = u64;

/// A part of a buffer (`struct iovec`, readv(2)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct iovec {
    pub iov_base: *mut c_void,
    pub iov_len: usize,
}

/// A message, or a receive, of several parts (`struct fi_msg`, fi_msg(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

/// A message, or a receive, with a tag (`struct fi_msg_tagged`, fi_tagged(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

/// A range of a peer's memory (`struct fi_rma_iov`, fi_rma(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// A remote read or write of several parts (`struct fi_msg_rma`, fi_rma(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// Elements of an atomic operation (`struct fi_ioc`, fi_atomic(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// Elements in a peer's memory (`struct fi_rma_ioc`, fi_atomic(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// An atomic operation of several parts (`struct fi_msg_atomic`, fi_atomic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: u32,
    pub op: u32,
    pub context: *mut c_void,
    pub data: u64,
}

/// Limits of an atomic operation (`struct fi_atomic_attr`, fi_atomic(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

/// A collective operation, and its limits (`struct fi_collective_attr`, fi_collective(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_collective_attr {
    pub op: u32,
    pub datatype: u32,
    pub datatype_attr: fi_atomic_attr,
    pub max_members: usize,
    pub mode: u64,
}

/// How to open an address vector (`struct fi_av_attr`, fi_av(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_av_attr {
    pub r#type: u32,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const core::ffi::c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// How to open a set of addresses (`struct fi_av_set_attr`, fi_av_set(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_av_set_attr {
    pub count: usize,
    pub start_addr: fi_addr_t,
    pub end_addr: fi_addr_t,
    pub stride: u64,
    pub comm_key_size: usize,
    pub comm_key: *mut u8,
    pub flags: u64,
}

/// How to open an event queue (`struct fi_eq_attr`, fi_eq(3)). `wait_set` is a `struct fid_wait *`.
#[derive(Debug)]
#[repr(C)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_set: *mut c_void,
}

/// How to open a completion queue (`struct fi_cq_attr`, fi_cq(3)). `wait_set` is a
/// `struct fid_wait *`.
#[derive(Debug)]
#[repr(C)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: u32,
    pub wait_obj: u32,
    pub signaling_vector: c_int,
    pub wait_cond: u32,
    pub wait_set: *mut c_void,
}

/// How to open a counter (`struct fi_cntr_attr`, fi_cntr(3)). `wait_set` is a `struct fid_wait *`.
#[derive(Debug)]
#[repr(C)]
pub struct fi_cntr_attr {
    pub events: u32,
    pub wait_obj: u32,
    pub wait_set: *mut c_void,
    pub flags: u64,
}

/// Memory to register (`struct fi_mr_attr`, fi_mr(3)). In C `mr_iov` and `device` are unions.
#[derive(Debug)]
#[repr(C)]
pub struct fi_mr_attr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *const u8,
    pub iface: u32,
    pub device: u64,
    pub hmem_data: *mut c_void,
    pub page_size: usize,
    pub base_mr: *const c_void,
    pub sub_mr_cnt: usize,
}

/// The arguments of fi_mr_refresh (`struct fi_mr_modify`, fi_mr(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_mr_modify {
    pub flags: u64,
    pub attr: fi_mr_attr,
}

/// The arguments of fi_mr_raw_attr (`struct fi_mr_raw_attr`, fi_mr(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_mr_raw_attr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

/// The arguments of fi_mr_map_raw (`struct fi_mr_map_raw`, fi_mr(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_mr_map_raw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *const u8,
    pub key_size: usize,
    pub key: *mut u64,
}

/// How to open a wait set (`struct fi_wait_attr`, fi_poll(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_wait_attr {
    pub wait_obj: u32,
    pub flags: u64,
}

/// How to open a poll set (`struct fi_poll_attr`, fi_poll(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_poll_attr {
    pub flags: u64,
}

/// A mutex and its condition variable (`struct fi_mutex_cond`, fi_poll(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_mutex_cond {
    pub mutex: *mut c_void,
    pub cond: *mut c_void,
}

/// Descriptors to wait for (`struct fi_wait_pollfd`, fi_poll(3)). `fd` points to `nfds` entries.
#[derive(Debug)]
#[repr(C)]
pub struct fi_wait_pollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut libc::pollfd,
}

/// The arguments of FI_ALIAS (`struct fi_alias`, fi_endpoint(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_alias {
    pub fid: *mut *mut fid,
    pub flags: u64,
}

/// An event about an object (`struct fi_eq_entry`, fi_eq(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_eq_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
}

/// A failure about an object (`struct fi_eq_err_entry`, fi_eq(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_eq_err_entry {
    pub fid: *mut fid,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// An event of a connection (`struct fi_eq_cm_entry`, fi_eq(3)), followed by the connection data.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_eq_cm_entry {
    pub fid: *mut fid,
    pub info: *mut fi_info,
}

/// A completion (`struct fi_cq_tagged_entry`, fi_cq(3)). The other entry formats are its beginning.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// A failed operation (`struct fi_cq_err_entry`, fi_cq(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    pub src_addr: fi_addr_t,
}

/// A variable or an event of a profile (`struct fi_profile_desc`, fi_profile(3)). In C `datatype`
/// is a union of two enumerations; `datatype_sel` selects one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_profile_desc {
    pub id: u32,
    pub datatype_sel: u32,
    pub datatype: u32,
    pub flags: u64,
    pub size: usize,
    pub name: *const c_char,
    pub desc: *const c_char,
}

/// A type of data (`enum fi_datatype`): a number of 64 bits.
pub const FI_UINT64: u32 = 7;
/// A type of data (`enum fi_type`): a [`fi_cq_err_entry`].
pub const FI_TYPE_CQ_ERR_ENTRY: u32 = 33;
/// Variable: how many messages wait for a receive.
pub const FI_VAR_UNEXP_MSG_CNT: u32 = 0;
/// Variable: the messages that wait for a receive.
pub const FI_VAR_UNEXP_MSG_QUEUE: u32 = 1;
/// Variable: open connections.
pub const FI_VAR_CONNECTION_CNT: u32 = 3;
/// Variable: bytes of memory in use.
pub const FI_VAR_OFI_MEM: u32 = 7;

/// Event: a peer requests a connection.
pub const FI_CONNREQ: u32 = 1;
/// Event: the connection is established.
pub const FI_CONNECTED: u32 = 2;
/// Event: the connection has ended.
pub const FI_SHUTDOWN: u32 = 3;
/// Event: a call that inserts addresses has ended.
pub const FI_AV_COMPLETE: u32 = 5;
/// Event: a multicast group has been joined.
pub const FI_JOIN_COMPLETE: u32 = 6;

/// The level of all options of fi_setopt(3).
pub const FI_OPT_ENDPOINT: c_int = 0;
/// Option: the space below which a multi-receive buffer is released.
pub const FI_OPT_MIN_MULTI_RECV: c_int = 0;
/// Option: how much data a connection request can carry.
pub const FI_OPT_CM_DATA_SIZE: c_int = 1;
/// Option: how much of a longer buffered message its entry has.
pub const FI_OPT_BUFFERED_MIN: c_int = 2;
/// Option: the longest buffered message that is reported whole.
pub const FI_OPT_BUFFERED_LIMIT: c_int = 3;
/// Option: the longest message.
pub const FI_OPT_MAX_MSG_SIZE: c_int = 12;
/// Option: the longest tagged message.
pub const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
/// Option: the longest read or write of a peer's memory.
pub const FI_OPT_MAX_RMA_SIZE: c_int = 14;
/// Option: the longest atomic operation.
pub const FI_OPT_MAX_ATOMIC_SIZE: c_int = 15;
/// Option: the longest injected message.
pub const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
/// Option: the longest injected tagged message.
pub const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;
/// Option: the longest injected write.
pub const FI_OPT_INJECT_RMA_SIZE: c_int = 18;
/// Option: the longest injected atomic operation.
pub const FI_OPT_INJECT_ATOMIC_SIZE: c_int = 19;

/// fi_av(3): reports each address that could not be inserted in the context's array.
pub const FI_SYNC_ERR: u64 = 1 << 58;
/// fi_av_set(3): the set begins with all addresses of its vector.
pub const FI_UNIVERSE: u64 = 1 << 57;
/// fi_av_set(3): the first of the flags for a collective that the set has to serve.
pub const FI_BARRIER_SET: u64 = 1 << 40;
/// fi_av_set(3): the last of these flags.
pub const FI_GATHER_SET: u64 = 1 << 48;
/// Collectives without elements have this datatype.
pub const FI_VOID: u32 = 256;
/// The operation of collectives that combine nothing.
pub const FI_NOOP: u32 = 256;
/// fi_av(3), fi_msg(3): more calls follow at once.
pub const FI_MORE: u64 = 1 << 18;
/// fi_mr(3): the memory is a dmabuf, which the registration names instead of addresses.
pub const FI_MR_DMABUF: u64 = 1 << 40;
/// fi_mr(3): the key is void after a peer's first access.
pub const FI_MR_SINGLE_USE: u64 = 1 << 41;
/// fi_mr(3): the memory is durable.
pub const FI_RMA_PMEM: u64 = 1 << 49;
/// fi_mr(3): peers' accesses to the region are counted.
pub const FI_RMA_EVENT: u64 = 1 << 56;
/// fi_mr(3): memory of the host.
pub const FI_HMEM_SYSTEM: u32 = 0;
/// fi_query_atomic(3): an operation that returns the previous values.
pub const FI_FETCH_ATOMIC: u64 = 1 << 58;
/// fi_query_atomic(3): an operation that compares.
pub const FI_COMPARE_ATOMIC: u64 = 1 << 59;
