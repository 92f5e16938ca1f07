//! A datagram endpoint (FI_EP_DGRAM, fi_endpoint(3)): each message is one packet, which arrives
//! whole or not at all. No matching and no acknowledgements; a packet without a posted receive
//! waits in the system's socket buffer, while that has room.

mod cached_av;
mod groups;
mod pollable;

use crate::av::AddressVector;
use crate::completion::counter::Counter;
use crate::completion::cq::CompletionQueue;
use crate::completion::eq::{BoundEq, EventQueue};
use crate::completion::sinks::{Bindings, BoundQueues, CompletionSinks};
use crate::limits::{Kind, Limits, SizeLimit};
use crate::op::{MessageOps, RecvOp, SendOp, Ways};
use crate::progress::auto::Auto;
use crate::progress::set::{PollCount, Pollable, ReadyFlag};
use crate::statistics::{Exchanged, Statistics, Traffic};
use crate::transport::Down;
use cached_av::CachedAv;
use core::fmt;
use groups::GroupMember;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, BindFlags, Caps, Cause, Completion, Errno, Error, Failure, FiAddr, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its length, which may exceed the buffer's.
    pub len: usize,
    /// The sender's address.
    pub from: Addr,
    /// It was sent to a multicast group.
    pub group: bool,
}

/// The result of sending a packet.
#[derive(Clone, Debug)]
pub enum Given {
    /// The system has taken it.
    Taken,
    /// The system has no room for it now.
    Full,
    /// It cannot be sent.
    Refused(Down),
}

/// When a membership in a multicast group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It has begun.
    Begun,
    /// It begins, or fails, once the network has answered.
    Awaited,
}

/// How a group's awaited memberships have turned out.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The group.
    pub group: Addr,
    /// Why they have not begun.
    pub failed: Option<Down>,
}

/// Carries packets.
pub trait Datagrams: Send + Sized + 'static {
    /// True if a poll is no system call.
    const POLLED: bool = false;
    /// True if the descriptor reports all packets only while threads sleep on it.
    const ARMED: bool = Self::POLLED;
    /// Memberships may be [`Membership::Awaited`].
    const AWAITS: bool = false;

    /// The address that it is bound to.
    fn local_addr(&self) -> Addr;
    /// Sends a packet. With `leaves` its completion says that it has left (FI_TRANSMIT_COMPLETE),
    /// so it is not taken before.
    fn send(&mut self, packet: &Buffer, to: &Addr, leaves: bool) -> Given;
    /// Receives up to `most` packets into the first of `buffers`, one each, and appends their
    /// descriptions to `packets`.
    fn receive(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>);
    /// Joins a multicast group; memberships count.
    fn join(&mut self, group: &Addr, ways: Ways) -> Result<Membership>;
    /// Ends a membership, which may still be awaited. One that has failed is over.
    fn leave(&mut self, group: &Addr, ways: Ways);
    /// How one that was [`Membership::Awaited`] has turned out: all of a group's together.
    #[inline]
    fn next_joined(&mut self) -> Option<Joined> {
        None
    }
    /// Sets whether packets make the descriptor readable. True if it may not report some, because
    /// they came before, or because the system has refused to watch the medium.
    fn listen(&mut self, on: bool) -> bool;
    /// No thread sleeps on the descriptor, if it is [`Self::ARMED`].
    fn disarm(&mut self) {
        self.listen(false);
    }
    /// Handles what the medium reports besides packets, such as that a peer is found. True if there
    /// was anything.
    #[inline]
    fn attend(&mut self) -> bool {
        false
    }
    /// The descriptor has reported something, if it is [`Self::POLLED`].
    fn note_events(&mut self) {}
    /// Whether packets that were taken wait for room, which no event reports.
    #[inline]
    fn is_busy(&self) -> bool {
        false
    }
    /// The descriptor that becomes readable on packets.
    fn descriptor(&self) -> Option<Descriptor>;
}

/// The configuration of a datagram endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Capabilities.
    pub caps: Caps,
    /// The size limits of packets.
    pub limits: Limits,
    /// How many receives may be posted.
    pub rx_size: usize,
    /// The name of the provider.
    pub provider: &'static str,
}

/// Opens the socket on first use.
pub type Opener<D> = Box<dyn FnMut(Option<Addr>) -> Result<D> + Send>;

/// The most packets received in one call.
const BATCH: usize = 16;

struct Inner<D: Datagrams, K: LockKind> {
    socket: Option<D>,
    opener: Opener<D>,
    source: Option<Addr>,
    config: Config,
    enabled: bool,
    out: CompletionSinks<K>,
    av: Option<CachedAv>,
    /// The event queue for joined groups.
    eq: Option<Arc<EventQueue>>,
    members: Vec<GroupMember>,
    rx: Receives,
    exchanged: Exchanged,
    /// Operations that have failed.
    failures: u64,
}

/// Posted receives, and how to fill them.
struct Receives {
    posted: VecDeque<(Ticket, Buffer)>,
    /// Descriptions of the latest packets; empty between calls, for its memory.
    packets: Vec<Packet>,
    /// The descriptor is off: packets that wait for a receive must not wake a sleeper.
    deaf: bool,
    /// How many progress sets need the descriptor to report packets.
    armed: usize,
    /// How many packets to ask for: doubles after a full batch, otherwise restarts at 1.
    batch: usize,
}

impl Receives {
    fn new() -> Self {
        Self { posted: VecDeque::new(), packets: Vec::with_capacity(BATCH), deaf: false, armed: 0, batch: 1 }
    }

    /// Whether packets are to make the descriptor of `D` readable.
    const fn listens<D: Datagrams>(&self) -> bool {
        !self.deaf && (!D::ARMED || self.armed > 0)
    }

    /// Drops all receives without completions. Only for closing.
    fn discard(&mut self) {
        self.posted.drain(..).for_each(|(ticket, _)| ticket.discard());
    }
}

/// A datagram endpoint.
pub struct DatagramEndpoint<D: Datagrams, K: LockKind> {
    inner: K::Cell<Inner<D, K>>,
    ready_flag: ReadyFlag,
    joined: AtomicBool,
    bindings: Bindings,
    /// In the progress sets of its queues and counters, and of the progress thread.
    memberships: Bindings,
    /// The binding to the event queue. Locked before `inner`.
    events: Mutex<Option<BoundEq>>,
    auto: Option<Arc<Auto>>,
    /// How often it was polled, if there is a progress thread.
    polls: PollCount,
}

/// Counts a packet of `len` bytes.
const fn note(traffic: &mut Traffic, len: usize) {
    traffic.messages += 1;
    traffic.message_bytes += len as u64;
}

impl<D: Datagrams, K: LockKind> fmt::Debug for DatagramEndpoint<D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramEndpoint").field("ready_flag", &self.ready_flag).finish_non_exhaustive()
    }
}

/// Operation flags that a datagram endpoint does not support.
const UNSUPPORTED: OpFlags = OpFlags::COMMIT_COMPLETE
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE)
    .union(OpFlags::TRIGGER)
    .union(OpFlags::FENCE)
    .union(OpFlags::PEEK)
    .union(OpFlags::CLAIM)
    .union(OpFlags::DISCARD)
    .union(OpFlags::MULTI_RECV)
    .union(OpFlags::AUTH_KEY);

impl<D: Datagrams, K: LockKind> Inner<D, K> {
    fn open(&mut self) -> Result<&mut D> {
        if self.socket.is_none() {
            self.socket = Some((self.opener)(self.source)?);
        }
        self.socket.as_mut().ok_or_else(|| Error::new(Errno::EOTHER, "open the socket"))
    }

    fn statistics(&self) -> Statistics {
        let queue_high_water = self.out.queue_high_water();
        Statistics { exchanged: self.exchanged, failures: self.failures, queue_high_water, ..Statistics::default() }
    }

    fn failure(completion: Completion, why: &Down, olen: usize) -> Failure {
        Failure { completion, errno: why.errno, olen, cause: why.cause, text: why.text.clone(), sender: None }
    }

    #[inline]
    fn send(&mut self, op: &SendOp) -> Result<(), Errno> {
        let (Some(socket), true) = (&mut self.socket, self.enabled) else { return Err(Errno::EOPBADSTATE) };
        let target = self.out.tx.as_ref().ok_or(Errno::ENOCQ)?;
        if op.tag.is_some() || op.data.is_some() {
            return Err(Errno::ENOSYS);
        }
        if op.flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        let inject = op.inject || op.flags.contains(OpFlags::INJECT);
        if !self.config.limits.allow(op.buffer.len(), Kind::Message, inject) {
            return Err(Errno::EMSGSIZE);
        }
        let to = self.av.as_mut().ok_or(Errno::ENOAV)?.lookup(op.dest)?;
        let suppress = op.inject || target.selective && !op.flags.contains(OpFlags::COMPLETION);
        let given = socket.send(&op.buffer, &to, op.flags.contains(OpFlags::TRANSMIT_COMPLETE));
        if D::AWAITS {
            // It may have looked for what the medium reports.
            self.report_joined();
        }
        if matches!(given, Given::Full) {
            return Err(Errno::AGAIN);
        }
        let mut completion = Ticket::new(op.context, OpFlags::MSG.union(OpFlags::SEND), suppress).finish();
        completion.flags |= op.flags & OpFlags::MULTICAST;
        match given {
            Given::Taken | Given::Full => {
                note(&mut self.exchanged.sent, op.buffer.len());
                self.out.sent(completion, suppress, op.buffer.len());
            }
            Given::Refused(why) => {
                self.failures += 1;
                self.out.send_failed(Self::failure(Completion { len: op.buffer.len(), ..completion }, &why, 0));
            }
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, op: RecvOp) -> Result<(), Errno> {
        let (Some(socket), true) = (&mut self.socket, self.enabled) else { return Err(Errno::EOPBADSTATE) };
        let selective = self.out.rx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        if op.tag.is_some() {
            return Err(Errno::ENOSYS);
        }
        if op.flags.intersects(UNSUPPORTED) {
            return Err(Errno::EBADFLAGS);
        }
        if self.rx.posted.len() >= self.config.rx_size {
            return Err(Errno::AGAIN);
        }
        if core::mem::take(&mut self.rx.deaf) && self.rx.listens::<D>() {
            // The first receive causes a poll, which finds what has come before.
            socket.listen(true);
        }
        let suppress = selective && !op.flags.contains(OpFlags::COMPLETION);
        let ticket = Ticket::new(op.context, OpFlags::MSG.union(OpFlags::RECV), suppress);
        self.rx.posted.push_back((ticket, op.buffer));
        Ok(())
    }

    /// Receives waiting packets. True if there was anything.
    fn poll(&mut self) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        let any = socket.attend();
        if any && D::AWAITS {
            self.report_joined();
        }
        let Self { socket: Some(socket), rx, .. } = self else { return any };
        if rx.posted.is_empty() {
            return any;
        }
        let mut packets = core::mem::take(&mut rx.packets);
        packets.clear();
        let most = rx.batch.min(rx.posted.len());
        socket.receive(&mut rx.posted, most, &mut packets);
        rx.batch = if packets.len() == rx.batch { (rx.batch * 2).min(BATCH) } else { 1 };
        for packet in &packets {
            if let Some((ticket, buffer)) = self.rx.posted.pop_front() {
                self.arrived(ticket, &buffer, packet);
            }
        }
        self.rx.packets = packets;
        any || !self.rx.packets.is_empty()
    }

    fn arrived(&mut self, ticket: Ticket, buffer: &Buffer, packet: &Packet) {
        let suppress = ticket.is_suppressed();
        let mut completion = ticket.finish();
        completion.len = packet.len.min(buffer.len());
        if packet.group {
            completion.flags |= OpFlags::MULTICAST;
        }
        let caps = self.config.caps;
        let mut stranger = false;
        if caps.contains(Caps::SOURCE)
            && let Some(CachedAv { av, .. }) = &self.av
        {
            completion.src = av.find(&packet.from);
            stranger = completion.src == FiAddr::UNSPEC && caps.contains(Caps::SOURCE_ERR);
            if caps.contains(Caps::AV_USER_ID) && completion.src != FiAddr::UNSPEC {
                completion.src = av.user_id(completion.src);
            }
        }
        let cut = packet.len.saturating_sub(buffer.len());
        self.failures += u64::from(cut > 0 || stranger);
        if cut > 0 {
            let text = format!("a packet of {} bytes matched a receive of {} bytes", packet.len, buffer.len());
            let why = Down::new(Cause::Truncated, Errno::ETRUNC, text);
            self.out.receive_failed(Self::failure(completion, &why, cut));
        } else if stranger {
            let why = Down::new(Cause::UnknownSender, Errno::EADDRNOTAVAIL, Cause::UnknownSender.text());
            self.out.receive_failed(Failure { sender: Some(packet.from), ..Self::failure(completion, &why, 0) });
        } else {
            note(&mut self.exchanged.received, completion.len);
            self.out.received(completion, suppress);
        }
    }
}

impl<D: Datagrams, K: LockKind> DatagramEndpoint<D, K> {
    /// An endpoint that is not enabled. `source` is the requested address; `auto` is the progress
    /// thread, if the application's calls do not make progress.
    pub fn new(kind: K, config: Config, source: Option<Addr>, opener: Opener<D>, auto: Option<Arc<Auto>>) -> Arc<Self> {
        let inner = Inner {
            socket: None,
            opener,
            source,
            config,
            enabled: false,
            out: CompletionSinks::default(),
            av: None,
            eq: None,
            members: Vec::new(),
            rx: Receives::new(),
            exchanged: Exchanged::default(),
            failures: 0,
        };
        Arc::new(Self {
            inner: kind.cell(inner),
            ready_flag: ReadyFlag::default(),
            joined: AtomicBool::new(false),
            bindings: Bindings::default(),
            memberships: Bindings::default(),
            events: Mutex::new(None),
            auto,
            polls: PollCount::default(),
        })
    }

    /// Binds a completion queue. A second one for a direction is refused.
    pub fn bind_cq(&self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).out.bind_cq(cq, flags)?;
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused. Allowed at
    /// any time.
    ///
    /// # Errors
    /// EINVAL or EBADFLAGS and, if the endpoint is enabled, those of watching the socket; nothing
    /// has changed then.
    pub fn bind_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<()> {
        let first = !K::lock(&self.inner).out.has_counter(counter);
        // Relaxed: set and read by control calls, which the application orders.
        let is_joined = self.joined.load(Ordering::Relaxed);
        let pollables: Vec<Arc<dyn Pollable>> = if first && is_joined { vec![self.clone()] } else { Vec::new() };
        let register = || K::lock(&self.inner).out.bind_counter(counter, flags);
        let user = self.memberships.bind_counter(pollables, counter, register)?;
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// Binds an address vector. A second one is refused.
    pub fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.av.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        inner.av = Some(CachedAv::new(av));
        drop(inner);
        let user = av.users.add();
        self.bindings.add(move || drop(user));
        Ok(())
    }

    /// Enables it (fi_enable(3)). Enabling twice is harmless.
    pub fn enable(self: &Arc<Self>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.enabled {
            return Ok(());
        }
        inner.out.check(inner.config.caps)?;
        if inner.av.is_none() {
            return Err(Error::new(Errno::ENOAV, "enable an endpoint without an address vector"));
        }
        inner.open()?;
        inner.enabled = true;
        let queues = inner.out.all();
        drop(inner);
        self.joined.store(true, Ordering::Relaxed);
        if let Err(error) = self.join_queues(queues) {
            // Roll back, so that enabling can be retried. The socket stays, with its address.
            self.memberships.undo();
            self.joined.store(false, Ordering::Relaxed);
            K::lock(&self.inner).enabled = false;
            return Err(error);
        }
        Ok(())
    }

    /// Joins the progress sets of its queues and counters, and of the progress thread.
    fn join_queues(self: &Arc<Self>, queues: BoundQueues<K>) -> Result<()> {
        let pollable: Arc<dyn Pollable> = self.clone();
        self.memberships.join(core::slice::from_ref(&pollable), queues)?;
        if let Some(auto) = self.auto.clone() {
            let key = auto.join(pollable)?;
            self.memberships.add(move || auto.leave(key));
        }
        Ok(())
    }

    /// The address at which peers reach it (fi_getname(3)).
    pub fn local_addr(&self) -> Result<Addr> {
        Ok(K::lock(&self.inner).open()?.local_addr())
    }

    /// What it has done since it was opened, with all peers together.
    pub fn statistics(&self) -> Statistics {
        K::lock(&self.inner).statistics()
    }

    /// Sets the address, before it is in use (fi_setname(3)).
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.socket.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "set the address of an endpoint that already has one"));
        }
        inner.source = Some(addr);
        Ok(())
    }

    /// A size limit, in bytes.
    pub fn limit(&self, which: SizeLimit) -> usize {
        K::lock(&self.inner).config.limits.get(which)
    }

    /// Changes a size limit (fi_setopt(3)).
    ///
    /// # Errors
    /// EINVAL above the endpoint's maximum.
    pub fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        K::lock(&self.inner).config.limits.set(which, size)
    }

    /// How many receives can be posted now without `AGAIN`.
    pub fn rx_size_left(&self) -> usize {
        let inner = K::lock(&self.inner);
        inner.config.rx_size.saturating_sub(inner.rx.posted.len())
    }

    /// Cancels the oldest receive with that context (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let mut inner = K::lock(&self.inner);
        if let Some(at) = inner.rx.posted.iter().position(|(ticket, _)| ticket.context() == context)
            && let Some((ticket, _)) = inner.rx.posted.remove(at)
        {
            let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
            inner.out.receive_failed(Inner::<D, K>::failure(ticket.finish(), &why, 0));
        }
    }

    /// Closes it: posted receives are discarded, no buffer is touched afterwards.
    pub fn close(&self) {
        self.memberships.undo();
        self.bindings.undo();
        if let Some(mut bound) = self.events().take() {
            bound.leave();
        }
        let mut inner = K::lock(&self.inner);
        inner.rx.discard();
        inner.socket = None;
        inner.eq = None;
        inner.enabled = false;
    }
}

impl<D: Datagrams, K: LockKind> MessageOps for DatagramEndpoint<D, K> {
    #[inline]
    fn send(&self, op: SendOp) -> Result<(), Errno> {
        K::lock(&self.inner).send(&op)
    }

    #[inline]
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        inner.receive(op)?;
        let first = inner.rx.posted.len() == 1;
        drop(inner);
        if first {
            // Packets may have been waiting for it.
            self.ready_flag.mark_ready_and_wake();
        }
        Ok(())
    }
}

impl<D: Datagrams, K: LockKind> Drop for Inner<D, K> {
    fn drop(&mut self) {
        self.rx.discard();
    }
}

#[cfg(test)]
mod tests;
