//! One-sided operations between two endpoints of one process, over each provider that has them.
#![cfg(any(feature = "tcp", feature = "shm"))]

mod common;

use common::{info, providers};
use core::future::Future;
use futures_lite::future;
use ofi::{Domain, EndpointType, Errno, Fabric, Info, MrAccess, Peer, RdmEndpoint, RemoteKey};
use std::time::Duration;

/// How long a test waits for an operation.
const LIMIT: Duration = Duration::from_secs(20);

/// An endpoint, and its domain.
struct End {
    ep: RdmEndpoint,
    domain: Domain,
}

impl End {
    fn open(info: &Info) -> Self {
        let domain = Fabric::open(info).unwrap().domain(info).unwrap();
        Self { ep: RdmEndpoint::open(&domain, info).unwrap(), domain }
    }
}

/// What an operation of the initiator comes to while the target only makes progress.
fn run<T>(operation: impl Future<Output = T>, target: &End) -> T {
    let serving = async {
        target.domain.serve().await;
        unreachable!("it never ends")
    };
    ofi::block_on(future::or(operation, serving))
}

/// Both ends and the first one's handle of the second, for each provider.
fn over_each_provider(test: impl Fn(&End, &End, Peer)) {
    for provider in providers() {
        let info = info(provider, EndpointType::RDM);
        let (initiator, target) = (End::open(&info), End::open(&info));
        let peer = initiator.ep.peer(target.ep.local_addr().unwrap()).unwrap();
        test(&initiator, &target, peer);
    }
}

#[test]
fn written_bytes_are_in_the_peers_memory_and_are_read_back() {
    over_each_provider(|initiator, target, peer| {
        for len in [1, 8, 4096, 1 << 20] {
            let region = target.domain.register(vec![0x11; len + 16], MrAccess::REMOTE).unwrap();
            let place = region.remote_key().at(8);
            let bytes: Vec<u8> = (0..=250u8).cycle().take(len).collect();
            let (written, back) = run(initiator.ep.write(peer, place, bytes.clone()).timeout(LIMIT), target);
            written.unwrap();
            assert!(back == bytes, "the buffer comes back");
            let mut all = vec![0; len + 16];
            region.read(0, &mut all).unwrap();
            assert!(all[8..8 + len] == bytes && all[..8] == [0x11; 8] && all[8 + len..] == [0x11; 8], "{len}");
            region.write(8, &[7]).unwrap();
            let (read, buf) = run(initiator.ep.read(peer, place, vec![0; len]).timeout(LIMIT), target);
            read.unwrap();
            assert!(buf[0] == 7 && buf[1..] == bytes[1..], "{len}");
        }
    });
}

#[test]
fn atomic_operations_return_the_previous_word() {
    over_each_provider(|initiator, target, peer| {
        let region = target.domain.register(vec![0; 64], MrAccess::REMOTE).unwrap();
        let place = region.remote_key().at(16);
        let word = || {
            let mut bytes = [0; 8];
            region.read(16, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        for turn in 0..3u64 {
            assert_eq!(run(initiator.ep.fetch_add(peer, place, 5u64), target), Ok(5 * turn));
        }
        let swap = |expected: u64| run(initiator.ep.compare_swap(peer, place, expected, 1), target).unwrap();
        assert_eq!((swap(14), word()), (15, 15), "14 is not there");
        assert_eq!((swap(15), word()), (15, 1));
    });
}

#[test]
fn a_forbidden_access_is_refused_and_returns_the_buffer() {
    over_each_provider(|initiator, target, peer| {
        let region = target.domain.register(vec![1; 64], MrAccess::REMOTE_READ).unwrap();
        let key = region.remote_key();
        // What a peer makes of a key that it was not given.
        let forged = |word: usize, change: fn(u64) -> u64| {
            let mut bytes = key.to_bytes();
            let place = &mut bytes[8 * word..][..8];
            let value = u64::from_le_bytes(place.try_into().unwrap());
            place.copy_from_slice(&change(value).to_le_bytes());
            RemoteKey::from_bytes(&bytes).unwrap()
        };
        let refused = |place: RemoteKey| {
            let (result, buf) = run(initiator.ep.write(peer, place, vec![2; 32]).timeout(LIMIT), target);
            assert_eq!(buf, [2; 32]);
            result.unwrap_err().errno()
        };
        assert_eq!(refused(key), Errno::EACCES, "the key says that the region is read-only");
        let writable = forged(3, |_| MrAccess::REMOTE.bits());
        assert_eq!(refused(writable), Errno::EACCES, "the region is read-only");
        let read = |place| run(initiator.ep.read(peer, place, vec![0; 32]).timeout(LIMIT), target).0;
        assert_eq!(read(forged(0, |key| !key)).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(read(key.at(33)).unwrap_err().errno(), Errno::EACCES, "it ends before");
        assert_eq!(read(forged(1, |_| 33)).unwrap_err().errno(), Errno::EACCES, "it ends before");
        assert_eq!(region.read(33, &mut [0; 32]), Err(Errno::EACCES));
        assert_eq!(region.write(u64::MAX, &[0]), Err(Errno::EACCES));
        drop(region);
        assert_eq!(read(key).unwrap_err().errno(), Errno::EINVAL, "it is gone");
    });
}

#[test]
fn a_region_has_bytes_and_a_right() {
    over_each_provider(|initiator, _, _| {
        let refusal = |memory, access| initiator.domain.register(memory, access).unwrap_err().errno();
        assert_eq!(refusal(Vec::new(), MrAccess::REMOTE), Errno::EINVAL);
        assert_eq!(refusal(vec![0; 8], MrAccess::READ | MrAccess::SEND), Errno::EINVAL);
        let [a, b] = [1, 2].map(|byte| initiator.domain.register(vec![byte; 8], MrAccess::REMOTE).unwrap());
        assert_ne!(a.remote_key(), b.remote_key());
        assert_eq!((a.len(), b.len()), (8, 8));
    });
}

#[test]
#[cfg(feature = "udp")]
fn datagram_endpoints_have_no_one_sided_operations() {
    let info = info("udp", EndpointType::DGRAM);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    assert_eq!(domain.register(vec![0; 8], MrAccess::REMOTE).unwrap_err().errno(), Errno::ENOSYS);
}
