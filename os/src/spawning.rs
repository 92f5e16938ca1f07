//! Keeps tests that start processes apart from tests that observe the effect of a close: until it
//! executes its program, a child holds copies of all descriptors, so a file closed here is still
//! open there.

use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Starts a process while no test observes the effect of a close.
pub(crate) fn start(command: &mut Command) -> Child {
    let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().expect("the program is there")
}

/// Keeps tests from starting processes while the guard is held.
pub(crate) fn pause() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}
