//! Exchanges so many 8-byte tagged messages over memory, for `cargo xtask cost` to count instructions.

use ofi_memory::{Buffer, Span};
use ofi_sim::wire::pair;

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let (a, b) = pair::new();
    let (mut from, mut to) = (*b"8 bytes.", [0u8; 8]);
    for _ in 0..count {
        to.fill(0);
        // SAFETY: the array outlives the message, which is complete when `message` returns.
        let source = unsafe { Span::new(from.as_mut_ptr(), from.len()) };
        // SAFETY: as above.
        let target = unsafe { Span::new(to.as_mut_ptr(), to.len()) };
        pair::message(&a, &b, Buffer::One(source), Buffer::One(target));
        assert_eq!(from, to);
    }
}
