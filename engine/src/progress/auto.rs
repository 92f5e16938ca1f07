//! Progress without calls (FI_PROGRESS_AUTO, fi_domain(3)): what a domain's thread does. It sleeps on a port and is woken by
//! its endpoints' descriptors, by what is due, and by whoever posts something that a call could not finish.

use crate::progress::set::{Pollable, ProgressSet};
use crate::progress::wait::{ringer, write};
use crate::transport::Flush;
use core::fmt;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_sync::doorbell::{Bed, Doorbell};
use ofi_sync::lock::Park;
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The progress of a domain.
pub struct Auto {
    group: ProgressSet<Park>,
    wait_object: Arc<dyn WaitObject>,
    bell: Arc<Doorbell>,
    stopping: AtomicBool,
    /// What the thread is to call before it sleeps, for whoever may not make those calls where the reason arises.
    deferred_callbacks: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl fmt::Debug for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auto").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Auto {
    /// The progress of a domain without endpoints, over a port that can sleep.
    pub fn new(port: Arc<dyn WaitObject>) -> Self {
        let bell = Arc::new(Doorbell::new());
        Self {
            group: ProgressSet::with_waker(Park, port.clone(), ringer(&bell, port.clone())),
            wait_object: port,
            bell,
            stopping: AtomicBool::new(false),
            deferred_callbacks: Mutex::default(),
        }
    }

    /// The thread's life: returns after [`Self::stop`].
    pub fn run(&self) {
        let mut keys = Vec::new();
        // Acquire pairs with the Release in `stop`.
        while !self.stopping.load(Ordering::Acquire) {
            self.run_deferred_callbacks();
            if self.group.progress() {
                continue;
            }
            self.group.flush(Flush::All);
            let _sleeper = self.group.sleeper();
            if self.group.before_sleep() {
                continue;
            }
            if !self.bell.arm(Bed::Shared, || self.wait_object.drain()) {
                // Nobody else knows the port.
                continue;
            }
            // What came before the bell was armed is found here; what comes later rings it.
            if self.group.last_look() || self.has_deferred_callbacks() || self.stopping.load(Ordering::Acquire) {
                self.bell.disarm(Bed::Shared);
                continue;
            }
            let now = self.wait_object.now();
            let timeout = self.group.next_deadline().map(|when| when.since(now));
            self.group.sleep(timeout, &mut keys);
            self.bell.disarm(Bed::Shared);
        }
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

    /// Has the thread call `errand` soon.
    pub fn send(&self, errand: Arc<dyn Fn() + Send + Sync>) {
        self.deferred_callbacks.lock().unwrap_or_else(PoisonError::into_inner).push(errand);
        self.ring();
    }

    fn has_deferred_callbacks(&self) -> bool {
        !self.deferred_callbacks.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn run_deferred_callbacks(&self) {
        let errands = core::mem::take(&mut *self.deferred_callbacks.lock().unwrap_or_else(PoisonError::into_inner));
        for errand in errands {
            errand();
        }
    }

    /// Moves an endpoint on from now on.
    pub fn join(&self, member: Arc<dyn Pollable>) -> Result<usize> {
        let key = self.group.join(member)?;
        self.ring();
        Ok(key)
    }

    /// Leaves an endpoint alone from now on.
    pub fn leave(&self, key: usize) {
        self.group.leave(key);
    }
}
