//! What objects answer that a process inherited from the one that forked it: they are their parent's, whose sockets,
//! shared memory and locks are not to be touched here. Every call answers -FI_EOPBADSTATE at once, and closing succeeds.

use crate::abi::{
    Absent, fi_ops, fi_ops_atomic, fi_ops_av, fi_ops_cm, fi_ops_cntr, fi_ops_collective, fi_ops_cq, fi_ops_domain,
    fi_ops_ep, fi_ops_eq, fi_ops_fabric, fi_ops_mr, fi_ops_msg, fi_ops_poll, fi_ops_rma, fi_ops_tagged, fi_ops_wait,
    fid, fid_av, fid_cntr, fid_cq,
};
use crate::enosys;
use crate::ffi::ptr::put_text;
use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use ofi_core::Errno;

const BAD_STATE: c_int = Errno::EOPBADSTATE.negative();

/// Any slot: the value is in the register of an `int` and of an `ssize_t` alike.
unsafe extern "C" fn answer() -> isize {
    BAD_STATE as isize
}

/// Slots of the longest table.
const SLOTS: usize = 24;

/// A table of functions of any kind. C alone calls through it.
#[repr(C)]
pub(crate) struct Table {
    size: usize,
    slots: [Absent; SLOTS],
}

impl Table {
    const fn new() -> Self {
        Self { size: size_of::<Self>(), slots: [answer; SLOTS] }
    }

    /// With another function at an offset in bytes.
    const fn with(mut self, offset: usize, function: Absent) -> Self {
        self.slots[offset / size_of::<Absent>() - 1] = function;
        self
    }
}

/// A kind of table.
pub(crate) trait Operations: Sized + 'static {
    /// What stands in its place.
    const DEAD: &'static Table = &ANSWERS;
}

/// The table that takes the place of one of that kind.
pub(crate) fn table<T: Operations>() -> *const T {
    const { assert!(size_of::<T>() <= size_of::<Table>()) };
    core::ptr::from_ref(T::DEAD).cast()
}

static ANSWERS: Table = Table::new();

macro_rules! answers {
    ($($kind:ty)*) => {$(
        impl Operations for $kind {}
    )*};
}

answers! {
    fi_ops_fabric fi_ops_domain fi_ops_mr fi_ops_ep fi_ops_cm fi_ops_msg fi_ops_tagged fi_ops_rma fi_ops_atomic
    fi_ops_collective fi_ops_wait fi_ops_poll
}

/// A function for a slot, whatever its arguments and result: C calls it as what the slot is.
macro_rules! slot {
    ($function:expr, $kind:ty) => {{
        let function: $kind = $function;
        // SAFETY: pointers to functions are alike; Rust never calls this one as another kind.
        unsafe { core::mem::transmute::<$kind, Absent>(function) }
    }};
}

type StrError = unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char;
type StrAddr = unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char;
type Count = unsafe extern "C" fn(*mut fid_cntr) -> u64;

impl Operations for fi_ops_cq {
    const DEAD: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_cq, strerror), slot!(strerror, StrError));
        &TABLE
    };
}

impl Operations for fi_ops_eq {
    const DEAD: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_eq, strerror), slot!(strerror, StrError));
        &TABLE
    };
}

impl Operations for fi_ops_av {
    const DEAD: &'static Table = {
        static TABLE: Table = Table::new().with(offset_of!(fi_ops_av, straddr), slot!(straddr, StrAddr));
        &TABLE
    };
}

impl Operations for fi_ops_cntr {
    const DEAD: &'static Table = {
        static TABLE: Table = Table::new()
            .with(offset_of!(fi_ops_cntr, read), slot!(count, Count))
            .with(offset_of!(fi_ops_cntr, readerr), slot!(count, Count));
        &TABLE
    };
}

/// The general operations of every such object.
pub(crate) static FID_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close,
    bind,
    control,
    ops_open: enosys::ops_open,
    tostr: enosys::tostr,
    ops_set: enosys::ops_set,
};

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

const TEXT: &core::ffi::CStr = c"the object is that of the process that this one was forked from";

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

/// A number has no room for an error.
unsafe extern "C" fn count(_: *mut fid_cntr) -> u64 {
    0
}
