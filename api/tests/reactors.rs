//! Operations in a tokio runtime, in any executor with async-io, and in block_on; sleeping.
#![cfg(any(feature = "tcp", feature = "shm"))]

mod common;

use common::{info, providers};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use ofi::{Domain, EndpointType, Errno, Fabric, Info, MsgEndpoint, MsgListener, Peer, RdmEndpoint};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::time::Duration;

/// An endpoint with a domain of its own.
fn end(info: &Info) -> (Domain, Arc<RdmEndpoint>) {
    let domain = Fabric::open(info).unwrap().domain(info).unwrap();
    let ep = Arc::new(RdmEndpoint::open(&domain, info).unwrap());
    (domain, ep)
}

fn meet(one: &RdmEndpoint, two: &RdmEndpoint) -> (Peer, Peer) {
    (one.peer(two.local_addr().unwrap()).unwrap(), two.peer(one.local_addr().unwrap()).unwrap())
}

/// Sends numbers to and fro.
async fn play(ep: Arc<RdmEndpoint>, peer: Peer, first: bool, rounds: u32) {
    if first {
        ep.send(peer, 0u32.to_le_bytes()).await.0.unwrap();
    }
    loop {
        let (received, number) = ep.receive([0; 4]).await;
        received.unwrap();
        let number = u32::from_le_bytes(number) + 1;
        if number > rounds {
            return;
        }
        ep.send(peer, number.to_le_bytes()).await.0.unwrap();
        if number == rounds {
            return;
        }
    }
}

/// Processor time of the calling thread.
fn used() -> Duration {
    let time = ofi_os::clock::thread_time();
    Duration::from_nanos(time.nanos())
}

fn with_limit<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    outcome.recv_timeout(Duration::from_secs(60)).expect("the test ended within a minute")
}

#[test]
fn two_threads_in_block_on_play() {
    for provider in providers() {
        with_limit(move || {
            let info = info(provider, EndpointType::RDM);
            let ((_a, one), (_b, two)) = (end(&info), end(&info));
            let (to_two, to_one) = meet(&one, &two);
            let other = std::thread::spawn(move || ofi::block_on(play(two, to_one, false, 2000)));
            ofi::block_on(play(one, to_two, true, 2000));
            other.join().unwrap();
        });
    }
}

#[test]
fn two_threads_share_a_domain() {
    for provider in providers() {
        with_limit(move || {
            let info = info(provider, EndpointType::RDM);
            let (domain, one) = end(&info);
            let two = Arc::new(RdmEndpoint::open(&domain, &info).unwrap());
            let (to_two, to_one) = meet(&one, &two);
            let other = std::thread::spawn(move || ofi::block_on(play(two, to_one, false, 2000)));
            ofi::block_on(play(one, to_two, true, 2000));
            other.join().unwrap();
        });
    }
}

#[test]
fn a_task_in_block_on_is_woken_by_another_thread() {
    with_limit(|| {
        let (sender, receiver) = futures_channel();
        let other = std::thread::spawn(move || {
            std::thread::yield_now();
            sender();
        });
        ofi::block_on(receiver);
        other.join().unwrap();
    });
}

/// A future, and the function that ends it.
fn futures_channel() -> (impl FnOnce() + Send, impl Future<Output = ()> + Send) {
    let state = Arc::new(std::sync::Mutex::new((false, None::<core::task::Waker>)));
    let seen = state.clone();
    let end = move || {
        let waker = {
            let mut state = state.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(core::task::Waker::wake);
    };
    let future = core::future::poll_fn(move |context| {
        let mut state = seen.lock().unwrap();
        state.1 = Some(context.waker().clone());
        if state.0 { core::task::Poll::Ready(()) } else { core::task::Poll::Pending }
    });
    (end, future)
}

/// A future of a set: it is polled only after it was woken.
struct Member<F> {
    future: Pin<Box<F>>,
    call: Arc<Call>,
}

struct Call(Mutex<(bool, Option<Waker>)>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let set = state.1.clone();
        drop(state);
        set.into_iter().for_each(Waker::wake);
    }
}

impl<F: Future> Member<F> {
    fn new(future: F) -> Self {
        Self { future: Box::pin(future), call: Arc::new(Call(Mutex::new((true, None)))) }
    }

    fn poll(&mut self, set: &mut Context<'_>) -> Poll<F::Output> {
        let woken = {
            let mut state = self.call.0.lock().unwrap();
            state.1 = Some(set.waker().clone());
            core::mem::take(&mut state.0)
        };
        if !woken {
            return Poll::Pending;
        }
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(self.call.clone())))
    }
}

/// The output of the first member that ends, which leaves the set.
async fn next<F: Future>(set: &mut Vec<Member<F>>) -> F::Output {
    core::future::poll_fn(|context| {
        for at in 0..set.len() {
            if let Poll::Ready(output) = set[at].poll(context) {
                set.remove(at);
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

#[test]
fn a_set_of_futures_goes_from_one_block_on_to_the_next() {
    for provider in providers() {
        with_limit(move || {
            let info = info(provider, EndpointType::RDM);
            let (_domain, ep) = end(&info);
            let me = ep.peer(ep.local_addr().unwrap()).unwrap();
            let mut set: Vec<_> = (0..2).map(|_| Member::new(ep.receive([0; 1]))).collect();
            for text in ["a", "b"] {
                let _send = ep.send(me, text);
                let (received, buf) = ofi::block_on(next(&mut set));
                received.unwrap();
                assert_eq!(&buf, text.as_bytes());
            }
        });
    }
}

/// Ends an endpoint that has a message for a peer: the message arrives only if the peer's task runs
/// meanwhile.
async fn end_while_the_peer_works<F: Future<Output = ()>>(provider: &str, end_it: impl FnOnce(RdmEndpoint) -> F) {
    let info = info(provider, EndpointType::RDM);
    let domains = [(); 2].map(|()| Fabric::open(&info).unwrap().domain(&info).unwrap());
    let [one, two] = domains.each_ref().map(|domain| RdmEndpoint::open(domain, &info).unwrap());
    let peer = one.peer(two.local_addr().unwrap()).unwrap();
    // The two have not met: it waits.
    one.inject(peer, b"the last").unwrap();
    let receive = async { two.receive([0; 8]).timeout(Duration::from_secs(20)).await };
    let ((), (received, buf)) = futures_lite::future::zip(end_it(one), receive).await;
    received.unwrap();
    assert_eq!(&buf, b"the last");
}

#[test]
fn an_endpoint_closes_while_other_tasks_run() {
    for provider in providers() {
        with_limit(move || ofi::block_on(end_while_the_peer_works(provider, RdmEndpoint::close)));
    }
}

/// Waits on a receive that nothing answers; returns the processor time that the wait took.
fn idle(ep: &RdmEndpoint, wait: impl Fn(Duration)) -> Duration {
    wait(Duration::from_millis(50));
    let before = used();
    wait(Duration::from_millis(400));
    let taken = used() - before;
    drop(ep.local_addr());
    taken
}

/// What a sleeping thread may use of 400 ms: the spinning before it sleeps, twice, and the
/// scheduler's rounding. A thread that polls uses all of it.
const SLACK: Duration = Duration::from_millis(40);

#[test]
fn a_task_that_waits_in_block_on_uses_no_processor_time() {
    for provider in providers() {
        let info = info(provider, EndpointType::RDM);
        let ((_a, one), (_b, two)) = (end(&info), end(&info));
        let (to_two, _) = meet(&one, &two);
        // They have met, so that more than the listening sockets are watched.
        let receive = two.receive([0; 2]);
        ofi::block_on(futures_lite::future::zip(one.send(to_two, "hi"), receive)).0.0.unwrap();
        let taken = idle(&two, |time| {
            let (late, _) = ofi::block_on(two.receive([0; 1]).timeout(time));
            assert_eq!(late.unwrap_err().errno(), Errno::ETIMEDOUT);
        });
        assert!(taken < SLACK, "{provider}: {taken:?}");
    }
}

#[test]
fn connections_are_made_used_and_ended() {
    for provider in providers() {
        let connect = move || {
            let info = info(provider, EndpointType::MSG);
            let fabric = Fabric::open(&info).unwrap();
            let (here, there) = (fabric.domain(&info).unwrap(), fabric.domain(&info).unwrap());
            let listener = MsgListener::listen(&fabric, &info).unwrap();
            let to = listener.local_addr().unwrap();
            ofi::block_on(async {
                let client = MsgEndpoint::connect_with(&here, &info, to, b"who");
                let server = async {
                    let request = listener.request().await?;
                    assert_eq!(request.data(), b"who");
                    request.accept_with(&there, b"me").await
                };
                let (client, server) = futures_lite::future::zip(client, server).await;
                let ((client, data), server) = (client.unwrap(), server.unwrap());
                assert_eq!(data, b"me");
                let receive = server.receive_tagged(1, 0, [0; 8]);
                client.send_tagged(1, "ping").await.0.unwrap();
                assert_eq!(receive.await.0.unwrap().len(), 4);
                let pending = server.receive([0; 8]);
                let mut messages = server.incoming_tagged(1, 0, 4, 2);
                client.send_tagged(1, "cut off").await.0.unwrap();
                let cut_off = messages.next().await.unwrap().unwrap_err();
                assert_eq!(cut_off.errno(), Errno::ETRUNC);
                client.send_tagged(1, "ok").await.0.unwrap();
                assert_eq!(&*messages.next().await.unwrap().unwrap(), b"ok", "the stream goes on");
                drop(client);
                assert!(messages.next().await.unwrap().is_err(), "the connection has ended");
                assert!(messages.next().await.is_none() && messages.next().await.is_none());
                server.closed().await.unwrap();
                server.closed().await.unwrap();
                assert!(pending.await.0.is_err(), "the peer has gone");
                // A request that is rejected, and one that does not come.
                let client = MsgEndpoint::connect(&here, &info, to);
                let server = async { listener.request().await.unwrap().reject(b"no") };
                let (client, server) = futures_lite::future::zip(client, server).await;
                server.unwrap();
                assert_eq!(client.unwrap_err().errno(), Errno::ECONNREFUSED);
                let none = listener.request_within(Duration::from_millis(20)).await.unwrap_err();
                assert_eq!(none.errno(), Errno::ETIMEDOUT);
            });
        };
        with_limit(connect);
    }
}

#[cfg(feature = "tokio")]
mod tokio_runtime {
    use super::*;

    #[test]
    fn many_tasks_of_a_runtime_play() {
        for (provider, threads) in providers().into_iter().zip([1, 2]) {
            with_limit(move || {
                let runtime = if threads == 1 {
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
                } else {
                    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
                };
                runtime.block_on(async {
                    let info = info(provider, EndpointType::RDM);
                    let mut games = Vec::new();
                    for _ in 0..8 {
                        let ((a, one), (b, two)) = (end(&info), end(&info));
                        let (to_two, to_one) = meet(&one, &two);
                        games.push(tokio::spawn(async move {
                            play(one, to_two, true, 500).await;
                            drop(a);
                        }));
                        games.push(tokio::spawn(async move {
                            play(two, to_one, false, 500).await;
                            drop(b);
                        }));
                    }
                    for game in games {
                        game.await.unwrap();
                    }
                });
            });
        }
    }

    #[test]
    fn an_endpoint_that_is_dropped_leaves_its_thread_to_other_tasks() {
        for provider in providers() {
            with_limit(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(end_while_the_peer_works(provider, async |ep| drop(ep)));
            });
        }
    }

    #[test]
    fn a_domain_outlives_a_runtime() {
        with_limit(|| {
            let info = info(providers()[0], EndpointType::RDM);
            let (_domain, ep) = end(&info);
            let me = ep.peer(ep.local_addr().unwrap()).unwrap();
            for _ in 0..3 {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let receive = ep.receive([0; 2]);
                runtime.block_on(async { ep.send(me, "hi").await.0.unwrap() });
                runtime.block_on(receive).0.unwrap();
            }
        });
    }

    #[test]
    fn connections_are_made_after_the_domain_with_a_thread_has_gone() {
        with_limit(|| {
            let info = info(providers()[0], EndpointType::MSG);
            let fabric = Fabric::open(&info).unwrap();
            let mut automatic = (*info).clone();
            automatic.domain.progress = ofi::ProgressModel::AUTO;
            drop(fabric.domain(&automatic.into()).unwrap());
            let domain = fabric.domain(&info).unwrap();
            let listener = MsgListener::listen(&fabric, &info).unwrap();
            let to = listener.local_addr().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = MsgEndpoint::connect(&domain, &info, to);
                let server = async { listener.request().await.unwrap().accept(&domain).await };
                let (client, server) = futures_lite::future::zip(client, server).await;
                drop((client.unwrap(), server.unwrap()));
                // Only a reactor ends this.
                let none = listener.request_within(Duration::from_millis(20)).await.unwrap_err();
                assert_eq!(none.errno(), Errno::ETIMEDOUT);
            });
        });
    }

    #[test]
    fn a_runtime_without_descriptors_panics_in_the_task() {
        with_limit(|| {
            let info = info(providers()[0], EndpointType::RDM);
            let (_domain, ep) = end(&info);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let wait = || runtime.block_on(ep.receive([0; 1]).timeout(Duration::from_secs(3600)));
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
            assert!(panic.is_err());
        });
    }

    #[test]
    fn a_task_that_waits_uses_no_processor_time() {
        let info = info(providers()[0], EndpointType::RDM);
        let (_domain, ep) = end(&info);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let taken = idle(&ep, |time| {
            let (late, _) = runtime.block_on(ep.receive([0; 1]).timeout(time));
            assert_eq!(late.unwrap_err().errno(), Errno::ETIMEDOUT);
        });
        assert!(taken < SLACK, "{taken:?}");
    }
}

#[cfg(all(feature = "async-io", not(feature = "tokio")))]
mod any_executor {
    use super::*;

    #[test]
    fn two_threads_of_another_executor_play() {
        for provider in providers() {
            with_limit(move || {
                let info = info(provider, EndpointType::RDM);
                let ((_a, one), (_b, two)) = (end(&info), end(&info));
                let (to_two, to_one) = meet(&one, &two);
                let other = std::thread::spawn(move || futures_lite::future::block_on(play(two, to_one, false, 1000)));
                futures_lite::future::block_on(play(one, to_two, true, 1000));
                other.join().unwrap();
            });
        }
    }

    #[test]
    fn a_thread_that_waits_uses_no_processor_time() {
        let info = info(providers()[0], EndpointType::RDM);
        let (_domain, ep) = end(&info);
        let taken = idle(&ep, |time| {
            let (late, _) = futures_lite::future::block_on(ep.receive([0; 1]).timeout(time));
            assert_eq!(late.unwrap_err().errno(), Errno::ETIMEDOUT);
        });
        assert!(taken < SLACK, "{taken:?}");
    }
}
