//! The reactors that drive a pump.

#[cfg(feature = "async-io")]
use crate::inline;
use core::fmt;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use ofi_engine::Watcher;
#[cfg(feature = "async-io")]
use std::sync::Arc;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use std::sync::{Mutex, PoisonError};

/// The reactors that drive a pump; they stop when this is dropped.
#[derive(Default)]
pub(crate) struct Drivers {
    #[cfg(feature = "tokio")]
    pub(crate) tokio: Mutex<Vec<TokioDriver>>,
    #[cfg(feature = "async-io")]
    pub(crate) async_io: Mutex<Option<(Watcher, Arc<inline::Task>)>>,
}

/// A task of a tokio runtime that drives a pump.
#[cfg(feature = "tokio")]
pub(crate) struct TokioDriver {
    pub(crate) runtime: ::tokio::runtime::Id,
    pub(crate) watcher: Watcher,
    pub(crate) task: ::tokio::task::AbortHandle,
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        #[cfg(feature = "tokio")]
        for driver in self.tokio.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            driver.task.abort();
        }
        #[cfg(feature = "async-io")]
        if let Some((_, task)) = self.async_io.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            task.stop();
        }
    }
}
