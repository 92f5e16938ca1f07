//! A minimal transport: a queue of frames in memory, without a descriptor. The cost of a small
//! message over it is the cost of the engine.

use arrayvec::ArrayVec;
use ofi_core::error::Result;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{
    Disposition, Incoming, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::Header;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest payload of a [`Short`] wire, in bytes.
pub const MOST: usize = 64;

/// Payloads that need no allocation.
pub type Short = ArrayVec<u8, MOST>;

/// How a wire stores a payload.
pub trait Stored: core::fmt::Debug + core::ops::Deref<Target = [u8]> + Send + Sized + 'static {
    /// Stores these bytes; `None` if they are too many.
    fn store(bytes: &[u8]) -> Option<Self>;
}

impl Stored for Short {
    #[inline]
    fn store(bytes: &[u8]) -> Option<Self> {
        Self::try_from(bytes).ok()
    }
}

/// Payloads of any length.
impl Stored for Vec<u8> {
    fn store(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

#[derive(Debug)]
enum Item<P> {
    Ask(Vec<u8>),
    Answer(Vec<u8>),
    Frame(Header, P),
}

type Queue<P> = Arc<Mutex<VecDeque<Item<P>>>>;

/// One end of a wire.
#[derive(Debug)]
pub struct Wire<P = Short> {
    local: Addr,
    remote: Addr,
    outgoing: Queue<P>,
    incoming: Queue<P>,
    scratch: Vec<u8>,
}

/// The only link of a wire.
const LINK: LinkId = LinkId(0);

fn lock<P>(queue: &Queue<P>) -> MutexGuard<'_, VecDeque<Item<P>>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P> Wire<P> {
    /// Both ends of a wire, at these addresses.
    pub fn pair(a: Addr, b: Addr) -> (Self, Self) {
        let (left, right) = (Queue::<P>::default(), Queue::<P>::default());
        let end = |local, remote, outgoing: &Queue<P>, incoming: &Queue<P>| Self {
            local,
            remote,
            outgoing: outgoing.clone(),
            incoming: incoming.clone(),
            scratch: Vec::new(),
        };
        (end(a, b, &left, &right), end(b, a, &right, &left))
    }
}

impl<P: Stored> Transport for Wire<P> {
    type Request = ();

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn connect(&mut self, _to: &Addr, hello: &[u8]) -> Result<LinkId> {
        lock(&self.outgoing).push_back(Item::Ask(hello.to_vec()));
        Ok(LINK)
    }

    fn accept(&mut self, (): (), _hello: &[u8]) -> Result<LinkId> {
        Ok(LINK)
    }

    fn next_link(&self) -> LinkId {
        LINK
    }

    #[inline]
    fn submit(&mut self, _link: LinkId, header: &Header, payload: Payload<'_>, _urgency: Urgency) -> Submitted {
        self.scratch.clear();
        payload.append_to(&mut self.scratch);
        let Some(bytes) = P::store(&self.scratch) else { return Submitted::Broken };
        lock(&self.outgoing).push_back(Item::Frame(*header, bytes));
        Submitted::Done
    }

    #[inline]
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        loop {
            let Some(item) = lock(&self.incoming).pop_front() else { return any };
            any = true;
            match item {
                Item::Frame(header, payload) => {
                    let place = events.handle_frame(LINK, &header, Incoming::Complete(&payload));
                    assert!(matches!(place, Ok(Disposition::Done)), "a peer in the same process keeps the protocol");
                }
                Item::Ask(hello) => match events.handle_connect_request(LINK, &hello, &self.remote, |_| true) {
                    Verdict::Accept(answer) | Verdict::Refuse(answer) => {
                        lock(&self.outgoing).push_back(Item::Answer(answer));
                    }
                },
                Item::Answer(hello) => {
                    assert!(events.handle_connected(LINK, &hello).is_ok(), "a peer in the same process accepts");
                }
            }
        }
    }

    fn shutdown(&mut self, _link: LinkId, last: Option<&Header>) -> ShutdownState {
        let last = last.and_then(|last| Some(Item::Frame(*last, P::store(&[])?)));
        lock(&self.outgoing).extend(last);
        ShutdownState::Done
    }

    fn abort(&mut self, _link: LinkId, _events: &mut impl LinkEvents) {}

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn random(&mut self) -> [u8; 16] {
        // A constant suffices: the wire has only two ends.
        [7; 16]
    }
}
