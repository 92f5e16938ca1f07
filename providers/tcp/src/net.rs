//! What the transport needs from the network: sockets and news of them. The system's in [`System`], a simulated one
//! in the tests, so that the whole of the transport runs under split reads, stalls and broken connections.

use ofi_core::Instant;
use ofi_core::wait::Descriptor;
use ofi_memory::{Chunk, ChunkMut};
use ofi_os::poller::{Event, Interest, Poller};
use ofi_os::socket::{Health, Socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Stream sockets that never block.
pub trait Net: Send + 'static {
    /// A socket; closed when dropped.
    type Socket: Send + 'static;

    /// Listens at an address; port 0 lets the system choose.
    fn listen(&mut self, addr: SocketAddr) -> io::Result<Self::Socket>;
    /// Begins to connect, from the address of an interface if given; its port is not used.
    fn connect(&mut self, to: SocketAddr, from: Option<SocketAddr>) -> io::Result<Self::Socket>;
    /// A socket with an address, to connect from it; port 0 lets the system choose.
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Self::Socket>;
    /// Begins to connect such a socket.
    fn connect_bound(&mut self, socket: &Self::Socket, to: SocketAddr) -> io::Result<()>;
    /// A connection that somebody made, if any.
    fn accept(&mut self, listener: &Self::Socket) -> io::Result<Option<(Self::Socket, SocketAddr)>>;
    /// What became of connecting; `None` while it goes on.
    fn connected(&self, socket: &Self::Socket) -> Option<io::Result<()>>;
    /// Takes in a connection that another set of sockets accepted.
    fn take_over(&mut self, _socket: &Self::Socket) -> io::Result<()> {
        Ok(())
    }
    /// This side's address.
    fn local_addr(&self, socket: &Self::Socket) -> io::Result<SocketAddr>;
    /// Sends; how many bytes went.
    fn send(&self, socket: &Self::Socket, chunks: &[Chunk<'_>]) -> io::Result<usize>;
    /// Sends one slice; how many bytes went.
    fn send_slice(&self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;
    /// Receives; how many bytes came, 0 at the end.
    fn recv(&self, socket: &Self::Socket, chunks: &mut [ChunkMut<'_>]) -> io::Result<usize>;
    /// Receives into one slice; how many bytes came, 0 at the end.
    fn recv_slice(&self, socket: &Self::Socket, bytes: &mut [u8]) -> io::Result<usize>;
    /// Sends nothing more.
    fn shutdown_write(&self, socket: &Self::Socket) -> io::Result<()>;
    /// Bytes that the peer's host has not acknowledged.
    fn unacknowledged(&self, socket: &Self::Socket) -> io::Result<usize>;
    /// How well the peer's host answers.
    fn health(&self, socket: &Self::Socket) -> io::Result<Health>;
    /// Watches a socket.
    fn watch(&mut self, socket: &Self::Socket, interest: Interest, key: u64) -> io::Result<()>;
    /// Watches a socket for something else.
    fn rewatch(&mut self, socket: &Self::Socket, interest: Interest, key: u64) -> io::Result<()>;
    /// No longer watches a socket.
    fn unwatch(&mut self, socket: &Self::Socket);
    /// Appends news; waits up to `timeout` for the first.
    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>);
    /// What becomes readable when there is news.
    fn descriptor(&self) -> Option<Descriptor>;
    /// The present.
    fn now(&self) -> Instant;
    /// Whether an address is one of this host.
    fn is_own(&self, ip: IpAddr) -> bool;
    /// A random number that nobody can guess.
    fn random(&mut self) -> [u8; 16];
}

/// The system's sockets.
#[derive(Debug)]
pub struct System {
    poller: Poller,
    /// What packets are marked with.
    dscp: Option<u8>,
}

impl System {
    /// A set of sockets with its own epoll descriptor.
    pub fn new() -> io::Result<Self> {
        Self::marked(None)
    }

    /// The same, whose packets carry a code point of differentiated services.
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
            // The system has marked it like the listener already, but does not promise to.
            drop(socket.mark(self.dscp));
        }
        Ok(accepted)
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
        // Fails only if it is not watched, which is what is wanted.
        drop(self.poller.remove(socket.as_raw_fd()));
    }

    fn news(&mut self, timeout: Duration, news: &mut Vec<Event>) {
        // The descriptor is ours and valid: only EINTR can come, and that ends the wait early.
        drop(self.poller.wait(Some(timeout), |event| news.push(event)));
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.poller.as_raw_fd())
    }

    fn now(&self) -> Instant {
        ofi_os::clock::now()
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        ofi_os::netif::interfaces().iter().any(|interface| interface.addr.ip() == ip)
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }
}
