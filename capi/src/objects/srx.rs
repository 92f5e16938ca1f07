//! Shared contexts (fi_endpoint(3)). The receives of a receive context match messages to any of the
//! endpoints bound to it. A transmit context only permits endpoints to share resources: here it has
//! none of its own.

use crate::endpoint::data_path::{DataPath, DefaultFlags};
use crate::endpoint::message::{NotRequested, tables};
use crate::endpoint::{atomic, rma};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{counted, posted, put_size, read_size};
use crate::objects::domain::{DomainObj, OpenedSrx, SrxControl};
use crate::state::open_objects::Listed;
use core::ffi::{c_int, c_void};
use core::ops::{Deref, DerefMut};
use ofi_abi::{
    FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX, FI_ENABLE, FI_GETOPSFLAG, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_SETOPSFLAG,
};
use ofi_abi::{fi_ops, fi_ops_cm, fi_ops_ep, fi_rx_attr, fid, fid_ep, fid_stx};
use ofi_core::error::{Error, Result};
use ofi_core::{BindFlags, Caps, Errno, OpFlags};
use ofi_engine::endpoint::peer_account;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::{RxSettings, SharedRx};
use ofi_sync::busy::{Child, Children};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// Maximum number of posted receives, unless the attributes request more.
const DEFAULT_SIZE: usize = 1024;

/// A shared receive context.
#[repr(C)]
pub(crate) struct SrxObj {
    data: DataPath,
    /// The engine's context, for endpoints of the same lock kind.
    context: Arc<dyn SrxControl>,
    caps: Caps,
    domain: *const DomainObj,
    /// The endpoints bound to it.
    users: Children,
    _parent: Child,
}

impl Deref for SrxObj {
    type Target = DataPath;
    fn deref(&self) -> &DataPath {
        &self.data
    }
}

impl DerefMut for SrxObj {
    fn deref_mut(&mut self) -> &mut DataPath {
        &mut self.data
    }
}

object!(SrxObj, FI_CLASS_SRX_CTX, SRX_FID_OPS, c.fid [ops cm msg rma tagged atomic collective]);

static OPS: fi_ops_ep = fi_ops_ep { rx_size_left, ..STX_OPS };

static STX_OPS: fi_ops_ep = enosys::ep_ops(cancel, getopt, setopt);

pub(crate) static SRX_FID_OPS: fi_ops = fi_ops { control: srx_control, ..enosys::fid_ops(close_srx) };

/// The engine's context as an endpoint without sends.
#[repr(transparent)]
struct Receives<K: LockKind>(SharedRx<K>);

impl<K: LockKind> MessageOps for Receives<K> {
    fn send(&self, _: SendOp) -> core::result::Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn receive(&self, op: RecvOp) -> core::result::Result<(), Errno> {
        self.0.receive(op)
    }
}

impl<K: LockKind> SrxControl for SharedRx<K> {
    fn cancel(&self, context: usize) -> core::result::Result<(), Errno> {
        self.cancel(context)
    }
    fn min_multi_recv(&self) -> usize {
        self.min_multi_recv()
    }
    fn set_min_multi_recv(&self, least: usize) {
        self.set_min_multi_recv(least);
    }
    fn size_left(&self) -> usize {
        self.size_left()
    }
}

/// Opens the engine's context in a domain of that lock kind.
pub(crate) fn open_context<K: LockKind>(kind: K, settings: RxSettings) -> OpenedSrx {
    let context = SharedRx::new(kind, settings, peer_account());
    let (msg, tagged) = tables::<Receives<K>>(settings.caps);
    OpenedSrx { engine_ptr: Arc::as_ptr(&context).cast(), context, msg, tagged }
}

/// Opens a shared receive context (fi_srx_context).
///
/// # Errors
/// EINVAL for more receives than the provider's endpoints can have.
pub(crate) fn open(
    domain: &DomainObj,
    cm: &'static fi_ops_cm,
    attr: Option<&fi_rx_attr>,
    context: *mut c_void,
) -> Result<*mut fid_ep> {
    let (caps, size, flags) = attr.map_or((0, 0, 0), |attr| (attr.caps, attr.size, attr.op_flags));
    let requested = Caps::from_bits_retain(caps);
    let caps = if requested.is_empty() { domain.caps & Caps::RECEIVE } else { requested };
    let size = if size == 0 { DEFAULT_SIZE } else { size };
    let provider = domain.listed.as_ref().map(Listed::provider).unwrap_or_default();
    ofi_registry::check_shared_size(size, &provider)?;
    let opened = domain.control.srx(RxSettings { size, caps });
    let c = fid_ep {
        fid: handle::header::<SrxObj>(context),
        ops: &OPS,
        cm,
        msg: opened.msg,
        rma: rma::table::<NotRequested>(Caps::empty()),
        tagged: opened.tagged,
        atomic: atomic::table::<NotRequested>(Caps::empty()),
        collective: &enosys::COLLECTIVE,
    };
    let data =
        DataPath { c, engine_ptr: opened.engine_ptr, defaults: DefaultFlags::new(0, flags, caps), triggers: None };
    let object =
        SrxObj { data, context: opened.context, caps, domain, users: Children::new(), _parent: domain.children.add() };
    Ok(handle::install(object).cast())
}

impl SrxObj {
    /// Binds an endpoint of that domain to this context; the result keeps the context open.
    pub(crate) fn bind_to(
        &self,
        endpoint: &Arc<dyn EndpointControl>,
        domain: *const DomainObj,
        flags: u64,
    ) -> Result<Child> {
        check(self.domain, domain, flags)?;
        endpoint.clone().bind_rx(self.context.clone())?;
        Ok(self.users.add())
    }
}

unsafe extern "C" fn srx_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let srx = ours!(SrxObj, fid);
    let receive = OpFlags::RECV.bits();
    match command {
        // It is enabled from the start.
        FI_ENABLE => 0,
        FI_GETOPSFLAG | FI_SETOPSFLAG => {
            // SAFETY: fi_control(3) passes a valid u64 for these commands, or null.
            let Some(flags) = (unsafe { arg.cast::<u64>().as_mut() }) else { return Errno::EINVAL.negative() };
            if *flags & (OpFlags::SEND.bits() | receive) != receive {
                return Errno::EINVAL.negative();
            }
            if command == FI_SETOPSFLAG {
                srx.defaults.set_rx(*flags & !receive);
            } else {
                *flags = srx.defaults.rx();
            }
            0
        }
        _ => Errno::ENOSYS.negative(),
    }
}

/// Cancels a receive; one of the endpoints reports it. A transmit context has no operations.
unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: C passes the object that holds this table.
    let srx = unsafe { handle::borrow::<SrxObj>(fid) }.map_err(|_| Errno::ENOSYS);
    posted(srx.and_then(|srx| srx.context.cancel(context.addr())))
}

unsafe extern "C" fn rx_size_left(ep: *mut fid_ep) -> isize {
    counted(Ok(ours!(SrxObj, ep.cast(), isize).context.size_left()))
}

/// A shared receive context has one option, FI_OPT_MIN_MULTI_RECV.
///
/// # Safety
/// `fid` is a shared context.
unsafe fn with_option<'a>(fid: *mut fid, level: c_int, name: c_int) -> core::result::Result<&'a SrxObj, Errno> {
    // SAFETY: this function's contract.
    let srx = unsafe { handle::borrow::<SrxObj>(fid) }.map_err(|_| Errno::ENOPROTOOPT)?;
    let caps = Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV;
    let known = level == FI_OPT_ENDPOINT && name == FI_OPT_MIN_MULTI_RECV && srx.caps.intersects(caps);
    if known { Ok(srx) } else { Err(Errno::ENOPROTOOPT) }
}

unsafe extern "C" fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let srx = match unsafe { with_option(fid, level, name) } {
        Ok(srx) => srx,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid by fi_getopt(3).
    unsafe { put_size(srx.context.min_multi_recv(), value, len) }
}

unsafe extern "C" fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let srx = match unsafe { with_option(fid, level, name) } {
        Ok(srx) => srx,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid by fi_setopt(3).
    match unsafe { read_size(value, len) } {
        Ok(size) => {
            srx.context.set_min_multi_recv(size);
            0
        }
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn close_srx(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<SrxObj>(fid, |srx| srx.users.count() > 0) }
}

/// A shared transmit context.
#[repr(C)]
pub(crate) struct StxObj {
    c: fid_stx,
    domain: *const DomainObj,
    /// The endpoints bound to it.
    users: Children,
    _parent: Child,
}

object!(StxObj, FI_CLASS_STX_CTX, STX_FID_OPS, c.fid[ops]);

pub(crate) static STX_FID_OPS: fi_ops = enosys::fid_ops(close_stx);

/// Opens a shared transmit context (fi_stx_context) with the capabilities of its attributes.
pub(crate) fn open_stx(domain: &DomainObj, caps: Option<u64>, context: *mut c_void) -> Result<*mut fid_stx> {
    let unknown = Caps::from_bits_retain(caps.unwrap_or_default()) - Caps::TRANSMIT;
    if !unknown.is_empty() {
        let what = format!("open a shared transmit context with {}", unknown.text());
        return Err(Error::new(Errno::EINVAL, what));
    }
    let c = fid_stx { fid: handle::header::<StxObj>(context), ops: &STX_OPS };
    let object = StxObj { c, domain, users: Children::new(), _parent: domain.children.add() };
    Ok(handle::install(object).cast())
}

impl StxObj {
    /// Binds an endpoint of that domain to this context; the result keeps the context open.
    pub(crate) fn bind_to(&self, domain: *const DomainObj, flags: u64) -> Result<Child> {
        check(self.domain, domain, flags)?;
        Ok(self.users.add())
    }
}

unsafe extern "C" fn close_stx(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<StxObj>(fid, |stx| stx.users.count() > 0) }
}

fn check(domain: *const DomainObj, of_endpoint: *const DomainObj, flags: u64) -> Result<()> {
    if !BindFlags::from_bits_retain(flags).is_empty() {
        return Err(Error::new(Errno::EBADFLAGS, "bind a shared context with flags"));
    }
    if !core::ptr::eq(domain, of_endpoint) {
        return Err(Error::new(Errno::EDOMAIN, "bind a shared context of another domain"));
    }
    Ok(())
}
