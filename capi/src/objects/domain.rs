//! Domains (fi_domain(3)).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::objects::eq::EqObj;
use crate::objects::memory::Memory;
use crate::objects::profile;
use crate::objects::signaler::Signaler;
use crate::objects::work::DomainWork;
use crate::state::open_objects::Listed;
use core::any::Any;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::FI_CLASS_DOMAIN;
use ofi_abi::{
    FI_CANCEL_WORK, FI_FLUSH_WORK, FI_MAP_RAW_MR, FI_QUEUE_WORK, FI_UNMAP_KEY, fi_mr_map_raw, fi_ops, fi_ops_atomic,
    fi_ops_cq, fi_ops_msg, fi_ops_rma, fi_ops_tagged, fid, fid_domain,
};
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, AddrFormat, Caps, Errno, Info, TrafficClass, Version};
use ofi_engine::erased::{CounterControl, EndpointControl, QueueControl};
use ofi_engine::trigger::Membership;
use ofi_engine::{AddressVector, Backstop, CounterUnit, EventQueue, Measures, RxSettings, Waiting};
use ofi_sync::busy::{Child, Children};
use std::sync::{Arc, Mutex, PoisonError};

/// A domain.
#[repr(C)]
pub(crate) struct DomainObj {
    pub(crate) c: fid_domain,
    pub(crate) control: Box<dyn DomainControl>,
    pub(crate) api: Version,
    pub(crate) format: AddrFormat,
    pub(crate) av_type: u32,
    /// The traffic class of endpoints that request none.
    pub(crate) class: TrafficClass,
    /// The capabilities with which it was opened.
    pub(crate) caps: Caps,
    pub(crate) listed: Option<Listed>,
    /// Its registered memory.
    pub(crate) memory: Memory,
    /// The event queue of endpoints that have none of their own; kept open.
    pub(crate) eq: Mutex<Option<(Arc<EventQueue>, Child)>>,
    pub(crate) children: Children,
    pub(crate) parent: Child,
}

object!(DomainObj, FI_CLASS_DOMAIN, FID_OPS, c.fid [ops mr]);

pub(crate) static FID_OPS: fi_ops = fi_ops { bind, control, ops_open, ..enosys::fid_ops(close) };

impl DomainObj {
    /// Whether entries of address vectors may have user ids (FI_AV_USER_ID).
    pub(crate) const fn user_ids(&self) -> bool {
        self.caps.contains(Caps::AV_USER_ID)
    }
}

/// A domain of any provider and lock kind.
pub(crate) trait DomainControl: Send + Sync {
    fn endpoint(&self, info: &Info) -> Result<Opened>;
    /// A scalable endpoint.
    fn scalable(&self, info: &Info) -> Result<Arc<dyn ScalableControl>>;
    /// What sends what its endpoints hold back.
    fn backstop(&self) -> &Arc<Backstop>;
    fn cq(&self, size: usize, wait_object: Arc<dyn WaitObject>, waiting: Waiting) -> OpenedCq;
    fn counter(&self, unit: CounterUnit, wait_object: Arc<dyn WaitObject>, waiting: Waiting) -> OpenedCounter;
    /// A shared receive context.
    fn srx(&self, settings: RxSettings) -> OpenedSrx;
    /// Signals condition variables of its queues and counters.
    fn signaler(&self) -> &Signaler;
    /// The deferred work of a domain with FI_TRIGGER.
    fn work(&self) -> Option<&Arc<DomainWork>>;
    /// Queues, cancels or flushes deferred work (fi_trigger(3)).
    ///
    /// # Safety
    /// `arg` is valid for the command by fi_trigger(3).
    unsafe fn control_work(&self, domain: &DomainObj, command: c_int, arg: *mut c_void) -> c_int;
}

/// A scalable endpoint of any provider and lock kind.
pub(crate) trait ScalableControl: Send + Sync {
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()>;
    /// The address of all contexts.
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    /// Opens a transmit context with the info's capabilities and attributes.
    fn open_transmit(&self, index: usize, info: &Info) -> Result<Opened>;
    /// The same for a receive context.
    fn open_receive(&self, index: usize, info: &Info) -> Result<Opened>;
    fn close(&self);
}

/// Control calls of a shared receive context of any lock kind.
pub(crate) trait SrxControl: Any + Send + Sync {
    fn cancel(&self, context: usize) -> core::result::Result<(), Errno>;
    fn min_multi_recv(&self) -> usize;
    fn set_min_multi_recv(&self, least: usize);
    /// How many receives can be posted now.
    fn size_left(&self) -> usize;
}

/// A new receive context of the engine, with the tables for its calls.
pub(crate) struct OpenedSrx {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) context: Arc<dyn SrxControl>,
    pub(crate) msg: &'static fi_ops_msg,
    pub(crate) tagged: &'static fi_ops_tagged,
}

/// A new endpoint: the engine's endpoint as a raw pointer for the data calls, and as a trait
/// object.
pub(crate) struct Opened {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn EndpointControl>,
    pub(crate) msg: &'static fi_ops_msg,
    pub(crate) tagged: &'static fi_ops_tagged,
    pub(crate) rma: &'static fi_ops_rma,
    pub(crate) atomic: &'static fi_ops_atomic,
}

/// A new completion queue, in the same two forms.
pub(crate) struct OpenedCq {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn QueueControl>,
    /// The function table for an entry format.
    pub(crate) ops: fn(Format) -> &'static fi_ops_cq,
    /// With FI_TRIGGER: reading it starts deferred work.
    pub(crate) membership: Option<Membership>,
}

/// A new counter.
pub(crate) struct OpenedCounter {
    pub(crate) control: Arc<dyn CounterControl>,
    /// As for a queue.
    pub(crate) membership: Option<Membership>,
}

/// Entry format of a completion queue (`enum fi_cq_format`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}

/// Binds the event queue of endpoints that have none of their own (fi_domain(3)). Operations on the
/// domain itself are synchronous and report no events.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let domain = ours!(DomainObj, fid);
    // SAFETY: fi_domain_bind(3) passes an object, ours or another library's, or null.
    let eq = match unsafe { handle::borrow::<EqObj>(other) } {
        Ok(eq) => eq,
        Err(errno) => return errno.negative(),
    };
    if flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    let mut bound = domain.eq.lock().unwrap_or_else(PoisonError::into_inner);
    if bound.is_some() {
        return Errno::EINVAL.negative();
    }
    *bound = Some((eq.eq.clone(), eq.eq.users.add()));
    0
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let domain = ours!(DomainObj, fid);
    let result = match command {
        FI_MAP_RAW_MR => {
            // SAFETY: null or valid by fi_mr_map_raw, fi_mr(3).
            let map = unsafe { arg.cast::<fi_mr_map_raw>().as_ref() };
            // SAFETY: its pointers are valid for their sizes, or null.
            map.ok_or(Errno::EINVAL).and_then(|map| unsafe { domain.memory.map_raw(map) })
        }
        FI_UNMAP_KEY => {
            // SAFETY: null or a valid key by fi_mr_unmap_key, fi_mr(3).
            unsafe { arg.cast::<u64>().as_ref() }.ok_or(Errno::EINVAL).and_then(|key| domain.memory.unmap(*key))
        }
        FI_QUEUE_WORK | FI_CANCEL_WORK | FI_FLUSH_WORK => {
            // SAFETY: `arg` is valid for the command by fi_trigger(3).
            return unsafe { domain.control.control_work(domain, command, arg) };
        }
        _ => Err(Errno::ENOSYS),
    };
    result.map_or_else(Errno::negative, |()| 0)
}

/// fi_open_ops: only a profile can be opened, of all endpoints together.
unsafe extern "C" fn ops_open(
    fid: *mut fid,
    name: *const c_char,
    flags: u64,
    ops: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, fid);
    let this = core::ptr::from_ref(domain);
    let measure = move |list| {
        let mut all = Measures::default();
        // SAFETY: the domain stays open while it has profiles.
        let endpoints = unsafe { &*this }.memory.followed.endpoints();
        endpoints.iter().try_for_each(|endpoint| all.add(endpoint.measures(list)?))?;
        Ok(all)
    };
    // SAFETY: fi_open_ops passes a string and a place for the pointer, or null.
    unsafe { profile::open((name, flags), ops, context, &domain.children, measure) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<DomainObj>(fid, |domain| domain.children.count() > 0 || domain.memory.has_mapped_keys()) }
}
