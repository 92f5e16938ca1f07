//! Closing of endpoints, which may wait for peers, apart from the threads of executors.

use core::future::{Future, poll_fn};
use core::task::{Poll, Waker};
use ofi_os::thread;
use std::sync::{Arc, Mutex, PoisonError};

/// Drops a value whose drop may block: in a tokio runtime in one of its threads for blocking work,
/// for which the end of the runtime waits, and elsewhere at once.
pub(crate) fn drop_apart<T: Send + 'static>(value: T) {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        // A runtime that is shutting down drops it here.
        drop(runtime.spawn_blocking(move || drop(value)));
        return;
    }
    drop(value);
}

#[derive(Default)]
struct Wait {
    over: bool,
    waker: Option<Waker>,
}

/// Reports its own drop.
#[derive(Default)]
struct Over(Arc<Mutex<Wait>>);

impl Drop for Over {
    fn drop(&mut self) {
        let waker = {
            let mut wait = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            wait.over = true;
            wait.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Drops a value whose drop may block in a thread that exists for that only; a future of its end.
/// Without room for a thread it drops the value at once.
pub(crate) fn dropped<T: Send + 'static>(value: T) -> impl Future<Output = ()> + Send {
    let over = Over::default();
    let wait = over.0.clone();
    // In this order, also if the thread cannot start.
    let both = (value, over);
    let _without_thread = thread::spawn(c"ofi-close", move || drop(both));
    poll_fn(move |context| {
        let mut wait = wait.lock().unwrap_or_else(PoisonError::into_inner);
        if wait.over {
            return Poll::Ready(());
        }
        let replaced = wait.waker.replace(context.waker().clone());
        drop(wait);
        drop(replaced);
        Poll::Pending
    })
}
