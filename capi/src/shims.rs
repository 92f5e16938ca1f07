//! Implements the traits of `erased.rs` for the engine's types: one shim for each kind of object,
//! generic over provider and lock kind.

use crate::endpoint::message::tables;
use crate::erased::{CntrControl, CqControl, DomainControl, EpControl, Opened, OpenedCq, Waits};
use crate::objects::cq;
use core::any::Any;
use ofi_core::error::{Error, Result};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, BindFlags, EndpointType, Errno, FiAddr, Info};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::datagram::{self, Datagrams};
use ofi_engine::endpoint::{Config, peer_account};
use ofi_engine::limits::{Limits, SizeLimit};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::wire::hello::EndpointKind;
use ofi_engine::{AddressVector, Auto, CompletionQueue, Counter, DatagramEndpoint, Endpoint, EventQueue, Waiting};
use ofi_registry::{AutoThread, DomainVisitor};
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use std::sync::Arc;
use std::time::Duration;

/// Builds the type-erased domain of a provider and lock kind, with its progress thread if it has
/// one.
pub(crate) struct Open(pub(crate) Option<AutoThread>);

impl DomainVisitor for Open {
    type Output = Box<dyn DomainControl>;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        Box::new(DomainShim { opener: Links(provider), kind, auto: self.0 })
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output {
        Box::new(DomainShim { opener: Packets(provider), kind, auto: self.0 })
    }
}

/// A domain of one provider and lock kind.
struct DomainShim<O, K> {
    opener: O,
    kind: K,
    auto: Option<AutoThread>,
}

/// Opens the endpoints of a domain.
trait OpenEndpoint: Send + Sync {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened>;
}

/// Opens endpoints with links: MSG and RDM.
struct Links<P>(P);

/// Opens datagram endpoints.
struct Packets<P>(P);

impl<P: LinkProvider> OpenEndpoint for Links<P> {
    fn open<K: LockKind>(&self, info: &Info, kind: K, auto: Option<Arc<Auto>>) -> Result<Opened> {
        let provider = self.0;
        let endpoint_kind = match info.ep.kind {
            EndpointType::MSG => EndpointKind::Msg,
            EndpointType::RDM => EndpointKind::Rdm,
            other => {
                let what = format!("open an endpoint of type {other} in a domain of provider {}", P::NAME);
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
            provider: P::NAME,
            account: peer_account(),
        };
        let class = ofi_registry::class_of(info, P::NAME)?;
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
            let what = format!("open an endpoint of type {} in a domain of provider {}", info.ep.kind, P::NAME);
            return Err(Error::new(Errno::EINVAL, what));
        }
        let class = ofi_registry::class_of(info, P::NAME)?;
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
            .ok_or_else(|| Error::new(Errno::EOPBADSTATE, "accept on an endpoint without a connection request"))?
            .into_asked::<T::Request>()
            .ok_or_else(|| Error::new(Errno::EINVAL, "accept a connection request from another provider"))?;
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
