//! An endpoint: the engine's tables and a transport behind one lock (fi_endpoint(3), fi_cm(3), fi_msg(3), fi_tagged(3)).
//! Connectionless and connected endpoints are the same machine; a connected one has one peer.

mod arrive;
mod engine;
mod links;
mod post;
mod receive;
mod state;

use crate::auto::Auto;
use crate::av::AddressVector;
use crate::counter::Counter;
use crate::cq::CompletionQueue;
use crate::eq::{EventQueue, Owner};
use crate::group::{Heat, Member, Visit};
use crate::hello::{MAX_USER_DATA, Speaker};
use crate::op::{Posts, RecvOp, SendOp};
use crate::outlets::Bonds;
use crate::transport::{Asked, Flush, Transport};
use core::fmt;
use engine::{Engine, Phase};
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, BindFlags, Errno, Error, Instant};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
pub use state::{CLOSE_DEADLINE, Config, OVERHEAD};
use std::sync::Arc;
use std::time::Duration;

/// Makes the transport when it is needed: at an address, or at one that the system chooses.
pub type Opener<T> = Box<dyn FnMut(Option<Addr>) -> Result<T> + Send>;

struct Inner<T: Transport, K: LockKind> {
    transport: Option<T>,
    engine: Engine<K>,
    opener: Opener<T>,
    source: Option<Addr>,
    /// Visitors for whom the descriptor is armed.
    armed: usize,
    /// When something is due, as far as those who sleep know.
    told: Option<Instant>,
}

/// An endpoint.
pub struct Endpoint<T: Transport, K: LockKind> {
    inner: K::Cell<Inner<T, K>>,
    heat: Heat,
    joined: AtomicBool,
    connected: bool,
    bonds: Bonds,
    /// The thread that moves it on, if the application's calls are not to.
    auto: Option<Arc<Auto>>,
}

impl<T: Transport, K: LockKind> fmt::Debug for Endpoint<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("heat", &self.heat).finish_non_exhaustive()
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
    fn poll(&mut self) -> Visit {
        let Self { transport: Some(transport), engine, .. } = self else { return Visit { active: false, busy: false } };
        let active = transport.poll(engine);
        if engine.yielding || !engine.todo.is_empty() || !engine.abandoned.is_empty() {
            return Self::follow_up(transport, engine, active);
        }
        Visit { active, busy: transport.is_busy() }
    }

    #[inline(never)]
    fn follow_up(transport: &mut T, engine: &mut Engine<K>, mut active: bool) -> Visit {
        engine.tick(transport);
        // What arrived may be answered at once, and an answer may let more arrive; bounded, so that nobody starves.
        for _ in 0..4 {
            if engine.todo.is_empty() && engine.abandoned.is_empty() {
                break;
            }
            engine.settle(transport);
            active = true;
            transport.flush(Flush::All, engine);
        }
        Visit { active, busy: transport.is_busy() || engine.next_deadline().is_some() }
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// An endpoint that is not enabled. `source` is the address that it was asked to have; `auto` moves it on if the
    /// application's calls are not to.
    pub fn new(kind: K, config: Config, source: Option<Addr>, opener: Opener<T>, auto: Option<Arc<Auto>>) -> Arc<Self> {
        let connected = matches!(config.speaker, Speaker::Msg);
        let inner = Inner { transport: None, engine: Engine::new(config), opener, source, armed: 0, told: None };
        Arc::new(Self {
            inner: kind.cell(inner),
            heat: Heat::default(),
            joined: AtomicBool::new(false),
            connected,
            bonds: Bonds::default(),
            auto,
        })
    }

    /// Binds a completion queue. A second one for a direction is refused.
    pub fn bind_cq(&self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).engine.out.bind_cq(cq, flags)?;
        self.bonds.add(move || drop(user));
        Ok(())
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused. Allowed at any time.
    pub fn bind_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).engine.out.bind_counter(counter, flags)?;
        self.bonds.add(move || drop(user));
        if self.is_joined() {
            let member: Arc<dyn Member> = self.clone();
            self.bonds.join_counter(&member, counter)?;
        }
        Ok(())
    }

    /// Binds an address vector. A second one is refused.
    pub fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        let engine = &mut inner.engine;
        if engine.av.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        engine.av_epoch = av.epoch();
        engine.av = Some(av.clone());
        engine.reset_handles();
        drop(inner);
        let user = av.users.add();
        self.bonds.add(move || drop(user));
        Ok(())
    }

    /// Binds an event queue; events name the endpoint by `owner`. Another one replaces the first.
    pub fn bind_eq(self: &Arc<Self>, eq: &Arc<EventQueue>, owner: Owner) {
        K::lock(&self.inner).engine.eq = Some((eq.clone(), owner));
        let user = eq.users.add();
        let queue = eq.clone();
        self.bonds.add(move || {
            queue.forget(owner);
            drop(user);
        });
    }

    /// Enables it (fi_enable(3)). Enabling twice is harmless.
    pub fn enable(self: &Arc<Self>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.engine.phase != Phase::New || inner.transport.is_some() && self.is_joined() {
            return Ok(());
        }
        let caps = inner.engine.config.caps;
        let missing = |errno, what| Err(Error::new(errno, format!("enable an endpoint without {what}")));
        inner.engine.out.check(caps)?;
        let connectionless = matches!(inner.engine.config.speaker, Speaker::Rdm);
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
        let outlets = inner.engine.out.all();
        let eq = inner.engine.eq.clone();
        drop(inner);
        self.joined.store(true, Ordering::Relaxed);
        let member: Arc<dyn Member> = self.clone();
        self.bonds.join(&member, outlets)?;
        if let Some(auto) = self.auto.clone() {
            let key = auto.join(member)?;
            self.bonds.add(move || auto.leave(key));
        }
        // Only connected endpoints have events; others stay out of the reach of whoever reads the event queue.
        if let Some((eq, _)) = eq.filter(|_| self.connected) {
            let key = eq.join(self.clone())?;
            self.bonds.add(move || eq.leave(key));
        }
        Ok(())
    }

    /// Something was posted while somebody sleeps who would otherwise see to it: it leaves now, and they hear of what is
    /// due earlier than they know.
    #[cold]
    fn see_to_it(&self) {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return };
        transport.flush(Flush::All, engine);
        let due = inner.due();
        let earlier = due.is_some_and(|due| inner.told.is_none_or(|told| due < told));
        if earlier {
            inner.told = due;
        }
        drop(inner);
        if earlier {
            self.heat.wake();
        }
    }

    fn is_joined(&self) -> bool {
        // Relaxed: set and read by control calls, which the application orders.
        self.joined.load(Ordering::Relaxed)
    }

    /// The address under which others reach it (fi_getname(3)).
    pub fn local_addr(&self) -> Result<Addr> {
        Ok(K::lock(&self.inner).open()?.local_addr())
    }

    /// Chooses the address, before it is in use (fi_setname(3)).
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.transport.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "name an endpoint that has its address"));
        }
        inner.source = Some(addr);
        Ok(())
    }

    /// The peer of a connected endpoint (fi_getpeer(3)).
    pub fn peer_addr(&self) -> Result<Addr> {
        let peer = K::lock(&self.inner).engine.connected_peer();
        peer.ok_or_else(|| Error::new(Errno::ENOTCONN, "look up the peer of an endpoint that has none"))
    }

    /// Connects (fi_connect(3)). The outcome is an event.
    pub fn connect(self: &Arc<Self>, to: Addr, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let Inner { transport, engine, .. } = &mut *inner;
        let transport = transport.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the transport"))?;
        let peer = engine.add_peer(Some(to));
        engine.connect(transport, peer, data.to_vec())?;
        drop(inner);
        self.heat.announce();
        if self.heat.is_slept_on() {
            self.see_to_it();
        }
        Ok(())
    }

    /// Accepts a connection that a passive endpoint was asked for (fi_accept(3)).
    pub fn accept(self: &Arc<Self>, asked: Asked<T::Request>, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let mut inner = K::lock(&self.inner);
        let Inner { transport, engine, .. } = &mut *inner;
        let transport = transport.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the transport"))?;
        engine.accept(transport, asked, data.to_vec())?;
        drop(inner);
        self.heat.announce();
        if self.heat.is_slept_on() {
            self.see_to_it();
        }
        Ok(())
    }

    fn begin_connection(self: &Arc<Self>, data: &[u8]) -> Result<()> {
        if data.len() > MAX_USER_DATA {
            return Err(Error::new(Errno::EINVAL, format!("connection data of more than {MAX_USER_DATA} bytes")));
        }
        self.enable()?;
        let inner = K::lock(&self.inner);
        if !matches!(inner.engine.config.speaker, Speaker::Msg) {
            return Err(Error::new(Errno::ENOSYS, "connect an endpoint that is not of type FI_EP_MSG"));
        }
        if inner.engine.phase != Phase::New || !inner.engine.peers.is_empty() {
            return Err(Error::new(Errno::EOPBADSTATE, "connect an endpoint twice"));
        }
        Ok(())
    }

    /// Ends the connection in order (fi_shutdown(3)).
    pub fn shut_down(&self) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), engine, .. } = &mut *inner else { return Err(Errno::ENOTCONN) };
        engine.shut_down(transport)?;
        transport.flush(Flush::All, engine);
        Ok(())
    }

    /// Cancels the oldest operation with that context that can be cancelled (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let mut inner = K::lock(&self.inner);
        inner.engine.cancel(context);
        let moves = !inner.engine.todo.is_empty();
        drop(inner);
        if moves {
            self.heat.announce();
        }
    }

    /// The free space below which a buffer for several messages is given back, of those posted from now on, in bytes
    /// (FI_OPT_MIN_MULTI_RECV).
    pub fn set_min_multi_recv(&self, least: usize) {
        K::lock(&self.inner).engine.min_multi_recv = least;
    }

    /// That size.
    pub fn min_multi_recv(&self) -> usize {
        K::lock(&self.inner).engine.min_multi_recv
    }

    /// What is under way and what it waits for, for people who look for the cause of a hang.
    pub fn describe(&self) -> String {
        K::lock(&self.inner).engine.describe()
    }

    /// Closes it (fi_close(3)): what was accepted for inject or transmit is sent, what the peers' hosts have
    /// acknowledged by the deadline is kept, the rest is discarded. Afterwards no buffer is touched.
    pub fn close(&self) {
        self.bonds.undo();
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
                    format!("closing took longer than {CLOSE_DEADLINE:?}: {left} operations and links were cut off")
                });
                return;
            }
            transport.wait(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

impl<T: Transport, K: LockKind> Posts for Endpoint<T, K> {
    #[inline(always)]
    fn send(&self, op: SendOp) -> Result<(), Errno> {
        if T::AT_ONCE > 0 {
            let mut inner = K::lock(&self.inner);
            if let Inner { transport: Some(transport), engine, .. } = &mut *inner
                && engine.send_at_once(transport, &op)
            {
                drop(inner);
                // It has left. The answer is looked for by polling.
                self.heat.announce();
                return Ok(());
            }
        }
        self.send_any(op)
    }

    #[inline(always)]
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        let posted = K::lock(&self.inner).engine.post_at_once(op);
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
        if self.auto.is_some() {
            // Nobody need call again.
            transport.flush(Flush::All, engine);
        }
        drop(inner);
        self.heat.announce();
        if self.heat.is_slept_on() {
            self.see_to_it();
        }
        result
    }

    #[inline(never)]
    fn receive_any(&self, op: RecvOp) -> Result<(), Errno> {
        let mut guard = K::lock(&self.inner);
        let inner = &mut *guard;
        if inner.transport.is_none() && matches!(inner.engine.config.speaker, Speaker::Msg) {
            // Receives may be posted before connecting, so before there is anything to connect with.
            inner.open().map_err(|error| error.errno())?;
        }
        let Inner { transport: Some(transport), engine, .. } = inner else { return Err(Errno::EOPBADSTATE) };
        let result = engine.receive(transport, op);
        if self.auto.is_some() {
            transport.flush(Flush::All, engine);
        }
        // What was waiting for the receive may have left an answer to send.
        let answers = transport.is_busy() || !engine.todo.is_empty();
        drop(guard);
        if answers {
            self.heat.announce();
            if self.heat.is_slept_on() {
                self.see_to_it();
            }
        }
        result
    }
}

impl<T: Transport, K: LockKind> Member for Endpoint<T, K> {
    fn visit(&self) -> Visit {
        K::lock(&self.inner).poll()
    }

    fn flush(&self, how: Flush) {
        let mut inner = K::lock(&self.inner);
        if let Inner { transport: Some(transport), engine, .. } = &mut *inner {
            transport.flush(how, engine);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut inner = K::lock(&self.inner);
        inner.told = inner.due();
        inner.told
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
        inner.transport.as_mut().is_some_and(Transport::arm)
    }

    fn disarm(&self) {
        let mut inner = K::lock(&self.inner);
        inner.armed -= 1;
        if let (0, Some(transport)) = (inner.armed, &mut inner.transport) {
            transport.disarm();
        }
    }

    fn heat(&self) -> &Heat {
        &self.heat
    }
}
