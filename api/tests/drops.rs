//! Futures that are dropped at random points, and objects that are dropped in every order.
//! `OFI_DROPS=1000000` drops that many futures over each provider; fewer by default.
#![cfg(any(feature = "tcp", feature = "shm"))]

mod common;

use common::providers;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use ofi::{
    Domain, EndpointType, Fabric, Fetch, Info, IoBuf, IoBufMut, MemoryRegion, MrAccess, Operation, Peer, RdmEndpoint,
};
use std::sync::Arc;
use std::sync::Mutex;

/// Number of threads that drop futures over a provider at the same time.
const THREADS: usize = 8;

/// Counts the buffers that exist.
#[derive(Clone, Debug, Default)]
struct Live(Arc<Mutex<usize>>);

impl Live {
    fn change(&self, by: isize) {
        let mut count = self.0.lock().unwrap();
        *count = count.checked_add_signed(by).unwrap();
    }

    fn count(&self) -> usize {
        *self.0.lock().unwrap()
    }
}

/// A buffer that is counted while it exists, and filled with a mark when it is freed.
struct Counted(Vec<u8>, Live);

impl Counted {
    fn new(size: usize, live: &Live) -> Self {
        live.change(1);
        Self(vec![0x5a; size], live.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fill(0xdd);
        self.1.change(-1);
    }
}

impl IoBuf for Counted {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl IoBufMut for Counted {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

enum Any<'a> {
    Bytes(Operation<'a, Counted>),
    Word(Fetch<'a, u64>),
}

impl Any<'_> {
    fn poll(&mut self) -> bool {
        // No task waits: what has ended is found by polling.
        match self {
            Self::Bytes(operation) => operation.try_finish().is_some(),
            Self::Word(fetch) => fetch.try_finish().is_some(),
        }
    }

    /// A poll that leaves a waker behind, in a thread whose reactor is `block_on`.
    fn poll_with(&mut self, waker: &Waker) -> bool {
        let mut context = Context::from_waker(waker);
        match self {
            Self::Bytes(operation) => matches!(Pin::new(operation).poll(&mut context), Poll::Ready(_)),
            Self::Word(fetch) => matches!(Pin::new(fetch).poll(&mut context), Poll::Ready(_)),
        }
    }
}

struct End {
    ep: RdmEndpoint,
    region: MemoryRegion,
    domain: Domain,
}

fn end(info: &Info) -> End {
    of_domain(Fabric::open(info).unwrap().domain(info).unwrap(), info)
}

fn of_domain(domain: Domain, info: &Info) -> End {
    let region = domain.register(vec![0; 8192], MrAccess::REMOTE).unwrap();
    End { ep: RdmEndpoint::open(&domain, info).unwrap(), region, domain }
}

fn info(provider: &str) -> Info {
    common::info(provider, EndpointType::RDM)
}

fn seed() -> u64 {
    let given = std::env::var("OFI_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("OFI_SEED={seed}");
    seed
}

fn start<'a>(rng: &mut fastrand::Rng, (from, to): (&'a End, &End), peer: Peer, live: &Live) -> Any<'a> {
    let sizes = [0, 1, 8, 64, 4000, 20_000, 200_000];
    let size = sizes[rng.usize(..sizes.len())];
    let key = to.region.remote_key();
    let word = key.at(8 * rng.u64(..16));
    Any::Bytes(match rng.u8(..8) {
        0 | 1 => from.ep.send(peer, Counted::new(size, live)),
        2 => from.ep.send_tagged(peer, rng.u64(..4), Counted::new(size, live)),
        3 => from.ep.receive(Counted::new(size, live)),
        4 => from.ep.receive_tagged(rng.u64(..4), 0, Counted::new(size, live)),
        5 => from.ep.write(peer, key.at(rng.u64(..4096)), Counted::new(size.min(4000), live)),
        6 => from.ep.read(peer, key.at(rng.u64(..4096)), Counted::new(size.min(4000), live)),
        _ if rng.bool() => return Any::Word(from.ep.fetch_add(peer, word, 1)),
        _ => return Any::Word(from.ep.compare_swap(peer, word, 0, 1)),
    })
}

#[test]
fn futures_dropped_at_random_points_free_their_buffers_once() {
    let total: usize = std::env::var("OFI_DROPS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let seed = seed();
    for provider in providers() {
        // Endpoints that close wait for the acknowledgements of peers that no thread polls: in
        // several threads, they wait at the same time.
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let seed = seed.wrapping_add(thread as u64);
                scope.spawn(move || drop_futures_over(provider, seed, total.div_ceil(THREADS)));
            }
        });
    }
}

/// Drops that many futures between two endpoints of a provider.
fn drop_futures_over(provider: &str, seed: u64, total: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (live, info) = (Live::default(), info(provider));
    // Anew from time to time: messages without a receive use up what peers may hold.
    for round in rounds(total) {
        let (one, two) = (end(&info), end(&info));
        drop_futures(&mut rng, (&one, &two), round, &live, |future| ofi::block_on(future));
        if rng.bool() {
            drop((one.ep, two.ep));
        } else {
            drop((two, one));
        }
        assert_eq!(live.count(), 0, "every buffer is freed when its endpoint has closed");
    }
}

#[test]
#[cfg(feature = "sim")]
fn futures_dropped_in_a_simulated_network_free_their_buffers_once() {
    let total: usize = std::env::var("OFI_DROPS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let (seed, live) = (seed(), Live::default());
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in rounds(total) {
        let net = ofi::sim::Net::new(rng.u64(..));
        let [one, two] = [1, 2].map(|host| of_domain(net.domain(host).unwrap(), &net.info(host)));
        drop_futures(&mut rng, (&one, &two), round, &live, |future| net.block_on(future));
        if rng.bool() {
            net.kill(2);
        }
        drop((two, one));
        assert_eq!(live.count(), 0, "every buffer is freed when its endpoint has closed");
    }
}

fn rounds(total: usize) -> impl Iterator<Item = usize> {
    const MOST: usize = 2000;
    (0..total.div_ceil(MOST)).map(move |round| MOST.min(total - round * MOST))
}

fn drop_futures(
    rng: &mut fastrand::Rng,
    (one, two): (&End, &End),
    round: usize,
    live: &Live,
    run: impl FnOnce(Pin<Box<dyn Future<Output = ()> + '_>>),
) {
    let peers =
        [one.ep.peer(two.ep.local_addr().unwrap()).unwrap(), two.ep.peer(one.ep.local_addr().unwrap()).unwrap()];
    run(Box::pin(async {
        let mut running: Vec<Any<'_>> = Vec::new();
        for _ in 0..round {
            let ends = if rng.bool() { (one, two, peers[0]) } else { (two, one, peers[1]) };
            running.push(start(rng, (ends.0, ends.1), ends.2, live));
            for _ in 0..rng.usize(..3) {
                let at = rng.usize(..running.len());
                let ended = if rng.bool() { running[at].poll() } else { running[at].poll_with(Waker::noop()) };
                if ended {
                    running.swap_remove(at);
                }
                if running.is_empty() {
                    break;
                }
            }
            if rng.u8(..16) == 0 {
                // Lets others run, and the virtual time go on.
                pause().await;
            }
            while running.len() > 40 || (!running.is_empty() && rng.u8(..3) == 0) {
                let at = rng.usize(..running.len());
                let mut operation = running.swap_remove(at);
                if rng.u8(..50) == 0 && !operation.poll() {
                    // Forgotten: its endpoint frees the buffer. One that has ended has it itself.
                    core::mem::forget(operation);
                }
            }
        }
    }));
}

/// Ends when the future is polled again.
async fn pause() {
    let mut paused = false;
    core::future::poll_fn(|context| {
        if core::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn objects_are_dropped_in_every_order() {
    for provider in providers() {
        let info = info(provider);
        // The orders of four objects, as the digits of a number.
        for order in 0..24usize {
            let live = Live::default();
            let other = end(&info);
            let fabric = Fabric::open(&info).unwrap();
            let domain = fabric.domain(&info).unwrap();
            let ep = Arc::new(RdmEndpoint::open(&domain, &info).unwrap());
            let region = domain.register(vec![0; 64], MrAccess::REMOTE).unwrap();
            let peer = ep.peer(other.ep.local_addr().unwrap()).unwrap();
            drop(ep.send(peer, Counted::new(300_000, &live)));
            core::mem::forget(ep.receive(Counted::new(8, &live)));
            drop(ep.receive(Counted::new(8, &live)));
            let mut objects: Vec<Box<dyn core::any::Any>> =
                vec![Box::new(fabric), Box::new(domain), Box::new(ep), Box::new(region)];
            let (mut rest, mut orders) = (order, 24);
            while !objects.is_empty() {
                orders /= objects.len();
                drop(objects.remove(rest / orders));
                rest %= orders;
            }
            assert_eq!(live.count(), 0, "{provider}, order {order}");
            drop(other);
        }
    }
}

#[test]
fn a_dropped_receive_takes_no_message() {
    for provider in providers() {
        let info = info(provider);
        let (one, two) = (end(&info), end(&info));
        let peer = one.ep.peer(two.ep.local_addr().unwrap()).unwrap();
        drop(two.ep.receive([0u8; 8]));
        let receive = two.ep.receive([0u8; 8]);
        let (sent, received) = ofi::block_on(futures_lite::future::zip(one.ep.send(peer, "kept"), receive));
        sent.0.unwrap();
        assert_eq!(&received.1[..received.0.unwrap().len()], b"kept");
        assert_eq!(two.domain.pending_operations(), 0);
    }
}

/// Endpoints that stay until the process ends, so that a waker can own an operation on one of them;
/// from here the leak checker of AddressSanitizer finds them.
static FOREVER: Mutex<Vec<&RdmEndpoint>> = Mutex::new(Vec::new());

/// A task that owns an operation, which ends with the task's last waker.
struct Owner(#[allow(dead_code, reason = "it is dropped")] Mutex<Operation<'static, [u8; 8]>>);

impl std::task::Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_closed_endpoint_drops_the_last_waker_of_a_task_with_an_operation() {
    for provider in providers() {
        let (done, outcome) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let info = info(provider);
            let End { ep, domain, .. } = end(&info);
            let other: &'static RdmEndpoint = Box::leak(Box::new(RdmEndpoint::open(&domain, &info).unwrap()));
            FOREVER.lock().unwrap().push(other);
            ofi::block_on(async {
                let mut receive = ep.receive([0u8; 8]);
                let waker = Waker::from(Arc::new(Owner(Mutex::new(other.receive([0u8; 8])))));
                assert!(Pin::new(&mut receive).poll(&mut Context::from_waker(&waker)).is_pending());
                core::mem::forget(receive);
                drop(waker);
                drop(ep);
            });
            done.send(domain.pending_operations())
        });
        let pending = outcome.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(pending, Ok(0), "{provider}");
    }
}

/// A task whose waker panics.
struct Panics;

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

#[test]
fn a_waker_that_panics_leaves_the_others_their_wake_ups() {
    struct Woken(std::sync::mpsc::Sender<()>);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    for provider in providers() {
        let End { ep, .. } = end(&info(provider));
        let (sender, woken) = std::sync::mpsc::channel();
        let mut receives = [ep.receive([0u8; 8]), ep.receive([0u8; 8])];
        // Both are woken when `block_on` ends.
        let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::new(Woken(sender)))];
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ofi::block_on(async {
                for (receive, waker) in receives.iter_mut().zip(&wakers) {
                    assert!(Pin::new(receive).poll(&mut Context::from_waker(waker)).is_pending());
                }
            });
        }));
        assert!(panic.is_err());
        assert_eq!(woken.try_recv(), Ok(()), "{provider}");
    }
}
