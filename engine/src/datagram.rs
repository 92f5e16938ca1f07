//! A datagram endpoint (FI_EP_DGRAM, fi_endpoint(3)): each message is one packet, which arrives whole or not at all.
//! Nothing is matched, nothing is acknowledged; a packet for which no receive is posted waits with the system, as long
//! as that has room.

use crate::auto::Auto;
use crate::av::AddressVector;
use crate::counter::Counter;
use crate::cq::CompletionQueue;
use crate::eq::{Event, EventKind, EventQueue, Owner};
use crate::group::{Heat, Member, Visit};
use crate::op::{Posts, RecvOp, SendOp};
use crate::outlets::{Bonds, Outlets};
use crate::transport::{Down, Flush};
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, BindFlags, Caps, Cause, Completion, Errno, Error, Failure, FiAddr, Instant, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its length, which may exceed the buffer's.
    pub len: usize,
    /// Where it comes from.
    pub from: Addr,
    /// It was sent to a group.
    pub group: bool,
}

/// What became of a packet to send.
#[derive(Clone, Debug)]
pub enum Given {
    /// It is with the system.
    Taken,
    /// The system has no room for it now.
    Full,
    /// It cannot be sent.
    Refused(Down),
}

/// What carries packets.
pub trait Datagrams: Send + Sized + 'static {
    /// The address that it is bound to.
    fn local_addr(&self) -> Addr;
    /// Sends a packet.
    fn send(&mut self, packet: &Buffer, to: &Addr) -> Given;
    /// Receives packets into the first of `buffers`, one each, as many as there are; appends what is known of them.
    fn receive(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>);
    /// Becomes a member of a group, to send to it, to receive from it, or both.
    fn join(&mut self, group: &Addr, send: bool, receive: bool) -> Result<()>;
    /// Is no member any more.
    fn leave(&mut self, group: &Addr);
    /// Whether packets make the descriptor readable.
    fn listen(&mut self, on: bool);
    /// What becomes readable when there are packets.
    fn descriptor(&self) -> Option<Descriptor>;
}

/// What a datagram endpoint is and may do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Capabilities.
    pub caps: Caps,
    /// The largest packet, in bytes.
    pub max_msg_size: usize,
    /// The largest packet of an inject call, in bytes.
    pub inject_size: usize,
    /// Receives that may be posted.
    pub rx_size: usize,
}

/// Makes the socket when it is needed.
pub type Opener<D> = Box<dyn FnMut(Option<Addr>) -> Result<D> + Send>;

/// Packets received in one call at most.
const BATCH: usize = 16;

struct Inner<D: Datagrams, K: LockKind> {
    socket: Option<D>,
    opener: Opener<D>,
    source: Option<Addr>,
    config: Config,
    enabled: bool,
    out: Outlets<K>,
    av: Option<Arc<AddressVector>>,
    av_epoch: u64,
    /// Addresses by handle, as far as they have been looked up.
    peers: Vec<Option<Addr>>,
    eq: Option<Arc<EventQueue>>,
    receives: VecDeque<(Ticket, Buffer)>,
    packets: Vec<Packet>,
    /// Packets that wait for a receive must not wake anybody.
    deaf: bool,
    /// How many packets to ask for: more once a call brought as many as it could.
    batch: usize,
}

/// A datagram endpoint.
pub struct DatagramEndpoint<D: Datagrams, K: LockKind> {
    inner: K::Cell<Inner<D, K>>,
    heat: Heat,
    joined: AtomicBool,
    bonds: Bonds,
    auto: Option<Arc<Auto>>,
}

impl<D: Datagrams, K: LockKind> fmt::Debug for DatagramEndpoint<D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramEndpoint").field("heat", &self.heat).finish_non_exhaustive()
    }
}

/// Flags of an operation that datagrams do not know.
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
        let inject = op.quiet || op.flags.contains(OpFlags::INJECT);
        if op.buffer.len() > if inject { self.config.inject_size } else { self.config.max_msg_size } {
            return Err(Errno::EMSGSIZE);
        }
        let av = self.av.as_ref().ok_or(Errno::ENOAV)?;
        if av.epoch() != self.av_epoch {
            self.av_epoch = av.epoch();
            self.peers.clear();
        }
        let known = op.dest.index().and_then(|index| self.peers.get(index).copied().flatten());
        let to = match known {
            Some(addr) => addr,
            None => {
                let addr = av.lookup(op.dest).ok_or(Errno::EINVAL)?;
                remember(&mut self.peers, op.dest, addr);
                addr
            }
        };
        let silent = op.quiet || target.selective && !op.flags.contains(OpFlags::COMPLETION);
        let given = socket.send(&op.buffer, &to);
        if matches!(given, Given::Full) {
            return Err(Errno::AGAIN);
        }
        let mut completion = Ticket::new(op.context, OpFlags::MSG.union(OpFlags::SEND), silent).finish();
        completion.flags |= op.flags & OpFlags::MULTICAST;
        match given {
            Given::Taken | Given::Full => self.out.sent(completion, silent),
            Given::Refused(why) => {
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
        if self.receives.len() >= self.config.rx_size {
            return Err(Errno::AGAIN);
        }
        if core::mem::take(&mut self.deaf) {
            socket.listen(true);
        }
        let silent = selective && !op.flags.contains(OpFlags::COMPLETION);
        let ticket = Ticket::new(op.context, OpFlags::MSG.union(OpFlags::RECV), silent);
        self.receives.push_back((ticket, op.buffer));
        Ok(())
    }

    /// Receives what there is. True if anything came.
    fn poll(&mut self) -> bool {
        let Some(socket) = self.socket.as_mut().filter(|_| !self.receives.is_empty()) else { return false };
        let mut packets = core::mem::take(&mut self.packets);
        packets.clear();
        let most = self.batch.min(self.receives.len());
        socket.receive(&mut self.receives, most, &mut packets);
        self.batch = if packets.len() == self.batch { (self.batch * 2).min(BATCH) } else { 1 };
        for packet in &packets {
            if let Some((ticket, buffer)) = self.receives.pop_front() {
                self.arrived(ticket, &buffer, packet);
            }
        }
        self.packets = packets;
        !self.packets.is_empty()
    }

    fn arrived(&mut self, ticket: Ticket, buffer: &Buffer, packet: &Packet) {
        let silent = ticket.is_silent();
        let mut completion = ticket.finish();
        completion.len = packet.len.min(buffer.len());
        if packet.group {
            completion.flags |= OpFlags::MULTICAST;
        }
        let caps = self.config.caps;
        let mut stranger = false;
        if caps.contains(Caps::SOURCE)
            && let Some(av) = &self.av
        {
            completion.src = av.find(&packet.from);
            stranger = completion.src == FiAddr::UNSPEC && caps.contains(Caps::SOURCE_ERR);
            if caps.contains(Caps::AV_USER_ID) && completion.src != FiAddr::UNSPEC {
                completion.src = av.user_id(completion.src);
            }
        }
        let cut = packet.len.saturating_sub(buffer.len());
        if cut > 0 {
            let text = format!("a packet of {} bytes came to a receive of {}", packet.len, buffer.len());
            let why = Down::new(Cause::Truncated, Errno::ETRUNC, text);
            self.out.receive_failed(Self::failure(completion, &why, cut));
        } else if stranger {
            let why = Down::new(Cause::UnknownSender, Errno::EADDRNOTAVAIL, Cause::UnknownSender.text());
            self.out.receive_failed(Failure { sender: Some(packet.from), ..Self::failure(completion, &why, 0) });
        } else {
            self.out.received(completion, silent);
        }
    }
}

/// Keeps an address that was looked up, until the address vector changes.
#[cold]
fn remember(peers: &mut Vec<Option<Addr>>, handle: FiAddr, addr: Addr) {
    if let Some(index) = handle.index() {
        if peers.len() <= index {
            peers.resize(index + 1, None);
        }
        peers[index] = Some(addr);
    }
}

impl<D: Datagrams, K: LockKind> DatagramEndpoint<D, K> {
    /// An endpoint that is not enabled. `source` is the address that it was asked to have; `auto` moves it on if the
    /// application's calls are not to.
    pub fn new(kind: K, config: Config, source: Option<Addr>, opener: Opener<D>, auto: Option<Arc<Auto>>) -> Arc<Self> {
        let inner = Inner {
            socket: None,
            opener,
            source,
            config,
            enabled: false,
            out: Outlets::default(),
            av: None,
            av_epoch: 0,
            peers: Vec::new(),
            eq: None,
            receives: VecDeque::new(),
            packets: Vec::with_capacity(BATCH),
            deaf: false,
            batch: 1,
        };
        let (heat, joined, bonds) = (Heat::default(), AtomicBool::new(false), Bonds::default());
        Arc::new(Self { inner: kind.cell(inner), heat, joined, bonds, auto })
    }

    /// Binds a completion queue. A second one for a direction is refused.
    pub fn bind_cq(&self, cq: &Arc<CompletionQueue<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).out.bind_cq(cq, flags)?;
        self.bonds.add(move || drop(user));
        Ok(())
    }

    /// Binds a counter for some kinds of operations. A second one for a kind is refused. Allowed at any time.
    pub fn bind_counter(self: &Arc<Self>, counter: &Arc<Counter<K>>, flags: BindFlags) -> Result<()> {
        let user = K::lock(&self.inner).out.bind_counter(counter, flags)?;
        self.bonds.add(move || drop(user));
        // Relaxed: set and read by control calls, which the application orders.
        if self.joined.load(Ordering::Relaxed) {
            let member: Arc<dyn Member> = self.clone();
            self.bonds.join_counter(&member, counter)?;
        }
        Ok(())
    }

    /// Binds an address vector. A second one is refused.
    pub fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.av.is_some() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        inner.av = Some(av.clone());
        drop(inner);
        let user = av.users.add();
        self.bonds.add(move || drop(user));
        Ok(())
    }

    /// Binds an event queue, which hears of groups. Another one replaces the first.
    pub fn bind_eq(&self, eq: &Arc<EventQueue>) {
        K::lock(&self.inner).eq = Some(eq.clone());
        let user = eq.users.add();
        self.bonds.add(move || drop(user));
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
        let outlets = inner.out.all();
        drop(inner);
        self.joined.store(true, Ordering::Relaxed);
        let member: Arc<dyn Member> = self.clone();
        self.bonds.join(&member, outlets)?;
        if let Some(auto) = self.auto.clone() {
            let key = auto.join(member)?;
            self.bonds.add(move || auto.leave(key));
        }
        Ok(())
    }

    /// The address under which others reach it (fi_getname(3)).
    pub fn local_addr(&self) -> Result<Addr> {
        Ok(K::lock(&self.inner).open()?.local_addr())
    }

    /// Chooses the address, before it is in use (fi_setname(3)).
    pub fn set_local_addr(&self, addr: Addr) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        if inner.socket.is_some() {
            return Err(Error::new(Errno::EOPBADSTATE, "name an endpoint that has its address"));
        }
        inner.source = Some(addr);
        Ok(())
    }

    /// Cancels the oldest receive with that context (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        let mut inner = K::lock(&self.inner);
        if let Some(at) = inner.receives.iter().position(|(ticket, _)| ticket.context() == context)
            && let Some((ticket, _)) = inner.receives.remove(at)
        {
            let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
            inner.out.receive_failed(Inner::<D, K>::failure(ticket.finish(), &why, 0));
        }
    }

    /// Joins a multicast group (fi_join(3)). `joined` is told the handle to send to it with; then `owner` has an event.
    pub fn join(
        &self,
        group: Addr,
        (send, receive): (bool, bool),
        owner: Owner,
        joined: &mut dyn FnMut(FiAddr),
    ) -> Result<()> {
        let mut inner = K::lock(&self.inner);
        let Some(eq) = inner.eq.clone() else {
            return Err(Error::new(Errno::ENOEQ, "join a group without an event queue"));
        };
        let Some(av) = inner.av.clone() else {
            return Err(Error::new(Errno::ENOAV, "join a group without an address vector"));
        };
        inner.open()?.join(&group, send, receive)?;
        drop(inner);
        let handle = av.insert(group);
        joined(handle);
        eq.push(Event { owner, kind: EventKind::Joined });
        Ok(())
    }

    /// Leaves a multicast group.
    pub fn leave(&self, group: &Addr, handle: FiAddr, owner: Owner) {
        let mut inner = K::lock(&self.inner);
        if let Some(socket) = &mut inner.socket {
            socket.leave(group);
        }
        let (av, eq) = (inner.av.clone(), inner.eq.clone());
        drop(inner);
        if let Some(av) = av {
            av.remove(handle);
        }
        if let Some(eq) = eq {
            eq.forget(owner);
        }
    }

    /// Closes it: posted receives are discarded, no buffer is touched afterwards.
    pub fn close(&self) {
        self.bonds.undo();
        let mut inner = K::lock(&self.inner);
        inner.receives.drain(..).for_each(|(ticket, _)| ticket.discard());
        inner.socket = None;
        inner.enabled = false;
    }
}

impl<D: Datagrams, K: LockKind> Posts for DatagramEndpoint<D, K> {
    #[inline]
    fn send(&self, op: SendOp) -> Result<(), Errno> {
        K::lock(&self.inner).send(&op)
    }

    #[inline]
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        inner.receive(op)?;
        let first = inner.receives.len() == 1;
        drop(inner);
        if first {
            // Packets may have been waiting for it.
            self.heat.announce();
        }
        Ok(())
    }
}

impl<D: Datagrams, K: LockKind> Drop for Inner<D, K> {
    fn drop(&mut self) {
        self.receives.drain(..).for_each(|(ticket, _)| ticket.discard());
    }
}

impl<D: Datagrams, K: LockKind> Member for DatagramEndpoint<D, K> {
    fn visit(&self) -> Visit {
        Visit { active: K::lock(&self.inner).poll(), busy: false }
    }

    fn flush(&self, _how: Flush) {}

    fn before_sleep(&self) {
        let mut inner = K::lock(&self.inner);
        let Inner { socket: Some(socket), receives, deaf, .. } = &mut *inner else { return };
        if receives.is_empty() && !*deaf {
            *deaf = true;
            socket.listen(false);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn descriptor(&self) -> Option<Descriptor> {
        K::lock(&self.inner).socket.as_ref().and_then(Datagrams::descriptor)
    }

    fn heat(&self) -> &Heat {
        &self.heat
    }
}
