//! The progress thread of a domain with FI_PROGRESS_AUTO.

use ofi_core::error::Result;
use ofi_engine::Auto;
use ofi_os::thread::{self, Thread};
use ofi_os::wait_fd::FdWaitObject;
use std::sync::Arc;

/// A domain's progress thread; ends on drop.
#[derive(Debug)]
pub struct AutoThread {
    auto: Arc<Auto>,
    thread: Option<Thread>,
}

impl AutoThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// EAGAIN or EMFILE if the system has no room for the thread or its descriptors.
    pub fn start() -> Result<Self> {
        let auto = Arc::new(Auto::new(Arc::new(FdWaitObject::new(true)?)));
        let progress = auto.clone();
        let thread = thread::spawn(c"ofi-progress", move || progress.run())?;
        Ok(Self { auto, thread: Some(thread) })
    }

    /// The thread's progress, which the domain's endpoints join.
    pub const fn progress(&self) -> &Arc<Auto> {
        &self.auto
    }
}

impl Drop for AutoThread {
    fn drop(&mut self) {
        self.auto.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
