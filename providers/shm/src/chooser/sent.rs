//! The sender's part of the comparison with the pool: which payloads it does not lend.

use super::{ROUND, visit};

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
    pub(crate) fn add(&mut self, long: bool) {
        if self.count < ROUND << self.doubled {
            self.count += 1;
            return;
        }
        self.count = 0;
        self.doubled = if long { 0 } else { (self.doubled + 1).min(DOUBLED) };
    }

    /// Whether the next payload is to go through the pool. Of `long` ones, which few programs send
    /// many of, the first do not.
    pub(crate) const fn is_for_pool(self, long: bool) -> bool {
        let turn = if long { ROUND / 32 } else { 0 };
        // One more than a visit: the sender counts an offer after it has lent it, so that one which
        // reaches the turn did not take the pool.
        turn <= self.count && self.count <= turn + visit(long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_payloads_visit_the_pool_less_and_less_often() {
        // 131,072 payloads, in rounds of 4,096, 8,192 and then 16,384, or all of the first length.
        for (long, expected) in [(false, 10), (true, 32)] {
            let mut sent = Sent::default();
            let pooled = Vec::from_iter((0..ROUND << 5).map(|_| {
                sent.add(long);
                sent.is_for_pool(long)
            }));
            assert_eq!(pooled.chunk_by(|a, b| a == b).filter(|turn| turn[0]).count(), expected, "{long}");
        }
    }
}
