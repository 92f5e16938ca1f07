//! The reactors that drive a pump.

#[cfg(feature = "async-io")]
use crate::inline;
use core::fmt;
#[cfg(feature = "async-io")]
use std::sync::Arc;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use std::sync::{Mutex, PoisonError};

/// The reactors that drive a pump; they stop when this is dropped.
#[derive(Default)]
pub(crate) struct Drivers {
    #[cfg(feature = "tokio")]
    pub(crate) tokio: Mutex<Vec<(::tokio::runtime::Id, ::tokio::task::AbortHandle)>>,
    #[cfg(feature = "async-io")]
    pub(crate) async_io: Mutex<Option<Arc<inline::Task>>>,
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        #[cfg(feature = "tokio")]
        for (_, task) in self.tokio.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        #[cfg(feature = "async-io")]
        if let Some(task) = self.async_io.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            task.stop();
        }
    }
}
