//! Life with fork(2). A child inherits objects whose locks other threads of its parent may have held, and whose sockets and
//! shared memory are its parent's. So every object is known here, and in a child each gets the tables of [`inherited`]; what
//! is opened there anew works. Nothing of this is on the path of a message.
//!
//! While the process is forked the library's own locks are held, so that the child finds what they guard whole. Their order:
//! those taken first in [`prepare`] are taken first everywhere; the reserve's comes last, since all of them may allocate.

use crate::reserve;
use crate::reserve::this_thread;
use crate::state::{self, objects, open_objects, params, texts};
use core::ffi::c_int;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Errno, Error};
use ofi_os::{descriptor, shortage};
use ofi_sync::primitive::{AtomicBool, AtomicUsize, Ordering};
use std::sync::MutexGuard;

unsafe extern "C" {
    fn pthread_atfork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
}

/// The handlers are registered.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Registers the handlers, once the library is used at all: every call that takes one of the locks of [`Held`] begins with
/// this. A fork that is under way meanwhile may go unnoticed.
///
/// There is no lock, because a fork could copy it while it is held. Threads that call this for the first time at once
/// may all register, as may the child of a process that was registering; the handlers do their work once nevertheless.
///
/// # Errors
/// ENOMEM if there is no memory to remember the handlers.
pub(crate) fn watch() -> Result<(), Errno> {
    // Relaxed: it protects nothing, and registering again is harmless.
    if WATCHED.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the library is never unloaded, so the functions stay.
    let code = unsafe { pthread_atfork(prepare, resume, resurrect) };
    if code != 0 {
        return Err(Errno::ENOMEM);
    }
    WATCHED.store(true, Ordering::Relaxed);
    Ok(())
}

/// [`watch`] where a call has no way to fail. Its failure is logged; the next call tries again.
pub(crate) fn try_watch() {
    if let Err(errno) = watch() {
        log::log("", Level::Warn, Subsystem::Core, || Error::new(errno, "watch for forks").to_string());
    }
}

/// All locks that belong to nothing that C could close.
struct Held {
    objects: MutexGuard<'static, objects::Objects>,
    listed: open_objects::Held,
    descriptors: descriptor::Held,
    _providers: ofi_registry::Held,
    _texts: texts::Held,
    _params: params::Held,
    _log: state::log::Held,
    _shortage: shortage::Held,
    _reserve: reserve::Held,
}

/// The thread that forks: from [`prepare`] to [`resume`] or [`resurrect`], 0 otherwise.
static FORKER: AtomicUsize = AtomicUsize::new(0);

/// Whether this thread forks. Only a thread itself makes that so, and only while it holds the locks.
fn is_forker() -> bool {
    // Relaxed: a thread finds its own number only if it wrote it; a forked one has it in the child, too.
    FORKER.load(Ordering::Relaxed) == this_thread()
}

/// The locks of the thread that is [`FORKER`], which alone uses this.
static mut HELD: Option<Held> = None;

fn held() -> *mut Option<Held> {
    &raw mut HELD
}

extern "C" fn prepare() {
    if is_forker() {
        return;
    }
    // What is made once must not be half made.
    state::log::settle();
    let held = Held {
        objects: objects::objects(),
        listed: open_objects::hold(),
        descriptors: descriptor::hold(),
        _providers: ofi_registry::hold(),
        _texts: texts::hold(),
        _params: params::hold(),
        _log: state::log::hold(),
        _shortage: shortage::hold(),
        _reserve: reserve::hold(),
    };
    // SAFETY: this thread has the first lock, so nobody else is here; the place is empty.
    unsafe { self::held().write(Some(held)) };
    FORKER.store(this_thread(), Ordering::Relaxed);
}

/// The locks, if this thread has them still.
fn release() -> Option<Held> {
    if !is_forker() {
        return None;
    }
    FORKER.store(0, Ordering::Relaxed);
    // SAFETY: this thread forks, or is the copy of the one that did, so it holds the first lock.
    unsafe { held().replace(None) }
}

extern "C" fn resume() {
    drop(release());
}

/// In the child, where only what may be done in a handler of signals may be done: no memory is taken or given back, and no
/// lock is waited for.
extern "C" fn resurrect() {
    let Some(mut held) = release() else { return };
    for (address, kind) in held.objects.iter() {
        // SAFETY: what is listed is open and of that kind, and there are no other threads here.
        unsafe { (kind.bury)(core::ptr::with_exposed_provenance_mut(*address)) };
    }
    held.listed.forget_all();
    held.descriptors.close_copies();
}
