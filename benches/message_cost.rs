//! Exchanges 8-byte tagged messages for `cargo xtask cost` to count instructions:
//! `message_cost memory COUNT` through memory, `message_cost shm COUNT` through the shm provider,
//! `message_cost tcp COUNT` through the system's sockets. The third argument `write` or
//! `fetch-add` replaces the messages by 8-byte operations. Other values set the load of the
//! receiver: with `queues=N` it holds N unexpected messages and N posted receives of other
//! tags, with `connections=N` it has N peers that send nothing (tcp only), with `late=N` it posts
//! receives for N messages at a time, after they have arrived.

use core::iter::repeat_with;
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

/// The same with receives that are posted after their messages, `window` at a time.
fn exchange_late<T: Transport>((a, b): &(Side<T>, Side<T>), count: usize, window: usize) {
    let (mut from, mut to) = (*b"8 bytes.", [0u8; 8]);
    for _ in 0..count / window {
        to.fill(0);
        let (source, target) = (from.as_mut_ptr(), to.as_mut_ptr());
        let sources = repeat_with(|| {
            // SAFETY: the array outlives the messages, which are complete when
            // `unexpected_messages` returns.
            Buffer::One(unsafe { Span::new(source, 8) })
        });
        let targets = repeat_with(|| {
            // SAFETY: as above.
            Buffer::One(unsafe { Span::new(target, 8) })
        });
        pair::unexpected_messages(a, b, sources.take(window), targets.take(window));
        assert_eq!(from, to);
    }
}

/// The key of the region that is written and added to.
const KEY: u64 = 7;

/// Writes 8 bytes to the other side's memory, each time with different contents.
fn write<T: Transport>((a, b): &(Side<T>, Side<T>), count: usize) {
    let region = b.expose(KEY, vec![0; 64]);
    let mut from = [0u8; 8];
    for turn in 0..count {
        from = turn.to_ne_bytes();
        // SAFETY: the array outlives the write, which is complete when `write` returns.
        let source = unsafe { Span::new(from.as_mut_ptr(), from.len()) };
        pair::write(a, b, KEY, Buffer::One(source));
    }
    assert_eq!(region.close()[..8], from);
}

/// Adds to a word in the other side's memory.
fn fetch_add<T: Transport>((a, b): &(Side<T>, Side<T>), count: usize) {
    let region = b.expose(KEY, vec![0; 64]);
    let (mut one, mut before) = (1u64.to_ne_bytes(), [0u8; 8]);
    for turn in 0..count {
        // SAFETY: the array outlives the operation, which is complete when `fetch_add` returns.
        let operand = unsafe { Span::new(one.as_mut_ptr(), one.len()) };
        // SAFETY: as above.
        let result = unsafe { Span::new(before.as_mut_ptr(), before.len()) };
        pair::fetch_add(a, b, KEY, Buffer::One(operand), Buffer::One(result));
        assert_eq!(before, turn.to_ne_bytes());
    }
    assert_eq!(region.close()[..8], count.to_ne_bytes());
}

/// The load of the receiver, or the operation that replaces messages.
#[derive(Clone, Copy)]
enum Receiver {
    Ready,
    Write,
    FetchAdd,
    Queues(u64),
    Connections(u64),
    Late(usize),
}

impl Receiver {
    fn parse(text: Option<&String>) -> Option<Self> {
        let Some(text) = text else { return Some(Self::Ready) };
        match text.as_str() {
            "write" => return Some(Self::Write),
            "fetch-add" => return Some(Self::FetchAdd),
            _ => {}
        }
        let (what, count) = text.split_once('=')?;
        let count = count.parse().ok()?;
        match what {
            "queues" => Some(Self::Queues(count)),
            "connections" => Some(Self::Connections(count)),
            "late" => usize::try_from(count).ok().map(Self::Late),
            _ => None,
        }
    }
}

/// Exchanges messages over a pair that can have no idle connections.
fn exchange_with<T: Transport>(pair: &(Side<T>, Side<T>), count: usize, receiver: Receiver) {
    match receiver {
        Receiver::Ready => {}
        Receiver::Queues(count) => pair::fill_queues(&pair.0, &pair.1, count),
        Receiver::Connections(_) => panic!("only tcp has connections"),
        Receiver::Write => return write(pair, count),
        Receiver::FetchAdd => return fetch_add(pair, count),
        Receiver::Late(window) => return exchange_late(pair, count, window),
    }
    exchange(pair, count);
}

fn exchange_over_tcp(count: usize, receiver: Receiver) {
    let pair = pair::over_tcp();
    let (receiver, peers) = match receiver {
        Receiver::Connections(count) => (Receiver::Ready, Some(pair::idle_peers(&pair.1, count))),
        other => (other, None),
    };
    exchange_with(&pair, count, receiver);
    drop(peers);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.get(1).and_then(|text| text.parse().ok());
    match (arguments.first().map(String::as_str), count, Receiver::parse(arguments.get(2))) {
        (Some("memory"), Some(count), Some(receiver)) => exchange_with(&pair::in_memory(), count, receiver),
        (Some("shm"), Some(count), Some(receiver)) => exchange_with(&pair::over_shm(), count, receiver),
        (Some("tcp"), Some(count), Some(receiver)) => exchange_over_tcp(count, receiver),
        _ => panic!("usage: message_cost memory|shm|tcp COUNT [write|fetch-add|queues=N|connections=N|late=N]"),
    }
}
