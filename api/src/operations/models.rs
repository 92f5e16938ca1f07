//! Models of an operation's end, checked by loom: threads of the application await, drop, cancel
//! and forget it while others complete it. The buffer is the application's and the engine's in
//! turn, and every order must show that the one has left it before the other touches it.

use super::*;
use crate::buf::IoBufMut;
use core::task::Waker;
use loom::sync::{MutexGuard, Notify};
use loom::thread;
use ofi_core::{Addr, BindFlags, Cause, Completion};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::{CounterControl, EndpointControl, QueueControl};
use ofi_engine::limits::SizeLimit;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::{AddressVector, EventQueue, Statistics};
use ofi_memory::Buffer;
use ofi_sim::{Faults, World};
use ofi_sync::primitive::Mutex;
use std::sync::PoisonError;
use std::task::Wake;

/// Who has had a buffer. The accesses are relaxed, so that a thread sees another one's only if
/// something else orders them.
#[derive(Debug, Default)]
struct Trace {
    filled: AtomicBool,
    freed: AtomicBool,
}

/// A buffer of the application.
#[derive(Debug)]
struct Traced {
    bytes: Box<[u8]>,
    trace: Arc<Trace>,
}

impl IoBufMut for Traced {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let was_freed = self.trace.freed.swap(true, Ordering::Relaxed);
        assert!(!was_freed, "a buffer is freed once");
    }
}

/// An endpoint with one receive.
struct OneReceive {
    queue: Arc<Queue<Park>>,
    trace: Arc<Trace>,
    posted: Mutex<Option<(usize, Buffer)>>,
}

impl fmt::Debug for OneReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneReceive")
    }
}

impl OneReceive {
    fn posted(&self) -> MutexGuard<'_, Option<(usize, Buffer)>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message arrives.
    fn deliver(&self) {
        // Until it has left the buffer, it does not close.
        let mut posted = self.posted();
        let Some((context, mut buffer)) = posted.take() else { return };
        let is_freed = self.trace.freed.fetch_or(false, Ordering::Relaxed);
        assert!(!is_freed, "the engine fills a buffer that is freed");
        self.trace.filled.store(true, Ordering::Relaxed);
        buffer.write_at(0, &[1]);
        drop((buffer, posted));
        let flags = OpFlags::MSG | OpFlags::RECV;
        self.queue.push(Completion { context, flags, len: 1, buf: 0, data: 0, tag: 0, src: FiAddr::UNSPEC });
    }
}

impl MessageOps for OneReceive {
    fn send(&self, _: SendOp) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn receive(&self, op: RecvOp) -> Result<(), Errno> {
        *self.posted() = Some((op.context, op.buffer));
        Ok(())
    }
}

impl EndpointControl for OneReceive {
    fn cancel(&self, context: usize) {
        if self.posted().take_if(|(posted, _)| *posted == context).is_some() {
            self.queue.push_failure(*crate::table::failure(context, Errno::ECANCELED, Cause::Cancelled, ""));
        }
    }
    fn close(&self) {
        *self.posted() = None;
    }
    fn make_progress(&self) {}
    fn bind_cq(&self, _: Arc<dyn QueueControl>, _: BindFlags) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn bind_counter(self: Arc<Self>, _: Arc<dyn CounterControl>, _: BindFlags) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn bind_av(self: Arc<Self>, _: &Arc<AddressVector>) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn bind_eq(self: Arc<Self>, _: &Arc<EventQueue>, _: Owner) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn has_eq(&self) -> bool {
        false
    }
    fn enable(self: Arc<Self>) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn limit(&self, _: SizeLimit) -> usize {
        usize::MAX
    }
    fn set_limit(&self, _: SizeLimit, _: usize) -> ofi_core::error::Result<()> {
        Ok(())
    }
    fn rx_size_left(&self) -> usize {
        1
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
    fn local_addr(&self) -> ofi_core::error::Result<Addr> {
        Err(Errno::ENOSYS.into())
    }
    fn set_local_addr(&self, _: Addr) -> ofi_core::error::Result<()> {
        Err(Errno::ENOSYS.into())
    }
}

/// A task that sleeps until it is woken.
#[derive(Debug)]
struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A domain with a receive.
struct Posted {
    operations: Operations,
    endpoint: Arc<OneReceive>,
    engine: Arc<Engine>,
    number: usize,
    context: usize,
    trace: Arc<Trace>,
}

impl Posted {
    fn new() -> Arc<Self> {
        let world = World::new(1, Faults { stall: 0, split: false });
        let operations = Operations::over(Timed::simulated(world.port()), false);
        let trace = Arc::new(Trace::default());
        let endpoint = OneReceive { queue: operations.queue.clone(), trace: trace.clone(), posted: Mutex::new(None) };
        let endpoint = Arc::new(endpoint);
        let engine = Engine { control: endpoint.clone(), messages: endpoint.clone(), one_sided: None };
        let engine = Arc::new(engine);
        let number = operations.add_endpoint(engine.clone());
        let buffer = Traced { bytes: Box::new([0]), trace: trace.clone() };
        let context = operations.receive(number, &engine, (FiAddr::UNSPEC, None), Kept::to_fill(buffer));
        Arc::new(Self { operations, endpoint, engine, number, context, trace })
    }

    /// A message arrives, and another task's turn finds its completion.
    fn deliver_and_turn(&self) {
        self.endpoint.deliver();
        self.operations.turn();
    }

    /// As a task that awaits it: sleeps until it has ended.
    fn end(&self) -> Ended {
        let task = Arc::new(Task(Notify::new()));
        let waker = Waker::from(task.clone());
        loop {
            let operations = &self.operations;
            // As a poll does in a thread of `block_on`, and as others do.
            let found = match operations.look_at(self.context) {
                Found::Ended(done, owner) => Turn::Ended(done, owner),
                Found::Alone => operations.turn_only_for(self.context),
                Found::Other => Turn::Other,
            };
            if let Turn::Ended(done, owner) = found {
                return (Ok(done), owner);
            }
            let ended = operations.try_take(self.context).or_else(|| operations.turn_for(self.context));
            if let Some(ended) = ended.or_else(|| operations.take(self.context, &waker)) {
                return ended;
            }
            // Loom fails if the task sleeps for ever.
            task.0.wait();
        }
    }

    /// What the task finds: the buffer comes back, filled if the operation was successful.
    fn check(&self, (outcome, buffer): Ended) {
        assert_eq!(self.operations.pending(), 0, "it ended once");
        let buffer = buffer.take::<Traced>();
        let is_filled = self.trace.filled.load(Ordering::Relaxed);
        assert_eq!((is_filled, buffer.bytes[0] == 1), (outcome.is_ok(), outcome.is_ok()));
        assert!(!self.trace.freed.load(Ordering::Relaxed));
    }

    fn is_freed(&self) -> bool {
        self.trace.freed.load(Ordering::Relaxed)
    }
}

/// Runs a model in every order with up to four preemptions.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.max_branches = 20_000;
    builder.check(run);
}

fn apart(all: &Arc<Posted>, run: impl FnOnce(&Posted) + 'static) -> thread::JoinHandle<()> {
    let all = all.clone();
    thread::spawn(move || run(&all))
}

#[test]
fn an_awaited_operation_gives_its_buffer_back_and_its_task_wakes() {
    model(|| {
        let all = Posted::new();
        let other = apart(&all, Posted::deliver_and_turn);
        let ended = all.end();
        assert!(ended.0.is_ok());
        all.check(ended);
        other.join().unwrap();
    });
}

#[test]
fn a_cancelled_operation_ends_once_in_one_way_or_the_other() {
    model(|| {
        let all = Posted::new();
        let other = apart(&all, Posted::deliver_and_turn);
        all.operations.cancel(all.context);
        all.check(all.end());
        other.join().unwrap();
    });
}

#[test]
fn the_buffer_of_a_dropped_operation_is_freed_once_the_engine_has_left_it() {
    model(|| {
        let all = Posted::new();
        let other = apart(&all, Posted::deliver_and_turn);
        all.operations.abandon(all.context);
        other.join().unwrap();
        all.operations.turn();
        assert!(all.is_freed());
        assert_eq!(all.operations.pending(), 0);
    });
}

#[test]
fn the_buffer_of_a_forgotten_operation_is_freed_when_its_endpoint_closes() {
    model(|| {
        let all = Posted::new();
        let other = apart(&all, Posted::deliver_and_turn);
        all.operations.close_endpoint(all.number, &all.engine);
        assert!(all.is_freed());
        other.join().unwrap();
        // A completion that the endpoint has left behind meets nothing.
        all.operations.turn();
        assert_eq!(all.operations.pending(), 0);
    });
}
