//! How long a pollable without traffic is polled before it is left to its descriptor.
//!
//! To arm a descriptor, to have a peer make it readable and to disarm it again costs as much as
//! some hundred polls. A pollable that is needed again soon was left too early, and is polled
//! longer the next time.

/// Polls without traffic after which a pollable becomes idle, at first.
const LEAST: u16 = 128;
/// The same at most.
const MOST: u16 = 2048;
/// A pollable that was idle for fewer passes than this should have stayed active.
const SOON: u32 = 1024;

/// A pollable's patience with its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    polls: u16,
    /// The number of passes when it became idle.
    left: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { polls: LEAST, left: 0 }
    }
}

impl Patience {
    /// Polls without traffic after which it becomes idle.
    pub(super) const fn polls(self) -> u16 {
        self.polls
    }

    /// It becomes idle; the set has made so many passes, which wrap.
    pub(super) const fn leave(&mut self, passes: u32) {
        self.left = passes;
    }

    /// It is active again.
    pub(super) fn resume(&mut self, passes: u32) {
        let soon = passes.wrapping_sub(self.left) < SOON;
        self.polls = if soon { (self.polls * 2).min(MOST) } else { (self.polls / 2).max(LEAST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_again_soon_is_polled_longer_the_next_time() {
        let mut patience = Patience::default();
        let mut passes = u32::MAX - 5000;
        for expected in [256, 512, 1024, 2048, 2048] {
            patience.leave(passes);
            passes = passes.wrapping_add(SOON - 1);
            patience.resume(passes);
            assert_eq!(patience.polls(), expected);
        }
        for expected in [1024, 512, 256, 128, 128] {
            patience.leave(passes);
            passes = passes.wrapping_add(SOON);
            patience.resume(passes);
            assert_eq!(patience.polls(), expected);
        }
    }
}
