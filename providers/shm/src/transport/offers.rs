//! Offers that wait at this side until a receive matches their message.

use super::ShmTransport;
use ofi_engine::transport::RecvTarget;

/// Polls in a row that find nothing, after which senders are told of their offers that wait.
const CALM: u32 = 32;

/// What the transport has to do about offers that have waited.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Some have been taken since the last poll, which brings their payloads.
    pub(super) has_taken: bool,
    /// Links whose sender has not been told of all that wait.
    untold: Vec<usize>,
    /// Polls in a row that have found nothing meanwhile.
    calm: u32,
}

impl Offers {
    /// Whether a poll has nothing to do about them.
    #[inline(always)]
    pub(super) const fn is_calm(&self) -> bool {
        !self.has_taken && self.untold.is_empty()
    }

    /// Takes note of a link whose sender has not been told.
    pub(super) fn note_untold(&mut self, slot: usize) {
        if !self.untold.contains(&slot) {
            self.untold.push(slot);
        }
    }

    /// Counts a poll. True if it is time to tell the senders: a program that posts the receives
    /// soon is not kept from it.
    pub(super) const fn count(&mut self, any: bool) -> bool {
        self.calm = if any || self.untold.is_empty() { 0 } else { self.calm + 1 };
        self.calm >= CALM
    }
}

impl ShmTransport {
    /// Takes the payload of an offer that waits; the next poll brings it.
    pub(super) fn take_waiting(&mut self, slot: usize, target: RecvTarget) -> Result<(), RecvTarget> {
        let Some(conn) = self.conns.get_mut(slot) else { return Err(target) };
        conn.take_offer(target)?;
        if self.schedule.is_idle(slot) {
            self.schedule.note(slot);
        }
        self.schedule.offers.has_taken = true;
        Ok(())
    }

    /// Tells the senders of the offers that wait.
    pub(super) fn tell_waiting(&mut self) {
        let Self { conns, schedule, undelivered, control, .. } = self;
        schedule.offers.calm = 0;
        schedule.offers.untold.retain(|slot| {
            let Some(conn) = conns.get_mut(*slot) else { return false };
            if let Err(violation) = conn.tell_waiting() {
                undelivered.add_lost(*slot, conn.serial, conn.peer.violated(violation));
                return false;
            }
            if let Some(news) = conn.take_news() {
                Self::wake(conn, news, control);
            }
            conn.has_untold()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_told_when_nothing_has_come_for_a_while() {
        let mut offers = Offers::default();
        assert!((0..100).all(|_| !offers.count(false)), "nothing waits");
        offers.note_untold(3);
        offers.note_untold(3);
        assert_eq!(offers.untold, [3]);
        assert!((1..CALM).all(|_| !offers.count(false)) && !offers.count(true));
        assert!((1..CALM).all(|_| !offers.count(false)) && offers.count(false));
    }
}
