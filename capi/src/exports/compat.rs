//! Entry points for callers linked against older layouts (versions FABRIC_1.0 to FABRIC_1.8). They
//! copy the hints into current structures, each structure only up to its size in that version.
//! Results are current structures; such callers read only a prefix of each.

use crate::convert::layouts::{V1_0, V1_1, V1_2, V1_3, V1_7, V1_8, with_current};
use crate::exports::getinfo;
use crate::ffi::ptr::widen;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{fi_fabric_attr, fi_info, fid_fabric};
use ofi_core::{Errno, Version};

macro_rules! versions {
    ($($getinfo:ident $dupinfo:ident $layout:ident;)*) => {$(
        /// fi_getinfo(3) as of that version.
        pub(crate) unsafe extern "C" fn $getinfo(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const fi_info,
            info: *mut *mut fi_info,
        ) -> c_int {
            let call = |hints| {
                // SAFETY: the arguments are those of this function, the hints are current.
                unsafe { getinfo::fi_getinfo(version, node, service, flags, hints, info) }
            };
            // SAFETY: a caller of that version passes hints in its layout.
            unsafe { with_current(hints, $layout, call) }
        }

        /// fi_dupinfo(3) as of that version.
        pub(crate) unsafe extern "C" fn $dupinfo(info: *const fi_info) -> *mut fi_info {
            let copy = |info| {
                // SAFETY: the info is current.
                unsafe { getinfo::fi_dupinfo(info) }
            };
            // SAFETY: a caller of that version passes an info in its layout.
            unsafe { with_current(info, $layout, copy) }
        }
    )*};
}

versions! {
    getinfo_1_0 dupinfo_1_0 V1_0;
    getinfo_1_1 dupinfo_1_1 V1_1;
    getinfo_1_2 dupinfo_1_2 V1_2;
    getinfo_1_3 dupinfo_1_3 V1_3;
    getinfo_1_7 dupinfo_1_7 V1_7;
    getinfo_1_8 dupinfo_1_8 V1_8;
}

/// fi_fabric(3) as of version 1.0, whose attributes have no `api_version`.
pub(crate) unsafe extern "C" fn fabric_1_0(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: a caller of that version passes attributes in its layout, or null.
    let Some(mut attr) = (unsafe { widen(attr.cast_const(), V1_0.fabric) }) else { return Errno::EINVAL.negative() };
    attr.api_version = Version::new(1, 0).0;
    // SAFETY: the arguments are those of this function, the attributes are current.
    unsafe { getinfo::fi_fabric(&mut attr, fabric, context) }
}
