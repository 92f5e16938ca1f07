//! Parameters that are defined, and the values that were given out.

use ofi_core::param::ParamKind;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A parameter of this library, or one that a provider defined.
pub(crate) struct Defined {
    /// As in the environment.
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) help: String,
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
        }));
    }
    list
}

/// Every value that a parameter ever had, by name and value.
pub(crate) type Values = BTreeMap<(String, String), CString>;

/// The values.
pub(crate) fn values() -> MutexGuard<'static, Values> {
    static VALUES: Mutex<Values> = Mutex::new(BTreeMap::new());
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both locks.
pub(crate) struct Held {
    _defined: MutexGuard<'static, Vec<Defined>>,
    _values: MutexGuard<'static, Values>,
}

/// Takes both locks.
pub(crate) fn hold() -> Held {
    Held { _defined: defined(), _values: values() }
}
