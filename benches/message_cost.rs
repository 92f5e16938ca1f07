//! Exchanges 8-byte tagged messages for `cargo xtask cost` to count instructions:
//! `message_cost memory COUNT` through memory, `message_cost tcp COUNT` through the system's
//! sockets. A third argument is what the receiver holds meanwhile: `queues=N` is N unexpected
//! messages and N posted receives of other tags, `connections=N` is N peers that send nothing.

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

/// What the receiver holds beside the messages.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    Queues(u64),
    Connections(u64),
}

impl Beside {
    fn parse(text: Option<&String>) -> Option<Self> {
        let Some(text) = text else { return Some(Self::Nothing) };
        let (what, count) = text.split_once('=')?;
        let count = count.parse().ok()?;
        match what {
            "queues" => Some(Self::Queues(count)),
            "connections" => Some(Self::Connections(count)),
            _ => None,
        }
    }
}

fn exchange_over_memory(count: usize, beside: Beside) {
    let (a, b) = pair::in_memory();
    if let Beside::Queues(count) = beside {
        pair::fill_queues(&a, &b, count);
    }
    exchange(&(a, b), count);
}

fn exchange_over_tcp(count: usize, beside: Beside) {
    let (a, b) = pair::over_tcp();
    let peers = match beside {
        Beside::Connections(count) => Some(pair::idle_peers(&b, count)),
        Beside::Queues(_) | Beside::Nothing => None,
    };
    if let Beside::Queues(count) = beside {
        pair::fill_queues(&a, &b, count);
    }
    exchange(&(a, b), count);
    drop(peers);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), count, Beside::parse(arguments.get(2))) {
        (Some("memory"), Some(count), Some(beside)) => exchange_over_memory(count, beside),
        (Some("tcp"), Some(count), Some(beside)) => exchange_over_tcp(count, beside),
        _ => panic!("usage: message_cost memory|tcp COUNT [queues=N|connections=N]"),
    }
}
