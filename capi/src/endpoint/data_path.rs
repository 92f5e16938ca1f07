//! The fields that data calls use: tables, the engine's object, and default flags.

use crate::objects::work::DomainWork;
use core::ffi::c_void;
use ofi_abi::{fi_ops_atomic, fi_ops_msg, fi_ops_rma, fi_ops_tagged, fid_ep};
use ofi_core::{Caps, OpFlags};
use ofi_engine::trigger::Initiator;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::Arc;

/// The fields that data calls use, at the beginning of every object with data tables.
#[repr(C)]
pub(crate) struct DataPath {
    pub(crate) c: fid_ep,
    /// The engine's object, of the type that the tables are for.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) defaults: DefaultFlags,
    /// With FI_TRIGGER.
    pub(crate) triggers: Option<Arc<Triggers>>,
}

/// The flags of calls that pass none. Relaxed: control calls change them, which the application
/// orders before the calls that they are for.
pub(crate) struct DefaultFlags {
    tx: AtomicU64,
    rx: AtomicU64,
    /// Those of tagged receives: without FI_TAGGED_MULTI_RECV a default FI_MULTI_RECV is only for
    /// untagged ones, which would make all tagged receives fail otherwise.
    tagged_rx: AtomicU64,
    tagged_multi_recv: bool,
}

impl DefaultFlags {
    pub(crate) fn new(tx: u64, rx: u64, caps: Caps) -> Self {
        let tagged_multi_recv = caps.contains(Caps::TAGGED_MULTI_RECV);
        let flags =
            Self { tx: AtomicU64::new(tx), rx: AtomicU64::new(0), tagged_rx: AtomicU64::new(0), tagged_multi_recv };
        flags.set_rx(rx);
        flags
    }

    /// Those of an alias.
    pub(crate) fn of_alias(&self, tx: u64, rx: u64) -> Self {
        let caps = if self.tagged_multi_recv { Caps::TAGGED_MULTI_RECV } else { Caps::empty() };
        Self::new(tx, rx, caps)
    }

    #[inline]
    pub(crate) fn tx(&self) -> u64 {
        self.tx.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn rx(&self) -> u64 {
        self.rx.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn tagged_rx(&self) -> u64 {
        self.tagged_rx.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tx(&self, flags: u64) {
        self.tx.store(flags, Ordering::Relaxed);
    }

    pub(crate) fn set_rx(&self, flags: u64) {
        let tagged = if self.tagged_multi_recv { flags } else { flags & !OpFlags::MULTI_RECV.bits() };
        self.rx.store(flags, Ordering::Relaxed);
        self.tagged_rx.store(tagged, Ordering::Relaxed);
    }
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
