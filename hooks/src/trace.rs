//! The hook `trace`: a line for each call, with its arguments as far as they are numbers.

use crate::hook::{Call, Hook, Outcome};
use core::cell::Cell;
use std::fmt::Write as _;

/// Prints each call.
pub(crate) struct Trace;

thread_local! {
    /// Reads of queues that found nothing, since this thread's last line.
    static EMPTY: Cell<u64> = const { Cell::new(0) };
}

impl Hook for Trace {
    fn called(&self, call: &Call<'_>) {
        if call.outcome.is_again() && call.slot.polls() {
            EMPTY.set(EMPTY.get() + 1);
            return;
        }
        let text = line(call, EMPTY.take());
        eprint!("{text}");
    }
}

fn line(call: &Call<'_>, empty: u64) -> String {
    let mut out = String::new();
    if empty > 0 {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "ofi trace: {empty} reads found nothing");
    }
    let (provider, slot) = (call.owner.name(), call.slot);
    let _ = write!(out, "ofi trace: {provider} {:#x} {slot}(", call.object);
    for (index, word) in call.arguments[1..slot.arguments().max(1)].iter().enumerate() {
        let _ = write!(out, "{}{word:#x}", if index == 0 { "" } else { ", " });
    }
    let _ = match call.outcome {
        Outcome::Good(value) => writeln!(out, ") = {value}"),
        Outcome::Failed(errno) => writeln!(out, ") = {} ({errno})", errno.negative()),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Owner, slot_named};
    use ofi_core::Errno;

    #[test]
    fn a_line_has_provider_object_call_arguments_and_result() {
        let owner = Owner::new("tcp", true);
        let mut arguments = [0; 16];
        arguments[..3].copy_from_slice(&[0x10, 0x20, 0x3]);
        let slot = slot_named("cq", "read");
        let outcome = Outcome::Good(2);
        let call = Call { owner: &owner, slot, object: 0x10, class: 14, arguments, bytes: 0, outcome, took: 0 };
        assert_eq!(line(&call, 0), "ofi trace: tcp 0x10 cq.read(0x20, 0x3) = 2\n");
        let failed = Call { outcome: Outcome::Failed(Errno::AGAIN), ..call };
        let text = line(&failed, 7);
        assert!(text.starts_with("ofi trace: 7 reads found nothing\nofi trace: tcp 0x10 cq.read(0x20, 0x3) = -11 ("));
    }
}
