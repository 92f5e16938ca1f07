//! Datagrams over an unreliable queue pair: each packet is one message of the device, with the
//! sender's address in front. [`crate::ffi::PacketPair`] is the system's queue pair; the tests
//! bring one in memory.

mod groups;
mod packet;
mod peers;

use core::fmt::Debug;
use groups::{Groups, Task};
use ofi_core::error::{Error, Result};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::datagram::{Datagrams, Given, Joined, Membership, Packet};
use ofi_engine::op::Ways;
use ofi_engine::transport::Down;
use ofi_memory::{Buffer, Ticket};
pub(crate) use packet::{HEADER, ROUTING, is_to_group};
use peers::{Ask, Peers, Way};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// So many polls make one look for what the connection manager reports.
const LOOK_EVERY: u32 = 16;
/// Packets of others that a poll drops at most.
const MOST_STRANGE: usize = 64;

/// What the connection manager reports.
#[derive(Debug)]
pub enum News<R> {
    /// The way to a peer.
    Found(SocketAddr, R),
    /// The peer is not found. Its host has said that no queue pair has the address (`is_final`), or
    /// there is no answer.
    Lost {
        /// The peer.
        to: SocketAddr,
        /// Why it is not found.
        why: Down,
        /// Whether packets on an earlier route would be lost.
        is_final: bool,
    },
    /// The way to a group, which is joined.
    Joined(SocketAddr, R),
    /// A group is not joined, or the network has ended the membership.
    Apart {
        /// The group.
        group: SocketAddr,
        /// Why.
        why: Down,
    },
    /// The queue pair is unusable.
    Broken(Down),
}

/// A packet that has arrived in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The slot.
    pub slot: u16,
    /// Bytes of the packet.
    pub len: usize,
    /// The number of the sender's queue pair.
    pub pair: u32,
    /// It was sent to a group.
    pub group: bool,
}

/// An unreliable queue pair with its completion queues and the connection manager, which also
/// answers peers that ask for it.
pub trait PacketDevice: Send + Debug + 'static {
    /// The way to a peer.
    type Route: Send + Debug;

    /// Its address.
    fn local_addr(&self) -> SocketAddr;
    /// Bytes that a packet carries at most.
    fn most(&self) -> usize;
    /// Starts to look for a peer.
    ///
    /// # Errors
    /// The system's: no memory, no descriptors.
    fn look_for(&mut self, to: SocketAddr) -> io::Result<()>;
    /// Stops looking for it.
    fn forget(&mut self, to: &SocketAddr);
    /// Starts to join a group; [`News`] tells how that ends.
    ///
    /// # Errors
    /// The system's: no memory, no descriptors, no such network.
    fn join(&mut self, group: SocketAddr) -> io::Result<()>;
    /// Sets whether packets to a group that is joined are received.
    ///
    /// # Errors
    /// The device's: it has no room for more groups.
    fn receive_from(&mut self, group: &SocketAddr, on: bool) -> io::Result<()>;
    /// Leaves a group, also while it is joined. No news of it come.
    fn leave(&mut self, group: &SocketAddr);
    /// Takes what the connection manager reports.
    fn poll_news(&mut self, out: &mut Vec<News<Self::Route>>);
    /// Whether a route leads to the queue pair of that number.
    fn leads_to(route: &Self::Route, pair: u32) -> bool;
    /// The next slot for sending, unless all are in use.
    fn send_slot(&mut self) -> Option<&mut [u8]>;
    /// Sends the first `len` bytes of that slot.
    ///
    /// # Errors
    /// The queue pair is unusable.
    fn send(&mut self, len: usize, route: &Self::Route) -> io::Result<()>;
    /// The number of slots for sending.
    const SENDS: u64;
    /// The next packet that has arrived.
    ///
    /// # Errors
    /// The queue pair is unusable.
    fn next_arrived(&mut self) -> io::Result<Option<Arrived>>;
    /// The bytes of a slot for receiving; empty while the device has it.
    fn received(&self, slot: u16) -> &[u8];
    /// Gives a slot for receiving to the device.
    ///
    /// # Errors
    /// The queue pair is unusable.
    fn post_receive(&mut self, slot: u16) -> io::Result<()>;
    /// Sets whether the descriptor reports packets too. True if there are some that it will not
    /// report, because they came before.
    fn listen(&mut self, on: bool) -> bool;
    /// The descriptor that becomes readable on news and, if it listens, on packets.
    fn descriptor(&self) -> Descriptor;
    /// The current time.
    fn now(&self) -> Instant;
}

/// The datagrams of an endpoint.
#[derive(Debug)]
pub struct VerbsDatagrams<D: PacketDevice> {
    /// Dropped before the routes, which its last packets may use.
    device: D,
    peers: Peers<D::Route>,
    groups: Groups,
    retired: Retired<D::Route>,
    /// Why nothing can be sent or received.
    broken: Option<Down>,
    /// Peers that are found, for which packets still wait.
    due: Vec<SocketAddr>,
    pace: Pace,
    news: Vec<News<D::Route>>,
}

/// Routes that packets which the device has may still use, and how many were sent before each.
#[derive(Debug)]
struct Retired<R> {
    routes: VecDeque<(u64, R)>,
    sent: u64,
}

/// When to look for what the connection manager reports.
#[derive(Debug)]
struct Pace {
    polls: u32,
    /// The next poll looks, because the descriptor may have reported something.
    look: bool,
}

impl<R> Retired<R> {
    fn add(&mut self, route: Option<R>) {
        self.routes.extend(route.map(|route| (self.sent, route)));
    }

    /// A packet was sent. Each slot is used again only once its last packet has left.
    fn note_sent(&mut self, slots: u64) {
        self.sent += 1;
        while self.routes.front().is_some_and(|(before, _)| before + slots < self.sent) {
            self.routes.pop_front();
        }
    }
}

pub(crate) fn not_joined(group: &SocketAddr, error: io::Error) -> Down {
    let text = format!("join {}: {error}", group.ip());
    Down::new(Cause::Connect, error.into(), text)
}

fn unusable(error: io::Error) -> Down {
    let text = format!("the queue pair is unusable: {error}");
    Down::new(Cause::Broken, error.into(), text)
}

impl<D: PacketDevice> VerbsDatagrams<D> {
    /// Datagrams of a queue pair whose slots for receiving are posted. A peer may take `patience`
    /// to be found.
    pub fn new(device: D, patience: Duration) -> Self {
        Self {
            device,
            peers: Peers::new(patience),
            groups: Groups::default(),
            retired: Retired { routes: VecDeque::new(), sent: 0 },
            broken: None,
            due: Vec::new(),
            pace: Pace { polls: 0, look: true },
            news: Vec::new(),
        }
    }

    /// Takes what the connection manager reports. True if there was anything.
    fn take_news(&mut self) -> bool {
        self.pace.look = false;
        let mut news = core::mem::take(&mut self.news);
        self.device.poll_news(&mut news);
        let (any, now) = (!news.is_empty(), self.device.now());
        for news in news.drain(..) {
            let (to, replaced) = match news {
                News::Found(to, route) => (to, self.peers.found(&to, route, now)),
                News::Lost { to, why, is_final } => (to, self.lose(&to, &why, is_final)),
                News::Joined(group, route) => (group, self.joined(&group, route)),
                News::Apart { group, why } => (group, self.apart(&group, &why)),
                News::Broken(why) => {
                    self.fail(why);
                    continue;
                }
            };
            self.retired.add(replaced);
            if !self.send_held(to) {
                self.due.push(to);
            }
        }
        self.news = news;
        any
    }

    /// The device has joined a group; returns a route that is not used.
    fn joined(&mut self, group: &SocketAddr, route: D::Route) -> Option<D::Route> {
        if self.groups.has_receiver(group)
            && let Err(error) = self.device.receive_from(group, true)
        {
            let replaced = self.apart(group, &not_joined(group, error));
            self.retired.add(replaced);
            return Some(route);
        }
        self.groups.finish(group, None);
        self.peers.found(group, route, self.device.now())
    }

    /// The device has not joined a group, or the network has ended that; returns a route that is no
    /// longer used.
    fn apart(&mut self, group: &SocketAddr, why: &Down) -> Option<D::Route> {
        if self.groups.finish(group, Some(why)) {
            self.device.leave(group);
            return self.peers.leave(group);
        }
        log::log("verbs", Level::Warn, Subsystem::EpData, || format!("packets may be lost: {}", why.text));
        None
    }

    /// Sends the packets that have waited for a peer; false if some still wait for room.
    fn send_held(&mut self, to: SocketAddr) -> bool {
        while let Some((packet, route)) = self.peers.first_held(&to) {
            let Some(slot) = self.device.send_slot() else { return false };
            slot[..packet.len()].copy_from_slice(packet);
            if let Err(error) = self.device.send(packet.len(), route) {
                self.fail(unusable(error));
                return true;
            }
            self.retired.note_sent(D::SENDS);
            self.peers.drop_first_held(&to);
        }
        true
    }

    fn send_due(&mut self) {
        for to in core::mem::take(&mut self.due) {
            if !self.send_held(to) {
                self.due.push(to);
            }
        }
    }

    /// Looks for a peer, or gives that up, before a packet goes there.
    fn prepare(&mut self, to: SocketAddr) {
        let now = self.device.now();
        let ask = self.peers.ask(to, now);
        let lost = match ask {
            Ask::Start => {
                let failed = self.device.look_for(to).err();
                failed.map(|error| {
                    let text = format!("send to {to}: {error}");
                    Down::new(Cause::Connect, error.into(), text)
                })
            }
            Ask::Stop => {
                self.device.forget(&to);
                let text = format!("send to {to}: it has not told the way to its queue pair in time");
                Some(Down::new(Cause::ConnectDeadline, Errno::ETIMEDOUT, text))
            }
            Ask::Nothing => None,
        };
        if let Some(why) = lost {
            let replaced = self.lose(&to, &why, false);
            self.retired.add(replaced);
        }
        if matches!(self.peers.way(&to), Way::Wait) {
            self.take_news();
        }
    }

    /// A peer is not found; returns a route that is no longer used.
    fn lose(&mut self, to: &SocketAddr, why: &Down, is_final: bool) -> Option<D::Route> {
        let route = self.peers.lost(to, is_final, self.device.now());
        if self.peers.tells_of(to) {
            log::log("verbs", Level::Warn, Subsystem::EpData, || format!("packets are dropped: {}", why.text));
        }
        route
    }

    /// Copies an arrived packet; `None` if no endpoint of this provider has sent it.
    fn take(&mut self, arrived: Arrived, buffer: &mut Buffer) -> Option<Packet> {
        let Arrived { slot, len, pair, group } = arrived;
        let (from, payload) = packet::parse(self.device.received(slot).get(..len)?)?;
        buffer.write_at(0, &payload[..payload.len().min(buffer.len())]);
        let packet = Packet { len: payload.len(), from: from.into(), group };
        self.peers.heard(&from, |route| D::leads_to(route, pair));
        Some(packet)
    }

    /// Nothing can be sent or received any more.
    fn fail(&mut self, why: Down) -> &Down {
        if self.broken.is_none() {
            let at = self.device.local_addr();
            log::log("verbs", Level::Warn, Subsystem::EpData, || format!("datagrams at {at}: {}", why.text));
        }
        while let Some(group) = self.groups.joining() {
            let route = self.apart(&group, &why);
            self.retired.add(route);
        }
        self.broken.get_or_insert(why)
    }
}

impl<D: PacketDevice> Datagrams for VerbsDatagrams<D> {
    const POLLED: bool = true;
    const AWAITS: bool = true;

    fn local_addr(&self) -> Addr {
        self.device.local_addr().into()
    }

    fn send(&mut self, packet: &Buffer, to: &Addr, leaves: bool) -> Given {
        if let Some(why) = &self.broken {
            return Given::Refused(why.clone());
        }
        let is_group = to.socket().ip().is_multicast();
        let to = if is_group { groups::key(to) } else { to.socket() };
        if is_group && !self.groups.contain(&to) {
            let text = format!("send to {to}: the endpoint is not a member of the group");
            return Given::Refused(Down::new(Cause::NoAddress, Errno::EADDRNOTAVAIL, text));
        }
        let (len, most) = (packet.len(), self.device.most());
        if len > most - HEADER {
            let text = format!("send to {to}: {len} bytes, and the device carries {} in a packet", most - HEADER);
            return Given::Refused(Down::new(Cause::Broken, Errno::EMSGSIZE, text));
        }
        self.prepare(to);
        if !self.send_held(to) {
            return Given::Full;
        }
        let header = packet::header(self.device.local_addr());
        let write = |out: &mut [u8]| {
            out[..HEADER].copy_from_slice(&header);
            packet.read_at(0, &mut out[HEADER..HEADER + len]) == len
        };
        let unreadable = || {
            let text = format!("send to {to}: the memory of the message cannot be read");
            Given::Refused(Down::new(Cause::Absent, Errno::EFAULT, text))
        };
        let route = match self.peers.way(&to) {
            Way::Route(route) => route,
            Way::Wait if leaves => return Given::Full,
            Way::Wait => {
                let mut whole = vec![0; HEADER + len];
                if !write(&mut whole) {
                    return unreadable();
                }
                return if self.peers.hold(&to, whole) { Given::Taken } else { Given::Full };
            }
            // fi_domain(3): a datagram to a peer that cannot be reached is dropped, and its send
            // succeeds.
            Way::Lost => return Given::Taken,
        };
        let Some(slot) = self.device.send_slot() else { return Given::Full };
        if !write(slot) {
            return unreadable();
        }
        match self.device.send(HEADER + len, route) {
            Ok(()) => {
                self.retired.note_sent(D::SENDS);
                Given::Taken
            }
            Err(error) => Given::Refused(self.fail(unusable(error)).clone()),
        }
    }

    fn receive(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>) {
        let most = most.min(buffers.len());
        for _ in 0..most + MOST_STRANGE {
            if packets.len() >= most {
                return;
            }
            let arrived = match self.device.next_arrived() {
                Ok(Some(arrived)) => arrived,
                Ok(None) => return,
                Err(error) => {
                    self.fail(unusable(error));
                    return;
                }
            };
            if let Some((_, buffer)) = buffers.get_mut(packets.len()) {
                packets.extend(self.take(arrived, buffer));
            }
            if let Err(error) = self.device.post_receive(arrived.slot) {
                self.fail(unusable(error));
                return;
            }
        }
    }

    fn attend(&mut self) -> bool {
        self.pace.polls = self.pace.polls.wrapping_add(1);
        if !self.due.is_empty() {
            self.send_due();
        }
        let any = (self.pace.look || self.pace.polls.is_multiple_of(LOOK_EVERY)) && self.take_news();
        any || self.groups.has_outcome()
    }

    fn join(&mut self, group: &Addr, ways: Ways) -> Result<Membership> {
        let (addr, local) = (group.socket(), self.device.local_addr());
        if !addr.ip().is_multicast() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr}: not a multicast address")));
        }
        if addr.is_ipv4() != local.is_ipv4() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr} from {local}")));
        }
        if let Some(why) = &self.broken {
            return Err(Error::new(why.errno, why.text.to_string()));
        }
        let key = groups::key(group);
        let done = match self.groups.task_of_member(&key, ways) {
            Task::Join => self.device.join(key).map(|()| self.peers.join(key, self.device.now())),
            Task::Receive => self.device.receive_from(&key, true),
            Task::Ignore | Task::Quit | Task::Nothing => Ok(()),
        };
        done.map_err(|error| Error::os(error, format!("join {addr}")))?;
        Ok(if self.groups.add(group, ways) { Membership::Begun } else { Membership::Awaited })
    }

    fn leave(&mut self, group: &Addr, ways: Ways) {
        let key = groups::key(group);
        match self.groups.remove(&key, ways) {
            Task::Quit => {
                self.device.leave(&key);
                let route = self.peers.leave(&key);
                self.retired.add(route);
            }
            Task::Ignore => {
                if let Err(error) = self.device.receive_from(&key, false) {
                    let text = || format!("leave {key}: {error}; its packets still arrive");
                    log::log("verbs", Level::Warn, Subsystem::EpData, text);
                }
            }
            Task::Join | Task::Receive | Task::Nothing => {}
        }
    }

    fn next_joined(&mut self) -> Option<Joined> {
        self.groups.next_outcome()
    }

    fn listen(&mut self, on: bool) -> bool {
        self.pace.look = true;
        self.device.listen(on)
    }

    fn note_events(&mut self) {
        self.pace.look = true;
    }

    fn is_busy(&self) -> bool {
        !self.due.is_empty()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.device.descriptor())
    }
}

#[cfg(test)]
mod tests;
