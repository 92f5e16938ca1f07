//! Payloads that the receiver's device reads where they lie: what both sides do on a connection.

use super::{Conn, MOST_QUEUED, violation};
use crate::device::Pair;
use crate::offers::{self, Way};
use crate::wire::{Kind, MAX_OFFER, Offer, Outcome, Segment};
use ofi_core::log::{self, Level, Subsystem};
use ofi_engine::transport::{Disposition, Down, LinkEvents, LinkId, Payload};
use ofi_engine::wire::frame::Header;
use ofi_memory::Buffer;
use std::io;

impl<P: Pair> Conn<P> {
    /// Whether a message of this length can be offered.
    pub(crate) fn may_offer(&self, buffer: &Buffer, len: usize) -> bool {
        (1..=MAX_OFFER).contains(&len)
            && buffer.is_one_piece()
            && self.offers.has_room()
            && self.queue.len() < MOST_QUEUED
            && !self.stalled
            && self.broken.is_none()
    }

    /// Offers a message to the peer's device; false if that is impossible, and nothing has
    /// happened. The caller pushes.
    pub(crate) fn offer(&mut self, header: &Header, payload: Payload<'_>) -> bool {
        let Payload { from, len, token, .. } = payload;
        let Some(buffer) = payload.buffer.take_if(|buffer| self.may_offer(buffer, len) && !self.offers.skips()) else {
            return false;
        };
        match self.pair.expose(buffer, from, len) {
            Ok(exposed) => {
                let offer = self.offers.add(token, exposed, len);
                self.enqueue(Kind::Offer, Some(*header), offer.encode().to_vec());
                true
            }
            Err((buffer, why)) => {
                *payload.buffer = Some(buffer);
                if why.kind() == io::ErrorKind::OutOfMemory {
                    self.offers.back_off();
                }
                self.note_copy(Way::Out, &why);
                false
            }
        }
    }

    /// Memory cannot be registered: a message is copied.
    #[cold]
    fn note_copy(&mut self, way: Way, why: &io::Error) {
        if self.offers.says(way) {
            let peer = self.remote.socket();
            let way = match way {
                Way::Out => "to",
                Way::In => "from",
            };
            log::log("verbs", Level::Warn, Subsystem::EpData, || {
                format!(
                    "the device cannot reach a long message {way} {peer}, which is copied, and others may be: {why}"
                )
            });
        }
    }

    /// The peer offers a payload; `answer` says where it goes. The caller has handled its request.
    pub(crate) fn take_offer(
        &mut self,
        link: LinkId,
        offer: Offer,
        answer: Disposition,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let Offer { number, place, .. } = offer;
        let target = match answer {
            Disposition::Done => return self.tell(number, false),
            Disposition::Into(target) => target,
        };
        if target.take == 0 {
            events.handle_recv_done(link, target).map_err(violation)?;
            return self.tell(number, true);
        }
        match self.pair.read(place, target) {
            Ok(()) => {
                self.offers.reading = Some(number);
                Ok(())
            }
            Err((target, why)) => {
                self.note_copy(Way::In, &why);
                events.handle_recv_retry(link, target);
                self.tell(number, false)
            }
        }
    }

    /// The link ends while an offer may be being read: the payload will not come.
    pub(crate) fn give_read_up(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        self.offers.reading = None;
        if let Some(target) = self.pair.stop() {
            events.handle_recv_retry(link, target);
        }
    }

    /// The device has read an offer.
    pub(crate) fn finish_read(&mut self, link: LinkId, events: &mut impl LinkEvents) -> Result<(), Down> {
        let read = self.offers.reading.take().zip(self.pair.take_read());
        let Some((number, target)) = read else { return Ok(()) };
        events.handle_recv_done(link, target).map_err(violation)?;
        self.tell(number, true)
    }

    /// Tells the peer what became of its offer.
    fn tell(&mut self, number: u32, was_read: bool) -> Result<(), Down> {
        // A peer has room for no more than these.
        if self.queue.iter().filter(|item| item.kind == Kind::Outcome).count() >= offers::MOST {
            return Err(Down::violation("more offers than a side may have open"));
        }
        self.enqueue(Kind::Outcome, None, Outcome { number, was_read }.encode().to_vec());
        Ok(())
    }

    /// The peer tells what became of an offer of this side.
    pub(crate) fn handle_outcome(
        &mut self,
        link: LinkId,
        outcome: Outcome,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let Some((token, buffer)) = self.offers.finish(outcome) else {
            return Err(Down::violation("the outcome of an offer that was not made"));
        };
        if outcome.was_read {
            events.handle_send_done(link, token, buffer);
        } else {
            events.handle_offer_declined(link, token, buffer);
        }
        Ok(())
    }

    /// Whether an offer is being read, behind which segments wait.
    pub(crate) const fn is_reading(&self) -> bool {
        self.offers.reading.is_some()
    }

    /// A segment has arrived behind the offer that is being read: only the credits that it returns
    /// count already.
    pub(crate) fn hold(&mut self, slot: u16, len: usize) -> Result<(), Down> {
        let bytes = self.pair.received(slot).get(..len).unwrap_or_default();
        let Segment { kind, credits, .. } = Segment::parse(bytes).map_err(Down::violation)?;
        self.credits.returned(credits).map_err(Down::violation)?;
        if kind == Kind::Credits {
            return self.give_slot_back(slot);
        }
        self.offers.behind.push_back((slot, len));
        Ok(())
    }

    /// The next segment behind the offer that has been read; `None` while another one is.
    pub(crate) fn next_held(&mut self) -> Option<(u16, usize)> {
        if self.is_reading() { None } else { self.offers.behind.pop_front() }
    }
}
