//! One-sided operations between two endpoints of one process, over each provider that has them.
#![cfg(any(feature = "tcp", feature = "shm"))]

use ofi::{
    CompletionQueue, Domain, Done, EndpointType, Errno, Failed, FiAddr, Hints, Info, MrAccess, Query, RemoteAddr,
};
use std::time::{Duration, Instant};

/// How long a test waits for a completion.
const LIMIT: Duration = Duration::from_secs(20);

fn info(provider: &str, kind: EndpointType) -> Info {
    let mut hints = Hints::default();
    let mut ep = Info::default().ep;
    ep.kind = kind;
    hints.ep = Some(ep);
    let mut fabric = Info::default().fabric;
    fabric.prov_name = Some(provider.to_owned());
    hints.fabric = Some(fabric);
    let node = (provider != "shm").then(|| "127.0.0.1".to_owned());
    let query =
        Query { version: ofi::Version::API, source: node.is_some(), node, hints: Some(hints), ..Query::default() };
    let (infos, refusals) = ofi::discover(&query).unwrap();
    infos.into_iter().next().unwrap_or_else(|| panic!("{refusals}"))
}

/// An endpoint, and what it needs.
struct End {
    domain: Domain,
    cq: CompletionQueue,
    ep: ofi::Endpoint,
}

impl End {
    fn open(info: &Info) -> Self {
        let domain = Domain::open(info).unwrap();
        let cq = domain.completion_queue(16).unwrap();
        let ep = domain.endpoint(info, &cq, None).unwrap();
        Self { domain, cq, ep }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test has a time limit")]
fn now() -> Instant {
    Instant::now()
}

/// The initiator's next completion, while the target makes progress.
fn outcome(initiator: &End, target: &End) -> Result<Done, Box<Failed>> {
    let begin = now();
    while begin.elapsed() < LIMIT {
        assert!(target.cq.poll().is_none(), "the target has a completion");
        if let Some(outcome) = initiator.cq.poll() {
            return outcome;
        }
    }
    panic!("no completion while {}", initiator.ep.describe());
}

/// Both ends and the first one's handle of the second, for each provider.
fn over_each_provider(test: impl Fn(&End, &End, FiAddr)) {
    let mut providers = Vec::new();
    providers.extend(cfg!(feature = "tcp").then_some("tcp"));
    providers.extend(cfg!(feature = "shm").then_some("shm"));
    for provider in providers {
        let info = info(provider, EndpointType::RDM);
        let (initiator, target) = (End::open(&info), End::open(&info));
        let peer = initiator.ep.peer(target.ep.local_addr().unwrap());
        test(&initiator, &target, peer);
    }
}

#[test]
fn written_bytes_are_in_the_peers_memory_and_are_read_back() {
    over_each_provider(|initiator, target, peer| {
        for len in [1, 8, 4096, 1 << 20] {
            let region = target.domain.register(vec![0x11; len + 16], MrAccess::REMOTE).unwrap();
            let place = RemoteAddr { offset: 8, key: region.key() };
            let bytes: Vec<u8> = (0..=250u8).cycle().take(len).collect();
            initiator.ep.write(peer, place, bytes.clone()).unwrap();
            let done = outcome(initiator, target).unwrap();
            assert_eq!((done.buf == bytes, done.word()), (true, None), "the buffer comes back");
            let mut all = vec![0; len + 16];
            region.read(0, &mut all).unwrap();
            assert!(all[8..8 + len] == bytes && all[..8] == [0x11; 8] && all[8 + len..] == [0x11; 8], "{len}");
            region.write(8, &[7]).unwrap();
            initiator.ep.read(peer, place, vec![0; len]).unwrap();
            let done = outcome(initiator, target).unwrap();
            assert!(done.buf[0] == 7 && done.buf[1..] == bytes[1..], "{len}");
        }
    });
}

#[test]
fn atomic_operations_return_the_previous_word() {
    over_each_provider(|initiator, target, peer| {
        let region = target.domain.register(vec![0; 64], MrAccess::REMOTE).unwrap();
        let place = RemoteAddr { offset: 16, key: region.key() };
        let word = || {
            let mut bytes = [0; 8];
            region.read(16, &mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        for turn in 0..3 {
            initiator.ep.fetch_add(peer, place, 5).unwrap();
            assert_eq!(outcome(initiator, target).unwrap().word(), Some(5 * turn));
        }
        initiator.ep.compare_swap(peer, place, 14, 1).unwrap();
        assert_eq!((outcome(initiator, target).unwrap().word(), word()), (Some(15), 15), "14 is not there");
        initiator.ep.compare_swap(peer, place, 15, 1).unwrap();
        assert_eq!((outcome(initiator, target).unwrap().word(), word()), (Some(15), 1));
    });
}

#[test]
fn a_forbidden_access_is_refused_and_returns_the_buffer() {
    over_each_provider(|initiator, target, peer| {
        let region = target.domain.register(vec![1; 64], MrAccess::REMOTE_READ).unwrap();
        let refused = |place: RemoteAddr| {
            initiator.ep.write(peer, place, vec![2; 32]).unwrap();
            let failed = outcome(initiator, target).unwrap_err();
            assert_eq!(failed.buf, [2; 32]);
            failed.failure.errno
        };
        let key = region.key();
        assert_eq!(refused(RemoteAddr { offset: 0, key }), Errno::EACCES, "the region is read-only");
        assert_eq!(refused(RemoteAddr { offset: 0, key: !key }), Errno::EINVAL);
        initiator.ep.read(peer, RemoteAddr { offset: 33, key }, vec![0; 32]).unwrap();
        assert_eq!(outcome(initiator, target).unwrap_err().failure.errno, Errno::EACCES, "it ends before");
        assert_eq!(region.read(33, &mut [0; 32]), Err(Errno::EACCES));
        assert_eq!(region.write(u64::MAX, &[0]), Err(Errno::EACCES));
        drop(region);
        initiator.ep.read(peer, RemoteAddr { offset: 0, key }, vec![0; 8]).unwrap();
        assert_eq!(outcome(initiator, target).unwrap_err().failure.errno, Errno::EINVAL, "it is gone");
    });
}

#[test]
fn a_region_has_bytes_and_a_right() {
    over_each_provider(|initiator, _, _| {
        let refusal = |memory, access| initiator.domain.register(memory, access).unwrap_err().errno();
        assert_eq!(refusal(Vec::new(), MrAccess::REMOTE), Errno::EINVAL);
        assert_eq!(refusal(vec![0; 8], MrAccess::READ | MrAccess::SEND), Errno::EINVAL);
        let [a, b] = [1, 2].map(|byte| initiator.domain.register(vec![byte; 8], MrAccess::REMOTE).unwrap());
        assert_ne!(a.key(), b.key());
        assert_eq!((a.len(), b.len()), (8, 8));
    });
}

#[test]
#[cfg(feature = "udp")]
fn datagram_endpoints_have_no_one_sided_operations() {
    let end = End::open(&info("udp", EndpointType::DGRAM));
    assert_eq!(end.domain.register(vec![0; 8], MrAccess::REMOTE).unwrap_err().errno(), Errno::ENOSYS);
    let (peer, place) = (end.ep.peer(end.ep.local_addr().unwrap()), RemoteAddr { offset: 0, key: 1 });
    assert_eq!(end.ep.write(peer, place, vec![1]), Err((Errno::ENOSYS, vec![1])));
    assert_eq!(end.ep.read(peer, place, vec![1]), Err((Errno::ENOSYS, vec![1])));
    assert_eq!(end.ep.fetch_add(peer, place, 1), Err(Errno::ENOSYS));
}
