//! Multicast groups (fi_cm(3), fi_join) and groups of collective operations (fi_collective(3)).

use crate::endpoint::object::EpObj;
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, socket_addr};
use crate::objects::av_set::AvSetObj;
use crate::reserve::Watch;
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_MC;
use ofi_abi::{fi_collective_addr, fi_ops, fid, fid_ep, fid_mc};
use ofi_core::Addr;
use ofi_core::error::Result;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::Ways;
use ofi_sync::busy::Child;
use std::sync::Arc;

/// What an endpoint has joined.
#[derive(Clone, Copy)]
enum Group {
    /// A multicast group.
    Multicast { group: Addr, ways: Ways },
    /// A group of collective operations.
    Collective,
}

/// A group that an endpoint has joined.
#[repr(C)]
pub(crate) struct McObj {
    pub(crate) c: fid_mc,
    pub(crate) ep: Arc<dyn EndpointControl>,
    group: Group,
    /// Keeps the endpoint open.
    pub(crate) parent: Child,
}

object!(McObj, FI_CLASS_MC, FID_OPS, c.fid []);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

/// FI_SEND and FI_RECV.
const BOTH: u64 = OpFlags::SEND.bits() | OpFlags::RECV.bits();

/// What a member with these flags does. Neither flag means both.
const fn ways_of(flags: u64) -> Ways {
    if flags & BOTH == 0 {
        return Ways::BOTH;
    }
    Ways { send: flags & OpFlags::SEND.bits() != 0, receive: flags & OpFlags::RECV.bits() != 0 }
}

/// fi_join.
pub(crate) unsafe extern "C" fn join(
    ep: *mut fid_ep,
    addr: *const c_void,
    flags: u64,
    out: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    if flags & !BOTH != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: null or a socket address by fi_join(3).
    let Some(group) = (unsafe { socket_addr(addr) }) else { return Errno::EINVAL.negative() };
    let ways = ways_of(flags);
    let join = |owner, joined: &mut dyn FnMut(FiAddr)| ep.control.clone().join(group, ways, owner, joined);
    let open = |_: &Watch| open(ep, Group::Multicast { group, ways }, context, join);
    // SAFETY: `out` is null or valid by fi_join(3), and the group's object is new.
    unsafe { make(out, "join a group", open) }
}

/// Makes the object of a group and joins the group. `join` passes on the address of the group.
fn open(
    ep: &EpObj,
    group: Group,
    context: *mut c_void,
    join: impl FnOnce(Owner, &mut dyn FnMut(FiAddr)) -> Result<()>,
) -> Result<*mut fid_mc> {
    ep.default_eq()?;
    let c = fid_mc { fid: handle::header::<McObj>(context), fi_addr: FiAddr::UNSPEC.0 };
    let object = McObj { c, ep: ep.control.clone(), group, parent: ep.dependents.add() };
    let mc = handle::install(object);
    let owner = Owner(mc.expose_provenance());
    // SAFETY: made above, and not handed out before the engine calls this.
    let mut joined = |handle: FiAddr| unsafe { (*mc).c.fi_addr = handle.0 };
    if let Err(error) = join(owner, &mut joined) {
        // SAFETY: made above and not handed out.
        drop(unsafe { handle::reclaim::<McObj>(mc.cast()) });
        return Err(error);
    }
    Ok(mc.cast())
}

/// fi_join of an endpoint with FI_COLLECTIVE: fi_join_collective, which adds that flag.
pub(crate) unsafe extern "C" fn join_collective(
    ep: *mut fid_ep,
    addr: *const c_void,
    flags: u64,
    out: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    let collective = OpFlags::COLLECTIVE.bits();
    if flags & collective == 0 {
        return Errno::ENOSYS.negative();
    }
    if flags & !(BOTH | collective) != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: with that flag a valid address of a collective, by fi_join_collective(3), or null.
    let Some(addr) = (unsafe { addr.cast::<fi_collective_addr>().as_ref() }) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_join_collective(3) passes a set, ours or another library's, or null.
    let set = match unsafe { handle::borrow::<AvSetObj>(addr.set.cast_mut().cast()) } {
        Ok(set) => set,
        Err(errno) => return errno.negative(),
    };
    let ways = ways_of(flags);
    let parent = Some(FiAddr(addr.coll_addr)).filter(|addr| *addr != FiAddr::UNSPEC && !AvSetObj::has_addr(*addr));
    let join = |owner, joined: &mut dyn FnMut(FiAddr)| set.join(&ep.control, parent, ways, owner, joined);
    // SAFETY: `out` is null or valid by fi_join_collective(3), and the group's object is new.
    unsafe { make(out, "join a group", |_: &Watch| open(ep, Group::Collective, context, join)) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let mc = ours!(McObj, fid);
    let (addr, owner) = (FiAddr(mc.c.fi_addr), Owner(fid.addr()));
    match mc.group {
        Group::Multicast { group, ways } => mc.ep.leave(&group, ways, addr, owner),
        Group::Collective => mc.ep.leave_group(addr, owner),
    }
    // SAFETY: nothing else refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<McObj>(fid) });
    0
}
