//! Defined parameters, and the value strings returned to C.

use ofi_core::param::ParamKind;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A parameter of this library, or one that a provider defined.
pub(crate) struct Defined {
    /// The environment variable.
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) help: String,
    /// The address of the provider that defined it; 0 for this library's own.
    pub(crate) owner: usize,
}

/// All parameters.
pub(crate) fn defined() -> MutexGuard<'static, Vec<Defined>> {
    static DEFINED: Mutex<Vec<Defined>> = Mutex::new(Vec::new());
    let mut list = DEFINED.lock().unwrap_or_else(PoisonError::into_inner);
    if list.is_empty() {
        list.extend(ofi_registry::params().into_iter().map(|param| Defined {
            name: param.name.to_owned(),
            kind: match param.kind {
                ParamKind::String => 0,
                ParamKind::Int => 1,
                ParamKind::Bool => 2,
                ParamKind::Size => 3,
            },
            help: param.help.to_owned(),
            owner: 0,
        }));
    }
    list
}

/// The C string of each value ever returned, by name and value. The map only grows.
pub(crate) type Values = BTreeMap<(String, String), CString>;

pub(crate) fn values() -> MutexGuard<'static, Values> {
    static VALUES: Mutex<Values> = Mutex::new(BTreeMap::new());
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both locks, held across fork(2).
pub(crate) struct Held {
    _defined: MutexGuard<'static, Vec<Defined>>,
    _values: MutexGuard<'static, Values>,
}

pub(crate) fn hold() -> Held {
    Held { _defined: defined(), _values: values() }
}
