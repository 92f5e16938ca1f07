//! UDP sockets: one for the endpoint, and one for each group that it receives from, because a
//! socket bound to a unicast address receives no multicast.

use ofi_core::error::{Error, Result};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::datagram::{Datagrams, Given, Membership, Packet};
use ofi_engine::op::Ways;
use ofi_engine::transport::Down;
use ofi_memory::{Buffer, Ticket};
use ofi_os::datagram::{Came, DatagramSocket, MOST};
use ofi_os::poller::{Interest, Poller};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Packets received since a thread last slept after which the poller no longer watches the
/// sockets: while it does, a small packet costs its sender a tenth more over loopback.
const TRUST: usize = 64;

/// A multicast group that the endpoint receives from.
#[derive(Debug)]
struct Group {
    addr: Addr,
    /// Joins for receiving that have not been left.
    members: usize,
    /// Receives the group's packets.
    socket: DatagramSocket,
}

/// The sockets of a datagram endpoint.
#[derive(Debug)]
pub struct Udp {
    socket: DatagramSocket,
    local: SocketAddr,
    groups: Vec<Group>,
    /// Index of the socket that the next receive polls first (0: the endpoint's own, then those of
    /// its groups). It rotates, so that no socket starves the others.
    first: usize,
    /// The DSCP of all packets.
    dscp: Option<u8>,
    poller: Poller,
    /// Whether the poller watches the sockets, including those of groups joined later.
    watched: bool,
    /// A thread may sleep on the poller.
    armed: bool,
    /// Packets received since it was last disarmed.
    taken: usize,
}

impl Udp {
    /// Binds to `addr`; packets carry the code point `dscp`.
    pub(crate) fn bind(addr: Addr, dscp: Option<u8>) -> Result<Self> {
        let fail = |error, what: &str| Error::os(error, format!("{what} {}", addr.socket()));
        let socket = DatagramSocket::bind(addr.socket(), false).map_err(|error| fail(error, "bind to"))?;
        socket.mark(dscp).map_err(|error| fail(error, "set the traffic class of the socket bound to"))?;
        let local = socket.local_addr().map_err(|error| fail(error, "get the address of the socket bound to"))?;
        let poller = Poller::new().map_err(|error| Error::os(error, "create an epoll descriptor"))?;
        poller.add(socket.as_raw_fd(), Interest::Read, 0).map_err(|error| Error::os(error, "watch a socket"))?;
        Ok(Self { socket, local, groups: Vec::new(), first: 0, dscp, poller, watched: true, armed: false, taken: 0 })
    }

    fn sockets(&self) -> impl Iterator<Item = &DatagramSocket> {
        std::iter::once(&self.socket).chain(self.groups.iter().map(|group| &group.socket))
    }

    #[inline]
    fn receive_some(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>) {
        let count = 1 + self.groups.len();
        let first = self.first;
        self.first = if first + 1 < count { first + 1 } else { 0 };
        for step in 0..count {
            let at = if first + step < count { first + step } else { first + step - count };
            let socket = if at == 0 { &self.socket } else { &self.groups[at - 1].socket };
            let free = buffers.len() - packets.len();
            if free == 0 || packets.len() >= most {
                return;
            }
            let begin = packets.len();
            let mut take = |came: Came| {
                // Socket 0 is the endpoint's own, the others are those of its groups.
                packets.push(Packet { len: came.len, from: Addr::from(came.from), group: at > 0 });
            };
            // Either no packet, or the error of an earlier send, which a datagram endpoint does not
            // report.
            if most == 1 {
                if let Some((_, buffer)) = buffers.get_mut(begin)
                    && let Ok(came) = socket.receive_one(buffer)
                {
                    take(came);
                }
            } else {
                let room = (most - begin).min(MOST);
                drop(socket.receive(buffers.iter_mut().skip(begin).take(room).map(|(_, buffer)| buffer), take));
            }
        }
    }

    /// Has the poller watch the sockets, or not. False if the system has no memory for that: it
    /// watches none then.
    fn watch(&mut self, on: bool) -> bool {
        if on == self.watched {
            return true;
        }
        self.watched =
            on && self.sockets().all(|socket| self.poller.add(socket.as_raw_fd(), Interest::Read, 0).is_ok());
        if !self.watched {
            // Fails only for sockets that it does not watch, as wanted.
            self.sockets().for_each(|socket| drop(self.poller.remove(socket.as_raw_fd())));
        }
        self.watched == on
    }

    /// Starts to receive from a group.
    fn listen_to(&self, addr: SocketAddr) -> io::Result<DatagramSocket> {
        let bind = || DatagramSocket::bind(addr, true);
        let socket = if self.local.ip().is_unspecified() && self.local.port() == addr.port() {
            // The endpoint's own socket has the port of every address, that of the group too.
            self.socket.ignore_other_groups()?;
            self.socket.share_port_for(bind)?
        } else {
            bind()?
        };
        socket.mark(self.dscp)?;
        socket.join(addr.ip(), &self.local)?;
        if self.watched {
            self.poller.add(socket.as_raw_fd(), Interest::Read, 0)?;
        }
        Ok(socket)
    }
}

impl Datagrams for Udp {
    const ARMED: bool = true;

    fn local_addr(&self) -> Addr {
        Addr::from(self.local)
    }

    #[inline]
    fn send(&mut self, packet: &Buffer, to: &Addr, _: bool) -> Given {
        match self.socket.send(packet, to) {
            Ok(()) => Given::Taken,
            Err(error) => refused(&error, to),
        }
    }

    #[inline]
    fn receive(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>) {
        let before = packets.len();
        self.receive_some(buffers, most, packets);
        self.taken = self.taken.saturating_add(packets.len() - before);
        if self.taken >= TRUST && self.watched && !self.armed {
            self.watch(false);
        }
    }

    fn join(&mut self, group: &Addr, ways: Ways) -> Result<Membership> {
        let addr = group.socket();
        if !addr.ip().is_multicast() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr}: not a multicast address")));
        }
        if addr.is_ipv4() != self.local.is_ipv4() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr} from {}", self.local)));
        }
        let fail = |error| Error::os(error, format!("join {addr}"));
        if ways.send {
            self.socket.send_groups_from(&self.local).map_err(fail)?;
        }
        if !ways.receive {
            return Ok(Membership::Begun);
        }
        if let Some(joined) = self.groups.iter_mut().find(|joined| joined.addr == *group) {
            // A second socket would receive each packet again.
            joined.members += 1;
            return Ok(Membership::Begun);
        }
        let socket = self.listen_to(addr).map_err(fail)?;
        self.groups.push(Group { addr: *group, members: 1, socket });
        Ok(Membership::Begun)
    }

    fn leave(&mut self, group: &Addr, ways: Ways) {
        let is_left = |joined: &Group| ways.receive && joined.addr == *group;
        let Some(at) = self.groups.iter().position(is_left) else { return };
        self.groups[at].members -= 1;
        if self.groups[at].members == 0 {
            // Closing the socket ends the membership and the epoll watch.
            self.groups.swap_remove(at);
            self.first = 0;
        }
    }

    fn listen(&mut self, on: bool) -> bool {
        self.armed = on;
        !self.watch(on)
    }

    fn disarm(&mut self) {
        // Watching goes on: the next sleep may come soon.
        self.armed = false;
        self.taken = 0;
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.poller.as_raw_fd())
    }
}

#[cold]
fn refused(error: &io::Error, to: &Addr) -> Given {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
        return Given::Full;
    }
    if error.raw_os_error() == Some(Errno::ECONNREFUSED.raw()) {
        // The error of an earlier packet to a closed port: datagrams may be lost. Retry this one.
        return Given::Full;
    }
    let errno = Errno::from(error);
    Given::Refused(Down::new(Cause::Broken, errno, format!("send to {}: {error}", to.socket())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use ofi_core::OpFlags;

    /// Sends one packet of `len` bytes.
    fn say(from: &mut Udp, to: &Addr, len: usize) {
        assert!(matches!(from.send(&Buffer::Owned(vec![0; len]), to, false), Given::Taken));
    }

    fn loopback() -> Udp {
        Udp::bind(Addr::from("127.0.0.1:0".parse::<SocketAddr>().unwrap()), None).unwrap()
    }

    /// Receives one packet if there is one.
    fn take(udp: &mut Udp) -> Option<Packet> {
        let ticket = Ticket::new(0, OpFlags::RECV, true);
        let mut buffers = VecDeque::from([(ticket, Buffer::Owned(vec![0; 64]))]);
        let mut packets = Vec::new();
        udp.receive(&mut buffers, 1, &mut packets);
        buffers.into_iter().for_each(|(ticket, _)| ticket.discard());
        packets.pop()
    }

    /// Whether the descriptor is readable.
    fn awake(udp: &Udp) -> bool {
        let mut count = 0;
        udp.poller.wait(Some(Duration::ZERO), |_| count += 1).unwrap();
        count > 0
    }

    /// A sender, and a receiver that has received enough to leave its descriptor alone.
    fn busy() -> (Udp, Udp, Addr) {
        let (mut speaker, mut listener) = (loopback(), loopback());
        let own = listener.local_addr();
        for _ in 0..TRUST {
            say(&mut speaker, &own, 1);
            assert!(awake(&listener));
            assert!(take(&mut listener).is_some());
        }
        say(&mut speaker, &own, 1);
        assert!(!awake(&listener), "nobody sleeps on it");
        (speaker, listener, own)
    }

    #[test]
    fn a_socket_that_is_received_from_all_the_time_is_watched_again_before_a_sleep() {
        let (mut speaker, mut listener, own) = busy();
        assert!(!listener.listen(true));
        assert!(awake(&listener));
        for _ in 0..=TRUST {
            assert!(take(&mut listener).is_some());
            say(&mut speaker, &own, 1);
            assert!(awake(&listener), "a thread may sleep on it");
        }
        listener.disarm();
        assert!(awake(&listener), "the next sleep may come soon");
    }

    #[test]
    fn nobody_sleeps_on_a_socket_that_cannot_be_watched() {
        let (mut speaker, mut listener, own) = busy();
        // The system refuses to watch it twice, as it does without memory.
        listener.poller.add(listener.socket.as_raw_fd(), Interest::Read, 0).unwrap();
        assert!(listener.listen(true));
        assert!(!listener.listen(true), "by now it can be watched");
        assert!(take(&mut listener).is_some());
        say(&mut speaker, &own, 1);
        assert!(awake(&listener));
    }

    /// A sender to and a receiver of a group, at a free port.
    fn joined() -> (Udp, Udp, Addr) {
        let (mut speaker, mut listener) = (loopback(), loopback());
        let port = loopback().local.port();
        let group = Addr::from(SocketAddr::from(([239, 1, 2, 3], port)));
        speaker.join(&group, Ways::SEND).unwrap();
        listener.join(&group, Ways::RECEIVE).unwrap();
        (speaker, listener, group)
    }

    #[test]
    fn traffic_to_the_endpoint_does_not_starve_its_groups() {
        let (mut speaker, mut listener, group) = joined();
        let own = listener.local_addr();
        say(&mut speaker, &group, 1);
        for _ in 0..8 {
            say(&mut speaker, &own, 2);
        }
        let first: Vec<bool> = (0..3).filter_map(|_| take(&mut listener)).map(|packet| packet.group).collect();
        assert!(first.contains(&true), "{first:?}");
        // The reverse: many packets for the group and one for the endpoint.
        while take(&mut listener).is_some() {}
        say(&mut speaker, &own, 2);
        for _ in 0..8 {
            say(&mut speaker, &group, 1);
        }
        let first: Vec<bool> = (0..3).filter_map(|_| take(&mut listener)).map(|packet| packet.group).collect();
        assert!(first.contains(&false), "{first:?}");
    }

    #[test]
    fn a_group_that_is_joined_while_nothing_is_listened_to_wakes_no_sleeper() {
        let (mut speaker, mut listener) = (loopback(), loopback());
        let group = Addr::from(SocketAddr::from(([239, 1, 2, 3], loopback().local.port())));
        speaker.join(&group, Ways::SEND).unwrap();
        listener.listen(false);
        listener.join(&group, Ways::RECEIVE).unwrap();
        say(&mut speaker, &group, 1);
        assert!(!awake(&listener));
        listener.listen(true);
        assert!(awake(&listener));
        listener.listen(false);
        assert!(!awake(&listener));
        listener.listen(true);
        assert!(take(&mut listener).is_some_and(|packet| packet.group));
        assert!(!awake(&listener));
    }

    #[test]
    fn a_group_is_left_with_its_last_membership() {
        let (mut speaker, mut listener, group) = joined();
        listener.join(&group, Ways::RECEIVE).unwrap();
        say(&mut speaker, &group, 1);
        assert!(take(&mut listener).is_some_and(|packet| packet.group));
        assert!(take(&mut listener).is_none(), "it came twice");
        listener.leave(&group, Ways::RECEIVE);
        say(&mut speaker, &group, 1);
        assert!(take(&mut listener).is_some());
        listener.leave(&group, Ways::RECEIVE);
        say(&mut speaker, &group, 1);
        assert!(take(&mut listener).is_none());
    }
}
