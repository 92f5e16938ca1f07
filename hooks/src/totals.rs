//! What hooks count, for each call of each provider.

use crate::hook::Call;
use crate::tables::{FID, OWNERS, Owner, SLOTS, TEXTS, tables};
use std::sync::OnceLock;

/// A value for each slot of each table of each provider, made when it is first needed.
pub(crate) struct Totals<T>(Vec<OnceLock<[T; SLOTS]>>);

impl<T: Default> Default for Totals<T> {
    fn default() -> Self {
        Self((0..OWNERS * TEXTS.len()).map(|_| OnceLock::new()).collect())
    }
}

impl<T: Default> Totals<T> {
    /// The value of a call's slot.
    pub(crate) fn of(&self, call: &Call<'_>, change: impl FnOnce(&T)) {
        let table = TEXTS.iter().position(|(name, _)| *name == call.slot.table()).unwrap_or(FID);
        let cell = &self.0[call.owner.index() * TEXTS.len() + table];
        change(&cell.get_or_init(|| core::array::from_fn(|_| T::default()))[call.slot.index]);
    }

    /// All values, with provider and call.
    pub(crate) fn each(&self, mut visit: impl FnMut(&str, &str, &T)) {
        let owners = Owner::all();
        for (place, values) in self.0.iter().enumerate() {
            let (Some(values), Some(owner)) = (values.get(), owners.get(place / TEXTS.len())) else { continue };
            for (slot, value) in tables()[place % TEXTS.len()].slots.iter().zip(values) {
                visit(owner.name(), &slot.to_string(), value);
            }
        }
    }
}
