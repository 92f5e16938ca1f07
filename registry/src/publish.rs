//! Publishes what endpoints do and wait for, for other processes of the user (`ofi dump`, `ofi
//! top`), and prints the state of endpoints that do not move.

use ofi_core::log::{Level, Subsystem, log};
use ofi_core::param::{Param, ParamKind};
use ofi_engine::Publisher;
use ofi_os::published::Board;
use std::io::Write as _;
use std::sync::{Mutex, Once};
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
    help: "Prints to standard error what the operations of an endpoint wait for, when nothing has moved on it for so \
           many seconds (default: 0, never)",
};

/// Begins to publish, unless the parameters forbid it. Later calls change nothing.
pub fn publish() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let stall = STALL.number(0);
        let state = STATE.flag(true);
        if !state && stall == 0 {
            return;
        }
        let board = Mutex::new(None);
        ofi_engine::publish(Publisher {
            publish: Box::new(move |text| {
                if state {
                    write(&board, text);
                }
            }),
            stall: (stall > 0).then(|| Duration::from_secs(stall)),
            stalled: Box::new(|report, still| {
                let seconds = still.as_secs();
                let process = std::process::id();
                // A closed standard error is no reason to fail.
                let _ = writeln!(
                    std::io::stderr().lock(),
                    "ofi: process {process}: nothing has moved for {seconds} s on\n{report}"
                );
            }),
        });
    });
}

/// Replaces the text on the board. There is one as long as there is a text; a forked child makes its
/// own.
fn write(board: &Mutex<Option<Board>>, text: Option<&str>) {
    // The engine calls this from one thread at a time; in a forked child the lock may stay taken.
    let Ok(mut board) = board.try_lock() else { return };
    let Some(text) = text else {
        *board = None;
        return;
    };
    if board.as_ref().is_none_or(|board| !board.is_own()) {
        match Board::new() {
            Ok(fresh) => *board = Some(fresh),
            Err(error) => {
                return log("core", Level::Info, Subsystem::Core, || format!("the state is not published: {error}"));
            }
        }
    }
    if let Some(Err(error)) = board.as_mut().map(|board| board.write(text)) {
        log("core", Level::Info, Subsystem::Core, || format!("the state is not published: {error}"));
    }
}
