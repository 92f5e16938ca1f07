//! Opens domains, and the objects in them: endpoints, completion queues, counters, address vectors
//! and poll sets (fi_domain(3)).

use crate::endpoint::message::{NotRequested, tables};
use crate::endpoint::{atomic, cm, collective, open, rma};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, refuse};
use crate::objects::deferred;
use crate::objects::domain::{DomainControl, DomainObj, Opened, OpenedCounter, OpenedCq, OpenedSrx, ScalableControl};
use crate::objects::fabric::FabricObj;
use crate::objects::memory::Memory;
use crate::objects::mr;
use crate::objects::sep;
use crate::objects::signaler::Signaler;
use crate::objects::srx;
use crate::objects::work::DomainWork;
use crate::objects::{av_ops, cntr, cq, poll};
use crate::reserve::Watch;
use crate::state::open_objects::Listed;
use core::ffi::{c_int, c_void};
use ofi_abi::{
    fi_atomic_attr, fi_av_attr, fi_cntr_attr, fi_collective_attr, fi_cq_attr, fi_info, fi_ops_domain, fi_poll_attr,
    fi_rx_attr, fi_tx_attr, fid_av, fid_cntr, fid_cq, fid_domain, fid_ep, fid_poll, fid_stx,
};
use ofi_core::error::{Error, Result};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, Caps, Errno, Info, Version};
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::{MessageOps, OneSidedOps};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::target::mr::Regions;
use ofi_engine::{AddressVector, Auto, Backstop, CompletionQueue, Counter, CounterUnit, Endpoint, RxSettings, Waiting};
use ofi_registry::{AutoThread, BackstopThread, DomainVisitor, ScalableOf};
use ofi_sync::busy::Children;
use ofi_sync::lock::{LockKind, Unlocked};
use std::sync::{Arc, Mutex};

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open,
    cq_open,
    endpoint: open_endpoint,
    scalable_ep: open_scalable,
    cntr_open,
    poll_open,
    stx_ctx,
    srx_ctx,
    query_atomic,
    query_collective,
    endpoint2: open_endpoint2,
    xpu_ctx: enosys::enosys,
};

/// Opens a domain.
pub(crate) fn open(fabric: &FabricObj, info: &Info, context: *mut c_void) -> Result<*mut fid_domain> {
    if let Some(name) = info.domain.name.as_deref() {
        let found = ofi_registry::inet::has_domain(name);
        let doing = |error| Error::os(error, format!("open domain {name}: list the interfaces"));
        if !found.map_err(doing)? {
            return Err(Error::new(Errno::EINVAL, format!("open domain {name}: no such domain")));
        }
    }
    // SAFETY: a caller that asks for FI_THREAD_DOMAIN promises that no two threads are in calls on
    // objects of the domain at once (fi_domain(3)); the registry uses this only then.
    let unlocked = unsafe { Unlocked::promised() };
    ofi_registry::publish();
    let auto = info.domain.is_automatic(Version(fabric.c.api_version)).then(AutoThread::start).transpose()?;
    let regions = Arc::new(Regions::default());
    let work = (info.caps | info.domain.caps).contains(Caps::TRIGGER).then(Arc::<DomainWork>::default);
    if let (Some(work), Some(auto)) = (&work, &auto) {
        auto.progress().join(work.queue.clone())?;
    }
    let control = ofi_registry::open(info, Some(unlocked), Open { auto, regions: regions.clone(), work })?;
    let c = fid_domain { fid: handle::header::<DomainObj>(context), ops: &OPS, mr: &mr::OPS };
    let object = DomainObj {
        c,
        control,
        api: Version(fabric.c.api_version),
        format: info.addr_format,
        av_type: info.domain.av_type.0,
        class: info.domain.tclass,
        caps: info.caps | info.domain.caps,
        listed: None,
        memory: Memory::new(info, regions),
        eq: Mutex::default(),
        children: Children::new(),
        parent: fabric.children.add(),
    };
    let domain = handle::install(object);
    domain.expose_provenance();
    let name = info.domain.name.as_deref().unwrap_or_default();
    let provider = info.fabric.prov_name.as_deref().unwrap_or(&fabric.provider);
    // SAFETY: made above and not handed out yet.
    unsafe { (*domain).listed = Some(Listed::new(domain.cast(), fabric.listed.as_ref(), provider, name)) };
    Ok(domain.cast())
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
    let open = |watch: &Watch| unsafe { open::open(domain, info, context, watch) };
    // SAFETY: `out` is null or valid by fi_endpoint(3), and the endpoint is new.
    unsafe { make(out, "open an endpoint", open) }
}

unsafe extern "C" fn open_scalable(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or a valid info by fi_scalable_ep, fi_endpoint(3).
    let Some(info) = (unsafe { info.as_ref() }) else { return Errno::EINVAL.negative() };
    // SAFETY: the info is valid, so are its parts.
    let open = |_: &Watch| unsafe { sep::open(domain, info, context) };
    // SAFETY: `out` is null or valid by fi_scalable_ep, and the endpoint is new.
    unsafe { make(out, "open a scalable endpoint", open) }
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
    // SAFETY: fi_cq_open(3) passes an open wait set with FI_WAIT_SET.
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
    // SAFETY: the attribute's name is a string by fi_av_open(3), or null.
    let open = |_: &Watch| unsafe { av_ops::open(domain, attr, context) };
    // SAFETY: `out` is null or valid by fi_av_open(3), and the vector is new.
    unsafe { make(out, "open an address vector", open) }
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
    // SAFETY: fi_cntr_open(3) passes an open wait set with FI_WAIT_SET.
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

unsafe extern "C" fn srx_ctx(
    domain: *mut fid_domain,
    attr: *mut fi_rx_attr,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    // SAFETY: null or valid attributes by fi_srx_context, fi_endpoint(3).
    let attr = unsafe { attr.as_ref() };
    // SAFETY: `out` is null or valid by fi_srx_context, and the context is new.
    unsafe { make(out, "open a shared receive context", |_| srx::open(domain, &cm::CONNECTIONLESS, attr, context)) }
}

unsafe extern "C" fn stx_ctx(
    domain: *mut fid_domain,
    attr: *mut fi_tx_attr,
    out: *mut *mut fid_stx,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    let caps = (!attr.is_null()).then(|| {
        // SAFETY: the attributes are valid by fi_stx_context, fi_endpoint(3), in every version up
        // to this field.
        let caps = unsafe { &raw const (*attr).caps };
        // SAFETY: as above.
        unsafe { caps.read() }
    });
    // SAFETY: `out` is null or valid by fi_stx_context, and the context is new.
    unsafe { make(out, "open a shared transmit context", |_| srx::open_stx(domain, caps, context)) }
}

unsafe extern "C" fn query_atomic(
    domain: *mut fid_domain,
    datatype: u32,
    op: u32,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    if !domain.caps.contains(Caps::ATOMIC) {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: null or valid attributes by fi_query_atomic(3).
    unsafe { atomic::query(datatype, op, attr, flags) }.map_or_else(Errno::negative, |()| 0)
}

unsafe extern "C" fn query_collective(
    domain: *mut fid_domain,
    kind: u32,
    attr: *mut fi_collective_attr,
    flags: u64,
) -> c_int {
    let domain = ours!(DomainObj, domain.cast());
    if !domain.caps.contains(Caps::COLLECTIVE) {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: null or valid attributes by fi_query_collective, fi_collective(3).
    collective::query(kind, unsafe { attr.as_mut() }, flags).map_or_else(Errno::negative, |()| 0)
}

/// Builds the type-erased domain of a provider and lock kind, with its progress thread if it has
/// one, and its registered memory.
struct Open {
    auto: Option<AutoThread>,
    regions: Arc<Regions>,
    work: Option<Arc<DomainWork>>,
}

impl DomainVisitor for Open {
    type Output = Box<dyn DomainControl>;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        let Self { auto, regions, work } = self;
        let signaler = Signaler::default();
        let backstop = BackstopThread::default();
        Box::new(TypedDomain { opener: Links { provider, regions }, kind, auto, backstop, work, signaler })
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        let (Self { auto, work, .. }, signaler) = (self, Signaler::default());
        let backstop = BackstopThread::default();
        Box::new(TypedDomain { opener: Packets(provider), kind, auto, backstop, work, signaler })
    }
}

/// A domain of one provider and lock kind.
struct TypedDomain<O, K> {
    opener: O,
    kind: K,
    auto: Option<AutoThread>,
    backstop: BackstopThread,
    work: Option<Arc<DomainWork>>,
    signaler: Signaler,
}

/// Opens the endpoints of a domain.
trait OpenEndpoint: Send + Sync {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened>;
    fn open_scalable<K: LockKind>(
        &self,
        info: &Info,
        kind: K,
        auto: Option<Arc<Auto>>,
    ) -> Result<Arc<dyn ScalableControl>>;
}

/// Opens endpoints with links, MSG and RDM, whose peers may access the regions.
struct Links<P> {
    provider: P,
    regions: Arc<Regions>,
}

/// Opens datagram endpoints.
struct Packets<P>(P);

impl<P: LinkProvider> OpenEndpoint for Links<P> {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened> {
        let engine = ofi_registry::open_endpoint(self.provider, kind, info, auto, self.regions.clone())?;
        Ok(opened::<_, Endpoint<P::Transport, K>>(engine, info))
    }

    fn open_scalable<K: LockKind>(
        &self,
        info: &Info,
        kind: K,
        auto: Option<Arc<Auto>>,
    ) -> Result<Arc<dyn ScalableControl>> {
        let endpoint = ofi_registry::open_scalable_endpoint(self.provider, kind, info, auto)?;
        let (provider, regions) = (self.provider, self.regions.clone());
        Ok(Arc::new(TypedScalable::<P, K> { provider, regions, endpoint }))
    }
}

/// A scalable endpoint of one provider and lock kind.
struct TypedScalable<P: LinkProvider, K: LockKind> {
    provider: P,
    regions: Arc<Regions>,
    endpoint: Arc<ScalableOf<P, K>>,
}

impl<P: LinkProvider, K: LockKind> ScalableControl for TypedScalable<P, K> {
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        self.endpoint.bind_av(av)
    }

    fn local_addr(&self) -> Result<Addr> {
        self.endpoint.local_addr()
    }

    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.endpoint.set_local_addr(addr)
    }

    fn open_transmit(&self, index: usize, info: &Info) -> Result<Opened> {
        let config = ofi_registry::context_config(self.provider, info, self.regions.clone())?;
        let engine = self.endpoint.open_transmit(index, config)?;
        Ok(opened::<_, Endpoint<P::Transport, K>>(engine, info))
    }

    fn open_receive(&self, index: usize, info: &Info) -> Result<Opened> {
        let config = ofi_registry::context_config(self.provider, info, self.regions.clone())?;
        let engine = self.endpoint.open_receive(index, config)?;
        Ok(opened::<_, Endpoint<P::Transport, K>>(engine, info))
    }

    fn close(&self) {
        self.endpoint.close();
    }
}

impl<P: DatagramProvider> OpenEndpoint for Packets<P> {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened> {
        let engine = ofi_registry::open_datagram_endpoint(self.0, kind, info, auto)?;
        Ok(opened::<_, NotRequested>(engine, info))
    }

    fn open_scalable<K: LockKind>(&self, _: &Info, _: K, _: Option<Arc<Auto>>) -> Result<Arc<dyn ScalableControl>> {
        Err(Error::new(Errno::ENOSYS, "open a scalable endpoint for datagrams"))
    }
}

/// An endpoint with the tables for its type; `O` is the same type, or [`NotRequested`] if it has no
/// one-sided operations.
fn opened<E: EndpointControl + MessageOps, O: OneSidedOps>(engine: Arc<E>, info: &Info) -> Opened {
    let (msg, tagged) = tables::<E>(info.caps);
    let (rma, atomic) = (rma::table::<O>(info.caps), atomic::table::<O>(info.caps));
    Opened { engine_ptr: Arc::as_ptr(&engine).cast(), msg, tagged, rma, atomic, control: engine }
}

impl<O, K> TypedDomain<O, K> {
    /// The progress thread of a domain with FI_PROGRESS_AUTO.
    fn progress(&self) -> Option<Arc<Auto>> {
        self.auto.as_ref().map(AutoThread::progress).cloned()
    }
}

impl<O: OpenEndpoint, K: LockKind> DomainControl for TypedDomain<O, K> {
    fn endpoint(&self, info: &Info) -> Result<Opened> {
        let opened = self.opener.open(info, self.kind, self.progress())?;
        opened.control.clone().set_backstop(self.backstop());
        Ok(opened)
    }

    fn scalable(&self, info: &Info) -> Result<Arc<dyn ScalableControl>> {
        self.opener.open_scalable(info, self.kind, self.progress())
    }

    fn backstop(&self) -> &Arc<Backstop> {
        self.backstop.backstop()
    }

    fn cq(&self, size: usize, wait_object: Arc<dyn WaitObject>, waiting: Waiting) -> OpenedCq {
        let queue = Arc::new(CompletionQueue::<K>::new(self.kind, size, wait_object, waiting));
        // Joining cannot fail: deferred work has no descriptor to watch.
        let membership = self.work().and_then(|work| work.queue.join_queue(&queue).ok());
        OpenedCq { engine_ptr: Arc::as_ptr(&queue).cast(), ops: cq::table::<K>, control: queue, membership }
    }

    fn counter(&self, unit: CounterUnit, wait_object: Arc<dyn WaitObject>, waiting: Waiting) -> OpenedCounter {
        let counter = Arc::new(Counter::<K>::new(self.kind, unit, wait_object, waiting));
        // As for a queue.
        let membership = self.work().and_then(|work| work.queue.join_counter(&counter).ok());
        OpenedCounter { control: counter, membership }
    }

    fn srx(&self, settings: RxSettings) -> OpenedSrx {
        srx::open_context(self.kind, settings)
    }

    fn signaler(&self) -> &Signaler {
        &self.signaler
    }

    fn work(&self) -> Option<&Arc<DomainWork>> {
        self.work.as_ref()
    }

    unsafe fn control_work(&self, domain: &DomainObj, command: c_int, arg: *mut c_void) -> c_int {
        let Some(work) = self.work() else {
            return refuse(&Error::new(Errno::ENOSYS, "defer work in a domain that was opened without FI_TRIGGER"));
        };
        // SAFETY: this function's contract.
        unsafe { deferred::control((domain, work), command, arg) }
    }
}
