//! Objects as C sees them, and every cast from what C passes back.
//! An object is a `repr(C)` struct that begins with its public part. It is one of ours if its class and its table of
//! general operations are ours: the tables are statics with one address each, so a foreign object is never mistaken.

use crate::abi::{
    FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CONNREQ, FI_CLASS_CQ, FI_CLASS_DOMAIN, FI_CLASS_EP, FI_CLASS_EQ,
    FI_CLASS_FABRIC, FI_CLASS_LOG, FI_CLASS_MC, FI_CLASS_PEP, FI_CLASS_POLL, FI_CLASS_WAIT, fi_ops, fid, fid_av,
    fid_cntr, fid_cq, fid_domain, fid_ep, fid_eq, fid_fabric, fid_mc, fid_pep, fid_poll, fid_wait,
};
use crate::fork;
use crate::open_objects::Listed;
use crate::ops::dead;
use crate::ops::poll::Polled;
use crate::ops::wait::{Wait, WaitSet};
use core::any::Any;
use core::ffi::{c_int, c_void};
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, AddrFormat, BindFlags, Errno, FiAddr, Info, TrafficClass, Version};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::limits::SizeLimit;
use ofi_engine::{AddressVector, Auto, EventQueue, Waiting};
use ofi_sync::busy::{Child, Children};
use ofi_sync::primitive::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A kind of object.
///
/// # Safety
/// The type is `repr(C)` and begins with a [`fid`] whose class is [`Self::CLASS`] and whose operations are
/// [`Self::OPS`], and is made by [`install`] alone.
pub(crate) unsafe trait Object {
    /// The class in the public part.
    const CLASS: usize;
    /// The table of general operations.
    const OPS: &'static fi_ops;

    /// Gives it the tables of an object that was inherited from another process. In a handler of signals: nothing is
    /// allocated, nothing is locked.
    fn bury(&mut self);
}

/// The public header of an object that is being made.
pub(crate) fn header<O: Object>(context: *mut c_void) -> fid {
    fid { fclass: O::CLASS, context, ops: ops_of::<O>() }
}

fn ops_of<O: Object>() -> *const fi_ops {
    core::ptr::from_ref(O::OPS)
}

/// Hands an object to C.
pub(crate) fn install<O: Object>(object: O) -> *mut O {
    let object = Box::into_raw(Box::new(object));
    fork::enter(object);
    object
}

/// The object that C passes back. `EINVAL` for null and for whatever is not ours, `EOPBADSTATE` for one that this process
/// inherited.
///
/// # Safety
/// `object` is null, or points to a `struct fid` of a living object, ours or another library's, that stays alive for
/// `'a` (fi_close(3) forbids calls on a closed object).
pub(crate) unsafe fn borrow<'a, O: Object>(object: *mut fid) -> core::result::Result<&'a O, Errno> {
    // SAFETY: the caller passes null or a living object.
    let header = unsafe { object.as_ref() }.ok_or(Errno::EINVAL)?;
    if header.fclass != O::CLASS || header.ops != ops_of::<O>() {
        return Err(if fork::is_inherited(header) { Errno::EOPBADSTATE } else { Errno::EINVAL });
    }
    // SAFETY: class and table are those of `O`, and only `install` makes objects with that table.
    Ok(unsafe { &*object.cast::<O>() })
}

/// Why an object is none of those that a call takes: `EINVAL`, or `EOPBADSTATE` for one that this process inherited.
///
/// # Safety
/// As for [`borrow`].
pub(crate) unsafe fn unfit(object: *mut fid) -> Errno {
    // SAFETY: this function's contract.
    let inherited = unsafe { object.as_ref() }.is_some_and(fork::is_inherited);
    if inherited { Errno::EOPBADSTATE } else { Errno::EINVAL }
}

/// The object of a thunk: what C calls it with. Returns the error number from the thunk for null.
macro_rules! ours {
    ($kind:ty, $fid:expr $(, $wide:ty)?) => {
        // SAFETY: C passes the object that holds the thunk's table, and fi_close(3) forbids calls after it.
        match unsafe { $crate::object::borrow::<$kind>($fid) } {
            Ok(object) => object,
            Err(errno) => return errno.negative() $(as $wide)?,
        }
    };
}
pub(crate) use ours;

/// Takes an object back from C for good.
///
/// # Safety
/// As for [`borrow`], and the caller does not use the object again.
pub(crate) unsafe fn reclaim<O: Object>(object: *mut fid) -> Box<O> {
    fork::leave(object);
    // SAFETY: `install` made the object by `Box::into_raw`, and this is the only place that undoes it.
    unsafe { Box::from_raw(object.cast::<O>()) }
}

/// Closes an object unless it is `busy` (fi_close(3)).
///
/// # Safety
/// As for [`borrow`], and the caller does not use the object again if it is closed.
pub(crate) unsafe fn close<O: Object>(object: *mut fid, busy: impl FnOnce(&O) -> bool) -> c_int {
    // SAFETY: this function's contract.
    match unsafe { borrow::<O>(object) } {
        Ok(found) if busy(found) => Errno::EBUSY.negative(),
        Ok(_) => {
            // SAFETY: nothing else refers to it, and fi_close(3) forbids its use from now on.
            drop(unsafe { reclaim::<O>(object) });
            0
        }
        Err(errno) => errno.negative(),
    }
}

/// A fabric.
#[repr(C)]
pub(crate) struct FabricObj {
    pub(crate) c: fid_fabric,
    pub(crate) provider: String,
    pub(crate) listed: Option<Listed>,
    pub(crate) children: Children,
}

/// A domain.
#[repr(C)]
pub(crate) struct DomainObj {
    pub(crate) c: fid_domain,
    pub(crate) control: Box<dyn DomainControl>,
    pub(crate) api: Version,
    pub(crate) format: AddrFormat,
    pub(crate) av_type: u32,
    /// The traffic class of endpoints that name none.
    pub(crate) class: TrafficClass,
    /// Entries of address vectors may have ids (FI_AV_USER_ID).
    pub(crate) user_ids: bool,
    pub(crate) listed: Option<Listed>,
    /// The event queue of endpoints that have none of their own, which it keeps open.
    pub(crate) eq: Mutex<Option<(Arc<EventQueue>, Child)>>,
    pub(crate) children: Children,
    pub(crate) parent: Child,
}

/// An endpoint.
#[repr(C)]
pub(crate) struct EpObj {
    pub(crate) c: fid_ep,
    /// The endpoint of the engine for which the message tables were made.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
    pub(crate) control: Arc<dyn EpControl>,
    /// Other names of this endpoint, and groups that it has joined.
    pub(crate) dependents: Children,
    /// This is another name of an endpoint, which it keeps open.
    pub(crate) alias_of: Option<Child>,
    pub(crate) connected: bool,
    /// It takes several messages into one buffer.
    pub(crate) multi_recv: bool,
    /// It takes tagged messages.
    pub(crate) tagged: bool,
    /// The request that this endpoint will accept.
    pub(crate) request: Mutex<Option<ConnectionRequest>>,
    /// The handle that the request came with, freed with the endpoint; null if there was none.
    pub(crate) handle: *mut fid,
    pub(crate) format: AddrFormat,
    /// What events call it: the endpoint itself, also where this is another name of it.
    pub(crate) owner: Owner,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

/// A passive endpoint.
#[repr(C)]
pub(crate) struct PepObj {
    pub(crate) c: fid_pep,
    pub(crate) control: Box<dyn PepControl>,
    pub(crate) format: AddrFormat,
    pub(crate) parent: Child,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct CqObj {
    pub(crate) c: fid_cq,
    /// The `CompletionQueue<K>` for which the table was made.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn CqControl>,
    pub(crate) wait: Wait,
    /// What the last error entry pointed to.
    pub(crate) error_data: Mutex<Vec<u8>>,
    pub(crate) threshold: bool,
    pub(crate) api: Version,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

/// An address vector.
#[repr(C)]
pub(crate) struct AvObj {
    pub(crate) c: fid_av,
    pub(crate) av: Arc<AddressVector>,
    /// Entries get their ids by fi_av_set_user_id(3).
    pub(crate) ids: bool,
    pub(crate) format: AddrFormat,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

/// An event queue.
#[repr(C)]
pub(crate) struct EqObj {
    pub(crate) c: fid_eq,
    pub(crate) eq: Arc<EventQueue>,
    pub(crate) wait: Wait,
    pub(crate) api: Version,
    /// What the last error entry pointed to.
    pub(crate) error_data: Mutex<Vec<u8>>,
    pub(crate) parent: Child,
}

/// A counter.
#[repr(C)]
pub(crate) struct CntrObj {
    pub(crate) c: fid_cntr,
    pub(crate) control: Arc<dyn CntrControl>,
    pub(crate) wait: Wait,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

/// A multicast group that an endpoint has joined.
#[repr(C)]
pub(crate) struct McObj {
    pub(crate) c: fid_mc,
    pub(crate) ep: Arc<dyn EpControl>,
    pub(crate) group: Addr,
    /// Whether it receives.
    pub(crate) receive: bool,
    /// Keeps the endpoint open.
    pub(crate) parent: Child,
}

/// A wait set.
#[repr(C)]
pub(crate) struct WaitObj {
    pub(crate) c: fid_wait,
    pub(crate) set: Arc<WaitSet>,
    pub(crate) parent: Child,
}

/// The library's log, into which an application imports its callbacks.
#[repr(C)]
pub(crate) struct LogObj {
    pub(crate) fid: fid,
}

/// A poll set.
#[repr(C)]
pub(crate) struct PollObj {
    pub(crate) c: fid_poll,
    pub(crate) members: Mutex<Vec<Polled>>,
    pub(crate) parent: Child,
}

/// A request for a connection: `info->handle` of an FI_CONNREQ event.
#[repr(C)]
pub(crate) struct ConnReqObj {
    pub(crate) fid: fid,
    pub(crate) request: Mutex<Option<ConnectionRequest>>,
}

macro_rules! kinds {
    ($($kind:ty, $class:expr, $ops:path, $header:ident $(.$fid:ident)? [$($table:ident)*];)*) => {$(
        // SAFETY: the struct is `repr(C)`, begins with its fid, and is made only by `install` with `header::<Self>`.
        unsafe impl Object for $kind {
            const CLASS: usize = $class;
            const OPS: &'static fi_ops = &$ops;

            fn bury(&mut self) {
                self.$header$(.$fid)?.ops = &dead::FID_OPS;
                $(self.c.$table = dead::table();)*
            }
        }
    )*};
}

kinds! {
    FabricObj, FI_CLASS_FABRIC, crate::ops::fabric::FID_OPS, c.fid [ops];
    DomainObj, FI_CLASS_DOMAIN, crate::ops::domain::FID_OPS, c.fid [ops mr];
    EpObj, FI_CLASS_EP, crate::ops::endpoint::FID_OPS, c.fid [ops cm msg rma tagged atomic collective];
    PepObj, FI_CLASS_PEP, crate::ops::passive::FID_OPS, c.fid [ops cm];
    CqObj, FI_CLASS_CQ, crate::ops::cq::FID_OPS, c.fid [ops];
    AvObj, FI_CLASS_AV, crate::ops::av::FID_OPS, c.fid [ops];
    EqObj, FI_CLASS_EQ, crate::ops::eq::FID_OPS, c.fid [ops];
    CntrObj, FI_CLASS_CNTR, crate::ops::cntr::FID_OPS, c.fid [ops];
    McObj, FI_CLASS_MC, crate::ops::group::FID_OPS, c.fid [];
    WaitObj, FI_CLASS_WAIT, crate::ops::wait::FID_OPS, c.fid [ops];
    PollObj, FI_CLASS_POLL, crate::ops::poll::FID_OPS, c.fid [ops];
    ConnReqObj, FI_CLASS_CONNREQ, crate::ops::eq::REQUEST_FID_OPS, fid [];
}

// SAFETY: the struct is `repr(C)`, is its fid, and is made only by `install` with `header::<Self>`.
unsafe impl Object for LogObj {
    const CLASS: usize = FI_CLASS_LOG;
    const OPS: &'static fi_ops = &crate::logging::FID_OPS;

    /// The log is each process's own.
    fn bury(&mut self) {}
}

/// What a domain does whatever its provider and locking.
pub(crate) trait DomainControl: Send + Sync {
    fn endpoint(&self, info: &Info) -> Result<Opened>;
    fn cq(&self, size: usize, port: Arc<dyn WaitObject>, how: Waiting) -> OpenedCq;
    fn counter(&self, port: Arc<dyn WaitObject>, how: Waiting) -> Arc<dyn CntrControl>;
    /// The progress of a domain with FI_PROGRESS_AUTO.
    fn auto(&self) -> Option<&Arc<Auto>>;
}

/// An endpoint's parts: its engine, erased and as the message tables need it.
pub(crate) struct Opened {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn EpControl>,
    pub(crate) msg: &'static crate::abi::fi_ops_msg,
    pub(crate) tagged: &'static crate::abi::fi_ops_tagged,
}

/// A completion queue's parts.
pub(crate) struct OpenedCq {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn CqControl>,
    /// The table for a format.
    pub(crate) ops: fn(crate::ops::cq::Format) -> &'static crate::abi::fi_ops_cq,
}

/// What an endpoint does off the data path, whatever its provider and locking.
pub(crate) trait EpControl: Send + Sync {
    fn bind_cq(&self, cq: &dyn Any, flags: BindFlags) -> Result<()>;
    fn bind_counter(&self, counter: &dyn Any, flags: BindFlags) -> Result<()>;
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()>;
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    fn has_eq(&self) -> bool;
    fn enable(&self) -> Result<()>;
    fn cancel(&self, context: usize);
    fn min_multi_recv(&self) -> usize;
    fn set_min_multi_recv(&self, least: usize);
    fn limit(&self, which: SizeLimit) -> usize;
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()>;
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    fn peer_addr(&self) -> Result<Addr>;
    fn connect(&self, to: Addr, data: &[u8]) -> Result<()>;
    /// Accepts the request, which is taken once nothing but the connection itself can fail.
    fn accept(&self, request: &mut Option<ConnectionRequest>, data: &[u8]) -> Result<()>;
    fn shut_down(&self) -> core::result::Result<(), Errno>;
    /// Joins a group, to send to it, to receive from it, or both. `joined` is told the handle to send with before anybody
    /// can read of it.
    fn join(&self, group: Addr, ways: (bool, bool), owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()>;
    fn leave(&self, group: &Addr, receive: bool, handle: FiAddr, owner: Owner);
    fn close(&self);
}

/// What a passive endpoint does.
pub(crate) trait PepControl: Send + Sync {
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    fn listen(&self) -> Result<()>;
    fn refuse(&self, request: ConnectionRequest, data: &[u8]) -> Result<()>;
    fn set_backlog(&self, requests: usize);
    fn close(&self);
}

/// What can be waited on together with others.
pub(crate) trait Waits: Send + Sync {
    /// What becomes readable when there is news, if it sleeps.
    fn descriptor(&self) -> Option<i32>;
    /// Whether a caller may sleep now: `AGAIN` if there is something to read.
    fn try_wait(&self) -> core::result::Result<(), Errno>;
}

/// What a completion queue does off the data path.
pub(crate) trait CqControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn waiting(&self) -> Waiting;
    fn in_use(&self) -> bool;
    /// Keeps it in use.
    fn hold(&self) -> Child;
    /// Whether there is something to read.
    fn check(&self) -> bool;
    fn signal(&self) -> core::result::Result<(), Errno>;
}

/// What a counter does.
pub(crate) trait CntrControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn in_use(&self) -> bool;
    /// Keeps it in use.
    fn hold(&self) -> Child;
    fn read(&self) -> u64;
    fn read_errors(&self) -> u64;
    /// Successes and errors, of which the application is not told by this.
    fn check(&self) -> (u64, u64);
    fn add(&self, count: u64);
    fn add_errors(&self, count: u64);
    fn set(&self, value: u64);
    fn set_errors(&self, value: u64);
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> core::result::Result<(), Errno>;
}
