//! Texts that the library gives out and keeps: those of fi_strerror(3), and the buffer of fi_tostr(3).

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// C strings by their text. The map only grows.
pub(crate) type Texts = BTreeMap<&'static str, CString>;

/// The texts of fi_strerror(3).
pub(crate) fn texts() -> MutexGuard<'static, Texts> {
    static TEXTS: Mutex<Texts> = Mutex::new(BTreeMap::new());
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The buffer of fi_tostr(3).
pub(crate) struct Shared(pub(crate) [u8; 8192]);

/// The buffer of fi_tostr(3).
pub(crate) fn buffer() -> MutexGuard<'static, Shared> {
    static BUFFER: Mutex<Shared> = Mutex::new(Shared([0; 8192]));
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both locks.
pub(crate) struct Held {
    _texts: MutexGuard<'static, Texts>,
    _buffer: MutexGuard<'static, Shared>,
}

/// Takes both locks.
pub(crate) fn hold() -> Held {
    Held { _texts: texts(), _buffer: buffer() }
}
