use super::super::work::{NotStarted, Operation, Transfer};
use super::*;
use crate::op::SendOp;
use crate::still::Still;
use crate::trigger::Notice;
use crate::{CounterUnit, Waiting};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::Buffer;
use ofi_sync::lock::Park;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// An endpoint that notes what starts and what is cancelled, and has room for some operations.
#[derive(Debug, Default)]
struct Recorder {
    room: Mutex<usize>,
    started: Mutex<Vec<usize>>,
    cancelled: Mutex<Vec<usize>>,
    /// How often it has room as soon as it has refused an operation.
    later: Mutex<usize>,
    /// Who waits for room.
    watch: Mutex<Option<Weak<dyn RoomWatch>>>,
    /// Goes up with each operation that starts.
    next: Option<Arc<dyn Tally>>,
}

impl Initiator for Recorder {
    fn admit(&self, _operation: &Operation) -> core::result::Result<(), Errno> {
        Ok(())
    }
    fn start(
        &self,
        operation: Operation,
        notice: Option<Notice>,
        watch: Option<&Weak<dyn RoomWatch>>,
    ) -> core::result::Result<(), Box<NotStarted>> {
        let mut room = self.room.lock().unwrap();
        if *room == 0 {
            *self.watch.lock().unwrap() = watch.cloned();
            drop(room);
            let mut later = self.later.lock().unwrap();
            if *later > 0 {
                *later -= 1;
                self.make_room(1);
            }
            return Err(Box::new((operation, notice)));
        }
        *room -= 1;
        drop(room);
        self.started.lock().unwrap().push(operation.context());
        if let Some(next) = &self.next {
            next.add(1);
        }
        Ok(())
    }
    fn cancel_deferred(&self, operation: &Operation) {
        self.cancelled.lock().unwrap().push(operation.context());
    }
    fn shares_receives(&self) -> bool {
        false
    }
}

impl Recorder {
    fn with_room(room: usize) -> Arc<Self> {
        Arc::new(Self { room: Mutex::new(room), ..Self::default() })
    }

    fn started(&self) -> Vec<usize> {
        self.started.lock().unwrap().clone()
    }

    /// Other operations have completed.
    fn make_room(&self, room: usize) {
        *self.room.lock().unwrap() = room;
        let watch = self.watch.lock().unwrap().take();
        if let Some(watch) = watch.as_ref().and_then(Weak::upgrade) {
            watch.handle_room();
        }
    }
}

fn counter() -> Arc<dyn Tally> {
    Arc::new(Counter::<Park>::new(Park::default(), CounterUnit::Operations, Arc::new(Still::default()), Waiting::Never))
}

/// A triggered send with that context; deferred work if it has an id.
fn send<I: Initiator + 'static>(endpoint: &Arc<I>, context: usize, id: usize) -> Work {
    let (buffer, flags) = (Buffer::empty(), OpFlags::empty());
    let op = SendOp { dest: FiAddr(0), buffer, context, tag: None, data: None, flags, inject: false };
    let notice = Notice { context, reports: false, counter: None, users: Vec::new() };
    let notice = (id != 0).then_some(notice);
    let transfer = Transfer { endpoint: endpoint.clone(), operation: Operation::Send(op), notice };
    let action = Action::Transfer(Box::new(transfer));
    Work { id, action, users: Vec::new() }
}

#[test]
fn work_starts_by_threshold_then_in_the_order_of_queuing() {
    let (queue, counter, ep) = (Arc::new(WorkQueue::default()), counter(), Recorder::with_room(100));
    for (context, threshold) in [(1, 5), (2, 3), (3, 3), (4, 1), (5, 6)] {
        queue.submit(&counter, threshold, send(&ep, context, 0));
    }
    assert!(!queue.run());
    counter.add_errors(1);
    counter.add(4);
    assert!(ep.started().is_empty(), "a change starts nothing itself");
    assert!(queue.poll().is_active());
    assert_eq!(ep.started(), [4, 2, 3, 1]);
    counter.set(5);
    assert!(queue.run() && !queue.run());
    assert_eq!(ep.started(), [4, 2, 3, 1, 5]);
}

#[test]
fn work_whose_condition_holds_is_ready_when_it_is_queued() {
    let (queue, counter, ep) = (Arc::new(WorkQueue::default()), counter(), Recorder::with_room(100));
    counter.add(2);
    queue.submit(&counter, 2, send(&ep, 1, 0));
    assert!(queue.before_sleep() && queue.next_deadline().is_some(), "a thread must not sleep now");
    assert!(queue.run());
    assert!(!queue.before_sleep() && queue.next_deadline().is_none());
    assert_eq!(ep.started(), [1]);
}

#[test]
fn a_full_endpoint_holds_up_its_own_work_alone() {
    let (queue, counter) = (Arc::new(WorkQueue::default()), counter());
    let (full, free) = (Recorder::with_room(1), Recorder::with_room(100));
    for context in 1..4 {
        queue.submit(&counter, 1, send(&full, context, 0));
        queue.submit(&counter, 1, send(&free, 10 + context, 0));
    }
    counter.add(1);
    assert!(queue.run());
    assert_eq!((full.started(), free.started()), (vec![1], vec![11, 12, 13]));
    assert!(!queue.run(), "there is still no room");
    assert!(!queue.before_sleep() && queue.next_deadline().is_none(), "it can do nothing");
    full.make_room(1);
    assert!(queue.before_sleep() && queue.next_deadline().is_some(), "no thread sleeps now");
    assert!(queue.run() && !queue.before_sleep());
    assert_eq!(full.started(), [1, 2]);
    full.make_room(5);
    assert!(queue.run() && !queue.before_sleep());
    assert_eq!(full.started(), [1, 2, 3]);
    assert!(!queue.run());
    full.make_room(5);
    assert!(!queue.before_sleep(), "nothing waits for it");
}

#[test]
fn work_that_is_ready_later_starts_behind_stalled_work() {
    let (queue, counter, ep) = (Arc::new(WorkQueue::default()), counter(), Recorder::with_room(1));
    for context in 1..6 {
        queue.submit(&counter, context as u64 / 3, send(&ep, context, 0));
        queue.run();
    }
    assert_eq!(ep.started(), [1]);
    counter.add(1);
    ep.make_room(3);
    assert!(queue.run());
    assert_eq!(ep.started(), [1, 2, 3, 4]);
    ep.make_room(1);
    assert!(queue.run());
    assert_eq!(ep.started(), [1, 2, 3, 4, 5]);
}

#[test]
fn room_that_comes_while_work_is_tried_is_used() {
    let (queue, counter, ep) = (Arc::new(WorkQueue::default()), counter(), Recorder::with_room(0));
    *ep.later.lock().unwrap() = 3;
    (1..4).for_each(|context| queue.submit(&counter, 0, send(&ep, context, 0)));
    assert!(queue.run());
    assert_eq!(ep.started(), [1, 2, 3]);
    assert!(!queue.before_sleep());
}

#[test]
fn work_that_starts_work_does_not_recurse() {
    let (queue, counter) = (Arc::new(WorkQueue::default()), counter());
    let ep = Arc::new(Recorder { room: Mutex::new(usize::MAX), next: Some(counter.clone()), ..Recorder::default() });
    for at in 0..100_000 {
        queue.submit(&counter, at + 1, send(&ep, 1, 0));
    }
    counter.add(1);
    assert!(queue.run());
    assert_eq!(ep.started().len(), 100_000);
}

#[test]
fn counters_start_counters() {
    let (queue, first, second) = (Arc::new(WorkQueue::default()), counter(), counter());
    let work = |action| Work { id: 1, action, users: Vec::new() };
    queue.submit(&first, 1, work(Action::Add(second.clone(), 4)));
    queue.submit(&second, 4, work(Action::Set(first.clone(), 9)));
    first.add(1);
    assert!(queue.run());
    assert_eq!((first.total(), second.total()), (9, 4));
}

#[test]
fn only_what_has_not_started_is_cancelled() {
    let (queue, counter, other) = (Arc::new(WorkQueue::default()), counter(), counter());
    let (ep, full) = (Recorder::with_room(100), Recorder::with_room(0));
    let endpoint: Arc<dyn Initiator> = ep.clone();
    queue.submit(&counter, 1, send(&ep, 1, 101));
    queue.submit(&counter, 2, send(&ep, 2, 102));
    queue.submit(&counter, 1, send(&full, 3, 103));
    queue.submit(&other, 1, send(&ep, 4, 104));
    queue.submit(&other, 2, send(&ep, 5, 105));
    queue.submit(&other, 1, send(&ep, 6, 0));
    queue.submit(&other, 1, send(&ep, 7, 0));
    counter.add(1);
    queue.run();
    assert!(!queue.cancel(101), "it has started");
    assert!(queue.cancel(102) && !queue.cancel(102));
    assert!(queue.cancel(103), "it waits for room");
    assert!(!queue.cancel(0));
    assert!(queue.cancel_triggered(&endpoint, 6) && !queue.cancel_triggered(&endpoint, 4));
    assert_eq!(*ep.cancelled.lock().unwrap(), [6]);
    queue.flush_work(Some(counter.id()));
    assert!(queue.cancel(104), "it waits for another counter");
    queue.flush_work(Some(other.id()));
    assert!(!queue.cancel(105));
    counter.add(9);
    other.add(9);
    queue.run();
    assert_eq!(ep.started(), [1, 7], "triggered operations are no deferred work");
    queue.submit(&counter, 99, send(&ep, 8, 108));
    queue.flush_work(None);
    assert!(!queue.cancel(108));
    assert!(full.started().is_empty());
}

#[test]
fn the_work_of_a_closing_endpoint_goes() {
    let (queue, counter) = (Arc::new(WorkQueue::default()), counter());
    let (ep, other) = (Recorder::with_room(100), Recorder::with_room(100));
    queue.submit(&counter, 1, send(&ep, 1, 101));
    queue.submit(&counter, 1, send(&ep, 2, 0));
    queue.submit(&counter, 1, send(&other, 3, 0));
    let endpoint: Arc<dyn Initiator> = ep.clone();
    queue.forget(&endpoint);
    counter.add(1);
    queue.run();
    assert!(ep.started().is_empty() && ep.cancelled.lock().unwrap().is_empty());
    assert_eq!(other.started(), [3]);
}

#[test]
fn fi_cancel_takes_the_triggered_operation_that_was_queued_first() {
    let (queue, ep) = (Arc::new(WorkQueue::default()), Recorder::with_room(0));
    let endpoint: Arc<dyn Initiator> = ep.clone();
    let counters: Vec<_> = (0..8).map(|_| counter()).collect();
    // All have the same context; their counters and thresholds tell them apart.
    for (at, counter) in counters.iter().enumerate() {
        queue.submit(counter, 1, send(&ep, 7, 0));
        if at == 5 {
            // It is stalled, but not the oldest.
            counter.add(1);
            queue.run();
        }
    }
    for left in (0..8).rev() {
        assert!(queue.cancel_triggered(&endpoint, 7));
        let state = queue.state();
        let mut kept: Vec<u64> = state.stalled.values().flatten().map(|queued| queued.seq).collect();
        kept.extend(state.waiting.values().flat_map(|waiting| waiting.work.values()).map(|queued| queued.seq));
        kept.sort_unstable();
        assert_eq!(kept, (9 - left..9).collect::<Vec<u64>>());
    }
    assert!(!queue.cancel_triggered(&endpoint, 7));
    assert_eq!(*ep.cancelled.lock().unwrap(), [7; 8]);
}

/// An endpoint that starts work until the test lets it return.
#[derive(Debug)]
struct Slow {
    begun: Sender<()>,
    go: Mutex<Receiver<()>>,
    is_full: bool,
    is_done: AtomicBool,
}

impl Initiator for Slow {
    fn admit(&self, _operation: &Operation) -> core::result::Result<(), Errno> {
        Ok(())
    }
    fn start(
        &self,
        operation: Operation,
        notice: Option<Notice>,
        _watch: Option<&Weak<dyn RoomWatch>>,
    ) -> core::result::Result<(), Box<NotStarted>> {
        self.begun.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        self.is_done.store(true, Ordering::Relaxed);
        if self.is_full { Err(Box::new((operation, notice))) } else { Ok(()) }
    }
    fn cancel_deferred(&self, _operation: &Operation) {}
    fn shares_receives(&self) -> bool {
        false
    }
}

#[test]
fn closing_waits_for_work_that_is_being_started() {
    for is_full in [false, true] {
        let ((begun, has_begun), (go, goes)) = (channel(), channel());
        let (go, is_done) = (go, AtomicBool::new(false));
        let ep = Arc::new(Slow { begun, go: Mutex::new(goes), is_full, is_done });
        let (queue, counter) = (Arc::new(WorkQueue::default()), counter());
        (1..4).for_each(|context| queue.submit(&counter, 0, send(&ep, context, context)));
        let endpoint: Arc<dyn Initiator> = ep.clone();
        let (closed, has_closed) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.run());
            has_begun.recv().unwrap();
            scope.spawn(|| {
                queue.forget(&endpoint);
                closed.send(ep.is_done.load(Ordering::Relaxed)).unwrap();
            });
            // Too early if it comes now.
            let early = has_closed.recv_timeout(Duration::from_millis(50));
            go.send(()).unwrap();
            assert!(early.is_err() && has_closed.recv().unwrap(), "it was closed while its work started");
        });
        assert!(has_begun.try_recv().is_err(), "no other work of it starts");
        assert!((1..4).all(|id| !queue.cancel(id)), "nothing of it is left");
        assert!(queue.state().stalled.is_empty() && queue.state().waiting.is_empty());
    }
}

/// Threads count while another queues work: none is overlooked.
#[test]
fn work_is_not_overlooked_while_its_counter_changes() {
    for _ in 0..50 {
        let (queue, counter, ep) = (Arc::new(WorkQueue::default()), counter(), Recorder::with_room(1000));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|_| counter.add(1)));
            for threshold in 0..200 {
                queue.submit(&counter, threshold + 1, send(&ep, 1, 0));
                queue.run();
            }
        });
        queue.run();
        assert_eq!(ep.started().len(), 200);
    }
}
