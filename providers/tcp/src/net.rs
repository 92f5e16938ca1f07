//! The sockets and readiness events that the transport needs: the kernel's in [`System`]; tests
//! simulate them, to run the whole transport under split reads, stalls and broken connections.

use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_memory::{Chunk, ChunkMut};
use ofi_os::poller::{Event, Interest, Poller};
use ofi_os::socket::{Health, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Non-blocking stream sockets.
pub trait Net: Send + 'static {
    /// A socket; closed when dropped.
    type Socket: Send + 'static;
    /// Payloads are aligned on the stream as in memory, because the system copies them faster then.
    /// Not in a simulated network, where a run must not depend on addresses.
    const ALIGNS: bool = true;

    /// Listens at an address; port 0 lets the system choose.
    fn listen(&mut self, addr: SocketAddr) -> io::Result<Self::Socket>;
    /// Starts to connect, from the interface address `from` if given; its port is ignored.
    fn connect(&mut self, to: SocketAddr, from: Option<SocketAddr>) -> io::Result<Self::Socket>;
    /// Binds a socket to connect from; port 0 lets the system choose.
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Self::Socket>;
    /// Starts to connect a socket from [`Self::bind`].
    fn connect_bound(&mut self, socket: &Self::Socket, to: SocketAddr) -> io::Result<()>;
    /// Accepts a connection; `None` if none is waiting.
    fn accept(&mut self, listener: &Self::Socket) -> io::Result<Option<(Self::Socket, SocketAddr)>>;
    /// The outcome of connecting; `None` while it is in progress.
    fn connected(&self, socket: &Self::Socket) -> Option<io::Result<()>>;
    /// Sets the options of a socket that has connected to `peer`; the hello has been sent.
    fn settle(&self, socket: &Self::Socket, peer: SocketAddr) -> io::Result<()>;
    /// Takes over a connection that another `Net` accepted.
    fn take_over(&mut self, _socket: &Self::Socket) -> io::Result<()> {
        Ok(())
    }
    /// The socket's local address.
    fn local_addr(&self, socket: &Self::Socket) -> io::Result<SocketAddr>;
    /// Sends; returns the number of bytes sent.
    fn send(&self, socket: &Self::Socket, chunks: &[Chunk<'_>]) -> io::Result<usize>;
    /// Sends one slice; returns the number of bytes sent.
    fn send_slice(&self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;
    /// Receives; returns the number of bytes received, 0 at the end of the stream.
    fn recv(&self, socket: &Self::Socket, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize>;
    /// Receives into one slice; returns the number of bytes received, 0 at the end of the stream.
    fn recv_slice(&self, socket: &Self::Socket, bytes: &mut [u8]) -> io::Result<usize>;
    /// Shuts down the write side.
    fn shutdown_write(&self, socket: &Self::Socket) -> io::Result<()>;
    /// Bytes that the peer's host has not acknowledged.
    fn unacknowledged(&self, socket: &Self::Socket) -> io::Result<usize>;
    /// Unanswered probes of the peer's host, and the time since its last acknowledgment.
    fn health(&self, socket: &Self::Socket) -> io::Result<Health>;
    /// Watches a socket; its events carry `key`.
    fn watch(&mut self, socket: &Self::Socket, interest: Interest, key: u64) -> io::Result<()>;
    /// Changes a watched socket's interest and key.
    fn rewatch(&mut self, socket: &Self::Socket, interest: Interest, key: u64) -> io::Result<()>;
    /// Stops watching a socket.
    fn unwatch(&mut self, socket: &Self::Socket);
    /// Appends pending events; waits up to `timeout` for the first.
    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>);
    /// The descriptor that is readable while events are pending.
    fn descriptor(&self) -> Option<Descriptor>;
    /// The current time.
    fn now(&self) -> Instant;
    /// Whether an address belongs to this host.
    fn is_own(&self, ip: IpAddr) -> bool;
    /// An unpredictable random number.
    fn random(&mut self) -> [u8; 16];
}

/// Whether a connection from `from` proves that its peer has the name: it comes from the name's
/// host. A loopback peer may have any address of this host.
pub(crate) fn vouches(net: &impl Net, name: &Addr, from: &Addr) -> bool {
    let (name, from) = (name.canonical().socket().ip(), from.canonical().socket().ip());
    name == from || from.is_loopback() && net.is_own(name)
}

/// The system's sockets.
#[derive(Debug)]
pub struct System {
    poller: Poller,
    /// The code point (DSCP) of all packets, if set.
    dscp: Option<u8>,
}

impl System {
    /// A set of sockets with its own epoll descriptor.
    pub fn new() -> io::Result<Self> {
        Self::marked(None)
    }

    /// Like [`Self::new`], with packets marked `dscp` (differentiated services code point).
    pub fn marked(dscp: Option<u8>) -> io::Result<Self> {
        Poller::new().map(|poller| Self { poller, dscp })
    }
}

impl Net for System {
    type Socket = Socket;

    fn listen(&mut self, addr: SocketAddr) -> io::Result<Socket> {
        Socket::listen(addr, 4096, self.dscp)
    }

    fn connect(&mut self, to: SocketAddr, from: Option<SocketAddr>) -> io::Result<Socket> {
        Socket::connect(to, from, self.dscp)
    }

    fn bind(&mut self, addr: SocketAddr) -> io::Result<Socket> {
        Socket::bind(addr, self.dscp)
    }

    fn connect_bound(&mut self, socket: &Socket, to: SocketAddr) -> io::Result<()> {
        socket.connect_to(to)
    }

    fn accept(&mut self, listener: &Socket) -> io::Result<Option<(Socket, SocketAddr)>> {
        let accepted = listener.accept()?;
        if let Some((socket, _)) = &accepted {
            // The socket has inherited the listener's mark, but the kernel does not promise that.
            drop(socket.mark(self.dscp));
        }
        Ok(accepted)
    }

    fn settle(&self, socket: &Socket, peer: SocketAddr) -> io::Result<()> {
        socket.settle(peer)
    }

    fn take_over(&mut self, socket: &Socket) -> io::Result<()> {
        socket.mark(self.dscp)
    }

    fn connected(&self, socket: &Socket) -> Option<io::Result<()>> {
        socket.connected()
    }

    fn local_addr(&self, socket: &Socket) -> io::Result<SocketAddr> {
        socket.local_addr()
    }

    #[inline]
    fn send(&self, socket: &Socket, chunks: &[Chunk<'_>]) -> io::Result<usize> {
        socket.send(chunks)
    }

    #[inline]
    fn send_slice(&self, socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
        socket.send_slice(bytes)
    }

    #[inline]
    fn recv(&self, socket: &Socket, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize> {
        socket.recv(chunks)
    }

    #[inline]
    fn recv_slice(&self, socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
        socket.recv_slice(bytes)
    }

    fn shutdown_write(&self, socket: &Socket) -> io::Result<()> {
        socket.shutdown_write()
    }

    fn unacknowledged(&self, socket: &Socket) -> io::Result<usize> {
        socket.unacknowledged()
    }

    fn health(&self, socket: &Socket) -> io::Result<Health> {
        socket.health()
    }

    fn watch(&mut self, socket: &Socket, interest: Interest, key: u64) -> io::Result<()> {
        self.poller.add(socket.as_raw_fd(), interest, key)
    }

    fn rewatch(&mut self, socket: &Socket, interest: Interest, key: u64) -> io::Result<()> {
        self.poller.modify(socket.as_raw_fd(), interest, key)
    }

    fn unwatch(&mut self, socket: &Socket) {
        // Fails only if the socket is not watched, which is the desired state.
        drop(self.poller.remove(socket.as_raw_fd()));
    }

    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>) {
        // The descriptor is ours and valid: the only error is EINTR, which ends the wait early.
        drop(self.poller.wait(Some(timeout), |event| news.push(event)));
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.poller.as_raw_fd())
    }

    fn now(&self) -> Instant {
        ofi_os::clock::now()
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        ofi_os::netif::interfaces().is_ok_and(|all| all.iter().any(|interface| interface.addr.ip() == ip))
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }
}
