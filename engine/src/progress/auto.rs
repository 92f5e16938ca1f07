//! Automatic progress (FI_PROGRESS_AUTO, fi_domain(3)): a domain's progress thread. It sleeps on a
//! wait object and wakes for its endpoints' descriptors, for deadlines, and for posted operations
//! that leave work which no event on a descriptor announces. Endpoints that the application polls
//! are left to it.

use crate::progress::set::{Pollable, ProgressSet};
use crate::progress::wait::{ringer, write};
use crate::transport::Flush;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_sync::doorbell::{Bed, Doorbell};
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::sync::Arc;

/// Passes without a sleep after which the thread looks whether the application polls.
const PASSES: u32 = 64;

/// The progress thread of a domain.
pub struct Auto {
    progress: ProgressSet<Park>,
    wait_object: Arc<dyn WaitObject>,
    bell: Arc<Doorbell>,
    stopping: AtomicBool,
}

impl fmt::Debug for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auto").field("group", &self.progress).finish_non_exhaustive()
    }
}

impl Auto {
    /// A progress thread without endpoints, over a wait object that can sleep.
    pub fn new(wait_object: Arc<dyn WaitObject>) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            progress: ProgressSet::with_bell(Park::default(), wait_object.clone(), ringer(&bell, wait_object.clone())),
            wait_object,
            bell,
            stopping: AtomicBool::new(false),
        }
    }

    /// The thread's main loop: returns after [`Self::stop`].
    pub fn run(&self) {
        let mut keys = Vec::new();
        // Passes since the set looked whether the application polls.
        let mut passes: u32 = 0;
        // Acquire pairs with the Release in `stop`.
        while !self.stopping.load(Ordering::Acquire) {
            if passes >= PASSES {
                self.progress.rest(self.wait_object.now());
                passes = 0;
            }
            passes += 1;
            if self.progress.progress() {
                continue;
            }
            self.progress.flush(Flush::All);
            let sleeper = self.progress.sleeper();
            if self.progress.before_sleep() {
                continue;
            }
            if !self.bell.arm(Bed::Shared, || self.wait_object.drain()) {
                // Does not happen: only this thread knows the wait object, so none watches it.
                continue;
            }
            // This pass finds work from before the doorbell was armed; later work rings it.
            if self.progress.last_look() || self.stopping.load(Ordering::Acquire) {
                self.bell.disarm(Bed::Shared);
                continue;
            }
            self.progress.fall_asleep(self.wait_object.now());
            while self.sleep(&mut keys) {}
            self.bell.disarm(Bed::Shared);
            drop(sleeper);
            self.progress.rest(self.wait_object.now());
            passes = 0;
        }
    }

    /// Sleeps until something happens, or until it is time to look at the endpoints that are left
    /// to the application. True if the thread may sleep on as it is: arming all endpoints anew for
    /// each look would be dear.
    fn sleep(&self, keys: &mut Vec<u64>) -> bool {
        let now = self.wait_object.now();
        // By a timer: the timeout of epoll_wait(2) has milliseconds.
        let looks = [self.progress.next_look(), self.progress.publish_before_sleep(now)];
        self.wait_object.set_timer(looks.into_iter().flatten().min());
        let due = self.progress.next_deadline();
        let events = self.progress.sleep(due.map(|due| due.since(now)), keys);
        let now = self.wait_object.now();
        let is_due = due.is_some_and(|due| due <= now);
        !events && !is_due && !self.bell.is_rung(Bed::Shared) && self.progress.may_sleep_on(now)
    }

    fn ring(&self) {
        write(self.bell.ring(), &*self.wait_object);
    }

    /// Ends [`Self::run`].
    pub fn stop(&self) {
        // Release pairs with the Acquire in `run`.
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Adds an endpoint to the thread's progress set.
    pub fn join(&self, pollable: Arc<dyn Pollable>) -> Result<usize> {
        let key = self.progress.join(pollable)?;
        self.ring();
        Ok(key)
    }

    /// Removes an endpoint from the thread's progress set.
    pub fn leave(&self, key: usize) {
        self.progress.leave(key);
    }
}
