//! [`Transport`] over the connections of a [`Device`]; also the listener. Each poll takes the
//! completions of all links from the queues, so an idle link costs nothing.
//! Invariant: a link leaves the table only through `remove`, whose callers return what it holds.

mod listening;
mod pace;
mod segments;

use crate::conn::{Conn, Report};
use crate::device::{Device, Event, Pair, RECEIVES, SLOT};
use crate::offers::Exposure;
use crate::wire::{self, Grant, Kind, MAX_OFFER};
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, AddrFormat, Cause, Errno, Error, Instant};
use ofi_engine::transport::{
    ConnectRequest, ControlSubmitted, Down, Flush, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Token,
    Transport, Urgency,
};
use ofi_engine::wire::frame::{Header, MAX_PAYLOAD};
use ofi_memory::Buffer;
use ofi_sync::account::Account;
use pace::Pace;
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Half-open connections at most.
const MOST_HALF_OPEN: usize = 1024;
/// How long a connection may be half-open before it gives way to others.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the peer of a refused connection may take to read the refusal.
const REFUSED: Duration = Duration::from_secs(5);
/// Batches of completions of a poll.
const BATCHES: usize = 8;
/// The longest frame that is worth the fast path, in bytes.
const INLINE_MAX: usize = 1024;
/// Bits of a key that are the slot of its link.
const SLOT_BITS: u64 = (1 << 24) - 1;

/// Settings of a transport.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long connecting may take.
    pub connect_deadline: Duration,
    /// Charged for half-open connections.
    pub account: Arc<Account>,
    /// The shortest payload that the receiver's device reads where it lies, in bytes.
    pub read_from: usize,
    /// The same for memory that was used before, whose registration may be kept.
    pub read_known_from: usize,
}

impl Settings {
    /// Whether the receiver's device is to read a payload where it lies.
    fn has_read(&self, pair: &impl Pair, buffer: Option<&Buffer>, from: usize, len: usize) -> bool {
        let is_known = || buffer.is_some_and(|buffer| pair.knows(buffer, from, len));
        len >= self.read_from || len >= self.read_known_from && is_known()
    }
}

/// Links over the connections of a device.
#[derive(Debug)]
pub struct VerbsTransport<D: Device> {
    device: D,
    links: Slab<Link<D::Pair>>,
    /// What `submit` and `accept` cannot report themselves.
    reports: Vec<(LinkId, Report)>,
    /// Links on which sending has failed.
    broken: Vec<usize>,
    /// Connections whose end is reported once their completions are handled.
    ends: Vec<(u64, Down)>,
    deadlines: BTreeSet<(Instant, usize)>,
    half_open: VecDeque<HalfOpen>,
    settings: Settings,
    pace: Pace,
    scratch: Scratch<D>,
}

/// A connection whose peer has not said who it is.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    key: u64,
    since: Instant,
    /// Charged for it, in bytes.
    cost: usize,
}

/// Lists that keep their memory from poll to poll; empty in between.
#[derive(Debug)]
struct Scratch<D: Device> {
    news: Vec<Event<D::Pair>>,
    batch: Vec<D::Done>,
}

#[derive(Debug)]
struct Link<P: Pair> {
    conn: Conn<P>,
    state: State,
    /// Frames wait on it.
    waits: bool,
}

#[derive(Debug)]
enum State {
    /// Waits for the connection, and then sends the hello.
    Connecting {
        hello: Vec<u8>,
        deadline: Instant,
    },
    /// Waits for the peer's answer.
    Asking,
    /// Half-open: waits for the peer's hello. The engine does not know the link.
    Silent,
    Open,
    /// Refused: waits until the peer has the answer. The engine does not know the link.
    Refused {
        deadline: Instant,
    },
}

/// A connect request that a listener has handed out.
#[derive(Debug)]
pub struct Pending<P: Pair>(Conn<P>);

fn id(slot: usize) -> LinkId {
    LinkId(u32::try_from(slot).unwrap_or(u32::MAX))
}

fn own_grant() -> Grant {
    Grant { slots: RECEIVES, slot: SLOT }
}

impl<P: Pair> Link<P> {
    const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Connecting { deadline, .. } | State::Refused { deadline } => Some(deadline),
            State::Asking | State::Silent | State::Open => None,
        }
    }

    const fn is_known(&self) -> bool {
        !matches!(self.state, State::Silent | State::Refused { .. })
    }
}

impl<D: Device> VerbsTransport<D> {
    /// A transport or a listener over a device.
    pub fn new(device: D, settings: Settings) -> Self {
        let pace = Pace::new(device.tick());
        Self {
            device,
            links: Slab::new(),
            reports: Vec::new(),
            broken: Vec::new(),
            ends: Vec::new(),
            deadlines: BTreeSet::new(),
            half_open: VecDeque::new(),
            settings,
            pace,
            scratch: Scratch { news: Vec::new(), batch: Vec::new() },
        }
    }

    fn slot_of(&self, key: u64) -> Option<usize> {
        let slot = usize::try_from(key & SLOT_BITS).ok()?;
        self.links.get(slot).filter(|link| link.conn.pair.key() == key).map(|_| slot)
    }

    fn next_slot(&self) -> u32 {
        u32::try_from(self.links.vacant_key()).unwrap_or(u32::MAX)
    }

    fn insert(&mut self, link: Link<D::Pair>) -> usize {
        let deadline = link.deadline();
        self.pace.unsettled += usize::from(!matches!(link.state, State::Open));
        let slot = self.links.insert(link);
        self.deadlines.extend(deadline.map(|deadline| (deadline, slot)));
        slot
    }

    fn set_state(&mut self, slot: usize, state: State) {
        let Some(link) = self.links.get_mut(slot) else { return };
        if let Some(deadline) = link.deadline() {
            self.deadlines.remove(&(deadline, slot));
        }
        self.pace.unsettled -= usize::from(!matches!(link.state, State::Open));
        self.pace.unsettled += usize::from(!matches!(state, State::Open));
        link.state = state;
        self.deadlines.extend(link.deadline().map(|deadline| (deadline, slot)));
    }

    /// Removes a link from the table.
    fn remove(&mut self, slot: usize) -> Option<Link<D::Pair>> {
        let link = self.links.try_remove(slot)?;
        if let Some(deadline) = link.deadline() {
            self.deadlines.remove(&(deadline, slot));
        }
        self.pace.unsettled -= usize::from(!matches!(link.state, State::Open));
        self.pace.waiting -= usize::from(link.waits);
        if matches!(link.state, State::Silent) {
            self.forget_half_open(link.conn.pair.key());
        }
        Some(link)
    }

    fn forget_half_open(&mut self, key: u64) {
        let at = self.half_open.iter().position(|half_open| half_open.key == key);
        if let Some(HalfOpen { cost, .. }) = at.and_then(|at| self.half_open.remove(at)) {
            self.settings.account.release(cost);
        }
    }

    /// Ends a link for a reason.
    fn lose(&mut self, slot: usize, why: Down, events: &mut impl LinkEvents) {
        self.deliver(events);
        let Some(link) = self.remove(slot) else { return };
        let known = link.is_known();
        link.conn.end(id(slot), events);
        if known {
            events.handle_link_down(id(slot), why);
        }
    }

    /// Sends what has room on a link.
    fn push(&mut self, slot: usize) {
        let Some(link) = self.links.get_mut(slot) else { return };
        link.conn.push(|report| self.reports.push((id(slot), report)));
        self.pace.count_waiting(&mut link.waits, link.conn.is_waiting());
        if link.conn.is_broken() {
            self.broken.push(slot);
        }
    }

    #[inline]
    fn deliver(&mut self, events: &mut impl LinkEvents) {
        if !self.reports.is_empty() {
            self.deliver_reports(events);
        }
    }

    fn deliver_reports(&mut self, events: &mut impl LinkEvents) {
        for (link, report) in self.reports.drain(..) {
            match report {
                Report::Sent(token, buffer) => events.handle_send_done(link, token, buffer),
                Report::Failed(token, buffer, why) => events.handle_send_failed(link, token, buffer, why),
                Report::Room => events.handle_send_room(link),
            }
        }
    }

    /// Takes over a request of a peer, unless there is no room for it.
    fn handle_requested(&mut self, mut pair: D::Pair, from: Addr, data: &[u8]) {
        let Ok(grant) = Grant::parse(data) else { return pair.reject(&own_grant().encode()) };
        let now = self.device.now();
        let account = &self.settings.account;
        if self.half_open.len() >= MOST_HALF_OPEN || account.used() > account.limit() {
            let oldest = self.half_open.front().filter(|half_open| now.since(half_open.since) >= PATIENCE);
            match oldest.map(|half_open| half_open.key) {
                Some(key) => _ = self.slot_of(key).and_then(|slot| self.remove(slot)),
                None if self.half_open.len() >= MOST_HALF_OPEN => return pair.reject(&own_grant().encode()),
                None => {}
            }
        }
        let slot = self.next_slot();
        if let Err(why) = self.device.accept(slot, &mut pair, &own_grant().encode()) {
            log::log("verbs", Level::Warn, Subsystem::EpCtrl, || format!("a request from {from} fails: {}", why.text));
            return pair.reject(&own_grant().encode());
        }
        let cost = self.device.cost();
        self.settings.account.charge(cost);
        self.half_open.push_back(HalfOpen { key: pair.key(), since: now, cost });
        let mut conn = Conn::new(pair, from);
        conn.grant(grant);
        self.insert(Link { conn, state: State::Silent, waits: false });
    }

    /// Handles an event of the connection manager, except that ends wait.
    fn handle_event(&mut self, event: Event<D::Pair>, events: &mut impl LinkEvents) {
        match event {
            Event::Requested { pair, from, data } => self.handle_requested(pair, from.into(), &data),
            Event::Resolved(key) => {
                let Some(slot) = self.slot_of(key) else { return };
                if let Err(why) = self.device.advance(&mut self.links[slot].conn.pair) {
                    self.lose(slot, why, events);
                }
            }
            Event::Connected(key, data) => {
                let Some(slot) = self.slot_of(key) else { return };
                let link = &mut self.links[slot];
                let State::Connecting { hello, .. } = &mut link.state else { return };
                let hello = core::mem::take(hello);
                match Grant::parse(&data) {
                    Ok(grant) => {
                        link.conn.grant(grant);
                        link.conn.enqueue(Kind::Hello, None, hello);
                        self.set_state(slot, State::Asking);
                        self.push(slot);
                    }
                    Err(what) => self.lose(slot, Down::violation(what), events),
                }
            }
            Event::Rejected(key, data) => {
                let Some(slot) = self.slot_of(key) else { return };
                let why = wire::version(&data).err().unwrap_or("the peer has no room for connections");
                let text = format!("connect to {}: {why}", self.links[slot].conn.remote);
                self.lose(slot, Down::new(Cause::Connect, Errno::ECONNREFUSED, text), events);
            }
            Event::Ended(key, why) => self.ends.push((key, why)),
        }
    }

    /// Handles the completions of all links. True if there were any.
    fn handle_completions(
        &mut self,
        events: &mut impl LinkEvents,
        mut asked: Option<&mut Vec<ConnectRequest<Pending<D::Pair>>>>,
    ) -> bool {
        let mut any = false;
        self.pace.more = false;
        let mut batch = core::mem::take(&mut self.scratch.batch);
        for round in 0..BATCHES {
            // The peer may answer a payload before the next poll: the engine learns first that it
            // has left.
            self.deliver(events);
            let more = self.device.poll_completions(&mut batch);
            any |= !batch.is_empty();
            self.pace.more = more && round == BATCHES - 1;
            let mut last = None;
            for done in batch.drain(..) {
                let Some(slot) = self.slot_of(D::key_of(&done)) else { continue };
                let Some(work) = self.links[slot].conn.pair.claim(done) else { continue };
                if let Err(why) = self.handle_work(slot, work, events, asked.as_deref_mut()) {
                    self.lose(slot, why, events);
                }
                // Once for all completions of a link that follow each other.
                if let Some(before) = last.replace(slot).filter(|before| *before != slot) {
                    self.push(before);
                }
            }
            if let Some(slot) = last {
                self.push(slot);
            }
            if !more {
                break;
            }
        }
        self.scratch.batch = batch;
        any
    }

    /// Ends links on which sending has failed, which have ended, or whose time is over.
    fn end_links(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        while let Some(slot) = self.broken.pop() {
            if let Some(why) = self.links.get_mut(slot).and_then(|link| link.conn.take_broken()) {
                self.lose(slot, why, events);
                any = true;
            }
        }
        if !self.pace.more {
            for (key, why) in core::mem::take(&mut self.ends) {
                if let Some(slot) = self.slot_of(key) {
                    self.lose(slot, why, events);
                    any = true;
                }
            }
        }
        if self.pace.unsettled > 0 {
            any |= self.end_refused(events);
        }
        any
    }

    fn end_refused(&mut self, events: &mut impl LinkEvents) -> bool {
        let is_over = |link: &Link<D::Pair>| matches!(link.state, State::Refused { .. }) && link.conn.is_sent();
        let over: Vec<usize> = self.links.iter().filter(|(_, link)| is_over(link)).map(|(slot, _)| slot).collect();
        for slot in &over {
            self.remove(*slot);
        }
        let mut any = !over.is_empty();
        let now = self.device.now();
        while let Some((deadline, slot)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(deadline, slot));
            let Some(link) = self.links.get(slot) else { continue };
            let text = format!("connect to {}: no answer in time", link.conn.remote);
            self.lose(slot, Down::new(Cause::ConnectDeadline, Errno::ETIMEDOUT, text), events);
            any = true;
        }
        any
    }

    fn progress(
        &mut self,
        events: &mut impl LinkEvents,
        asked: Option<&mut Vec<ConnectRequest<Pending<D::Pair>>>>,
    ) -> bool {
        let mut any = !self.reports.is_empty();
        let device = &self.device;
        if self.pace.looks(|| device.tick()) {
            let mut news = core::mem::take(&mut self.scratch.news);
            self.device.poll_events(&mut news);
            any |= !news.is_empty();
            for event in news.drain(..) {
                self.handle_event(event, events);
            }
            self.scratch.news = news;
        }
        any |= self.handle_completions(events, asked);
        any |= self.end_links(events);
        self.deliver(events);
        any
    }

    /// Waits until an event, a completion or the timeout.
    fn sleep(&mut self, timeout: Duration) {
        self.pace.look = true;
        if !self.pace.more && !self.device.arm() {
            self.device.wait(timeout);
        }
    }
}

/// Whether a connection from `from` proves that its peer has the name: it comes from its host.
fn vouches(from: &Addr, name: &Addr) -> bool {
    name.format() != AddrFormat::ADDR_STR && from.canonical().socket().ip() == name.canonical().socket().ip()
}

impl<D: Device> Transport for VerbsTransport<D> {
    type Request = Pending<D::Pair>;
    const POLLED: bool = true;
    const INLINE_MAX: usize = INLINE_MAX;
    const COMBINES_FRAMES: bool = true;
    const MAX_OFFER: usize = MAX_OFFER;
    const MAX_WRITE: usize = MAX_PAYLOAD;

    fn local_addr(&self) -> Addr {
        self.device.local_addr().into()
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let slot = self.next_slot();
        let pair = self.device.connect(slot, to.socket(), &own_grant().encode());
        let pair = pair.map_err(|error| Error::os(error, format!("connect to {to}")))?;
        let deadline = self.device.now() + self.settings.connect_deadline;
        let state = State::Connecting { hello: hello.to_vec(), deadline };
        Ok(id(self.insert(Link { conn: Conn::new(pair, *to), state, waits: false })))
    }

    fn accept(&mut self, request: Pending<D::Pair>, hello: &[u8]) -> Result<LinkId> {
        let Pending(mut conn) = request;
        let slot = self.next_slot();
        self.device.attach(slot, &mut conn.pair).map_err(|error| Error::os(error, "accept a connection"))?;
        conn.enqueue(Kind::Answer, None, hello.to_vec());
        let slot = self.insert(Link { conn, state: State::Open, waits: false });
        self.pace.look = true;
        self.push(slot);
        Ok(id(slot))
    }

    fn next_link(&self) -> LinkId {
        id(self.links.vacant_key())
    }

    fn holds_posted(&self) -> bool {
        self.pace.waiting > 0
    }

    fn expect_events(&mut self) {
        self.pace.look = true;
    }

    fn submit(&mut self, link: LinkId, header: &Header, mut payload: Payload<'_>, _: Urgency) -> Submitted {
        let Some(Link { conn, waits, .. }) = self.links.get_mut(link.index()) else { return Submitted::Broken };
        if !payload.inject && payload.len >= self.settings.read_known_from {
            if self.settings.has_read(&conn.pair, payload.buffer.as_ref(), payload.from, payload.len) {
                if conn.expose(Exposure::Remote, header, &mut payload) {
                    self.push(link.index());
                    return Submitted::Kept;
                }
            } else if let Some(buffer) = &payload.buffer {
                conn.pair.note(buffer, payload.from, payload.len);
            }
        }
        let submitted = conn.submit(header, payload);
        self.pace.count_waiting(waits, conn.is_waiting());
        if conn.is_broken() {
            self.broken.push(link.index());
        }
        submitted
    }

    #[inline]
    fn try_submit_fast(&mut self, link: LinkId, header: &Header, buffer: &Buffer, len: usize) -> bool {
        // Frames that wait want a poll, which only the other way leads to.
        let mut conn = self.links.get_mut(link.index()).map(|link| &mut link.conn);
        self.pace.waiting == 0 && conn.as_mut().is_some_and(|conn| conn.try_submit_fast(header, buffer, len))
    }

    fn submit_control(&mut self, link: LinkId, header: &Header, urgency: Urgency) -> ControlSubmitted {
        let payload = Payload { buffer: &mut None, from: 0, len: 0, token: Token(u32::MAX), inject: true };
        self.submit(link, header, payload, urgency).into()
    }

    fn prefers_offer(&self, link: LinkId, buffer: &Buffer, len: usize) -> bool {
        self.links.get(link.index()).is_some_and(|Link { conn, .. }| {
            conn.may_expose(buffer, len) && self.settings.has_read(&conn.pair, Some(buffer), 0, len)
        })
    }

    fn offer(&mut self, link: LinkId, header: &Header, mut payload: Payload<'_>) -> bool {
        let is_offered = self.links.get_mut(link.index()).is_some_and(|Link { conn, .. }| {
            self.settings.has_read(&conn.pair, payload.buffer.as_ref(), payload.from, payload.len)
                && conn.expose(Exposure::Offer, header, &mut payload)
        });
        if is_offered {
            self.push(link.index());
        }
        is_offered
    }

    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        self.progress(events, None)
    }

    fn flush(&mut self, _: Flush, events: &mut impl LinkEvents) {
        self.deliver(events);
    }

    fn wait(&mut self, timeout: Duration) {
        self.sleep(timeout);
    }

    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        let Some(Link { conn, .. }) = self.links.get_mut(link.index()) else { return ShutdownState::Done };
        if let Some(last) = last {
            conn.enqueue(Kind::Frame, Some(*last), Vec::new());
            conn.enqueue(Kind::Bye, None, Vec::new());
            self.push(link.index());
        }
        let Some(Link { conn, .. }) = self.links.get_mut(link.index()) else { return ShutdownState::Done };
        if conn.is_sent() || conn.is_broken() { ShutdownState::Done } else { ShutdownState::Pending }
    }

    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        self.deliver(events);
        if let Some(removed) = self.remove(link.index()) {
            removed.conn.end(link, events);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.device.descriptor())
    }

    fn is_busy(&self) -> bool {
        self.pace.more || !self.reports.is_empty() || !self.broken.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.pace.look = true;
        self.device.arm() || self.pace.more || !self.reports.is_empty() || !self.broken.is_empty()
    }

    fn note_events(&mut self) {
        self.pace.look = true;
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }

    fn wants_poll(&self) -> bool {
        self.pace.waiting > 0
    }

    fn now(&self) -> Instant {
        self.device.now()
    }

    fn random(&mut self) -> [u8; 16] {
        self.device.random()
    }
}

impl<D: Device> Drop for VerbsTransport<D> {
    fn drop(&mut self) {
        self.settings.account.release(self.half_open.iter().map(|half_open| half_open.cost).sum());
    }
}
