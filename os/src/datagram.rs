//! Non-blocking UDP sockets: scattered buffers, several packets per call, multicast groups.
#![allow(unsafe_code)]

use crate::descriptor::Private;
use crate::uncancelled;
use ofi_core::Addr;
use ofi_core::addr::MAX_LEN;
use ofi_memory::{Buffer, Chunk, ChunkMut};
use socket2::{Domain, Socket as Raw, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// A non-blocking datagram socket, closed on drop and on exec.
#[derive(Debug)]
pub struct DatagramSocket(Private<Raw>);

/// Maximum packets per call.
pub const MOST: usize = 16;
/// Maximum chunks per buffer.
const PIECES: usize = 8;
/// Socket buffer size to request from the system, in bytes.
const BUFFER: usize = 4 << 20;

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Length in bytes; exceeds the buffer's if the packet was truncated.
    pub len: usize,
    /// The sender.
    pub from: SocketAddr,
}

impl DatagramSocket {
    /// Binds to `addr`; port 0 lets the system choose. `shared`: other members of a group may bind
    /// there too.
    pub fn bind(addr: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = Raw::new(Domain::for_address(addr), Type::DGRAM.nonblocking().cloexec(), None)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if shared {
            socket.set_reuse_address(true)?;
        }
        // Best effort: the system may grant less.
        drop(socket.set_recv_buffer_size(BUFFER));
        drop(socket.set_send_buffer_size(BUFFER));
        socket.bind(&addr.into())?;
        Ok(Self(Private::new(socket)))
    }

    /// Sets the DSCP of packets sent from now on, if one is given.
    pub fn mark(&self, dscp: Option<u8>) -> io::Result<()> {
        if dscp.is_none() { Ok(()) } else { crate::socket::mark(&self.0, &self.local_addr()?, dscp) }
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// Sends multicast through the interface with this address.
    pub fn send_groups_from(&self, interface: &SocketAddr) -> io::Result<()> {
        match interface {
            SocketAddr::V4(v4) => self.0.set_multicast_if_v4(v4.ip()),
            SocketAddr::V6(_) => self.0.set_multicast_if_v6(crate::netif::index_of(interface)),
        }
    }

    /// Receives packets of the groups that it has joined, and none of those that only other sockets
    /// have.
    pub fn ignore_other_groups(&self) -> io::Result<()> {
        /// As in `linux/in6.h`.
        const IPV6_MULTICAST_ALL: i32 = 29;
        let (level, option) = if self.local_addr()?.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL)
        } else {
            (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL)
        };
        let off = 0i32;
        let len = libc::socklen_t::try_from(size_of_val(&off)).unwrap_or(0);
        // SAFETY: the value is a local of that length.
        let failed = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, (&raw const off).cast(), len) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Calls `bind` while sockets that share their addresses may be bound to this one's port.
    pub fn share_port_for<R>(&self, bind: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        // The system looks at the options of both sockets when the second one is bound.
        self.0.set_reuse_address(true)?;
        let bound = bind();
        self.0.set_reuse_address(false)?;
        bound
    }

    /// Joins a multicast group on the interface with this address.
    pub fn join(&self, group: IpAddr, interface: &SocketAddr) -> io::Result<()> {
        match (group, interface) {
            (IpAddr::V4(group), SocketAddr::V4(v4)) => self.0.join_multicast_v4(&group, v4.ip()),
            (IpAddr::V6(group), SocketAddr::V6(_)) => {
                self.0.join_multicast_v6(&group, crate::netif::index_of(interface))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }

    /// Sends a packet.
    #[inline]
    pub fn send(&self, packet: &Buffer, to: &Addr) -> io::Result<()> {
        let (name, len) = to.encode();
        if let Some((base, size)) = packet.as_one() {
            let len = libc::socklen_t::try_from(len).unwrap_or(0);
            // SAFETY: the buffer is readable as long as it lives (`Span::new`), the name is a
            // local.
            let sent =
                unsafe { uncancelled::sendto(self.0.as_raw_fd(), base.cast(), size, SEND, name.as_ptr().cast(), len) };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        }
        let mut pieces = [Chunk::of(&[]); PIECES];
        let mut count = 0;
        packet.for_each(0, packet.len(), |chunk| {
            if count < PIECES {
                pieces[count] = chunk;
                count += 1;
            }
        });
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = libc::socklen_t::try_from(len).unwrap_or(0);
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = count;
        // SAFETY: the chunks are laid out as iovecs over memory that is readable as long as they
        // live; so is the name.
        let sent = unsafe { uncancelled::sendmsg(self.0.as_raw_fd(), &message, SEND) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a packet.
    #[inline]
    pub fn receive_one(&self, buffer: &mut Buffer) -> io::Result<Came> {
        let mut name = [0u8; MAX_LEN];
        if let Some((base, size)) = buffer.as_one() {
            let mut len = libc::socklen_t::try_from(MAX_LEN).unwrap_or(0);
            let fd = self.0.as_raw_fd();
            // SAFETY: the buffer is writable as long as it lives (`Span::new`), the name is a
            // local.
            let got = unsafe {
                uncancelled::recvfrom(fd, base.cast_mut().cast(), size, FLAGS, name.as_mut_ptr().cast(), &mut len)
            };
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            let from = Addr::decode(&name).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
            return Ok(Came { len: got, from: from.socket() });
        }
        let mut pieces: [ChunkMut<'_>; PIECES] = core::array::from_fn(|_| ChunkMut::of(&mut []));
        let mut header = header(buffer, &mut pieces, &mut name);
        // SAFETY: the chunks are laid out as iovecs over memory that is writable as long as they
        // live; so is the name.
        let len = unsafe { uncancelled::recvmsg(self.0.as_raw_fd(), &mut header, FLAGS) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        let from = Addr::decode(&name).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        Ok(Came { len, from: from.socket() })
    }

    /// Receives packets into the buffers, one each, and calls `came` for each packet.
    pub fn receive<'a>(
        &self,
        buffers: impl Iterator<Item = &'a mut Buffer>,
        mut came: impl FnMut(Came),
    ) -> io::Result<()> {
        let mut names = [[0u8; MAX_LEN]; MOST];
        let mut pieces: [[ChunkMut<'_>; PIECES]; MOST] =
            core::array::from_fn(|_| core::array::from_fn(|_| ChunkMut::of(&mut [])));
        // SAFETY: an all-zero message header is a valid empty one.
        let mut messages: [libc::mmsghdr; MOST] = unsafe { core::mem::zeroed() };
        let mut count = 0;
        let places = pieces.iter_mut().zip(names.iter_mut()).zip(messages.iter_mut());
        for (buffer, ((pieces, name), message)) in buffers.zip(places) {
            message.msg_hdr = header(buffer, pieces, name);
            count += 1;
        }
        let fd = self.0.as_raw_fd();
        // SAFETY: as in `receive_one` for each of the `count` messages.
        let got = unsafe { uncancelled::recvmmsg(fd, messages.as_mut_ptr(), count, FLAGS) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for (message, name) in messages.iter().zip(&names).take(got) {
            if let Some(from) = Addr::decode(name) {
                came(Came { len: message.msg_len as usize, from: from.socket() });
            }
        }
        Ok(())
    }
}

/// Non-blocking, without SIGPIPE.
const SEND: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
/// Non-blocking; reports the full length of a truncated packet.
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_TRUNC;

/// A header for receiving into a buffer.
fn header<'a>(buffer: &'a mut Buffer, pieces: &mut [ChunkMut<'a>; PIECES], name: &mut [u8; MAX_LEN]) -> libc::msghdr {
    let mut used = 0;
    buffer.for_each_mut(0, buffer.len(), |chunk| {
        if used < PIECES {
            pieces[used] = chunk;
            used += 1;
        }
    });
    // SAFETY: an all-zero message header is a valid empty one.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = libc::socklen_t::try_from(MAX_LEN).unwrap_or(0);
    header.msg_iov = pieces.as_mut_ptr().cast();
    header.msg_iovlen = used;
    header
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(len: usize) -> Buffer {
        Buffer::Owned(vec![0; len])
    }

    #[test]
    fn packets_keep_their_borders_and_tell_their_length() {
        let a = DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let b = DatagramSocket::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let to = Addr::from(b.local_addr().unwrap());
        for size in [0, 5, 40] {
            a.send(&Buffer::Owned(vec![7; size]), &to).unwrap();
        }
        let mut buffers = [buffer(10), buffer(10), buffer(10), buffer(10)];
        let mut came = Vec::new();
        b.receive(buffers.iter_mut(), |packet| came.push(packet)).unwrap();
        assert_eq!(came.iter().map(|packet| packet.len).collect::<Vec<_>>(), [0, 5, 40]);
        assert!(came.iter().all(|packet| packet.from == a.local_addr().unwrap()));
        let nothing = b.receive_one(&mut buffers[0]).unwrap_err();
        assert_eq!(nothing.raw_os_error(), Some(libc::EAGAIN));
    }
}
