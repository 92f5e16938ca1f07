//! Exchanges COUNT 8-byte tagged messages through memory (`message_cost memory COUNT`) or the
//! system's sockets (`tcp`), for `cargo xtask cost` to count instructions.

use ofi_engine::transport::Transport;
use ofi_memory::{Buffer, Span};
use ofi_rig::Side;
use ofi_sim::pair;

fn exchange<T: Transport>((a, b): &(Side<T>, Side<T>), count: usize) {
    let (mut from, mut to) = (*b"8 bytes.", [0u8; 8]);
    for _ in 0..count {
        to.fill(0);
        // SAFETY: the array outlives the message, which is complete when `message` returns.
        let source = unsafe { Span::new(from.as_mut_ptr(), from.len()) };
        // SAFETY: as above.
        let target = unsafe { Span::new(to.as_mut_ptr(), to.len()) };
        pair::message(a, b, Buffer::One(source), Buffer::One(target));
        assert_eq!(from, to);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), count) {
        (Some("memory"), Some(count)) => exchange(&pair::in_memory(), count),
        (Some("tcp"), Some(count)) => exchange(&pair::over_tcp(), count),
        _ => panic!("usage: message_cost memory|tcp COUNT"),
    }
}
