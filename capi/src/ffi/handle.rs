//! Object handles: hands objects to C, and checks and casts the pointers that C passes back.
//!
//! An object is a `repr(C)` struct that begins with its public part. It is ours if its class and
//! its table of general operations are ours: each table is a static with its own address, so the
//! check never accepts another library's object. An interposed library may replace the table, for
//! example to count calls; then the registry of objects decides.

use crate::ffi::inherited;
use crate::state::objects;
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use ofi_abi::{fi_ops, fid};
use ofi_core::Errno;

/// A kind of object.
///
/// # Safety
/// The type is `repr(C)` and begins with a [`fid`] whose class is [`Self::CLASS`] and whose
/// operations are [`Self::OPS`], and is made by [`install`] alone.
pub(crate) unsafe trait Object {
    /// The class in the public part.
    const CLASS: usize;
    /// The table of general operations.
    const OPS: &'static fi_ops;

    /// Replaces its tables by those of an inherited object. Runs in the child's fork handler, so it
    /// must neither allocate nor lock.
    fn disable(&mut self);
}

/// The public header of a new object.
pub(crate) fn header<O: Object>(context: *mut c_void) -> fid {
    fid { fclass: O::CLASS, context, ops: ops_of::<O>() }
}

fn ops_of<O: Object>() -> *const fi_ops {
    core::ptr::from_ref(O::OPS)
}

/// Hands an object to C.
pub(crate) fn install<O: Object>(object: O) -> *mut O {
    let object = Box::into_raw(Box::new(object));
    objects::enter(
        object.cast(),
        objects::Kind { disable: disable::<O>, discard: forget::<O>, ops: ops_of::<O>().addr() },
    );
    object
}

/// The object behind a pointer from C. `EINVAL` for null and for an object of another kind or
/// library, `EOPBADSTATE` for one inherited across fork(2).
///
/// # Safety
/// `object` is null, or points to a `struct fid` of a living object, ours or another library's,
/// that stays alive for `'a` (fi_close(3) forbids calls on a closed object).
pub(crate) unsafe fn borrow<'a, O: Object>(object: *mut fid) -> core::result::Result<&'a O, Errno> {
    // SAFETY: the caller passes null or a living object.
    let header = unsafe { object.as_ref() }.ok_or(Errno::EINVAL)?;
    if header.fclass != O::CLASS || header.ops != ops_of::<O>() {
        check_replaced::<O>(object, header)?;
    }
    // SAFETY: class and table are those of `O`, and only `install` makes objects with that table;
    // or it has registered the object as one of `O`.
    Ok(unsafe { &*object.cast::<O>() })
}

/// Checks an object whose table is not that of `O`: an interposed library may have replaced it.
#[cold]
fn check_replaced<O: Object>(object: *mut fid, header: &fid) -> core::result::Result<(), Errno> {
    if is_inherited(header) {
        Err(Errno::EOPBADSTATE)
    } else if header.fclass == O::CLASS && core::ptr::eq(ofi_hooks::original(header.ops), ops_of::<O>())
        || objects::was_made_with(object, ops_of::<O>().addr())
    {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Whether an object was inherited across fork(2).
fn is_inherited(object: &fid) -> bool {
    core::ptr::eq(object.ops, &raw const inherited::FID_OPS)
}

/// # Safety
/// `object` is an object of that kind, and no other thread uses it.
unsafe fn disable<O: Object>(object: *mut fid) {
    // SAFETY: this function's contract.
    unsafe { &mut *object.cast::<O>() }.disable();
}

/// # Safety
/// `object` is an object of that kind, made by `Box::into_raw` and no longer used.
unsafe fn forget<O: Object>(object: *mut fid) {
    // SAFETY: this function's contract; the same layout, and nothing in it is dropped.
    drop(unsafe { Box::from_raw(object.cast::<ManuallyDrop<O>>()) });
}

/// The error for an object that a call does not accept: `EOPBADSTATE` if it was inherited across
/// fork(2), otherwise `EINVAL`.
///
/// # Safety
/// As for [`borrow`].
pub(crate) unsafe fn unfit(object: *mut fid) -> Errno {
    // SAFETY: this function's contract.
    let inherited = unsafe { object.as_ref() }.is_some_and(is_inherited);
    if inherited { Errno::EOPBADSTATE } else { Errno::EINVAL }
}

/// The object that C passes to a thunk. If [`borrow`] fails, the thunk returns the error number.
macro_rules! ours {
    ($kind:ty, $fid:expr $(, $wide:ty)?) => {
        // SAFETY: C passes the object that holds the thunk's table, and fi_close(3) forbids calls
        // after it.
        match unsafe { $crate::ffi::handle::borrow::<$kind>($fid) } {
            Ok(object) => object,
            Err(errno) => return errno.negative() $(as $wide)?,
        }
    };
}
pub(crate) use ours;

/// Takes an object back from C for good.
///
/// # Safety
/// As for [`borrow`], and the caller does not use the object again.
pub(crate) unsafe fn reclaim<O: Object>(object: *mut fid) -> Box<O> {
    objects::leave(object);
    // SAFETY: `install` made the object by `Box::into_raw`, and this is the only place that undoes
    // it.
    unsafe { Box::from_raw(object.cast::<O>()) }
}

/// Closes an object unless it is `busy` (fi_close(3)).
///
/// # Safety
/// As for [`borrow`], and the caller does not use the object again if it is closed.
pub(crate) unsafe fn close<O: Object>(object: *mut fid, busy: impl FnOnce(&O) -> bool) -> c_int {
    // SAFETY: this function's contract.
    match unsafe { borrow::<O>(object) } {
        Ok(found) if busy(found) => Errno::EBUSY.negative(),
        Ok(_) => {
            // SAFETY: nothing else refers to it, and fi_close(3) forbids its use from now on.
            drop(unsafe { reclaim::<O>(object) });
            0
        }
        Err(errno) => errno.negative(),
    }
}

/// Implements [`Object`] for a struct, given its class, its table of general operations, its public
/// part, and the further tables in that.
macro_rules! object {
    ($kind:ty, $class:expr, $ops:path, $header:ident $(.$fid:ident)? [$($table:ident)*]) => {
        // SAFETY: the struct is `repr(C)`, begins with its fid, and is made only by `install` with
        // `header::<Self>`.
        unsafe impl $crate::ffi::handle::Object for $kind {
            const CLASS: usize = $class;
            const OPS: &'static ofi_abi::fi_ops = &$ops;

            fn disable(&mut self) {
                self.$header$(.$fid)?.ops = &$crate::ffi::inherited::FID_OPS;
                $(self.c.$table = $crate::ffi::inherited::table();)*
            }
        }
    };
}
pub(crate) use object;
