//! The thread that sends what the endpoints of a domain without FI_PROGRESS_AUTO hold back, if the
//! application makes no call that does.

use ofi_engine::Backstop;
use ofi_os::thread::{self, Thread};
use ofi_os::{clock, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long the end of the process waits for what is held, at most.
const LAST: Duration = Duration::from_secs(1);
/// Between two looks at whether it has left.
const PAUSE: Duration = Duration::from_micros(100);

/// The backstops whose threads have started.
static STARTED: Mutex<Started> = Mutex::new(Started { backstops: Vec::new(), waits_at_exit: false });

#[derive(Debug)]
struct Started {
    /// Each with its process: a forked child has no threads of its parent.
    backstops: Vec<(u32, Weak<Backstop>)>,
    /// The end of the process calls [`send_held`].
    waits_at_exit: bool,
}

impl Started {
    fn add(&mut self, backstop: Weak<Backstop>) {
        self.backstops.retain(|(_, backstop)| backstop.strong_count() > 0);
        self.backstops.push((std::process::id(), backstop));
        // As late as possible, so that it runs before the program destroys its static objects, into
        // which messages may be received. If there is no room to remember it, the next one tries.
        self.waits_at_exit = self.waits_at_exit || exit::at_exit(send_held).is_ok();
    }
}

/// The lock of the list, held while the process forks.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, Started>);

/// Takes the lock.
pub(crate) fn hold() -> Held {
    Held(STARTED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// At the end of the process: has the backstops send what endpoints hold, and waits until it has
/// left or a second is over. Waits for no lock and allocates nothing, since the handler of a signal
/// may have ended the process within any call.
extern "C" fn send_held() {
    let (this, end) = (std::process::id(), clock::now() + LAST);
    let any = || {
        let Ok(started) = STARTED.try_lock() else { return true };
        let mine = started.backstops.iter().filter(|(process, _)| *process == this);
        // Each of them: a domain that is stuck keeps no other one from sending.
        mine.filter_map(|(_, backstop)| backstop.upgrade()).fold(false, |any, backstop| backstop.hurry() | any)
    };
    while any() && clock::now() < end {
        #[allow(clippy::disallowed_methods, reason = "a condition has a lock, which the thread may have had")]
        std::thread::sleep(PAUSE);
    }
}

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
            let weak = Arc::downgrade(&backstop);
            let thread = thread::spawn(c"ofi-backstop", move || backstop.run());
            let is_running = thread.is_ok();
            if is_running {
                STARTED.lock().unwrap_or_else(PoisonError::into_inner).add(weak);
            }
            *place.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
            is_running
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
