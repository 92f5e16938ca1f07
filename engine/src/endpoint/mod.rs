//! An endpoint: the engine and a transport behind one lock (fi_endpoint(3), fi_cm(3), fi_msg(3),
//! fi_tagged(3)). Connectionless and connected endpoints share the code; a connected one has
//! exactly one peer.

mod accesses;
mod backed;
mod cm;
mod collectives;
mod config;
mod connected;
mod connection;
mod connectionless;
mod core;
mod deferred;
mod describe;
mod frames;
mod inner;
mod life;
mod links;
mod messages;
mod pollable;
mod replies;
mod stalled;
mod watched;

use self::core::Core;
use crate::av::AddressVector;
use crate::completion::counter::Counter;
use crate::completion::cq::CompletionQueue;
use crate::completion::eq::{BoundEq, EventQueue, Owner};
use crate::completion::sinks::{Bindings, BoundQueues};
use crate::limits::SizeLimit;
use crate::measures::Measures;
pub use crate::peer::credit::{GUARANTEED, OVERHEAD};
use crate::portal::Portal;
use crate::progress::auto::Auto;
use crate::progress::set::{PollCount, Pollable, ReadyFlag};
pub use crate::rx::blocked::{PEER_MEMORY, peer_account};
use crate::rx::shared::{Notified, SharedRx};
use crate::statistics::Statistics;
use crate::transport::Transport;
use crate::wire::hello::Contexts;
use ::core::fmt;
pub use config::Config;
use connected::Connected;
use connectionless::Connectionless;
use inner::Inner;
use life::Life;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, Errno, Error, Instant};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use watched::Watched;

/// How long closing may take.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Opens the transport on first use, at the given address or at one that the system chooses.
pub type Opener<T> = Box<dyn FnMut(Option<Addr>) -> Result<T> + Send>;

/// An endpoint.
pub struct Endpoint<T: Transport, K: LockKind> {
    inner: K::Cell<Inner<T, K>>,
    ready_flag: ReadyFlag,
    /// A flush may have something to do: a call or a poll has left it. Cleared under the lock.
    unflushed: AtomicBool,
    joined: AtomicBool,
    connected: bool,
    bindings: Bindings,
    /// Memberships in the progress sets of its queues and counters, and with the progress thread.
    memberships: Bindings,
    /// Counters whose readers make progress on it, although they are not bound.
    watched: Watched<K>,
    /// The bound event queue.
    events: Mutex<Option<BoundEq>>,
    /// The domain's progress thread (FI_PROGRESS_AUTO); `None` under manual progress.
    auto: Option<Arc<Auto>>,
    /// How often it was polled, if there is a progress thread, which leaves it to the application
    /// while that polls it.
    polls: PollCount,
    /// The scalable endpoint that it is a context of.
    portal: Option<(Arc<dyn Portal>, Contexts)>,
}

impl<T: Transport, K: LockKind> fmt::Debug for Endpoint<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("ready_flag", &self.ready_flag).finish_non_exhaustive()
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// Creates an endpoint that is not enabled. `source` is the requested local address, `auto` the
    /// progress thread under automatic progress.
    pub fn new(kind: K, config: Config, source: Option<Addr>, opener: Opener<T>, auto: Option<Arc<Auto>>) -> Arc<Self> {
        Self::open(kind, config, source, opener, auto, None)
    }

    /// Creates a context of a scalable endpoint.
    pub(crate) fn context(
        kind: K,
        config: Config,
        opener: Opener<T>,
        auto: Option<Arc<Auto>>,
        portal: Arc<dyn Portal>,
    ) -> Arc<Self> {
        let contexts = config.contexts;
        Self::open(kind, config, None, opener, auto, Some((portal, contexts)))
    }

    fn open(
        kind: K,
        config: Config,
        source: Option<Addr>,
        opener: Opener<T>,
        auto: Option<Arc<Auto>>,
        portal: Option<(Arc<dyn Portal>, Contexts)>,
    ) -> Arc<Self> {
        let core = Core::new(config);
        let connected = matches!(core.life, Life::Connected(_));
        Arc::new(Self {
            inner: kind.cell(Inner::new(core, opener, source, auto.is_some())),
            ready_flag: ReadyFlag::default(),
            unflushed: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            connected,
            bindings: Bindings::default(),
            memberships: Bindings::default(),
            watched: Watched::default(),
            events: Mutex::new(None),
            auto,
            polls: PollCount::default(),
            portal,
        })
    }

    /// Binds a completion queue. A second one for a direction is refused.
    ///
    /// # Errors
    /// EBADFLAGS, and EINVAL for a second queue or a direction that a context does not have.
    pub fn bind_cq(&self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<()> {
        let queues = BindFlags::TRANSMIT | BindFlags::RECV;
        if flags.intersects(self.other_direction() & queues) {
            return Err(Error::new(Errno::EINVAL, "bind a completion queue to a context for the other direction"));
        }
        let user = K::lock(&self.inner).core.out.sinks.bind_cq(cq, flags)?;
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// The operations of the direction that a context of a scalable endpoint does not have.
    fn other_direction(&self) -> BindFlags {
        match &self.portal {
            Some((_, contexts)) if contexts.transmit > 0 => {
                BindFlags::RECV | BindFlags::REMOTE_READ | BindFlags::REMOTE_WRITE
            }
            Some(_) => BindFlags::TRANSMIT | BindFlags::READ | BindFlags::WRITE,
            None => BindFlags::empty(),
        }
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused. Allowed at
    /// any time.
    ///
    /// # Errors
    /// EBADFLAGS, and EINVAL for a second counter or a direction that a context does not have; if
    /// the endpoint is enabled, also those of watching its descriptor. An error changes nothing.
    pub fn bind_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<()> {
        if flags.intersects(self.other_direction()) {
            return Err(Error::new(Errno::EINVAL, "bind a counter to a context for operations that it does not have"));
        }
        let inner = K::lock(&self.inner);
        inner.core.out.sinks.admit_counter(flags)?;
        let first = !inner.core.out.sinks.has_counter(counter);
        drop(inner);
        // A member of the counter's progress set joins it once.
        let watched = self.unwatch_counter(counter);
        let pollables = if first && self.is_joined() { self.pollables() } else { Vec::new() };
        let register = || K::lock(&self.inner).core.out.sinks.bind_counter(counter, flags);
        match self.memberships.bind_counter(pollables, counter, register) {
            Ok(user) => {
                self.bindings.add(move || drop(user));
                Ok(())
            }
            Err(error) => {
                if watched {
                    // If this fails, it is for the same cause, which the caller gets.
                    drop(self.watch_counter(counter));
                }
                Err(error)
            }
        }
    }

    /// Binds an address vector. A second one is refused.
    pub fn bind_av(self: &Arc<Self>, av: &Arc<AddressVector>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        inner.core.admit_av(av)?;
        let epoch = av.epoch();
        let me: Weak<Self> = Arc::downgrade(self);
        let reader = av.add_reader(me);
        inner.core.bind_av(av, epoch, reader);
        drop(inner);
        let (user, vector) = (av.users.add(), av.clone());
        self.bindings.add(move || {
            vector.remove_reader(reader);
            drop(user);
        });
        Ok(())
    }

    /// Binds a shared receive context, whose receives take the endpoint's messages from now on. Its
    /// own context, which must be unused, ends.
    ///
    /// # Errors
    /// EOPBADSTATE after enabling, EINVAL for a second context or one whose endpoints have another
    /// address vector.
    pub fn bind_rx(self: &Arc<Self>, context: &Arc<SharedRx<K>>) -> Result<()> {
        let me: Weak<Self> = Arc::downgrade(self);
        let mut inner = K::lock(&self.inner);
        if !inner.core.life.is_new() || inner.core.peers.table.len() > 0 {
            return Err(Error::new(Errno::EOPBADSTATE, "bind a receive context to an endpoint in use"));
        }
        inner.core.share_rx(context, me as Weak<dyn Notified>)
    }

    /// Binds an event queue; events name the endpoint by `owner`. A second queue replaces the first
    /// and takes over its unread events; the first may then be closed.
    ///
    /// # Errors
    /// If the endpoint is enabled, those of watching its descriptor. An error changes nothing.
    pub fn bind_eq(self: &Arc<Self>, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        let mut events = self.events();
        let follows = self.connected && self.is_joined() || events.as_ref().is_some_and(BoundEq::is_followed);
        BoundEq::rebind(&mut events, eq, follows.then(|| self.clone() as Arc<dyn Pollable>), |old| {
            // Under the endpoint's lock, so that no newer event overtakes those handed over.
            let mut inner = K::lock(&self.inner);
            if let Some(old) = old {
                old.hand_over(owner, eq);
            }
            inner.core.eq = Some((eq.clone(), owner));
        })
    }

    /// Whether an event queue is bound.
    pub fn has_eq(&self) -> bool {
        self.events().is_some()
    }

    fn events(&self) -> MutexGuard<'_, Option<BoundEq>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enables the endpoint (fi_enable(3)). Enabling twice is harmless; after its connection has
    /// ended it fails with EOPBADSTATE.
    pub fn enable(self: &Arc<Self>) -> Result<()> {
        self.bind_av_of_portal()?;
        let mut inner = K::lock(&self.inner);
        if let Life::Connected(Connected::Ended | Connected::Finished | Connected::ShutDown) = inner.core.life {
            return Err(Error::new(Errno::EOPBADSTATE, "enable an endpoint whose connection has ended"));
        }
        if !inner.core.life.is_new() || inner.transport.is_some() && self.is_joined() {
            return Ok(());
        }
        let missing = |errno, what| Err(Error::new(errno, format!("enable an endpoint without {what}")));
        inner.core.out.check_bindings()?;
        match inner.core.life {
            Life::Connectionless(_) if !inner.core.peers.has_av() => {
                return missing(Errno::ENOAV, "an address vector");
            }
            Life::Connected(_) if inner.core.eq.is_none() => return missing(Errno::ENOEQ, "an event queue"),
            Life::Connectionless(_) | Life::Connected(_) => {}
        }
        inner.open()?;
        if let Life::Connectionless(life) = &mut inner.core.life {
            *life = Connectionless::Enabled;
        }
        let queues = inner.core.out.sinks.all();
        drop(inner);
        self.joined.store(true, Ordering::Relaxed);
        if let Err(error) = self.join(queues) {
            // Undo everything, so that the application can try again.
            self.leave_watched();
            self.memberships.undo();
            self.joined.store(false, Ordering::Relaxed);
            let mut inner = K::lock(&self.inner);
            if let Life::Connectionless(life) = &mut inner.core.life {
                *life = Connectionless::New;
            }
            inner.transport = None;
            return Err(error);
        }
        if let Some((portal, contexts)) = &self.portal {
            portal.handle_enabled(*contexts);
        }
        Ok(())
    }

    /// Binds the address vector of the scalable endpoint to a context that has none.
    fn bind_av_of_portal(self: &Arc<Self>) -> Result<()> {
        let Some(av) = self.portal.as_ref().and_then(|(portal, _)| portal.av()) else { return Ok(()) };
        let is_bound = K::lock(&self.inner).core.peers.has_av();
        if is_bound { Ok(()) } else { self.bind_av(&av) }
    }

    /// What makes progress with its queues and counters: a receive context with its scalable
    /// endpoint, from which its links come.
    fn pollables(self: &Arc<Self>) -> Vec<Arc<dyn Pollable>> {
        let mut pollables: Vec<Arc<dyn Pollable>> = vec![self.clone()];
        match &self.portal {
            Some((portal, contexts)) if contexts.transmit == 0 => pollables.push(portal.clone()),
            Some(_) | None => {}
        }
        pollables
    }

    /// Joins the progress sets of its queues and counters, and the progress thread if there is one.
    fn join(self: &Arc<Self>, queues: BoundQueues<K>) -> Result<()> {
        let pollables = self.pollables();
        self.memberships.join(&pollables, queues)?;
        self.join_watched()?;
        if let Some((portal, contexts)) = &self.portal {
            portal.pair(*contexts)?;
        }
        if let Some(auto) = &self.auto {
            for pollable in pollables {
                let (auto, key) = (auto.clone(), auto.join(pollable)?);
                self.memberships.add(move || auto.leave(key));
            }
        }
        // Only connected endpoints have events: reading the event queue need not progress others.
        if self.connected {
            self.follow_events()?;
        }
        Ok(())
    }

    /// Makes the queues of each of two contexts progress the other one, too, if both are enabled: a
    /// program that awaits the answer to what it has sent reads only the queue where the answer
    /// arrives.
    ///
    /// # Errors
    /// Those of watching their descriptors.
    pub(crate) fn pair(self: &Arc<Self>, other: &Arc<Self>) -> Result<()> {
        if !self.is_joined() || !other.is_joined() {
            return Ok(());
        }
        let [ours, theirs] = [self, other].map(|of| K::lock(&of.inner).core.out.sinks.all());
        let both = [&self.memberships, &other.memberships];
        ours.join_other(&(other.clone() as Arc<dyn Pollable>), both)?;
        theirs.join_other(&(self.clone() as Arc<dyn Pollable>), both)
    }

    /// Reading the event queue makes progress from now on.
    fn follow_events(self: &Arc<Self>) -> Result<()> {
        self.events().as_mut().map_or(Ok(()), |bound| bound.follow(self.clone()))
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

    /// Sets the free space, in bytes, below which a multi-receive buffer is released
    /// (FI_OPT_MIN_MULTI_RECV). Applies to buffers posted from now on.
    pub fn set_min_multi_recv(&self, least: usize) {
        K::lock(&self.inner).core.rx.lock().set_min_multi_recv(least);
    }

    /// The value that [`Self::set_min_multi_recv`] sets, in bytes.
    pub fn min_multi_recv(&self) -> usize {
        K::lock(&self.inner).core.rx.lock().min_multi_recv()
    }

    /// Serves a caller of 1.x: peeks copy the beginning of their message into their buffer. With
    /// `buffered`, receives are buffered (FI_BUFFERED_RECV, fi_msg(3) of 1.17), and it names the
    /// endpoint in the contexts of its messages. Called before the endpoint is enabled.
    pub fn serve_legacy(&self, buffered: Option<usize>) {
        K::lock(&self.inner).core.rx.lock().serve_legacy(buffered);
    }

    /// The longest buffered message, in bytes, that is reported without FI_MORE
    /// (FI_OPT_BUFFERED_LIMIT); `None` if messages are not buffered.
    pub fn buffered_limit(&self) -> Option<usize> {
        K::lock(&self.inner).core.rx.lock().buffered_limit()
    }

    /// Sets what [`Self::buffered_limit`] answers, before the endpoint is enabled; `usize::MAX`
    /// sets the largest.
    ///
    /// # Errors
    /// EMSGSIZE above the largest, EOPBADSTATE if the endpoint is enabled.
    pub fn set_buffered_limit(&self, limit: usize) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if self.is_joined() {
            return Err(Error::new(Errno::EOPBADSTATE, "set FI_OPT_BUFFERED_LIMIT of an enabled endpoint"));
        }
        inner.core.rx.lock().set_buffered_limit(limit)
    }

    /// How much of a longer buffered message, in bytes, is in the buffer of its entry
    /// (FI_OPT_BUFFERED_MIN).
    pub fn buffered_min(&self) -> usize {
        usize::try_from(K::lock(&self.inner).core.peers.preview()).unwrap_or(usize::MAX)
    }

    /// Sets what [`Self::buffered_min`] answers, before the endpoint is enabled.
    ///
    /// # Errors
    /// EMSGSIZE above the largest [`Self::buffered_limit`], EOPBADSTATE if the endpoint is enabled.
    pub fn set_buffered_min(&self, least: usize) -> Result<()> {
        if self.is_joined() {
            return Err(Error::new(Errno::EOPBADSTATE, "set FI_OPT_BUFFERED_MIN of an enabled endpoint"));
        }
        K::lock(&self.inner).core.peers.set_preview(least)
    }

    /// The size limit for a kind of message, in bytes.
    pub fn limit(&self, which: SizeLimit) -> usize {
        K::lock(&self.inner).core.limits.get(which)
    }

    /// Changes the size limit for a kind of message (fi_setopt(3)).
    ///
    /// # Errors
    /// EINVAL above the endpoint's maximum.
    pub fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        K::lock(&self.inner).core.limits.set(which, size)
    }

    /// What fi_profile(3) reports, with a list of the messages that wait for a receive, or without.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for the list.
    pub fn measures(&self, with_messages: bool) -> Result<Measures, Errno> {
        K::lock(&self.inner).core.measures(with_messages)
    }

    /// How many sends and one-sided operations can be posted now without `AGAIN`, unless they are
    /// injected: those also need room on the way to their peer.
    pub fn tx_size_left(&self) -> usize {
        K::lock(&self.inner).core.tx.size_left()
    }

    /// How many receives can be posted now without `AGAIN`, to its own receive context or to the
    /// shared one.
    pub fn rx_size_left(&self) -> usize {
        K::lock(&self.inner).core.rx.lock().size_left()
    }

    /// What it has done since it was opened, in all and with each peer that it knows.
    pub fn statistics(&self) -> Statistics {
        K::lock(&self.inner).core.statistics(usize::MAX)
    }

    /// Describes pending operations and what each waits for, to help find the cause of a hang.
    pub fn describe(&self) -> String {
        K::lock(&self.inner).core.describe(usize::MAX)
    }

    /// For tests: pending work for which neither a descriptor nor the next deadline would wake a
    /// thread, if any.
    #[doc(hidden)]
    pub fn unfinished(&self) -> Option<String> {
        let mut inner = K::lock(&self.inner);
        let due = inner.due();
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return None };
        let left = core.left_undone().or_else(|| transport.unfinished());
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
        self.leave_watched();
        if let Some((portal, contexts)) = &self.portal {
            portal.handle_closed(*contexts);
        }
        self.memberships.undo();
        let bound = self.events().take();
        let reported = K::lock(&self.inner).core.eq.take();
        if let Some(mut bound) = bound {
            bound.leave();
        }
        if let Some((eq, owner)) = reported {
            eq.discard_events_of(owner);
        }
        self.bindings.undo();
        K::lock(&self.inner).close();
    }
}
