//! Deadlines of connections in order: a poll compares the first with the clock, and nothing depends
//! on their number but the logarithm that a change takes.

use ofi_core::Instant;
use std::collections::BTreeSet;

/// Deadlines by time; a slot may have several.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    all: BTreeSet<(Instant, usize)>,
    /// The earliest, which every poll reads.
    next: Option<Instant>,
}

impl Deadlines {
    #[cold]
    pub(crate) fn add(&mut self, when: Instant, slot: usize) {
        self.all.insert((when, slot));
        self.find_next();
    }

    /// Removes a deadline; harmless if there is no such one.
    #[cold]
    pub(crate) fn remove(&mut self, when: Instant, slot: usize) {
        self.all.remove(&(when, slot));
        self.find_next();
    }

    fn find_next(&mut self) {
        self.next = self.all.first().map(|(when, _)| *when);
    }

    /// The earliest deadline.
    #[inline(always)]
    pub(crate) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The earliest deadline and its slot if it is over at `now`.
    pub(crate) fn first_due(&self, now: Instant) -> Option<(Instant, usize)> {
        self.all.first().copied().filter(|(when, _)| *when <= now)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.next.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(when: u64) -> Instant {
        Instant::from_nanos(when)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64, usize),
        Remove(u64, usize),
        /// The time has come: takes everything that is due.
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..50u64, 0..8usize).prop_map(|(when, slot)| Step::Add(when, slot)),
            (0..50u64, 0..8usize).prop_map(|(when, slot)| Step::Remove(when, slot)),
            (0..50u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn deadlines_pass_in_order_as_a_list_searched_one_by_one(steps in prop::collection::vec(step(), 0..80)) {
            let (mut deadlines, mut model) = (Deadlines::default(), Vec::<(u64, usize)>::new());
            for step in steps {
                match step {
                    Step::Add(when, slot) => {
                        deadlines.add(at(when), slot);
                        if !model.contains(&(when, slot)) {
                            model.push((when, slot));
                        }
                    }
                    Step::Remove(when, slot) => {
                        deadlines.remove(at(when), slot);
                        model.retain(|entry| *entry != (when, slot));
                    }
                    Step::Pass(now) => {
                        let mut due: Vec<_> = model.iter().copied().filter(|(when, _)| *when <= now).collect();
                        due.sort_unstable();
                        model.retain(|(when, _)| *when > now);
                        for (when, slot) in due {
                            prop_assert_eq!(deadlines.first_due(at(now)), Some((at(when), slot)));
                            deadlines.remove(at(when), slot);
                        }
                        prop_assert_eq!(deadlines.first_due(at(now)), None);
                    }
                }
                prop_assert_eq!(deadlines.next(), model.iter().map(|(when, _)| at(*when)).min());
                prop_assert_eq!(deadlines.is_empty(), model.is_empty());
            }
        }
    }
}
