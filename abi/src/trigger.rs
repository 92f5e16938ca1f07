//! Triggered operations and deferred work (`rdma/fi_trigger.h`).

use crate::data::{fi_ioc, fi_msg, fi_msg_atomic, fi_msg_rma, fi_msg_tagged};
use crate::objects::{fid_cntr, fid_ep};
use core::ffi::c_void;

/// `enum fi_trigger_event`: a counter reaches a threshold.
pub const FI_TRIGGER_THRESHOLD: u32 = 0;

/// `enum fi_op_type`.
pub const FI_OP_RECV: u32 = 0;
pub const FI_OP_SEND: u32 = 1;
pub const FI_OP_TRECV: u32 = 2;
pub const FI_OP_TSEND: u32 = 3;
pub const FI_OP_READ: u32 = 4;
pub const FI_OP_WRITE: u32 = 5;
pub const FI_OP_ATOMIC: u32 = 6;
pub const FI_OP_FETCH_ATOMIC: u32 = 7;
pub const FI_OP_COMPARE_ATOMIC: u32 = 8;
pub const FI_OP_CNTR_SET: u32 = 9;
pub const FI_OP_CNTR_ADD: u32 = 10;

/// A counter and its threshold (`struct fi_trigger_threshold`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_trigger_threshold {
    pub cntr: *mut fid_cntr,
    pub threshold: usize,
}

/// The condition of a triggered operation, in place of the union: the member for thresholds.
#[derive(Debug)]
#[repr(C)]
pub struct fi_trigger_condition {
    pub threshold: fi_trigger_threshold,
    pub reserved: *mut c_void,
}

/// The context of a triggered operation (`struct fi_triggered_context`); `fi_triggered_context2`
/// begins like it.
#[derive(Debug)]
#[repr(C)]
pub struct fi_triggered_context {
    pub event_type: u32,
    pub trigger: fi_trigger_condition,
}

/// Where an atomic operation leaves the previous values (`struct fi_msg_fetch`, fi_atomic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg_fetch {
    pub msg_iov: *mut fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// The values that an atomic operation compares with (`struct fi_msg_compare`, fi_atomic(3)).
#[derive(Debug)]
#[repr(C)]
pub struct fi_msg_compare {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// A deferred message (`struct fi_op_msg`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_msg {
    pub ep: *mut fid_ep,
    pub msg: fi_msg,
    pub flags: u64,
}

/// A deferred message with a tag (`struct fi_op_tagged`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_tagged {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_tagged,
    pub flags: u64,
}

/// A deferred read or write (`struct fi_op_rma`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_rma {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_rma,
    pub flags: u64,
}

/// A deferred atomic operation (`struct fi_op_atomic`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub flags: u64,
}

/// A deferred atomic operation that returns values (`struct fi_op_fetch_atomic`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_fetch_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub flags: u64,
}

/// A deferred atomic operation that compares (`struct fi_op_compare_atomic`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_compare_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub compare: fi_msg_compare,
    pub flags: u64,
}

/// A deferred change of a counter (`struct fi_op_cntr`).
#[derive(Debug)]
#[repr(C)]
pub struct fi_op_cntr {
    pub cntr: *mut fid_cntr,
    pub value: u64,
}

/// Deferred work (`struct fi_deferred_work`). `op` points to the structure of the type.
#[derive(Debug)]
#[repr(C)]
pub struct fi_deferred_work {
    pub context: [*mut c_void; 8],
    pub threshold: u64,
    pub triggering_cntr: *mut fid_cntr,
    pub completion_cntr: *mut fid_cntr,
    pub op_type: u32,
    pub op: *mut c_void,
}
