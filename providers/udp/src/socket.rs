//! Packets over the system's sockets: one for the endpoint, and one for each group that it receives from, because a
//! socket that is bound to an address of its own hears no group.

use ofi_core::error::{Error, Result};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::datagram::{Datagrams, Given, Packet};
use ofi_engine::transport::Down;
use ofi_memory::{Buffer, Ticket};
use ofi_os::datagram::{Came, DatagramSocket, MOST};
use ofi_os::poller::{Interest, Poller};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// A group that was joined.
#[derive(Debug)]
struct Group {
    addr: Addr,
    /// Where its packets come, if they are wanted.
    socket: Option<DatagramSocket>,
}

/// The socket of a datagram endpoint.
#[derive(Debug)]
pub struct Udp {
    socket: DatagramSocket,
    local: SocketAddr,
    groups: Vec<Group>,
    poller: Poller,
}

impl Udp {
    /// A socket at `addr`.
    pub(crate) fn bind(addr: Addr) -> Result<Self> {
        let fail = |error, what: &str| Error::os(error, format!("{what} {}", addr.socket()));
        let socket = DatagramSocket::bind(addr.socket(), false).map_err(|error| fail(error, "bind to"))?;
        let local = socket.local_addr().map_err(|error| fail(error, "ask for the address of a socket at"))?;
        let poller = Poller::new().map_err(|error| Error::os(error, "make an epoll descriptor"))?;
        poller.add(socket.as_raw_fd(), Interest::Read, 0).map_err(|error| Error::os(error, "watch a socket"))?;
        Ok(Self { socket, local, groups: Vec::new(), poller })
    }

    fn sockets(&self) -> impl Iterator<Item = &DatagramSocket> {
        std::iter::once(&self.socket).chain(self.groups.iter().filter_map(|group| group.socket.as_ref()))
    }
}

impl Datagrams for Udp {
    fn local_addr(&self) -> Addr {
        Addr::from(self.local)
    }

    #[inline]
    fn send(&mut self, packet: &Buffer, to: &Addr) -> Given {
        match self.socket.send(packet, to) {
            Ok(()) => Given::Taken,
            Err(error) => refused(&error, to),
        }
    }

    #[inline]
    fn receive(&mut self, buffers: &mut VecDeque<(Ticket, Buffer)>, most: usize, packets: &mut Vec<Packet>) {
        for (at, socket) in self.sockets().enumerate() {
            let free = buffers.len() - packets.len();
            if free == 0 || packets.len() >= most {
                return;
            }
            let begin = packets.len();
            let mut take = |came: Came| {
                // The first socket is the endpoint's own, the others are those of its groups.
                packets.push(Packet { len: came.len, from: Addr::from(came.from), group: at > 0 });
            };
            // Nothing there, or an error that belongs to a packet sent earlier: a datagram endpoint does not report it.
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

    fn join(&mut self, group: &Addr, send: bool, receive: bool) -> Result<()> {
        let addr = group.socket();
        if !addr.ip().is_multicast() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr}: not the address of a group")));
        }
        if addr.is_ipv4() != self.local.is_ipv4() {
            return Err(Error::new(Errno::EADDRNOTAVAIL, format!("join {addr} from {}", self.local)));
        }
        let fail = |error| Error::os(error, format!("join {addr}"));
        if send {
            self.socket.send_groups_from(&self.local).map_err(fail)?;
        }
        let socket = if receive {
            let socket = DatagramSocket::bind(addr, true).map_err(fail)?;
            socket.join(addr.ip(), &self.local).map_err(fail)?;
            self.poller.add(socket.as_raw_fd(), Interest::Read, 0).map_err(fail)?;
            Some(socket)
        } else {
            None
        };
        self.groups.push(Group { addr: *group, socket });
        Ok(())
    }

    fn leave(&mut self, group: &Addr) {
        // Closing the socket ends the membership and the watch.
        if let Some(at) = self.groups.iter().position(|joined| joined.addr == *group) {
            self.groups.swap_remove(at);
        }
    }

    fn listen(&mut self, on: bool) {
        for socket in self.sockets() {
            let fd = socket.as_raw_fd();
            // Fails only if it is so already.
            drop(if on { self.poller.add(fd, Interest::Read, 0) } else { self.poller.remove(fd) });
        }
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
        // About an earlier packet, which nobody was there to take: that is the fate of datagrams.
        return Given::Full;
    }
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw()));
    Given::Refused(Down::new(Cause::Broken, errno, format!("send to {}: {error}", to.socket())))
}
