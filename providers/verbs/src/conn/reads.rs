//! Payloads that the receiver's device reads where they lie: what both sides do on a connection.

use super::{Arrival, Conn, MOST_QUEUED, unwritable, violation};
use crate::device::Pair;
use crate::offers::{self, Exposure, Reading, Returned, Way};
use crate::wire::{Kind, MAX_OFFER, Offer, Outcome, Segment};
use ofi_core::log::{self, Level, Subsystem};
use ofi_engine::transport::{Disposition, Down, LinkEvents, LinkId, Payload};
use ofi_engine::wire::frame::Header;
use ofi_memory::Buffer;
use std::io;

/// What a peer does that waits for no outcomes.
const TOO_MANY: &str = "more payloads to read than a side may have open";

impl<P: Pair> Conn<P> {
    /// Whether a payload of this length can stay where it lies.
    pub(crate) fn may_expose(&self, buffer: &Buffer, len: usize) -> bool {
        (1..=MAX_OFFER).contains(&len)
            && buffer.is_one_piece()
            && self.offers.has_room()
            && self.queue.len() < MOST_QUEUED
            && !self.stalled
            && self.broken.is_none()
    }

    /// Exposes a payload to the peer's device, and sends a segment that names it. False if that is
    /// impossible, and nothing has happened. The caller pushes.
    pub(crate) fn expose(&mut self, exposure: Exposure, header: &Header, payload: &mut Payload<'_>) -> bool {
        let Payload { from, len, token, .. } = *payload;
        let may = |buffer: &mut Buffer| self.may_expose(buffer, len) && !self.offers.skips();
        let Some(buffer) = payload.buffer.take_if(may) else { return false };
        match self.pair.expose(buffer, from, len) {
            Ok(exposed) => {
                let offer = self.offers.add(exposure, token, exposed, len);
                self.enqueue(exposure.kind(), Some(*header), offer.encode().to_vec());
                true
            }
            Err((buffer, why)) => {
                *payload.buffer = Some(buffer);
                self.offers.back_off();
                self.note_copy(Way::Out, &why);
                false
            }
        }
    }

    /// Memory cannot be registered: a payload is copied.
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
                    "the device cannot reach a long payload {way} {peer}, which is copied, and others may be: {why}"
                )
            });
        }
    }

    /// The peer offers a payload, or a remote frame has arrived; `answer` says where the payload
    /// goes. The caller has handled the request or the frame.
    pub(crate) fn take_payload(
        &mut self,
        link: LinkId,
        (offer, exposure): (Offer, Exposure),
        answer: Disposition,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let Offer { number, place, .. } = offer;
        let reading = Reading { number, key: place.key };
        let (reads, read) = (self.offers.readings.len(), self.offers.readings.vacant_key());
        let target = match answer {
            Disposition::Done => return self.tell(reading, exposure == Exposure::Remote),
            Disposition::Into(target) => target,
        };
        let Some(read) = u16::try_from(read).ok().filter(|_| reads + self.outcomes() < offers::MOST) else {
            events.handle_recv_retry(link, target);
            return Err(Down::violation(TOO_MANY));
        };
        if target.take == 0 {
            events.handle_recv_done(link, target).map_err(violation)?;
            return self.tell(reading, true);
        }
        let mut result = self.pair.read(read, place, target);
        if let Err((target, why)) = result {
            self.note_copy(Way::In, &why);
            if exposure == Exposure::Offer {
                events.handle_recv_retry(link, target);
                return self.tell(reading, false);
            }
            result = self.pair.read_copied(read, place, target);
        }
        if let Err((target, why)) = result {
            events.handle_recv_retry(link, target);
            return Err(self.unusable(&why));
        }
        self.offers.readings.insert(reading);
        if exposure == Exposure::Remote {
            self.offers.remote = Some(read);
        }
        Ok(())
    }

    /// The device has read a payload. `is_whole`: all of it is in place.
    pub(crate) fn finish_read(
        &mut self,
        link: LinkId,
        (number, is_whole): (u16, bool),
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let read = self.offers.readings.try_remove(usize::from(number)).zip(self.pair.take_read(number));
        let Some((reading, target)) = read else { return Ok(()) };
        self.offers.remote.take_if(|remote| *remote == number);
        if is_whole {
            events.handle_recv_done(link, target).map_err(violation)?;
        } else {
            events.handle_recv_failed(link, target, unwritable());
        }
        self.tell(reading, true)
    }

    /// Tells the peer what became of its payload, and ends its window.
    fn tell(&mut self, reading: Reading, was_read: bool) -> Result<(), Down> {
        // A peer has room for no more than these.
        if self.outcomes() >= offers::MOST {
            return Err(Down::violation(TOO_MANY));
        }
        let Reading { number, key } = reading;
        self.enqueue(Kind::Outcome, None, Outcome { number, was_read }.encode().to_vec());
        if let Some(item) = self.queue.back_mut() {
            item.progress.ends = Some(key);
        }
        Ok(())
    }

    /// How many outcomes wait for room.
    fn outcomes(&self) -> usize {
        self.queue.iter().filter(|item| item.progress.kind == Kind::Outcome).count()
    }

    /// The peer tells what became of a payload of this side.
    pub(crate) fn handle_outcome(
        &mut self,
        link: LinkId,
        outcome: Outcome,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let Returned { token, buffer, exposure } =
            self.offers.finish(outcome, &mut self.pair).map_err(Down::violation)?;
        if outcome.was_read {
            events.handle_send_done(link, token, buffer);
        } else if exposure == Exposure::Offer {
            events.handle_offer_declined(link, token, buffer);
        } else {
            events.handle_send_returned(link, token, buffer);
            return Err(Down::violation("the payload of a frame is declined"));
        }
        Ok(())
    }

    /// Whether segments wait, because the payload of the frame before them is being read, or
    /// nothing is to follow.
    pub(crate) const fn holds(&self) -> bool {
        self.offers.remote.is_some() || self.offers.has_ended
    }

    /// The peer ends the link. Returns whether that is complete: payloads that are being read
    /// arrive before.
    pub(crate) fn note_end(&mut self) -> bool {
        self.offers.has_ended = true;
        self.offers.readings.is_empty()
    }

    /// Whether the peer has ended the link and nothing is being read any longer.
    pub(crate) fn is_over(&self) -> bool {
        self.offers.has_ended && self.offers.readings.is_empty()
    }

    /// A segment has arrived that waits ([`Self::holds`]): only its credits count already.
    /// It is copied, because other connections need its slot: their peers wait for one, and what
    /// they send may be what lets this read go on.
    pub(crate) fn hold(&mut self, slot: u16, len: usize) -> Result<(), Down> {
        let bytes = self.pair.received(slot).get(..len).unwrap_or_default();
        let Segment { kind, credits, .. } = Segment::parse(bytes).map_err(Down::violation)?;
        self.credits.arrived(credits).map_err(Down::violation)?;
        if kind == Kind::Credits {
            self.credits.handled();
        } else {
            self.offers.behind.push_back(bytes.to_vec());
        }
        self.give_slot_back(slot);
        Ok(())
    }

    /// The next segment that has waited; `None` if it still has to.
    pub(crate) fn next_held(&mut self) -> Option<Arrival> {
        if self.holds() { None } else { self.offers.behind.pop_front().map(Arrival::Held) }
    }
}
