//! Sets of an address vector's addresses (fi_av_set(3)), in the order in which they were added.
//! A set holds handles: what becomes of an address in the address vector does not change the set.

use crate::av::AddressVector;
use crate::hash::HashMap;
use ofi_core::{Errno, FiAddr};
use ofi_sync::busy::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The addresses with which a set begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// None.
    Nothing,
    /// All that the address vector has.
    Everything,
    /// Each `stride`-th from `first` to `last` that the address vector has.
    Range {
        /// The first handle.
        first: FiAddr,
        /// The last handle, inclusive.
        last: FiAddr,
        /// The difference between two successive handles.
        stride: u64,
    },
}

impl Selection {
    /// A range, which may name at most `most` handles unless that is 0.
    ///
    /// # Errors
    /// EINVAL if it has only one end, ends before it begins, makes no steps or names too many.
    pub fn range(first: FiAddr, last: FiAddr, stride: u64, most: usize) -> Result<Self, Errno> {
        let is_open = first == FiAddr::UNSPEC || last == FiAddr::UNSPEC;
        let steps = last.0.checked_sub(first.0).and_then(|length| length.checked_div(stride)).ok_or(Errno::EINVAL)?;
        if is_open || most > 0 && steps >= most as u64 {
            return Err(Errno::EINVAL);
        }
        Ok(Self::Range { first, last, stride })
    }
}

/// A set of addresses.
#[derive(Debug)]
pub struct AvSet {
    av: Arc<AddressVector>,
    members: Mutex<Members>,
    /// Keeps the address vector open.
    _user: Child,
}

#[derive(Debug, Default)]
struct Members {
    /// In the order of insertion, without duplicates.
    order: Vec<FiAddr>,
    /// The same, to be found.
    present: HashMap<FiAddr, ()>,
}

impl Members {
    fn has(&self, member: FiAddr) -> bool {
        self.present.contains_key(&member)
    }

    /// Appends those that are not members yet, all or none.
    fn append(&mut self, new: &[FiAddr]) -> Result<(), Errno> {
        let Self { order, present } = self;
        let reserved = order.try_reserve(new.len()).is_ok() && present.try_reserve(new.len()).is_ok();
        if !reserved {
            return Err(Errno::ENOMEM);
        }
        order.extend(new.iter().filter(|member| present.insert(**member, ()).is_none()));
        Ok(())
    }

    fn retain(&mut self, keep: impl Fn(FiAddr) -> bool) {
        let Self { order, present } = self;
        order.retain(|member| {
            let stays = keep(*member);
            if !stays {
                present.remove(member);
            }
            stays
        });
    }
}

impl AvSet {
    /// A set of addresses of `av`.
    ///
    /// # Errors
    /// ENOMEM if there is no memory for the members.
    pub fn new(av: &Arc<AddressVector>, selection: Selection) -> Result<Self, Errno> {
        let chosen = match selection {
            Selection::Nothing => Vec::new(),
            Selection::Everything => av.handles(FiAddr(0), FiAddr::UNSPEC, 1)?,
            Selection::Range { first, last, stride } => av.handles(first, last, stride)?,
        };
        let mut members = Members::default();
        members.append(&chosen)?;
        Ok(Self { av: av.clone(), members: Mutex::new(members), _user: av.users.add() })
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its addresses are those of `av`.
    pub fn is_of(&self, av: &Arc<AddressVector>) -> bool {
        Arc::ptr_eq(&self.av, av)
    }

    /// The members in order.
    pub fn members(&self) -> Vec<FiAddr> {
        self.lock().order.clone()
    }

    /// The members of another set of the same address vector, copied: no call holds the locks of
    /// two sets.
    fn members_of(&self, other: &Self) -> Result<Members, Errno> {
        if !Arc::ptr_eq(&self.av, &other.av) {
            return Err(Errno::EINVAL);
        }
        let mut copy = Members::default();
        copy.append(&other.lock().order)?;
        Ok(copy)
    }

    /// Appends the members of `other` that are missing here, in their order.
    ///
    /// # Errors
    /// EINVAL if `other` belongs to another address vector, ENOMEM.
    pub fn unite(&self, other: &Self) -> Result<(), Errno> {
        let other = self.members_of(other)?;
        let mut members = self.lock();
        let missing: Vec<FiAddr> = other.order.into_iter().filter(|member| !members.has(*member)).collect();
        members.append(&missing)
    }

    /// Removes the members that `other` lacks.
    ///
    /// # Errors
    /// As for [`Self::unite`].
    pub fn intersect(&self, other: &Self) -> Result<(), Errno> {
        let other = self.members_of(other)?;
        self.lock().retain(|member| other.has(member));
        Ok(())
    }

    /// Removes the members that `other` has.
    ///
    /// # Errors
    /// As for [`Self::unite`].
    pub fn subtract(&self, other: &Self) -> Result<(), Errno> {
        let other = self.members_of(other)?;
        self.lock().retain(|member| !other.has(member));
        Ok(())
    }

    /// Appends an address.
    ///
    /// # Errors
    /// EINVAL if it is a member already, or the address vector does not have it; ENOMEM.
    pub fn insert(&self, member: FiAddr) -> Result<(), Errno> {
        let mut members = self.lock();
        if members.has(member) || self.av.lookup(member).is_none() {
            return Err(Errno::EINVAL);
        }
        members.append(&[member])
    }

    /// Removes an address.
    ///
    /// # Errors
    /// EINVAL if it is not a member.
    pub fn remove(&self, member: FiAddr) -> Result<(), Errno> {
        let mut members = self.lock();
        if !members.has(member) {
            return Err(Errno::EINVAL);
        }
        members.retain(|other| other != member);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use ofi_core::Addr;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn av(count: u16) -> Arc<AddressVector> {
        let av = AddressVector::new(0, false);
        for port in 1..=count {
            av.insert(Addr::from(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        Arc::new(av)
    }

    fn addrs(indices: &[u64]) -> Vec<FiAddr> {
        indices.iter().copied().map(FiAddr).collect()
    }

    #[test]
    fn ranges_choose_addresses_that_exist() {
        let av = av(10);
        assert!(av.remove(FiAddr(4)));
        let chosen = |first, last, stride| {
            let range = Selection::range(FiAddr(first), FiAddr(last), stride, 0).unwrap();
            AvSet::new(&av, range).unwrap().members()
        };
        assert_eq!(chosen(2, 8, 1), addrs(&[2, 3, 5, 6, 7, 8]));
        assert_eq!(chosen(1, 8, 3), addrs(&[1, 7]));
        assert_eq!(chosen(8, u64::MAX - 1, 1), addrs(&[8, 9]));
        assert_eq!(chosen(3, 3, 5), addrs(&[3]));
        assert_eq!(chosen(u64::MAX - 2, u64::MAX - 1, u64::MAX), []);
        assert_eq!(AvSet::new(&av, Selection::Everything).unwrap().members().len(), 9);
        assert_eq!(AvSet::new(&av, Selection::Nothing).unwrap().members(), []);
    }

    #[test]
    fn ranges_have_two_ends_a_stride_and_room() {
        let range = |first, last, stride, most| Selection::range(FiAddr(first), FiAddr(last), stride, most);
        assert!(range(0, 9, 1, 10).is_ok() && range(0, 9, 1, 9).is_err());
        assert!(range(0, 9, 2, 5).is_ok() && range(0, 9, 2, 4).is_err());
        for (first, last, stride) in [(1, 0, 1), (0, 1, 0), (0, u64::MAX, 1), (u64::MAX, u64::MAX, 1)] {
            assert_eq!(range(first, last, stride, 0), Err(Errno::EINVAL), "{first} {last} {stride}");
        }
    }

    #[test]
    fn members_are_addresses_of_the_vector_and_there_once() {
        let av = av(3);
        let set = AvSet::new(&av, Selection::Nothing).unwrap();
        assert!(set.insert(FiAddr(2)).is_ok() && set.insert(FiAddr(0)).is_ok());
        for bad in [FiAddr(2), FiAddr(3), FiAddr::UNSPEC] {
            assert_eq!(set.insert(bad), Err(Errno::EINVAL));
        }
        assert_eq!(set.remove(FiAddr(1)), Err(Errno::EINVAL));
        assert_eq!(set.members(), addrs(&[2, 0]));
        let other = AvSet::new(&self::av(3), Selection::Everything).unwrap();
        for result in [set.unite(&other), set.intersect(&other), set.subtract(&other)] {
            assert_eq!(result, Err(Errno::EINVAL));
        }
    }

    #[test]
    fn a_set_keeps_its_address_vector_in_use() {
        let av = av(1);
        let set = AvSet::new(&av, Selection::Everything).unwrap();
        assert_eq!(av.users.count(), 1);
        assert!(set.subtract(&set).is_ok() && set.members().is_empty(), "a set may be its own operand");
        drop(set);
        assert_eq!(av.users.count(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize, u64),
        Remove(usize, u64),
        Unite(usize, usize),
        Intersect(usize, usize),
        Subtract(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..3usize, 0..12u64).prop_map(|(set, member)| Step::Insert(set, member)),
            1 => (0..3usize, 0..12u64).prop_map(|(set, member)| Step::Remove(set, member)),
            1 => (0..3usize, 0..3usize).prop_map(|(to, from)| Step::Unite(to, from)),
            1 => (0..3usize, 0..3usize).prop_map(|(to, from)| Step::Intersect(to, from)),
            1 => (0..3usize, 0..3usize).prop_map(|(to, from)| Step::Subtract(to, from)),
        ]
    }

    /// What remains of `before` in `after` has its order, and what is new comes behind it.
    fn keeps_order(before: &[FiAddr], after: &[FiAddr]) -> bool {
        let kept: Vec<&FiAddr> = before.iter().filter(|member| after.contains(member)).collect();
        after.iter().take(kept.len()).eq(kept)
    }

    proptest! {
        #[test]
        fn sets_are_sets_in_order(steps in proptest::collection::vec(step(), 0..60)) {
            let av = av(10);
            let sets = [(); 3].map(|()| AvSet::new(&av, Selection::Nothing).unwrap());
            let mut models: [BTreeSet<u64>; 3] = Default::default();
            for step in steps {
                let before = sets.each_ref().map(AvSet::members);
                match step {
                    Step::Insert(set, member) => {
                        let can = member < 10 && models[set].insert(member);
                        prop_assert_eq!(sets[set].insert(FiAddr(member)).is_ok(), can);
                    }
                    Step::Remove(set, member) => {
                        prop_assert_eq!(sets[set].remove(FiAddr(member)).is_ok(), models[set].remove(&member));
                    }
                    Step::Unite(to, from) => {
                        prop_assert!(sets[to].unite(&sets[from]).is_ok());
                        models[to] = models[to].union(&models[from]).copied().collect();
                    }
                    Step::Intersect(to, from) => {
                        prop_assert!(sets[to].intersect(&sets[from]).is_ok());
                        models[to] = models[to].intersection(&models[from]).copied().collect();
                    }
                    Step::Subtract(to, from) => {
                        prop_assert!(sets[to].subtract(&sets[from]).is_ok());
                        models[to] = models[to].difference(&models[from]).copied().collect();
                    }
                }
                for ((set, model), before) in sets.iter().zip(&models).zip(&before) {
                    let members = set.members();
                    prop_assert_eq!(members.len(), model.len());
                    prop_assert_eq!(&members.iter().map(|member| member.0).collect::<BTreeSet<_>>(), model);
                    prop_assert!(keeps_order(before, &members));
                }
                if let Step::Unite(to, from) = step {
                    let new: Vec<FiAddr> = sets[to].members().split_off(before[to].len());
                    let missing = before[from].iter().filter(|member| !before[to].contains(member));
                    prop_assert!(new.iter().eq(missing), "new members come in the order of the other set");
                }
            }
        }
    }
}
