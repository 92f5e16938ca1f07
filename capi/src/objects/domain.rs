//! Domains (fi_domain(3)): they open endpoints, completion queues and address vectors.

use crate::abi::FI_CLASS_DOMAIN;
use crate::abi::{
    fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_info, fi_ops, fi_ops_domain, fi_poll_attr, fid, fid_av, fid_cntr, fid_cq,
    fid_domain, fid_ep, fid_poll,
};
use crate::endpoint::message::tables;
use crate::endpoint::object;
use crate::enosys;
use crate::erased::{CntrControl, CqControl, DomainControl, EpControl, Opened, OpenedCq, Waits};
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::make;
use crate::objects::eq::EqObj;
use crate::objects::fabric::FabricObj;
use crate::objects::{av, cntr, cq, poll};
use crate::reserve::Watch;
use crate::state::open_objects::Listed;
use core::any::Any;
use core::ffi::{c_int, c_void};
use ofi_core::AddrFormat;
use ofi_core::TrafficClass;
use ofi_core::error::{Error, Result};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, BindFlags, Caps, EndpointType, Errno, FiAddr, Info, ProgressModel, Version};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::datagram::{self, Datagrams};
use ofi_engine::endpoint::{Config, peer_account};
use ofi_engine::limits::{Limits, SizeLimit};
use ofi_engine::wire::hello::EndpointKind;
use ofi_engine::{AddressVector, Auto, CompletionQueue, Counter, DatagramEndpoint, Endpoint, EventQueue, Waiting};
use ofi_registry::{AutoThread, DatagramProvider, DomainVisitor, Provider};
use ofi_sync::busy::{Child, Children};
use ofi_sync::lock::{LockKind, Unlocked};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

object!(DomainObj, FI_CLASS_DOMAIN, FID_OPS, c.fid [ops mr]);

pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind,
    control: enosys::control,
    ops_open: enosys::ops_open,
    tostr: enosys::tostr,
    ops_set: enosys::ops_set,
};

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open,
    cq_open,
    endpoint: open_endpoint,
    scalable_ep: enosys::enosys,
    cntr_open,
    poll_open,
    stx_ctx: enosys::enosys,
    srx_ctx: enosys::enosys,
    query_atomic: enosys::enosys,
    query_collective: enosys::enosys,
    endpoint2: open_endpoint2,
    xpu_ctx: enosys::enosys,
};

/// Opens a domain.
pub(crate) fn open(fabric: &FabricObj, info: &Info, context: *mut c_void) -> Result<*mut fid_domain> {
    if let Some(name) = info.domain.name.as_deref().filter(|name| !ofi_registry::inet::has_domain(name)) {
        return Err(Error::new(Errno::EINVAL, format!("open the domain {name}, which is not there")));
    }
    // SAFETY: a caller that asks for FI_THREAD_DOMAIN promises that no two threads are in calls on objects of the
    // domain at once (fi_domain(3)); the registry uses this only then.
    let unlocked = unsafe { Unlocked::promised() };
    let auto = (info.domain.progress == ProgressModel::AUTO).then(AutoThread::start).transpose()?;
    let control = ofi_registry::open(info, Some(unlocked), Open(auto))?;
    let c = fid_domain { fid: handle::header::<DomainObj>(context), ops: &OPS, mr: &enosys::MR };
    let object = DomainObj {
        c,
        control,
        api: Version(fabric.c.api_version),
        format: info.addr_format,
        av_type: info.domain.av_type.0,
        class: info.domain.tclass,
        user_ids: (info.caps | info.domain.caps).contains(Caps::AV_USER_ID),
        listed: None,
        eq: Mutex::default(),
        children: Children::new(),
        parent: fabric.children.add(),
    };
    let domain = handle::install(object);
    domain.expose_provenance();
    let name = info.domain.name.as_deref().unwrap_or_default();
    let provider = info.fabric.prov_name.as_deref().unwrap_or(&fabric.provider);
    // SAFETY: made above and not given away yet.
    unsafe { (*domain).listed = Some(Listed::new(domain.cast(), true, provider, name)) };
    Ok(domain.cast())
}

/// Makes the erased form of a domain of any provider and locking, with its thread if it has one.
struct Open(Option<AutoThread>);

impl DomainVisitor for Open {
    type Output = Box<dyn DomainControl>;
    fn visit<P: Provider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        Box::new(DomainShim { opener: Links(provider), kind, auto: self.0 })
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        Box::new(DomainShim { opener: Packets(provider), kind, auto: self.0 })
    }
}

/// A domain of one provider and one kind of locking.
struct DomainShim<O, K> {
    opener: O,
    kind: K,
    auto: Option<AutoThread>,
}

/// Opens the endpoints of a domain.
trait OpenEndpoint: Send + Sync {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened>;
}

/// Endpoints that have links.
struct Links<P>(P);

/// Endpoints that have none.
struct Packets<P>(P);

impl<P: Provider> OpenEndpoint for Links<P> {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened> {
        let provider = self.0;
        let endpoint_kind = match info.ep.kind {
            EndpointType::MSG => EndpointKind::Msg,
            EndpointType::RDM => EndpointKind::Rdm,
            other => {
                let what = format!("open an endpoint of type {other} in a domain of provider {}", provider.name());
                return Err(Error::new(Errno::EINVAL, what));
            }
        };
        let config = Config {
            kind: endpoint_kind,
            caps: info.caps | (info.tx.caps | info.rx.caps),
            tx_size: info.tx.size.max(1),
            rx_size: info.rx.size.max(1),
            limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
            nonce: ofi_os::random(),
            provider: provider.name(),
            account: peer_account(),
        };
        let class = ofi_registry::class_of(info, provider.name())?;
        let (format, charged) = (info.addr_format, config.account.clone());
        let opener: ofi_engine::endpoint::Opener<P::Transport> = match endpoint_kind {
            EndpointKind::Rdm => Box::new(move |addr| provider.open_rdm(addr, format, class, &charged)),
            EndpointKind::Msg => Box::new(move |addr| provider.open_msg(addr, class, &charged)),
        };
        let engine = Endpoint::<P::Transport, K>::new(kind, config, info.src_addr, opener, auto);
        let (msg, tagged) = tables::<Endpoint<P::Transport, K>>(info.caps);
        Ok(Opened { engine_ptr: Arc::as_ptr(&engine).cast(), msg, tagged, control: Arc::new(EpShim(engine)) })
    }
}

impl<P: DatagramProvider> OpenEndpoint for Packets<P> {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened> {
        let (provider, format) = (self.0, info.addr_format);
        if info.ep.kind != EndpointType::DGRAM {
            let what = format!("open an endpoint of type {} in a domain of provider {}", info.ep.kind, provider.name());
            return Err(Error::new(Errno::EINVAL, what));
        }
        let class = ofi_registry::class_of(info, provider.name())?;
        let config = datagram::Config {
            caps: info.caps | (info.tx.caps | info.rx.caps),
            limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
            rx_size: info.rx.size.max(1),
        };
        let opener: datagram::Opener<P::Datagrams> = Box::new(move |addr| provider.open(addr, format, class));
        let engine = DatagramEndpoint::<P::Datagrams, K>::new(kind, config, info.src_addr, opener, auto);
        let (msg, tagged) = tables::<DatagramEndpoint<P::Datagrams, K>>(info.caps);
        Ok(Opened { engine_ptr: Arc::as_ptr(&engine).cast(), msg, tagged, control: Arc::new(DgramShim(engine)) })
    }
}

impl<O: OpenEndpoint, K: LockKind> DomainControl for DomainShim<O, K> {
    fn endpoint(&self, info: &Info) -> Result<Opened> {
        self.opener.open(info, self.kind, self.auto().cloned())
    }

    fn cq(&self, size: usize, port: Arc<dyn WaitObject>, how: Waiting) -> OpenedCq {
        let queue = Arc::new(CompletionQueue::<K>::new(self.kind, size, port, how));
        OpenedCq { engine_ptr: Arc::as_ptr(&queue).cast(), ops: cq::table::<K>, control: Arc::new(CqShim(queue)) }
    }

    fn counter(&self, port: Arc<dyn WaitObject>, how: Waiting) -> Arc<dyn CntrControl> {
        Arc::new(CntrShim(Arc::new(Counter::<K>::new(self.kind, port, how))))
    }

    fn auto(&self) -> Option<&Arc<Auto>> {
        self.auto.as_ref().map(AutoThread::progress)
    }
}

struct CqShim<K: LockKind>(Arc<CompletionQueue<K>>);

impl<K: LockKind> Waits for CqShim<K> {
    fn descriptor(&self) -> Option<i32> {
        self.0.descriptor()
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.0.try_wait()
    }
}

impl<K: LockKind> CqControl for CqShim<K> {
    fn as_any(&self) -> &dyn Any {
        &self.0
    }
    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
    fn in_use(&self) -> bool {
        self.0.users.count() > 0
    }
    fn hold(&self) -> Child {
        self.0.users.add()
    }
    fn check(&self) -> bool {
        self.0.check()
    }
    fn signal(&self) -> Result<(), Errno> {
        self.0.signal()
    }
}

struct CntrShim<K: LockKind>(Arc<Counter<K>>);

impl<K: LockKind> Waits for CntrShim<K> {
    fn descriptor(&self) -> Option<i32> {
        self.0.descriptor()
    }
    fn try_wait(&self) -> Result<(), Errno> {
        self.0.try_wait()
    }
}

impl<K: LockKind> CntrControl for CntrShim<K> {
    fn as_any(&self) -> &dyn Any {
        &self.0
    }
    fn in_use(&self) -> bool {
        self.0.users.count() > 0
    }
    fn hold(&self) -> Child {
        self.0.users.add()
    }
    fn read(&self) -> u64 {
        self.0.read()
    }
    fn check(&self) -> (u64, u64) {
        self.0.check()
    }
    fn read_errors(&self) -> u64 {
        self.0.read_errors()
    }
    fn add(&self, count: u64) {
        self.0.add(count);
    }
    fn add_errors(&self, count: u64) {
        self.0.add_errors(count);
    }
    fn set(&self, value: u64) {
        self.0.set(value);
    }
    fn set_errors(&self, value: u64) {
        self.0.set_errors(value);
    }
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), Errno> {
        self.0.wait(threshold, timeout)
    }
}

struct EpShim<T: ofi_engine::transport::Transport, K: LockKind>(Arc<Endpoint<T, K>>);

impl<T: ofi_engine::transport::Transport, K: LockKind> EpControl for EpShim<T, K> {
    fn bind_cq(&self, cq: &dyn Any, flags: BindFlags) -> Result<()> {
        let cq = cq
            .downcast_ref::<Arc<CompletionQueue<K>>>()
            .ok_or_else(|| Error::new(Errno::EDOMAIN, "bind a completion queue of another domain"))?;
        self.0.bind_cq(cq, flags)
    }
    fn bind_counter(&self, counter: &dyn Any, flags: BindFlags) -> Result<()> {
        let counter = counter
            .downcast_ref::<Arc<Counter<K>>>()
            .ok_or_else(|| Error::new(Errno::EDOMAIN, "bind a counter of another domain"))?;
        self.0.bind_counter(counter, flags)
    }
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        self.0.bind_av(av)
    }
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        self.0.bind_eq(eq, owner)
    }
    fn has_eq(&self) -> bool {
        self.0.has_eq()
    }
    fn enable(&self) -> Result<()> {
        self.0.enable()
    }
    fn cancel(&self, context: usize) {
        self.0.cancel(context);
    }
    fn min_multi_recv(&self) -> usize {
        self.0.min_multi_recv()
    }
    fn set_min_multi_recv(&self, least: usize) {
        self.0.set_min_multi_recv(least);
    }
    fn limit(&self, which: SizeLimit) -> usize {
        self.0.limit(which)
    }
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        self.0.set_limit(which, size)
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
    fn accept(&self, request: &mut Option<ConnectionRequest>, data: &[u8]) -> Result<()> {
        self.0.begin_connection(data)?;
        let asked = request
            .take()
            .ok_or_else(|| Error::new(Errno::EOPBADSTATE, "accept without a request"))?
            .into_asked::<T::Request>()
            .ok_or_else(|| Error::new(Errno::EINVAL, "accept a request of another provider"))?;
        self.0.accept(asked, data)
    }
    fn shut_down(&self) -> Result<(), Errno> {
        self.0.shut_down()
    }
    fn join(&self, _group: Addr, _ways: (bool, bool), _owner: Owner, _joined: &mut dyn FnMut(FiAddr)) -> Result<()> {
        Err(NO_GROUPS.into())
    }
    fn leave(&self, _group: &Addr, _receive: bool, _handle: FiAddr, _owner: Owner) {}
    fn close(&self) {
        self.0.close();
    }
}

const NO_GROUPS: Errno = Errno::ENOSYS;

struct DgramShim<D: Datagrams, K: LockKind>(Arc<DatagramEndpoint<D, K>>);

impl<D: Datagrams, K: LockKind> EpControl for DgramShim<D, K> {
    fn bind_cq(&self, cq: &dyn Any, flags: BindFlags) -> Result<()> {
        let cq = cq
            .downcast_ref::<Arc<CompletionQueue<K>>>()
            .ok_or_else(|| Error::new(Errno::EDOMAIN, "bind a completion queue of another domain"))?;
        self.0.bind_cq(cq, flags)
    }
    fn bind_counter(&self, counter: &dyn Any, flags: BindFlags) -> Result<()> {
        let counter = counter
            .downcast_ref::<Arc<Counter<K>>>()
            .ok_or_else(|| Error::new(Errno::EDOMAIN, "bind a counter of another domain"))?;
        self.0.bind_counter(counter, flags)
    }
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        self.0.bind_av(av)
    }
    fn bind_eq(&self, eq: &Arc<EventQueue>, _owner: Owner) -> Result<()> {
        self.0.bind_eq(eq);
        Ok(())
    }
    fn has_eq(&self) -> bool {
        self.0.has_eq()
    }
    fn enable(&self) -> Result<()> {
        self.0.enable()
    }
    fn cancel(&self, context: usize) {
        self.0.cancel(context);
    }
    fn min_multi_recv(&self) -> usize {
        0
    }
    fn set_min_multi_recv(&self, _least: usize) {}
    fn limit(&self, which: SizeLimit) -> usize {
        self.0.limit(which)
    }
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        self.0.set_limit(which, size)
    }
    fn local_addr(&self) -> Result<Addr> {
        self.0.local_addr()
    }
    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.0.set_local_addr(addr)
    }
    fn peer_addr(&self) -> Result<Addr> {
        Err(Errno::ENOSYS.into())
    }
    fn connect(&self, _to: Addr, _data: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    fn accept(&self, _request: &mut Option<ConnectionRequest>, _data: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    fn shut_down(&self) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn join(&self, group: Addr, ways: (bool, bool), owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()> {
        self.0.join(group, ways, owner, joined)
    }
    fn leave(&self, group: &Addr, receive: bool, handle: FiAddr, owner: Owner) {
        self.0.leave(group, receive, handle, owner);
    }
    fn close(&self) {
        self.0.close();
    }
}

/// Binds the event queue for what happens to the domain's endpoints that have none of their own (fi_domain(3)). What
/// happens to the domain itself is synchronous, so not reported.
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

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<DomainObj>(fid, |domain| domain.children.count() > 0) }
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
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or a valid info by fi_endpoint(3).
    let (Some(info), 0) = (unsafe { info.as_ref() }, flags) else { return Errno::EINVAL.negative() };
    // SAFETY: the info is valid, so are its parts.
    let open = |watch: &Watch| unsafe { object::open(domain, info, context, watch) };
    // SAFETY: `out` is null or valid by fi_endpoint(3), and the endpoint is new.
    unsafe { make(out, "open an endpoint", open) }
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or valid attributes by fi_cq_open(3).
    let Some(attr) = (unsafe { attr.as_ref() }) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_cq_open(3) passes an open wait set where it is asked for.
    let open = |_: &Watch| unsafe { cq::open(domain, attr, context) };
    // SAFETY: `out` is null or valid by fi_cq_open(3), and the queue is new.
    unsafe { make(out, "open a completion queue", open) }
}

unsafe extern "C" fn av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or valid attributes by fi_av_open(3).
    let Some(attr) = (unsafe { attr.as_mut() }) else { return Errno::EINVAL.negative() };
    // SAFETY: `out` is null or valid by fi_av_open(3), and the vector is new.
    unsafe { make(out, "open an address vector", |_| av::open(domain, attr, context)) }
}

unsafe extern "C" fn cntr_open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    out: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or valid attributes by fi_cntr_open(3).
    let attr = unsafe { attr.as_ref() };
    // SAFETY: fi_cntr_open(3) passes an open wait set where it is asked for.
    let open = |_: &Watch| unsafe { cntr::open(domain, attr, context) };
    // SAFETY: `out` is null or valid by fi_cntr_open(3), and the counter is new.
    unsafe { make(out, "open a counter", open) }
}

unsafe extern "C" fn poll_open(domain: *mut fid_domain, attr: *mut fi_poll_attr, out: *mut *mut fid_poll) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or valid attributes by fi_poll_open(3).
    let attr = unsafe { attr.as_ref() };
    // SAFETY: `out` is null or valid by fi_poll_open(3), and the set is new.
    unsafe { make(out, "open a poll set", |_| poll::open(domain, attr)) }
}
