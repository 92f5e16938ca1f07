//! Says at once that a tag is not in a table, which is what most searches of long queues find.

/// Bits for each tag at least, so that few tags meet by chance.
const BITS: usize = 64;

/// The tags that may be in a table: all that were added, and those that meet one of them by chance.
/// Tags that leave the table stay. Peers may choose tags, so a secret multiplier spreads them.
#[derive(Debug, Default)]
pub(super) struct TagFilter {
    bits: Vec<u64>,
    /// Secret; 0 before the first tag.
    multiplier: u64,
    /// The bits of a product that do not choose a place.
    shift: u32,
    added: usize,
}

impl TagFilter {
    /// Adds a tag to the filter of a table that has these `others`.
    pub(super) fn add<'a>(&mut self, tag: u64, others: impl Iterator<Item = &'a u64>) {
        self.added += 1;
        if self.added * BITS > self.bits.len() * 64 {
            self.grow(others);
        }
        self.set(tag);
    }

    #[cold]
    fn grow<'a>(&mut self, tags: impl Iterator<Item = &'a u64>) {
        if self.multiplier == 0 {
            self.multiplier = ahash::RandomState::default().hash_one(0u64) | 1;
        }
        let tags: Vec<u64> = tags.copied().collect();
        self.added = tags.len() + 1;
        let words = (2 * self.added * BITS).next_power_of_two().div_ceil(64).max(8);
        self.shift = u64::BITS - (words * 64).trailing_zeros();
        self.bits.clear();
        self.bits.resize(words, 0);
        tags.into_iter().for_each(|tag| self.set(tag));
    }

    fn set(&mut self, tag: u64) {
        let (word, bit) = self.place(tag);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
    }

    /// False if the tag was never added.
    #[inline(always)]
    pub(super) fn may_have(&self, tag: u64) -> bool {
        let (word, bit) = self.place(tag);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The word and bit of a tag: the upper bits of a product depend on all bits of the tag.
    #[inline(always)]
    const fn place(&self, tag: u64) -> (usize, u64) {
        #[allow(clippy::cast_possible_truncation, reason = "as many bits as there are in memory")]
        let place = (tag.wrapping_mul(self.multiplier) >> self.shift) as usize;
        (place / 64, 1 << (place % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn an_added_tag_is_found(tags in proptest::collection::vec(any::<u64>(), 0..500)) {
            let (mut filter, mut table) = (TagFilter::default(), HashSet::new());
            for tag in tags {
                filter.add(tag, table.iter());
                table.insert(tag);
                prop_assert!(table.iter().all(|tag| filter.may_have(*tag)));
            }
        }
    }

    #[test]
    fn few_other_tags_are_taken_for_one_that_was_added() {
        for step in [1, 1 << 20, 1 << 40] {
            // A secret may be unlucky, but not most of them.
            let mut counts = [(); 15].map(|()| wrong_of(step));
            counts.sort_unstable();
            assert!(counts[7] < 1500, "{counts:?} of 10,000 at steps of {step}");
        }
    }

    /// How many of 10,000 tags are taken for one of 10,000 others.
    fn wrong_of(step: u64) -> usize {
        let (mut filter, mut table) = (TagFilter::default(), HashSet::new());
        for tag in (0..10_000u64).map(|at| at * step) {
            filter.add(tag, table.iter());
            table.insert(tag);
        }
        (10_000..20_000u64).filter(|at| filter.may_have(at * step)).count()
    }

    #[test]
    fn an_empty_filter_has_nothing() {
        assert!(!TagFilter::default().may_have(0));
    }
}
