//! Lists of connections that one leaves in constant time: each connection knows its place.

use slab::Slab;

/// Removes the entry at `at`, whose connection forgets its place. The last entry moves there, and
/// its connection learns that; `place` tells where a connection keeps its place.
pub(crate) fn remove<T>(
    list: &mut Vec<usize>,
    at: usize,
    conns: &mut Slab<T>,
    place: impl Fn(&mut T) -> &mut Option<usize>,
) {
    list.swap_remove(at);
    if let Some(conn) = list.get(at).and_then(|moved| conns.get_mut(*moved)) {
        *place(conn) = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_connection_of_a_list_knows_its_place(steps in prop::collection::vec(0..12usize, 0..100)) {
            let mut conns: Slab<Option<usize>> = (0..12).map(|slot| (slot, None)).collect();
            let (mut list, mut model) = (Vec::new(), std::collections::BTreeSet::new());
            for slot in steps {
                // In turn into the list and out of it.
                match conns[slot].take() {
                    Some(at) => remove(&mut list, at, &mut conns, |place| place),
                    None => {
                        conns[slot] = Some(list.len());
                        list.push(slot);
                    }
                }
                if !model.remove(&slot) {
                    model.insert(slot);
                }
                prop_assert_eq!(&list.iter().copied().collect::<std::collections::BTreeSet<_>>(), &model);
                prop_assert_eq!(list.len(), model.len());
                for (place, slot) in list.iter().enumerate() {
                    prop_assert_eq!(conns[*slot], Some(place));
                }
            }
        }
    }
}
