//! Tables for objects inherited across fork(2). Their sockets, shared memory and locks are the
//! parent's and must not be touched, so every call returns -FI_EOPBADSTATE at once; closing
//! succeeds.

use crate::enosys;
use crate::ffi::ptr::put_text;
use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use ofi_abi::{
    Absent, fi_ops, fi_ops_atomic, fi_ops_av, fi_ops_av_set, fi_ops_cm, fi_ops_cntr, fi_ops_collective, fi_ops_cq,
    fi_ops_domain, fi_ops_ep, fi_ops_eq, fi_ops_fabric, fi_ops_mr, fi_ops_msg, fi_ops_poll, fi_ops_rma, fi_ops_tagged,
    fi_ops_wait, fi_profile_ops, fid, fid_av, fid_cntr, fid_cq,
};
use ofi_core::Errno;

const BAD_STATE: c_int = Errno::EOPBADSTATE.negative();

/// For any slot: `int` and `ssize_t` are returned in the same register.
unsafe extern "C" fn fail() -> isize {
    BAD_STATE as isize
}

/// Enough slots for the longest table.
const SLOTS: usize = 24;

/// A function table that can stand in for any other. Only C calls through it.
#[repr(C)]
pub(crate) struct Table {
    size: usize,
    slots: [Absent; SLOTS],
}

impl Table {
    const fn new() -> Self {
        Self { size: size_of::<Self>(), slots: [fail; SLOTS] }
    }

    /// Sets the function at an offset in bytes.
    const fn with(mut self, offset: usize, function: Absent) -> Self {
        self.slots[offset / size_of::<Absent>() - 1] = function;
        self
    }
}

/// A type of function table.
pub(crate) trait Operations: Sized + 'static {
    /// The table that replaces it.
    const INHERITED: &'static Table = &FAILING;
}

/// The table that replaces a `T` in an inherited object.
pub(crate) fn table<T: Operations>() -> *const T {
    const { assert!(size_of::<T>() <= size_of::<Table>()) };
    core::ptr::from_ref(T::INHERITED).cast()
}

static FAILING: Table = Table::new();

macro_rules! failing {
    ($($kind:ty)*) => {$(
        impl Operations for $kind {}
    )*};
}

failing! {
    fi_ops_fabric fi_ops_domain fi_ops_mr fi_ops_ep fi_ops_cm fi_ops_msg fi_ops_tagged fi_ops_rma fi_ops_atomic
    fi_ops_collective fi_ops_wait fi_ops_poll fi_profile_ops fi_ops_av_set
}

/// Erases the type of a slot's function; C calls it with the type of the slot.
macro_rules! slot {
    ($function:expr, $kind:ty) => {{
        let function: $kind = $function;
        // SAFETY: all function pointers have the same representation, and Rust never calls this
        // one.
        unsafe { core::mem::transmute::<$kind, Absent>(function) }
    }};
}

type StrError = unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
type StrAddr = unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char;
type Count = unsafe extern "C" fn(*mut fid_cntr) -> u64;

impl Operations for fi_ops_cq {
    const INHERITED: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_cq, strerror), slot!(strerror, StrError));
        &TABLE
    };
}

impl Operations for fi_ops_eq {
    const INHERITED: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_eq, strerror), slot!(strerror, StrError));
        &TABLE
    };
}

impl Operations for fi_ops_av {
    const INHERITED: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_av, straddr), slot!(straddr, StrAddr));
        &TABLE
    };
}

impl Operations for fi_ops_cntr {
    const INHERITED: &'static Table = {
        static TABLE: Table = Table::new()
            .with(offset_of!(fi_ops_cntr, read), slot!(count, Count))
            .with(offset_of!(fi_ops_cntr, readerr), slot!(count, Count));
        &TABLE
    };
}

/// General operations of every inherited object.
pub(crate) static FID_OPS: fi_ops = fi_ops { bind, control, ..enosys::fid_ops(close) };

unsafe extern "C" fn close(object: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    if unsafe { crate::state::objects::discard(object) } { 0 } else { Errno::EINVAL.negative() }
}

unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    BAD_STATE
}

unsafe extern "C" fn control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    BAD_STATE
}

const TEXT: &core::ffi::CStr = c"the object was inherited across fork and cannot be used in the child";

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    _: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: fi_cq_strerror(3) and fi_eq_strerror(3) pass `len` bytes, or null.
    unsafe { put_text(TEXT.to_str().unwrap_or_default(), buf, len) };
    TEXT.as_ptr()
}

unsafe extern "C" fn straddr(_: *mut fid_av, _: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char {
    // SAFETY: null or valid by fi_av_straddr(3).
    if let Some(len) = unsafe { len.as_mut() } {
        // SAFETY: fi_av_straddr(3) passes `*len` bytes, or null.
        unsafe { put_text("", buf, *len) };
        *len = 1;
    }
    buf
}

/// Returns 0: a counter's value has no room for an error.
unsafe extern "C" fn count(_: *mut fid_cntr) -> u64 {
    0
}
