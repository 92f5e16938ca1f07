//! Publishes what endpoints do and wait for, for other processes of the user (`ofi dump`, `ofi
//! top`), and prints the state of endpoints that do not move.

use ofi_core::Error;
use ofi_core::error::Result;
use ofi_core::param::{Param, ParamKind};
use ofi_engine::Publisher;
use ofi_engine::report::Published;
use ofi_os::published::StateFile;
use ofi_sync::primitive::real::{AtomicBool, Ordering};
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether the process publishes its state.
pub const STATE: Param = Param {
    name: "FI_OFI_STATE",
    kind: ParamKind::Bool,
    help: "Endpoints publish about once a second what they have done and what they wait for, in memory that only \
           processes of the same user can read: `ofi dump` and `ofi top` show it (default: yes)",
};

/// After how many seconds without progress a description is printed.
pub const STALL: Param = Param {
    name: "FI_OFI_STALL",
    kind: ParamKind::Int,
    help: "Prints to standard error what the operations of an endpoint wait for, receives included, when nothing has \
           moved on it for so many seconds: once for each such time (default: 0, never)",
};

/// Publishes in a file, and prints stalls.
#[derive(Debug)]
struct Process {
    /// Publish at all.
    state: bool,
    stall: Option<Duration>,
    /// There is one as long as there is a text.
    file: Mutex<Option<StateFile>>,
}

impl Publisher for Process {
    fn publish(&self, text: &str) -> Result<()> {
        if !self.state {
            return Ok(());
        }
        write(&mut self.file(), text).map_err(|error| Error::os(error, "publish the state of endpoints"))
    }

    fn retract(&self) {
        *self.file() = None;
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    fn stall(&self) -> Option<Duration> {
        self.stall
    }

    fn stalled(&self, report: &str, still: Duration) {
        let (seconds, process) = (still.as_secs(), self.process());
        for Published { provider, addr, pending, details, .. } in Published::parse(report) {
            let text = format!(
                "ofi: process {process}: nothing has moved for {seconds} s on endpoint {addr} of {provider}, \
                 with {pending} operations pending:\n{details}"
            );
            // A closed standard error is no reason to fail.
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

impl Process {
    /// The file. One thread at a time uses it.
    fn file(&self) -> MutexGuard<'_, Option<StateFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the text in the file. A forked child makes its own.
fn write(file: &mut Option<StateFile>, text: &str) -> io::Result<()> {
    let own = match file.take().filter(StateFile::is_own) {
        Some(own) => own,
        None => StateFile::new()?,
    };
    file.insert(own).write(text)
}

/// Begins to publish, unless the parameters forbid it. Later calls change nothing.
pub fn publish() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    // Relaxed: the second caller need not wait for the first.
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let (state, stall) = (STATE.flag(true), STALL.number(0));
    let stall = (stall > 0).then(|| Duration::from_secs(stall));
    if state || stall.is_some() {
        ofi_engine::publish(Box::new(Process { state, stall, file: Mutex::new(None) }));
    }
}
