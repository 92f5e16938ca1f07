//! Fences of a link, at the receiver: a fenced message is acknowledged only after those before it
//! have reached its level (FI_FENCE, fi_endpoint(3)).

use crate::wire::frame::{AckMode, Violation};

/// Maximum number of unacknowledged fences of a link: a sender waits for one before it sends the
/// next, and a failed one may linger.
const MOST: usize = 16;

/// A fenced message.
#[derive(Clone, Copy, Debug)]
struct Fence {
    /// The sender's number for it.
    id: u32,
    level: AckMode,
    /// Its sequence number on the link.
    seq: u32,
    /// Number of messages before it that have not reached `level`.
    left: usize,
    /// It has reached `level` itself.
    reached: bool,
}

/// The fences of a link that are not acknowledged yet.
#[derive(Debug, Default)]
pub(crate) struct Fences(Vec<Fence>);

impl Fences {
    #[inline(always)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a fence with `left` messages before it that have not reached its level.
    pub(crate) fn add(&mut self, id: u32, level: AckMode, seq: u32, left: usize) -> Result<(), Violation> {
        if self.0.len() >= MOST {
            return Err(Violation("too many unacknowledged fences"));
        }
        self.0.push(Fence { id, level, seq, left, reached: false });
        Ok(())
    }

    /// A message has reached a level: fences behind it wait for one less. Returns those to
    /// acknowledge.
    pub(crate) fn pass(&mut self, seq: u32, level: AckMode) -> Vec<u32> {
        for fence in self.0.iter_mut().filter(|fence| fence.level == level) {
            // Sequence numbers wrap: earlier ones are less than half their range below the fence's.
            let before = fence.seq.wrapping_sub(seq).wrapping_sub(1) < u32::MAX / 2;
            fence.left -= usize::from(before && fence.left > 0);
        }
        self.take_done()
    }

    /// A fenced message has reached its level itself. Returns those to acknowledge.
    pub(crate) fn reach(&mut self, id: u32) -> Vec<u32> {
        self.0.iter_mut().filter(|fence| fence.id == id).for_each(|fence| fence.reached = true);
        self.take_done()
    }

    /// A fenced message has failed: it is not acknowledged.
    pub(crate) fn drop_failed(&mut self, id: u32) {
        self.0.retain(|fence| fence.id != id);
    }

    fn take_done(&mut self) -> Vec<u32> {
        let mut done = Vec::new();
        self.0.retain(|fence| {
            let over = fence.reached && fence.left == 0;
            if over {
                done.push(fence.id);
            }
            !over
        });
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_waits_for_the_messages_before_it_and_for_itself() {
        let mut fences = Fences::default();
        fences.add(7, AckMode::Match, u32::MAX, 2).unwrap();
        assert!(fences.reach(7).is_empty());
        assert!(fences.pass(u32::MAX - 1, AckMode::Delivery).is_empty(), "another level");
        assert!(fences.pass(u32::MAX - 1, AckMode::Match).is_empty());
        assert!(fences.pass(0, AckMode::Match).is_empty(), "it came after the fence, across the wrap");
        assert_eq!(fences.pass(u32::MAX - 2, AckMode::Match), [7]);
        assert!(fences.is_empty());
    }

    #[test]
    fn a_peer_that_sends_too_many_fences_is_noticed() {
        let mut fences = Fences::default();
        for id in 0..16 {
            fences.add(id, AckMode::Delivery, id, 0).unwrap();
        }
        assert!(fences.add(16, AckMode::Delivery, 16, 0).is_err());
        fences.drop_failed(3);
        fences.add(16, AckMode::Delivery, 16, 0).unwrap();
    }
}
