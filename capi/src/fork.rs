//! Support for fork(2). A child inherits objects whose locks other threads of the parent may have
//! held, and whose sockets and shared memory are the parent's. So `state::objects` lists every
//! object, and in a child each gets the tables of [`inherited`](crate::ffi::inherited), whose calls
//! fail. Objects that the child opens work. None of this is on the data path.
//!
//! The library's own locks are held across the fork, so that the child finds what they guard
//! consistent. Lock order: that of [`prepare`] holds everywhere; the reserve's lock comes last,
//! since holders of all others may allocate.

use crate::reserve;
use crate::reserve::this_thread;
use crate::state::{self, objects, open_objects, params, texts};
use core::ffi::c_int;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Errno, Error};
use ofi_memory::rmw;
use ofi_os::{descriptor, shortage};
use ofi_sync::primitive::{AtomicBool, AtomicUsize, Ordering};
use std::sync::MutexGuard;

unsafe extern "C" {
    fn pthread_atfork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
}

/// Whether the handlers are registered.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers at the first use of the library: every call that takes a lock of [`Held`]
/// calls this first. A concurrent fork may miss them.
///
/// Uses no lock, because a fork could copy it while it is held. Concurrent first calls may all
/// register, as may the child of a process that was registering; the handlers still do their work
/// once.
///
/// # Errors
/// ENOMEM if there is no memory to remember the handlers.
pub(crate) fn watch() -> Result<(), Errno> {
    // Relaxed: it protects nothing, and registering again is harmless.
    if WATCHED.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the library is never unloaded, so the functions stay.
    let code = unsafe { pthread_atfork(prepare, after_fork_in_parent, after_fork_in_child) };
    if code != 0 {
        return Err(Errno::ENOMEM);
    }
    WATCHED.store(true, Ordering::Relaxed);
    Ok(())
}

/// [`watch`] for calls that cannot fail: logs the error; the next call tries again.
pub(crate) fn try_watch() {
    if let Err(errno) = watch() {
        log::log("", Level::Warn, Subsystem::Core, || {
            Error::new(errno, "register fork handlers (pthread_atfork)").to_string()
        });
    }
}

/// All global locks, that is, those that belong to no object.
struct Held {
    objects: MutexGuard<'static, objects::Objects>,
    listed: open_objects::Held,
    _reports: ofi_engine::HeldReports,
    descriptors: descriptor::Held,
    loader: ofi_loader::Held,
    _providers: ofi_registry::Held,
    _texts: texts::Held,
    _params: params::Held,
    _log: state::log::Held,
    _shortage: shortage::Held,
    _atomics: rmw::Held,
    _reserve: reserve::Held,
}

/// The forking thread from [`prepare`] to [`after_fork_in_parent`] or [`after_fork_in_child`]; 0
/// otherwise.
static FORKER: AtomicUsize = AtomicUsize::new(0);

/// Whether this thread is forking. Only the thread itself sets this, while it holds the locks.
fn is_forker() -> bool {
    // Relaxed: a thread finds its own id only if it wrote it; the forked copy keeps its id in the
    // child.
    FORKER.load(Ordering::Relaxed) == this_thread()
}

/// The locks of the [`FORKER`]; no other thread accesses this.
static mut HELD: Option<Held> = None;

fn held() -> *mut Option<Held> {
    &raw mut HELD
}

extern "C" fn prepare() {
    if is_forker() {
        return;
    }
    // Complete one-time initialization, so that the child does not inherit a partial one.
    state::log::settle();
    let held = Held {
        objects: objects::objects(),
        listed: open_objects::hold(),
        _reports: ofi_engine::hold_reports(),
        descriptors: descriptor::hold(),
        loader: ofi_loader::hold(),
        _providers: ofi_registry::hold(),
        _texts: texts::hold(),
        _params: params::hold(),
        _log: state::log::hold(),
        _shortage: shortage::hold(),
        _atomics: rmw::hold(),
        _reserve: reserve::hold(),
    };
    // SAFETY: this thread holds the first lock, so no other is here; the slot is empty.
    unsafe { self::held().write(Some(held)) };
    FORKER.store(this_thread(), Ordering::Relaxed);
}

/// Takes the locks out, if this thread still holds them.
fn release() -> Option<Held> {
    if !is_forker() {
        return None;
    }
    FORKER.store(0, Ordering::Relaxed);
    // SAFETY: this thread forks, or is the copy of the one that did, so it holds the first lock.
    unsafe { held().replace(None) }
}

extern "C" fn after_fork_in_parent() {
    drop(release());
}

/// In the child: restricted to async-signal-safe operations, so it neither allocates nor frees
/// memory, and waits for no lock.
extern "C" fn after_fork_in_child() {
    let Some(mut held) = release() else { return };
    for (address, kind) in held.objects.iter() {
        // SAFETY: a listed object is open and of that kind, and the child has no other threads.
        unsafe { (kind.disable)(core::ptr::with_exposed_provenance_mut(*address)) };
    }
    held.listed.forget_all();
    held.loader.restart();
    held.descriptors.close_copies();
}
