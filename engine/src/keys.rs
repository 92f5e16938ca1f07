//! The entries of a table that belong to one owner: added, removed and listed at a cost that does
//! not grow with the table. An entry remembers its place in the owner's list; removing it moves the
//! list's last entry, whose place the caller corrects.

/// Keys of the entries, in no order.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<u32>);

impl Keys {
    /// Adds an entry. Returns its place.
    ///
    /// # Panics
    /// With 2^32 entries.
    #[inline(always)]
    pub(crate) fn add(&mut self, key: u32) -> u32 {
        self.0.push(key);
        u32::try_from(self.0.len() - 1).expect("tables are far smaller than 2^32")
    }

    /// Removes the entry with this key at its place. Returns the entry that has taken the place, if
    /// any.
    pub(crate) fn remove(&mut self, key: u32, place: u32) -> Option<u32> {
        let place = place as usize;
        debug_assert_eq!(self.0.get(place), Some(&key), "an entry remembers its place");
        if self.0.get(place) != Some(&key) {
            return None;
        }
        self.0.swap_remove(place);
        self.0.get(place).copied()
    }

    /// Whether the entry with this key is at this place.
    pub(crate) fn has(&self, key: u32, place: u32) -> bool {
        self.0.get(place as usize) == Some(&key)
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn entries_are_found_at_their_places(steps in proptest::collection::vec((any::<bool>(), 0u32..20), 0..200)) {
            let (mut keys, mut places) = (Keys::default(), BTreeMap::new());
            for (adds, key) in steps {
                match places.remove(&key) {
                    None if adds => drop(places.insert(key, keys.add(key))),
                    Some(place) => {
                        if let Some(moved) = keys.remove(key, place) {
                            places.insert(moved, place);
                        }
                    }
                    None => {}
                }
                prop_assert!(places.iter().all(|(key, place)| keys.has(*key, *place) && !keys.has(key + 1, *place)));
                prop_assert_eq!(keys.iter().collect::<BTreeSet<_>>(), places.keys().copied().collect::<BTreeSet<_>>());
                prop_assert_eq!((keys.len(), keys.is_empty()), (places.len(), places.is_empty()));
            }
        }
    }
}
