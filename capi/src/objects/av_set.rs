//! Sets of addresses (fi_av_set(3)). A domain without FI_COLLECTIVE has no use for the address of a
//! set, and its sets cannot be asked to serve a collective.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, put};
use crate::objects::av::AvObj;
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_AV_SET;
use ofi_abi::{
    FI_BARRIER_SET, FI_GATHER_SET, FI_UNIVERSE, fi_addr_t, fi_av_set_attr, fi_ops, fi_ops_av_set, fid, fid_av,
    fid_av_set,
};
use ofi_core::error::{Error, Result};
use ofi_core::{AvType, Caps, Errno, FiAddr};
use ofi_engine::av_set::{AvSet, Selection};
use ofi_engine::completion::eq::Owner;
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::Ways;
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::sync::Arc;

/// A set of addresses.
#[repr(C)]
pub(crate) struct AvSetObj {
    pub(crate) c: fid_av_set,
    set: AvSet,
    /// Its address; FI_ADDR_UNSPEC without collectives.
    addr: fi_addr_t,
}

/// The addresses of sets begin here: above those of an address vector and of groups.
const ADDRS: u64 = 3 << 61;

/// A new address for a set.
fn next_addr() -> fi_addr_t {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only the number counts.
    ADDRS + NEXT.fetch_add(1, Ordering::Relaxed)
}

impl AvSetObj {
    /// Whether this is the address of a set.
    pub(crate) const fn has_addr(addr: FiAddr) -> bool {
        addr.0 >> 61 == ADDRS >> 61
    }

    /// Joins the group of the set's present members.
    pub(crate) fn join(
        &self,
        ep: &Arc<dyn EndpointControl>,
        parent: Option<FiAddr>,
        ways: Ways,
        owner: Owner,
        joined: &mut dyn FnMut(FiAddr),
    ) -> Result<()> {
        ep.clone().join_group(&self.set, parent, ways, owner).map(joined)
    }
}

object!(AvSetObj, FI_CLASS_AV_SET, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

static OPS: fi_ops_av_set =
    fi_ops_av_set { size: size_of::<fi_ops_av_set>(), set_union, intersect, diff, insert, remove, addr };

/// The flags that each name a collective.
const COLLECTIVES: u64 = (FI_GATHER_SET << 1) - FI_BARRIER_SET;

/// Whether the vector's domain was opened with FI_COLLECTIVE.
fn serves_collectives(av: &AvObj) -> bool {
    // SAFETY: the domain stays open while it has address vectors.
    unsafe { &*av.domain }.caps.contains(Caps::COLLECTIVE)
}

/// The addresses with which a set begins.
fn selection(av: &AvObj, attr: &fi_av_set_attr) -> Result<Selection> {
    let refuse = |errno, what: &str| Err(Error::new(errno, format!("open a set of addresses {what}")));
    let fi_av_set_attr { count, start_addr, end_addr, stride, comm_key_size, comm_key: _, flags } = *attr;
    if flags & !(FI_UNIVERSE | COLLECTIVES) != 0 {
        return refuse(Errno::EBADFLAGS, &format!("with flags {flags:#x}"));
    }
    if flags & COLLECTIVES != 0 && !serves_collectives(av) {
        return refuse(Errno::ENOSYS, "for collectives: not supported");
    }
    if comm_key_size != 0 {
        return refuse(Errno::ENOSYS, "with a communication key: not supported");
    }
    if flags & FI_UNIVERSE != 0 {
        return Ok(Selection::Everything);
    }
    let (first, last) = (FiAddr(start_addr), FiAddr(end_addr));
    if (first, last) == (FiAddr::UNSPEC, FiAddr::UNSPEC) {
        return Ok(Selection::Nothing);
    }
    if av.kind != AvType::TABLE {
        return refuse(Errno::EINVAL, "with a range of a vector that is no table");
    }
    let range = Selection::range(first, last, stride, count);
    let what = || format!("open a set of addresses {start_addr} to {end_addr}, stride {stride}, count {count}");
    range.map_err(|errno| Error::new(errno, what()))
}

/// fi_av_set(3).
pub(crate) unsafe extern "C" fn open(
    av: *mut fid_av,
    attr: *mut fi_av_set_attr,
    out: *mut *mut fid_av_set,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    // SAFETY: null or valid attributes by fi_av_set(3).
    let Some(attr) = (unsafe { attr.as_ref() }) else { return Errno::EINVAL.negative() };
    let open = |_: &_| {
        let set = AvSet::new(&av.av, selection(av, attr)?)?;
        let c = fid_av_set { fid: handle::header::<AvSetObj>(context), ops: &OPS };
        let addr = if serves_collectives(av) { next_addr() } else { FiAddr::UNSPEC.0 };
        Ok(handle::install(AvSetObj { c, set, addr }).cast())
    };
    // SAFETY: `out` is null or valid by fi_av_set(3), and the set is new.
    unsafe { make(out, "open a set of addresses", open) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    unsafe { handle::close::<AvSetObj>(fid, |_| false) }
}

fn answer(result: Result<(), Errno>) -> c_int {
    result.map_or_else(Errno::negative, |()| 0)
}

/// Changes a set by another.
///
/// # Safety
/// As for [`handle::borrow`], for both.
unsafe fn combine(
    dst: *mut fid_av_set,
    src: *const fid_av_set,
    change: impl FnOnce(&AvSet, &AvSet) -> Result<(), Errno>,
) -> c_int {
    let dst = ours!(AvSetObj, dst.cast());
    // SAFETY: this function's contract.
    let src = unsafe { handle::borrow::<AvSetObj>(src.cast_mut().cast()) };
    answer(src.and_then(|src| change(&dst.set, &src.set)))
}

unsafe extern "C" fn set_union(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: C passes the set that holds this table, and fi_av_set(3) another open one.
    unsafe { combine(dst, src, AvSet::unite) }
}

unsafe extern "C" fn intersect(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: as in `set_union`.
    unsafe { combine(dst, src, AvSet::intersect) }
}

unsafe extern "C" fn diff(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int {
    // SAFETY: as in `set_union`.
    unsafe { combine(dst, src, AvSet::subtract) }
}

unsafe extern "C" fn insert(set: *mut fid_av_set, member: fi_addr_t) -> c_int {
    let set = ours!(AvSetObj, set.cast());
    answer(set.set.insert(FiAddr(member)))
}

unsafe extern "C" fn remove(set: *mut fid_av_set, member: fi_addr_t) -> c_int {
    let set = ours!(AvSetObj, set.cast());
    answer(set.set.remove(FiAddr(member)))
}

/// The address of all members, which only fi_join_collective takes: there is none without
/// collectives.
unsafe extern "C" fn addr(set: *mut fid_av_set, coll_addr: *mut fi_addr_t) -> c_int {
    let set = ours!(AvSetObj, set.cast());
    if set.addr == FiAddr::UNSPEC.0 {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: null or valid by fi_av_set_addr, fi_av_set(3).
    answer(unsafe { put(coll_addr, set.addr) })
}
