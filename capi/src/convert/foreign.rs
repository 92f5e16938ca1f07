//! Copies of the infos of loaded providers: in this library's layout and memory, whatever release
//! the provider was built for.

use super::blocks::{Blocks, release};
use super::infos::{AllocResult, Infos, duplicate, string};
use super::layouts::{Layout, with_current};
use crate::ffi::ptr::text;
use core::ffi::c_char;
use ofi_abi::{FI_CLASS_NIC, fi_info};
use ofi_core::{AddrFormat, EndpointType, Version};

/// What the copy of an info says, for filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The name that its provider gives, such as the core's below a layer.
    pub(crate) prov_name: Option<String>,
    pub(crate) fabric: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) format: AddrFormat,
    pub(crate) kind: EndpointType,
}

/// An info of a provider built for interface `api`, as a node of its own.
///
/// # Safety
/// `info` is a node of the provider's, with valid parts in the layout of its release, and not null.
pub(crate) unsafe fn copy(info: *const fi_info, api: Version) -> AllocResult<Infos> {
    let copied = |view: &fi_info| {
        // SAFETY: the view is a current structure with valid parts.
        unsafe { duplicate(view) }
    };
    // SAFETY: this function's contract.
    unsafe { with_view(info, api, copied) }
}

/// Frees a node of a provider's answer.
///
/// # Safety
/// As for [`copy`], and each block of the node is its own (fi_getinfo(3)) and no longer used.
pub(crate) unsafe fn free(info: *mut fi_info, api: Version) {
    // SAFETY: this function's contract.
    let node = unsafe { &*info };
    let blocks = |view: &fi_info| {
        // SAFETY: the view is a current structure with valid parts.
        unsafe { Blocks::of(node, view) }
    };
    // SAFETY: this function's contract.
    let blocks = unsafe { with_view(info, api, blocks) };
    // SAFETY: this function's contract; the view has no nic without a table.
    unsafe { blocks.free() };
    // SAFETY: the node is a block of its own.
    unsafe { release(info) };
}

/// Calls `with` with a current copy of a provider's info, whose nic is left out if it has no table.
///
/// # Safety
/// As for [`copy`].
unsafe fn with_view<R>(info: *const fi_info, api: Version, with: impl FnOnce(&fi_info) -> R) -> R {
    let call = |current: *const fi_info| {
        // SAFETY: `with_current` passes a current structure, or null for null.
        let mut view = unsafe { *current };
        // SAFETY: null or a valid nic.
        if let Some(nic) = unsafe { view.nic.as_ref() }
            && (nic.fid.fclass != FI_CLASS_NIC || nic.fid.ops.is_null())
        {
            view.nic = core::ptr::null_mut();
        }
        with(&view)
    };
    // SAFETY: this function's contract.
    unsafe { with_current(info, Layout::of(api), call) }
}

/// The texts and kinds of a copy.
///
/// # Safety
/// `info` is a node from [`copy`], with all its attributes.
pub(crate) unsafe fn summary(info: &fi_info) -> Summary {
    // SAFETY: null or ends with NUL.
    let owned = |name: *const c_char| unsafe { text(name) };
    // SAFETY: this function's contract.
    let fabric = unsafe { &*info.fabric_attr };
    // SAFETY: as above.
    let domain = unsafe { &*info.domain_attr };
    // SAFETY: as above.
    let ep = unsafe { &*info.ep_attr };
    Summary {
        prov_name: owned(fabric.prov_name),
        fabric: owned(fabric.name),
        domain: owned(domain.name),
        format: AddrFormat(info.addr_format),
        kind: EndpointType(ep.r#type),
    }
}

/// Sets what discovery says of the provider.
///
/// # Safety
/// As for [`summary`]; the copy is not handed out yet.
pub(crate) unsafe fn sign(info: &mut fi_info, name: &str, version: Version, api: Version) -> AllocResult<()> {
    // SAFETY: this function's contract.
    let fabric = unsafe { &mut *info.fabric_attr };
    let name = string(Some(name))?;
    // SAFETY: null or allocated by `duplicate`, and no longer used.
    unsafe { libc::free(fabric.prov_name.cast()) };
    (fabric.prov_name, fabric.prov_version, fabric.api_version) = (name, version.0, api.0);
    Ok(())
}
