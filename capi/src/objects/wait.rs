//! Waiting (fi_cq(3), fi_eq(3), fi_cntr(3), fi_poll(3)): the wait object of a queue, FI_GETWAIT,
//! and wait sets.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::put;
use crate::objects::fabric::FabricObj;
use crate::objects::signaler::{CondWaitObject, Signaled, Signaler};
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_WAIT;
use ofi_abi::{
    FI_GETWAIT, FI_GETWAITOBJ, fi_mutex_cond, fi_ops, fi_ops_wait, fi_wait_attr, fi_wait_pollfd, fid, fid_wait,
};
use ofi_core::error::{Error, Result};
use ofi_core::wait::WaitObject;
use ofi_core::{Errno, WaitObjectKind};
use ofi_engine::Waiting;
use ofi_engine::erased::Waitable;
use ofi_os::mutex_cond::MutexCond;
use ofi_os::wait_fd::FdWaitObject;
use ofi_sync::busy::{Child, Children};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A wait set.
#[repr(C)]
pub(crate) struct WaitObj {
    pub(crate) c: fid_wait,
    pub(crate) set: Arc<WaitSet>,
    pub(crate) parent: Child,
}

object!(WaitObj, FI_CLASS_WAIT, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = fi_ops { control, ..enosys::fid_ops(close) };

static OPS: fi_ops_wait = fi_ops_wait { size: size_of::<fi_ops_wait>(), wait };

/// The wait object that a queue was opened with, for FI_GETWAIT. Leaves its wait set when dropped.
pub(crate) struct Wait {
    kind: WaitObjectKind,
    cond: Option<Arc<MutexCond>>,
    membership: Option<(Arc<WaitSet>, usize, Child)>,
}

/// The wait object that a queue's attributes request.
pub(crate) struct WaitConfig {
    pub(crate) waiting: Waiting,
    pub(crate) wait_object: Arc<dyn WaitObject>,
    kind: WaitObjectKind,
    cond: Option<Arc<MutexCond>>,
    set: Option<Arc<WaitSet>>,
}

impl WaitConfig {
    /// Reads `wait_obj` and `wait_set` of the attributes. `signaler` signals a condition variable
    /// of the queue, on the CPU if one is named.
    ///
    /// # Safety
    /// `set` is null or an open wait set, where the kind is FI_WAIT_SET.
    pub(crate) unsafe fn new(kind: u32, set: *mut c_void, signaler: &Signaler, cpu: Option<usize>) -> Result<Self> {
        let kind = WaitObjectKind(kind);
        let refuse = |errno, why: &str| Err(Error::new(errno, format!("open a queue with {kind}: {why}")));
        let waiting = match kind {
            WaitObjectKind::NONE => Waiting::Never,
            WaitObjectKind::YIELD => Waiting::Yielding,
            WaitObjectKind::UNSPEC | WaitObjectKind::FD | WaitObjectKind::POLLFD => Waiting::Sleeping,
            WaitObjectKind::SET | WaitObjectKind::MUTEX_COND => Waiting::Sleeping,
            WaitObjectKind(other) => {
                return Err(Error::new(Errno::EINVAL, format!("open a queue with wait object {other}")));
            }
        };
        let inner = FdWaitObject::new(waiting == Waiting::Sleeping)?;
        let mut cond = None;
        let wait_object: Arc<dyn WaitObject> = if kind == WaitObjectKind::MUTEX_COND {
            let signaled = signaler.signal(inner.descriptor(), cpu)?;
            cond = Some(signaled.cond().clone());
            Arc::new(CondWaitObject::new(signaled, inner))
        } else {
            Arc::new(inner)
        };
        let mut config = Self { waiting, wait_object, kind, cond, set: None };
        if kind == WaitObjectKind::SET {
            // SAFETY: null or an open wait set by this function's contract.
            match unsafe { handle::borrow::<WaitObj>(set.cast()) } {
                Ok(object) => config.set = Some(object.set.clone()),
                Err(errno) => return refuse(errno, "no wait set is given"),
            }
        }
        Ok(config)
    }

    /// Sets the kind that FI_GETWAIT reports, where it differs from the actual one.
    pub(crate) const fn report_as(&mut self, kind: WaitObjectKind) {
        self.kind = kind;
    }

    /// The wait object of the new queue, which joins its wait set if it has one.
    pub(crate) fn open(self, queue: Arc<dyn Waitable>) -> Result<Wait> {
        let Self { kind, cond, set, .. } = self;
        let membership = match set {
            Some(set) => {
                let (key, child) = set.add(queue)?;
                Some((set, key, child))
            }
            None => None,
        };
        Ok(Wait { kind, cond, membership })
    }
}

impl Wait {
    /// FI_GETWAIT and FI_GETWAITOBJ (fi_control(3)).
    ///
    /// # Safety
    /// `arg` is null or the type for the command and the wait object's kind (fi_cq(3)).
    pub(crate) unsafe fn control(&self, command: c_int, arg: *mut c_void, descriptor: Option<i32>) -> c_int {
        let status = |result: core::result::Result<(), Errno>| result.map_or_else(Errno::negative, |()| 0);
        match command {
            FI_GETWAIT | FI_GETWAITOBJ if self.kind == WaitObjectKind::NONE => Errno::ENODATA.negative(),
            FI_GETWAITOBJ => {
                // A queue of unspecified kind waits on a descriptor.
                let kind = if self.kind == WaitObjectKind::UNSPEC { WaitObjectKind::FD } else { self.kind };
                // SAFETY: null or an int by this function's contract.
                status(unsafe { put(arg.cast::<c_int>(), kind.0.cast_signed()) })
            }
            FI_GETWAIT => match (self.kind, &self.cond, descriptor) {
                (WaitObjectKind::UNSPEC | WaitObjectKind::FD, _, Some(fd)) => {
                    // SAFETY: null or an int by this function's contract.
                    status(unsafe { put(arg.cast::<c_int>(), fd) })
                }
                (WaitObjectKind::POLLFD, _, Some(fd)) => {
                    // SAFETY: null or a fi_wait_pollfd by this function's contract.
                    unsafe { pollfd(arg.cast(), fd) }
                }
                (_, Some(cond), _) => {
                    let (mutex, cond) = cond.addresses();
                    // SAFETY: null or a fi_mutex_cond by this function's contract.
                    status(unsafe { put(arg.cast(), fi_mutex_cond { mutex, cond }) })
                }
                _ => Errno::ENODATA.negative(),
            },
            _ => Errno::ENOSYS.negative(),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some((set, key, _child)) = self.membership.take() {
            set.remove(key);
        }
    }
}

/// The descriptors to poll: always the same one.
///
/// # Safety
/// `arg` is null or valid, and its `fd` has room for `nfds` entries.
unsafe fn pollfd(arg: *mut fi_wait_pollfd, fd: i32) -> c_int {
    // SAFETY: null or valid by this function's contract.
    let Some(list) = (unsafe { arg.as_mut() }) else { return Errno::EINVAL.negative() };
    let room = core::mem::replace(&mut list.nfds, 1);
    list.change_index = 1;
    if room == 0 || list.fd.is_null() {
        return Errno::ETOOSMALL.negative();
    }
    // SAFETY: there is room for an entry.
    unsafe { list.fd.write(libc::pollfd { fd, events: libc::POLLIN, revents: 0 }) };
    0
}

/// Queues and counters that are waited on together (fi_wait(3)).
pub(crate) struct WaitSet {
    kind: WaitObjectKind,
    /// The condition variable that its events signal with FI_WAIT_MUTEX_COND.
    signaled: Option<Signaled>,
    wait_object: FdWaitObject,
    members: Mutex<slab::Slab<Arc<dyn Waitable>>>,
    children: Children,
}

impl WaitSet {
    fn add(&self, member: Arc<dyn Waitable>) -> Result<(usize, Child)> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = members.vacant_entry();
        let key = entry.key();
        if let Some(fd) = member.descriptor() {
            self.wait_object.add(fd, key as u64)?;
        }
        entry.insert(member);
        Ok((key, self.children.add()))
    }

    fn remove(&self, key: usize) {
        let member = self.members.lock().unwrap_or_else(PoisonError::into_inner).try_remove(key);
        if let Some(fd) = member.and_then(|member| member.descriptor()) {
            self.wait_object.remove(fd);
        }
    }

    /// Whether a caller may sleep now: `AGAIN` if a member has something to read.
    pub(crate) fn try_wait(&self) -> core::result::Result<(), Errno> {
        self.try_members()?;
        if let Some(signaled) = &self.signaled {
            signaled.arm();
        }
        Ok(())
    }

    /// Prepares all members for a sleep of the caller; `AGAIN` if one has something to read.
    fn try_members(&self) -> core::result::Result<(), Errno> {
        let members: Vec<Arc<dyn Waitable>> = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().map(|(_, member)| member.clone()).collect()
        };
        members.iter().try_for_each(|member| member.try_wait())
    }

    /// Waits until a member has something to read, or a signal to the process ends the sleep.
    fn wait(&self, timeout: Option<Duration>) -> core::result::Result<(), Errno> {
        let end = timeout.map(|timeout| self.wait_object.now() + timeout);
        let mut keys = Vec::new();
        loop {
            if self.try_members().is_err() {
                return Ok(());
            }
            let now = self.wait_object.now();
            if end.is_some_and(|end| now >= end) {
                return Err(Errno::ETIMEDOUT);
            }
            if self.kind == WaitObjectKind::YIELD {
                std::thread::yield_now();
            } else {
                keys.clear();
                if self.wait_object.ready(end.map(|end| end.since(now)), &mut keys) {
                    return Err(Errno::EINTR);
                }
            }
        }
    }
}

/// What a wait set may be waited on by.
const KINDS_OF_SETS: [WaitObjectKind; 5] = [
    WaitObjectKind::UNSPEC,
    WaitObjectKind::FD,
    WaitObjectKind::MUTEX_COND,
    WaitObjectKind::YIELD,
    WaitObjectKind::POLLFD,
];

/// Opens a wait set.
pub(crate) fn open(fabric: &FabricObj, attr: Option<&fi_wait_attr>) -> Result<*mut fid_wait> {
    let (kind, flags) = attr.map_or((WaitObjectKind::UNSPEC, 0), |attr| (WaitObjectKind(attr.wait_obj), attr.flags));
    if flags != 0 || !KINDS_OF_SETS.contains(&kind) {
        return Err(Error::new(Errno::EINVAL, format!("open a wait set with {kind} and flags {flags:#x}")));
    }
    let wait_object = FdWaitObject::new(true)?;
    let signaled = (kind == WaitObjectKind::MUTEX_COND)
        .then(|| fabric.signaler.signal(wait_object.descriptor(), None))
        .transpose()?;
    let set = WaitSet { kind, signaled, wait_object, members: Mutex::default(), children: Children::new() };
    let c = fid_wait { fid: handle::header::<WaitObj>(core::ptr::null_mut()), ops: &OPS };
    Ok(handle::install(WaitObj { c, set: Arc::new(set), parent: fabric.children.add() }).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<WaitObj>(fid, |wait| wait.set.children.count() > 0) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let object = ours!(WaitObj, fid);
    let cond = object.set.signaled.as_ref().map(|signaled| signaled.cond().clone());
    let wait = Wait { kind: object.set.kind, cond, membership: None };
    // SAFETY: fi_wait(3) passes null or the type for the command and the set's kind.
    unsafe { wait.control(command, arg, Some(object.set.wait_object.descriptor())) }
}

unsafe extern "C" fn wait(fid: *mut fid_wait, timeout: c_int) -> c_int {
    let object = ours!(WaitObj, fid.cast());
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    object.set.wait(timeout).map_or_else(Errno::negative, |()| 0)
}
