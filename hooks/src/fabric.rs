//! The first object that hooks watch.
#![allow(unsafe_code)]

use crate::call::hook;
use crate::chosen::chosen;
use crate::copies::STUB;
use crate::stubs::stub;
use crate::tables::Owner;
use core::ptr::NonNull;
use ofi_abi::fid_fabric;
use ofi_core::Version;

/// Hooks a fabric, and with it what is opened from it, if hooks were chosen. `provider` is its name
/// and `api` the interface that it was built for.
///
/// # Safety
/// The fabric is new and not handed out. Its provider's objects are laid out as the headers say.
pub unsafe fn hook_fabric(fabric: NonNull<fid_fabric>, provider: &str, api: Version) {
    let Some(chosen) = chosen() else { return };
    STUB.get_or_init(|| stub);
    let owner = Owner::named(provider, api >= Version::new(1, 9));
    // SAFETY: this function's contract.
    unsafe { hook(chosen, owner, fabric.as_ptr().expose_provenance()) };
}
