//! Domains (fi_domain(3)): they open endpoints, completion queues and address vectors.

use super::absent;
use super::message::Tables;
use crate::abi::{fi_av_attr, fi_cq_attr, fi_info, fi_ops, fi_ops_domain, fid, fid_av, fid_cq, fid_domain, fid_ep};
use crate::guard::{put, refuse};
use crate::object::{self, CqControl, DomainControl, DomainObj, EpControl, FabricObj, Opened, OpenedCq};
use crate::ops::{av, cq, endpoint};
use core::any::Any;
use core::ffi::{c_int, c_void};
use ofi_core::error::Result;
use ofi_core::{Addr, AvType, BindFlags, EndpointType, Errno, Info, Version};
use ofi_engine::endpoint::Config;
use ofi_engine::eq::{ConnectionRequest, Owner};
use ofi_engine::hello::Speaker;
use ofi_engine::{AddressVector, CompletionQueue, Endpoint, EventQueue};
use ofi_registry::{DomainVisitor, Provider};
use ofi_sync::busy::Children;
use ofi_sync::lock::{LockKind, Unlocked};
use std::sync::Arc;

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind: absent::bind,
    control: absent::control,
    ops_open: absent::ops_open,
    tostr: absent::tostr,
    ops_set: absent::ops_set,
};

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open,
    cq_open,
    endpoint: open_endpoint,
    scalable_ep: absent::absent,
    cntr_open: absent::absent,
    poll_open: absent::absent,
    stx_ctx: absent::absent,
    srx_ctx: absent::absent,
    query_atomic: absent::absent,
    query_collective: absent::absent,
    endpoint2: open_endpoint2,
    xpu_ctx: absent::absent,
};

/// Opens a domain.
pub(crate) fn open(fabric: &FabricObj, info: &Info, context: *mut c_void) -> Result<*mut fid_domain> {
    // SAFETY: a caller that asks for FI_THREAD_DOMAIN promises that no two threads are in calls on objects of the
    // domain at once (fi_domain(3)); the registry uses this only then.
    let unlocked = unsafe { Unlocked::promised() };
    let control = ofi_registry::open(info, Some(unlocked), Open)?;
    let c = fid_domain { fid: object::header::<DomainObj>(context), ops: &OPS, mr: &absent::MR };
    let av_type = if info.domain.av_type == AvType::UNSPEC { AvType::TABLE } else { info.domain.av_type };
    let object = DomainObj {
        c,
        control,
        api: Version(fabric.c.api_version),
        format: info.addr_format,
        av_type: av_type.0,
        children: Children::new(),
        parent: fabric.children.add(),
    };
    Ok(object::install(object).cast())
}

/// Makes the erased form of a domain of any provider and locking.
struct Open;

impl DomainVisitor for Open {
    type Output = Box<dyn DomainControl>;
    fn visit<P: Provider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        Box::new(Held { provider, kind })
    }
}

/// A domain of one provider and one kind of locking.
struct Held<P, K> {
    provider: P,
    kind: K,
}

impl<P: Provider, K: LockKind> DomainControl for Held<P, K> {
    fn endpoint(&self, info: &Info) -> Result<Opened> {
        let speaker = if info.ep.kind == EndpointType::MSG { Speaker::Msg } else { Speaker::Rdm };
        let config = Config {
            speaker,
            caps: info.caps | (info.tx.caps | info.rx.caps),
            tx_size: info.tx.size.max(1),
            rx_size: info.rx.size.max(1),
            inject_size: info.tx.inject_size,
            nonce: ofi_os::random(),
            provider: self.provider.name(),
        };
        let (provider, format) = (self.provider, info.addr_format);
        let opener: ofi_engine::endpoint::Opener<P::Transport> = match speaker {
            Speaker::Rdm => Box::new(move |addr| provider.open_rdm(addr, format)),
            Speaker::Msg => Box::new(move |addr| provider.open_msg(addr)),
        };
        let engine = Endpoint::<P::Transport, K>::new(self.kind, config, info.src_addr, opener);
        Ok(Opened {
            hot: Arc::as_ptr(&engine).cast(),
            msg: Tables::<P::Transport, K>::MSG,
            tagged: Tables::<P::Transport, K>::TAGGED,
            control: Box::new(EpHeld(engine)),
        })
    }

    fn cq(&self, size: usize, waitable: bool) -> Result<OpenedCq> {
        let port = Arc::new(ofi_os::wait_fd::WaitPort::new(waitable)?);
        let queue = Arc::new(CompletionQueue::<K>::new(self.kind, size, port, waitable));
        Ok(OpenedCq { hot: Arc::as_ptr(&queue).cast(), ops: cq::Table::<K>::OPS, control: Box::new(CqHeld(queue)) })
    }
}

struct CqHeld<K: LockKind>(Arc<CompletionQueue<K>>);

impl<K: LockKind> CqControl for CqHeld<K> {
    fn as_any(&self) -> &dyn Any {
        &self.0
    }
    fn descriptor(&self) -> Option<i32> {
        self.0.descriptor()
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.0.try_wait()
    }
    fn in_use(&self) -> bool {
        self.0.users.count() > 0
    }
    fn signal(&self) -> Result<(), Errno> {
        self.0.signal()
    }
}

struct EpHeld<T: ofi_engine::transport::Transport, K: LockKind>(Arc<Endpoint<T, K>>);

impl<T: ofi_engine::transport::Transport, K: LockKind> EpControl for EpHeld<T, K> {
    fn bind_cq(&self, cq: &dyn Any, flags: BindFlags) -> Result<()> {
        let cq = cq
            .downcast_ref::<Arc<CompletionQueue<K>>>()
            .ok_or_else(|| ofi_core::Error::new(Errno::EDOMAIN, "bind a completion queue of another domain"))?;
        self.0.bind_cq(cq, flags)
    }
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        self.0.bind_av(av)
    }
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) {
        self.0.bind_eq(eq, owner);
    }
    fn enable(&self) -> Result<()> {
        self.0.enable()
    }
    fn cancel(&self, context: usize) {
        self.0.cancel(context);
    }
    fn local_addr(&self) -> Result<Addr> {
        self.0.local_addr()
    }
    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.0.set_local_addr(addr)
    }
    fn peer_addr(&self) -> Result<Addr> {
        self.0.peer_addr()
    }
    fn connect(&self, to: Addr, data: &[u8]) -> Result<()> {
        self.0.connect(to, data)
    }
    fn accept(&self, request: ConnectionRequest, data: &[u8]) -> Result<()> {
        let asked = request
            .into_asked::<T::Request>()
            .ok_or_else(|| ofi_core::Error::new(Errno::EINVAL, "accept a request of another provider"))?;
        self.0.accept(asked, data)
    }
    fn shut_down(&self) -> Result<(), Errno> {
        self.0.shut_down()
    }
    fn close(&self) {
        self.0.close();
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { object::close::<DomainObj>(fid, |domain| domain.children.count() > 0) }
}

unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of this function.
    unsafe { open_endpoint2(domain, info, out, 0, context) }
}

unsafe extern "C" fn open_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C passes the domain that holds this table.
    let domain = match unsafe { object::borrow::<DomainObj>(domain.cast()) } {
        Ok(domain) => domain,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or a valid info by fi_endpoint(3).
    let (Some(info), false, 0) = (unsafe { info.as_ref() }, out.is_null(), flags) else {
        return Errno::EINVAL.negative();
    };
    // SAFETY: the info is valid, so are its parts.
    match unsafe { endpoint::open(domain, info, context) } {
        // SAFETY: `out` is not null, so valid by fi_endpoint(3).
        Ok(ep) => match unsafe { put(out, ep) } {
            Ok(()) => 0,
            Err(errno) => errno.negative(),
        },
        Err(error) => refuse(&error),
    }
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C passes the domain that holds this table.
    let domain = match unsafe { object::borrow::<DomainObj>(domain.cast()) } {
        Ok(domain) => domain,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid attributes by fi_cq_open(3).
    let (Some(attr), false) = (unsafe { attr.as_ref() }, out.is_null()) else { return Errno::EINVAL.negative() };
    match cq::open(domain, attr, context) {
        // SAFETY: `out` is not null, so valid by fi_cq_open(3).
        Ok(cq) => match unsafe { put(out, cq) } {
            Ok(()) => 0,
            Err(errno) => errno.negative(),
        },
        Err(error) => refuse(&error),
    }
}

unsafe extern "C" fn av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C passes the domain that holds this table.
    let domain = match unsafe { object::borrow::<DomainObj>(domain.cast()) } {
        Ok(domain) => domain,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid attributes by fi_av_open(3).
    let (Some(attr), false) = (unsafe { attr.as_mut() }, out.is_null()) else { return Errno::EINVAL.negative() };
    match av::open(domain, attr, context) {
        // SAFETY: `out` is not null, so valid by fi_av_open(3).
        Ok(av) => match unsafe { put(out, av) } {
            Ok(()) => 0,
            Err(errno) => errno.negative(),
        },
        Err(error) => refuse(&error),
    }
}
