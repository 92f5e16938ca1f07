//! Remote memory access (fi_rma(3)): maps nine calls to one operation descriptor, compiled once for
//! each type of endpoint.

use crate::endpoint::data_path::DataPath;
use crate::endpoint::message::{many, one, parts};
use crate::ffi::ptr::posted;
use core::ffi::c_void;
use core::marker::PhantomData;
use ofi_abi::{fi_addr_t, fi_msg_rma, fi_ops_rma, fi_rma_iov, fid_ep, iovec};
use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_engine::op::{MOST_REMOTE_RANGES, OneSidedOps, Remote, RemoteRange, RmaKind, RmaOp};
use ofi_memory::Buffer;

/// The table for one type of endpoint, with the directions that are enabled.
struct Table<E, const READ: bool, const WRITE: bool>(PhantomData<E>);

/// Which directions an endpoint with these capabilities initiates, with the operations of `kind`.
/// Naming no side means all (fi_getinfo(3)).
pub(super) fn directions(caps: Caps, kind: Caps) -> (bool, bool) {
    let sides = Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
    let requested = caps.contains(kind);
    let side = |side| requested && (caps.contains(side) || !caps.intersects(sides));
    (side(Caps::READ), side(Caps::WRITE))
}

/// The table for these capabilities: the calls that they do not cover return ENOSYS.
pub(crate) fn table<E: OneSidedOps>(caps: Caps) -> &'static fi_ops_rma {
    match directions(caps, Caps::RMA) {
        (true, true) => Table::<E, true, true>::TABLE,
        (true, false) => Table::<E, true, false>::TABLE,
        (false, true) => Table::<E, false, true>::TABLE,
        (false, false) => Table::<E, false, false>::TABLE,
    }
}

impl<E: OneSidedOps, const READ: bool, const WRITE: bool> Table<E, READ, WRITE> {
    const TABLE: &'static fi_ops_rma = &fi_ops_rma {
        size: size_of::<fi_ops_rma>(),
        read: read::<E, READ>,
        readv: readv::<E, READ>,
        readmsg: readmsg::<E, READ>,
        write: write::<E, WRITE>,
        writev: writev::<E, WRITE>,
        writemsg: writemsg::<E, WRITE>,
        inject: inject::<E, WRITE>,
        writedata: writedata::<E, WRITE>,
        injectdata: injectdata::<E, WRITE>,
    };
}

/// The ranges of a vector, and their length together.
///
/// # Safety
/// `iov` is null or has `count` elements.
unsafe fn ranges(iov: *const fi_rma_iov, count: usize) -> Result<(Remote, usize), Errno> {
    if count > MOST_REMOTE_RANGES || count > 0 && iov.is_null() {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok((Remote::Many(Box::default()), 0));
    }
    // SAFETY: not null, so `count` elements are there.
    let ranges = unsafe { core::slice::from_raw_parts(iov, count) };
    if let [fi_rma_iov { addr, len, key }] = *ranges {
        return Ok((Remote::one(addr, len as u64, key), len));
    }
    let total = ranges.iter().try_fold(0usize, |sum, range| sum.checked_add(range.len)).ok_or(Errno::EINVAL)?;
    let range = |&fi_rma_iov { addr, len, key }: &fi_rma_iov| RemoteRange { addr, len: len as u64, key };
    Ok((Remote::Many(ranges.iter().map(range).collect()), total))
}

/// The parameters in which the calls with one remote range differ.
struct Access {
    kind: RmaKind,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
    data: Option<u64>,
}

#[inline]
fn submit<E: OneSidedOps>(engine: &E, buffer: Buffer, flags: OpFlags, access: Access) -> Result<(), Errno> {
    let Access { kind, peer, addr, key, context, data } = access;
    let remote = Remote::one(addr, buffer.len() as u64, key);
    engine.rma(RmaOp { kind, peer: FiAddr(peer), buffer, remote, context: context.addr(), data, flags, inject: false })
}

/// As [`submit`], for a call that lends its buffer only until it returns.
#[inline]
fn submit_inject<E: OneSidedOps>(
    engine: &E,
    buffer: Buffer,
    peer: fi_addr_t,
    (addr, key): (u64, u64),
    data: Option<u64>,
) -> Result<(), Errno> {
    let (kind, flags, remote) = (RmaKind::Write, OpFlags::INJECT, Remote::one(addr, buffer.len() as u64, key));
    engine.rma(RmaOp { kind, peer: FiAddr(peer), buffer, remote, context: 0, data, flags, inject: true })
}

/// The access that a message structure describes.
///
/// # Safety
/// `msg` is null or valid with its vectors, whose buffers are valid until the completion.
#[inline]
pub(crate) unsafe fn access_op(
    object: &DataPath,
    kind: RmaKind,
    msg: *const fi_msg_rma,
    flags: u64,
) -> Result<RmaOp, Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    // SAFETY: this function's contract.
    let (remote, total) = unsafe { ranges(msg.rma_iov, msg.rma_iov_count) }?;
    // SAFETY: this function's contract.
    let buffer = unsafe { many(msg.msg_iov, msg.iov_count) }?;
    if buffer.len() != total {
        return Err(Errno::EINVAL);
    }
    let flags = object.tx_call(flags);
    let data = match kind {
        RmaKind::Write => flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data),
        RmaKind::Read => None,
    };
    let (peer, context) = (FiAddr(msg.addr), msg.context.addr());
    Ok(RmaOp { kind, peer, buffer, remote, context, data, flags, inject: false })
}

macro_rules! thunks {
    ($($name:ident($object:ident, $engine:ident; $($arg:ident: $kind:ty),*) $body:block)*) => {$(
        unsafe extern "C" fn $name<E: OneSidedOps, const ENABLED: bool>(ep: *mut fid_ep, $($arg: $kind),*) -> isize {
            if !ENABLED {
                return posted(Err(Errno::ENOSYS));
            }
            // SAFETY: C calls this thunk through the table of the endpoint that it passes.
            let ($object, $engine) = unsafe { parts::<E>(ep) };
            posted($body)
        }
    )*};
}

thunks! {
    read(object, engine; buf: *mut c_void, len: usize, _desc: *mut c_void, peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void) {
        // SAFETY: fi_read(3) lends the buffer until the completion.
        let buffer = unsafe { one(buf, len) };
        submit(engine, buffer, object.tx_defaults(), Access { kind: RmaKind::Read, peer, addr, key, context, data: None })
    }
    readv(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void) {
        let access = Access { kind: RmaKind::Read, peer, addr, key, context, data: None };
        // SAFETY: fi_readv(3) lends the buffers until the completion.
        unsafe { many(iov, count) }.and_then(|buffer| submit(engine, buffer, object.tx_defaults(), access))
    }
    readmsg(object, engine; msg: *const fi_msg_rma, flags: u64) {
        // SAFETY: null or a valid message by fi_readmsg(3), which lends the buffers until the
        // completion.
        unsafe { access_op(object, RmaKind::Read, msg, flags) }.and_then(|op| engine.rma(op))
    }
    write(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void) {
        // SAFETY: fi_write(3) lends the buffer until the completion.
        let buffer = unsafe { one(buf, len) };
        submit(engine, buffer, object.tx_defaults(), Access { kind: RmaKind::Write, peer, addr, key, context, data: None })
    }
    writev(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void) {
        let access = Access { kind: RmaKind::Write, peer, addr, key, context, data: None };
        // SAFETY: fi_writev(3) lends the buffers until the completion.
        unsafe { many(iov, count) }.and_then(|buffer| submit(engine, buffer, object.tx_defaults(), access))
    }
    writemsg(object, engine; msg: *const fi_msg_rma, flags: u64) {
        // SAFETY: null or a valid message by fi_writemsg(3), which lends the buffers until the
        // completion.
        unsafe { access_op(object, RmaKind::Write, msg, flags) }.and_then(|op| engine.rma(op))
    }
    inject(object, engine; buf: *const c_void, len: usize, peer: fi_addr_t, addr: u64, key: u64) {
        let _ = object;
        // SAFETY: fi_inject_write(3) lends the buffer for the call.
        submit_inject(engine, unsafe { one(buf, len) }, peer, (addr, key), None)
    }
    writedata(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void) {
        // SAFETY: fi_writedata(3) lends the buffer until the completion.
        let buffer = unsafe { one(buf, len) };
        let access = Access { kind: RmaKind::Write, peer, addr, key, context, data: Some(data) };
        submit(engine, buffer, object.tx_defaults(), access)
    }
    injectdata(object, engine; buf: *const c_void, len: usize, data: u64, peer: fi_addr_t, addr: u64, key: u64) {
        let _ = object;
        // SAFETY: fi_inject_writedata(3) lends the buffer for the call.
        submit_inject(engine, unsafe { one(buf, len) }, peer, (addr, key), Some(data))
    }
}
