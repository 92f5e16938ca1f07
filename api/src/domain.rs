//! Domains, endpoints and completion queues.

use crate::buf::{Done, Failed, Loans};
use crate::connection::{EventQueue, Request};
use crate::memory::{MemoryRegion, RemoteAddr};
use core::fmt;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, Errno, Error, FiAddr, Info, OpFlags, ProgressModel};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::{AtomicCall, MessageOps, OneSidedOps, RecvOp, Remote, RmaKind, RmaOp, SendOp};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::target::mr::Regions;
use ofi_engine::{AddressVector, Auto, CompletionQueue as Queue, Waiting};
use ofi_memory::Buffer;
use ofi_os::membarrier;
use ofi_os::wait_fd::FdWaitObject;
use ofi_registry::{AutoThread, DomainVisitor};
use ofi_sync::lock::{LockKind, Park};
use std::sync::Arc;
use std::time::Duration;

/// An endpoint of any provider.
struct AnyEndpoint {
    control: Arc<dyn EndpointControl>,
    messages: Arc<dyn MessageOps>,
    /// `None` for a provider that has no one-sided operations.
    one_sided: Option<Arc<dyn OneSidedOps>>,
}

/// Opens endpoints of one provider.
type OpenEndpoint = Arc<dyn Fn(&Info) -> Result<AnyEndpoint> + Send + Sync>;

/// A provider's part of a domain.
struct Opened {
    open: OpenEndpoint,
    /// The memory that its endpoints expose; `None` for a provider that has no one-sided
    /// operations.
    regions: Option<Arc<Regions>>,
}

/// A domain, which opens endpoints.
#[derive(Clone)]
pub struct Domain {
    open: OpenEndpoint,
    regions: Option<Arc<Regions>>,
    loans: Loans,
    /// Makes progress for its endpoints, with FI_PROGRESS_AUTO.
    _thread: Option<Arc<AutoThread>>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").finish_non_exhaustive()
    }
}

struct Open(Option<Arc<Auto>>);

impl DomainVisitor for Open {
    type Output = Opened;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let (auto, regions) = (self.0, Arc::new(Regions::default()));
        let exposed = regions.clone();
        let open: OpenEndpoint = Arc::new(move |info| {
            let engine =
                ofi_registry::open_endpoint(provider, membarrier::locks(), info, auto.clone(), exposed.clone())?;
            Ok(AnyEndpoint { control: engine.clone(), messages: engine.clone(), one_sided: Some(engine) })
        });
        Opened { open, regions: Some(regions) }
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let auto = self.0;
        let open: OpenEndpoint = Arc::new(move |info| {
            let engine = ofi_registry::open_datagram_endpoint(provider, membarrier::locks(), info, auto.clone())?;
            Ok(AnyEndpoint { control: engine.clone(), messages: engine, one_sided: None })
        });
        Opened { open, regions: None }
    }
}

impl Domain {
    /// Opens the domain that an info names.
    ///
    /// # Errors
    /// ENODEV if there is no such provider.
    pub fn open(info: &Info) -> Result<Self> {
        let thread = (info.domain.progress == ProgressModel::AUTO).then(AutoThread::start).transpose()?;
        let progress = thread.as_ref().map(|thread| thread.progress().clone());
        let Opened { open, regions } = ofi_registry::open(info, None, Open(progress))?;
        Ok(Self { open, regions, loans: Loans::default(), _thread: thread.map(Arc::new) })
    }

    /// Registers memory for the peers of the domain's endpoints. Each peer that has the region's
    /// key may read it and use fetching atomics if `access` has [`MrAccess::REMOTE_READ`], and
    /// write it and use atomics if `access` has [`MrAccess::REMOTE_WRITE`].
    ///
    /// # Errors
    /// EINVAL for an empty buffer or without either right; ENOSYS if the provider has no one-sided
    /// operations.
    pub fn register(&self, memory: Vec<u8>, access: MrAccess) -> Result<MemoryRegion> {
        let all =
            self.regions.as_ref().ok_or_else(|| Error::new(Errno::ENOSYS, "register memory of a datagram domain"))?;
        MemoryRegion::register(all, memory, access)
    }

    /// A completion queue with room for `size` entries at first; it grows.
    ///
    /// # Errors
    /// EMFILE or ENFILE if there is no descriptor left.
    pub fn completion_queue(&self, size: usize) -> Result<CompletionQueue> {
        let port = Arc::new(FdWaitObject::new(true)?);
        Ok(CompletionQueue {
            queue: Arc::new(Queue::new(Park::default(), size, port, Waiting::Sleeping)),
            loans: self.loans.clone(),
        })
    }

    /// An endpoint whose operations complete into `cq`. Connected ones report to `events`;
    /// connectionless ones are ready at once.
    ///
    /// # Errors
    /// EINVAL if the domain's provider lacks the endpoint type or the traffic class; ENOEQ for a
    /// connected endpoint without `events`; the system's error if the source address of `info` is
    /// not available.
    pub fn endpoint(&self, info: &Info, cq: &CompletionQueue, events: Option<&EventQueue>) -> Result<Endpoint> {
        let engine = (self.open)(info)?;
        let (av, control) = (Arc::new(AddressVector::new(0, false)), &engine.control);
        control.bind_cq(cq.queue.clone(), BindFlags::TRANSMIT | BindFlags::RECV)?;
        control.clone().bind_av(&av)?;
        if let Some(events) = events {
            let owner = Owner(Arc::as_ptr(control).addr());
            control.clone().bind_eq(&events.0, owner)?;
        }
        control.clone().enable()?;
        Ok(Endpoint { engine, av, loans: self.loans.clone() })
    }
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    queue: Arc<Queue<Park>>,
    loans: Loans,
}

impl CompletionQueue {
    /// The oldest finished operation, if any. Makes progress on the queue's endpoints.
    pub fn poll(&self) -> Option<Result<Done, Box<Failed>>> {
        let mut found = None;
        match self.queue.read(1, |completion| found = Some(*completion)) {
            Ok(_) => found.map(|completion| Ok(Done { buf: self.loans.take_back(completion.context), completion })),
            Err(Errno::EAVAIL) => {
                let failure = self.queue.read_error().ok()?;
                let buf = self.loans.take_back(failure.completion.context);
                Some(Err(Box::new(Failed { buf, failure })))
            }
            Err(_) => None,
        }
    }

    /// Sleeps until an entry is available or the timeout expires.
    ///
    /// # Errors
    /// EAGAIN at the timeout.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.queue.wait(1, timeout).map(drop)
    }
}

/// An endpoint. Dropping it sends accepted messages and writes, then closes it.
///
/// A one-sided operation accesses `buf.len()` bytes of the peer's memory from the given place on.
/// It completes when the peer's endpoint has carried it out; the peer's program only needs to make
/// progress. It fails with EINVAL if no region of the peer has the key, and with EACCES if the
/// range exceeds the region or the region does not allow the access.
pub struct Endpoint {
    engine: AnyEndpoint,
    av: Arc<AddressVector>,
    loans: Loans,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("av", &self.av).finish_non_exhaustive()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.engine.control.close();
    }
}

impl Endpoint {
    /// Describes the pending operations and what they wait for, to find the cause of a hang.
    pub fn describe(&self) -> String {
        self.engine.control.describe()
    }

    /// The address at which peers reach it.
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.engine.control.local_addr()
    }

    /// The handle of a peer's address.
    pub fn peer(&self, addr: Addr) -> FiAddr {
        self.av.insert(addr)
    }

    /// Connects; the outcome is an event.
    ///
    /// # Errors
    /// ENOSYS for a connectionless endpoint, EOPBADSTATE for one that has been connected before.
    pub fn connect(&self, to: Addr) -> Result<()> {
        self.engine.control.clone().connect(to, &[])
    }

    /// Accepts a connection; an event reports when it is established.
    ///
    /// # Errors
    /// EINVAL for a request from another provider, EOPBADSTATE as for [`Self::connect`].
    pub fn accept(&self, request: Request) -> Result<()> {
        self.engine.control.clone().accept(&mut Some(*request.0), &[])
    }

    /// Sends a message. The buffer comes back with the completion, or at once with an error.
    ///
    /// # Errors
    /// EAGAIN if too many sends are pending, EMSGSIZE for one that is too long, ENOTCONN or
    /// EOPBADSTATE without a connection.
    pub fn send(&self, dest: FiAddr, tag: Option<u64>, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        let (context, buffer) = self.loans.lend(buf);
        let op = SendOp { dest, buffer, context, tag, data: None, flags: OpFlags::empty(), inject: false };
        self.engine.messages.send(op).map_err(|errno| (errno, self.loans.take_back(context)))
    }

    /// Posts the whole buffer as a receive. It comes back with the completion.
    ///
    /// # Errors
    /// EAGAIN if too many receives are posted, EOPBADSTATE if the connection has ended.
    pub fn receive(&self, tag: Option<(u64, u64)>, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        let (context, buffer) = self.loans.lend(buf);
        let op = RecvOp { src: FiAddr::UNSPEC, buffer, context, tag, flags: OpFlags::empty() };
        self.engine.messages.receive(op).map_err(|errno| (errno, self.loans.take_back(context)))
    }

    /// Writes all of the buffer to a peer's memory. The buffer comes back as with [`Self::send`].
    ///
    /// # Errors
    /// As for [`Self::send`]; ENOSYS if the provider has no one-sided operations.
    pub fn write(&self, peer: FiAddr, to: RemoteAddr, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        self.access(RmaKind::Write, peer, to, buf)
    }

    /// Reads a peer's memory into all of the buffer, which comes back with the completion, or at
    /// once with an error.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn read(&self, peer: FiAddr, from: RemoteAddr, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        self.access(RmaKind::Read, peer, from, buf)
    }

    fn access(&self, kind: RmaKind, peer: FiAddr, at: RemoteAddr, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        let Some(engine) = &self.engine.one_sided else { return Err((Errno::ENOSYS, buf)) };
        let remote = Remote::one(at.offset, buf.len() as u64, at.key);
        let (context, buffer) = self.loans.lend(buf);
        let op = RmaOp { kind, peer, buffer, remote, context, data: None, flags: OpFlags::empty(), inject: false };
        engine.rma(op).map_err(|errno| (errno, self.loans.take_back(context)))
    }

    /// Adds to a word of the peer's memory, atomically with respect to other atomic operations.
    /// Words are `u64` in the byte order of the machine. [`Done::word`] has the previous value.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn fetch_add(&self, peer: FiAddr, at: RemoteAddr, value: u64) -> Result<(), Errno> {
        self.fetch((AtomicKind::Fetch, AtomicOp::Sum), peer, at, (value, None))
    }

    /// Replaces a word of the peer's memory by `new` if it is `expected`, atomically as
    /// [`Self::fetch_add`].
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn compare_swap(&self, peer: FiAddr, at: RemoteAddr, expected: u64, new: u64) -> Result<(), Errno> {
        self.fetch((AtomicKind::Compare, AtomicOp::Cswap), peer, at, (new, Some(expected)))
    }

    fn fetch(
        &self,
        (kind, op): (AtomicKind, AtomicOp),
        peer: FiAddr,
        at: RemoteAddr,
        (operand, compare): (u64, Option<u64>),
    ) -> Result<(), Errno> {
        let engine = self.engine.one_sided.as_ref().ok_or(Errno::ENOSYS)?;
        let word = |value: u64| Buffer::Owned(value.to_ne_bytes().to_vec());
        let remote = Remote::one(at.offset, size_of::<u64>() as u64, at.key);
        let (context, result) = self.loans.lend(vec![0; size_of::<u64>()]);
        let call = AtomicCall {
            kind,
            op,
            datatype: Datatype::Uint64,
            peer,
            operands: word(operand),
            compare: compare.map_or_else(Buffer::empty, word),
            result,
            remote,
            context,
            data: None,
            flags: OpFlags::empty(),
            inject: false,
        };
        engine.atomic(call).inspect_err(|_| drop(self.loans.take_back(context)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::EndpointType;

    #[test]
    #[cfg(feature = "shm")]
    fn an_endpoint_of_a_type_that_the_provider_lacks_is_refused() {
        let mut info = Info::default();
        info.fabric.prov_name = Some("shm".to_owned());
        let domain = Domain::open(&info).unwrap();
        let cq = domain.completion_queue(8).unwrap();
        info.ep.kind = EndpointType::DGRAM;
        let refusal = domain.endpoint(&info, &cq, None).unwrap_err();
        assert_eq!(refusal.errno(), Errno::EINVAL, "{refusal}");
    }
}
