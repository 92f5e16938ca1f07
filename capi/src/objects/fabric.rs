//! Fabrics (fi_fabric(3)).

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::objects::signaler::Signaler;
use crate::state::open_objects::Listed;
use core::ffi::c_int;
use ofi_abi::FI_CLASS_FABRIC;
use ofi_abi::{fi_ops, fid, fid_fabric};
use ofi_sync::busy::Children;

/// A fabric.
#[repr(C)]
pub(crate) struct FabricObj {
    pub(crate) c: fid_fabric,
    pub(crate) provider: String,
    pub(crate) listed: Option<Listed>,
    /// For event queues and wait sets, which belong to no domain.
    pub(crate) signaler: Signaler,
    pub(crate) children: Children,
}

object!(FabricObj, FI_CLASS_FABRIC, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<FabricObj>(fid, |fabric| fabric.children.count() > 0) }
}
