//! Receive contexts that several endpoints share (fi_endpoint(3), fi_srx_context): messages to any
//! of the endpoints match the context's receives, and complete on the endpoint that received them.

use ofi_core::{Addr, BindFlags, Caps, Completion, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_engine::{AddressVector, CompletionQueue, RxSettings, SharedRx, Waiting};
use ofi_memory::{Buffer, Loan};
use ofi_os::clock;
use ofi_os::wait_fd::FdWaitObject;
use ofi_sim::wire::Wire;
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicUsize, Ordering};
use std::net::SocketAddr;
use std::sync::Arc;

use std::time::Duration;

type Ep = Endpoint<Wire<Vec<u8>>, Park>;

const CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::SEND)
    .union(Caps::RECV)
    .union(Caps::SOURCE)
    .union(Caps::DIRECTED_RECV)
    .union(Caps::TAGGED_MULTI_RECV);

/// Everything ends within this time.
const LIMIT: Duration = Duration::from_secs(20);

fn addr(port: u16) -> Addr {
    Addr::from(SocketAddr::from(([127, 0, 0, 1], port)))
}

struct Side {
    ep: Arc<Ep>,
    cq: Arc<CompletionQueue<Park>>,
}

impl Side {
    fn read(&self) -> Vec<Completion> {
        let mut entries = Vec::new();
        match self.cq.read(8, |entry| entries.push(*entry)) {
            Ok(_) | Err(Errno::AGAIN) => entries,
            Err(errno) => panic!("the queue reports {errno:?}"),
        }
    }
}

fn config() -> Config {
    Config {
        kind: EndpointKind::Rdm,
        caps: CAPS,
        tx_size: 1 << 20,
        rx_size: 1 << 20,
        limits: Limits::new(usize::MAX, 4096),
        nonce: ofi_os::random(),
        provider: "wire",
        regions: Arc::default(),
        account: Arc::new(Account::new(256 << 20)),
        contexts: Contexts::default(),
    }
}

/// An endpoint on a wire, which takes its receives from `shared` if that is given.
fn open(wire: Wire<Vec<u8>>, av: &Arc<AddressVector>, shared: Option<&Arc<SharedRx<Park>>>) -> Side {
    let mut wire = Some(wire);
    let opener = Box::new(move |_| Ok(wire.take().expect("opened once")));
    let ep = Ep::new(Park::default(), config(), None, opener, None);
    let port = Arc::new(FdWaitObject::new(false).unwrap());
    let cq = Arc::new(CompletionQueue::new(Park::default(), 64, port, Waiting::Never));
    ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
    ep.bind_av(av).unwrap();
    if let Some(shared) = shared {
        ep.bind_rx(shared).unwrap();
    }
    ep.enable().unwrap();
    Side { ep, cq }
}

/// Two endpoints that share a context, each with a wire to a sender of its own.
struct World {
    shared: Arc<SharedRx<Park>>,
    av: Arc<AddressVector>,
    receivers: [Side; 2],
    senders: [Side; 2],
}

impl World {
    fn new() -> Self {
        let shared =
            SharedRx::new(Park::default(), RxSettings { size: 1 << 20, caps: CAPS }, Arc::new(Account::new(1 << 20)));
        let av = Arc::new(AddressVector::new(4, false));
        let pair = |port| {
            let (there, here) = Wire::pair(addr(port), addr(port + 1));
            let to = Arc::new(AddressVector::new(1, false));
            to.insert(addr(port + 1));
            (open(there, &to, None), open(here, &av, Some(&shared)))
        };
        let ((first, one), (second, two)) = (pair(10), pair(20));
        Self { shared, av, receivers: [one, two], senders: [first, second] }
    }

    fn post(&self, tag: u64, context: usize, len: usize) {
        self.post_from(FiAddr::UNSPEC, tag, context, len);
    }

    fn post_from(&self, src: FiAddr, tag: u64, context: usize, len: usize) {
        let buffer = Buffer::Owned(vec![0; len]);
        self.shared.receive(RecvOp { src, buffer, context, tag: Some((tag, 0)), flags: OpFlags::empty() }).unwrap();
    }

    fn send(&self, sender: usize, tag: u64, data: u64, len: usize) {
        let (dest, buffer, flags) = (FiAddr(0), Buffer::Owned(vec![7; len]), OpFlags::empty());
        let op = SendOp { dest, buffer, context: 1, tag: Some(tag), data: Some(data), flags, inject: false };
        self.senders[sender].ep.send(op).unwrap();
    }

    /// Polls everything `rounds` times. Returns each receiver's completions.
    fn poll(&self, rounds: usize) -> [Vec<Completion>; 2] {
        let mut done: [Vec<Completion>; 2] = Default::default();
        for _ in 0..rounds {
            self.senders.iter().for_each(|sender| drop(sender.read()));
            for (receiver, done) in self.receivers.iter().zip(&mut done) {
                done.extend(receiver.read());
            }
        }
        done
    }
}

/// Contexts and completion data.
fn reports(done: &[Completion]) -> Vec<(usize, u64)> {
    done.iter().map(|entry| (entry.context, entry.data)).collect()
}

#[test]
fn messages_of_any_endpoint_take_the_receives_in_their_order() {
    let world = World::new();
    (1..=4).for_each(|context| world.post(9, context, 100));
    for (sender, context, data) in [(1, 1, 10), (0, 2, 11), (0, 3, 12), (1, 4, 13)] {
        world.send(sender, 9, data, 8);
        let done = world.poll(20);
        assert_eq!(done[1 - sender].len(), 0);
        assert_eq!(reports(&done[sender]), [(context, data)]);
    }
}

#[test]
fn unexpected_messages_complete_on_the_endpoint_that_received_them() {
    for len in [8, 100_000, 3 << 20] {
        let world = World::new();
        for (sender, data) in [(0, 1), (1, 2), (1, 3), (0, 4)] {
            world.send(sender, 5, data, len);
            assert_eq!(world.poll(50).concat().len(), 0);
        }
        (1..=4).for_each(|context| world.post(5, context, len));
        let done = world.poll(200);
        // The oldest first, on whichever endpoint it arrived.
        assert_eq!(reports(&done[0]), [(1, 1), (4, 4)], "{len} bytes");
        assert_eq!(reports(&done[1]), [(2, 2), (3, 3)], "{len} bytes");
        assert!(done.concat().iter().all(|entry| entry.len == len));
    }
}

#[test]
fn a_multi_receive_buffer_takes_messages_of_both_endpoints() {
    let world = World::new();
    (0..2).for_each(|sender| world.send(sender, 5, sender as u64, 1000));
    assert_eq!(world.poll(50).concat().len(), 0);
    let (_loan, buffer) = Loan::new(vec![0; 40_000]);
    let (src, flags) = (FiAddr::UNSPEC, OpFlags::MULTI_RECV);
    world.shared.receive(RecvOp { src, buffer, context: 1, tag: Some((5, 0)), flags }).unwrap();
    let done = world.poll(50);
    assert_eq!((done[0].len(), done[1].len()), (1, 1));
    assert_eq!(done[1][0].buf, done[0][0].buf + 1000);
    // It is released when less than 16 KiB are free.
    world.send(1, 5, 2, 30_000);
    let done = world.poll(50);
    assert!(done[1][0].flags.contains(OpFlags::MULTI_RECV), "{done:?}");
}

#[test]
fn directed_receives_match_their_source_on_any_endpoint() {
    let world = World::new();
    // Posted before the address is inserted, and before the sender is known.
    world.post_from(FiAddr(1), 5, 1, 8);
    (0..2).for_each(|sender| world.send(sender, 5, sender as u64, 8));
    assert_eq!(world.poll(50).concat().len(), 0);
    assert_eq!((world.av.insert(addr(10)), world.av.insert(addr(20))), (FiAddr(0), FiAddr(1)));
    let done = world.poll(50);
    assert_eq!((reports(&done[0]), reports(&done[1])), (vec![], vec![(1, 1)]));
    assert_eq!(done[1][0].src, FiAddr(1));
    world.post_from(FiAddr(0), 5, 2, 8);
    let done = world.poll(50);
    assert_eq!((reports(&done[0]), reports(&done[1])), (vec![(2, 0)], vec![]));
}

#[test]
fn an_endpoint_that_is_closed_leaves_the_context_to_the_others() {
    let world = World::new();
    (0..2).for_each(|sender| world.send(sender, 5, sender as u64, 3 << 20));
    world.poll(50);
    // Both messages are matched; the first endpoint is closed before it handles its match.
    (1..=3).for_each(|context| world.post(5, context, 3 << 20));
    world.receivers[0].ep.close();
    let failure = world.receivers[0].cq.read_error().expect("the receive that had its message fails");
    assert_eq!((failure.completion.context, failure.errno), (1, Errno::ECANCELED));
    world.send(1, 5, 2, 8);
    let done = world.poll(200);
    assert_eq!((reports(&done[0]), reports(&done[1])), (vec![], vec![(3, 2), (2, 1)]));
}

#[test]
fn a_receive_brings_a_blocked_peer_the_credit_for_its_message() {
    let world = World::new();
    // More than any window: the last messages wait at the sender.
    (0..1000).for_each(|data| world.send(1, 5, data, 8000));
    world.send(1, 6, 1000, 8);
    world.poll(200);
    world.post(6, 1, 8);
    assert_eq!(reports(&world.poll(200)[1]), [(1, 1000)]);
}

#[test]
fn a_receive_for_a_handle_is_told_of_an_insertion_before_any_poll() {
    let world = World::new();
    world.send(1, 5, 7, 8);
    world.poll(50);
    world.post_from(FiAddr(0), 5, 1, 8);
    world.av.insert(addr(20));
    assert_eq!(reports(&world.poll(50)[1]), [(1, 7)]);
}

#[test]
fn a_context_that_is_dropped_with_its_receives_ends_them() {
    let world = World::new();
    world.post(5, 1, 8);
    world.receivers.iter().for_each(|receiver| receiver.ep.close());
}

#[test]
fn endpoints_of_a_context_have_one_address_vector() {
    let world = World::new();
    let (_there, here) = Wire::<Vec<u8>>::pair(addr(30), addr(31));
    let mut here = Some(here);
    let ep = Ep::new(Park::default(), config(), None, Box::new(move |_| Ok(here.take().expect("opened once"))), None);
    ep.bind_rx(&world.shared).unwrap();
    let other = Arc::new(AddressVector::new(1, false));
    assert_eq!(ep.bind_av(&other).unwrap_err().errno(), Errno::EINVAL);
    ep.bind_av(&world.av).unwrap();
}

#[test]
fn a_closed_endpoint_leaves_its_successor_alone() {
    let world = World::new();
    world.send(0, 5, 1, 3 << 20);
    world.poll(50);
    world.receivers[0].ep.close();
    let (there, here) = Wire::pair(addr(30), addr(31));
    let to = Arc::new(AddressVector::new(1, false));
    to.insert(addr(31));
    let (sender, receiver) = (open(there, &to, None), open(here, &world.av, Some(&world.shared)));
    let World { receivers: [first, second], senders, shared, .. } = world;
    drop(first);
    let (dest, buffer, flags) = (FiAddr(0), Buffer::Owned(vec![7; 3 << 20]), OpFlags::empty());
    let op = SendOp { dest, buffer, context: 1, tag: Some(5), data: Some(2), flags, inject: false };
    sender.ep.send(op).unwrap();
    let (src, buffer) = (FiAddr::UNSPEC, Buffer::Owned(vec![0; 3 << 20]));
    let mut done = Vec::new();
    for round in 0..200 {
        drop((sender.read(), senders[1].read(), second.read()));
        done.extend(receiver.read());
        if round == 100 {
            let op = RecvOp { src, buffer: buffer.to_owned_copy(), context: 1, tag: Some((5, 0)), flags };
            shared.receive(op).unwrap();
        }
    }
    assert_eq!(reports(&done), [(1, 2)]);
}

#[test]
fn posts_meet_messages_on_other_threads() {
    const COUNT: usize = 5000;
    let world = World::new();
    let (done, end) = (AtomicUsize::new(0), clock::now() + LIMIT);
    let seen: Vec<AtomicUsize> = (0..COUNT).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for side in 0..2 {
            let (world, seen, done) = (&world, &seen, &done);
            scope.spawn(move || {
                let mut next = side;
                while done.load(Ordering::Relaxed) < COUNT && clock::now() < end {
                    if next < COUNT {
                        world.send(side, 5, next as u64, if next.is_multiple_of(97) { 500_000 } else { 8 });
                        next += 2;
                    }
                    drop(world.senders[side].read());
                    for entry in world.receivers[side].read() {
                        seen[usize::try_from(entry.data).unwrap()].fetch_add(1, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        (0..COUNT).for_each(|context| world.post(5, context, 500_000));
    });
    assert_eq!(done.load(Ordering::Relaxed), COUNT);
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "each message arrives once");
}
