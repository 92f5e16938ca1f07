//! Atomic operations (fi_atomic(3)): maps ten calls to one operation descriptor, compiled once for
//! each type of endpoint, and answers queries about supported operations.

use crate::endpoint::data_path::DataPath;
use crate::endpoint::message::{IOV_LIMIT, one, parts};
use crate::endpoint::rma::directions;
use crate::ffi::ptr::{posted, put};
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use ofi_abi::{
    FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, fi_addr_t, fi_atomic_attr, fi_ioc, fi_msg_atomic, fi_ops_atomic, fi_rma_ioc,
    fid_ep,
};
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_engine::op::{AtomicCall, MOST_ATOMIC, MOST_REMOTE_RANGES, OneSidedOps, Remote, RemoteRange};
use ofi_memory::{Buffer, Span};

/// The table for one type of endpoint, with the directions that are enabled.
struct Table<E, const READ: bool, const WRITE: bool>(PhantomData<E>);

/// The table for these capabilities: the calls that they do not cover return ENOSYS. Calls that
/// return values read.
pub(crate) fn table<E: OneSidedOps>(caps: Caps) -> &'static fi_ops_atomic {
    match directions(caps, Caps::ATOMIC) {
        (true, true) => Table::<E, true, true>::TABLE,
        (true, false) => Table::<E, true, false>::TABLE,
        (false, true) => Table::<E, false, true>::TABLE,
        (false, false) => Table::<E, false, false>::TABLE,
    }
}

impl<E: OneSidedOps, const READ: bool, const WRITE: bool> Table<E, READ, WRITE> {
    const TABLE: &'static fi_ops_atomic = &fi_ops_atomic {
        size: size_of::<fi_ops_atomic>(),
        write: write::<E, WRITE>,
        writev: writev::<E, WRITE>,
        writemsg: writemsg::<E, WRITE>,
        inject: inject::<E, WRITE>,
        readwrite: readwrite::<E, READ>,
        readwritev: readwritev::<E, READ>,
        readwritemsg: readwritemsg::<E, READ>,
        compwrite: compwrite::<E, READ>,
        compwritev: compwritev::<E, READ>,
        compwritemsg: compwritemsg::<E, READ>,
        writevalid: writevalid::<WRITE>,
        readwritevalid: readwritevalid::<READ>,
        compwritevalid: compwritevalid::<READ>,
    };
}

/// The operation on each element.
#[derive(Clone, Copy)]
struct Action {
    kind: AtomicKind,
    op: AtomicOp,
    datatype: Datatype,
}

impl Action {
    /// # Errors
    /// EOPNOTSUPP unless the datatype and the kind of call have the operation.
    #[inline]
    fn new(kind: AtomicKind, datatype: u32, op: u32) -> Result<Self, Errno> {
        let (datatype, op) = (Datatype::try_from(datatype)?, AtomicOp::try_from(op)?);
        if op.is_valid(kind, datatype) { Ok(Self { kind, op, datatype }) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// The length of `count` elements in bytes; EMSGSIZE if an operation cannot have that many.
    #[inline]
    fn bytes(self, count: usize) -> Result<usize, Errno> {
        if count <= self.limit() { Ok(count * self.datatype.size()) } else { Err(Errno::EMSGSIZE) }
    }

    /// The same for all elements of a call whose buffers are one piece each; EINVAL for none.
    #[inline]
    fn whole(self, count: usize) -> Result<usize, Errno> {
        if count == 0 { Err(Errno::EINVAL) } else { self.bytes(count) }
    }

    /// Maximum number of elements of an operation.
    const fn limit(self) -> usize {
        MOST_ATOMIC / self.datatype.size()
    }

    /// The elements of a vector.
    ///
    /// # Safety
    /// `vector` is null or has `count` elements, whose memory is valid as for [`Span::new`].
    unsafe fn gather(self, vector: *const fi_ioc, count: usize) -> Result<Buffer, Errno> {
        if count == 0 || count > IOV_LIMIT || vector.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, so `count` elements are there.
        let pieces = unsafe { core::slice::from_raw_parts(vector, count) };
        let spans = pieces.iter().map(|piece| {
            let len = self.bytes(piece.count)?;
            // SAFETY: the application keeps each piece valid until the completion.
            Ok(unsafe { Span::new(piece.addr.cast(), len) })
        });
        Ok(Buffer::gather(spans.collect::<Result<Vec<_>, Errno>>()?))
    }

    /// The operands of a vector, unless the operation ignores them.
    ///
    /// # Safety
    /// As for [`Self::gather`], if the operation has an operand.
    unsafe fn operands(self, vector: *const fi_ioc, count: usize) -> Result<Buffer, Errno> {
        // SAFETY: this function's contract.
        if self.op.has_operand() { unsafe { self.gather(vector, count) } } else { Ok(Buffer::empty()) }
    }

    /// The operands of one piece, unless the operation ignores them.
    ///
    /// # Safety
    /// As for [`Span::new`], if the operation has an operand.
    #[inline]
    unsafe fn operand(self, base: *const c_void, bytes: usize) -> Buffer {
        // SAFETY: this function's contract.
        if self.op.has_operand() { unsafe { one(base, bytes) } } else { Buffer::empty() }
    }

    /// The peer's elements.
    ///
    /// # Safety
    /// `vector` is null or has `count` elements.
    unsafe fn remote(self, vector: *const fi_rma_ioc, count: usize) -> Result<Remote, Errno> {
        if count == 0 || count > MOST_REMOTE_RANGES || vector.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, so `count` elements are there.
        let ranges = unsafe { core::slice::from_raw_parts(vector, count) };
        let range = |&fi_rma_ioc { addr, count, key }: &fi_rma_ioc| {
            Ok(RemoteRange { addr, len: self.bytes(count)? as u64, key })
        };
        Ok(match ranges {
            [one] => Remote::One([range(one)?]),
            several => Remote::Many(several.iter().map(range).collect::<Result<_, Errno>>()?),
        })
    }
}

/// The local buffers of an operation.
struct Buffers {
    operands: Buffer,
    compare: Buffer,
    result: Buffer,
}

impl Buffers {
    const fn base(operands: Buffer) -> Self {
        Self { operands, compare: Buffer::empty(), result: Buffer::empty() }
    }

    const fn fetch(operands: Buffer, result: Buffer) -> Self {
        Self { operands, compare: Buffer::empty(), result }
    }

    /// The length of the elements, in bytes: that of each buffer that the operation has.
    fn len(&self, action: Action) -> Result<usize, Errno> {
        let len = if action.op.has_operand() { self.operands.len() } else { self.result.len() };
        let fits = match action.kind {
            AtomicKind::Base => true,
            AtomicKind::Fetch => self.result.len() == len,
            AtomicKind::Compare => self.result.len() == len && self.compare.len() == len,
        };
        match len {
            0 => Err(Errno::EINVAL),
            _ if !fits => Err(Errno::EINVAL),
            len if len > MOST_ATOMIC => Err(Errno::EMSGSIZE),
            len => Ok(len),
        }
    }
}

/// The peer's elements, the context and the flags of a call without a message structure.
struct Target {
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
    flags: OpFlags,
    inject: bool,
}

/// Submits an operation on `len` bytes, the length of each buffer that it uses. Nothing reads the
/// buffers before the engine does, so that the compiler builds them in place.
#[inline(always)]
fn submit<E: OneSidedOps>(
    engine: &E,
    action: Action,
    len: usize,
    buffers: Buffers,
    target: Target,
) -> Result<(), Errno> {
    let Target { peer, addr, key, context, flags, inject } = target;
    let (Action { kind, op, datatype }, Buffers { operands, compare, result }) = (action, buffers);
    let (peer, remote, context) = (FiAddr(peer), Remote::one(addr, len as u64, key), context.addr());
    engine.atomic(AtomicCall {
        kind,
        op,
        datatype,
        peer,
        operands,
        compare,
        result,
        remote,
        context,
        data: None,
        flags,
        inject,
    })
}

/// A message structure from C, with the action that it describes.
///
/// # Safety
/// `msg` is null or valid.
unsafe fn message<'a>(kind: AtomicKind, msg: *const fi_msg_atomic) -> Result<(&'a fi_msg_atomic, Action), Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    Ok((msg, Action::new(kind, msg.datatype, msg.op)?))
}

/// The operation that a message structure describes.
///
/// # Safety
/// The message is valid with its remote vector.
unsafe fn described(
    object: &DataPath,
    (msg, action): (&fi_msg_atomic, Action),
    buffers: Buffers,
    flags: u64,
) -> Result<AtomicCall, Errno> {
    let flags = object.tx_call(flags);
    // Atomics on tagged receive buffers are not supported: fi_query_atomic says so.
    if flags.contains(OpFlags::TAGGED) {
        return Err(Errno::EOPNOTSUPP);
    }
    // SAFETY: this function's contract.
    let remote = unsafe { action.remote(msg.rma_iov, msg.rma_iov_count) }?;
    let len = buffers.len(action)?;
    if remote.iter().map(|range| range.len).sum::<u64>() != len as u64 {
        return Err(Errno::EINVAL);
    }
    let (Action { kind, op, datatype }, Buffers { operands, compare, result }) = (action, buffers);
    let (peer, context) = (FiAddr(msg.addr), msg.context.addr());
    let data = flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data);
    Ok(AtomicCall { kind, op, datatype, peer, operands, compare, result, remote, context, data, flags, inject: false })
}

/// An atomic operation without a result (fi_atomicmsg).
///
/// # Safety
/// `msg` is null or valid with its vectors, whose buffers are valid until the completion.
pub(crate) unsafe fn base_op(object: &DataPath, msg: *const fi_msg_atomic, flags: u64) -> Result<AtomicCall, Errno> {
    // SAFETY: this function's contract.
    let (msg, action) = unsafe { message(AtomicKind::Base, msg) }?;
    // SAFETY: this function's contract.
    let operands = unsafe { action.operands(msg.msg_iov, msg.iov_count) }?;
    // SAFETY: this function's contract.
    unsafe { described(object, (msg, action), Buffers::base(operands), flags) }
}

/// An atomic operation that returns the previous values (fi_fetch_atomicmsg).
///
/// # Safety
/// As for [`base_op`], with the vector of results.
pub(crate) unsafe fn fetch_op(
    object: &DataPath,
    msg: *const fi_msg_atomic,
    (results, count): (*const fi_ioc, usize),
    flags: u64,
) -> Result<AtomicCall, Errno> {
    // SAFETY: this function's contract.
    let (msg, action) = unsafe { message(AtomicKind::Fetch, msg) }?;
    // SAFETY: this function's contract.
    let operands = unsafe { action.operands(msg.msg_iov, msg.iov_count) }?;
    // SAFETY: this function's contract.
    let result = unsafe { action.gather(results, count) }?;
    // SAFETY: this function's contract.
    unsafe { described(object, (msg, action), Buffers::fetch(operands, result), flags) }
}

/// An atomic operation that compares first (fi_compare_atomicmsg).
///
/// # Safety
/// As for [`base_op`], with the vectors of results and of the values to compare with.
pub(crate) unsafe fn compare_op(
    object: &DataPath,
    msg: *const fi_msg_atomic,
    (results, count): (*const fi_ioc, usize),
    (compares, compare_count): (*const fi_ioc, usize),
    flags: u64,
) -> Result<AtomicCall, Errno> {
    // SAFETY: this function's contract.
    let (msg, action) = unsafe { message(AtomicKind::Compare, msg) }?;
    // SAFETY: this function's contract.
    let operands = unsafe { action.operands(msg.msg_iov, msg.iov_count) }?;
    // SAFETY: this function's contract.
    let compare = unsafe { action.gather(compares, compare_count) }?;
    // SAFETY: this function's contract.
    let result = unsafe { action.gather(results, count) }?;
    // SAFETY: this function's contract.
    unsafe { described(object, (msg, action), Buffers { operands, compare, result }, flags) }
}

macro_rules! thunks {
    ($($name:ident($object:ident, $engine:ident; $($arg:ident: $kind:ty),*) $body:block)*) => {$(
        unsafe extern "C" fn $name<E: OneSidedOps, const ENABLED: bool>(ep: *mut fid_ep, $($arg: $kind),*) -> isize {
            if !ENABLED {
                return posted(Err(Errno::ENOSYS));
            }
            // SAFETY: C calls this thunk through the table of the endpoint that it passes.
            let ($object, $engine) = unsafe { parts::<E>(ep) };
            let call = || $body;
            posted(call())
        }
    )*};
}

thunks! {
    write(object, engine; buf: *const c_void, count: usize, _desc: *mut c_void, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Base, datatype, op)?;
        let bytes = action.whole(count)?;
        // SAFETY: fi_atomic(3) lends the operands until the completion.
        let operands = unsafe { action.operand(buf, bytes) };
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        submit(engine, action, bytes, Buffers::base(operands), target)
    }
    writev(object, engine; iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Base, datatype, op)?;
        // SAFETY: fi_atomicv(3) lends the operands until the completion.
        let operands = unsafe { action.operands(iov, count) }?;
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        let buffers = Buffers::base(operands);
        submit(engine, action, buffers.len(action)?, buffers, target)
    }
    writemsg(object, engine; msg: *const fi_msg_atomic, flags: u64) {
        // SAFETY: null or a valid message by fi_atomicmsg(3), which lends the operands until the
        // completion.
        engine.atomic(unsafe { base_op(object, msg, flags) }?)
    }
    inject(object, engine; buf: *const c_void, count: usize, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32) {
        let _ = object;
        let action = Action::new(AtomicKind::Base, datatype, op)?;
        let bytes = action.whole(count)?;
        // SAFETY: fi_inject_atomic(3) lends the operands for the call.
        let operands = unsafe { action.operand(buf, bytes) };
        let context = core::ptr::null_mut();
        let target = Target { peer, addr, key, context, flags: OpFlags::INJECT, inject: true };
        submit(engine, action, bytes, Buffers::base(operands), target)
    }
    readwrite(object, engine; buf: *const c_void, count: usize, _desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Fetch, datatype, op)?;
        let bytes = action.whole(count)?;
        // SAFETY: fi_fetch_atomic(3) lends the operands until the completion.
        let operands = unsafe { action.operand(buf, bytes) };
        // SAFETY: fi_fetch_atomic(3) lends the result buffer until the completion.
        let result = unsafe { one(result, bytes) };
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        submit(engine, action, bytes, Buffers::fetch(operands, result), target)
    }
    readwritev(object, engine; iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, results: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Fetch, datatype, op)?;
        // SAFETY: fi_fetch_atomicv(3) lends the operands until the completion.
        let operands = unsafe { action.operands(iov, count) }?;
        // SAFETY: fi_fetch_atomicv(3) lends the result buffers until the completion.
        let result = unsafe { action.gather(results, result_count) }?;
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        let buffers = Buffers::fetch(operands, result);
        submit(engine, action, buffers.len(action)?, buffers, target)
    }
    readwritemsg(object, engine; msg: *const fi_msg_atomic, results: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize, flags: u64) {
        // SAFETY: null or a valid message by fi_fetch_atomicmsg(3), which lends the buffers until
        // the completion.
        engine.atomic(unsafe { fetch_op(object, msg, (results, result_count), flags) }?)
    }
    compwrite(object, engine; buf: *const c_void, count: usize, _desc: *mut c_void, compare: *const c_void, _compare_desc: *mut c_void, result: *mut c_void, _result_desc: *mut c_void, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Compare, datatype, op)?;
        let bytes = action.whole(count)?;
        // SAFETY: fi_compare_atomic(3) lends the operands until the completion.
        let operands = unsafe { action.operand(buf, bytes) };
        // SAFETY: fi_compare_atomic(3) lends the compare values until the completion.
        let compare = unsafe { one(compare, bytes) };
        // SAFETY: fi_compare_atomic(3) lends the result buffer until the completion.
        let result = unsafe { one(result, bytes) };
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        submit(engine, action, bytes, Buffers { operands, compare, result }, target)
    }
    compwritev(object, engine; iov: *const fi_ioc, _desc: *mut *mut c_void, count: usize, compares: *const fi_ioc, _compare_desc: *mut *mut c_void, compare_count: usize, results: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize, peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32, context: *mut c_void) {
        let action = Action::new(AtomicKind::Compare, datatype, op)?;
        // SAFETY: fi_compare_atomicv(3) lends the operands until the completion.
        let operands = unsafe { action.operands(iov, count) }?;
        // SAFETY: fi_compare_atomicv(3) lends the compare values until the completion.
        let compare = unsafe { action.gather(compares, compare_count) }?;
        // SAFETY: fi_compare_atomicv(3) lends the result buffers until the completion.
        let result = unsafe { action.gather(results, result_count) }?;
        let target = Target { peer, addr, key, context, flags: object.tx_defaults(), inject: false };
        let buffers = Buffers { operands, compare, result };
        submit(engine, action, buffers.len(action)?, buffers, target)
    }
    compwritemsg(object, engine; msg: *const fi_msg_atomic, compares: *const fi_ioc, _compare_desc: *mut *mut c_void, compare_count: usize, results: *mut fi_ioc, _result_desc: *mut *mut c_void, result_count: usize, flags: u64) {
        let (results, compares) = ((results.cast_const(), result_count), (compares, compare_count));
        // SAFETY: null or a valid message by fi_compare_atomicmsg(3), which lends the buffers until
        // the completion.
        engine.atomic(unsafe { compare_op(object, msg, results, compares, flags) }?)
    }
}

/// Writes out the maximum number of elements of an operation.
///
/// # Safety
/// `count` is null or valid.
unsafe fn valid(kind: AtomicKind, datatype: u32, op: u32, count: *mut usize) -> Result<(), Errno> {
    let action = Action::new(kind, datatype, op)?;
    // SAFETY: this function's contract.
    unsafe { put(count, action.limit()) }
}

macro_rules! valid_thunks {
    ($($name:ident: $kind:ident;)*) => {$(
        unsafe extern "C" fn $name<const ENABLED: bool>(_: *mut fid_ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
            if !ENABLED {
                return Errno::ENOSYS.negative();
            }
            // SAFETY: null or valid by fi_atomicvalid(3).
            unsafe { valid(AtomicKind::$kind, datatype, op, count) }.map_or_else(Errno::negative, |()| 0)
        }
    )*};
}

valid_thunks! {
    writevalid: Base;
    readwritevalid: Fetch;
    compwritevalid: Compare;
}

/// fi_query_atomic(3).
///
/// # Safety
/// `attr` is null or valid.
pub(crate) unsafe fn query(datatype: u32, op: u32, attr: *mut fi_atomic_attr, flags: u64) -> Result<(), Errno> {
    let tagged = OpFlags::TAGGED.bits();
    let kind = match flags & !tagged {
        0 => AtomicKind::Base,
        FI_FETCH_ATOMIC => AtomicKind::Fetch,
        FI_COMPARE_ATOMIC => AtomicKind::Compare,
        _ if flags & !(tagged | FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) == 0 => return Err(Errno::EINVAL),
        _ => return Err(Errno::EBADFLAGS),
    };
    // There are no atomics on tagged receive buffers.
    if flags & tagged != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let action = Action::new(kind, datatype, op)?;
    // SAFETY: this function's contract.
    unsafe { put(attr, fi_atomic_attr { count: action.limit(), size: action.datatype.size() }) }
}
