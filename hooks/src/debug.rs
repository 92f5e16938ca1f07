//! The hook `debug`: prints each call that fails, and at the end of the process the objects that
//! the program has left open.

use crate::hook::{Call, Hook, Outcome};
use crate::tables::{Owner, class_name};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Failed calls and open objects.
#[derive(Default)]
pub(crate) struct Debug {
    /// Address, class and provider.
    open: Mutex<BTreeMap<usize, (usize, String)>>,
}

impl Debug {
    fn open(&self) -> MutexGuard<'_, BTreeMap<usize, (usize, String)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Debug {
    fn called(&self, call: &Call<'_>) {
        match call.outcome {
            Outcome::Good(_) if call.slot.closes() => {
                self.open().remove(&call.object);
            }
            Outcome::Failed(errno) if !call.outcome.is_again() => {
                let (provider, class) = (call.owner.name(), class_name(call.class));
                eprintln!("ofi debug: {provider} {class} {:#x}: {} fails: {errno}", call.object, call.slot);
            }
            _ => {}
        }
    }

    fn opened(&self, owner: &Owner, object: usize, class: usize) {
        self.open().insert(object, (class, owner.name().to_owned()));
    }

    fn report(&self) -> String {
        let open = self.open();
        let mut out = String::new();
        for (object, (class, provider)) in open.iter() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "ofi debug: {provider} {} {object:#x} was never closed", class_name(*class));
        }
        out
    }
}
