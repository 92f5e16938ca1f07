use super::super::work::{NotStarted, Operation, Transfer};
use super::*;
use crate::op::SendOp;
use crate::still::Still;
use crate::trigger::Notice;
use crate::{CounterUnit, Waiting};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_memory::Buffer;
use ofi_sync::lock::Park;

/// An endpoint that notes what starts and what is cancelled, and has room for some operations.
#[derive(Debug, Default)]
struct Recorder {
    room: Mutex<usize>,
    started: Mutex<Vec<usize>>,
    cancelled: Mutex<Vec<usize>>,
    /// Goes up with each operation that starts.
    next: Option<Arc<dyn Tally>>,
}

impl Initiator for Recorder {
    fn admit(&self, _operation: &Operation) -> core::result::Result<(), Errno> {
        Ok(())
    }
    fn start(&self, operation: Operation, notice: Option<Notice>) -> core::result::Result<(), Box<NotStarted>> {
        let mut room = self.room.lock().unwrap();
        if *room == 0 {
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
}

fn counter() -> Arc<dyn Tally> {
    Arc::new(Counter::<Park>::new(Park::default(), CounterUnit::Operations, Arc::new(Still), Waiting::Never))
}

/// A triggered send with that context; deferred work if it has an id.
fn send(endpoint: &Arc<Recorder>, context: usize, id: usize) -> Work {
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
    assert!(queue.poll().active);
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
    assert!(!queue.before_sleep(), "the endpoint's own events tell when there is");
    *full.room.lock().unwrap() = 5;
    assert!(queue.run());
    assert_eq!(full.started(), [1, 2, 3]);
    assert!(!queue.run());
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
