//! Scalable endpoints (fi_scalable_ep, fi_endpoint(3)): one address, and contexts that transmit or
//! receive. Each context is an [`Endpoint`] with its own lock, links and queues, so that threads on
//! different contexts do not meet. The scalable endpoint has the listener: it hands each connect
//! request to the receive context that the hello names.
//! Lock order: a context's lock, then the state here. Requests are handed over without the state's
//! lock.

use crate::av::AddressVector;
use crate::endpoint::{Config, Endpoint};
use crate::passive::ListenerOpener;
use crate::peer::contexts::NO_CONTEXT;
use crate::portal::Portal;
use crate::progress::auto::Auto;
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::transport::{ConnectRequest, Flush, Listener, Transport};
use crate::wire::hello::{Contexts, Credits, EndpointKind, Handshake, Hello};
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Errno, Error, Instant};
use ofi_sync::account::Account;
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum number of contexts of each kind.
pub const MOST_CONTEXTS: usize = 256;
/// How many connect requests wait for receive contexts that are not enabled; further ones are
/// refused.
const MOST_WAITING: usize = 4096;
/// How many waiting requests a new one has checked: more than one, so that requests of peers that
/// are gone do not pile up.
const CHECKED: usize = 4;
/// The same if there is no room for another.
const CHECKED_WHEN_FULL: usize = 64;

/// Opens the transport of a context, which charges the account. Peers reach it through the
/// listener.
pub type ContextOpener<L, T> = Box<dyn Fn(&L, &Arc<Account>) -> Result<T> + Send + Sync>;

/// A scalable endpoint.
pub struct ScalableEndpoint<L: Listener, T: Transport<Request = L::Request>, K: LockKind> {
    kind: K,
    state: Mutex<State<L, T, K>>,
    open_context: ContextOpener<L, T>,
    nonce: [u8; 16],
    auto: Option<Arc<Auto>>,
    ready_flag: ReadyFlag,
}

struct State<L: Listener, T: Transport, K: LockKind> {
    listener: Option<L>,
    opener: ListenerOpener<L>,
    source: Option<Addr>,
    /// The address vector, which stays open.
    av: Option<(Arc<AddressVector>, Child)>,
    /// The transmit contexts that are open.
    transmit: Vec<Option<Weak<Endpoint<T, K>>>>,
    receive: Vec<ReceiveSlot<T, K>>,
    /// Requests that came before their receive context was enabled, each with its index. The first
    /// is the next to be checked.
    waiting: VecDeque<(usize, ConnectRequest<L::Request>)>,
}

/// A receive context that is open, or may be.
struct ReceiveSlot<T: Transport, K: LockKind> {
    stage: Stage,
    context: Weak<Endpoint<T, K>>,
}

/// How far a receive context has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not opened yet: the application may still do so.
    Absent,
    /// Not enabled.
    Opened,
    /// Takes connect requests.
    Enabled,
    Closed,
}

impl<L: Listener, T: Transport<Request = L::Request>, K: LockKind> fmt::Debug for ScalableEndpoint<L, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScalableEndpoint").field("ready_flag", &self.ready_flag).finish_non_exhaustive()
    }
}

impl<L: Listener, T: Transport<Request = L::Request>, K: LockKind> ScalableEndpoint<L, T, K> {
    /// A scalable endpoint with room for `transmit` and `receive` contexts, at the address `source`
    /// or at one that the system chooses. `auto` is the progress thread under automatic progress.
    pub fn new(
        kind: K,
        (transmit, receive): (usize, usize),
        source: Option<Addr>,
        opener: ListenerOpener<L>,
        open_context: ContextOpener<L, T>,
        nonce: [u8; 16],
        auto: Option<Arc<Auto>>,
    ) -> Arc<Self> {
        let slot = || ReceiveSlot { stage: Stage::Absent, context: Weak::new() };
        let state = State {
            listener: None,
            opener,
            source,
            av: None,
            transmit: core::iter::repeat_with(|| None).take(transmit.min(MOST_CONTEXTS)).collect(),
            receive: core::iter::repeat_with(slot).take(receive.min(MOST_CONTEXTS)).collect(),
            waiting: VecDeque::new(),
        };
        let (state, ready_flag) = (Mutex::new(state), ReadyFlag::default());
        Arc::new(Self { kind, state, open_context, nonce, auto, ready_flag })
    }

    fn lock(&self) -> MutexGuard<'_, State<L, T, K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the address vector of all contexts that are enabled later (fi_scalable_ep_bind).
    ///
    /// # Errors
    /// EINVAL for a second one.
    pub fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        let mut state = self.lock();
        if state.av.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        state.av = Some((av.clone(), av.users.add()));
        Ok(())
    }

    /// The address of all contexts (fi_getname(3)).
    ///
    /// # Errors
    /// The system's: the address is in use, or not one of this host.
    pub fn local_addr(&self) -> Result<Addr> {
        self.lock().open().map(|listener| listener.local_addr())
    }

    /// Sets the address, before it is in use (fi_setname(3)).
    ///
    /// # Errors
    /// EOPBADSTATE if it is in use.
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut state = self.lock();
        if state.listener.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "set the address of a scalable endpoint that already has one"));
        }
        state.source = Some(addr);
        Ok(())
    }

    /// Opens a transmit context (fi_tx_context). The configuration's `contexts` are set here.
    ///
    /// # Errors
    /// EINVAL for an index that is too large, EBUSY for a context that is open, and those of
    /// [`Self::local_addr`].
    pub fn open_transmit(self: &Arc<Self>, index: usize, config: Config) -> Result<Arc<Endpoint<T, K>>> {
        let mut state = self.lock();
        state.open()?;
        let (count, name) = (state.transmit.len(), "transmit");
        let slot = state.transmit.get_mut(index).ok_or_else(|| no_such(name, index, count))?;
        if slot.is_some() {
            return Err(is_used(name, index));
        }
        let context = self.context(Contexts { transmit: number(index) + 1, receive: 0 }, config);
        *slot = Some(Arc::downgrade(&context));
        Ok(context)
    }

    /// Opens a receive context (fi_rx_context). The configuration's `contexts` are set here.
    ///
    /// # Errors
    /// As for [`Self::open_transmit`].
    pub fn open_receive(self: &Arc<Self>, index: usize, config: Config) -> Result<Arc<Endpoint<T, K>>> {
        let mut state = self.lock();
        state.open()?;
        let (count, name) = (state.receive.len(), "receive");
        let slot = state.receive.get_mut(index).ok_or_else(|| no_such(name, index, count))?;
        if matches!(slot.stage, Stage::Opened | Stage::Enabled) {
            return Err(is_used(name, index));
        }
        let context = self.context(Contexts { transmit: 0, receive: number(index) }, config);
        (slot.stage, slot.context) = (Stage::Opened, Arc::downgrade(&context));
        Ok(context)
    }

    fn context(self: &Arc<Self>, contexts: Contexts, config: Config) -> Arc<Endpoint<T, K>> {
        let (me, account, auto) = (self.clone(), config.account.clone(), self.auto.clone());
        let opener = Box::new(move |_| (me.open_context)(me.lock().open()?, &account));
        Endpoint::context(self.kind, Config { contexts, ..config }, opener, auto, self.clone())
    }

    /// Closes it, after all its contexts: requests that wait for a context are refused.
    pub fn close(&self) {
        let waiting = core::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(|(_, asked)| self.refuse(asked.request, Handshake::Refuse, IS_CLOSED));
        let mut state = self.lock();
        (state.listener, state.av) = (None, None);
    }

    fn hello(&self, handshake: Handshake, why: &str) -> Vec<u8> {
        let (kind, nonce, cookie, contexts) = (EndpointKind::Rdm, self.nonce, [0; 16], Contexts::default());
        let credits = Credits { bytes: 0, eager: 0, requests: 0, preview: 0 };
        let data = why.as_bytes().to_vec();
        Hello { handshake, kind, nonce, attempt: 0, cookie, credits, contexts, name: None, data }.encode()
    }

    fn refuse(&self, request: L::Request, handshake: Handshake, why: &str) {
        self.refuse_with(request, &self.hello(handshake, why));
    }

    fn refuse_with(&self, request: L::Request, hello: &[u8]) {
        if let Some(listener) = &mut self.lock().listener {
            listener.refuse(request, hello);
        }
        // The listener drops the connection at a deadline.
        self.ready_flag.mark_ready_and_wake();
    }

    /// Passes a connect request to the context that it names, keeps it until the application
    /// enables that context, or refuses it.
    fn handle_request(&self, asked: ConnectRequest<L::Request>) {
        let hello = match Hello::parse(&asked.hello) {
            Ok(hello) => hello,
            Err(violation) => return self.refuse(asked.request, Handshake::Refuse, violation.0),
        };
        match hello.handshake {
            _ if hello.kind != EndpointKind::Rdm => {
                return self.refuse(asked.request, Handshake::Refuse, "the endpoint types do not match");
            }
            Handshake::Connect => {}
            // Contexts do not ask for proof of their links, so none of them made this one.
            Handshake::Verify => return self.refuse(asked.request, Handshake::NotMine, ""),
            Handshake::Accept
            | Handshake::Crossing
            | Handshake::Refuse
            | Handshake::Reject
            | Handshake::Mine
            | Handshake::NotMine => {
                return self.refuse(asked.request, Handshake::Refuse, "the hello is not a request");
            }
        }
        let mut state = self.lock();
        let index = usize::from(hello.contexts.receive);
        let why = match state.receive.get_mut(index) {
            None => NO_CONTEXT,
            Some(ReceiveSlot { stage: Stage::Closed, .. }) => IS_CLOSED,
            Some(ReceiveSlot { stage: Stage::Enabled, context }) => match context.upgrade() {
                Some(context) => {
                    drop(state);
                    return self.hand_over(&context, asked);
                }
                None => IS_CLOSED,
            },
            Some(ReceiveSlot { stage: Stage::Absent | Stage::Opened, .. }) => {
                if state.has_room() {
                    return state.waiting.push_back((index, asked));
                }
                "too many connect requests wait for contexts that are not enabled"
            }
        };
        drop(state);
        self.refuse(asked.request, Handshake::Refuse, why);
    }

    fn hand_over(&self, context: &Arc<Endpoint<T, K>>, asked: ConnectRequest<L::Request>) {
        let from = asked.from;
        let vouches = |name: &Addr| self.lock().listener.as_ref().is_some_and(|listener| listener.vouches(&from, name));
        if let Err((request, hello)) = context.take_in(asked, vouches) {
            self.refuse_with(request, &hello);
        }
    }
}

const IS_CLOSED: &str = "the receive context is closed";

fn number(index: usize) -> u16 {
    u16::try_from(index).expect("there are at most 256 contexts")
}

#[cold]
fn no_such(what: &str, index: usize, count: usize) -> Error {
    Error::new(Errno::EINVAL, format!("open {what} context {index} of an endpoint that has {count}"))
}

#[cold]
fn is_used(what: &str, index: usize) -> Error {
    Error::new(Errno::EBUSY, format!("open {what} context {index}, which is open"))
}

impl<L: Listener, T: Transport, K: LockKind> State<L, T, K> {
    /// Whether another request may wait. Drops some whose peers are gone.
    fn has_room(&mut self) -> bool {
        self.check_waiting(CHECKED);
        if self.waiting.len() >= MOST_WAITING {
            self.check_waiting(CHECKED_WHEN_FULL);
        }
        self.waiting.len() < MOST_WAITING
    }

    /// Drops those requests whose peer is gone, of the `count` that were checked least recently.
    fn check_waiting(&mut self, count: usize) {
        let Self { listener: Some(listener), waiting, .. } = self else { return };
        for _ in 0..count.min(waiting.len()) {
            if let Some(first) = waiting.pop_front()
                && !listener.is_gone(&first.1.request)
            {
                waiting.push_back(first);
            }
        }
    }

    /// Takes the requests that wait for a receive context.
    fn take_waiting(&mut self, index: u16) -> VecDeque<(usize, ConnectRequest<L::Request>)> {
        let waiting = core::mem::take(&mut self.waiting);
        let (of_context, others) = waiting.into_iter().partition(|(of, _)| *of == usize::from(index));
        self.waiting = others;
        of_context
    }

    fn open(&mut self) -> Result<&mut L> {
        if self.listener.is_none() {
            self.listener = Some((self.opener)(self.source)?);
        }
        self.listener.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the listener"))
    }
}

impl<L: Listener, T: Transport<Request = L::Request>, K: LockKind> Portal for ScalableEndpoint<L, T, K> {
    fn av(&self) -> Option<Arc<AddressVector>> {
        self.lock().av.as_ref().map(|(av, _)| av.clone())
    }

    fn pair(&self, contexts: Contexts) -> Result<()> {
        let state = self.lock();
        let fewer = state.transmit.len().min(state.receive.len()).max(1);
        let me = contexts.transmit.checked_sub(1);
        let is_partner = |index: &usize| index % fewer == usize::from(me.unwrap_or(contexts.receive)) % fewer;
        let transmit = |index: usize| state.transmit.get(index)?.as_ref()?.upgrade();
        let receive = |index: usize| state.receive.get(index)?.context.upgrade();
        let (this, partners): (_, Vec<_>) = match me {
            Some(me) => {
                let partners = (0..state.receive.len()).filter(is_partner).filter_map(receive);
                (transmit(usize::from(me)), partners.collect())
            }
            None => {
                let partners = (0..state.transmit.len()).filter(is_partner).filter_map(transmit);
                (receive(usize::from(contexts.receive)), partners.collect())
            }
        };
        drop(state);
        let Some(this) = this else { return Ok(()) };
        partners.iter().try_for_each(|partner| this.pair(partner))
    }

    fn handle_enabled(&self, contexts: Contexts) {
        if contexts.transmit > 0 {
            return;
        }
        let mut state = self.lock();
        let Some(slot) = state.receive.get_mut(usize::from(contexts.receive)) else { return };
        slot.stage = Stage::Enabled;
        let context = slot.context.upgrade();
        let waiting = state.take_waiting(contexts.receive);
        drop(state);
        if let Some(context) = context {
            waiting.into_iter().for_each(|(_, asked)| self.hand_over(&context, asked));
        }
    }

    fn handle_closed(&self, contexts: Contexts) {
        let mut state = self.lock();
        if contexts.transmit > 0 {
            if let Some(slot) = state.transmit.get_mut(usize::from(contexts.transmit) - 1) {
                *slot = None;
            }
            return;
        }
        let Some(slot) = state.receive.get_mut(usize::from(contexts.receive)) else { return };
        (slot.stage, slot.context) = (Stage::Closed, Weak::new());
        let waiting = state.take_waiting(contexts.receive);
        drop(state);
        waiting.into_iter().for_each(|(_, asked)| self.refuse(asked.request, Handshake::Refuse, IS_CLOSED));
    }
}

impl<L: Listener, T: Transport<Request = L::Request>, K: LockKind> Pollable for ScalableEndpoint<L, T, K> {
    fn poll(&self) -> PollOutcome {
        let mut asked = Vec::new();
        let mut state = self.lock();
        let Some(listener) = &mut state.listener else { return PollOutcome::default() };
        let active = listener.poll(&mut asked);
        let waits = listener.next_deadline().is_some();
        let busy = waits || listener.descriptor().is_none();
        if waits {
            // The listener may lack the descriptors that requests of absent peers hold.
            state.check_waiting(1);
        }
        drop(state);
        asked.into_iter().for_each(|asked| self.handle_request(asked));
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

    fn shared_as(&self) -> Option<usize> {
        Some(core::ptr::from_ref(self).addr())
    }
}
