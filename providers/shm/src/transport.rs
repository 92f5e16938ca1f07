//! The transport contract over shared memory. A few active links are polled in each pass, the idle
//! ones when the ready bitmap says so (`poll_schedule.rs`). An endpoint that sleeps announces it in
//! each link's memory, and a peer wakes it by a control message.
//! Invariant: a link leaves the table only through `drop_link`, which returns everything it kept.

use crate::cma::{CmaMode, is_large};
use crate::conn::{BACKLOG_COST, Conn, INLINE, LEAST_BACKLOG, Large, Out, State, Trouble, ended, unreachable};
use crate::control::{ConnectRequest, ControlChannel};
use crate::names::is_chosen;
use crate::region::{Region, Side};
use arrayvec::ArrayVec;
use messages::acceptor;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Error, Instant};
use ofi_engine::transport::{
    ControlSubmitted, Down, Flush, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Token, Transport, Urgency,
};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use ofi_os::control_socket::{LivenessPipe, Space};
use ofi_os::process::Life;
use ofi_os::shm;
use ofi_sync::account::Account;
use ofi_sync::lines::{News, order_own};
use poll_schedule::{FEW, PollSchedule};
use probes::Probes;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

mod messages;
mod poll_schedule;
mod probes;

/// Polls between reads of the clock, at most.
const CLOCK_EVERY: u32 = 64;
/// Interval between reads of the control sockets.
const MESSAGES_EVERY: Duration = Duration::from_micros(100);
/// First and longest interval between attempts to send a control message to a full socket.
const ASK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN_LATE: Duration = Duration::from_millis(50);
/// Bytes by which the pools of an endpoint may grow in total.
const BUDGET: usize = 64 << 20;

/// The settings of a transport.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where names live.
    pub space: Space,
    /// The size of a pool, in bytes.
    pub pool: usize,
    /// When large payloads use cross-memory attach instead.
    pub cma: CmaMode,
    /// Charged for memory held for peers.
    pub account: Arc<Account>,
    /// It connects to passive endpoints, whose names pass on to active ones.
    pub to_passive: bool,
    /// Interval between checks that the peers still exist.
    pub probe_every: Duration,
}

/// How often peers are probed: several probes fit into the 1 s detection bound.
const PROBE_EVERY: Duration = Duration::from_millis(250);

impl Default for Settings {
    fn default() -> Self {
        // Memory should leave the reader's private cache before it is rewritten: twice its size.
        let pool = 3 * shm::private_cache();
        let account = Arc::new(Account::new(usize::MAX));
        Self {
            space: Space::default(),
            pool,
            cma: CmaMode::default(),
            account,
            to_passive: false,
            probe_every: PROBE_EVERY,
        }
    }
}

/// A connect request that a listener handed over.
#[derive(Debug)]
pub struct Pending(pub(crate) ConnectRequest);

/// Links through shared memory.
#[derive(Debug)]
pub struct ShmTransport {
    conns: Slab<Conn>,
    /// Which links to poll in which pass.
    schedule: PollSchedule,
    /// Links with sends that wait.
    senders: Vec<usize>,
    finished: Vec<(LinkId, Token, Buffer)>,
    /// Links that were backed up and have room again.
    rooms: Vec<LinkId>,
    /// Links that ended outside a poll: slot, serial number and reason.
    lost: Vec<(usize, u64, Down)>,
    /// Polls between reads of the clock, and until the next read.
    clock_every: u32,
    until_clock: u32,
    clock_at: Instant,
    messages_at: Instant,
    probes: Probes,
    again_at: Instant,
    again_after: Duration,
    /// Links whose connect request is not sent yet, and others that had such a slot.
    unasked: VecDeque<usize>,
    /// Links whose other side does not know this process yet, and others that had such a slot.
    unknown: VecDeque<usize>,
    /// Peers' processes by id, shared by their links.
    lives: HashMap<i32, Weak<Life>>,
    armed: bool,
    /// This process takes part in ordering memory accesses across processes.
    orders: bool,
    budget: usize,
    /// Peers test with it whether they can read our memory.
    secret: Box<[u8; 16]>,
    local: Addr,
    control: ControlChannel,
    settings: Settings,
}

fn id(slot: usize) -> LinkId {
    LinkId(u32::try_from(slot).unwrap_or(u32::MAX))
}

impl ShmTransport {
    /// Opens a transport named `name`, or by a random identity.
    pub fn new(name: Option<&str>, settings: Settings) -> Result<Self> {
        let control = ControlChannel::open(&settings.space, name)?;
        let now = ofi_os::clock::now();
        Ok(Self {
            conns: Slab::new(),
            schedule: PollSchedule::default(),
            senders: Vec::new(),
            finished: Vec::new(),
            rooms: Vec::new(),
            lost: Vec::new(),
            clock_every: 1,
            until_clock: 1,
            clock_at: now,
            messages_at: now,
            probes: Probes::new(now, settings.probe_every),
            again_at: now,
            again_after: ASK_AGAIN,
            unasked: VecDeque::new(),
            unknown: VecDeque::new(),
            lives: HashMap::new(),
            armed: false,
            orders: shm::share_ordering(),
            budget: BUDGET,
            secret: Box::new(ofi_os::random()),
            local: control.addr()?,
            control,
            settings,
        })
    }

    /// Removes a link from the table and returns everything it kept.
    fn drop_link(&mut self, slot: usize, events: &mut impl LinkEvents) {
        let Some(mut conn) = self.conns.try_remove(slot) else { return };
        self.deliver_finished(events);
        // First: the application may reuse what the other side reads as soon as it is returned.
        conn.leave();
        conn.abandon(id(slot), events);
        if conn.must_wake(News::Line) {
            // A peer that cannot be woken is gone.
            drop(self.control.wake(&conn.peer));
        }
        self.budget += conn.grown;
        if conn.charged {
            self.settings.account.release(BACKLOG_COST);
        }
        self.rooms.retain(|room| *room != id(slot));
        self.forget(&conn);
    }

    fn lose(&mut self, slot: usize, why: Down, events: &mut impl LinkEvents) {
        self.drop_link(slot, events);
        events.handle_link_down(id(slot), why);
    }

    fn deliver_finished(&mut self, events: &mut impl LinkEvents) {
        while let Some((link, token, buffer)) = self.finished.pop() {
            events.handle_send_done(link, token, buffer);
        }
        while let Some(link) = self.rooms.pop() {
            events.handle_send_room(link);
        }
    }

    /// Notifies the other side of a link, and wakes it if it sleeps.
    #[inline(always)]
    fn wake(conn: &mut Conn, news: News, control: &ControlChannel) {
        if conn.must_wake(news) {
            Self::send_wake(conn, control);
        }
    }

    #[cold]
    fn send_wake(conn: &mut Conn, control: &ControlChannel) {
        match control.wake(&conn.peer) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => conn.lost = true,
            // A full socket wakes the peer as well; the next probe finds any other failure.
            _ => {}
        }
    }

    /// Reads a link. True if anything arrived.
    fn read(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        if !self.finished.is_empty() {
            // Report sends first: the peer may be replying to one.
            self.deliver_finished(events);
        }
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        match conn.read(id(slot), self.orders, events) {
            Ok(any) => {
                if any {
                    // The peer may be waiting for the room that the read made.
                    Self::wake(conn, News::Room, &self.control);
                    if conn.has_more() {
                        // Send now: the peer may wait for nothing else, and the next poll be far
                        // off.
                        self.list(slot);
                        self.send_waiting(slot);
                    }
                }
                any
            }
            Err(trouble) => {
                let why = match trouble {
                    Trouble::Violation(Violation(what)) => {
                        Down::new(Cause::Violation, Errno::EPROTO, format!("link to {}: {what}", conn.remote))
                    }
                    Trouble::Down(why) => why,
                    Trouble::Ended => ended(conn),
                };
                self.lose(slot, why, events);
                true
            }
        }
    }

    /// Sends what waits on a link.
    fn send_waiting(&mut self, slot: usize) -> bool {
        let Self { conns, finished, budget, orders, control, settings, rooms, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return false };
        if !matches!(conn.state, State::Open) || !conn.has_more() {
            return false;
        }
        let result = conn.send_waiting(*orders, budget, |token, buffer| finished.push((id(slot), token, buffer)));
        match result {
            Ok(any) => {
                if any {
                    Self::wake(conn, News::Line, control);
                }
                if conn.stalled && conn.out.len() < conn.backlog() / 2 {
                    conn.stalled = false;
                    rooms.push(id(slot));
                }
                if conn.out.is_empty() && core::mem::take(&mut conn.charged) {
                    settings.account.release(BACKLOG_COST);
                }
                any
            }
            Err(Violation(what)) => {
                let why = Down::new(Cause::Violation, Errno::EPROTO, format!("link to {}: {what}", conn.remote));
                self.lost.push((slot, conn.serial, why));
                true
            }
        }
    }

    fn list(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.listed
        {
            conn.listed = true;
            self.senders.push(slot);
            if self.armed {
                self.announce_waiting(slot);
            }
        }
    }

    /// A send began to wait while this side sleeps: announces that room must wake it as well.
    #[cold]
    fn announce_waiting(&mut self, slot: usize) {
        self.conns[slot].announce_sleep();
        self.order();
        // Use the room that was made before the announcement.
        self.send_waiting(slot);
    }

    /// Orders memory accesses between an announcement of sleep and the last check.
    fn order(&self) {
        if self.orders {
            shm::order_all();
        } else {
            order_own();
        }
    }

    fn send_all(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(&slot) = self.senders.get(at) {
            any |= self.send_waiting(slot);
            match self.conns.get_mut(slot) {
                Some(conn) if conn.has_more() => at += 1,
                other => {
                    if let Some(conn) = other {
                        conn.listed = false;
                    }
                    self.senders.swap_remove(at);
                }
            }
        }
        any
    }

    fn lose_lost(&mut self, events: &mut impl LinkEvents) {
        while let Some((slot, serial, why)) = self.lost.pop() {
            // Another link may have the slot by now.
            if self.conns.get(slot).is_some_and(|conn| conn.serial == serial) {
                self.lose(slot, why, events);
            }
        }
    }

    /// Sends a frame, or queues what the ring does not take.
    fn send_frame(&mut self, link: LinkId, header: &Header, mut payload: Option<Payload<'_>>) -> Submitted {
        let slot = link.index();
        let Self { conns, control, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        if conn.finishing || conn.lost {
            return Submitted::Broken;
        }
        let (from, len) = payload.as_ref().map_or((0, 0), |payload| (payload.from, payload.len));
        let waits = conn.has_more();
        if header.len() + len <= INLINE {
            let mut bytes = ArrayVec::<u8, INLINE>::from([0; INLINE]);
            bytes.truncate(header.len() + len);
            let (front, back) = bytes.split_at_mut(header.len());
            front.copy_from_slice(header);
            if let Some(Payload { buffer: Some(buffer), .. }) = &payload {
                buffer.read_at(from, back);
            }
            let sent = if waits { Ok(false) } else { conn.send_small(&bytes, header.len()) };
            return match sent {
                Ok(true) => {
                    Self::wake(conn, News::Line, control);
                    Submitted::Done
                }
                Ok(false) => {
                    // Don't complete yet: a caller that sees the completion may stop polling and
                    // leave this queued.
                    let kept = payload.filter(|payload| !payload.inject);
                    let kept = kept.and_then(|payload| Some((payload.token, payload.buffer.take()?)));
                    let outcome = if kept.is_some() { Submitted::Kept } else { Submitted::Done };
                    conn.out.push_back(Out::Small(bytes, header.len(), kept));
                    self.list(slot);
                    outcome
                }
                Err(violation) => self.break_link(slot, violation),
            };
        }
        let Some(payload) = &mut payload else { return Submitted::Done };
        if is_large(len) && self.submit_cma(slot, header, payload) {
            return Submitted::Kept;
        }
        let Self { conns, control, budget, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        let Some(buffer) = payload.buffer.take() else { return Submitted::Done };
        let mut large = Large { header: *header, buffer, from, len, done: 0, token: Some(payload.token) };
        let sent = if waits { Ok(false) } else { conn.send_large(&mut large, budget) };
        match sent {
            Ok(true) => {
                *payload.buffer = Some(large.buffer);
                Self::wake(conn, News::Line, control);
                Submitted::Done
            }
            Ok(false) => {
                if large.done > 0 {
                    Self::wake(conn, News::Line, control);
                }
                let mut kept = Submitted::Kept;
                if payload.inject {
                    // The application may reuse its buffer when this returns.
                    let mut copy = Vec::with_capacity(len);
                    large.buffer.append_to(from, len, &mut copy);
                    *payload.buffer = Some(core::mem::replace(&mut large.buffer, Buffer::Owned(copy)));
                    (large.from, large.token) = (0, None);
                    kept = Submitted::Done;
                }
                conn.out.push_back(Out::Large(large));
                self.list(slot);
                kept
            }
            Err(violation) => {
                *payload.buffer = Some(large.buffer);
                self.break_link(slot, violation)
            }
        }
    }

    /// Whether the peer does not read and the link's backlog is full. Room will be reported.
    fn is_backed_up(&mut self, link: LinkId) -> bool {
        let Some(conn) = self.conns.get_mut(link.index()) else { return false };
        if conn.out.len() >= LEAST_BACKLOG && !conn.charged {
            conn.charged = self.settings.account.try_charge(BACKLOG_COST);
        }
        let stalled = conn.out.len() >= conn.backlog();
        conn.stalled |= stalled;
        stalled
    }

    /// Lends a large payload to the other side, if it may read our memory. Asks it when it is time.
    fn submit_cma(&mut self, slot: usize, header: &Header, payload: &mut Payload<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if payload.inject || conn.has_more() {
            return false;
        }
        if conn.cma.is_time_to_ask() {
            let request = (conn.number, conn.side == Side::Initiator);
            // If the socket is full, the next payload asks.
            if self.control.offer(&conn.peer, request, &self.secret).is_ok() {
                conn.cma.asked();
            }
        }
        if !conn.send_cma(header, payload) {
            return false;
        }
        Self::wake(conn, News::Line, &self.control);
        true
    }

    /// Does the periodic work: control messages, retries, probes.
    #[cold]
    fn look_around(&mut self, events: &mut impl LinkEvents) -> bool {
        let now = ofi_os::clock::now();
        // If polls are rare, read the clock in each.
        let took = now.since(self.clock_at);
        self.clock_at = now;
        let rarely = took > Duration::from_micros(1) * self.clock_every;
        self.clock_every = if rarely { 1 } else { CLOCK_EVERY };
        self.until_clock = self.clock_every;
        let mut any = false;
        if now >= self.messages_at {
            self.messages_at = now + MESSAGES_EVERY;
            any = self.read_messages(events);
        }
        if now >= self.again_at {
            let asked = self.ask_again(events);
            let moved = self.tell_process_again() | asked;
            any |= asked;
            self.tell_bitmap();
            self.again_after = if moved { ASK_AGAIN } else { (self.again_after * 2).min(ASK_AGAIN_LATE) };
            self.again_at = now + self.again_after;
        }
        any | self.probe(now, events)
    }

    /// Reads every link that is ready.
    fn read_all(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        for rank in 0..self.schedule.order.len() {
            let Some(&slot) = self.schedule.order.get(rank) else { break };
            if self.conns[slot].is_ready() {
                any |= self.read(slot, events);
            }
        }
        any
    }
}

/// Sends a refusal, and leaves the link to the initiator.
pub(crate) fn refuse(conn: &mut Conn, answer: Vec<u8>, control: &ControlChannel, orders: bool) {
    conn.out.push_back(Out::Hello(answer, control.identity().0));
    conn.out.push_back(Out::End);
    let mut budget = 0;
    // The memory is fresh, so there is room. An initiator that wrote over it still learns of the
    // end.
    let _ = conn.send_waiting(orders, &mut budget, |_, _| ());
    conn.leave();
    if conn.must_wake(News::Line) {
        drop(control.wake(&conn.peer));
    }
}

impl Transport for ShmTransport {
    type Request = Pending;
    const POLLED: bool = true;
    const INLINE_MAX: usize = INLINE;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let Some(name) = to.name() else {
            return Err(Error::new(Errno::EINVAL, format!("connect to {to}: not an shm address")));
        };
        let make = || Region::create(self.settings.pool);
        let doing = |error| {
            let pool = self.settings.pool;
            Error::os(error, format!("provide the memory of a link to {to} (two pools of up to {pool} bytes)"))
        };
        let (region, memory) = make().map_err(doing)?;
        // Control messages identify the link by this number: it must not be guessable.
        let (number, now) = (u64::from_ne_bytes(ofi_os::random()), ofi_os::clock::now());
        // Without one (no descriptors), the link keeps waiting if another endpoint takes the name.
        let liveness = if self.settings.to_passive || is_chosen(name) { LivenessPipe::new().ok() } else { None };
        let theirs = liveness.as_ref().map(|(_, theirs)| theirs.as_fd());
        let outcome = self.control.ask(name, number, self.orders, hello, memory.as_fd(), theirs);
        let blocked = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let state = if blocked {
            State::Unasked { memory, hello: hello.to_vec(), liveness }
        } else {
            State::Asking(liveness.map(|(liveness, _)| liveness))
        };
        let conn = Conn::new(region, Side::Initiator, state, *to, name.to_owned(), number).map_err(doing)?;
        let slot = self.insert(conn);
        if blocked {
            self.unasked.push_back(slot);
        } else if let Err(error) = &outcome {
            self.lost.push((slot, self.conns[slot].serial, unreachable(to, error)));
        }
        (self.clock_every, self.until_clock) = (1, 1);
        (self.again_at, self.again_after) = (self.again_at.min(now + ASK_AGAIN), ASK_AGAIN);
        Ok(id(slot))
    }

    fn accept(&mut self, request: Pending, hello: &[u8]) -> Result<LinkId> {
        let Pending(request) = request;
        let doing = |error| Error::os(error, format!("map the shared memory of the link from {}", request.from));
        let mut conn = acceptor(&request).map_err(doing)?;
        conn.set_order(self.orders, request.orders);
        conn.out.push_back(Out::Hello(hello.to_vec(), self.control.identity().0));
        let slot = self.take_in(conn, request.pid);
        Ok(id(slot))
    }

    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, _: Urgency) -> Submitted {
        if self.is_backed_up(link) {
            return Submitted::Full;
        }
        self.send_frame(link, header, Some(payload))
    }

    fn submit_control(&mut self, link: LinkId, header: &Header, _: Urgency) -> ControlSubmitted {
        if self.is_backed_up(link) {
            return ControlSubmitted::Full;
        }
        self.send_frame(link, header, None).into()
    }

    #[inline(always)]
    fn try_submit_fast(&mut self, link: LinkId, header: &Header, buffer: &Buffer, len: usize) -> bool {
        let Self { conns, control, .. } = self;
        let Some(conn) = conns.get_mut(link.index()) else { return false };
        if conn.finishing || conn.lost || conn.has_more() || !conn.send_line(header, buffer, len) {
            return false;
        }
        Self::wake(conn, News::Line, control);
        true
    }

    #[inline(always)]
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        if !self.is_calm() {
            return self.poll_links(events);
        }
        // Fast path: most polls find nothing.
        self.until_clock -= 1;
        for rank in 0..self.schedule.order.len().min(self.schedule.busy()) {
            let Some(slot) = self.schedule.order.get(rank).copied() else { break };
            if self.conns.get(slot).is_some_and(Conn::is_ready) {
                return if self.schedule.order.len() == 1 { self.read(slot, events) } else { self.poll_links(events) };
            }
        }
        self.schedule.is_others_turn() && self.read_others(events)
    }

    fn flush(&mut self, _how: Flush, events: &mut impl LinkEvents) {
        if !self.senders.is_empty() {
            self.send_all();
            self.deliver_finished(events);
        }
    }

    fn wait(&mut self, timeout: Duration) {
        let armed = self.armed;
        if !self.arm() {
            self.control.wait(timeout);
        }
        if !armed {
            self.disarm();
        }
    }

    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        let slot = link.index();
        if let Some(last) = last {
            // A broken link does not send it: its end tells the peer enough.
            let _ = self.send_frame(link, last, None);
        }
        let Some(conn) = self.conns.get_mut(slot) else { return ShutdownState::Done };
        if !core::mem::replace(&mut conn.finishing, true) {
            conn.out.push_back(Out::End);
            self.list(slot);
            self.send_waiting(slot);
        }
        match self.conns.get(slot) {
            // The peer can read what is in the memory even after this process has ended.
            Some(conn) if !conn.ended && !conn.lost => ShutdownState::Pending,
            _ => ShutdownState::Done,
        }
    }

    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        self.drop_link(link.index(), events);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let again = (!self.unasked.is_empty() || !self.unknown.is_empty()).then_some(self.again_at);
        let probe = if self.conns.is_empty() { None } else { self.probes.next() };
        [again, probe].into_iter().flatten().min()
    }

    fn is_busy(&self) -> bool {
        !self.finished.is_empty() || !self.lost.is_empty() || !self.rooms.is_empty()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.control.descriptor())
    }

    fn arm(&mut self) -> bool {
        let first = !core::mem::replace(&mut self.armed, true);
        for (_, conn) in &self.conns {
            conn.announce_sleep();
        }
        self.order();
        // A waking message that came while this side was awake makes the descriptor readable: the
        // next poll reads it.
        let is_stale = first && self.control.has_messages();
        if is_stale {
            (self.messages_at, self.until_clock) = (self.clock_at, 1);
        }
        is_stale | self.conns.iter_mut().any(|(_, conn)| conn.has_news())
    }

    fn disarm(&mut self) {
        self.armed = false;
        for (_, conn) in &self.conns {
            conn.announce_waking();
        }
        self.note_own();
    }

    fn now(&self) -> Instant {
        ofi_os::clock::now()
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }

    fn unfinished(&self) -> Option<String> {
        let news = [("payloads to give back", self.finished.len()), ("links that ended", self.lost.len())];
        let news = news.into_iter().chain([("links with room", self.rooms.len())]);
        let unread = || self.conns.iter().find(|(_, conn)| conn.is_ready());
        news.into_iter()
            .find(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .or_else(|| unread().map(|(slot, _)| format!("link {slot} has something to read")))
    }
}

impl ShmTransport {
    /// True if the next poll need check nothing but the links.
    #[inline(always)]
    const fn is_calm(&self) -> bool {
        let waiting = self.finished.len() | self.lost.len() | self.senders.len() | self.rooms.len();
        waiting == 0 && !self.armed && self.until_clock > 1
    }

    #[inline(never)]
    fn poll_links(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = !self.finished.is_empty() || !self.lost.is_empty() || !self.rooms.is_empty();
        self.deliver_finished(events);
        self.lose_lost(events);
        if self.armed {
            return self.poll_armed(events) | any;
        }
        for rank in 0..self.schedule.order.len().min(self.schedule.busy()) {
            let Some(&slot) = self.schedule.order.get(rank) else { break };
            if self.conns[slot].is_ready() && self.read(slot, events) {
                any = true;
                if rank > 0 && self.conns.contains(slot) {
                    self.promote(slot);
                }
            }
        }
        if self.schedule.order.len() > FEW {
            self.schedule.next_poll();
            any |= self.read_others(events);
        }
        if !self.senders.is_empty() {
            any |= self.send_all();
            self.deliver_finished(events);
        }
        self.until_clock = self.until_clock.saturating_sub(1);
        if self.until_clock == 0 {
            any |= self.look_around(events);
        }
        any
    }

    #[cold]
    fn break_link(&mut self, slot: usize, Violation(what): Violation) -> Submitted {
        let remote = self.conns[slot].remote;
        let why = Down::new(Cause::Violation, Errno::EPROTO, format!("link to {remote}: {what}"));
        self.lost.push((slot, self.conns[slot].serial, why));
        Submitted::Broken
    }

    /// Polls while armed: everything, and announces sleep again if a peer's wakeup ended it.
    fn poll_armed(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = self.look_around(events);
        // Drain the wakeups: the descriptor stays readable until then.
        any |= self.read_messages(events);
        for _ in 0..4 {
            any |= self.read_all(events);
            any |= self.send_all();
            self.deliver_finished(events);
            let rung = self.conns.iter().any(|(_, conn)| conn.was_rung());
            if !rung || !self.arm() {
                break;
            }
            any = true;
        }
        any
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        for (_, conn) in &self.conns {
            conn.leave();
            if conn.must_wake(News::Line) {
                drop(self.control.wake(&conn.peer));
            }
        }
    }
}
