//! What listens for a passive endpoint: accepts, reads the hello, and waits for the application's answer.

use crate::net::Net;
use crate::reader::{Reader, Record};
use crate::transport::Pending;
use crate::writer::Writer;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Error, Instant};
use ofi_engine::transport::{Asked, Listener};
use ofi_os::poller::{Event, Interest};
use slab::Slab;
use std::time::Duration;

const LISTENER: u64 = u64::MAX;
/// Connections that have not said hello, at most; the oldest goes first.
const MOST_SILENT: usize = 1024;
/// How long a refused connection may take to end.
const REFUSED: Duration = Duration::from_secs(5);

struct Conn<S> {
    socket: S,
    remote: Addr,
    reader: Reader,
    /// Set once the connection has been refused: what is still to be sent, and until when.
    refused: Option<(Writer, Instant)>,
}

/// A listening socket and the connections on it that nobody has taken over.
pub struct TcpListener<N: Net> {
    socket: N::Socket,
    local: Addr,
    conns: Slab<Conn<N::Socket>>,
    news: Vec<Event>,
    net: N,
}

impl<N: Net> core::fmt::Debug for TcpListener<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local).finish_non_exhaustive()
    }
}

impl<N: Net> TcpListener<N> {
    /// Listens at `addr`. If that is every interface, peers are told `advertise`.
    pub fn new(mut net: N, addr: Addr, advertise: Option<std::net::IpAddr>) -> Result<Self> {
        let doing = || format!("listen at {}", addr.socket());
        let socket = net.listen(addr.socket()).map_err(|error| Error::os(error, doing()))?;
        let mut bound = net.local_addr(&socket).map_err(|error| Error::os(error, doing()))?;
        if let (true, Some(ip)) = (bound.ip().is_unspecified(), advertise) {
            bound.set_ip(ip);
        }
        net.watch(&socket, Interest::Read, LISTENER).map_err(|error| Error::os(error, doing()))?;
        Ok(Self { socket, local: Addr::from(bound), conns: Slab::new(), news: Vec::new(), net })
    }

    fn accept_all(&mut self) {
        // Out of descriptors: the connection stays in the backlog until there are some.
        while let Ok(Some((socket, from))) = self.net.accept(&self.socket) {
            let mut silent = self.conns.iter().filter(|(_, conn)| conn.refused.is_none()).map(|(key, _)| key);
            let oldest = silent.next();
            if let (true, Some(oldest)) = (silent.count() + 1 >= MOST_SILENT, oldest) {
                self.conns.remove(oldest);
            }
            let key = self.conns.vacant_key();
            if self.net.watch(&socket, Interest::Read, key as u64).is_ok() {
                let conn = Conn { socket, remote: Addr::from(from), reader: Reader::default(), refused: None };
                self.conns.insert(conn);
            }
        }
    }

    /// Reads a connection: its hello, or the end of one that was refused.
    fn read(&mut self, key: usize, asked: &mut Vec<Asked<Pending<N::Socket>>>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let mut bytes = [0u8; 1024];
        let count = match self.net.recv_slice(&conn.socket, &mut bytes) {
            Ok(0) => {
                self.conns.remove(key);
                return;
            }
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => {
                self.conns.remove(key);
                return;
            }
        };
        if conn.refused.is_some() {
            return;
        }
        let hello = match conn.reader.next(&bytes[..count]) {
            Ok((Record::Nothing, _)) => return,
            Ok((Record::Greeting(hello), used)) if used == count => hello.to_vec(),
            // Whoever says anything else, or goes on before the answer, is not one of us.
            _ => {
                self.conns.remove(key);
                return;
            }
        };
        let conn = self.conns.remove(key);
        let to = self.net.local_addr(&conn.socket).map_or(self.local, Addr::from);
        let request = Pending { socket: conn.socket, remote: conn.remote, reader: conn.reader };
        self.net.unwatch(&request.socket);
        asked.push(Asked { request, hello, from: conn.remote, to });
    }

    fn push_refusal(net: &N, conn: &mut Conn<N::Socket>) {
        if let Some((writer, _)) = &mut conn.refused {
            while !writer.is_empty() {
                match writer.with_chunks(|chunks| net.send(&conn.socket, chunks)) {
                    Ok(count) => writer.advance(count, |_, _| ()),
                    Err(_) => return,
                }
            }
            // Fails only on a connection that is gone already.
            drop(net.shutdown_write(&conn.socket));
        }
    }
}

impl<N: Net> Listener for TcpListener<N> {
    type Request = Pending<N::Socket>;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn poll(&mut self, asked: &mut Vec<Asked<Self::Request>>) -> bool {
        let mut news = core::mem::take(&mut self.news);
        self.net.news(Duration::ZERO, &mut news);
        let any = !news.is_empty();
        for event in news.drain(..) {
            match usize::try_from(event.key) {
                _ if event.key == LISTENER => self.accept_all(),
                Ok(key) => self.read(key, asked),
                Err(_) => {}
            }
        }
        self.news = news;
        if self.next_deadline().is_some() {
            let now = self.net.now();
            self.conns.retain(|_, conn| conn.refused.as_ref().is_none_or(|(_, deadline)| now < *deadline));
        }
        any
    }

    fn refuse(&mut self, request: Self::Request, hello: &[u8]) {
        let Pending { socket, remote, reader } = request;
        let mut writer = Writer::default();
        writer.greet(hello);
        let deadline = self.net.now() + REFUSED;
        let mut conn = Conn { socket, remote, reader, refused: Some((writer, deadline)) };
        Self::push_refusal(&self.net, &mut conn);
        let key = self.conns.vacant_key();
        // Without news of it the connection ends by its deadline.
        drop(self.net.watch(&conn.socket, Interest::Read, key as u64));
        self.conns.insert(conn);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.conns.iter().filter_map(|(_, conn)| conn.refused.as_ref().map(|(_, deadline)| *deadline)).min()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.net.descriptor()
    }
}
