//! A slab whose entries can be removed in place: moving a large entry out only to drop it costs
//! more than the operation that the entry stands for.

/// Entries by number; free numbers are reused, the most recently freed first.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Head of the free list; `slots.len()` if no slot is free.
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum Slot<T> {
    /// The next free slot.
    Free(u32),
    Used(T),
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The number that the next entry will get.
    #[inline(always)]
    pub(crate) const fn next_number(&self) -> u32 {
        self.free
    }

    /// Adds an entry and returns its number.
    ///
    /// # Panics
    /// With 2^32 entries.
    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let number = self.free;
        self.len += 1;
        if number as usize == self.slots.len() {
            self.slots.push(Slot::Used(value));
            self.free = u32::try_from(self.slots.len()).expect("tables are far smaller than 2^32");
        } else {
            let slot = &mut self.slots[number as usize];
            let Slot::Free(next) = *slot else { unreachable!("a free slot is free") };
            self.free = next;
            // A free slot needs no drop, which an assignment would check.
            core::mem::forget(core::mem::replace(slot, Slot::Used(value)));
        }
        number
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        match self.slots.get(number as usize) {
            Some(Slot::Used(value)) => Some(value),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.slots.get_mut(number as usize) {
            Some(Slot::Used(value)) => Some(value),
            _ => None,
        }
    }

    /// An entry that may be removed in place.
    #[inline(always)]
    pub(crate) fn occupied(&mut self, number: u32) -> Option<Occupied<'_, T>> {
        let Self { slots, free, len } = self;
        let slot = slots.get_mut(number as usize).filter(|slot| matches!(slot, Slot::Used(_)))?;
        Some(Occupied { slot, number, free, len })
    }

    /// Removes an entry and returns it.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        if matches!(slot, Slot::Free(_)) {
            return None;
        }
        let Slot::Used(value) = core::mem::replace(slot, Slot::Free(self.free)) else { return None };
        self.free = number;
        self.len -= 1;
        Some(value)
    }

    /// Drops an entry in place.
    #[inline]
    pub(crate) fn drop_entry(&mut self, number: u32) {
        if let Some(slot @ Slot::Used(_)) = self.slots.get_mut(number as usize) {
            *slot = Slot::Free(self.free);
            self.free = number;
            self.len -= 1;
        }
    }

    /// The entries with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Used(value) => Some((number, value)),
            Slot::Free(_) => None,
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(number, slot)| match slot {
            Slot::Used(value) => Some((number, value)),
            Slot::Free(_) => None,
        })
    }

    /// Empties the table and returns its entries.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        (self.free, self.len) = (0, 0);
        core::mem::take(&mut self.slots).into_iter().filter_map(|slot| match slot {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        })
    }
}

/// An entry of a [`Table`].
pub(crate) struct Occupied<'a, T> {
    slot: &'a mut Slot<T>,
    number: u32,
    free: &'a mut u32,
    len: &'a mut usize,
}

impl<T> Occupied<'_, T> {
    /// The entry.
    #[inline(always)]
    pub(crate) fn value(&mut self) -> &mut T {
        match self.slot {
            Slot::Used(value) => value,
            Slot::Free(_) => unreachable!("the slot of an entry is in use"),
        }
    }

    /// Removes the entry in place. It is not dropped: the caller must leave it owning nothing.
    #[inline(always)]
    pub(crate) fn end(self) {
        core::mem::forget(core::mem::replace(self.slot, Slot::Free(*self.free)));
        *self.free = self.number;
        *self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn entries_keep_their_numbers(steps in proptest::collection::vec((0u8..6, 0u32..12), 0..300)) {
            let mut table = Table::new();
            let mut model = HashMap::new();
            for (at, (what, number)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        let next = table.next_number();
                        let number = table.insert(at);
                        prop_assert_eq!(number, next);
                        prop_assert!(model.insert(number, at).is_none());
                    }
                    2 => prop_assert_eq!(table.remove(number), model.remove(&number)),
                    3 => {
                        table.drop_entry(number);
                        model.remove(&number);
                    }
                    4 => match table.occupied(number) {
                        Some(mut entry) => {
                            prop_assert_eq!(Some(*entry.value()), model.remove(&number));
                            entry.end();
                        }
                        None => prop_assert!(!model.contains_key(&number)),
                    },
                    _ => prop_assert_eq!(table.occupied(number).map(|mut entry| *entry.value()), model.get(&number).copied()),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.get(number), model.get(&number));
                prop_assert_eq!(table.get_mut(number).copied(), model.get(&number).copied());
                prop_assert_eq!(table.iter().map(|(number, value)| (number, *value)).collect::<HashMap<_, _>>(), model.clone());
            }
            prop_assert_eq!(table.take_all().count(), model.len());
            prop_assert_eq!((table.len(), table.iter().count()), (0, 0));
        }
    }
}
