//! The fields that data calls use: tables, the engine's object, and default flags.

use core::ffi::c_void;
use ofi_abi::fid_ep;
use ofi_sync::primitive::AtomicU64;

/// The fields that data calls use, at the beginning of every object with data tables.
#[repr(C)]
pub(crate) struct DataPath {
    pub(crate) c: fid_ep,
    /// The engine's object, of the type that the tables are for.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
}
