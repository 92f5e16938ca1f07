//! What a completion means for its link: segments that have arrived, and payloads that are read.

use super::{Link, Pending, REFUSED, State, VerbsTransport, id, vouches};
use crate::conn::{Arrival, Conn};
use crate::device::{Device, Pair, Work};
use crate::offers::Exposure;
use crate::wire::{Kind, Offer, Outcome};
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::transport::{ConnectRequest, Disposition, Down, Incoming, LinkEvents, Verdict};
use ofi_engine::wire::frame::{MAX_PAYLOAD, Violation};

/// What is left to do for a segment once its slot is free again.
enum Rest {
    /// A payload is to be read.
    Payload {
        offer: Offer,
        exposure: Exposure,
        answer: Disposition,
    },
    Outcome(Outcome),
    /// The peer has ended the link.
    End,
}

fn ended_by(peer: &Addr) -> Down {
    Down::new(Cause::Broken, Errno::ECONNRESET, format!("the peer at {peer} has ended the link"))
}

impl<D: Device> VerbsTransport<D> {
    /// Handles a completion. An error ends its link.
    pub(super) fn handle_work(
        &mut self,
        slot: usize,
        work: Work,
        events: &mut impl LinkEvents,
        asked: Option<&mut Vec<ConnectRequest<Pending<D::Pair>>>>,
    ) -> core::result::Result<(), Down> {
        match work {
            Work::Sent => Ok(()),
            // The connection manager will say why connecting fails.
            Work::Failed(_) if matches!(self.links[slot].state, State::Connecting { .. }) => Ok(()),
            Work::Failed(why) => Err(why),
            Work::Received { slot: at, len } if self.links[slot].conn.holds() => self.links[slot].conn.hold(at, len),
            Work::Received { slot: at, len } => {
                self.handle_segment(slot, &Arrival::InSlot { slot: at, len }, events, asked)
            }
            Work::Read { number, is_whole } => {
                self.links[slot].conn.finish_read(id(slot), (number, is_whole), events)?;
                // The end may follow: the sender learns the outcome before.
                self.push(slot);
                let conn = &self.links[slot].conn;
                if conn.is_over() { Err(ended_by(&conn.remote)) } else { self.handle_held(slot, events) }
            }
        }
    }

    /// Handles the segments that need wait no longer.
    fn handle_held(&mut self, slot: usize, events: &mut impl LinkEvents) -> core::result::Result<(), Down> {
        while let Some(segment) = self.links[slot].conn.next_held() {
            self.handle_segment(slot, &segment, events, None)?;
        }
        Ok(())
    }

    /// Handles a segment. An error ends its link.
    fn handle_segment(
        &mut self,
        slot: usize,
        arrival: &Arrival,
        events: &mut impl LinkEvents,
        asked: Option<&mut Vec<ConnectRequest<Pending<D::Pair>>>>,
    ) -> core::result::Result<(), Down> {
        let Link { conn, state, .. } = &mut self.links[slot];
        let (link, remote) = (id(slot), conn.remote);
        let (mut hello, mut is_open, mut rest) = (None, false, None);
        let received = conn.receive(arrival, |arriving, segment| match (segment.kind, &*state) {
            (_, State::Refused { .. }) | (Kind::Credits, _) => Ok(()),
            (Kind::Answer, State::Asking) => {
                is_open = true;
                events.handle_connected(link, segment.bytes)
            }
            (Kind::Hello, State::Silent) => {
                hello = Some(segment.bytes.to_vec());
                Ok(())
            }
            (Kind::Frame | Kind::More | Kind::Failed, State::Open) => {
                Conn::<D::Pair>::handle_frame(arriving, link, segment, events)
            }
            (Kind::Offer, State::Open) if arriving.is_complete() => {
                let offer = Offer::parse(segment.bytes).map_err(Down::violation)?;
                let answer = events.handle_offer(link, segment.header, offer.len);
                let answer = answer.map_err(|Violation(what)| Down::violation(what))?.into();
                rest = Some(Rest::Payload { offer, exposure: Exposure::Offer, answer });
                Ok(())
            }
            (Kind::Remote, State::Open) if arriving.is_complete() => {
                let offer = Offer::parse(segment.bytes).map_err(Down::violation)?;
                if offer.len > MAX_PAYLOAD {
                    return Err(Down::violation("the payload of a frame is too long"));
                }
                let answer = events.handle_frame(link, segment.header, Incoming::Streaming(offer.len));
                let answer = answer.map_err(|Violation(what)| Down::violation(what))?;
                rest = Some(Rest::Payload { offer, exposure: Exposure::Remote, answer });
                Ok(())
            }
            (Kind::Outcome, State::Open) if arriving.is_complete() => {
                rest = Some(Rest::Outcome(Outcome::parse(segment.bytes).map_err(Down::violation)?));
                Ok(())
            }
            (Kind::Bye, State::Open) => {
                rest = Some(Rest::End);
                Ok(())
            }
            _ => Err(Down::violation("a segment out of turn")),
        });
        if let Err(why) = received {
            if let Some(Rest::Payload { answer: Disposition::Into(target), .. }) = rest {
                events.handle_recv_retry(link, target);
            }
            return Err(why);
        }
        match rest {
            Some(Rest::Payload { offer, exposure, answer }) => {
                return conn.take_payload(link, (offer, exposure), answer, events);
            }
            Some(Rest::Outcome(outcome)) => return conn.handle_outcome(link, outcome, events),
            Some(Rest::End) if conn.note_end() => return Err(ended_by(&remote)),
            Some(Rest::End) => return Ok(()),
            None => {}
        }
        if is_open {
            self.set_state(slot, State::Open);
        }
        let Some(hello) = hello else { return Ok(()) };
        self.forget_half_open(self.links[slot].conn.pair.key());
        if let Some(asked) = asked {
            let Some(mut link) = self.remove(slot) else { return Ok(()) };
            self.device.release(&mut link.conn.pair);
            let to = Addr::from(self.device.local_addr());
            asked.push(ConnectRequest { request: Pending(link.conn), hello, from: remote, to });
            return Ok(());
        }
        match events.handle_connect_request(link, &hello, &remote, |name| vouches(&remote, name)) {
            Verdict::Accept(answer) => {
                self.set_state(slot, State::Open);
                self.links[slot].conn.enqueue(Kind::Answer, None, answer);
            }
            Verdict::Refuse(answer) => self.refuse_link(slot, answer),
        }
        Ok(())
    }

    pub(super) fn refuse_link(&mut self, slot: usize, answer: Vec<u8>) {
        let deadline = self.device.now() + REFUSED;
        self.set_state(slot, State::Refused { deadline });
        let conn = &mut self.links[slot].conn;
        conn.enqueue(Kind::Answer, None, answer);
        conn.enqueue(Kind::Bye, None, Vec::new());
    }
}
