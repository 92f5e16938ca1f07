//! Scalable endpoints, and their transmit and receive contexts (fi_scalable_ep, fi_endpoint(3)). A
//! context is an endpoint object of a class of its own; the scalable endpoint has no operations.

use crate::convert::infos::{rx_to_c, tx_to_c};
use crate::convert::{self, rx_from_c, tx_from_c};
use crate::endpoint::cm;
use crate::endpoint::data_path::{DataPath, DefaultFlags};
use crate::endpoint::message::{NotRequested, tables};
use crate::endpoint::object::{EpObj, RxContextObj, SharedContexts, TxContextObj, install_context};
use crate::endpoint::open;
use crate::endpoint::{atomic, rma};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::{Object, object, ours};
use crate::ffi::ptr::{make, narrow, status, widen};
use crate::objects::av::AvObj;
use crate::objects::domain::{DomainObj, Opened, ScalableControl};
use crate::reserve::Watch;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use ofi_abi::{FI_CLASS_SEP, FI_ENABLE, fi_info, fi_ops, fi_ops_cm, fi_ops_ep, fi_rx_attr, fi_tx_attr, fid, fid_ep};
use ofi_core::error::{Error, Result};
use ofi_core::info::{EpAttr, Info, RxAttr, TxAttr};
use ofi_core::negotiate::SHARED_CONTEXT;
use ofi_core::{AddrFormat, Caps, EndpointType, Errno, Version};
use ofi_engine::Backstop;
use ofi_engine::completion::eq::Owner;
use ofi_engine::scalable::MOST_CONTEXTS;
use ofi_sync::busy::{Child, Children};
use std::sync::{Arc, Mutex};

/// A scalable endpoint.
#[repr(C)]
pub(crate) struct SepObj {
    /// All of its data calls are disabled.
    data: DataPath,
    control: Arc<dyn ScalableControl>,
    /// The info that it was opened with.
    info: Info,
    format: AddrFormat,
    domain: *const DomainObj,
    /// The domain's, for the contexts.
    backstop: Arc<Backstop>,
    /// Its open contexts.
    contexts: Children,
    _parent: Child,
}

impl Deref for SepObj {
    type Target = DataPath;
    fn deref(&self) -> &DataPath {
        &self.data
    }
}

impl DerefMut for SepObj {
    fn deref_mut(&mut self) -> &mut DataPath {
        &mut self.data
    }
}

object!(SepObj, FI_CLASS_SEP, FID_OPS, c.fid [ops cm msg rma tagged atomic collective]);

static FID_OPS: fi_ops = fi_ops { bind, control, ..enosys::fid_ops(close) };

static OPS: fi_ops_ep = fi_ops_ep { tx_ctx, rx_ctx, ..enosys::ep_ops(cancel, getopt, setopt) };

static CM: fi_ops_cm = enosys::cm_ops(setname, getname);

/// Opens a scalable endpoint.
///
/// # Safety
/// `info` is valid with all its parts (fi_endpoint(3)).
pub(crate) unsafe fn open(domain: &DomainObj, info: &fi_info, context: *mut c_void) -> Result<*mut fid_ep> {
    // SAFETY: this function's contract.
    let mut info = unsafe { convert::info(info, "") };
    if info.ep.kind != EndpointType::RDM {
        return Err(Error::new(Errno::ENOSYS, format!("open a scalable endpoint of type {}", info.ep.kind)));
    }
    if info.caps.contains(Caps::COLLECTIVE) {
        // Such an info says that an endpoint has one context of each kind.
        return Err(Error::new(Errno::ENOSYS, "open a scalable endpoint with FI_COLLECTIVE: it cannot join groups"));
    }
    for (what, count) in [("transmit", info.ep.tx_ctx_cnt), ("receive", info.ep.rx_ctx_cnt)] {
        if count > MOST_CONTEXTS && count != SHARED_CONTEXT {
            let what = format!("open a scalable endpoint with {count} {what} contexts, more than {MOST_CONTEXTS}");
            return Err(Error::new(Errno::EINVAL, what));
        }
    }
    info.domain.tclass = domain.class;
    let control = domain.control.scalable(&info)?;
    let (msg, tagged) = tables::<NotRequested>(Caps::empty());
    let c = fid_ep {
        fid: handle::header::<SepObj>(context),
        ops: &OPS,
        cm: &CM,
        msg,
        rma: rma::table::<NotRequested>(Caps::empty()),
        tagged,
        atomic: atomic::table::<NotRequested>(Caps::empty()),
        collective: &enosys::COLLECTIVE,
    };
    let defaults = DefaultFlags::new(0, 0, Caps::empty());
    let engine_ptr = NonNull::<NotRequested>::dangling().as_ptr().cast_const().cast();
    let format = if info.addr_format == AddrFormat::FORMAT_UNSPEC { domain.format } else { info.addr_format };
    let data = DataPath { c, engine_ptr, defaults, triggers: None };
    let (contexts, _parent) = (Children::new(), domain.children.add());
    let backstop = domain.control.backstop().clone();
    Ok(handle::install(SepObj { data, control, info, format, domain, backstop, contexts, _parent }).cast())
}

/// As [`at_most`], for the length of a vector: 0 in the endpoint's info is no limit.
fn iov_at_most(what: &str, wanted: usize, most: usize) -> Result<usize> {
    if most == 0 { Ok(wanted) } else { at_most(what, wanted, most) }
}

/// Refuses an attribute above that of the scalable endpoint; 0 inherits it.
fn at_most(what: &str, wanted: usize, most: usize) -> Result<usize> {
    if wanted > most {
        let what = format!("open a context with {what} {wanted}, above the {most} of its scalable endpoint");
        return Err(Error::new(Errno::EINVAL, what));
    }
    Ok(if wanted == 0 { most } else { wanted })
}

/// The capabilities of a context: those that were requested for it, or all of its endpoint's.
fn caps_of(wanted: Caps, all: Caps, what: &str) -> Result<Caps> {
    let unknown = wanted - all - Caps::ONCE;
    if !unknown.is_empty() {
        let what = format!("open a {what} context with {}, which its scalable endpoint lacks", unknown.text());
        return Err(Error::new(Errno::EINVAL, what));
    }
    Ok(if wanted.is_empty() { all } else { wanted })
}

impl SepObj {
    /// Its info for a transmit context that is requested with these attributes.
    fn transmit_info(&self, attr: Option<&fi_tx_attr>) -> Result<Info> {
        let mut info = self.info.clone();
        info.ep = EpAttr { rx_ctx_cnt: 1, ..info.ep };
        let all = (info.caps | info.tx.caps) - (Caps::RECEIVE - Caps::TRANSMIT);
        let wanted = attr.map_or_else(|| info.tx.clone(), tx_from_c);
        let base = &info.tx;
        let caps = caps_of(wanted.caps - Caps::IGNORED_FOR_TRANSMIT, all, "transmit")?;
        info.tx = TxAttr {
            caps,
            mode: base.mode,
            inject_size: at_most("inject_size", wanted.inject_size, base.inject_size)?,
            size: if wanted.size == 0 { base.size } else { wanted.size },
            iov_limit: iov_at_most("iov_limit", wanted.iov_limit, base.iov_limit)?,
            rma_iov_limit: iov_at_most("rma_iov_limit", wanted.rma_iov_limit, base.rma_iov_limit)?,
            tclass: base.tclass,
            ..wanted
        };
        (info.caps, info.rx.caps) = (caps, Caps::empty());
        Ok(info)
    }

    /// The same for a receive context.
    fn receive_info(&self, attr: Option<&fi_rx_attr>) -> Result<Info> {
        let mut info = self.info.clone();
        info.ep = EpAttr { tx_ctx_cnt: 1, ..info.ep };
        let all = (info.caps | info.rx.caps) - (Caps::TRANSMIT - Caps::RECEIVE);
        let wanted = attr.map_or_else(|| info.rx.clone(), rx_from_c);
        let base = &info.rx;
        let caps = caps_of(wanted.caps - Caps::IGNORED_FOR_RECEIVE, all, "receive")?;
        info.rx = RxAttr {
            caps,
            mode: base.mode,
            size: if wanted.size == 0 { base.size } else { wanted.size },
            iov_limit: iov_at_most("iov_limit", wanted.iov_limit, base.iov_limit)?,
            ..wanted
        };
        (info.caps, info.tx.caps) = (caps, Caps::empty());
        Ok(info)
    }

    /// As [`open::legacy`], of a receive context with these attributes.
    fn legacy(&self, info: &Info) -> Option<bool> {
        // SAFETY: the domain stays open while it has endpoints.
        open::legacy(unsafe { &*self.domain }, info)
    }

    /// The object of an open context. `info` has its attributes.
    fn object(&self, fid: fid, opened: Opened, info: &Info) -> Result<EpObj> {
        // SAFETY: the domain stays open while it has endpoints.
        let domain = unsafe { &*self.domain };
        let followed = domain.memory.followed.add_endpoint(&opened.control);
        let triggers = followed.and_then(|()| open::triggers(domain, info, &opened));
        let triggers = triggers.inspect_err(|_| opened.control.close())?;
        Ok(EpObj {
            data: open::data_path(fid, &cm::CONNECTIONLESS, info, &opened, triggers),
            control: opened.control,
            dependents: Children::new(),
            alias_of: None,
            connected: false,
            caps: info.caps,
            joins_groups: false,
            request: Mutex::new(None),
            handle: core::ptr::null_mut(),
            format: self.format,
            owner: Owner(0),
            domain: self.domain,
            contexts: Mutex::new(SharedContexts::of(&info.ep)),
            parent: self.contexts.add(),
        })
    }
}

fn index_of(index: c_int) -> Result<usize> {
    usize::try_from(index).map_err(|_| Error::new(Errno::EINVAL, format!("open context {index}")))
}

/// A kind of context, transmit or receive, with its attributes `A` and its object `O`.
struct Kind<A, O> {
    what: &'static str,
    info: fn(&SepObj, Option<&A>) -> Result<Info>,
    open: fn(&dyn ScalableControl, usize, &Info) -> Result<Opened>,
    /// The actual attributes of an open context.
    actual: fn(&Info) -> A,
    object: fn(EpObj) -> O,
}

const TRANSMIT: Kind<fi_tx_attr, TxContextObj> = Kind {
    what: "open a transmit context",
    info: SepObj::transmit_info,
    open: |sep, index, info| sep.open_transmit(index, info),
    actual: |info| tx_to_c(&info.tx),
    object: TxContextObj,
};

const RECEIVE: Kind<fi_rx_attr, RxContextObj> = Kind {
    what: "open a receive context",
    info: SepObj::receive_info,
    open: |sep, index, info| sep.open_receive(index, info),
    actual: |info| rx_to_c(&info.rx),
    object: RxContextObj,
};

impl<A, O: Object + DerefMut<Target = EpObj>> Kind<A, O> {
    /// Opens a context with the attributes at `attr`, which has `size` bytes and becomes the actual
    /// ones.
    ///
    /// # Safety
    /// `attr` and `out` are null or valid, and zeroes are a valid `A`.
    unsafe fn open(
        &self,
        (sep, index): (&SepObj, c_int),
        (attr, size): (*mut A, usize),
        out: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: this function's contract.
        let wanted = unsafe { widen(attr.cast_const(), size) };
        let open = |_: &Watch| {
            let info = (self.info)(sep, wanted.as_ref())?;
            let opened = (self.open)(sep.control.as_ref(), index_of(index)?, &info)?;
            opened.control.clone().set_backstop(&sep.backstop);
            let object = sep.object(handle::header::<O>(context), opened, &info)?;
            // SAFETY: this function's contract.
            unsafe { narrow(&(self.actual)(&info), attr, size) };
            Ok(install_context(object, self.object, sep.legacy(&info)))
        };
        // SAFETY: this function's contract, and the context is new.
        unsafe { make(out, self.what, open) }
    }
}

unsafe extern "C" fn tx_ctx(
    sep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_tx_attr,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let sep = ours!(SepObj, sep.cast());
    // SAFETY: the domain stays open while it has endpoints.
    let api = unsafe { &*sep.domain }.api;
    let size = if api < Version::new(1, 9) { offset_of!(fi_tx_attr, tclass) } else { size_of::<fi_tx_attr>() };
    // SAFETY: null or valid by fi_tx_context, fi_endpoint(3), up to the size in the caller's
    // version.
    unsafe { TRANSMIT.open((sep, index), (attr, size), out, context) }
}

unsafe extern "C" fn rx_ctx(
    sep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_rx_attr,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let sep = ours!(SepObj, sep.cast());
    // SAFETY: null or valid by fi_rx_context, fi_endpoint(3); the attributes never changed.
    unsafe { RECEIVE.open((sep, index), (attr, size_of::<fi_rx_attr>()), out, context) }
}

/// fi_scalable_ep_bind: an address vector.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let sep = ours!(SepObj, fid);
    // SAFETY: fi_scalable_ep_bind passes an object, ours or another library's, or null.
    match unsafe { handle::borrow::<AvObj>(other) } {
        Ok(_) if flags != 0 => Errno::EBADFLAGS.negative(),
        Ok(av) if !core::ptr::eq(av.domain, sep.domain) => Errno::EDOMAIN.negative(),
        Ok(av) => status(sep.control.bind_av(&av.av)),
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    let sep = ours!(SepObj, fid);
    match command {
        // Its contexts are enabled one by one.
        FI_ENABLE => status(sep.control.local_addr().map(drop)),
        _ => Errno::ENOSYS.negative(),
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let sep = ours!(SepObj, fid);
    if sep.contexts.count() > 0 {
        return Errno::EBUSY.negative();
    }
    sep.control.close();
    // SAFETY: the engine no longer refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<SepObj>(fid) });
    0
}

unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, len: *mut usize) -> c_int {
    let sep = ours!(SepObj, fid);
    // SAFETY: fi_getname(3) passes a buffer of `*len` bytes, or null.
    unsafe { cm::put_name(sep.control.local_addr(), addr, len) }
}

unsafe extern "C" fn setname(fid: *mut fid, addr: *mut c_void, len: usize) -> c_int {
    let sep = ours!(SepObj, fid);
    // SAFETY: fi_setname(3) passes an address of `len` bytes, or null.
    let set = unsafe { cm::name_of_format(addr, len, sep.format) };
    set.map_or_else(Errno::negative, |name| status(name.and_then(|name| sep.control.set_local_addr(name))))
}

unsafe extern "C" fn cancel(_: *mut fid, _: *mut c_void) -> isize {
    Errno::ENOSYS.negative() as isize
}

unsafe extern "C" fn getopt(_: *mut fid, _: c_int, _: c_int, _: *mut c_void, _: *mut usize) -> c_int {
    Errno::ENOPROTOOPT.negative()
}

unsafe extern "C" fn setopt(_: *mut fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    Errno::ENOPROTOOPT.negative()
}
