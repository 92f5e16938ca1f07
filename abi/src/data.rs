//! Arguments and results of calls: attributes, messages, completions, events (`rdma/fi_endpoint.h`,
//! `fi_tagged.h`, `fi_eq.h`, `fi_domain.h`).

use super::fabric::{fi_info, fid};
use core::ffi::{c_int, c_void};

pub(crate) type fi_addr_t = u64;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct iovec {
    pub(crate) iov_base: *mut c_void,
    pub(crate) iov_len: usize,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_msg {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: fi_addr_t,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_msg_tagged {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: fi_addr_t,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_av_attr {
    pub(crate) r#type: u32,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const core::ffi::c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_eq_attr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) wait_obj: u32,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_cq_attr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: u32,
    pub(crate) wait_obj: u32,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: u32,
    pub(crate) wait_set: *mut c_void,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_cntr_attr {
    pub(crate) events: u32,
    pub(crate) wait_obj: u32,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_mr_attr {
    pub(crate) mr_iov: *const iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *const u8,
    pub(crate) iface: u32,
    pub(crate) device: u64,
    pub(crate) hmem_data: *mut c_void,
    pub(crate) page_size: usize,
    pub(crate) base_mr: *const c_void,
    pub(crate) sub_mr_cnt: usize,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_wait_attr {
    pub(crate) wait_obj: u32,
    pub(crate) flags: u64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_poll_attr {
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_mutex_cond {
    pub(crate) mutex: *mut c_void,
    pub(crate) cond: *mut c_void,
}

/// `fd` points to an array of `struct pollfd`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_wait_pollfd {
    pub(crate) change_index: u64,
    pub(crate) nfds: usize,
    pub(crate) fd: *mut libc::pollfd,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_alias {
    pub(crate) fid: *mut *mut fid,
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_eq_entry {
    pub(crate) fid: *mut fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_eq_err_entry {
    pub(crate) fid: *mut fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

/// Followed by the connection data.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_eq_cm_entry {
    pub(crate) fid: *mut fid,
    pub(crate) info: *mut fi_info,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_cq_tagged_entry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_cq_err_entry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
    pub(crate) src_addr: fi_addr_t,
}

pub(crate) const FI_CONNREQ: u32 = 1;
pub(crate) const FI_CONNECTED: u32 = 2;
pub(crate) const FI_SHUTDOWN: u32 = 3;
pub(crate) const FI_JOIN_COMPLETE: u32 = 6;

pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub(crate) const FI_OPT_CM_DATA_SIZE: c_int = 1;
pub(crate) const FI_OPT_MAX_MSG_SIZE: c_int = 12;
pub(crate) const FI_OPT_MAX_TAGGED_SIZE: c_int = 13;
pub(crate) const FI_OPT_INJECT_MSG_SIZE: c_int = 16;
pub(crate) const FI_OPT_INJECT_TAGGED_SIZE: c_int = 17;

pub(crate) const FI_SYNC_ERR: u64 = 1 << 58;
pub(crate) const FI_MORE: u64 = 1 << 18;
