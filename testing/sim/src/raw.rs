//! A peer on a socket of the simulated network whose hellos, frames and bytes are scripted by a
//! test.

use crate::{SimNet, SimSocket, World};
use ofi_core::Addr;
use ofi_engine::transport::Incoming;
use ofi_engine::wire::frame::{Frame, Violation};
use ofi_engine::wire::hello::{Contexts, Credits, EndpointKind, Handshake, Hello};
use ofi_tcp::net::Net;
use ofi_tcp::reader::{Reader, Record};
use ofi_tcp::writer::Writer;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// A message that such a peer receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A hello.
    Hello(Box<Hello>),
    /// A frame and its payload.
    Frame(Frame, Vec<u8>),
    /// The connection has ended, in order or not.
    End,
}

/// A peer scripted by a test.
#[derive(Debug)]
pub struct Raw {
    net: SimNet,
    socket: SimSocket,
    reader: Reader,
    writer: Writer,
}

/// The listener of such a peer.
#[derive(Debug)]
pub struct Door {
    net: SimNet,
    listener: SimSocket,
}

impl Door {
    /// Listens at an address.
    pub fn open(world: &World, at: SocketAddr) -> Self {
        let mut net = world.net_of(at.ip());
        let listener = net.listen(at).expect("the address is free");
        Self { net, listener }
    }

    /// Accepts the next connection, if any.
    pub fn accept(&mut self, world: &World) -> Option<Raw> {
        let (socket, _) = self.net.accept(&self.listener).expect("accepting works")?;
        let host = self.net.local_addr(&socket).expect("it has an address").ip();
        Some(Raw { net: world.net_of(host), socket, reader: Reader::default(), writer: Writer::default() })
    }
}

/// A connect hello that claims `name`, with a nonce and generous credits.
pub fn connect_hello(name: Addr, nonce: [u8; 16]) -> Hello {
    Hello {
        handshake: Handshake::Connect,
        kind: EndpointKind::Rdm,
        nonce,
        attempt: 1,
        cookie: [0x55; 16],
        contexts: Contexts::default(),
        credits: Credits { bytes: 1 << 30, eager: 256 << 10, requests: 64, preview: 0 },
        name: Some(name),
        data: Vec::new(),
    }
}

impl Raw {
    /// Connects from a host.
    pub fn connect(world: &World, host: IpAddr, to: SocketAddr) -> Self {
        let mut net = world.net_of(host);
        let socket = net.connect(to, None).expect("a socket");
        Self { net, socket, reader: Reader::default(), writer: Writer::default() }
    }

    /// Its source address.
    pub fn addr(&self) -> Addr {
        Addr::from(self.net.local_addr(&self.socket).expect("it has an address"))
    }

    /// Queues a hello.
    pub fn hello(&mut self, hello: &Hello) {
        self.writer.push_hello(&hello.encode());
    }

    /// Queues a frame.
    pub fn frame(&mut self, frame: &Frame, payload: &[u8]) {
        self.begin_frame(frame, payload.len(), payload);
    }

    /// Queues a frame whose payload has `len` bytes, but of the payload only its first bytes.
    pub fn begin_frame(&mut self, frame: &Frame, len: usize, first: &[u8]) {
        let head = self.writer.head(&frame.encode(), len, 0);
        self.writer.push_bytes(head.bytes());
        self.writer.push_bytes(first);
    }

    /// Queues raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.writer.push_bytes(bytes);
    }

    /// Sends queued bytes as far as there is room. False if the connection is lost.
    pub fn send(&mut self) -> bool {
        while !self.writer.is_empty() {
            let Self { net, socket, writer, .. } = self;
            match writer.with_chunks(|chunks| net.send(socket, chunks)) {
                Ok(count) => writer.advance(count, |_, _| ()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether some queued bytes have not been sent.
    pub fn is_behind(&self) -> bool {
        !self.writer.is_empty()
    }

    /// Reads the messages that have arrived.
    pub fn read(&mut self) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let mut bytes = vec![0; 64 << 10];
            let outcome = self.net.recv_slice(&self.socket, &mut bytes);
            match self.take(outcome.map(|count| &bytes[..count]), &mut received) {
                Ok(true) => {}
                Ok(false) => return received,
                Err(violation) => panic!("the endpoint broke the protocol: {violation:?}"),
            }
        }
    }

    fn take(&mut self, outcome: io::Result<&[u8]>, received: &mut Vec<Received>) -> Result<bool, Violation> {
        let mut bytes = match outcome {
            Ok([]) => {
                received.push(Received::End);
                return Ok(false);
            }
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(_) => {
                received.push(Received::End);
                return Ok(false);
            }
        };
        loop {
            let mut coming = None;
            let (record, used) = self.reader.next(bytes)?;
            match record {
                Record::Nothing if used == bytes.len() => return Ok(true),
                Record::Nothing => {}
                Record::Placed => drop(self.reader.take_placed()),
                Record::Hello(hello) => received.push(Received::Hello(Box::new(Hello::parse(hello)?))),
                Record::Frame(header, Incoming::Complete(payload)) => {
                    received.push(Received::Frame(Frame::parse(header)?, payload.to_vec()));
                }
                Record::Frame(header, Incoming::Streaming(len)) => {
                    received.push(Received::Frame(Frame::parse(header)?, Vec::new()));
                    coming = Some(len);
                }
            }
            bytes = &bytes[used..];
            if let Some(len) = coming {
                // Discard long payloads.
                self.reader.place(None, len);
            }
        }
    }
}
