//! Completion queues, counters and event queues, foreign memory and pools of buffers.
#![cfg(all(feature = "tcp", feature = "shm"))]

mod common;

use common::info;
use core::future::Future;
use futures_lite::future::{or, zip};
use ofi::{
    BindFlags, BufferPool, CompletionQueue, Counter, DatagramEndpoint, Domain, EndpointType, Errno, Event, EventQueue,
    Fabric, Info, MemoryRegion, MrAccess, MsgEndpoint, MsgListener, Peer, RdmEndpoint, block_on,
};
use std::time::Duration;

/// How long a test waits for what has to come.
const LIMIT: Duration = Duration::from_secs(20);

/// An endpoint in a domain of its own, and what counts peers' writes to its memory.
struct End {
    ep: RdmEndpoint,
    region: MemoryRegion,
    written: Counter,
    bytes: Counter,
    domain: Domain,
}

impl End {
    fn open(info: &Info) -> Self {
        let domain = Fabric::open(info).unwrap().domain(info).unwrap();
        let (written, bytes) = (Counter::open(&domain), Counter::open_for_bytes(&domain));
        let ep = RdmEndpoint::open(&domain, info).unwrap();
        ep.bind_counter(&written, BindFlags::REMOTE_WRITE).unwrap();
        ep.bind_counter(&bytes, BindFlags::TRANSMIT).unwrap();
        let region = domain.register(vec![0; 4096], MrAccess::REMOTE).unwrap();
        Self { ep, region, written, bytes, domain }
    }

    fn is_shm(&self) -> bool {
        self.ep.local_addr().unwrap().to_string().contains("shm")
    }

    fn peer(&self, other: &Self) -> Peer {
        self.ep.peer(other.ep.local_addr().unwrap()).unwrap()
    }
}

fn over_each(test: impl Fn(&End, &End, Peer)) {
    for provider in ["tcp", "shm"] {
        let info = info(provider, EndpointType::RDM);
        let (one, two) = (End::open(&info), End::open(&info));
        test(&one, &two, one.peer(&two));
    }
}

/// What an operation comes to while another domain makes progress too.
fn run<T>(future: impl Future<Output = T>, other: &End) -> T {
    let serving = async {
        other.domain.serve().await;
        unreachable!("it never ends")
    };
    block_on(or(future, serving))
}

#[test]
fn a_queue_returns_contexts_and_buffers_in_the_order_of_the_ends() {
    over_each(|one, two, peer| {
        let mut queue = CompletionQueue::open(&two.domain);
        for tag in 0..64u64 {
            queue.push(tag, two.ep.receive_tagged(tag, 0, vec![0; 8])).unwrap();
        }
        assert!(queue.read().is_none() && queue.len() == 64, "nothing was sent");
        // The last receives end first.
        run(
            async {
                for tag in (0..64u64).rev() {
                    one.ep.send_tagged(peer, tag, tag.to_le_bytes()).await.0.unwrap();
                }
            },
            two,
        );
        for tag in (0..64u64).rev() {
            let entry = run(queue.next(), one).unwrap();
            assert_eq!((entry.context, entry.result.unwrap().tag()), (tag, Some(tag)));
            assert_eq!(entry.buffer, tag.to_le_bytes());
        }
        assert!(queue.is_empty() && block_on(queue.next()).is_none());
    });
}

#[test]
fn a_queue_that_is_read_needs_no_executor_and_reports_failures() {
    over_each(|one, two, peer| {
        let (mut sends, mut receives) = (CompletionQueue::open(&one.domain), CompletionQueue::open(&two.domain));
        receives.push("short", two.ep.receive([0; 2])).unwrap();
        sends.push("long", one.ep.send(peer, [1; 8])).unwrap();
        let start = ofi_os::clock::now();
        let (mut sent, mut received) = (None, None);
        while sent.is_none() || received.is_none() {
            sent = sent.or_else(|| sends.read());
            received = received.or_else(|| receives.read());
            assert!(ofi_os::clock::now().since(start) < LIMIT);
        }
        sent.unwrap().result.unwrap();
        let received = received.unwrap();
        assert_eq!((received.result.unwrap_err().errno(), received.buffer), (Errno::ETRUNC, [1; 2]));
    });
}

#[test]
fn short_sends_that_are_done_at_once_do_not_hide_what_ended_before_them() {
    let info = info("shm", EndpointType::RDM);
    let (one, two) = (End::open(&info), End::open(&info));
    let peers = [one.peer(&two), two.peer(&one)];
    run(zip(one.ep.send(peers[0], [0; 1]), two.ep.receive([0; 1])), &two).0.0.unwrap();
    run(zip(two.ep.send(peers[1], [0; 1]), one.ep.receive([0; 1])), &two).0.0.unwrap();
    let mut queue = CompletionQueue::open(&one.domain);
    queue.push("receive", one.ep.receive([0; 8])).unwrap();
    run(two.ep.send(peers[1], [1; 8]), &two).0.unwrap();
    // A program that sends again at each end of a send still gets to its receive.
    queue.push("send", one.ep.send(peers[0], [2; 8])).unwrap();
    let mut ends = 0;
    while block_on(queue.next()).unwrap().context == "send" {
        ends += 1;
        assert!(ends < 100, "the receive has ended");
        queue.push("send", one.ep.send(peers[0], [2; 8])).unwrap();
    }
    let mut taken = one.ep.send(peers[0], [3; 8]);
    while taken.try_finish().is_none() {}
    assert_eq!(queue.push("taken", taken).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn a_queue_outlives_the_reactor_in_which_it_was_awaited() {
    over_each(|one, two, peer| {
        let mut queue = CompletionQueue::open(&two.domain);
        queue.push((), two.ep.receive([0; 8])).unwrap();
        let first = block_on(futures_lite::future::poll_once(queue.next()));
        assert!(first.is_none(), "there is no message");
        assert!(queue.read().is_none() && queue.len() == 1, "the end of block_on has woken its tasks");
        run(one.ep.send(peer, [3; 8]), two).0.unwrap();
        assert_eq!(run(queue.next(), one).unwrap().buffer, [3; 8]);
    });
}

#[test]
fn a_queue_refuses_operations_of_another_domain_and_cancels_its_own_when_it_is_dropped() {
    over_each(|one, two, _| {
        let mut queue = CompletionQueue::open(&one.domain);
        queue.push((), one.ep.receive([0; 8])).unwrap();
        assert_eq!(queue.push((), two.ep.receive([0; 8])).unwrap_err().errno(), Errno::EINVAL);
        drop(queue);
        block_on(async { drop(one.ep.receive([0; 1]).timeout(Duration::from_millis(1)).await) });
        assert_eq!((one.domain.pending_operations(), two.domain.pending_operations()), (0, 0));
    });
}

#[test]
fn a_task_that_sleeps_is_woken_when_peers_have_written_often_enough() {
    over_each(|one, two, peer| {
        let key = two.region.remote_key();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(two.written.wait_within(100, LIMIT)));
            for at in 0..100 {
                // Long enough for the other thread to sleep, now and then.
                if at % 25 == 0 {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                block_on(one.ep.write(peer, key.at(8 * at), at.to_le_bytes())).0.unwrap();
            }
            waits.join().unwrap().unwrap();
        });
        assert_eq!((two.written.read(), two.written.read_errors()), (100, 0));
        two.written.set(0);
        let late = block_on(two.written.wait_within(1, Duration::from_millis(5))).unwrap_err();
        assert_eq!((late.errno(), two.written.read()), (Errno::ETIMEDOUT, 0));
    });
}

#[test]
fn a_change_by_another_thread_wakes_a_task_that_sleeps() {
    over_each(|one, _, _| {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(one.written.wait_within(3, LIMIT)));
            std::thread::park_timeout(Duration::from_millis(5));
            (0..3).for_each(|_| one.written.add(1));
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_counter_counts_bytes_and_a_wait_ends_when_an_operation_fails() {
    over_each(|one, two, peer| {
        let receive = two.ep.receive(vec![0; 100]);
        run(one.ep.send(peer, vec![1; 100]), two).0.unwrap();
        run(receive, one).0.unwrap();
        assert_eq!(one.bytes.read(), 100);
        let gone = RdmEndpoint::open(&two.domain, &info(if one.is_shm() { "shm" } else { "tcp" }, EndpointType::RDM));
        let gone = one.ep.peer(gone.unwrap().local_addr().unwrap()).unwrap();
        let (waited, sent) = block_on(zip(one.bytes.wait_within(1 << 40, LIMIT), one.ep.send(gone, vec![1; 8])));
        assert_eq!((waited.unwrap_err().errno(), sent.0.is_err()), (Errno::EAVAIL, true));
        assert_eq!(one.bytes.read_errors(), 1);
    });
}

/// Both ends of a connection.
fn connected(fabric: &Fabric, domain: &Domain, info: &Info) -> (MsgEndpoint, MsgEndpoint) {
    let listener = MsgListener::listen(fabric, info).unwrap();
    let to = listener.local_addr().unwrap();
    let accept = async { listener.request().await?.accept(domain).await };
    let (client, server) = block_on(zip(MsgEndpoint::connect(domain, info, to), accept));
    (client.unwrap(), server.unwrap())
}

#[test]
fn connections_and_datagrams_are_counted_from_when_a_counter_is_bound() {
    for provider in ["tcp", "shm"] {
        let info = info(provider, EndpointType::MSG);
        let fabric = Fabric::open(&info).unwrap();
        let domain = fabric.domain(&info).unwrap();
        let (client, server) = connected(&fabric, &domain, &info);
        let exchange = || {
            let receive = server.receive([0; 8]);
            let (sent, received) = block_on(zip(client.send([1; 8]), receive));
            assert!(sent.0.is_ok() && received.0.is_ok());
        };
        exchange();
        let (sent, received) = (Counter::open(&domain), Counter::open_for_bytes(&domain));
        client.bind_counter(&sent, BindFlags::TRANSMIT).unwrap();
        server.bind_counter(&received, BindFlags::RECV).unwrap();
        exchange();
        exchange();
        assert_eq!((sent.read(), received.read()), (2, 16), "{provider}");
        let refused = |counter: &Counter, kinds| client.bind_counter(counter, kinds).unwrap_err().errno();
        let foreign = Counter::open(&fabric.domain(&info).unwrap());
        assert_eq!(refused(&foreign, BindFlags::RECV), Errno::EINVAL);
        assert_eq!(refused(&Counter::open(&domain), BindFlags::TRANSMIT), Errno::EINVAL);
        for no_kind in [BindFlags::SELECTIVE_COMPLETION, BindFlags::empty()] {
            assert_eq!(refused(&Counter::open(&domain), no_kind), Errno::EBADFLAGS);
        }
    }
    let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM).node("127.0.0.1").source();
    let info = query.query().unwrap().remove(0);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let ep = DatagramEndpoint::open(&domain, &info).unwrap();
    let me = ep.peer(ep.local_addr().unwrap()).unwrap();
    let (sent, received) = (Counter::open(&domain), Counter::open(&domain));
    ep.bind_counter(&sent, BindFlags::TRANSMIT).unwrap();
    ep.bind_counter(&received, BindFlags::RECV).unwrap();
    let receive = ep.receive([0; 8]);
    block_on(ep.send(me, [1; 8])).0.unwrap();
    block_on(receive).0.unwrap();
    assert_eq!((sent.read(), received.read()), (1, 1));
}

#[test]
fn an_event_queue_reports_requests_ends_and_failures_under_their_keys() {
    for provider in ["tcp", "shm"] {
        let info = info(provider, EndpointType::MSG);
        let fabric = Fabric::open(&info).unwrap();
        let domain = fabric.domain(&info).unwrap();
        let listeners = [0, 1].map(|_| MsgListener::listen(&fabric, &info).unwrap());
        let mut requests = EventQueue::open();
        for (number, listener) in listeners.iter().enumerate() {
            requests.add_listener(number, listener);
        }
        assert!(requests.read().is_none());
        let mut ends = Vec::new();
        for number in [1, 0, 1] {
            let to = listeners[number].local_addr().unwrap();
            let server = async {
                let (key, event) = requests.next().await;
                let Event::ConnectionRequest(request) = event else { panic!("{event:?}") };
                assert_eq!(key, number);
                request.accept(&domain).await
            };
            let (client, server) = block_on(zip(MsgEndpoint::connect(&domain, &info, to), server));
            ends.push((client.unwrap(), server.unwrap()));
        }
        let (clients, servers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let mut events = EventQueue::open();
        servers.iter().zip(["first", "second", "third"]).for_each(|(ep, key)| events.add_endpoint(key, ep));
        assert!(events.read().is_none(), "{provider}: all are connected");
        let [first, second, third] = <[MsgEndpoint; 3]>::try_from(clients).unwrap();
        for (client, key) in [(second, "second"), (third, "third"), (first, "first")] {
            block_on(client.close());
            let (of, event) = block_on(events.next());
            assert!(of == key && matches!(event, Event::Shutdown), "{provider}: {of} {event:?}");
        }
        assert!(events.read().is_none(), "each end is reported once");
        // The end of a connection is reported to every queue that asks.
        let mut others = [EventQueue::open(), EventQueue::open()];
        others.iter_mut().for_each(|queue| queue.add_endpoint(provider, &servers[0]));
        let [one, two] = &mut others;
        let (one, two) = block_on(zip(one.next(), two.next()));
        assert!(matches!((one.1, two.1), (Event::Shutdown, Event::Shutdown)));
    }
}

#[test]
fn two_event_queues_of_one_connection_are_both_woken() {
    let info = info("tcp", EndpointType::MSG);
    let fabric = Fabric::open(&info).unwrap();
    let domain = fabric.domain(&info).unwrap();
    let (client, server) = connected(&fabric, &domain, &info);
    let ends = || async {
        let mut queue = EventQueue::open();
        queue.add_endpoint((), &server);
        queue.next().await
    };
    let (ended, ()) = block_on(zip(zip(ends(), ends()), client.close()));
    assert!(matches!((ended.0.1, ended.1.1), (Event::Shutdown, Event::Shutdown)));
}

#[test]
fn foreign_memory_is_accessed_until_it_is_closed() {
    over_each(|one, two, peer| {
        let mut memory = vec![7u8; 4096];
        // SAFETY: nothing touches the memory until the region is closed, below.
        let region = unsafe { two.domain.register_foreign(memory.as_mut_ptr(), 4096, MrAccess::REMOTE).unwrap() };
        let key = region.remote_key();
        run(one.ep.write(peer, key.at(100), [1u8; 8]), two).0.unwrap();
        let (read, bytes) = run(one.ep.read(peer, key.at(99), [0u8; 3]), two);
        read.unwrap();
        assert_eq!(bytes, [7, 1, 1]);
        region.write(0, b"own").unwrap();
        let start = ofi_os::clock::now();
        while !region.try_close() {
            two.written.read();
            assert!(ofi_os::clock::now().since(start) < LIMIT);
        }
        assert!(run(one.ep.write(peer, key, [2u8; 8]), two).0.is_err());
        drop(region);
        assert_eq!((&memory[..3], &memory[99..102]), (&b"own"[..], &[7, 1, 1][..]));
        // SAFETY: there is no memory to touch.
        let none = unsafe { two.domain.register_foreign(core::ptr::null_mut(), 0, MrAccess::REMOTE) };
        assert_eq!(none.unwrap_err().errno(), Errno::EINVAL);
    });
}

#[test]
fn a_buffer_returns_to_its_pool_when_its_operation_has_ended() {
    let pool = BufferPool::new(300_000, 2);
    over_each(|one, two, peer| {
        drop(one.ep.send(peer, pool.take()));
        drop(two.ep.receive(pool.take()));
        let kept = [pool.take(), pool.take(), pool.take()];
        let receive = two.ep.receive(vec![0; 300_000]);
        run(zip(one.ep.send(peer, pool.take()), receive), two).0.0.unwrap();
        drop(kept);
    });
    assert_eq!(pool.spare(), 2, "the pool keeps no more");
}
