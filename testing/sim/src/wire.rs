//! A minimal transport: a queue of frames in memory. The cost of a small message over it is the cost
//! of the engine.

use arrayvec::ArrayVec;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{
    ControlSubmitted, Disposition, Flush, Incoming, LinkEvents, LinkId, Payload, ShutdownState, Submitted, Transport,
    Urgency, Verdict,
};
use ofi_engine::wire::frame::Header;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest payload that needs no allocation, in bytes.
pub const MOST: usize = 64;

#[derive(Debug)]
enum Item {
    Ask(Vec<u8>),
    Answer(Vec<u8>),
    Frame(Header, ArrayVec<u8, MOST>),
    Long(Header, Vec<u8>),
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

    fn accept(&mut self, (): (), _hello: &[u8]) -> Result<LinkId> {
        Ok(LINK)
    }

    #[inline]
    fn submit(&mut self, _link: LinkId, header: &Header, payload: Payload<'_>, _urgency: Urgency) -> Submitted {
        self.scratch.clear();
        if let Payload { buffer: Some(buffer), from, len, .. } = payload {
            buffer.append_to(from, len, &mut self.scratch);
        }
        let item = match ArrayVec::try_from(&self.scratch[..]) {
            Ok(bytes) => Item::Frame(*header, bytes),
            Err(_) => Item::Long(*header, core::mem::take(&mut self.scratch)),
        };
        lock(&self.outgoing).push_back(item);
        Submitted::Done
    }

    #[inline]
    fn submit_control(&mut self, _link: LinkId, header: &Header, _urgency: Urgency) -> ControlSubmitted {
        lock(&self.outgoing).push_back(Item::Frame(*header, ArrayVec::new()));
        ControlSubmitted::Taken
    }

    #[inline]
    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        loop {
            let Some(item) = lock(&self.incoming).pop_front() else { return any };
            any = true;
            let mut take = |header: &Header, payload: &[u8]| {
                let place = events.handle_frame(LINK, header, Incoming::Complete(payload));
                assert!(matches!(place, Ok(Disposition::Done)), "a peer in the same process keeps the protocol");
            };
            match item {
                Item::Frame(header, payload) => take(&header, &payload),
                Item::Long(header, payload) => take(&header, &payload),
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

    fn flush(&mut self, _how: Flush, _sink: &mut impl LinkEvents) {}

    fn wait(&mut self, _timeout: Duration) {}

    fn shutdown(&mut self, _link: LinkId, last: Option<&Header>) -> ShutdownState {
        let last = last.map(|last| Item::Frame(*last, ArrayVec::new()));
        lock(&self.outgoing).extend(last);
        ShutdownState::Done
    }

    fn abort(&mut self, _link: LinkId, _sink: &mut impl LinkEvents) {}

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn is_busy(&self) -> bool {
        // No descriptor reports new frames.
        true
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }

    fn random(&mut self) -> [u8; 16] {
        // A constant suffices: the wire has only two ends.
        [7; 16]
    }
}
