//! The fields that data calls use: tables, the engine's object, and default flags.

use crate::objects::work::DomainWork;
use core::ffi::c_void;
use ofi_abi::{fi_ops_atomic, fi_ops_msg, fi_ops_rma, fi_ops_tagged, fid_ep};
use ofi_core::Caps;
use ofi_engine::trigger::Initiator;
use ofi_sync::primitive::AtomicU64;
use std::sync::Arc;

/// The fields that data calls use, at the beginning of every object with data tables.
#[repr(C)]
pub(crate) struct DataPath {
    pub(crate) c: fid_ep,
    /// The engine's object, of the type that the tables are for.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
    /// With FI_TRIGGER.
    pub(crate) triggers: Option<Arc<Triggers>>,
}

/// The additional state of an endpoint with FI_TRIGGER: tables of its own, whose calls check the
/// flag FI_TRIGGER, so that the calls of other endpoints need not.
pub(crate) struct Triggers {
    /// The address of its domain, to compare with that of a counter's.
    pub(crate) domain: usize,
    pub(crate) initiator: Arc<dyn Initiator>,
    pub(crate) work: Arc<DomainWork>,
    pub(crate) caps: Caps,
    pub(crate) plain: PlainTables,
    pub(crate) msg: fi_ops_msg,
    pub(crate) tagged: fi_ops_tagged,
    pub(crate) rma: fi_ops_rma,
    pub(crate) atomic: fi_ops_atomic,
}

/// The tables of an endpoint without FI_TRIGGER.
#[derive(Clone, Copy)]
pub(crate) struct PlainTables {
    pub(crate) msg: &'static fi_ops_msg,
    pub(crate) tagged: &'static fi_ops_tagged,
    pub(crate) rma: &'static fi_ops_rma,
    pub(crate) atomic: &'static fi_ops_atomic,
}
