//! Collective operations (fi_collective(3)): maps eleven calls to one operation descriptor, and
//! answers queries about supported operations.

use crate::endpoint::message::one;
use crate::endpoint::object::EpObj;
use crate::ffi::handle;
use crate::ffi::ptr::posted;
use core::ffi::c_void;
use ofi_abi::{FI_NOOP, FI_VOID, fi_addr_t, fi_atomic_attr, fi_collective_attr, fi_ops_collective, fid_ep};
use ofi_core::atomic::{AtomicOp, Datatype};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::op::{CollectiveCall, CollectiveKind, Elements, Input};

/// The most members of a group.
const MOST_MEMBERS: usize = 1 << 24;

pub(crate) static TABLE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier,
    broadcast,
    alltoall,
    allreduce,
    allgather,
    reduce_scatter,
    reduce,
    scatter,
    gather,
    msg: crate::enosys::enosys,
    barrier2,
};

/// The operation that combines elements, unless it is FI_NOOP.
fn combination(op: u32) -> Result<Option<AtomicOp>, Errno> {
    if op == FI_NOOP { Ok(None) } else { AtomicOp::try_from(op).map(Some) }
}

/// Where a call goes, and what its completion carries.
struct Place {
    group: fi_addr_t,
    root: fi_addr_t,
    flags: Option<u64>,
    context: *mut c_void,
}

/// The elements of a call: their number, type and operation.
struct Data {
    count: usize,
    datatype: u32,
    op: u32,
}

/// Posts an operation. Without flags of its own, a call has the endpoint's.
///
/// # Safety
/// `ep` is an endpoint. Both buffers have as many elements as fi_collective(3) demands of
/// the operation.
unsafe fn post(
    ep: *mut fid_ep,
    kind: CollectiveKind,
    (buffer, result): (*const c_void, *mut c_void),
    data: Option<Data>,
    place: Place,
) -> isize {
    let call = || {
        // SAFETY: this function's contract.
        let ep = unsafe { handle::borrow::<EpObj>(ep.cast()) }?;
        let elements = |Data { count, datatype, op }: Data| -> Result<Elements, Errno> {
            Ok(Elements { datatype: Datatype::try_from(datatype)?, op: combination(op)?, count })
        };
        let elements = data.map(elements).transpose()?;
        let Place { group, root, flags, context } = place;
        let flags = flags.map_or_else(|| ep.tx_defaults(), |flags| ep.tx_call(flags));
        // SAFETY: this function's contract.
        let buffer = unsafe { input(buffer) };
        // SAFETY: as above.
        let result = unsafe { input(result.cast_const()) };
        let (group, root, context) = (FiAddr(group), FiAddr(root), context.addr());
        // The call reads what the member contributes.
        let flags = flags - OpFlags::INJECT;
        ep.control.collective(CollectiveCall { kind, group, root, elements, buffer, result, context, flags })
    };
    posted(call())
}

/// A buffer whose length follows from the operation; none if it is null.
///
/// # Safety
/// As for [`post`]; the application lends the buffer until the completion.
unsafe fn input(buffer: *const c_void) -> Input {
    if buffer.is_null() {
        return Input::none();
    }
    // SAFETY: this function's contract.
    Input::new(move |len| unsafe { one(buffer, len) })
}

macro_rules! thunks {
    ($($name:ident($kind:ident, $ep:ident; $($arg:ident: $type:ty),*) $buffers:expr, $data:expr, $place:expr;)*) => {$(
        unsafe extern "C" fn $name($ep: *mut fid_ep, $($arg: $type),*) -> isize {
            // SAFETY: C passes the endpoint that holds this table, and fi_collective(3) the
            // buffers.
            unsafe { post($ep, CollectiveKind::$kind, $buffers, $data, $place) }
        }
    )*};
}

const NONE: *mut c_void = core::ptr::null_mut();

thunks! {
    barrier(Barrier, ep; group: fi_addr_t, context: *mut c_void)
        (NONE.cast_const(), NONE), None, Place { group, root: 0, flags: None, context };
    barrier2(Barrier, ep; group: fi_addr_t, flags: u64, context: *mut c_void)
        (NONE.cast_const(), NONE), None, Place { group, root: 0, flags: Some(flags), context };
    broadcast(Broadcast, ep; buf: *mut c_void, count: usize, _desc: *mut c_void, group: fi_addr_t, root: fi_addr_t, datatype: u32, flags: u64, context: *mut c_void)
        (buf.cast_const(), buf), Some(Data { count, datatype, op: FI_NOOP }), Place { group, root, flags: Some(flags), context };
    alltoall(Alltoall, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, datatype: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op: FI_NOOP }), Place { group, root: 0, flags: Some(flags), context };
    allreduce(Allreduce, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, datatype: u32, op: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op }), Place { group, root: 0, flags: Some(flags), context };
    allgather(Allgather, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, datatype: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op: FI_NOOP }), Place { group, root: 0, flags: Some(flags), context };
    reduce_scatter(ReduceScatter, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, datatype: u32, op: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op }), Place { group, root: 0, flags: Some(flags), context };
    reduce(Reduce, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, root: fi_addr_t, datatype: u32, op: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op }), Place { group, root, flags: Some(flags), context };
    scatter(Scatter, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, root: fi_addr_t, datatype: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op: FI_NOOP }), Place { group, root, flags: Some(flags), context };
    gather(Gather, ep; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, group: fi_addr_t, root: fi_addr_t, datatype: u32, flags: u64, context: *mut c_void)
        (buf, result), Some(Data { count, datatype, op: FI_NOOP }), Place { group, root, flags: Some(flags), context };
}

/// fi_query_collective(3): fills in the limits of an operation that is supported. With FI_SCATTER
/// as a flag, a reduction is that of reduce-scatter.
///
/// # Errors
/// EINVAL without attributes or with a mode, EBADFLAGS, ENOSYS for another collective,
/// EOPNOTSUPP for an operation or a type that the collective does not have.
pub(crate) fn query(kind: u32, attr: Option<&mut fi_collective_attr>, flags: u64) -> Result<(), Errno> {
    let attr = attr.ok_or(Errno::EINVAL)?;
    if attr.mode != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = usize::try_from(kind).ok().and_then(|kind| CollectiveKind::ALL.get(kind)).ok_or(Errno::ENOSYS)?;
    let kind = match (flags, kind) {
        (0, kind) => *kind,
        (SCATTER, CollectiveKind::Reduce | CollectiveKind::ReduceScatter) => CollectiveKind::ReduceScatter,
        _ => return Err(Errno::EBADFLAGS),
    };
    attr.max_members = MOST_MEMBERS;
    if kind == CollectiveKind::Barrier {
        attr.datatype_attr = fi_atomic_attr { count: 0, size: 0 };
        return if (attr.op, attr.datatype) == (FI_NOOP, FI_VOID) { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
    }
    let unsupported = |_| Errno::EOPNOTSUPP;
    let datatype = Datatype::try_from(attr.datatype).map_err(unsupported)?;
    // Operations that combine nothing ignore it.
    let op = if kind.combines() { combination(attr.op).map_err(unsupported)? } else { None };
    let elements = Elements { datatype, op, count: 0 };
    if !elements.suit(kind) {
        return Err(Errno::EOPNOTSUPP);
    }
    attr.datatype_attr = fi_atomic_attr { count: elements.most(), size: datatype.size() };
    Ok(())
}

/// FI_SCATTER as a flag.
const SCATTER: u64 = CollectiveKind::Scatter as u64;
