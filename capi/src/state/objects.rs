//! Registry of the objects that C holds, so that a forked child can disable those that it
//! inherited.

use ofi_abi::fid;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Type-erased operations on an object.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Replaces its tables by those of an inherited object.
    pub(crate) disable: unsafe fn(*mut fid),
    /// Frees its memory without dropping its fields.
    pub(crate) discard: unsafe fn(*mut fid),
    /// Address of its original table.
    pub(crate) ops: usize,
}

pub(crate) type Objects = BTreeMap<usize, Kind>;

/// The objects that C holds, by address.
static OBJECTS: Mutex<Objects> = Mutex::new(BTreeMap::new());

pub(crate) fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers an object that is handed to C.
pub(crate) fn enter(object: *mut fid, kind: Kind) {
    objects().insert(object.expose_provenance(), kind);
}

/// Removes an object that is taken back from C.
pub(crate) fn leave(object: *mut fid) {
    objects().remove(&object.addr());
}

/// Whether an object was handed to C with the table at this address, even if its table was
/// replaced.
pub(crate) fn was_made_with(object: *mut fid, ops: usize) -> bool {
    objects().get(&object.addr()).is_some_and(|kind| kind.ops == ops)
}

/// Frees an inherited object's memory without dropping its fields: its resources are the parent's.
/// False if there is no such object.
///
/// # Safety
/// The caller does not use the object again.
pub(crate) unsafe fn discard(object: *mut fid) -> bool {
    let kind = objects().remove(&object.addr());
    if let Some(kind) = kind {
        // SAFETY: the object was registered with that kind; the rest is this function's contract.
        unsafe { (kind.discard)(object) };
    }
    kind.is_some()
}
