//! Every object that C has, so that a forked process can disable those that it inherited.

use crate::abi::fid;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What can be done to an object whose kind is not known any more.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Gives it the tables of an inherited object.
    pub(crate) bury: unsafe fn(*mut fid),
    /// Frees its own memory, and drops nothing in it.
    pub(crate) discard: unsafe fn(*mut fid),
}

pub(crate) type Objects = BTreeMap<usize, Kind>;

/// Every object that C has, by its address.
static OBJECTS: Mutex<Objects> = Mutex::new(BTreeMap::new());

pub(crate) fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object is given to C.
pub(crate) fn enter(object: *mut fid, kind: Kind) {
    objects().insert(object.expose_provenance(), kind);
}

/// An object is taken back from C.
pub(crate) fn leave(object: *mut fid) {
    objects().remove(&object.addr());
}

/// Frees an inherited object's own memory, and no more: what it owns is its parent's. False if there is no such object.
///
/// # Safety
/// The caller does not use the object again.
pub(crate) unsafe fn discard(object: *mut fid) -> bool {
    let kind = objects().remove(&object.addr());
    if let Some(kind) = kind {
        // SAFETY: the object was there and is of that kind, and this function's contract.
        unsafe { (kind.discard)(object) };
    }
    kind.is_some()
}
