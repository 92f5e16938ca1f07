//! Unreliable queue pairs: packets, and the connection manager, which tells the way to peers.
#![allow(unsafe_code)]

use super::channel::{Channel, Event, Space};
use super::domain::{Domain, not_null, returned};
use super::identifier::{Identifier, result};
use super::layout::{
    Ah, AhAttr, ConnParam, LINK_LAYER_ETHERNET, PortAttr, QPT_UD, QpInitAttr, RecvWr, SEND_INLINE, SEND_SIGNALED,
    SendWr, Sge, UdParam, WC_GRH, WR_SEND, WorkCompletion, event,
};
use super::library::{self, Libraries};
use super::memory::Slots;
use super::queue::{Completions, NO_COMPLETIONS, Queue};
use super::{BACKLOG, CHANNEL, LISTENER, STEP, connect_failure, missing, watch};
use crate::datagram::{Arrived, News, PacketDevice, ROUTING, is_to_group};
use crate::device::{Ring, SENDS, SLOT};
use core::ptr::{self, NonNull};
use core::time::Duration;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::Down;
use ofi_os::wait_fd::FdWaitObject;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Slots in which packets arrive.
const RECEIVES: u16 = 128;
/// The key of the queue of arrived packets in the wait object.
const ARRIVALS: u64 = 0;

/// The way to a peer's queue pair.
#[derive(Debug)]
pub struct Route {
    handle: NonNull<Ah>,
    pair: u32,
    key: u32,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs may be called from any thread for the same objects.
unsafe impl Send for Route {}

impl Route {
    fn new(domain: &Arc<Domain>, way: UdParam) -> io::Result<Self> {
        let create = domain.libraries.verbs.ibv_create_ah;
        let mut attributes = way.way;
        // SAFETY: the domain is open, and the attributes are the connection manager's.
        let handle = not_null(unsafe { create(domain.pd.as_ptr(), &mut attributes) })?;
        Ok(Self { handle, pair: way.qp_num, key: way.qkey, domain: domain.clone() })
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: created once. A packet that is still on its way fails if it needs the handle.
        unsafe { (self.domain.libraries.verbs.ibv_destroy_ah)(self.handle.as_ptr()) };
    }
}

/// A peer that is being looked for.
#[derive(Debug)]
struct Search {
    id: Identifier,
    key: u64,
    to: SocketAddr,
}

/// A group that is joined, or being joined.
#[derive(Debug)]
struct Member {
    id: Identifier,
    key: u64,
    group: SocketAddr,
    /// The way to it, once it is joined.
    way: Option<AhAttr>,
    /// The queue pair receives its packets.
    receives: bool,
}

/// An unreliable queue pair at an address.
#[derive(Debug)]
pub struct PacketPair {
    /// Listens, and has the queue pair.
    listener: Identifier,
    local: SocketAddr,
    most: usize,
    queues: Queues,
    memory: Memory,
    searches: Vec<Search>,
    members: Vec<Member>,
    /// The key of the latest search or member.
    latest: u64,
    channel: Arc<Channel>,
    domain: Arc<Domain>,
    wait: FdWaitObject,
    keys: Vec<u64>,
}

/// The completion queues.
#[derive(Debug)]
struct Queues {
    sent: Arc<Queue>,
    arrived: Arc<Queue>,
    /// Why a packet could not be sent.
    failed: Option<io::Error>,
    /// Packets that were polled.
    found: VecDeque<io::Result<Arrived>>,
    polled: Box<Completions>,
    /// The descriptor reports packets.
    is_armed: bool,
    /// It was made readable because of packets that were polled.
    is_told: bool,
    /// Each packet has a routing header in front, as over RoCE. Otherwise its completion says so.
    has_routing: bool,
}

/// The slots, those for receiving first. Dropped after the queue pair is destroyed.
#[derive(Debug)]
struct Memory {
    slots: Slots,
    /// Packets up to this length go along with the work.
    inline: usize,
    /// A bit for each slot for receiving that the device has.
    posted: u128,
    ring: Ring,
}

impl Memory {
    /// The bytes of a slot for receiving; empty while the device has it.
    fn taken(&self, slot: u16) -> &[u8] {
        if slot >= RECEIVES || self.posted >> slot & 1 != 0 {
            return &[];
        }
        // SAFETY: the device does not have the slot.
        unsafe { self.slots.bytes(slot) }
    }
}

const _: () = assert!(RECEIVES as u32 <= u128::BITS);

fn failed(done: &WorkCompletion) -> io::Error {
    io::Error::other(format!("work failed with status {} of ibv_wc_status_str(3)", done.status))
}

impl Queues {
    /// Polls the queue of arrived packets, unless some are left.
    fn poll(&mut self) {
        if !self.found.is_empty() {
            return;
        }
        let Self { arrived, found, polled, has_routing, .. } = self;
        arrived.poll(polled, |done| {
            let slot = u16::try_from(done.wr_id).unwrap_or(u16::MAX);
            let len = usize::try_from(done.byte_len).unwrap_or(0).saturating_sub(ROUTING);
            // Whether it was really sent to a group is seen when it is taken.
            let group = *has_routing || done.wc_flags & WC_GRH != 0;
            let arrived = Arrived { slot, len, pair: done.src_qp, group };
            found.push_back(if done.status == 0 { Ok(arrived) } else { Err(failed(done)) });
        });
    }
}

impl PacketPair {
    /// Opens an unreliable queue pair at an address, and posts its slots for receiving.
    ///
    /// # Errors
    /// The system's: the address is in use, or no device has it.
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let libraries = library::libraries().map_err(missing)?;
        library::check_owner().map_err(missing)?;
        let channel = Channel::new(libraries, Space::Packets)?;
        library::own_devices();
        let listener = Identifier::new(channel.identifier(LISTENER)?, channel.clone());
        let local = listener.bind(addr)?;
        let context = listener.context().ok_or_else(|| missing("no RDMA device has this address"))?;
        let domain = Domain::new(libraries, context)?;
        let port = port_attributes(libraries, &domain, listener.port())?;
        // 1 stands for 256 bytes, and each step doubles it.
        let most = (128 << port.active_mtu.clamp(1, 5)).min(SLOT - ROUTING);
        let queues = Queues {
            sent: Queue::with_room(&domain, usize::from(SENDS))?,
            arrived: Queue::with_room(&domain, usize::from(RECEIVES))?,
            failed: None,
            found: VecDeque::new(),
            polled: Box::new(NO_COMPLETIONS),
            is_armed: false,
            is_told: false,
            has_routing: port.link_layer == LINK_LAYER_ETHERNET,
        };
        let slots = Slots::new(&domain, RECEIVES + SENDS)?;
        let wait = FdWaitObject::new(true).map_err(|error| io::Error::from_raw_os_error(error.errno().raw()))?;
        watch(&wait, channel.descriptor(), CHANNEL)?;
        watch(&wait, queues.arrived.descriptor(), ARRIVALS)?;
        let (sent, arrived) = ((queues.sent.cq(), SENDS), (queues.arrived.cq(), RECEIVES));
        let mut attributes = QpInitAttr::new(QPT_UD, sent, arrived);
        let inline = listener.create_pair(&domain, &mut attributes)?;
        let memory = Memory { slots, inline, posted: 0, ring: Ring::default() };
        let (searches, members, keys, latest) = (Vec::new(), Vec::new(), Vec::new(), LISTENER);
        let mut pair =
            Self { listener, local, most, queues, memory, searches, members, latest, channel, domain, wait, keys };
        (0..RECEIVES).try_for_each(|slot| pair.post_receive(slot))?;
        // Peers learn the queue pair only once it can receive.
        pair.listener.listen(BACKLOG)?;
        Ok(pair)
    }

    /// Takes the events of the queue, and returns whether the connection manager has one.
    fn look(&mut self) -> bool {
        if core::mem::take(&mut self.queues.is_told) {
            self.wait.drain();
        }
        let mut keys = core::mem::take(&mut self.keys);
        keys.clear();
        self.wait.ready(Some(Duration::ZERO), &mut keys);
        if keys.contains(&ARRIVALS) {
            self.queues.arrived.take_event();
        }
        // This thread may not take packets next, and another one may sleep on the descriptor.
        if self.queues.is_armed {
            if keys.contains(&ARRIVALS) {
                self.queues.arrived.request_event();
            }
            self.queues.poll();
            if !self.queues.found.is_empty() {
                self.queues.is_told = true;
                self.wait.signal();
            }
        }
        let any = keys.contains(&CHANNEL);
        self.keys = keys;
        any
    }

    /// Tells a peer the way to this queue pair.
    fn answer(&self, requested: NonNull<super::layout::CmId>) {
        let id = Identifier::new(requested, self.channel.clone());
        // SAFETY: the listener has a queue pair.
        let qp_num = unsafe { (*self.listener.pair()).number };
        let mut parameters = ConnParam { qp_num, ..NO_PARAMETERS };
        // A peer whose question is lost asks again.
        // SAFETY: the identifier is a request.
        unsafe { (self.channel.libraries.cm.rdma_accept)(id.raw(), &mut parameters) };
    }

    /// Handles an event of the connection manager.
    fn handle(&mut self, event: Event) -> Option<News<Route>> {
        if let Some(requested) = event.requested.filter(|_| event.kind == event::CONNECT_REQUEST) {
            self.answer(requested);
            return None;
        }
        if event.kind == event::DEVICE_REMOVAL && event.key == LISTENER {
            return Some(News::Broken(Down::new(Cause::Broken, Errno::ENODEV, "the device is removed")));
        }
        if let Some(at) = self.members.iter().position(|member| member.key == event.key) {
            return self.handle_of_member(at, &event);
        }
        let at = self.searches.iter().position(|search| search.key == event.key)?;
        let to = self.searches[at].to;
        let step = match event.kind {
            event::ADDR_RESOLVED => self.searches[at].id.resolve_route(STEP).map(|()| None),
            event::ROUTE_RESOLVED => self.request(at).map(|()| None),
            event::ESTABLISHED => event.way.map(|way| Route::new(&self.domain, way)).transpose(),
            _ => Ok(None),
        };
        let why = |doing: &str| {
            let errno = Errno::from_raw(if event.status == 0 { Errno::ECONNREFUSED.raw() } else { event.status.abs() });
            Down::new(Cause::Connect, errno, format!("send to {to}: {doing}: {errno:?}"))
        };
        let news = match (step, event.kind) {
            (Err(error), _) => News::Lost { to, why: connect_failure(&error), is_final: false },
            (Ok(Some(route)), _) => News::Found(to, route),
            (_, event::ADDR_ERROR) => News::Lost { to, why: why("find the peer's address"), is_final: false },
            (_, event::ROUTE_ERROR) => News::Lost { to, why: why("find a route to the peer"), is_final: false },
            // A negative number is the system's: there is no answer.
            (_, event::UNREACHABLE) if event.status <= 0 => {
                News::Lost { to, why: why("the peer does not answer"), is_final: false }
            }
            (_, event::UNREACHABLE | event::REJECTED) => {
                let text = format!("send to {to}: no queue pair has the address (reason {})", event.status);
                News::Lost { to, why: Down::new(Cause::Connect, Errno::ECONNREFUSED, text), is_final: true }
            }
            (_, event::CONNECT_ERROR | event::DEVICE_REMOVAL) => {
                News::Lost { to, why: why("ask the peer"), is_final: false }
            }
            _ => return None,
        };
        self.searches.swap_remove(at);
        Some(news)
    }

    /// Handles an event of a group.
    fn handle_of_member(&mut self, at: usize, event: &Event) -> Option<News<Route>> {
        let Member { group, way, .. } = &mut self.members[at];
        let group = *group;
        let joined = match (event.kind, event.way) {
            (event::MULTICAST_JOIN, Some(param)) => {
                *way = Some(param.way);
                Route::new(&self.domain, param)
            }
            // A failure after the network's answer has no status.
            (event::MULTICAST_ERROR, _) => {
                let errno = if event.status == 0 { Errno::EADDRNOTAVAIL.raw() } else { event.status.abs() };
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => return None,
        };
        Some(match joined {
            Ok(route) => News::Joined(group, route),
            Err(error) => News::Apart { group, why: crate::datagram::not_joined(&group, error) },
        })
    }

    /// Asks the peer for the way to its queue pair.
    fn request(&self, at: usize) -> io::Result<()> {
        let mut parameters = NO_PARAMETERS;
        // SAFETY: the identifier is open, and there are no private data.
        result(unsafe { (self.channel.libraries.cm.rdma_connect)(self.searches[at].id.raw(), &mut parameters) })
    }
}

const NO_PARAMETERS: ConnParam = ConnParam {
    private_data: ptr::null(),
    private_data_len: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    qp_num: 0,
};

/// The attributes of a port of the device.
fn port_attributes(libraries: &Libraries, domain: &Domain, port: u8) -> io::Result<PortAttr> {
    let mut attributes = PortAttr::EMPTY;
    // SAFETY: the device is open, and the attributes have the room that the library writes to.
    returned(unsafe { (libraries.verbs.ibv_query_port)(domain.context.as_ptr(), port, &mut attributes) })?;
    Ok(attributes)
}

impl PacketDevice for PacketPair {
    type Route = Route;
    const SENDS: u64 = SENDS as u64;

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn most(&self) -> usize {
        self.most
    }

    fn look_for(&mut self, to: SocketAddr) -> io::Result<()> {
        let key = self.latest + 1;
        let id = Identifier::new(self.channel.identifier(key)?, self.channel.clone());
        let mut from = self.local;
        from.set_port(0);
        id.resolve((from.is_ipv4() == to.is_ipv4()).then_some(from), to, STEP)?;
        self.latest = key;
        self.searches.push(Search { id, key, to });
        Ok(())
    }

    fn forget(&mut self, to: &SocketAddr) {
        self.searches.retain(|search| search.to != *to);
    }

    fn join(&mut self, group: SocketAddr) -> io::Result<()> {
        let key = self.latest + 1;
        let id = Identifier::new(self.channel.identifier(key)?, self.channel.clone());
        let mut from = self.local;
        from.set_port(0);
        id.bind(from)?;
        id.join(group)?;
        self.latest = key;
        self.members.push(Member { id, key, group, way: None, receives: false });
        Ok(())
    }

    fn receive_from(&mut self, group: &SocketAddr, on: bool) -> io::Result<()> {
        let Some(member) = self.members.iter_mut().find(|member| member.group == *group) else { return Ok(()) };
        let Some(way) = member.way.filter(|_| member.receives != on) else { return Ok(()) };
        let verbs = &self.channel.libraries.verbs;
        let change = if on { verbs.ibv_attach_mcast } else { verbs.ibv_detach_mcast };
        // SAFETY: the listener has a queue pair, and the address is that of the group.
        returned(unsafe { change(self.listener.pair(), &way.gid, way.lid) })?;
        member.receives = on;
        Ok(())
    }

    fn leave(&mut self, group: &SocketAddr) {
        // What fails here ends with the membership.
        drop(self.receive_from(group, false));
        self.members.extract_if(.., |member| member.group == *group).for_each(|member| member.id.leave(member.group));
    }

    fn poll_news(&mut self, out: &mut Vec<News<Route>>) {
        while self.look() {
            match self.channel.next(false) {
                Ok(event) => out.extend(self.handle(event)),
                Err(_) => return,
            }
        }
    }

    fn leads_to(route: &Route, pair: u32) -> bool {
        route.pair == pair
    }

    fn send_slot(&mut self) -> Option<&mut [u8]> {
        if self.memory.ring.slot().is_none() {
            let Self { queues: Queues { sent, polled, failed: broken, .. }, memory, .. } = self;
            sent.poll(polled, |done| {
                memory.ring.complete(u16::try_from(done.wr_id).unwrap_or(u16::MAX));
                // The device sends nothing more.
                if done.status != 0 {
                    broken.get_or_insert_with(|| failed(done));
                }
            });
        }
        let slot = self.memory.ring.slot()?;
        // SAFETY: the ring hands out only slots that the device does not have.
        Some(unsafe { self.memory.slots.bytes_mut(RECEIVES + slot) })
    }

    fn send(&mut self, len: usize, route: &Route) -> io::Result<()> {
        let Memory { slots, ring, inline, .. } = &mut self.memory;
        if let Some(error) = self.queues.failed.take() {
            return Err(error);
        }
        let slot = ring.slot().ok_or(io::ErrorKind::WouldBlock)?;
        let (number, reports) = ring.take(false);
        let mut piece = Sge {
            addr: slots.address(RECEIVES + slot),
            length: u32::try_from(len.min(SLOT)).unwrap_or(0),
            lkey: slots.lkey(),
        };
        let mut others = [0; 11];
        others[0] = route.handle.as_ptr().expose_provenance() as u64;
        others[1] = u64::from(route.pair) | u64::from(route.key) << 32;
        let mut work = SendWr {
            wr_id: u64::from(number),
            sg_list: &mut piece,
            num_sge: 1,
            opcode: WR_SEND,
            send_flags: if reports { SEND_SIGNALED } else { 0 } | if len <= *inline { SEND_INLINE } else { 0 },
            others,
            ..SendWr::EMPTY
        };
        // SAFETY: the queue pair is open. The route outlives the call, which reads its handle; the
        // slot is the device's until its number completes.
        unsafe { self.domain.post_send(self.listener.pair(), &mut work) }
    }

    fn next_arrived(&mut self) -> io::Result<Option<Arrived>> {
        self.queues.poll();
        let Some(mut arrived) = self.queues.found.pop_front().transpose()? else { return Ok(None) };
        self.memory.posted &= !1u128.checked_shl(u32::from(arrived.slot)).unwrap_or(0);
        arrived.group &= self.memory.taken(arrived.slot).first_chunk().is_some_and(is_to_group);
        Ok(Some(arrived))
    }

    fn received(&self, slot: u16) -> &[u8] {
        self.memory.taken(slot).get(ROUTING..).unwrap_or_default()
    }

    fn post_receive(&mut self, slot: u16) -> io::Result<()> {
        let Memory { slots, posted, .. } = &mut self.memory;
        if slot >= RECEIVES || *posted >> slot & 1 != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = u32::try_from(self.most + ROUTING).unwrap_or(0);
        let mut piece = Sge { addr: slots.address(slot), length, lkey: slots.lkey() };
        let mut work = RecvWr { wr_id: slot.into(), next: ptr::null_mut(), sg_list: &mut piece, num_sge: 1 };
        *posted |= 1 << slot;
        // SAFETY: the queue pair is open, and the slot is marked as the device's.
        unsafe { self.domain.post_receive(self.listener.pair(), &mut work) }
    }

    fn listen(&mut self, on: bool) -> bool {
        let was_on = core::mem::replace(&mut self.queues.is_armed, on);
        if on && !was_on {
            self.queues.arrived.request_event();
        }
        if on {
            // What came before the request is no event.
            self.queues.poll();
        }
        on && !self.queues.found.is_empty()
    }

    fn descriptor(&self) -> Descriptor {
        self.wait.descriptor()
    }

    fn now(&self) -> Instant {
        self.wait.now()
    }
}

impl Drop for PacketPair {
    fn drop(&mut self) {
        for group in self.members.iter().map(|member| member.group).collect::<Vec<_>>() {
            self.leave(&group);
        }
        // SAFETY: the listener has a queue pair; afterwards the device has none of its memory.
        unsafe { (self.channel.libraries.cm.rdma_destroy_qp)(self.listener.raw()) };
    }
}
