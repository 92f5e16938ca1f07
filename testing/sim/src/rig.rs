//! Endpoints in a simulated network, for tests that script each step.

use crate::{SimNet, World};
use ofi_core::{Addr, BindFlags, Caps, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint, Opener};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::wire::hello::EndpointKind;
use ofi_engine::{AddressVector, CompletionQueue, Waiting};
use ofi_memory::Buffer;
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// An endpoint of the simulated network.
pub type Ep = Endpoint<TcpTransport<SimNet>, Park>;

/// The address of a port on the host 10.0.0.`host`.
pub fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host), port)
}

/// The host 10.0.0.`host`.
pub fn ip(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

/// The configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that it listens on.
    pub at: SocketAddr,
    /// The addresses of its host if there are several: it listens on all of them, advertises the
    /// first and connects from the last.
    pub hosts: Vec<IpAddr>,
    /// Maximum memory held for peers, in bytes.
    pub limit: usize,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Its nonce.
    pub nonce: [u8; 16],
}

impl Options {
    /// An endpoint at an address, with the default limits.
    pub fn at(at: SocketAddr) -> Self {
        let mut nonce = [at.port().to_le_bytes()[0]; 16];
        if let IpAddr::V4(ip) = at.ip() {
            nonce[..4].copy_from_slice(&ip.octets());
        }
        Self { at, hosts: Vec::new(), limit: 256 << 20, tx_size: 1024, nonce }
    }
}

/// How an operation ended.
pub type Outcome = Result<Completion, Box<Failure>>;

/// An endpoint with its queue and its address vector.
#[derive(Debug)]
pub struct Node {
    /// The endpoint.
    pub ep: Arc<Ep>,
    /// Its completion queue.
    pub cq: Arc<CompletionQueue<Park>>,
    /// Its address vector.
    pub av: Arc<AddressVector>,
    /// The account of memory held for its peers.
    pub account: Arc<Account>,
    outcomes: HashMap<usize, Outcome>,
    next: usize,
}

impl Node {
    /// Opens an endpoint.
    pub fn open(world: &World, options: &Options) -> Self {
        let Options { at, hosts, limit, tx_size, nonce } = options.clone();
        let account = Arc::new(Account::new(limit));
        let config = Config {
            kind: EndpointKind::Rdm,
            caps: Caps::MSG
                | Caps::TAGGED
                | Caps::SEND
                | Caps::RECV
                | Caps::DIRECTED_RECV
                | Caps::SOURCE
                | Caps::MULTI_RECV
                | Caps::TAGGED_MULTI_RECV,
            tx_size,
            rx_size: 1 << 20,
            limits: Limits::new(usize::MAX, 4096),
            nonce,
            provider: "sim",
            account: account.clone(),
        };
        let (world_of, charged) = (world.clone(), account.clone());
        let opener: Opener<TcpTransport<SimNet>> = Box::new(move |_| {
            let (net, at) = match hosts.first() {
                Some(_) => (world_of.net_of_many(&hosts), SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port())),
                None => (world_of.net_of(at.ip()), at),
            };
            let advertise = hosts.first().copied();
            let settings = Settings { advertise, account: charged.clone(), ..Settings::default() };
            TcpTransport::listening(net, Addr::from(at), settings)
        });
        let ep = Ep::new(Park, config, None, opener, None);
        let cq = Arc::new(CompletionQueue::new(Park, 64, world.port(), Waiting::Sleeping));
        let av = Arc::new(AddressVector::new(4, false));
        ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        ep.bind_av(&av).expect("the first address vector");
        ep.enable().expect("everything is bound");
        Self { ep, cq, av, account, outcomes: HashMap::new(), next: 1 }
    }

    /// The address of the endpoint.
    pub fn addr(&self) -> Addr {
        self.ep.local_addr().expect("it is open")
    }

    /// Inserts a peer into the address vector.
    pub fn know(&self, peer: impl Into<Addr>) -> FiAddr {
        self.av.insert(peer.into())
    }

    fn context(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Sends a tagged message; returns its context.
    ///
    /// # Errors
    /// `AGAIN` if too many are outstanding.
    pub fn try_send(&mut self, to: FiAddr, tag: u64, bytes: Vec<u8>, flags: OpFlags) -> Result<usize, Errno> {
        let context = self.context();
        let buffer = Buffer::Owned(bytes);
        let op = SendOp { dest: to, buffer, context, tag: Some(tag), data: None, flags, inject: false };
        self.ep.send(op).map(|()| context)
    }

    /// Sends a tagged message while few are outstanding; returns its context.
    pub fn send(&mut self, to: FiAddr, tag: u64, bytes: Vec<u8>) -> usize {
        self.try_send(to, tag, bytes, OpFlags::empty()).expect("few are outstanding")
    }

    /// Posts a receive for a tag from `src`; returns its context.
    pub fn receive(&mut self, src: FiAddr, tag: u64, len: usize) -> usize {
        self.receive_into(src, tag, Buffer::Owned(vec![0; len]), OpFlags::empty())
    }

    /// Posts a receive into a given buffer, with flags; returns its context.
    pub fn receive_into(&mut self, src: FiAddr, tag: u64, buffer: Buffer, flags: OpFlags) -> usize {
        let context = self.context();
        let op = RecvOp { src, buffer, context, tag: Some((tag, 0)), flags };
        self.ep.receive(op).expect("few are posted");
        context
    }

    /// Makes progress and records the outcomes of completed operations.
    pub fn progress(&mut self) {
        loop {
            let mut done = Vec::new();
            match self.cq.read(64, |completion| done.push(*completion)) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    assert_eq!(errno, Errno::EAVAIL);
                    let failure = self.cq.read_error().expect("EAVAIL means that there is an error");
                    let before = self.outcomes.insert(failure.completion.context, Err(Box::new(failure)));
                    assert!(before.is_none(), "an operation completes once");
                }
            }
            for completion in done {
                let before = self.outcomes.insert(completion.context, Ok(completion));
                let several = completion.flags.intersects(OpFlags::RECV | OpFlags::MULTI_RECV)
                    && before.as_ref().is_some_and(Result::is_ok);
                assert!(before.is_none() || several, "an operation completes once");
            }
        }
    }

    /// How an operation ended, if it has.
    pub fn outcome(&self, context: usize) -> Option<&Outcome> {
        self.outcomes.get(&context)
    }

    /// Whether an operation has succeeded.
    pub fn is_done(&self, context: usize) -> bool {
        matches!(self.outcome(context), Some(Ok(_)))
    }
}

/// Makes nodes progress and advances the clock until a condition holds. False if it never does.
pub fn until(world: &World, nodes: &mut [&mut Node], mut is_so: impl FnMut(&mut [&mut Node]) -> bool) -> bool {
    for _ in 0..5000 {
        nodes.iter_mut().for_each(|node| node.progress());
        if is_so(nodes) {
            return true;
        }
        world.advance(Duration::from_micros(50));
    }
    false
}

/// Exchanges one message in each direction.
///
/// # Panics
/// If one of them does not arrive.
pub fn ping_pong(world: &World, a: &mut Node, b: &mut Node, to_b: FiAddr, to_a: FiAddr) {
    let tag = 0xabba;
    let (ping, pong) = (b.receive(FiAddr::UNSPEC, tag, 8), a.receive(FiAddr::UNSPEC, tag, 8));
    a.send(to_b, tag, vec![1; 8]);
    b.send(to_a, tag, vec![2; 8]);
    let both = until(world, &mut [a, b], |nodes| nodes[0].is_done(pong) && nodes[1].is_done(ping));
    assert!(both, "a ping-pong stops:\n{}\n{}", a.ep.describe(), b.ep.describe());
}
