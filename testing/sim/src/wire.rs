//! The smallest transport there is: frames in a queue in memory. What a message costs over it is what the engine
//! costs. Small payloads only.

use arrayvec::ArrayVec;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_engine::frame::Header;
use ofi_engine::transport::{
    Arriving, Finish, Flush, LinkId, Payload, Place, Sink, Submitted, Transport, Urgency, Verdict,
};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest payload, in bytes.
pub const MOST: usize = 64;

#[derive(Debug)]
enum Item {
    Ask(Vec<u8>),
    Answer(Vec<u8>),
    Frame(Header, ArrayVec<u8, MOST>),
}

type Queue = Arc<Mutex<VecDeque<Item>>>;

/// One end of a wire.
#[derive(Debug)]
pub struct Wire {
    local: Addr,
    remote: Addr,
    outgoing: Queue,
    incoming: Queue,
    scratch: Vec<u8>,
}

/// The only link of a wire.
const LINK: LinkId = LinkId(0);

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Item>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    /// Both ends of a wire, at these addresses.
    pub fn pair(a: Addr, b: Addr) -> (Self, Self) {
        let (left, right) = (Queue::default(), Queue::default());
        let end = |local, remote, outgoing: &Queue, incoming: &Queue| Self {
            local,
            remote,
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            scratch: Vec::new(),
        };
        (end(a, b, &left, &right), end(b, a, &right, &left))
    }
}

impl Transport for Wire {
    type Request = ();

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn remote_addr(&self, _link: LinkId) -> Option<Addr> {
        Some(self.remote)
    }

    fn connect(&mut self, _to: &Addr, hello: &[u8]) -> Result<LinkId> {
        lock(&self.outgoing).push_back(Item::Ask(hello.to_vec()));
        Ok(LINK)
    }

    fn adopt(&mut self, (): (), _hello: &[u8]) -> Result<LinkId> {
        Ok(LINK)
    }

    #[inline]
    fn submit(&mut self, _link: LinkId, header: &Header, payload: Option<Payload<'_>>, _urgency: Urgency) -> Submitted {
        self.scratch.clear();
        if let Some(Payload { buffer: Some(buffer), from, len, .. }) = payload {
            buffer.append_to(from, len, &mut self.scratch);
        }
        let Ok(bytes) = ArrayVec::try_from(&self.scratch[..]) else { return Submitted::Broken };
        lock(&self.outgoing).push_back(Item::Frame(*header, bytes));
        Submitted::Done
    }

    #[inline]
    fn poll(&mut self, sink: &mut impl Sink) -> bool {
        let mut any = false;
        loop {
            let Some(item) = lock(&self.incoming).pop_front() else { return any };
            any = true;
            match item {
                Item::Frame(header, payload) => {
                    let place = sink.frame(LINK, &header, Arriving::Here(&payload));
                    assert!(matches!(place, Ok(Place::Done)), "a peer in the same process keeps the protocol");
                }
                Item::Ask(hello) => match sink.incoming(LINK, &hello, &self.remote) {
                    Verdict::Accept(answer) | Verdict::Refuse(answer) => {
                        lock(&self.outgoing).push_back(Item::Answer(answer));
                    }
                },
                Item::Answer(hello) => {
                    assert!(sink.answered(LINK, &hello).is_ok(), "a peer in the same process accepts");
                }
            }
        }
    }

    fn flush(&mut self, _how: Flush, _sink: &mut impl Sink) {}

    fn wait(&mut self, _timeout: Duration) {}

    fn finish(&mut self, _link: LinkId) -> Finish {
        Finish::Done
    }

    fn abandon(&mut self, _link: LinkId, _sink: &mut impl Sink) {}

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_busy(&self) -> bool {
        // It has no descriptor that could tell of news.
        true
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }
}

/// Two endpoints at the ends of a wire, each with its queue and the other's handle 0.
pub mod pair {
    use super::{MOST, Wire};
    use crate::{Faults, World};
    use ofi_core::{Addr, BindFlags, Caps, FiAddr, OpFlags};
    use ofi_engine::endpoint::{Config, Endpoint};
    use ofi_engine::hello::Speaker;
    use ofi_engine::op::{Posts, RecvOp, SendOp};
    use ofi_engine::{AddressVector, CompletionQueue, Waiting};
    use ofi_memory::Buffer;
    use ofi_sync::lock::Park;
    use std::net::SocketAddr;
    use std::sync::Arc;

    /// One of the two.
    #[derive(Debug)]
    pub struct Side {
        /// The endpoint.
        pub ep: Arc<Endpoint<Wire, Park>>,
        /// Its queue.
        pub cq: Arc<CompletionQueue<Park>>,
    }

    fn side(mut wire: Option<Wire>, nonce: u8, peer: Addr, world: &World) -> Side {
        let config = Config {
            speaker: Speaker::Rdm,
            caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
            tx_size: 64,
            rx_size: 64,
            inject_size: MOST,
            nonce: [nonce; 16],
            provider: "wire",
        };
        let opener = Box::new(move |_| Ok(wire.take().expect("opened once")));
        let ep = Endpoint::new(Park, config, None, opener, None);
        let cq = Arc::new(CompletionQueue::new(Park, 64, world.port(), Waiting::Never));
        let av = Arc::new(AddressVector::new(1, false));
        av.insert(peer);
        ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        ep.bind_av(&av).expect("the first address vector");
        ep.enable().expect("everything is bound");
        Side { ep, cq }
    }

    /// Both.
    pub fn new() -> (Side, Side) {
        let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
        let world = World::new(0, Faults { stall: 0, split: false });
        let (left, right) = Wire::pair(addr(1), addr(2));
        (side(Some(left), 1, addr(2), &world), side(Some(right), 2, addr(1), &world))
    }

    /// Sends, matches, completes and reads one tagged message from `a` to `b`.
    #[inline]
    pub fn message(a: &Side, b: &Side, from: Buffer, to: Buffer) {
        let receive =
            RecvOp { src: FiAddr::UNSPEC, buffer: to, context: 2, tag: Some((7, 0)), flags: OpFlags::empty() };
        b.ep.receive(receive).expect("there is room");
        let (dest, flags) = (FiAddr(0), OpFlags::empty());
        let send = SendOp { dest, buffer: from, context: 1, tag: Some(7), data: None, flags, quiet: false };
        a.ep.send(send).expect("there is room");
        let (mut sent, mut got) = (0, 0);
        while sent + got < 2 {
            sent += a.cq.read(1, |done| assert_eq!(done.context, 1)).unwrap_or(0);
            got += b.cq.read(1, |done| assert_eq!((done.context, done.len), (2, 8))).unwrap_or(0);
        }
    }
}
