//! Endpoint objects and their control calls (fi_endpoint(3)).

use crate::endpoint::data_path::{DataPath, Triggers};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::{Object, object};
use crate::ffi::ptr::{make, status};
use crate::objects::av::AvObj;
use crate::objects::cntr::CntrObj;
use crate::objects::cq::CqObj;
use crate::objects::domain::DomainObj;
use crate::objects::eq::ConnReqObj;
use crate::objects::eq::EqObj;
use crate::objects::profile;
use crate::objects::srx::{SrxObj, StxObj};
use core::ffi::{c_char, c_int, c_void};
use core::ops::{Deref, DerefMut};
use ofi_abi::FI_CLASS_EP;
use ofi_abi::{
    FI_ALIAS, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_RX_CTX, FI_CLASS_TX_CTX, FI_ENABLE, FI_GETOPSFLAG, FI_SETOPSFLAG,
    fi_alias, fi_ops, fid, fid_ep,
};
use ofi_core::error::{Error, Result};
use ofi_core::info::EpAttr;
use ofi_core::negotiate::SHARED_CONTEXT;
use ofi_core::{AddrFormat, BindFlags, Caps, Errno, OpFlags};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::erased::EndpointControl;
use ofi_sync::busy::Child;
use ofi_sync::busy::Children;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An endpoint.
#[repr(C)]
pub(crate) struct EpObj {
    pub(crate) data: DataPath,
    pub(crate) control: Arc<dyn EndpointControl>,
    /// Aliases and profiles of this endpoint, and multicast groups that it has joined.
    pub(crate) dependents: Children,
    /// For an alias: keeps the original endpoint open.
    pub(crate) alias_of: Option<Child>,
    pub(crate) connected: bool,
    /// Its capabilities.
    pub(crate) caps: Caps,
    /// FI_COLLECTIVE is enabled.
    pub(crate) joins_groups: bool,
    /// The connection request that this endpoint will accept.
    pub(crate) request: Mutex<Option<Box<ConnectionRequest>>>,
    /// The handle of the request, freed with the endpoint; null if there is none.
    pub(crate) handle: *mut fid,
    pub(crate) format: AddrFormat,
    /// The endpoint that events report: for an alias, the original.
    pub(crate) owner: Owner,
    pub(crate) domain: *const DomainObj,
    /// The shared contexts that are bound to it.
    pub(crate) contexts: Mutex<SharedContexts>,
    pub(crate) parent: Child,
}

/// The shared contexts of an endpoint.
#[derive(Default)]
pub(crate) struct SharedContexts {
    /// Keep the bound contexts open.
    users: Vec<Child>,
    /// The info requests a shared receive context (FI_SHARED_CONTEXT), but none is bound yet.
    lacks_rx: bool,
    /// The same for a transmit context.
    lacks_tx: bool,
}

impl Deref for EpObj {
    type Target = DataPath;
    fn deref(&self) -> &DataPath {
        &self.data
    }
}

impl DerefMut for EpObj {
    fn deref_mut(&mut self) -> &mut DataPath {
        &mut self.data
    }
}

object!(EpObj, FI_CLASS_EP, FID_OPS, c.fid [ops cm msg rma tagged atomic collective]);

pub(crate) static FID_OPS: fi_ops = fid_ops();

/// The general operations of an endpoint and of a context of a scalable endpoint. Each class has a
/// table of its own.
pub(crate) const fn fid_ops() -> fi_ops {
    fi_ops { bind, control, ops_open, ..enosys::fid_ops(close) }
}

/// The endpoint that C passes, or the context of a scalable endpoint, which is one.
///
/// # Safety
/// As for [`handle::borrow`].
pub(crate) unsafe fn endpoint<'a>(object: *mut fid) -> core::result::Result<&'a EpObj, Errno> {
    // SAFETY: null or a living object by this function's contract.
    match unsafe { object.as_ref() }.map(|header| header.fclass) {
        // SAFETY: this function's contract.
        Some(FI_CLASS_TX_CTX) => unsafe { handle::borrow::<TxContextObj>(object) }.map(|context| &context.0),
        // SAFETY: this function's contract.
        Some(FI_CLASS_RX_CTX) => unsafe { handle::borrow::<RxContextObj>(object) }.map(|context| &context.0),
        // SAFETY: this function's contract.
        _ => unsafe { handle::borrow::<EpObj>(object) },
    }
}

/// [`endpoint`] for a thunk, which returns its error number.
macro_rules! our_endpoint {
    ($fid:expr $(, $wide:ty)?) => {
        // SAFETY: C passes the object that holds the thunk's table, and fi_close(3) forbids calls
        // after it.
        match unsafe { $crate::endpoint::object::endpoint($fid) } {
            Ok(object) => object,
            Err(errno) => return errno.negative() $(as $wide)?,
        }
    };
}
pub(crate) use our_endpoint;

/// A transmit context of a scalable endpoint.
#[repr(transparent)]
pub(crate) struct TxContextObj(pub(crate) EpObj);

/// A receive context of a scalable endpoint.
#[repr(transparent)]
pub(crate) struct RxContextObj(pub(crate) EpObj);

macro_rules! context {
    ($kind:ident, $class:expr, $ops:ident) => {
        impl Deref for $kind {
            type Target = EpObj;
            fn deref(&self) -> &EpObj {
                &self.0
            }
        }

        impl DerefMut for $kind {
            fn deref_mut(&mut self) -> &mut EpObj {
                &mut self.0
            }
        }

        object!($kind, $class, $ops, c.fid [ops cm msg rma tagged atomic collective]);

        pub(crate) static $ops: fi_ops = fid_ops();
    };
}

context!(TxContextObj, FI_CLASS_TX_CTX, TX_FID_OPS);
context!(RxContextObj, FI_CLASS_RX_CTX, RX_FID_OPS);

/// Hands a context of a scalable endpoint to C.
pub(crate) fn install_context<O: Object + DerefMut<Target = EpObj>>(
    object: EpObj,
    class: impl FnOnce(EpObj) -> O,
    legacy: Option<bool>,
) -> *mut fid_ep {
    let context = handle::install(class(object));
    // SAFETY: made above and not handed out yet.
    let object: &mut EpObj = unsafe { &mut *context };
    object.owner = Owner(context.expose_provenance());
    object.serve_legacy(legacy);
    context.cast()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let ep = our_endpoint!(fid);
    if ep.dependents.count() > 0 {
        return Errno::EBUSY.negative();
    }
    if ep.alias_of.is_some() {
        // SAFETY: only the alias goes, and fi_close(3) forbids its use from now on.
        drop(unsafe { handle::reclaim::<EpObj>(fid) });
        return 0;
    }
    if let Some(triggers) = &ep.triggers {
        triggers.work.forget_endpoint(&ep.control);
    }
    ep.control.close();
    // SAFETY: the domain stays open while it has endpoints.
    unsafe { &*ep.domain }.memory.followed.remove_endpoint(&ep.control);
    if !ep.handle.is_null() {
        // SAFETY: the handle was one of ours when the endpoint was opened, and its request belongs
        // to the endpoint.
        drop(unsafe { handle::reclaim::<ConnReqObj>(ep.handle) });
    }
    // SAFETY: the engine no longer refers to it, and fi_close(3) forbids its use from now on. A
    // context has the layout of the endpoint object that it is.
    drop(unsafe { handle::reclaim::<EpObj>(fid) });
    0
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let ep = our_endpoint!(fid);
    // SAFETY: fi_ep_bind(3) passes an object, ours or another library's.
    if let Ok(cq) = unsafe { handle::borrow::<CqObj>(other) } {
        if !core::ptr::eq(cq.domain, ep.domain) {
            return Errno::EDOMAIN.negative();
        }
        return status(ep.control.bind_cq(cq.control.clone(), BindFlags::from_bits_retain(flags)));
    }
    // SAFETY: as above.
    if let Ok(cntr) = unsafe { handle::borrow::<CntrObj>(other) } {
        if !core::ptr::eq(cntr.domain, ep.domain) {
            return Errno::EDOMAIN.negative();
        }
        return status(ep.control.clone().bind_counter(cntr.control.clone(), BindFlags::from_bits_retain(flags)));
    }
    // SAFETY: as above.
    if let Ok(av) = unsafe { handle::borrow::<AvObj>(other) } {
        return match flags {
            0 if core::ptr::eq(av.domain, ep.domain) => status(ep.control.clone().bind_av(&av.av)),
            0 => Errno::EDOMAIN.negative(),
            _ => Errno::EBADFLAGS.negative(),
        };
    }
    // SAFETY: as above.
    if let Ok(eq) = unsafe { handle::borrow::<EqObj>(other) } {
        if flags != 0 {
            return Errno::EBADFLAGS.negative();
        }
        return status(ep.control.clone().bind_eq(&eq.eq, ep.owner));
    }
    // SAFETY: as above.
    if let Ok(srx) = unsafe { handle::borrow::<SrxObj>(other) } {
        if ep.joins_groups {
            let what = "bind a shared receive context to an endpoint with FI_COLLECTIVE: it could not join groups";
            return status(Err(Error::new(Errno::EINVAL, what)));
        }
        return status(srx.bind_to(&ep.control, ep.domain, flags).map(|user| ep.contexts().add_rx(user)));
    }
    // SAFETY: as above.
    if let Ok(stx) = unsafe { handle::borrow::<StxObj>(other) } {
        return status(stx.bind_to(ep.domain, flags).map(|user| ep.contexts().add_tx(user)));
    }
    // SAFETY: as above, or null.
    let class = unsafe { other.as_ref() }.map(|fid| fid.fclass);
    if flags != 0 && class.is_some_and(|class| !matches!(class, FI_CLASS_CQ | FI_CLASS_CNTR)) {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: as above.
    unsafe { handle::unfit(other) }.negative()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let ep = our_endpoint!(fid);
    match command {
        FI_ENABLE => status(ep.prepare().and_then(|()| ep.control.clone().enable())),
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: fi_control(3) passes a valid u64 for these commands, or null.
            let Some(arg) = (unsafe { arg.cast::<u64>().as_mut() }) else { return Errno::EINVAL.negative() };
            ops_flag(ep, command == FI_SETOPSFLAG, arg)
        }
        FI_ALIAS => {
            // SAFETY: fi_ep_alias(3) passes a valid fi_alias.
            match unsafe { arg.cast::<fi_alias>().as_ref() } {
                // SAFETY: its place for the alias is null or valid.
                Some(wanted) => unsafe { alias(ep, wanted) },
                None => Errno::EINVAL.negative(),
            }
        }
        _ => Errno::ENOSYS.negative(),
    }
}

/// fi_open_ops: only a profile can be opened.
unsafe extern "C" fn ops_open(
    fid: *mut fid,
    name: *const c_char,
    flags: u64,
    ops: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let ep = our_endpoint!(fid);
    let control = ep.control.clone();
    // SAFETY: fi_open_ops passes a string and a place for the pointer, or null.
    unsafe { profile::open((name, flags), ops, context, &ep.dependents, move |list| control.measures(list)) }
}

impl EpObj {
    /// Gives an endpoint of a caller of 1.x peeks that copy, and buffered receives if `legacy` is
    /// true. Only for opening, once its address is known.
    pub(crate) fn serve_legacy(&self, legacy: Option<bool>) {
        if let Some(buffered) = legacy {
            self.control.serve_legacy(buffered.then_some(self.owner.0));
        }
    }

    fn contexts(&self) -> MutexGuard<'_, SharedContexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs before each call that enables the endpoint: checks that its shared contexts are bound,
    /// and binds the domain's event queue if it has none of its own.
    ///
    /// # Errors
    /// EOPBADSTATE if it was opened for a shared context and none is bound.
    pub(crate) fn prepare(&self) -> Result<()> {
        let SharedContexts { lacks_rx, lacks_tx, .. } = *self.contexts();
        if lacks_rx || lacks_tx {
            let what = if lacks_rx { "receive" } else { "transmit" };
            let what = format!("enable an endpoint that has no shared {what} context, for which its info asks");
            return Err(Error::new(Errno::EOPBADSTATE, what));
        }
        self.default_eq()
    }

    /// Binds the domain's event queue to an endpoint that has none of its own (fi_domain(3)). Runs
    /// before each call that may lead to events.
    pub(crate) fn default_eq(&self) -> Result<()> {
        // SAFETY: the domain stays open while it has endpoints.
        let eq = unsafe { &*self.domain }.eq.lock().unwrap_or_else(PoisonError::into_inner);
        match &*eq {
            Some((eq, _)) if !self.control.has_eq() => self.control.clone().bind_eq(eq, self.owner),
            _ => Ok(()),
        }
    }
}

impl SharedContexts {
    /// The shared contexts of a new endpoint with these attributes.
    pub(crate) const fn of(ep: &EpAttr) -> Self {
        let (lacks_rx, lacks_tx) = (ep.rx_ctx_cnt == SHARED_CONTEXT, ep.tx_ctx_cnt == SHARED_CONTEXT);
        Self { users: Vec::new(), lacks_rx, lacks_tx }
    }

    fn add_rx(&mut self, user: Child) {
        self.users.push(user);
        self.lacks_rx = false;
    }

    fn add_tx(&mut self, user: Child) {
        self.users.push(user);
        self.lacks_tx = false;
    }
}

/// Opens an alias of an endpoint, with flags of its own (fi_ep_alias(3)).
///
/// # Safety
/// The place for the alias is null or valid.
unsafe fn alias(ep: &EpObj, wanted: &fi_alias) -> c_int {
    let (transmit, receive) = (OpFlags::SEND.bits(), OpFlags::RECV.bits());
    let flags = wanted.flags & !(transmit | receive);
    if flags & OpFlags::TRIGGER.bits() != 0 && ep.triggers.is_none() {
        return Errno::EINVAL.negative();
    }
    let (mut tx, mut rx) = (ep.defaults.tx(), ep.defaults.rx());
    match wanted.flags & (transmit | receive) {
        direction if direction == transmit => tx = flags,
        direction if direction == receive => rx = flags,
        _ => return Errno::EINVAL.negative(),
    }
    // SAFETY: null or valid by this function's contract, and the alias is new.
    unsafe { make(wanted.fid, "open an alias", |_| Ok(install_alias(new_alias(ep, tx, rx)))) }
}

/// An alias is of its original's class.
fn install_alias(alias: EpObj) -> *mut fid {
    match alias.c.fid.fclass {
        FI_CLASS_TX_CTX => handle::install(TxContextObj(alias)).cast(),
        FI_CLASS_RX_CTX => handle::install(RxContextObj(alias)).cast(),
        _ => handle::install(alias).cast(),
    }
}

fn new_alias(ep: &EpObj, tx: u64, rx: u64) -> EpObj {
    let mut triggers = ep.triggers.clone();
    if (tx | rx) & OpFlags::TRIGGER.bits() != 0 {
        triggers = triggers.map(|triggers| Arc::new(triggers.of_alias()));
    }
    let c = &ep.c;
    let context = c.fid.context;
    let fid = match c.fid.fclass {
        FI_CLASS_TX_CTX => handle::header::<TxContextObj>(context),
        FI_CLASS_RX_CTX => handle::header::<RxContextObj>(context),
        _ => handle::header::<EpObj>(context),
    };
    let mut c = fid_ep {
        fid,
        ops: c.ops,
        cm: c.cm,
        msg: c.msg,
        rma: c.rma,
        tagged: c.tagged,
        atomic: c.atomic,
        collective: c.collective,
    };
    if let Some(Triggers { msg, rma, tagged, atomic, .. }) = triggers.as_deref() {
        (c.msg, c.rma, c.tagged, c.atomic) = (msg, rma, tagged, atomic);
    }
    let defaults = ep.defaults.of_alias(tx, rx);
    EpObj {
        data: DataPath { c, engine_ptr: ep.engine_ptr, defaults, triggers },
        control: ep.control.clone(),
        dependents: Children::new(),
        alias_of: Some(ep.dependents.add()),
        connected: ep.connected,
        caps: ep.caps,
        joins_groups: ep.joins_groups,
        request: Mutex::new(None),
        handle: core::ptr::null_mut(),
        format: ep.format,
        owner: ep.owner,
        domain: ep.domain,
        contexts: Mutex::default(),
        // SAFETY: the domain stays open while it has endpoints.
        parent: unsafe { &*ep.domain }.children.add(),
    }
}

/// Reads or replaces the default flags of one direction (fi_endpoint(3)).
fn ops_flag(ep: &EpObj, set: bool, arg: &mut u64) -> c_int {
    let (transmit, receive) = (OpFlags::SEND.bits(), OpFlags::RECV.bits());
    let direction = *arg & (transmit | receive);
    let flags = *arg & !direction;
    if direction == transmit && set {
        ep.defaults.set_tx(flags);
    } else if direction == transmit {
        *arg = ep.defaults.tx();
    } else if direction == receive && set {
        ep.defaults.set_rx(flags);
    } else if direction == receive {
        *arg = ep.defaults.rx();
    } else {
        return Errno::EINVAL.negative();
    }
    0
}

pub(super) unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: C passes the object that holds this table.
    match unsafe { endpoint(fid) } {
        Ok(ep) => {
            let waits =
                |triggers: &Arc<Triggers>| triggers.work.queue.cancel_triggered(&triggers.initiator, context.addr());
            if !ep.triggers.as_ref().is_some_and(waits) {
                ep.control.cancel(context.addr());
            }
            0
        }
        Err(errno) => errno.negative() as isize,
    }
}
