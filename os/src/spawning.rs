//! For tests of this crate: a process that is being started has all descriptors of this one for a moment, so what is closed
//! here is not gone yet. Tests that start processes and tests that look at what closing does take turns.

use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Starts a process, while no test looks at what closing does.
pub(crate) fn start(command: &mut Command) -> Child {
    let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().expect("the program is there")
}

/// Nobody starts processes while this is held.
pub(crate) fn pause() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}
