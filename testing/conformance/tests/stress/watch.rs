//! Ends the process with a description of the pending operations when nothing completes or a thread
//! fails.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum time without a completion.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Describe = Box<dyn Fn() -> String + Send>;

/// Describes the pending operations, for the message of a failure.
pub(crate) struct Watch {
    seed: Mutex<u64>,
    completions: Mutex<usize>,
    describe: Mutex<Describe>,
}

impl Watch {
    /// Ends the process if nothing completes for long. Drop the sender to end the watch.
    pub(crate) fn start(name: &'static str) -> (Arc<Self>, Sender<()>) {
        let describe: Describe = Box::new(String::new);
        let watch = Self { seed: Mutex::default(), completions: Mutex::default(), describe: Mutex::new(describe) };
        let watch = Arc::new(watch);
        let (end, ended) = mpsc::channel();
        let watched = watch.clone();
        std::thread::spawn(move || {
            let mut before = watched.completions();
            while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let now = watched.completions();
                if now == before {
                    eprintln!("{name}: nothing completes for {PATIENCE:?}");
                    watched.abort(name);
                }
                before = now;
            }
        });
        (watch, end)
    }

    pub(crate) fn completions(&self) -> usize {
        *self.completions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, completions: usize) {
        *self.completions.lock().unwrap_or_else(PoisonError::into_inner) += completions;
    }

    pub(crate) fn look_at(&self, seed: u64, describe: Describe) {
        *self.seed.lock().unwrap_or_else(PoisonError::into_inner) = seed;
        *self.describe.lock().unwrap_or_else(PoisonError::into_inner) = describe;
    }

    /// Ends the process at once, because the other threads would wait for the failed one.
    pub(crate) fn abort(self: &Arc<Self>, name: &str) -> ! {
        let seed = *self.seed.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!(
            "OFI_STRESS_SEED={seed} cargo test -p ofi-conformance --test stress -- {name} begins with this world"
        );
        // The failed thread may hold an endpoint's lock; then the endpoint cannot be described.
        let (done, is_done) = mpsc::channel();
        let watch = self.clone();
        std::thread::spawn(move || {
            eprintln!("{}", (watch.describe.lock().unwrap_or_else(PoisonError::into_inner))());
            done.send(())
        });
        if is_done.recv_timeout(Duration::from_secs(5)).is_err() {
            eprintln!("an endpoint cannot be described: its lock is held");
        }
        std::process::abort()
    }
}
