//! The transport contract over shared memory. A few active links are polled in each pass, the idle
//! ones when the ready bitmap says so (`poll_schedule.rs`). An endpoint that sleeps announces it in
//! each link's memory, and a peer wakes it by a control message.
//! Invariant: a link leaves the table only through `drop_link`, which returns everything it kept.

use crate::cma::{CmaMode, MAX_OFFER, is_large};
use crate::conn::{Conn, INLINE, Out, Peer, ReadError, State, unreachable};
use crate::control::{ConnectRequest, ControlChannel};
use crate::names::is_chosen;
use crate::region::{self, Region};
use lives::Lives;
pub(crate) use messages::acceptor;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Error, Instant};
use ofi_engine::transport::{
    ControlSubmitted, Down, Flush, LinkEvents, LinkId, Payload, RecvTarget, ShutdownState, Submitted, Transport,
    Urgency,
};
use ofi_engine::wire::frame::{Header, MAX_PAYLOAD};
use ofi_memory::Buffer;
use ofi_os::control_socket::{LivenessPipe, Space};
use ofi_os::shm;
use ofi_sync::account::Account;
use ofi_sync::lines::News;
use pace::Pace;
use poll_schedule::{FEW, PollSchedule};
use probes::Probes;
use retries::Retries;
use slab::Slab;
use sleeping::Sleep;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use undelivered::Undelivered;

mod lives;
mod looks;
mod messages;
mod offers;
mod pace;
mod poll_schedule;
mod probes;
mod retries;
mod sending;
mod sleeping;
mod undelivered;

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
    undelivered: Undelivered,
    pace: Pace,
    probes: Probes,
    retries: Retries,
    lives: Lives,
    sleep: Sleep,
    /// Bytes by which pools may still grow.
    budget: usize,
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
        Ok(Self::over(control, settings))
    }

    /// Opens the transport of a context of a scalable endpoint, which accepts its links.
    pub(crate) fn context(endpoint: &ControlChannel, settings: Settings) -> Result<Self> {
        let control = endpoint.open_context(&settings.space)?;
        Ok(Self::over(control, settings))
    }

    fn over(control: ControlChannel, settings: Settings) -> Self {
        let now = ofi_os::clock::now();
        Self {
            conns: Slab::new(),
            schedule: PollSchedule::default(),
            senders: Vec::new(),
            undelivered: Undelivered::default(),
            pace: Pace::new(now),
            probes: Probes::new(now, settings.probe_every),
            retries: Retries::new(now),
            lives: Lives::default(),
            sleep: Sleep::new(),
            budget: BUDGET,
            control,
            settings,
        }
    }

    /// Removes a link from the table and returns everything it kept.
    fn drop_link(&mut self, slot: usize, events: &mut impl LinkEvents) {
        let Some(mut conn) = self.conns.try_remove(slot) else { return };
        self.undelivered.deliver(events);
        // First: the application may reuse what the other side reads as soon as it is returned.
        conn.presence.leave();
        if conn.abandon(id(slot), events) && self.settings.cma.is_allowed() {
            self.settings.cma = CmaMode::Read;
            self.conns.iter_mut().for_each(|(_, conn)| conn.cma.read_alone());
        }
        if conn.presence.must_wake(News::Line) {
            // A peer that cannot be woken is gone.
            drop(self.control.wake(&conn.peer.name));
        }
        conn.sender.release(&self.settings.account, &mut self.budget);
        self.undelivered.forget(slot);
        self.forget(slot);
    }

    fn lose(&mut self, slot: usize, why: Down, events: &mut impl LinkEvents) {
        self.drop_link(slot, events);
        events.handle_link_down(id(slot), why);
    }

    /// Reads a link. True if anything arrived.
    fn read(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        if self.undelivered.has_ended() {
            // Report sends first: the peer may be replying to one.
            self.undelivered.deliver(events);
        }
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        match conn.read(id(slot), self.sleep.orders(), events) {
            Ok(any) => {
                if any {
                    self.schedule.looks.note_read();
                    if let Some(news) = conn.take_news() {
                        Self::wake(conn, news, &self.control);
                    }
                    if conn.sender.has_more() {
                        // Send now: the peer may wait for nothing else, and the next poll be far
                        // off.
                        self.list(slot);
                        self.send_waiting(slot);
                    }
                    if self.conns.get(slot).is_some_and(Conn::has_untold) {
                        self.schedule.offers.note_untold(slot);
                    }
                }
                any
            }
            Err(error) => {
                let why = match error {
                    ReadError::Violation(violation) => conn.peer.violated(violation),
                    ReadError::Down(why) => why,
                    ReadError::Ended => conn.ended(),
                };
                self.lose(slot, why, events);
                true
            }
        }
    }

    fn lose_lost(&mut self, events: &mut impl LinkEvents) {
        while let Some((slot, serial, why)) = self.undelivered.take_lost() {
            // Another link may have the slot by now.
            if self.conns.get(slot).is_some_and(|conn| conn.serial == serial) {
                self.lose(slot, why, events);
            }
        }
    }

    /// Does the periodic work: control messages, retries, probes.
    #[cold]
    fn look_around(&mut self, events: &mut impl LinkEvents) -> bool {
        let now = ofi_os::clock::now();
        self.pace.note(now);
        let leaves = self.sleep.leaves_messages();
        let mut any = match self.pace.is_time_for_messages(now, leaves) {
            true if leaves => self.read_for_sleeper(events),
            true => self.read_messages(events),
            false => false,
        };
        if self.retries.is_due(now) {
            let asked = self.ask_again(events);
            let moved = self.tell_process_again() | self.tell_bitmap(now) | asked;
            any |= asked;
            self.retries.reschedule(now, moved);
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
    conn.sender.queue(Out::Hello(answer, control.identity().0));
    conn.sender.close();
    let mut budget = 0;
    // The memory is fresh, so there is room. An initiator that wrote over it still learns of the
    // end.
    let _ = conn.sender.send_waiting(&mut conn.cma, (orders, false), &mut budget, |_| ());
    conn.presence.leave();
    if conn.presence.must_wake(News::Line) {
        drop(control.wake(&conn.peer.name));
    }
}

impl Transport for ShmTransport {
    type Request = Pending;
    const POLLED: bool = true;
    const INLINE_MAX: usize = INLINE;

    fn local_addr(&self) -> Addr {
        self.control.addr()
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let Some(name) = to.name() else {
            return Err(Error::new(Errno::EINVAL, format!("connect to {to}: not an shm address")));
        };
        let pool = self.settings.pool;
        let doing =
            |error| Error::os(error, format!("provide the memory of a link to {to} (two pools of up to {pool} bytes)"));
        let (region, memory) = Region::create(pool).map_err(doing)?;
        // Control messages identify the link by this number: it must not be guessable.
        let (number, now) = (u64::from_ne_bytes(ofi_os::random()), ofi_os::clock::now());
        // Without one (no descriptors), the link keeps waiting if another endpoint takes the name.
        let liveness = if self.settings.to_passive || is_chosen(name) { LivenessPipe::new().ok() } else { None };
        let theirs = liveness.as_ref().map(|(_, theirs)| theirs.as_fd());
        let outcome = self.control.ask(name, number, self.sleep.orders(), hello, memory.as_fd(), theirs);
        // While the peer reads the request.
        let rest = region.allocate_rest(memory.as_fd());
        let blocked = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let state = if blocked {
            State::Unasked { memory, hello: hello.to_vec(), liveness }
        } else {
            State::Asking(liveness.map(|(liveness, _)| liveness))
        };
        let peer = Peer::new(*to, name.to_owned(), (number, true));
        let slot = self.insert(Conn::new(region, state, peer));
        let refused = outcome.err().filter(|_| !blocked).map(|error| unreachable(to, &error));
        let short = rest.err().map(doing).map(|error| Down::new(Cause::Connect, error.errno(), error.to_string()));
        if let Some(why) = refused.or(short) {
            self.undelivered.add_lost(slot, self.conns[slot].serial, why);
        } else if blocked {
            self.retries.unasked.push_back(slot);
        }
        self.pace.hurry();
        self.retries.hurry(now);
        Ok(id(slot))
    }

    fn accept(&mut self, request: Pending, hello: &[u8]) -> Result<LinkId> {
        let Pending(request) = request;
        let doing = |error| Error::os(error, format!("map the shared memory of the link from {}", request.from));
        let mut conn = acceptor(&request).map_err(doing)?;
        conn.presence.set_order(self.sleep.orders(), request.orders);
        conn.sender.queue(Out::Hello(hello.to_vec(), self.control.identity().0));
        Ok(id(self.take_in(conn, request.pid)))
    }

    fn next_link(&self) -> LinkId {
        id(self.conns.vacant_key())
    }

    fn holds_posted(&self) -> bool {
        !self.senders.is_empty() && self.has_untold()
    }

    fn expect_events(&mut self) {
        self.pace.hurry();
    }

    fn takes_at_once(&mut self, link: LinkId, len: usize) -> bool {
        self.would_leave(link.index(), len)
    }

    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, _: Urgency) -> Submitted {
        self.schedule.looks.note_sent();
        self.send_earlier(link);
        if self.is_backed_up(link) {
            return Submitted::Full;
        }
        self.send_frame(link, header, Some(payload))
    }

    fn submit_control(&mut self, link: LinkId, header: &Header, urgency: Urgency) -> ControlSubmitted {
        // A request of the application, such as a read, not an acknowledgment.
        if urgency != Urgency::Control {
            self.schedule.looks.note_sent();
        }
        self.send_earlier(link);
        if self.is_backed_up(link) {
            return ControlSubmitted::Full;
        }
        self.send_frame(link, header, None).into()
    }

    #[inline(always)]
    fn try_submit_fast(&mut self, link: LinkId, header: &Header, buffer: &Buffer, len: usize) -> bool {
        let Self { conns, control, schedule, .. } = self;
        let Some(conn) = conns.get_mut(link.index()) else { return false };
        let sender = &mut conn.sender;
        // A peer that finds lines in its bitmap has many links; where this side has as many, the
        // line and the bit are in no cache.
        if conn.presence.fetch_bit() {
            sender.fetch_line();
        }
        if sender.is_closing() || conn.lost || sender.has_more() || !sender.send_line(header, buffer, len) {
            return false;
        }
        schedule.looks.note_sent();
        Self::wake(conn, News::Line, control);
        true
    }

    const MAX_OFFER: usize = MAX_OFFER;
    const MAX_WRITE: usize = MAX_PAYLOAD;

    #[inline(always)]
    fn prefers_offer(&self, link: LinkId, buffer: &Buffer, len: usize) -> bool {
        is_large(len) && self.conns.get(link.index()).is_some_and(|conn| conn.cma.place_of(buffer, 0, len).is_some())
    }

    fn offer(&mut self, link: LinkId, header: &Header, mut payload: Payload<'_>) -> bool {
        self.submit_offer(link.index(), header, &mut payload)
    }

    fn take_offer(&mut self, link: LinkId, target: RecvTarget) -> core::result::Result<(), RecvTarget> {
        self.take_waiting(link.index(), target)
    }

    #[inline(always)]
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        if !self.is_calm() {
            return self.poll_links(events);
        }
        // Fast path: most polls find nothing.
        self.pace.count_calm();
        // How many looks are left, once the first has found nothing.
        let mut left = None;
        loop {
            if let Some(slot) = self.ready_link() {
                return if self.schedule.order.len() == 1 { self.read(slot, events) } else { self.poll_links(events) };
            }
            let more = left.unwrap_or_else(|| self.schedule.more_looks());
            if more == 0 {
                break;
            }
            left = Some(more - 1);
            region::await_loads();
        }
        self.schedule.is_others_turn() && self.read_others(events)
    }

    fn flush(&mut self, _how: Flush, events: &mut impl LinkEvents) {
        if !self.senders.is_empty() {
            self.send_all();
            self.undelivered.deliver(events);
        }
    }

    fn wait(&mut self, timeout: Duration) {
        let armed = self.sleep.is_armed();
        if !self.arm_alone() {
            self.control.wait(timeout);
            self.note_messages();
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
        if conn.sender.close() {
            self.list(slot);
            self.send_waiting(slot);
        }
        match self.conns.get(slot) {
            // The peer can read what is in the memory even after this process has ended.
            Some(conn) if !conn.sender.has_ended() && !conn.lost => ShutdownState::Pending,
            _ => ShutdownState::Done,
        }
    }

    fn abort(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        self.drop_link(link.index(), events);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let probe = if self.conns.is_empty() { None } else { self.probes.next() };
        [self.retries.deadline(), probe].into_iter().flatten().min()
    }

    fn is_busy(&self) -> bool {
        !self.undelivered.is_empty() || self.schedule.offers.has_taken
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.control.descriptor())
    }

    fn announce(&mut self) -> bool {
        if self.sleep.arm() {
            // The thread that sleeps is woken for deadlines: its first poll does what is due.
            self.pace.hurry();
        }
        self.tell_waiting();
        for (slot, conn) in &self.conns {
            conn.announce_sleep(self.schedule.is_idle(slot));
        }
        true
    }

    fn order(&self) {
        self.sleep.order();
    }

    fn arm(&mut self) -> bool {
        // A waking message that came while this side was awake makes the descriptor readable: the
        // next poll reads it.
        let is_stale = self.sleep.begins() && self.control.has_messages();
        if is_stale {
            self.note_messages();
        }
        is_stale | self.conns.iter_mut().any(|(_, conn)| conn.has_news())
    }

    fn note_events(&mut self) {
        self.note_messages();
    }

    fn disarm(&mut self) {
        self.sleep.disarm();
        self.pace.awake();
        for (slot, conn) in &self.conns {
            conn.announce_waking(self.schedule.is_idle(slot));
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
        let unread = || self.conns.iter().find(|(_, conn)| conn.is_ready());
        self.undelivered.describe().or_else(|| unread().map(|(slot, _)| format!("link {slot} has something to read")))
    }
}

impl ShmTransport {
    /// True if the next poll need check nothing but the links.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        let has_news = !self.undelivered.is_empty() || !self.schedule.offers.is_calm();
        !has_news && self.senders.is_empty() && !self.sleep.is_armed() && self.pace.is_calm()
    }

    /// An active link with a line to read.
    #[inline(always)]
    fn ready_link(&self) -> Option<usize> {
        let PollSchedule { order, .. } = &self.schedule;
        for rank in 0..order.len().min(self.schedule.busy()) {
            let Some(slot) = order.get(rank).copied() else { break };
            if self.conns.get(slot).is_some_and(Conn::is_ready) {
                return Some(slot);
            }
        }
        None
    }

    #[inline(never)]
    fn poll_links(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = !self.undelivered.is_empty();
        self.schedule.offers.has_taken = false;
        self.undelivered.deliver(events);
        self.lose_lost(events);
        if self.sleep.is_armed() {
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
            self.undelivered.deliver(events);
        }
        if self.pace.count() {
            any |= self.look_around(events);
        }
        if self.schedule.offers.count(any) {
            self.tell_waiting();
        }
        any
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        for (_, conn) in &mut self.conns {
            conn.presence.leave();
            if conn.presence.must_wake(News::Line) {
                drop(self.control.wake(&conn.peer.name));
            }
        }
    }
}
