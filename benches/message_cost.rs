//! Exchanges 8-byte tagged messages for `cargo xtask cost` to count instructions:
//! `message_cost memory COUNT` through memory, `message_cost shm COUNT` through the shm provider,
//! `message_cost tcp COUNT` through the system's sockets. A third argument is what the receiver
//! holds meanwhile: `queues=N` is N unexpected messages and N posted receives of other tags,
//! `connections=N` is N peers that send nothing (tcp only).

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

/// Exchanges messages over a pair that can have no idle connections.
fn exchange_beside<T: Transport>(pair: &(Side<T>, Side<T>), count: usize, beside: Beside) {
    match beside {
        Beside::Nothing => {}
        Beside::Queues(count) => pair::fill_queues(&pair.0, &pair.1, count),
        Beside::Connections(_) => panic!("only tcp has connections"),
    }
    exchange(pair, count);
}

fn exchange_over_tcp(count: usize, beside: Beside) {
    let pair = pair::over_tcp();
    let (beside, peers) = match beside {
        Beside::Connections(count) => (Beside::Nothing, Some(pair::idle_peers(&pair.1, count))),
        other => (other, None),
    };
    exchange_beside(&pair, count, beside);
    drop(peers);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), count, Beside::parse(arguments.get(2))) {
        (Some("memory"), Some(count), Some(beside)) => exchange_beside(&pair::in_memory(), count, beside),
        (Some("shm"), Some(count), Some(beside)) => exchange_beside(&pair::over_shm(), count, beside),
        (Some("tcp"), Some(count), Some(beside)) => exchange_over_tcp(count, beside),
        _ => panic!("usage: message_cost memory|shm|tcp COUNT [queues=N|connections=N]"),
    }
}
