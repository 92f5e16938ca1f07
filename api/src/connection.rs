//! Listening, and the events of connected endpoints.

use core::fmt;
use ofi_core::error::Result;
use ofi_core::{Addr, Errno, Error, Info};
use ofi_engine::completion::eq::{ConnectionRequest, EventKind, Found, Owner};
use ofi_engine::erased::PassiveControl;
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::{EventQueue as Queue, Waiting};
use ofi_os::wait_fd::FdWaitObject;
use ofi_registry::DomainVisitor;
use ofi_sync::lock::LockKind;
use std::sync::Arc;
use std::time::Duration;

/// An event queue.
#[derive(Clone, Debug)]
pub struct EventQueue(pub(crate) Arc<Queue>);

/// A peer's connection request.
#[derive(Debug)]
pub struct Request(pub(crate) Box<ConnectionRequest>);

impl Request {
    /// The info with which to open the endpoint that accepts.
    pub fn info(&self) -> Info {
        let mut info = self.0.info.clone();
        // The connection already has a source address.
        info.src_addr = None;
        info
    }
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A peer requests a connection.
    Request(Request),
    /// The connection is established.
    Connected,
    /// The connection has ended.
    Shutdown,
    /// A multicast group has been joined.
    Joined,
}

impl EventQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// EMFILE or ENFILE if there is no descriptor left.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(Queue::new(Arc::new(FdWaitObject::new(true)?), Waiting::Sleeping))))
    }

    /// The next event; `None` after the timeout.
    ///
    /// # Errors
    /// The failure of an object, such as a refused connection.
    pub fn next(&self, timeout: Duration) -> Result<Option<Event>> {
        for waited in [false, true] {
            if waited {
                self.0.wait(Some(timeout));
            }
            match self.0.read(|_| false) {
                Found::Nothing => {}
                Found::Error => {
                    let Some(EventKind::Failed { errno, text, .. }) = self.0.read_error().map(|event| event.kind)
                    else {
                        continue;
                    };
                    return Err(Error::new(errno, text.to_string()));
                }
                Found::Event(event) => {
                    return Ok(Some(match event.kind {
                        EventKind::ConnectionRequest(request) => Event::Request(Request(request)),
                        EventKind::Connected(_) => Event::Connected,
                        EventKind::Shutdown => Event::Shutdown,
                        EventKind::Joined => Event::Joined,
                        // This API writes no events of its own and inserts without them.
                        EventKind::User(..)
                        | EventKind::Inserted { .. }
                        | EventKind::InsertionFailed { .. }
                        | EventKind::Failed { .. } => return Err(Errno::EOTHER.into()),
                    }));
                }
            }
        }
        Ok(None)
    }
}

/// A listener. Connection requests are events.
pub struct Listener(Arc<dyn PassiveControl>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

struct Open(Info);

impl DomainVisitor for Open {
    type Output = Result<Arc<dyn PassiveControl>>;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        Ok(ofi_registry::open_passive_endpoint(provider, self.0)?)
    }
    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, _: P, _kind: K) -> Self::Output {
        Err(Error::new(Errno::EINVAL, format!("listen with provider {}, which has no connections", P::NAME)))
    }
}

impl Listener {
    /// Listens at the source address of `info`.
    ///
    /// # Errors
    /// ENODEV if there is no such provider, EINVAL if it has no connections, and the system's error
    /// if the address is in use or not one of this host.
    pub fn listen(info: &Info, events: &EventQueue) -> Result<Self> {
        let listener = Self(ofi_registry::open(info, None, Open(info.clone()))??);
        listener.0.bind_eq(&events.0, Owner(Arc::as_ptr(&listener.0).addr()))?;
        listener.0.clone().listen()?;
        Ok(listener)
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.0.local_addr()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}
