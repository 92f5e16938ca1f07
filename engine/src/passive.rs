//! A passive endpoint: listens for connections (fi_listen(3)).

use crate::completion::eq::{ConnectionRequest, Event, EventKind, EventQueue, Owner};
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::transport::{ConnectRequest, Flush, Listener};
use crate::wire::hello::{Contexts, Credits, EndpointKind, Handshake, Hello, MAX_USER_DATA};
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Errno, Error, Info, Instant};
use ofi_sync::busy::{Child, Children};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Default and maximum backlog: further connection requests are refused.
const MOST_WAITING: usize = 4096;

/// Opens the listener on first use.
pub type ListenerOpener<L> = Box<dyn FnMut(Option<Addr>) -> Result<L> + Send>;

struct Inner<L: Listener> {
    listener: Option<L>,
    opener: ListenerOpener<L>,
    source: Option<Addr>,
    eq: Option<(Arc<EventQueue>, Owner)>,
    /// Keeps the event queue open.
    user: Option<Child>,
    leave: Option<Box<dyn FnOnce() + Send>>,
    listening: bool,
    closed: bool,
    /// How many requests may wait for the application.
    backlog: usize,
}

/// A passive endpoint.
pub struct PassiveEndpoint<L: Listener> {
    inner: Mutex<Inner<L>>,
    info: Info,
    nonce: [u8; 16],
    ready_flag: ReadyFlag,
    /// Connection requests that the application has not answered.
    waiting: Children,
}

impl<L: Listener> fmt::Debug for PassiveEndpoint<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassiveEndpoint").field("info", &self.info).finish_non_exhaustive()
    }
}

impl<L: Listener> PassiveEndpoint<L> {
    /// A passive endpoint that does not listen yet.
    pub fn new(info: Info, nonce: [u8; 16], opener: ListenerOpener<L>) -> Arc<Self> {
        let source = info.src_addr;
        let inner = Inner {
            listener: None,
            opener,
            source,
            eq: None,
            user: None,
            leave: None,
            listening: false,
            closed: false,
            backlog: MOST_WAITING,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            info,
            nonce,
            ready_flag: ReadyFlag::default(),
            waiting: Children::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<L>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the event queue that receives connection requests.
    pub fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        let mut inner = self.lock();
        if inner.listening {
            return Err(Error::new(Errno::EOPBADSTATE, "bind an event queue to a passive endpoint that listens"));
        }
        inner.eq = Some((eq.clone(), owner));
        inner.user = Some(eq.users.add());
        Ok(())
    }

    /// Sets the address, before it is in use (fi_setname(3)).
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut inner = self.lock();
        if inner.listener.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "set the address of a passive endpoint that already has one"));
        }
        inner.source = Some(addr);
        Ok(())
    }

    /// Sets how many requests may wait for the application's answer (FI_BACKLOG): at least one, as
    /// with listen(2), and at most 4,096, the default. Requests that wait already stay.
    pub fn set_backlog(&self, requests: usize) {
        self.lock().backlog = requests.clamp(1, MOST_WAITING);
    }

    /// The address that it listens on (fi_getname(3)).
    pub fn local_addr(&self) -> Result<Addr> {
        let mut inner = self.lock();
        Ok(inner.open()?.local_addr())
    }

    /// Starts to listen (fi_listen(3)). Listening twice is harmless.
    pub fn listen(self: &Arc<Self>) -> Result<()> {
        let mut inner = self.lock();
        if inner.listening {
            return Ok(());
        }
        if inner.closed {
            return Err(Error::new(
                Errno::EOPBADSTATE,
                "listen on a passive endpoint that is closed or has passed its address to an endpoint",
            ));
        }
        let Some((eq, _)) = inner.eq.clone() else {
            return Err(Error::new(Errno::ENOEQ, "listen without an event queue"));
        };
        inner.open()?;
        inner.listening = true;
        drop(inner);
        let key = eq.join(self.clone())?;
        self.lock().leave = Some(Box::new(move || eq.leave(key)));
        Ok(())
    }

    /// Rejects a request (fi_reject(3)). Data beyond [`MAX_USER_DATA`] is cut.
    pub fn refuse(&self, asked: ConnectRequest<L::Request>, data: &[u8]) -> Result<()> {
        let hello = self.hello(Handshake::Reject, &data[..data.len().min(MAX_USER_DATA)]);
        let mut inner = self.lock();
        inner.open()?.refuse(asked.request, &hello);
        drop(inner);
        self.ready_flag.mark_ready_and_wake();
        Ok(())
    }

    fn hello(&self, handshake: Handshake, data: &[u8]) -> Vec<u8> {
        let credits = Credits { bytes: 0, eager: 0, requests: 0, preview: 0 };
        let data = data.to_vec();
        let (kind, nonce, cookie) = (EndpointKind::Msg, self.nonce, [0; 16]);
        let contexts = Contexts::default();
        Hello { handshake, kind, nonce, attempt: 0, cookie, credits, contexts, name: None, data }.encode()
    }

    /// Stops listening. The end of their connection refuses unanswered requests.
    pub fn close(&self) {
        let mut inner = self.lock();
        let leave = inner.leave.take();
        let eq = inner.eq.take();
        drop(inner);
        if let Some(leave) = leave {
            leave();
        }
        if let Some((eq, owner)) = eq {
            eq.discard_events_of(owner);
        }
        let mut inner = self.lock();
        inner.listener = None;
        inner.user = None;
        inner.closed = true;
    }

    /// The info that it was made from.
    pub const fn info(&self) -> &Info {
        &self.info
    }
}

impl<L: Listener> Inner<L> {
    fn open(&mut self) -> Result<&mut L> {
        if self.listener.is_none() {
            self.listener = Some((self.opener)(self.source)?);
        }
        self.listener.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the listener"))
    }
}

impl<L: Listener> Pollable for PassiveEndpoint<L> {
    fn poll(&self) -> PollOutcome {
        let mut inner = self.lock();
        let (eq, backlog) = (inner.eq.clone(), inner.backlog);
        let (Some(listener), Some((eq, owner))) = (inner.listener.as_mut(), eq) else {
            return PollOutcome::default();
        };
        let mut asked = Vec::new();
        let active = listener.poll(&mut asked);
        for request in asked {
            let hello = Hello::parse(&request.hello);
            match hello {
                Ok(hello) if hello.handshake == Handshake::Connect && hello.kind == EndpointKind::Msg => {
                    if self.waiting.count() >= backlog {
                        let why = b"the backlog of connection requests is full";
                        listener.refuse(request.request, &self.hello(Handshake::Refuse, why));
                        continue;
                    }
                    let mut info = self.info.clone();
                    info.src_addr = Some(request.to);
                    info.dest_addr = Some(request.from);
                    let data = hello.data;
                    let _waits = self.waiting.add();
                    let request = ConnectionRequest { asked: Box::new(request), info, data, _waits };
                    eq.push(Event { owner, kind: EventKind::ConnectionRequest(Box::new(request)) });
                }
                Ok(_) => {
                    let why = b"the endpoint types do not match";
                    listener.refuse(request.request, &self.hello(Handshake::Refuse, why));
                }
                Err(violation) => {
                    listener.refuse(request.request, &self.hello(Handshake::Refuse, violation.0.as_bytes()));
                }
            }
        }
        let busy = listener.next_deadline().is_some();
        PollOutcome::new(active, busy)
    }

    fn flush(&self, _how: Flush) {}

    fn next_deadline(&self) -> Option<Instant> {
        self.lock().listener.as_ref().and_then(Listener::next_deadline)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.lock().listener.as_ref().and_then(Listener::descriptor)
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready_flag
    }
}
