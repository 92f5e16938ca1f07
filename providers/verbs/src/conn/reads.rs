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
        let reading = Reading { number, exposure, key: place.key };
        let target = match answer {
            Disposition::Done => return self.tell(reading, exposure == Exposure::Remote),
            Disposition::Into(target) => target,
        };
        if target.take == 0 {
            events.handle_recv_done(link, target).map_err(violation)?;
            return self.tell(reading, true);
        }
        let Err((target, why)) = self.pair.read(place, target) else {
            self.offers.reading = Some(reading);
            return Ok(());
        };
        self.note_copy(Way::In, &why);
        if exposure == Exposure::Offer {
            events.handle_recv_retry(link, target);
            return self.tell(reading, false);
        }
        let Err((target, why)) = self.pair.read_copied(place, target) else {
            self.offers.reading = Some(reading);
            return Ok(());
        };
        events.handle_recv_retry(link, target);
        Err(self.unusable(&why))
    }

    /// The link ends while a payload may be being read: it will not come. Returns whether it was
    /// offered.
    pub(crate) fn give_read_up(&mut self, link: LinkId, events: &mut impl LinkEvents) -> bool {
        let reading = self.offers.reading.take();
        if let Some(target) = self.pair.stop() {
            events.handle_recv_retry(link, target);
        }
        reading.is_none_or(|reading| reading.exposure == Exposure::Offer)
    }

    /// The device has read a payload. `is_whole`: all of it is in place.
    pub(crate) fn finish_read(
        &mut self,
        link: LinkId,
        is_whole: bool,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        let read = self.offers.reading.take().zip(self.pair.take_read());
        let Some((reading, target)) = read else { return Ok(()) };
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
        if self.queue.iter().filter(|item| item.progress.kind == Kind::Outcome).count() >= offers::MOST {
            return Err(Down::violation("more payloads to read than a side may have open"));
        }
        let Reading { number, key, .. } = reading;
        self.enqueue(Kind::Outcome, None, Outcome { number, was_read }.encode().to_vec());
        if let Some(item) = self.queue.back_mut() {
            item.progress.ends = Some(key);
        }
        Ok(())
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

    /// Whether a payload is being read, behind which segments wait.
    pub(crate) const fn is_reading(&self) -> bool {
        self.offers.reading.is_some()
    }

    /// A segment has arrived behind the payload that is being read: only its credits count already.
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

    /// The next segment behind the payload that has been read; `None` while another one is.
    pub(crate) fn next_held(&mut self) -> Option<Arrival> {
        if self.is_reading() { None } else { self.offers.behind.pop_front().map(Arrival::Held) }
    }
}
