//! Broadcaster: the thread that signals condition variables (FI_WAIT_MUTEX_COND, fi_cq(3)). It
//! sleeps on the descriptors of queues; when one becomes readable, it broadcasts the queue's
//! condition variable. It holds no lock of the library while it waits for the application's mutex,
//! because the mutex's holder may be in a call that needs the lock, and it waits for a short time
//! only, because the holder may wait for a thread that another broadcast wakes, or may close the
//! queue.

use crate::mutex_cond::MutexCond;
use crate::poller::{Interest, Poller};
use crate::thread::{self, Cpus, Thread};
use crate::wait_fd::FdWaitObject;
use ofi_core::error::{Error, Result};
use ofi_core::wait::{Descriptor, WaitObject};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The epoll key of the stop signal.
const STOP: u64 = u64::MAX;

/// How long the thread waits for a held mutex before it looks for events of others.
const TURN: Duration = Duration::from_millis(1);

/// A condition variable, and the descriptor whose events the thread signals by it.
#[derive(Debug)]
struct Member {
    cond: Arc<MutexCond>,
    descriptor: Descriptor,
    cpu: Option<usize>,
}

#[derive(Debug)]
struct Shared {
    poller: Poller,
    stop: FdWaitObject,
    members: Mutex<Slab<Member>>,
}

/// A thread that broadcasts condition variables; ends on drop.
#[derive(Debug)]
pub struct Broadcaster {
    shared: Arc<Shared>,
    thread: Option<Thread>,
    /// The CPUs that the thread may run on if no member names one that exists.
    all_cpus: Cpus,
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Slab<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut stopped, mut due) = (false, VecDeque::new());
        while !stopped {
            let timeout = (!due.is_empty()).then_some(Duration::ZERO);
            // Its descriptors are ours and valid: only EINTR is possible, which ends a wait early.
            drop(self.poller.wait(timeout, |event| {
                if event.key == STOP {
                    stopped = true;
                } else if !due.contains(&event.key) {
                    due.push_back(event.key);
                }
            }));
            due.retain(|key| !self.broadcast(*key, Duration::ZERO));
            // The held mutexes take turns.
            if let Some(key) = due.pop_front().filter(|key| !self.broadcast(*key, TURN)) {
                due.push_back(key);
            }
        }
    }

    /// False if the member's mutex is still held after that time.
    fn broadcast(&self, key: u64, limit: Duration) -> bool {
        self.cond_of(key).is_none_or(|cond| cond.broadcast(limit))
    }

    /// `None` if the member has left. If another has its key by now, that one gets a broadcast too
    /// many, which its waiters must expect.
    fn cond_of(&self, key: u64) -> Option<Arc<MutexCond>> {
        let key = usize::try_from(key).ok()?;
        self.members().get(key).map(|member| member.cond.clone())
    }
}

impl Broadcaster {
    /// Starts the thread.
    ///
    /// # Errors
    /// EAGAIN or EMFILE if the system has no room for the thread or its descriptors.
    pub fn start() -> Result<Self> {
        let poller = Poller::new().map_err(|error| Error::os(error, "create an epoll descriptor"))?;
        let stop = FdWaitObject::new(true)?;
        poller.add(stop.descriptor(), Interest::Read, STOP).map_err(|error| Error::os(error, "watch a descriptor"))?;
        let shared = Arc::new(Shared { poller, stop, members: Mutex::default() });
        let runner = shared.clone();
        let thread = thread::spawn(c"ofi-signal", move || runner.run())?;
        let all_cpus = thread.cpus();
        Ok(Self { shared, thread: Some(thread), all_cpus })
    }

    /// Broadcasts `cond` once for each call of [`Self::arm`] with the key that this returns: when
    /// `descriptor` is readable. The thread runs on the CPUs that its members name; one that does
    /// not exist is ignored.
    ///
    /// # Errors
    /// ENOSPC or ENOMEM if the system cannot watch the descriptor.
    pub fn join(&self, cond: Arc<MutexCond>, descriptor: Descriptor, cpu: Option<usize>) -> Result<usize> {
        let mut members = self.shared.members();
        let entry = members.vacant_entry();
        let key = entry.key();
        let watched = self.shared.poller.add(descriptor, Interest::ReadOnce, key as u64);
        watched.map_err(|error| Error::os(error, "watch a queue's descriptor"))?;
        entry.insert(Member { cond, descriptor, cpu });
        self.place(&members);
        Ok(key)
    }

    /// Broadcasts the next event on the member's descriptor, or a pending one: a thread of the
    /// application is about to wait.
    pub fn arm(&self, key: usize) {
        let descriptor = self.shared.members().get(key).map(|member| member.descriptor);
        if let Some(descriptor) = descriptor {
            // Fails only if the descriptor is not watched, but members' descriptors are.
            drop(self.shared.poller.modify(descriptor, Interest::ReadOnce, key as u64));
        }
    }

    /// Removes a member, whose descriptor is still open.
    pub fn leave(&self, key: usize) {
        let mut members = self.shared.members();
        if let Some(member) = members.try_remove(key) {
            // Fails only if the descriptor is already gone, as wanted.
            drop(self.shared.poller.remove(member.descriptor));
            self.place(&members);
        }
    }

    /// Moves the thread to the CPUs that the members name, or back to all if they name none that
    /// exists.
    fn place(&self, members: &Slab<Member>) {
        let mut named = Cpus::none();
        members.iter().filter_map(|(_, member)| member.cpu).for_each(|cpu| named.add(cpu));
        if let Some(thread) = &self.thread
            && (named.is_empty() || !thread.run_on(&named))
        {
            thread.run_on(&self.all_cpus);
        }
    }
}

impl Drop for Broadcaster {
    fn drop(&mut self) {
        self.shared.stop.signal();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::MOST_CPUS;
    use std::sync::mpsc::channel;

    /// Waits for `rounds` broadcasts, each after arming under the mutex.
    fn wait_for(
        broadcaster: &Broadcaster,
        cond: &MutexCond,
        key: usize,
        rounds: usize,
        mut ready: impl FnMut() -> bool,
    ) {
        for _ in 0..rounds {
            cond.wait_until(|| {
                let is_ready = ready();
                if !is_ready {
                    broadcaster.arm(key);
                }
                is_ready
            });
        }
    }

    #[test]
    fn an_event_wakes_the_waiter() {
        let broadcaster = Arc::new(Broadcaster::start().unwrap());
        let (object, cond) = (Arc::new(FdWaitObject::new(true).unwrap()), Arc::new(MutexCond::default()));
        let key = broadcaster.join(cond.clone(), object.descriptor(), None).unwrap();
        let (said, heard) = channel::<()>();
        let (began, begin) = channel::<()>();
        let waiter = {
            let (broadcaster, object, cond) = (broadcaster.clone(), object.clone(), cond.clone());
            std::thread::spawn(move || {
                for _ in 0..200 {
                    began.send(()).unwrap();
                    wait_for(&broadcaster, &cond, key, 1, || {
                        let came = heard.try_recv().is_ok();
                        if came {
                            object.drain();
                        }
                        came
                    });
                }
            })
        };
        for _ in 0..200 {
            begin.recv().unwrap();
            said.send(()).unwrap();
            object.signal();
        }
        waiter.join().unwrap();
        broadcaster.leave(key);
    }

    #[test]
    fn an_event_from_before_the_arming_is_broadcast() {
        let broadcaster = Broadcaster::start().unwrap();
        let (object, cond) = (FdWaitObject::new(true).unwrap(), Arc::new(MutexCond::default()));
        object.signal();
        let key = broadcaster.join(cond.clone(), object.descriptor(), None).unwrap();
        // The descriptor stays readable, so that every arming leads to a broadcast.
        let mut asked = 0;
        wait_for(&broadcaster, &cond, key, 1, || {
            asked += 1;
            asked > 20
        });
        broadcaster.leave(key);
    }

    #[test]
    fn the_broadcaster_takes_calls_while_it_waits_for_a_mutex() {
        let broadcaster = Broadcaster::start().unwrap();
        let (object, cond) = (FdWaitObject::new(true).unwrap(), Arc::new(MutexCond::default()));
        let key = broadcaster.join(cond.clone(), object.descriptor(), None).unwrap();
        cond.with(|| {
            object.signal();
            // With the mutex held, the calls of the application return.
            for _ in 0..1000 {
                broadcaster.arm(key);
                let other = FdWaitObject::new(true).unwrap();
                let key = broadcaster.join(Arc::default(), other.descriptor(), None).unwrap();
                broadcaster.leave(key);
            }
        });
        broadcaster.leave(key);
    }

    /// Runs `life` in a thread; false if it does not end.
    fn ends(life: impl FnOnce() + Send + 'static) -> bool {
        let (ended, end) = channel();
        std::thread::spawn(move || {
            life();
            ended.send(()).unwrap_or_default();
        });
        end.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[test]
    fn a_held_mutex_delays_no_broadcast_of_another_member() {
        assert!(ends(|| {
            let broadcaster = Broadcaster::start().unwrap();
            let (held, other) = (FdWaitObject::new(true).unwrap(), FdWaitObject::new(true).unwrap());
            let (held_cond, other_cond) = (Arc::new(MutexCond::default()), Arc::new(MutexCond::default()));
            let held_key = broadcaster.join(held_cond.clone(), held.descriptor(), None).unwrap();
            let other_key = broadcaster.join(other_cond.clone(), other.descriptor(), None).unwrap();
            // Its descriptor stays readable, so that every arming leads to a broadcast.
            let mut armed = 0;
            let mut several = || {
                armed += 1;
                armed > 10
            };
            let mut held_up = false;
            held_cond.wait_until(|| {
                if !held_up {
                    held.signal();
                    other.signal();
                    wait_for(&broadcaster, &other_cond, other_key, 1, &mut several);
                }
                // The second call shows that the first member's broadcast was not lost.
                core::mem::replace(&mut held_up, true)
            });
            broadcaster.leave(held_key);
            broadcaster.leave(other_key);
        }));
    }

    #[test]
    fn a_member_leaves_and_the_thread_ends_while_its_mutex_is_held() {
        assert!(ends(|| {
            for _ in 0..100 {
                let broadcaster = Broadcaster::start().unwrap();
                let (object, cond) = (FdWaitObject::new(true).unwrap(), Arc::new(MutexCond::default()));
                let key = broadcaster.join(cond.clone(), object.descriptor(), None).unwrap();
                cond.with(|| {
                    object.signal();
                    broadcaster.leave(key);
                    drop(broadcaster);
                });
            }
        }));
    }

    #[test]
    fn the_thread_runs_where_its_members_say() {
        let broadcaster = Broadcaster::start().unwrap();
        let thread = broadcaster.thread.as_ref().unwrap();
        let all = thread.cpus();
        let first = all.first().unwrap();
        let [object, other, absent] = core::array::from_fn(|_| FdWaitObject::new(true).unwrap());
        let key = broadcaster.join(Arc::default(), object.descriptor(), Some(first)).unwrap();
        let mut one = Cpus::none();
        one.add(first);
        assert_eq!(thread.cpus(), one);
        // A CPU that does not exist is ignored, whether its number is too large for a set or not.
        let nowhere = broadcaster.join(Arc::default(), other.descriptor(), Some(usize::MAX)).unwrap();
        assert_eq!(thread.cpus(), one);
        let absent = broadcaster.join(Arc::default(), absent.descriptor(), Some(MOST_CPUS - 1)).unwrap();
        assert_eq!(thread.cpus(), one);
        broadcaster.leave(key);
        assert_eq!(thread.cpus(), all);
        broadcaster.leave(nowhere);
        broadcaster.leave(absent);
        // The thread broadcasts on any CPU.
        let object = FdWaitObject::new(true).unwrap();
        let cond = Arc::new(MutexCond::default());
        let key = broadcaster.join(cond.clone(), object.descriptor(), Some(first)).unwrap();
        object.signal();
        let mut armed = 0;
        wait_for(&broadcaster, &cond, key, 1, || {
            armed += 1;
            armed > 1
        });
        broadcaster.leave(key);
    }
}
