//! Entry points for callers linked against older layouts (versions FABRIC_1.0 to FABRIC_1.8). They
//! copy the hints into current structures, each structure only up to its size in that version.
//! Results are current structures; such callers read only a prefix of each.

use crate::exports::getinfo;
use crate::ffi::ptr::widen;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr, fid_fabric};
use ofi_core::{Errno, Version};

/// Sizes in bytes of the structures in one version of the layout.
#[derive(Clone, Copy)]
struct Layout {
    info: usize,
    domain: usize,
    ep: usize,
    tx: usize,
    /// Bytes of fi_fabric_attr without the padding at its end.
    fabric: usize,
}

const V1_0: Layout = Layout { info: 112, domain: 120, ep: 80, tx: 72, fabric: 28 };
const V1_1: Layout = Layout { info: 112, domain: 184, ep: 96, tx: 72, fabric: 32 };
const V1_2: Layout = Layout { info: 120, ..V1_1 };
const V1_3: Layout = Layout { domain: 192, tx: 80, ..V1_2 };
const V1_7: Layout = Layout { domain: 200, ..V1_3 };
const V1_8: Layout = Layout { domain: 208, ..V1_7 };

/// Calls `with` with a current copy of an older info: its attribute structures are widened, its
/// other members are the caller's.
///
/// # Safety
/// `info` is null or valid in that layout.
unsafe fn with_current<R>(info: *const fi_info, layout: Layout, with: impl FnOnce(*const fi_info) -> R) -> R {
    // SAFETY: null or valid in that layout; pointers and numbers may be zero.
    let Some(mut view) = (unsafe { widen(info, layout.info) }) else { return with(core::ptr::null()) };
    // SAFETY: as above.
    let mut tx: Option<fi_tx_attr> = unsafe { widen(view.tx_attr, layout.tx) };
    // SAFETY: as above; this structure never changed.
    let mut rx: Option<fi_rx_attr> = unsafe { widen(view.rx_attr, size_of::<fi_rx_attr>()) };
    // SAFETY: as above.
    let mut ep: Option<fi_ep_attr> = unsafe { widen(view.ep_attr, layout.ep) };
    // SAFETY: as above.
    let mut domain: Option<fi_domain_attr> = unsafe { widen(view.domain_attr, layout.domain) };
    // SAFETY: as above.
    let mut fabric: Option<fi_fabric_attr> = unsafe { widen(view.fabric_attr, layout.fabric) };
    fn place<T>(part: &mut Option<T>) -> *mut T {
        part.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut)
    }
    view.next = core::ptr::null_mut();
    view.tx_attr = place(&mut tx);
    view.rx_attr = place(&mut rx);
    view.ep_attr = place(&mut ep);
    view.domain_attr = place(&mut domain);
    view.fabric_attr = place(&mut fabric);
    with(&view)
}

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
