//! Operations between two endpoints of this process, over every provider that has them.

mod common;

use ofi::{Caps, Domain, EndpointType, Errno, Fabric, Info, MrAccess, OpFlags, Peer, RdmEndpoint, block_on};
use std::time::Duration;

/// Two endpoints that know each other, in one domain.
struct Pair {
    domain: Domain,
    one: RdmEndpoint,
    two: RdmEndpoint,
    to_one: Peer,
    to_two: Peer,
}

fn info(provider: &str) -> Info {
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC | Caps::SOURCE;
    common::query(provider, EndpointType::RDM).caps(caps).query().unwrap().remove(0)
}

fn pair(provider: &str) -> Pair {
    let info = info(provider);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let (one, two) = (RdmEndpoint::open(&domain, &info).unwrap(), RdmEndpoint::open(&domain, &info).unwrap());
    let to_one = two.peer(one.local_addr().unwrap()).unwrap();
    let to_two = one.peer(two.local_addr().unwrap()).unwrap();
    Pair { domain, one, two, to_one, to_two }
}

fn with_each(test: impl Fn(Pair)) {
    for provider in ["tcp", "shm"] {
        test(pair(provider));
    }
}

#[test]
fn messages_of_all_sizes_arrive_with_their_buffers() {
    with_each(|pair| {
        for size in [0, 1, 64, 4096, 100_000, 3 << 20] {
            let receive = pair.two.receive(vec![0; size]);
            let send = pair.one.send(pair.to_two, vec![7u8; size]);
            let ((received, there), (sent, back)) = block_on(async { (receive.await, send.await) });
            assert_eq!(received.unwrap().len(), size);
            sent.unwrap();
            assert_eq!((there, back), (vec![7; size], vec![7; size]));
        }
    });
}

#[test]
fn more_operations_than_the_endpoint_has_room_for_wait_in_order() {
    with_each(|pair| {
        let count = 5000u32;
        let sends: Vec<_> = (0..count).map(|at| pair.one.send(pair.to_two, at.to_le_bytes())).collect();
        let receives: Vec<_> = (0..count).map(|_| pair.two.receive([0; 4])).collect();
        block_on(async {
            for (at, receive) in receives.into_iter().enumerate() {
                let (received, buf) = receive.await;
                assert_eq!((received.unwrap().len(), u32::from_le_bytes(buf)), (4, u32::try_from(at).unwrap()));
            }
            for send in sends {
                send.await.0.unwrap();
            }
        });
        assert_eq!(pair.domain.pending_operations(), 0);
    });
}

#[test]
fn a_short_send_over_an_open_link_of_shm_is_done_when_its_call_returns() {
    let pair = pair("shm");
    let met = async { (pair.one.send(pair.to_two, [0; 1]).await, pair.two.receive([0; 1]).await) };
    block_on(met).1.0.unwrap();
    let most = pair.one.statistics().queue_high_water;
    let send = |at| pair.one.send_tagged(pair.to_two, 7, vec![at; 8]).timeout(Duration::from_secs(60));
    let sends: Vec<_> = (0..8u8).map(send).collect();
    assert_eq!(pair.domain.pending_operations(), 8, "they wait to be polled");
    assert_eq!(pair.one.statistics().queue_high_water, most, "no turn has to find their ends");
    for (at, send) in (0..8u8).zip(sends) {
        if at % 2 == 0 {
            let (sent, back) = block_on(send);
            let sent = sent.unwrap();
            assert_eq!((sent.len(), sent.flags(), back), (8, OpFlags::TAGGED | OpFlags::SEND, vec![at; 8]));
        } else {
            send.cancel();
            drop(send.timeout(Duration::ZERO));
        }
        let receive = pair.two.receive_tagged(7, 0, [0; 8]);
        assert_eq!(block_on(receive).1, [at; 8], "it was sent, whatever became of its future");
    }
}

#[test]
fn short_sends_do_not_overtake_those_that_wait_for_room() {
    with_each(|pair| {
        let met = async { (pair.one.send(pair.to_two, [0; 4]).await, pair.two.receive([0; 4]).await) };
        block_on(met).1.0.unwrap();
        let count = 20_000u32;
        let sends: Vec<_> = (0..count).map(|at| pair.one.send(pair.to_two, at.to_le_bytes())).collect();
        assert!(pair.domain.pending_operations() > 0, "some wait");
        block_on(async {
            for at in 0..count {
                let (received, buf) = pair.two.receive([0; 4]).await;
                assert_eq!((received.unwrap().len(), u32::from_le_bytes(buf)), (4, at));
            }
            for send in sends {
                send.await.0.unwrap();
            }
        });
    });
}

#[test]
fn the_bound_of_completion_queues_is_not_for_this_library() {
    let this = std::env::current_exe().unwrap();
    let test = "more_operations_than_the_endpoint_has_room_for_wait_in_order";
    let mut child = std::process::Command::new(this);
    let mut child = child.args(["--exact", test]).env("FI_OFI_CQ_BOUNDED", "1").spawn().unwrap();
    let deadline = ofi_os::clock::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() && ofi_os::clock::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let _ = child.kill();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_receive_says_who_sent() {
    with_each(|pair| {
        let receive = pair.two.receive_tagged(5, 0, [0; 4]);
        block_on(pair.one.message(pair.to_two).tag(5).data(9).delivery_complete().send("data"))
            .0
            .unwrap_or_else(|_| panic!());
        let completion = block_on(receive).0.unwrap();
        assert_eq!((completion.tag(), completion.data(), completion.source()), (Some(5), Some(9), Some(pair.to_one)));
    });
}

#[test]
fn remote_memory_is_read_written_and_changed_atomically_as_far_as_the_key_allows() {
    with_each(|pair| {
        let region = pair.domain.register(vec![0; 256], MrAccess::REMOTE).unwrap();
        let key = region.remote_key();
        block_on(async {
            let (one, to) = (&pair.one, pair.to_two);
            one.write(to, key.at(16), [3u8; 32]).await.0.unwrap();
            let (read, bytes) = one.read(to, key.at(8), [9u8; 16]).await;
            read.unwrap();
            assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3]);
            assert_eq!(one.fetch_add(to, key.at(64), 2u64).await, Ok(0));
            assert_eq!(one.fetch_add(to, key.at(64), -1i64).await, Ok(2));
            assert_eq!(one.compare_swap(to, key.at(64), 1u64, 50).await, Ok(1));
            assert_eq!(one.compare_swap(to, key.at(64), 1u64, 60).await, Ok(50));
            assert_eq!(one.fetch(to, key.at(72), ofi::AtomicOp::Sum, 1.5f32).await, Ok(0.0));
            assert_eq!(one.fetch(to, key.at(72), ofi::AtomicOp::Read, 0f32).await, Ok(1.5));
            let beyond = one.write(to, key.at(250), [1u8; 7]).await.0.unwrap_err();
            assert_eq!(beyond.errno(), Errno::EACCES, "{beyond}");
        });
        let only = pair.domain.register(vec![0; 8], MrAccess::REMOTE_READ).unwrap().remote_key();
        let denied = block_on(pair.one.write(pair.to_two, only, [1u8; 8])).0.unwrap_err();
        assert_eq!(denied.errno(), Errno::EACCES, "{denied}");
        // Its region is gone.
        let gone = block_on(pair.one.read(pair.to_two, only, [1u8; 8])).0.unwrap_err();
        assert!([Errno::EINVAL, Errno::EACCES].contains(&gone.errno()), "{gone}");
    });
}

#[test]
fn a_deadline_and_a_cancellation_give_the_buffer_back() {
    with_each(|pair| {
        let late = pair.two.receive(vec![1u8; 8]).timeout(Duration::from_millis(20));
        let cancelled = pair.two.receive(vec![2u8; 8]);
        cancelled.cancel();
        let ((late, one), (cancelled, two)) = block_on(async { (late.await, cancelled.await) });
        assert_eq!((late.unwrap_err().errno(), cancelled.unwrap_err().errno()), (Errno::ETIMEDOUT, Errno::ECANCELED));
        assert_eq!((one.len(), two.len()), (8, 8));
        // A deadline that is not reached changes nothing.
        let receive = pair.two.receive([0; 2]).timeout(Duration::from_secs(3600));
        block_on(pair.one.send(pair.to_two, "ok")).0.unwrap();
        assert_eq!(&block_on(receive).1, b"ok");
    });
}

#[test]
fn a_handle_of_another_address_vector_is_refused() {
    with_each(|pair| {
        let (refused, buf) = block_on(pair.two.send(pair.to_two, vec![5u8; 3]));
        assert_eq!((refused.unwrap_err().errno(), buf), (Errno::EINVAL, vec![5; 3]));
    });
}

#[test]
fn a_stream_takes_messages_in_order_and_no_more_than_its_depth() {
    with_each(|pair| {
        let mut incoming = pair.two.incoming(4, 64);
        let sends: Vec<_> = (0..64u8).map(|at| pair.one.send(pair.to_two, [at])).collect();
        block_on(async {
            for at in 0..64u8 {
                let message = incoming.next().await.unwrap();
                assert_eq!(&*message, [at]);
                incoming.recycle(message);
            }
            for send in sends {
                send.await.0.unwrap();
            }
        });
    });
}

#[test]
fn automatic_progress_needs_no_reactor() {
    let mut info = info("tcp");
    info.domain.progress = ofi::ProgressModel::AUTO;
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let (one, two) = (RdmEndpoint::open(&domain, &info).unwrap(), RdmEndpoint::open(&domain, &info).unwrap());
    let to_two = one.peer(two.local_addr().unwrap()).unwrap();
    for _ in 0..100 {
        let receive = two.receive([0; 5]);
        futures_lite::future::block_on(one.send(to_two, "hello")).0.unwrap();
        assert_eq!(&futures_lite::future::block_on(receive).1, b"hello");
    }
}

#[test]
#[should_panic(expected = "where nothing makes progress")]
#[cfg(not(feature = "async-io"))]
fn an_operation_without_a_reactor_panics_rather_than_sleeps_for_ever() {
    let pair = pair("shm");
    let receive = pair.two.receive([0; 5]);
    drop(futures_lite::future::block_on(receive));
}

#[test]
fn an_endpoint_of_a_type_that_the_provider_lacks_is_refused() {
    let info = info("shm");
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let mut other = info.clone();
    other.ep.kind = EndpointType::DGRAM;
    let refusal = ofi::DatagramEndpoint::open(&domain, &other).unwrap_err();
    assert_eq!(refusal.errno(), Errno::EINVAL, "{refusal}");
    assert_eq!(RdmEndpoint::open(&domain, &other).unwrap_err().errno(), Errno::EINVAL);
}
