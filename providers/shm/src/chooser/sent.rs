//! The sender's part of the comparison with the pool: which payloads it does not lend.

use super::{ROUND, visit};

/// How payloads of a class are compared with the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// They begin with the pool.
    Short,
    /// They begin with the direct ways, where the kernel copies fast: these are mostly faster then,
    /// and the pool's memory is fresh.
    Middle,
    /// They begin with the direct ways everywhere. Few programs send many of them, so the pool has
    /// its turn soon, and a short one.
    Long,
}

impl Length {
    /// The lengths, in bytes, from which on payloads may be middle ones, and are long ones.
    pub(crate) const MIDDLE: usize = 64 << 10;
    pub(crate) const LONG: usize = 256 << 10;

    /// `is_kernel_fast`: at copying between processes.
    pub(crate) const fn of(len: usize, is_kernel_fast: bool) -> Self {
        match len {
            Self::LONG.. => Self::Long,
            Self::MIDDLE.. if is_kernel_fast => Self::Middle,
            _ => Self::Short,
        }
    }

    /// Payloads of a round before the pool's turn. A program that sends a thousand or two middle
    /// ones is done before.
    const fn turn(self) -> u32 {
        match self {
            Self::Short => 0,
            Self::Middle => ROUND / 2,
            Self::Long => ROUND / 32,
        }
    }
}

/// The sender's count of the payloads of a class: some of each round go through the pool, for the
/// receiver to compare.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Payloads of the current round.
    count: u32,
    /// The round is this power of two as long as the first.
    doubled: u32,
}

/// What short payloads' rounds grow to: of these, a round of the first length would spend a
/// twentieth on the pool. Long ones take few turns, and their rounds last longer as they are.
const DOUBLED: u32 = 2;

impl Sent {
    /// Counts a payload.
    pub(crate) fn add(&mut self, length: Length) {
        if self.count < ROUND << self.doubled {
            self.count += 1;
            return;
        }
        self.count = 0;
        self.doubled = if length == Length::Long { 0 } else { (self.doubled + 1).min(DOUBLED) };
    }

    /// Whether the next payload is to go through the pool.
    pub(crate) const fn is_for_pool(self, length: Length) -> bool {
        let turn = length.turn();
        // One more than a visit: the sender counts an offer after it has lent it, so that one which
        // reaches the turn did not take the pool.
        turn <= self.count && self.count <= turn + visit(matches!(length, Length::Long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_payloads_visit_the_pool_less_and_less_often() {
        // 131,072 payloads, in rounds of 4,096, 8,192 and then 16,384, or all of the first length.
        for (length, expected) in [(Length::Short, 10), (Length::Middle, 10), (Length::Long, 32)] {
            let mut sent = Sent::default();
            let pooled = Vec::from_iter((0..ROUND << 5).map(|_| {
                sent.add(length);
                sent.is_for_pool(length)
            }));
            assert_eq!(pooled.chunk_by(|a, b| a == b).filter(|turn| turn[0]).count(), expected, "{length:?}");
        }
    }
}
