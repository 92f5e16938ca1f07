//! Multicast groups (fi_cm(3), fi_join).

use crate::endpoint::object::EpObj;
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, socket_addr};
use crate::reserve::Watch;
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_MC;
use ofi_abi::{fi_ops, fid, fid_ep, fid_mc};
use ofi_core::Addr;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::EndpointControl;
use ofi_sync::busy::Child;
use std::sync::Arc;

/// A multicast group that an endpoint has joined.
#[repr(C)]
pub(crate) struct McObj {
    pub(crate) c: fid_mc,
    pub(crate) ep: Arc<dyn EndpointControl>,
    pub(crate) group: Addr,
    /// Whether the endpoint receives from the group.
    pub(crate) receive: bool,
    /// Keeps the endpoint open.
    pub(crate) parent: Child,
}

object!(McObj, FI_CLASS_MC, FID_OPS, c.fid []);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

/// fi_join; flags with neither FI_SEND nor FI_RECV mean both.
pub(crate) unsafe extern "C" fn join(
    ep: *mut fid_ep,
    addr: *const c_void,
    flags: u64,
    out: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    let (send, receive) = (OpFlags::SEND.bits(), OpFlags::RECV.bits());
    if flags & !(send | receive) != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: null or a socket address by fi_join(3).
    let Some(group) = (unsafe { socket_addr(addr) }) else { return Errno::EINVAL.negative() };
    let both = flags & (send | receive) == 0;
    let (send, receive) = (both || flags & send != 0, both || flags & receive != 0);
    let open = |_: &Watch| {
        ep.default_eq()?;
        let c = fid_mc { fid: handle::header::<McObj>(context), fi_addr: FiAddr::UNSPEC.0 };
        let object = McObj { c, ep: ep.control.clone(), group, receive, parent: ep.dependents.add() };
        let mc = handle::install(object);
        let owner = Owner(mc.expose_provenance());
        // SAFETY: made above, and not handed out before the engine calls this.
        let mut joined = |handle: FiAddr| unsafe { (*mc).c.fi_addr = handle.0 };
        if let Err(error) = ep.control.join(group, (send, receive), owner, &mut joined) {
            // SAFETY: made above and not handed out.
            drop(unsafe { handle::reclaim::<McObj>(mc.cast()) });
            return Err(error);
        }
        Ok(mc.cast())
    };
    // SAFETY: `out` is null or valid by fi_join(3), and the group's object is new.
    unsafe { make(out, "join a group", open) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let mc = ours!(McObj, fid);
    mc.ep.leave(&mc.group, mc.receive, FiAddr(mc.c.fi_addr), Owner(fid.addr()));
    // SAFETY: nothing else refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<McObj>(fid) });
    0
}
