//! The thread that sends what the endpoints of a domain without FI_PROGRESS_AUTO hold back, if the
//! application makes no call that does.

use ofi_engine::Backstop;
use ofi_os::thread::{self, Thread};
use std::sync::{Arc, Mutex, PoisonError};

/// A domain's backstop. Its thread starts when an endpoint first holds something back, and ends on
/// drop.
#[derive(Debug)]
pub struct BackstopThread {
    backstop: Arc<Backstop>,
    thread: Arc<Mutex<Option<Thread>>>,
}

impl Default for BackstopThread {
    fn default() -> Self {
        let thread = Arc::new(Mutex::new(None));
        let place = thread.clone();
        let start = move |backstop: Arc<Backstop>| {
            let thread = thread::spawn(c"ofi-backstop", move || backstop.run());
            let started = thread.is_ok();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
            started
        };
        Self { backstop: Backstop::new(Box::new(start)), thread }
    }
}

impl BackstopThread {
    /// What the domain's endpoints tell what they hold.
    pub const fn backstop(&self) -> &Arc<Backstop> {
        &self.backstop
    }
}

impl Drop for BackstopThread {
    fn drop(&mut self) {
        self.backstop.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
