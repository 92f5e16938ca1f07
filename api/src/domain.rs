//! Domains, endpoints and completion queues.

use crate::buf::{Done, Failed, Loans};
use crate::connection::{EventQueue, Request};
use core::fmt;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, Errno, FiAddr, Info, OpFlags, ProgressModel};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::target::mr::Regions;
use ofi_engine::{AddressVector, Auto, CompletionQueue as Queue, Waiting};
use ofi_os::wait_fd::FdWaitObject;
use ofi_registry::{AutoThread, DomainVisitor};
use ofi_sync::lock::{LockKind, Park};
use std::sync::Arc;
use std::time::Duration;

/// Opens endpoints of one provider.
type OpenEndpoint = Arc<dyn Fn(&Info) -> Result<Arc<dyn AnyEndpoint>> + Send + Sync>;

/// A domain, which opens endpoints.
#[derive(Clone)]
pub struct Domain {
    open: OpenEndpoint,
    loans: Loans,
    /// Makes progress for its endpoints, with FI_PROGRESS_AUTO.
    _thread: Option<Arc<AutoThread>>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").finish_non_exhaustive()
    }
}

/// An endpoint of any provider, for control calls and for messages.
trait AnyEndpoint: EndpointControl + MessageOps {}

impl<E: EndpointControl + MessageOps> AnyEndpoint for E {}

struct Open(Option<Arc<Auto>>);

impl DomainVisitor for Open {
    type Output = OpenEndpoint;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let (auto, regions) = (self.0, Arc::new(Regions::default()));
        Arc::new(move |info| Ok(ofi_registry::open_endpoint(provider, Park, info, auto.clone(), regions.clone())?))
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let auto = self.0;
        Arc::new(move |info| Ok(ofi_registry::open_datagram_endpoint(provider, Park, info, auto.clone())?))
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
        Ok(Self {
            open: ofi_registry::open(info, None, Open(progress))?,
            loans: Loans::default(),
            _thread: thread.map(Arc::new),
        })
    }

    /// A completion queue with room for `size` entries at first; it grows.
    ///
    /// # Errors
    /// EMFILE or ENFILE if there is no descriptor left.
    pub fn completion_queue(&self, size: usize) -> Result<CompletionQueue> {
        let port = Arc::new(FdWaitObject::new(true)?);
        Ok(CompletionQueue {
            queue: Arc::new(Queue::new(Park, size, port, Waiting::Sleeping)),
            loans: self.loans.clone(),
        })
    }

    /// An endpoint whose operations complete into `cq`. Connected ones report to `events`;
    /// connectionless ones are ready at once.
    ///
    /// # Errors
    /// EINVAL if the domain's provider has no endpoints of the type, or not the traffic class;
    /// ENOEQ for a connected endpoint without `events`; the system's error if it cannot have the
    /// source address of `info`.
    pub fn endpoint(&self, info: &Info, cq: &CompletionQueue, events: Option<&EventQueue>) -> Result<Endpoint> {
        let engine = (self.open)(info)?;
        let av = Arc::new(AddressVector::new(0, false));
        engine.bind_cq(cq.queue.clone(), BindFlags::TRANSMIT | BindFlags::RECV)?;
        engine.clone().bind_av(&av)?;
        if let Some(events) = events {
            let owner = Owner(Arc::as_ptr(&engine).addr());
            engine.clone().bind_eq(&events.0, owner)?;
        }
        engine.clone().enable()?;
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
    /// EAGAIN if there is none then.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.queue.wait(1, timeout).map(drop)
    }
}

/// An endpoint. Dropping it sends accepted messages, then closes it.
pub struct Endpoint {
    engine: Arc<dyn AnyEndpoint>,
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
        self.engine.close();
    }
}

impl Endpoint {
    /// The operations under way and what they wait for, to find the cause of a hang.
    pub fn describe(&self) -> String {
        self.engine.describe()
    }

    /// The address at which peers reach it.
    ///
    /// # Errors
    /// The system's error if the endpoint cannot have its address.
    pub fn local_addr(&self) -> Result<Addr> {
        self.engine.local_addr()
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
        self.engine.clone().connect(to, &[])
    }

    /// Accepts a connection; an event reports when it is established.
    ///
    /// # Errors
    /// EINVAL for a request from another provider, EOPBADSTATE as for [`Self::connect`].
    pub fn accept(&self, request: Request) -> Result<()> {
        self.engine.clone().accept(&mut Some(*request.0), &[])
    }

    /// Sends a message. The buffer comes back with the completion, or at once with an error.
    ///
    /// # Errors
    /// EAGAIN if too many sends are under way, EMSGSIZE for one that is too long, ENOTCONN or
    /// EOPBADSTATE without a connection.
    pub fn send(&self, dest: FiAddr, tag: Option<u64>, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        let (context, buffer) = self.loans.lend(buf);
        let op = SendOp { dest, buffer, context, tag, data: None, flags: OpFlags::empty(), inject: false };
        self.engine.send(op).map_err(|errno| (errno, self.loans.take_back(context)))
    }

    /// Posts a receive buffer, all of its length. It comes back with the completion.
    ///
    /// # Errors
    /// EAGAIN if too many receives are posted, EOPBADSTATE if the connection has ended.
    pub fn receive(&self, tag: Option<(u64, u64)>, buf: Vec<u8>) -> Result<(), (Errno, Vec<u8>)> {
        let (context, buffer) = self.loans.lend(buf);
        let op = RecvOp { src: FiAddr::UNSPEC, buffer, context, tag, flags: OpFlags::empty() };
        self.engine.receive(op).map_err(|errno| (errno, self.loans.take_back(context)))
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
