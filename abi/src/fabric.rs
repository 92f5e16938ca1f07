//! `rdma/fabric.h`: attributes, infos, and the header of every object.

use core::ffi::{c_char, c_int, c_void};

pub(crate) type fid_t = *mut fid;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const fi_ops,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_ops {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    pub(crate) tostr: unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int,
    pub(crate) ops_set: unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_tx_attr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_rx_attr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_ep_attr {
    pub(crate) r#type: u32,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_domain_attr {
    pub(crate) domain: *mut fid,
    pub(crate) name: *mut c_char,
    pub(crate) threading: u32,
    pub(crate) control_progress: u32,
    pub(crate) progress: u32,
    pub(crate) resource_mgmt: u32,
    pub(crate) av_type: u32,
    pub(crate) mr_mode: u32,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
    pub(crate) max_ep_auth_key: usize,
    pub(crate) max_group_id: u32,
    pub(crate) max_cntr_value: u64,
    pub(crate) max_err_cntr_value: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_fabric_attr {
    pub(crate) fabric: *mut fid,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_info {
    pub(crate) next: *mut Self,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut fid,
    pub(crate) tx_attr: *mut fi_tx_attr,
    pub(crate) rx_attr: *mut fi_rx_attr,
    pub(crate) ep_attr: *mut fi_ep_attr,
    pub(crate) domain_attr: *mut fi_domain_attr,
    pub(crate) fabric_attr: *mut fi_fabric_attr,
    pub(crate) nic: *mut fid_nic,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_device_attr {
    pub(crate) name: *mut c_char,
    pub(crate) device_id: *mut c_char,
    pub(crate) device_version: *mut c_char,
    pub(crate) vendor_id: *mut c_char,
    pub(crate) driver: *mut c_char,
    pub(crate) firmware: *mut c_char,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct fi_pci_attr {
    pub(crate) domain_id: u16,
    pub(crate) bus_id: u8,
    pub(crate) device_id: u8,
    pub(crate) function_id: u8,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_bus_attr {
    pub(crate) bus_type: u32,
    pub(crate) attr: fi_pci_attr,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_link_attr {
    pub(crate) address: *mut c_char,
    pub(crate) mtu: usize,
    pub(crate) speed: usize,
    pub(crate) state: u32,
    pub(crate) network_type: *mut c_char,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fid_nic {
    pub(crate) fid: fid,
    pub(crate) device_attr: *mut fi_device_attr,
    pub(crate) bus_attr: *mut fi_bus_attr,
    pub(crate) link_attr: *mut fi_link_attr,
    pub(crate) prov_attr: *mut c_void,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_param {
    pub(crate) name: *const c_char,
    pub(crate) r#type: u32,
    pub(crate) help_string: *const c_char,
    pub(crate) value: *const c_char,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct fi_provider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    pub(crate) context: [u64; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: *const c_void,
    pub(crate) fabric: *const c_void,
    pub(crate) cleanup: *const c_void,
}

pub(crate) const FI_CLASS_FABRIC: usize = 1;
pub(crate) const FI_CLASS_DOMAIN: usize = 2;
pub(crate) const FI_CLASS_EP: usize = 3;
pub(crate) const FI_CLASS_PEP: usize = 9;
pub(crate) const FI_CLASS_AV: usize = 11;
pub(crate) const FI_CLASS_EQ: usize = 13;
pub(crate) const FI_CLASS_CQ: usize = 14;
pub(crate) const FI_CLASS_CNTR: usize = 15;
pub(crate) const FI_CLASS_WAIT: usize = 16;
pub(crate) const FI_CLASS_POLL: usize = 17;
pub(crate) const FI_CLASS_CONNREQ: usize = 18;
pub(crate) const FI_CLASS_MC: usize = 19;
pub(crate) const FI_CLASS_NIC: usize = 20;
pub(crate) const FI_CLASS_LOG: usize = 26;

pub(crate) const FI_GETOPSFLAG: c_int = 2;
pub(crate) const FI_SETOPSFLAG: c_int = 3;
pub(crate) const FI_ALIAS: c_int = 4;
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_BACKLOG: c_int = 7;
pub(crate) const FI_DUP: c_int = 15;
pub(crate) const FI_GETWAITOBJ: c_int = 16;

pub(crate) const FI_SOURCE: u64 = 1 << 57;
pub(crate) const FI_NUMERICHOST: u64 = 1 << 55;
pub(crate) const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub(crate) const FI_RESCAN: u64 = 1 << 35;
pub(crate) const FI_AFFINITY: u64 = 1 << 29;
pub(crate) const FI_PEEK: u64 = 1 << 19;
