//! Strings that the library returns to C and owns: those of fi_strerror(3), the buffer of
//! fi_tostr(3), and each thread's last provider error text.

use core::cell::RefCell;
use core::ffi::c_char;
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

/// Both locks, held across fork(2).
pub(crate) struct Held {
    _texts: MutexGuard<'static, Texts>,
    _buffer: MutexGuard<'static, Shared>,
}

pub(crate) fn hold() -> Held {
    Held { _texts: texts(), _buffer: buffer() }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A text as a C string, valid until this thread's next call of this function.
pub(crate) fn keep(text: String) -> *const c_char {
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        *last = CString::new(text).unwrap_or_default();
        last.as_ptr()
    })
}
