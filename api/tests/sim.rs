//! Programs in the simulated network: they run alike in every run, in no time.
#![cfg(feature = "sim")]

use ofi::{Errno, MrAccess, RdmEndpoint, sim::Net};
use std::time::Duration;

/// Messages begin anywhere in these.
static BYTES: [u8; (1 << 20) + 64] = [3; (1 << 20) + 64];

/// A conversation with messages of all sizes, which begin at an offset in memory, and how long it
/// takes.
fn converse(seed: u64, offset: usize) -> (Duration, u64) {
    let net = Net::new(seed);
    let (here, there) = (net.domain(1).unwrap(), net.domain(2).unwrap());
    let one = RdmEndpoint::open(&here, &net.info(1)).unwrap();
    let two = RdmEndpoint::open(&there, &net.info(2)).unwrap();
    let peer = one.peer(two.local_addr().unwrap()).unwrap();
    let region = there.register(vec![0; 64], MrAccess::REMOTE).unwrap();
    let count = net.block_on(async {
        for size in [0, 1, 100, 10_000, 1 << 20] {
            let receive = two.receive_tagged(1, 0, vec![0; size]);
            let send = one.send_tagged(peer, 1, &BYTES[offset..offset + size]);
            let (sent, received) = futures_lite::future::zip(send, receive).await;
            sent.0.unwrap();
            assert_eq!((received.0.unwrap().len(), received.1), (size, vec![3; size]));
        }
        let mut count = 0;
        for _ in 0..10 {
            count = one.fetch_add(peer, region.remote_key(), 2u64).await.unwrap();
        }
        count
    });
    (net.elapsed(), count)
}

#[test]
fn a_seed_determines_a_run() {
    for seed in 0..20 {
        let first = converse(seed, 0);
        assert_eq!(first.1, 18);
        // The addresses of buffers differ from run to run.
        for offset in [1, 17, 40] {
            assert_eq!(first, converse(seed, offset), "seed {seed}, offset {offset}");
        }
    }
}

#[test]
fn a_host_that_dies_ends_the_operations_on_it() {
    for seed in 0..20 {
        let net = Net::new(seed);
        let (here, there) = (net.domain(1).unwrap(), net.domain(2).unwrap());
        let one = RdmEndpoint::open(&here, &net.info(1)).unwrap();
        let two = RdmEndpoint::open(&there, &net.info(2)).unwrap();
        let peer = one.peer(two.local_addr().unwrap()).unwrap();
        net.block_on(async {
            let (sent, received) = futures_lite::future::zip(one.send(peer, "hi"), two.receive([0; 2])).await;
            sent.0.unwrap();
            received.0.unwrap();
            net.kill(2);
            let lost = one.message(peer).delivery_complete().send(vec![1; 100_000]).await;
            assert!(lost.0.is_err() && lost.1.len() == 100_000);
        });
        assert!(net.elapsed() < Duration::from_secs(60), "{:?}", net.elapsed());
    }
}

#[test]
fn deadlines_are_virtual() {
    let net = Net::new(1);
    let domain = net.domain(1).unwrap();
    let ep = RdmEndpoint::open(&domain, &net.info(1)).unwrap();
    let late = net.block_on(ep.receive([0; 1]).timeout(Duration::from_secs(600))).0.unwrap_err();
    assert_eq!(late.errno(), Errno::ETIMEDOUT);
    let taken = net.elapsed();
    assert!(taken >= Duration::from_secs(600) && taken < Duration::from_secs(601), "{taken:?}");
}

#[test]
#[should_panic(expected = "does not happen")]
fn a_future_that_never_ends_is_noticed() {
    let net = Net::new(1);
    let domain = net.domain(1).unwrap();
    let ep = RdmEndpoint::open(&domain, &net.info(1)).unwrap();
    drop(net.block_on(ep.receive([0; 1])));
}
