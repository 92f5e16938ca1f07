//! Counters (fi_cntr(3)).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::objects::domain::{DomainObj, OpenedCounter};
use crate::objects::wait::Wait;
use crate::objects::wait::WaitConfig;
use crate::objects::work::DomainWork;
use core::ffi::{c_int, c_void};
use ofi_abi::{FI_CLASS_CNTR, FI_GETOPSFLAG, FI_SETOPSFLAG};
use ofi_abi::{fi_cntr_attr, fi_ops, fi_ops_cntr, fid, fid_cntr};
use ofi_core::Errno;
use ofi_core::error::{Error, Result};
use ofi_engine::CounterUnit;
use ofi_engine::erased::CounterControl;
use ofi_engine::trigger::Membership;
use ofi_sync::busy::Child;
use std::sync::Arc;
use std::time::Duration;

/// Counts completions (`enum fi_cntr_events`).
const FI_CNTR_EVENTS_COMP: u32 = 0;
/// Counts bytes of payload.
const FI_CNTR_EVENTS_BYTES: u32 = 1;

/// A counter.
#[repr(C)]
pub(crate) struct CntrObj {
    pub(crate) c: fid_cntr,
    pub(crate) control: Arc<dyn CounterControl>,
    pub(crate) wait: Wait,
    /// With FI_TRIGGER: reading it starts deferred work.
    pub(crate) membership: Option<Membership>,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

object!(CntrObj, FI_CLASS_CNTR, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = fi_ops { control, ..enosys::fid_ops(close) };

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr,
    seterr,
    export_xpu: enosys::enosys,
};

/// Opens a counter of completions or of bytes.
///
/// # Safety
/// The attribute's wait set is open where its kind is FI_WAIT_SET.
pub(crate) unsafe fn open(
    domain: &DomainObj,
    attr: Option<&fi_cntr_attr>,
    context: *mut c_void,
) -> Result<*mut fid_cntr> {
    let (events, kind, set, flags) =
        attr.map_or((0, 1, core::ptr::null_mut(), 0), |a| (a.events, a.wait_obj, a.wait_set, a.flags));
    if flags != 0 {
        return Err(Error::new(Errno::EINVAL, format!("open a counter with flags {flags:#x}")));
    }
    let unit = match events {
        FI_CNTR_EVENTS_COMP => CounterUnit::Operations,
        FI_CNTR_EVENTS_BYTES => CounterUnit::Bytes,
        _ => return Err(Error::new(Errno::ENOSYS, format!("open a counter with unsupported event type {events}"))),
    };
    // SAFETY: this function's contract.
    let config = unsafe { WaitConfig::new(kind, set, domain.control.signaler(), None) }?;
    let OpenedCounter { control, membership } =
        domain.control.counter(unit, config.wait_object.clone(), config.waiting);
    let wait = config.open(control.clone())?;
    let c = fid_cntr { fid: handle::header::<CntrObj>(context), ops: &OPS };
    Ok(handle::install(CntrObj { c, control, wait, membership, domain, parent: domain.children.add() }).cast())
}

impl CntrObj {
    /// The deferred work of the domain, if it has FI_TRIGGER.
    fn work(&self) -> Option<&Arc<DomainWork>> {
        // SAFETY: the domain stays open while it has counters.
        unsafe { &*self.domain }.control.work()
    }

    /// Whether something uses it. If not, it is about to close.
    fn is_busy(&self) -> bool {
        let busy = self.control.users().count() > 0;
        if !busy {
            // SAFETY: the domain stays open while it has counters.
            unsafe { &*self.domain }.memory.followed.remove_counter(&self.control);
            if let Some(work) = self.work() {
                work.followed.remove_counter(&self.control);
            }
        }
        busy
    }

    /// Starts the deferred work that a change has made ready.
    fn run_work(&self) {
        if let Some(work) = self.work() {
            work.queue.run();
        }
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<CntrObj>(fid, CntrObj::is_busy) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let cntr = ours!(CntrObj, fid);
    if let FI_GETOPSFLAG | FI_SETOPSFLAG = command {
        // SAFETY: fi_cntr(3) passes a valid u64 for these commands, or null.
        let Some(flags) = (unsafe { arg.cast::<u64>().as_mut() }) else { return Errno::EINVAL.negative() };
        return ops_flag(command, flags);
    }
    // SAFETY: fi_cntr(3) passes null or the type for the command and the kind of wait object.
    unsafe { cntr.wait.control(command, arg, cntr.control.descriptor()) }
}

/// Reads or replaces the default flags: there are none that concern a counter.
fn ops_flag(command: c_int, flags: &mut u64) -> c_int {
    if command == FI_SETOPSFLAG && *flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    *flags = 0;
    0
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: C passes the counter that holds this table.
    unsafe { handle::borrow::<CntrObj>(cntr.cast()) }.map_or(0, |cntr| cntr.control.read())
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: C passes the counter that holds this table.
    unsafe { handle::borrow::<CntrObj>(cntr.cast()) }.map_or(0, |cntr| cntr.control.read_errors())
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    let cntr = ours!(CntrObj, cntr.cast());
    cntr.control.add(value);
    cntr.run_work();
    0
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    let cntr = ours!(CntrObj, cntr.cast());
    cntr.control.set(value);
    cntr.run_work();
    0
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    let cntr = ours!(CntrObj, cntr.cast());
    cntr.control.add_errors(value);
    cntr.run_work();
    0
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    let cntr = ours!(CntrObj, cntr.cast());
    cntr.control.set_errors(value);
    cntr.run_work();
    0
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    let cntr = ours!(CntrObj, cntr.cast());
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    cntr.control.wait(threshold, timeout).map_or_else(Errno::negative, |()| 0)
}
