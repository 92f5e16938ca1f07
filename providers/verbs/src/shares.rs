//! How many slots the connections of a device object share, and which connection may take one.
//! Invariant: a connection that holds no slot for sending can always take one, so it always has
//! a completion to wait for, after which it goes on; none waits for another's.

use crate::device::{RECEIVES, SENDS};

/// Slots for sending that are shared by any number of connections; each adds one of its own.
const SHARED_SENDS: usize = 7 * SENDS as usize;
/// Slots in which segments arrive, for any number of connections. A sender whose segment finds
/// none tries again.
pub(crate) const SHARED_RECEIVES: usize = 8 * RECEIVES as usize;

/// The slots for sending of a number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares {
    connections: usize,
    /// Connections that hold no slot.
    idle: usize,
    total: usize,
    free: usize,
}

/// Slots for receiving that so many connections need.
pub(crate) const fn receives(connections: usize) -> usize {
    let all = connections * RECEIVES as usize;
    if all < SHARED_RECEIVES { all } else { SHARED_RECEIVES }
}

impl Shares {
    pub(crate) const fn connections(&self) -> usize {
        self.connections
    }

    /// Whether connections should give slots back as soon as they can: not all of them can have as
    /// many as they want, and there are few beyond those that connections without one may take.
    pub(crate) const fn is_short(&self) -> bool {
        self.connections * SENDS as usize > self.total && self.free.saturating_sub(self.idle) < SENDS as usize
    }

    /// How many slots are lacking for one more connection.
    pub(crate) fn lacking(&self) -> usize {
        let connections = self.connections + 1;
        let wanted = (connections * usize::from(SENDS)).min(SHARED_SENDS + connections);
        // The others may have taken all that a connection left behind.
        wanted.saturating_sub(self.total).max((self.idle + 1).saturating_sub(self.free))
    }

    pub(crate) const fn add(&mut self, slots: usize) {
        self.total += slots;
        self.free += slots;
    }

    /// One more connection. None are [lacking](Self::lacking).
    pub(crate) const fn join(&mut self) {
        self.connections += 1;
        self.idle += 1;
    }

    /// A connection that holds no slot is gone. Its share stays for the next one.
    pub(crate) const fn leave(&mut self) {
        self.connections -= 1;
        self.idle -= 1;
    }

    /// Takes a slot for a connection that holds so many; false if it has to wait for its own.
    pub(crate) const fn take(&mut self, held: usize) -> bool {
        let may = if held == 0 { true } else { self.free > self.idle };
        if may {
            self.free -= 1;
            if held == 0 {
                self.idle -= 1;
            }
        }
        may
    }

    /// A slot comes back from a connection that still holds so many.
    pub(crate) const fn put(&mut self, held: usize) {
        self.free += 1;
        if held == 0 {
            self.idle += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_connection_without_a_slot_gets_one(steps in prop::collection::vec((0..4u8, any::<prop::sample::Index>()), 0..600)) {
            let mut shares = Shares::default();
            let mut held: Vec<usize> = Vec::new();
            for (step, which) in steps {
                match step {
                    0 => {
                        // Some more, as the pool adds.
                        shares.add(shares.lacking().next_multiple_of(usize::from(SENDS)));
                        shares.join();
                        held.push(0);
                    }
                    1 if !held.is_empty() => {
                        let gone = held.swap_remove(which.index(held.len()));
                        (0..gone).rev().for_each(|held| shares.put(held));
                        shares.leave();
                    }
                    2 if !held.is_empty() => {
                        let at = which.index(held.len());
                        let held = &mut held[at];
                        let took = *held < usize::from(SENDS) && shares.take(*held);
                        prop_assert!(took || *held > 0);
                        *held += usize::from(took);
                    }
                    _ => {
                        if let Some(held) = held.iter_mut().find(|held| **held > 0) {
                            *held -= 1;
                            shares.put(*held);
                        }
                    }
                }
                prop_assert_eq!(shares.total - shares.free, held.iter().sum::<usize>());
                prop_assert_eq!(shares.connections, held.len());
                // Any of them, and then all of them, get one now.
                let mut all = shares;
                prop_assert!(held.iter().filter(|held| **held == 0).all(|_| all.take(0)));
            }
        }
    }

    #[test]
    fn slots_are_short_only_among_many_connections() {
        let mut shares = Shares::default();
        for connections in 1..10 {
            shares.add(shares.lacking());
            shares.join();
            // All are in use but one of each connection.
            let mut used = shares;
            (0..connections).for_each(|_| (0..usize::from(SENDS) - 1).for_each(|held| _ = used.take(held)));
            assert_eq!(used.is_short(), connections > 7, "{connections}");
            assert!(!shares.is_short(), "none is in use");
        }
    }

    #[test]
    fn slots_are_few_for_many_connections() {
        let mut shares = Shares::default();
        let slots: Vec<usize> = (0..1000)
            .map(|_| {
                shares.add(shares.lacking());
                shares.join();
                shares.total + receives(shares.connections())
            })
            .collect();
        assert_eq!((slots[0], slots[6], slots[999]), (48, 7 * 48, 1000 + SHARED_SENDS + SHARED_RECEIVES));
    }
}
