//! An endpoint: the engine and a transport behind one lock (fi_endpoint(3), fi_cm(3), fi_msg(3),
//! fi_tagged(3)). Connectionless and connected endpoints share the code; a connected one has
//! exactly one peer.

mod blocked;
mod cancel;
mod credit;
mod describe;
mod dispatch;
mod engine;
mod handshake;
mod link;
mod peers;
mod post_recv;
mod send;
mod state;

use crate::av::{AddressVector, Reader};
use crate::completion::counter::Counter;
use crate::completion::cq::CompletionQueue;
use crate::completion::eq::{EventQueue, Owner};
use crate::completion::sinks::{Bindings, BoundQueues};
use crate::limits::SizeLimit;
use crate::op::{MessageOps, RecvOp, SendOp};
use crate::progress::auto::Auto;
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::transport::{ConnectRequest, Flush, Transport};
use crate::wire::hello::{EndpointKind, MAX_USER_DATA};
pub use blocked::{PEER_MEMORY, peer_account};
use core::fmt;
pub use credit::{GUARANTEED, OVERHEAD};
use engine::{Engine, Phase, Work};
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, BindFlags, Errno, Error, Instant};
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
pub use state::{CLOSE_DEADLINE, Config};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Opens the transport on first use, at the given address or at one that the system chooses.
pub type Opener<T> = Box<dyn FnMut(Option<Addr>) -> Result<T> + Send>;

struct Inner<T: Transport, K: LockKind> {
    transport: Option<T>,
    engine: Engine<K>,
    opener: Opener<T>,
    source: Option<Addr>,
    /// Number of progress sets that have the descriptor armed.
    armed: usize,
    /// The deadline that sleeping threads know.
    told: Option<Instant>,
}

/// An endpoint.
pub struct Endpoint<T: Transport, K: LockKind> {
    inner: K::Cell<Inner<T, K>>,
    ready_flag: ReadyFlag,
    joined: AtomicBool,
    connected: bool,
    bindings: Bindings,
    /// Memberships in the progress sets of its queues and counters, and with the progress thread.
    memberships: Bindings,
    /// The bound event queue.
    events: Mutex<Option<Events>>,
    /// The domain's progress thread (FI_PROGRESS_AUTO); `None` under manual progress.
    auto: Option<Arc<Auto>>,
}

/// An endpoint's binding to an event queue.
struct Events {
    eq: Arc<EventQueue>,
    owner: Owner,
    /// Key in the queue's progress set, if the endpoint has joined it.
    key: Option<usize>,
    /// Keeps the queue open.
    _user: Child,
}

impl Events {
    /// Leaves the queue's progress set.
    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.eq.leave(key);
        }
    }
}

impl<T: Transport, K: LockKind> fmt::Debug for Endpoint<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("ready_flag", &self.ready_flag).finish_non_exhaustive()
    }
}

impl<T: Transport, K: LockKind> Inner<T, K> {
    fn open(&mut self) -> Result<&mut T> {
        if self.transport.is_none() {
            self.transport = Some((self.opener)(self.source)?);
        }
        self.transport.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the transport"))
    }

    fn due(&self) -> Option<Instant> {
        let theirs = self.transport.as_ref().and_then(Transport::next_deadline);
        [theirs, self.engine.next_deadline()].into_iter().flatten().min()
    }

    #[inline(always)]
    fn poll(&mut self) -> PollOutcome {
        let Self { transport: Some(transport), engine, .. } = self else {
            return PollOutcome { active: false, busy: false };
        };
        let active = transport.poll(engine);
        if engine.work.is_any() {
            return Self::follow_up(transport, engine, active);
        }
        PollOutcome { active, busy: transport.is_busy() }
    }

    #[inline(never)]
    fn follow_up(transport: &mut T, engine: &mut Engine<K>, mut active: bool) -> PollOutcome {
        engine.see_to_deferred(!active);
        active |= Self::finish(transport, engine);
        PollOutcome { active, busy: transport.is_busy() || engine.next_deadline().is_some() }
    }
}

impl<T: Transport, K: LockKind> Inner<T, K> {
    /// Carries out pending work and sends the frames that it produces. Sending can make links
    /// pending again; the loop is bounded so that other endpoints do not starve, and the rest stays
    /// marked [`Work::PENDING`]. Returns true if there was pending work.
    #[inline(never)]
    fn finish(transport: &mut T, engine: &mut Engine<K>) -> bool {
        engine.tick(transport);
        let mut any = false;
        for _ in 0..4 {
            if !engine.is_pending() {
                break;
            }
            engine.settle(transport);
            any = true;
            transport.flush(Flush::All, engine);
        }
        if engine.is_pending() {
            engine.work.add(Work::PENDING);
        } else {
            // The loop has handled the links that became pending while it sent.
            engine.work.remove(Work::PENDING);
        }
        any
    }

    /// Records the next deadline. True if it is earlier than sleeping threads know.
    fn note_deadline(&mut self) -> bool {
        let due = self.due();
        let told = core::mem::replace(&mut self.told, due);
        due.is_some_and(|due| told.is_none_or(|told| due < told))
    }

    /// Sends everything held back: the caller may not poll again soon.
    #[inline(never)]
    fn flush_all(&mut self) {
        let Self { transport: Some(transport), engine, .. } = self else { return };
        if !engine.lazy.is_empty() {
            engine.tell_arrivals();
        }
        transport.flush(Flush::All, engine);
        if engine.work.is_any() {
            Self::finish(transport, engine);
        }
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// Creates an endpoint that is not enabled. `source` is the requested local address, `auto` the
    /// progress thread under automatic progress.
    pub fn new(kind: K, config: Config, source: Option<Addr>, opener: Opener<T>, auto: Option<Arc<Auto>>) -> Arc<Self> {
        let connected = matches!(config.kind, EndpointKind::Msg);
        let inner = Inner { transport: None, engine: Engine::new(config), opener, source, armed: 0, told: None };
        Arc::new(Self {
            inner: kind.cell(inner),
            ready_flag: ReadyFlag::default(),
            joined: AtomicBool::new(false),
            connected,
            bindings: Bindings::default(),
            memberships: Bindings::default(),
            events: Mutex::new(None),
            auto,
        })
    }

    /// Binds a completion queue. A second one for a direction is refused.
    pub fn bind_cq(&self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).engine.out.bind_cq(cq, flags)?;
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused. Allowed at any time.
    ///
    /// # Errors
    /// EINVAL or EBADFLAGS; if the endpoint is enabled, also those of watching its descriptor. An
    /// error changes nothing.
    pub fn bind_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<()> {
        let first = !K::lock(&self.inner).engine.out.has_counter(counter);
        let pollable = (first && self.is_joined()).then(|| self.clone() as Arc<dyn Pollable>);
        let register = || K::lock(&self.inner).engine.out.bind_counter(counter, flags);
        let user = self.memberships.bind_counter(pollable, counter, register)?;
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// Binds an address vector. A second one is refused.
    pub fn bind_av(self: &Arc<Self>, av: &Arc<AddressVector>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        let engine = &mut inner.engine;
        if engine.av.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        engine.av_epoch = av.epoch();
        engine.av = Some(av.clone());
        let me: Weak<Self> = Arc::downgrade(self);
        let reader = av.add_reader(me);
        engine.reader = reader;
        engine.reset_handles();
        drop(inner);
        let (user, vector) = (av.users.add(), av.clone());
        self.bindings.add(move || {
            vector.remove_reader(reader);
            drop(user);
        });
        Ok(())
    }

    /// Binds an event queue; events name the endpoint by `owner`. A second queue replaces the first
    /// and takes over its unread events; the first may then be closed.
    ///
    /// # Errors
    /// If the endpoint is enabled, those of watching its descriptor. An error changes nothing.
    pub fn bind_eq(self: &Arc<Self>, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        let mut events = self.events();
        if events.as_ref().is_some_and(|bound| Arc::ptr_eq(&bound.eq, eq)) {
            return Ok(());
        }
        let key = if self.connected && self.is_joined() { Some(eq.join(self.clone())?) } else { None };
        let old = events.replace(Events { eq: eq.clone(), owner, key, _user: eq.users.add() });
        // Under the endpoint's lock, so that no newer event overtakes those handed over.
        let mut inner = K::lock(&self.inner);
        if let Some(old) = &old {
            old.eq.hand_over(owner, eq);
        }
        inner.engine.eq = Some((eq.clone(), owner));
        // Leaving takes the lock of the queue's progress set, which comes before this lock.
        drop(inner);
        if let Some(mut old) = old {
            old.leave();
        }
        Ok(())
    }

    /// Whether an event queue is bound.
    pub fn has_eq(&self) -> bool {
        self.events().is_some()
    }

    fn events(&self) -> MutexGuard<'_, Option<Events>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enables the endpoint (fi_enable(3)). Enabling twice is harmless; after its connection has
    /// ended it fails with EOPBADSTATE.
    pub fn enable(self: &Arc<Self>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if matches!(inner.engine.phase, Phase::Ended | Phase::ShutDown) {
            return Err(Error::new(Errno::EOPBADSTATE, "enable an endpoint whose connection has ended"));
        }
        if inner.engine.phase != Phase::New || inner.transport.is_some() && self.is_joined() {
            return Ok(());
        }
        let caps = inner.engine.config.caps;
        let missing = |errno, what| Err(Error::new(errno, format!("enable an endpoint without {what}")));
        inner.engine.out.check(caps)?;
        let connectionless = matches!(inner.engine.config.kind, EndpointKind::Rdm);
        if connectionless && inner.engine.av.is_none() {
            return missing(Errno::ENOAV, "an address vector");
        }
        if !connectionless && inner.engine.eq.is_none() {
            return missing(Errno::ENOEQ, "an event queue");
        }
        inner.open()?;
        if connectionless {
            inner.engine.phase = Phase::Enabled;
        }
        let queues = inner.engine.out.all();
        drop(inner);
        self.joined.store(true, Ordering::Relaxed);
        if let Err(error) = self.join(queues) {
            // Undo everything, so that the application can try again.
            self.memberships.undo();
            self.joined.store(false, Ordering::Relaxed);
            let mut inner = K::lock(&self.inner);
            inner.engine.phase = Phase::New;
            inner.transport = None;
            return Err(error);
        }
        Ok(())
    }

    /// Joins the progress sets of its queues and counters, and the progress thread if there is one.
    fn join(self: &Arc<Self>, queues: BoundQueues<K>) -> Result<()> {
        let pollable: Arc<dyn Pollable> = self.clone();
        self.memberships.join(&pollable, queues)?;
        if let Some(auto) = self.auto.clone() {
            let key = auto.join(pollable)?;
            self.memberships.add(move || auto.leave(key));
        }
        // Only connected endpoints have events: reading the event queue need not progress others.
        if let Some(bound) = self.events().as_mut().filter(|_| self.connected) {
            bound.key = Some(bound.eq.join(self.clone())?);
        }
        Ok(())
    }

    /// Called after an operation while a thread sleeps on this endpoint: sends now, and wakes the
    /// thread if the deadline moved earlier.
    #[cold]
    fn wake_progress_thread(&self) {
        let mut inner = K::lock(&self.inner);
        inner.flush_all();
        self.tell_deadline(inner);
    }

    /// Wakes sleeping threads if the deadline is earlier than they know.
    #[cold]
    fn tell_deadline(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        let earlier = inner.note_deadline();
        drop(inner);
        if earlier {
            self.ready_flag.wake();
        }
    }

    fn is_joined(&self) -> bool {
        // Relaxed: set and read by control calls, which the application serializes.
        self.joined.load(Ordering::Relaxed)
    }

    /// The local address, under which peers reach it (fi_getname(3)). Opens the transport if
    /// needed.
    pub fn local_addr(&self) -> Result<Addr> {
        Ok(K::lock(&self.inner).open()?.local_addr())
    }

    /// Sets the local address, which is possible until the transport is open (fi_setname(3)).
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.transport.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "set the address of an endpoint that already has one"));
        }
        inner.source = Some(addr);
        Ok(())
    }

    /// The peer of a connected endpoint (fi_getpeer(3)).
    pub fn peer_addr(&self) -> Result<Addr> {
        let peer = K::lock(&self.inner).engine.connected_peer();
        peer.ok_or_else(|| Error::new(Errno::ENOTCONN, "look up the peer of an endpoint that has none"))
    }

    /// Starts connecting (fi_connect(3)). An event reports the outcome.
    pub fn connect(self: &Arc<Self>, to: Addr, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let Inner { transport, engine, .. } = &mut *inner;
        let transport = transport.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the transport"))?;
        let peer = engine.add_peer(Some(to));
        if let Err(error) = engine.connect(transport, peer, data.to_vec()) {
            // The application may try again, or try another address.
            engine.forget_peer(peer);
            return Err(error);
        }
        drop(inner);
        self.ready_flag.mark_ready();
        if self.ready_flag.is_slept_on() {
            self.wake_progress_thread();
        }
        Ok(())
    }

    /// Accepts a connection request of a passive endpoint (fi_accept(3)).
    pub fn accept(self: &Arc<Self>, asked: ConnectRequest<T::Request>, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let Inner { transport, engine, .. } = &mut *inner;
        let transport = transport.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the transport"))?;
        engine.accept(transport, asked, data.to_vec())?;
        drop(inner);
        self.ready_flag.mark_ready();
        if self.ready_flag.is_slept_on() {
            self.wake_progress_thread();
        }
        Ok(())
    }

    /// The first step of connecting and accepting: enables the endpoint. After it succeeds, only
    /// the connection itself can fail.
    ///
    /// # Errors
    /// EINVAL for more than [`MAX_USER_DATA`] bytes of data, ENOSYS for a connectionless endpoint,
    /// EOPBADSTATE for one that has been connected, and those of [`Self::enable`].
    pub fn begin_connection(self: &Arc<Self>, data: &[u8]) -> Result<()> {
        if data.len() > MAX_USER_DATA {
            return Err(Error::new(Errno::EINVAL, format!("connection data of more than {MAX_USER_DATA} bytes")));
        }
        self.enable()?;
        let inner = K::lock(&self.inner);
        if !matches!(inner.engine.config.kind, EndpointKind::Msg) {
            return Err(Error::new(Errno::ENOSYS, "connect an endpoint that is not of type FI_EP_MSG"));
        }
        if inner.engine.phase != Phase::New || inner.engine.peers.len() > 0 {
            return Err(Error::new(Errno::EOPBADSTATE, "connect an endpoint twice"));
        }
        Ok(())
    }

    /// Shuts the connection down gracefully (fi_shutdown(3)).
    pub fn shut_down(&self) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return Err(Errno::ENOTCONN) };
        engine.shut_down(transport)?;
        inner.flush_all();
        drop(inner);
        // Keep polling for the peer's shutdown.
        self.ready_flag.mark_ready();
        Ok(())
    }

    /// Cancels the oldest cancelable operation with this context (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let mut inner = K::lock(&self.inner);
        inner.engine.cancel(context);
        if !inner.engine.work.is_any() {
            return;
        }
        // The sends behind it may leave; send them now, since no other call may come.
        inner.flush_all();
        drop(inner);
        self.ready_flag.mark_ready();
        if self.ready_flag.is_slept_on() {
            self.wake_progress_thread();
        }
    }

    /// Sets the free space, in bytes, below which a multi-receive buffer is released
    /// (FI_OPT_MIN_MULTI_RECV). Applies to buffers posted from now on.
    pub fn set_min_multi_recv(&self, least: usize) {
        K::lock(&self.inner).engine.min_multi_recv = least;
    }

    /// The value that [`Self::set_min_multi_recv`] sets, in bytes.
    pub fn min_multi_recv(&self) -> usize {
        K::lock(&self.inner).engine.min_multi_recv
    }

    /// The size limit for a kind of message, in bytes.
    pub fn limit(&self, which: SizeLimit) -> usize {
        K::lock(&self.inner).engine.config.limits.get(which)
    }

    /// Changes the size limit for a kind of message (fi_setopt(3)).
    ///
    /// # Errors
    /// EINVAL above the endpoint's maximum.
    pub fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        K::lock(&self.inner).engine.config.limits.set(which, size)
    }

    /// Describes pending operations and what each waits for, to help find the cause of a hang.
    pub fn describe(&self) -> String {
        K::lock(&self.inner).engine.describe()
    }

    /// For tests: pending work for which neither a descriptor nor the next deadline would wake a
    /// thread, if any.
    #[doc(hidden)]
    pub fn unfinished(&self) -> Option<String> {
        let mut inner = K::lock(&self.inner);
        let due = inner.due();
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return None };
        let left = engine.left_undone(|link| transport.is_backed_up(link)).or_else(|| transport.unfinished());
        let is_due = due.is_some_and(|due| due <= transport.now());
        left.or_else(|| is_due.then(|| "something is due".to_owned()))
    }

    /// For tests: the next deadline, which sleeping threads must know.
    #[doc(hidden)]
    pub fn next_due(&self) -> Option<Instant> {
        K::lock(&self.inner).due()
    }

    /// Closes the endpoint (fi_close(3)): sends what was accepted for inject or transmit, waits up
    /// to [`CLOSE_DEADLINE`] until the peers' hosts have acknowledged it, and discards the rest.
    /// Afterwards no buffer is touched.
    pub fn close(&self) {
        self.memberships.undo();
        let events = self.events().take();
        K::lock(&self.inner).engine.eq = None;
        if let Some(mut events) = events {
            events.leave();
            events.eq.discard_events_of(events.owner);
        }
        self.bindings.undo();
        let mut inner = K::lock(&self.inner);
        let Inner { transport, engine, .. } = &mut *inner;
        if let Some(transport) = transport {
            Self::drain(transport, engine);
        }
        engine.discard_all();
        *transport = None;
    }

    fn drain(transport: &mut T, engine: &mut Engine<K>) {
        engine.begin_close();
        let mut end = None;
        let mut pause = Duration::from_micros(50);
        loop {
            transport.poll(engine);
            engine.tick(transport);
            engine.settle(transport);
            let over = engine.step_close(transport);
            transport.flush(Flush::All, engine);
            if over && engine.step_close(transport) {
                return;
            }
            let now = transport.now();
            let end = *end.get_or_insert(now + CLOSE_DEADLINE);
            if now >= end {
                let left = engine.unfinished();
                log::log(engine.config.provider, Level::Warn, Subsystem::EpCtrl, || {
                    format!("close timed out after {CLOSE_DEADLINE:?}: {left} operations and links aborted")
                });
                return;
            }
            transport.wait(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl<T: Transport, K: LockKind> MessageOps for Endpoint<T, K> {
    #[inline(always)]
    fn send(&self, op: SendOp) -> Result<(), Errno> {
        if T::INLINE_MAX > 0 {
            let mut inner = K::lock(&self.inner);
            if let Inner { transport: Some(transport), engine, .. } = &mut *inner
                && engine.try_send_fast(transport, &op)
            {
                drop(inner);
                // Sent. Polling looks for the peer's answer.
                self.ready_flag.mark_ready();
                return Ok(());
            }
        }
        self.send_any(op)
    }

    #[inline(always)]
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        let posted = K::lock(&self.inner).engine.try_post_fast(op);
        match posted {
            Ok(()) => Ok(()),
            Err(op) => self.receive_any(op),
        }
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    #[inline(never)]
    fn send_any(&self, op: SendOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let result = engine.send(transport, op);
        self.hand_on(inner);
        result
    }

    /// Finishes a call that left work for the next poll. Automatic progress sends now, since the
    /// application need not call again; a sleeping thread is woken if the work is due earlier than
    /// it knows.
    fn hand_on(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        if self.auto.is_some() {
            inner.flush_all();
        }
        drop(inner);
        self.ready_flag.mark_ready();
        if self.ready_flag.is_slept_on() {
            self.wake_progress_thread();
        }
    }

    #[inline(never)]
    fn receive_any(&self, op: RecvOp) -> Result<(), Errno> {
        let mut guard = K::lock(&self.inner);
        let inner = &mut *guard;
        if inner.transport.is_none() && matches!(inner.engine.config.kind, EndpointKind::Msg) {
            // Receives may be posted before connecting, when the transport is not open yet.
            inner.open().map_err(|error| error.errno())?;
        }
        let Inner { transport: Some(transport), engine, .. } = inner else { return Err(Errno::EOPBADSTATE) };
        let result = engine.receive(transport, op);
        // An unexpected message may have matched: its answer (CTS, acknowledgment or credit) must
        // be sent.
        let answers = transport.is_busy() || engine.work.is_any();
        if self.auto.is_some() {
            inner.flush_all();
        }
        drop(guard);
        if answers {
            self.ready_flag.mark_ready();
            if self.ready_flag.is_slept_on() {
                self.wake_progress_thread();
            }
        }
        result
    }
}

impl<T: Transport, K: LockKind> Reader for Endpoint<T, K> {
    /// An address was inserted: unexpected messages of its peer may match receives posted by
    /// handle.
    fn learn(&self) {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return };
        engine.check_av();
        engine.settle(transport);
        self.hand_on(inner);
    }
}

impl<T: Transport, K: LockKind> Pollable for Endpoint<T, K> {
    fn poll(&self) -> PollOutcome {
        let mut inner = K::lock(&self.inner);
        let visit = inner.poll();
        if visit.active && self.ready_flag.is_slept_on() {
            // Other sleeping threads do not know the deadlines that this poll set.
            self.tell_deadline(inner);
        }
        visit
    }

    fn flush(&self, how: Flush) {
        let mut inner = K::lock(&self.inner);
        match how {
            Flush::All => inner.flush_all(),
            Flush::ByRule => {
                if let Inner { transport: Some(transport), engine, .. } = &mut *inner {
                    transport.flush(how, engine);
                }
            }
        }
    }

    fn before_sleep(&self) -> bool {
        K::lock(&self.inner).engine.work.has(Work::PENDING)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut inner = K::lock(&self.inner);
        let earlier = inner.note_deadline();
        let due = inner.told;
        drop(inner);
        // Other sleeping threads know only a later deadline.
        if earlier && self.ready_flag.sleepers() > 1 {
            self.ready_flag.wake();
        }
        due
    }

    fn descriptor(&self) -> Option<Descriptor> {
        K::lock(&self.inner).transport.as_ref().and_then(Transport::descriptor)
    }

    fn is_polled(&self) -> bool {
        T::POLLED
    }

    fn arm(&self, first: bool) -> bool {
        let mut inner = K::lock(&self.inner);
        inner.armed += usize::from(first);
        inner.transport.as_mut().is_some_and(Transport::arm) | inner.engine.work.has(Work::PENDING)
    }

    fn disarm(&self) {
        let mut inner = K::lock(&self.inner);
        inner.armed -= 1;
        if let (0, Some(transport)) = (inner.armed, &mut inner.transport) {
            transport.disarm();
        }
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready_flag
    }
}
