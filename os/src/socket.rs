//! Non-blocking TCP sockets. Setup goes through `socket2`, data through the system calls directly,
//! because the buffers are not slices.
#![allow(unsafe_code)]

use crate::descriptor::Private;
use crate::uncancelled;
use ofi_memory::{Chunk, ChunkMut};
use socket2::{Domain, SockAddr, Socket as Raw, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// A non-blocking socket, closed on drop and on exec.
#[derive(Debug)]
pub struct Socket(Private<Raw>);

const _: () = assert!(size_of::<Chunk<'_>>() == size_of::<libc::iovec>());
const _: () = assert!(size_of::<ChunkMut<'_>>() == size_of::<libc::iovec>());

/// Responsiveness of the peer's host, from TCP_INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    /// Consecutive unanswered retransmissions or probes.
    pub unanswered: u32,
    /// Time since the last acknowledgment.
    pub since_ack: Duration,
}

/// Keepalive: first probe after 5 s without traffic, then every 5 s, dead after three: 20 s.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(5)).with_retries(3);

impl Socket {
    fn stream(addr: &SocketAddr) -> io::Result<Raw> {
        Raw::new(Domain::for_address(*addr), Type::STREAM.nonblocking().cloexec(), None)
    }

    /// Listens at `addr`; port 0 lets the system choose. `dscp`, here and below, marks the socket's
    /// packets, if given; a listening socket replies with it.
    pub fn listen(addr: SocketAddr, backlog: i32, dscp: Option<u8>) -> io::Result<Self> {
        let socket = Self::stream(&addr)?;
        mark(&socket, &addr, dscp)?;
        socket.set_reuse_address(true)?;
        Self::prepare(&socket)?;
        if addr.ip().is_loopback() {
            unpace(&socket);
        }
        socket.bind(&addr.into())?;
        socket.listen(backlog)?;
        Ok(Self(Private::new(socket)))
    }

    /// Starts to connect to `to`, from `from` if given. The socket becomes writable when the
    /// outcome is known.
    pub fn connect(to: SocketAddr, from: Option<SocketAddr>, dscp: Option<u8>) -> io::Result<Self> {
        let socket = Self::stream(&to)?;
        mark(&socket, &to, dscp)?;
        if let Some(mut from) = from {
            // connect(2) assigns the port, so that one port can serve connections to several peers.
            set_option(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
            from.set_port(0);
            socket.bind(&from.into())?;
        }
        let socket = Self(Private::new(socket));
        socket.connect_to(to)?;
        Ok(socket)
    }

    /// A socket bound to `addr`, to connect from. A port of earlier connections may be reused.
    pub fn bind(addr: SocketAddr, dscp: Option<u8>) -> io::Result<Self> {
        let socket = Self::stream(&addr)?;
        mark(&socket, &addr, dscp)?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        Ok(Self(Private::new(socket)))
    }

    /// Starts to connect a bound socket, as [`Self::connect`] does.
    pub fn connect_to(&self, to: SocketAddr) -> io::Result<()> {
        match self.0.connect(&SockAddr::from(to)) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the options of a socket that has connected. What is sent before does not wait for it.
    pub fn settle(&self, peer: SocketAddr) -> io::Result<()> {
        Self::prepare(&self.0)?;
        if is_this_host(&peer, &self.0) {
            unpace(&self.0);
        }
        Ok(())
    }

    /// Sets the DSCP of packets sent from now on, if one is given.
    pub fn mark(&self, dscp: Option<u8>) -> io::Result<()> {
        if dscp.is_none() { Ok(()) } else { mark(&self.0, &self.local_addr()?, dscp) }
    }

    /// Sets what all sockets have; those that a listening one accepts inherit it (tcp(7)).
    fn prepare(socket: &Raw) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&KEEPALIVE)
    }

    /// Accepts a connection; `None` if none is pending.
    pub fn accept(&self) -> io::Result<Option<(Self, SocketAddr)>> {
        match self.0.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            Ok((socket, peer)) => {
                let peer = peer.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
                if is_this_host(&peer, &socket) {
                    unpace(&socket);
                }
                Ok(Some((Self(Private::new(socket)), peer)))
            }
            // ECONNABORTED: the peer gave up before the accept, as if it had never connected.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The outcome of connecting; `None` while in progress.
    pub fn connected(&self) -> Option<io::Result<()>> {
        match self.0.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => match self.0.take_error() {
                Ok(Some(error)) | Err(error) => Some(Err(error)),
                Ok(None) => None,
            },
            Err(error) => Some(Err(error)),
        }
    }

    /// This side's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()?.as_socket().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// Sends from the chunks; returns the number of bytes sent.
    pub fn send(&self, chunks: &[Chunk<'_>]) -> io::Result<usize> {
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = chunks.as_ptr().cast_mut().cast();
        message.msg_iovlen = chunks.len();
        // SAFETY: the chunks are laid out as iovecs (asserted above) over memory that is readable
        // as long as they live.
        let sent =
            unsafe { uncancelled::sendmsg(self.0.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        length(sent)
    }

    /// Sends from one slice; returns the number of bytes sent.
    pub fn send_slice(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the slice is readable.
        let sent = unsafe { uncancelled::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        length(sent)
    }

    /// Receives into the chunks; returns the number of bytes, 0 at the end of the stream.
    pub fn recv(&self, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize> {
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = chunks.as_mut_ptr().cast();
        message.msg_iovlen = chunks.len();
        // SAFETY: the chunks are laid out as iovecs (asserted above) over memory that is writable
        // as long as they live.
        let got = unsafe { uncancelled::recvmsg(self.0.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
        length(got)
    }

    /// Receives into one slice; returns the number of bytes, 0 at the end of the stream.
    pub fn recv_slice(&self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the slice is writable.
        let got = unsafe {
            uncancelled::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
        length(got)
    }

    /// Shuts down the sending direction.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.0.shutdown(std::net::Shutdown::Write)
    }

    /// Bytes that the peer's host has not acknowledged.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        let mut count: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes an int.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(count).unwrap_or(0)) }
    }

    /// Responsiveness of the peer's host.
    pub fn health(&self) -> io::Result<Health> {
        // SAFETY: all-zero is a valid tcp_info.
        let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
        let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
        // SAFETY: the kernel writes at most `len` bytes into `info`.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                core::ptr::from_mut(&mut info).cast(),
                &mut len,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Health {
            unanswered: u32::from(info.tcpi_retransmits).max(u32::from(info.tcpi_probes)),
            since_ack: Duration::from_millis(u64::from(info.tcpi_last_ack_recv)),
        })
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn set_option(socket: &Raw, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option takes an int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            core::ptr::from_ref(&value).cast(),
            libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the DSCP of the socket's packets: the upper six bits of the field (RFC 2474).
pub(crate) fn mark(socket: &Raw, addr: &SocketAddr, dscp: Option<u8>) -> io::Result<()> {
    let Some(dscp) = dscp else { return Ok(()) };
    let field = i32::from(dscp) << 2;
    if addr.is_ipv4() {
        return set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, field);
    }
    // For IPv4-mapped peers; a socket that refuses the option has none.
    drop(set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, field));
    set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, field)
}

/// Whether the peer of a connected socket is on this host: both have the same address, or loopback
/// ones.
fn is_this_host(peer: &SocketAddr, socket: &Raw) -> bool {
    let local = || socket.local_addr().ok().and_then(|addr| addr.as_socket());
    peer.ip().is_loopback() || local().is_some_and(|local| local.ip() == peer.ip())
}

/// Takes BBR from a connection within a host, whose bandwidth its pacing halves. Lack of reno is no
/// error.
fn unpace(socket: &Raw) {
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        drop(socket.set_tcp_congestion(b"reno"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Socket, Socket) {
        let listener = Socket::listen("127.0.0.1:0".parse().unwrap(), 8, None).unwrap();
        let client = Socket::connect(listener.local_addr().unwrap(), None, None).unwrap();
        let server = loop {
            if let Some((server, _)) = listener.accept().unwrap() {
                break server;
            }
        };
        assert!(client.connected().unwrap().is_ok());
        client.settle(listener.local_addr().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn both_sides_of_a_connection_have_the_options() {
        let (client, server) = pair();
        for socket in [&client.0, &server.0] {
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            let waits = [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()].map(io::Result::unwrap);
            assert_eq!((waits, socket.tcp_keepalive_retries().unwrap()), ([Duration::from_secs(5); 2], 3));
            assert!(!socket.tcp_congestion().unwrap().starts_with(b"bbr"), "both are on this host");
        }
    }

    #[test]
    fn bytes_travel_and_are_acknowledged() {
        let (client, server) = pair();
        assert_eq!(client.send(&[Chunk::of(b"one"), Chunk::of(b"two")]).unwrap(), 6);
        let mut got = [0u8; 16];
        let count = loop {
            match server.recv(&mut [ChunkMut::of(&mut got)]) {
                Ok(count) => break count,
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EAGAIN)),
            }
        };
        assert_eq!(&got[..count], b"onetwo");
        while client.unacknowledged().unwrap() > 0 {
            std::hint::spin_loop();
        }
        assert_eq!(client.health().unwrap().unanswered, 0);
    }

    #[test]
    fn acknowledged_bytes_are_readable_after_a_reset() {
        let (client, server) = pair();
        server.send_slice(b"never read").unwrap();
        client.send_slice(b"accepted").unwrap();
        while client.unacknowledged().unwrap() > 0 {
            std::hint::spin_loop();
        }
        drop(client);
        let mut got = [0u8; 16];
        assert_eq!(server.recv_slice(&mut got).unwrap(), 8);
    }

    #[test]
    fn a_closed_port_refuses() {
        let addr = {
            let listener = Socket::listen("127.0.0.1:0".parse().unwrap(), 8, None).unwrap();
            listener.local_addr().unwrap()
        };
        let outcome = match Socket::connect(addr, None, None) {
            Err(error) => error,
            Ok(socket) => loop {
                if let Some(outcome) = socket.connected() {
                    break outcome.unwrap_err();
                }
            },
        };
        assert_eq!(outcome.raw_os_error(), Some(libc::ECONNREFUSED));
    }
}
