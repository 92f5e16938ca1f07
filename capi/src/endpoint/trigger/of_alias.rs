//! The calls without flags on an alias that was opened with FI_TRIGGER (fi_ep_alias(3)): each does
//! what the call with a message structure does with the alias's flags. Calls that inject have no
//! context, and so no trigger.

use super::{atomicmsg, compare_atomicmsg, fetch_atomicmsg, readmsg, recvmsg, sendmsg, trecvmsg, tsendmsg, writemsg};
use crate::endpoint::data_path::{DataPath, DefaultFlags};
use core::ffi::c_void;
use core::slice;
use ofi_abi::{
    fi_addr_t, fi_ioc, fi_msg, fi_msg_atomic, fi_msg_rma, fi_msg_tagged, fi_ops_atomic, fi_ops_msg, fi_ops_rma,
    fi_ops_tagged, fi_rma_ioc, fi_rma_iov, fid_ep, iovec,
};
use ofi_core::OpFlags;

/// Replaces the calls without flags.
pub(super) const fn msg(table: &fi_ops_msg) -> fi_ops_msg {
    fi_ops_msg { recv, recvv, send, sendv, senddata, ..*table }
}

/// The same of tagged messages.
pub(super) const fn tagged(table: &fi_ops_tagged) -> fi_ops_tagged {
    fi_ops_tagged { recv: trecv, recvv: trecvv, send: tsend, sendv: tsendv, senddata: tsenddata, ..*table }
}

/// The same of accesses to a peer's memory.
pub(super) const fn rma(table: &fi_ops_rma) -> fi_ops_rma {
    fi_ops_rma { read, readv, write, writev, writedata, ..*table }
}

/// The same of atomic operations.
pub(super) const fn atomic(table: &fi_ops_atomic) -> fi_ops_atomic {
    fi_ops_atomic {
        write: atomic_write,
        writev: atomic_writev,
        readwrite: fetch_atomic,
        readwritev: fetch_atomicv,
        compwrite: compare_atomic,
        compwritev: compare_atomicv,
        ..*table
    }
}

const DATA: u64 = OpFlags::REMOTE_CQ_DATA.bits();

/// The alias's flags of one kind.
///
/// # Safety
/// `ep` is an open endpoint.
unsafe fn flags_of(ep: *mut fid_ep, kind: fn(&DefaultFlags) -> u64) -> u64 {
    // SAFETY: C calls these functions through the table of the endpoint that it passes, which
    // begins with a `DataPath`.
    kind(unsafe { &(*ep.cast::<DataPath>()).defaults })
}

fn one(buf: *const c_void, len: usize) -> iovec {
    iovec { iov_base: buf.cast_mut(), iov_len: len }
}

/// The length of a vector in bytes. One that is longer than memory is refused by its call.
///
/// # Safety
/// `iov` is null or has `count` elements.
unsafe fn bytes_of(iov: *const iovec, count: usize) -> usize {
    if iov.is_null() {
        return 0;
    }
    // SAFETY: this function's contract.
    let iov = unsafe { slice::from_raw_parts(iov, count) };
    iov.iter().fold(0, |sum, piece| sum.saturating_add(piece.iov_len))
}

/// The same in elements.
///
/// # Safety
/// `iov` is null or has `count` elements.
unsafe fn elements_of(iov: *const fi_ioc, count: usize) -> usize {
    if iov.is_null() {
        return 0;
    }
    // SAFETY: this function's contract.
    let iov = unsafe { slice::from_raw_parts(iov, count) };
    iov.iter().fold(0, |sum, piece| sum.saturating_add(piece.count))
}

/// Calls with the arguments of the manual page, each of which makes a message structure.
macro_rules! calls {
    ($($name:ident($($arg:ident: $of:ty),*) { $($make:stmt;)* } $msg:expr => $call:ident($($more:expr),*), $flags:expr, $added:expr;)*) => {$(
        unsafe extern "C" fn $name(ep: *mut fid_ep, $($arg: $of),*) -> isize {
            $($make)*
            let msg = $msg;
            // SAFETY: an open endpoint, as for every call.
            let flags = unsafe { flags_of(ep, $flags) } | $added;
            // SAFETY: the structure is valid with its vectors, which are this call's arguments.
            unsafe { $call(ep, &msg, $($more,)* flags) }
        }
    )*};
}

calls! {
    send(buf: *const c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data: 0 } => sendmsg(), DefaultFlags::tx, 0;
    sendv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, context: *mut c_void) {
    } fi_msg { msg_iov: iov, desc, iov_count, addr, context, data: 0 } => sendmsg(), DefaultFlags::tx, 0;
    senddata(buf: *const c_void, len: usize, own_desc: *mut c_void, data: u64, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data } => sendmsg(), DefaultFlags::tx, DATA;
    recv(buf: *mut c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data: 0 } => recvmsg(), DefaultFlags::rx, 0;
    recvv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, context: *mut c_void) {
    } fi_msg { msg_iov: iov, desc, iov_count, addr, context, data: 0 } => recvmsg(), DefaultFlags::rx, 0;
    tsend(buf: *const c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, tag: u64, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore: 0, context, data: 0 }
        => tsendmsg(), DefaultFlags::tx, 0;
    tsendv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, tag: u64, context: *mut c_void) {
    } fi_msg_tagged { msg_iov: iov, desc, iov_count, addr, tag, ignore: 0, context, data: 0 }
        => tsendmsg(), DefaultFlags::tx, 0;
    tsenddata(buf: *const c_void, len: usize, own_desc: *mut c_void, data: u64, addr: fi_addr_t, tag: u64,
        context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore: 0, context, data }
        => tsendmsg(), DefaultFlags::tx, DATA;
    trecv(buf: *mut c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, tag: u64, ignore: u64,
        context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore, context, data: 0 }
        => trecvmsg(), DefaultFlags::tagged_rx, 0;
    trecvv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, tag: u64, ignore: u64,
        context: *mut c_void) {
    } fi_msg_tagged { msg_iov: iov, desc, iov_count, addr, tag, ignore, context, data: 0 }
        => trecvmsg(), DefaultFlags::tagged_rx, 0;
}

/// The same for accesses: one remote range, as long as what is here.
macro_rules! accesses {
    ($($name:ident($($arg:ident: $of:ty),*) $iov:expr, $data:expr => $call:ident, $added:expr;)*) => {$(
        unsafe extern "C" fn $name(
            ep: *mut fid_ep, $($arg: $of,)* peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize {
            let (own, mut own_desc);
            // A vector is the caller's, a buffer one of a single piece.
            let (msg_iov, desc, iov_count) = match $iov {
                Local::One(buf, len, desc) => {
                    (own, own_desc) = (one(buf, len), desc);
                    (&raw const own, &raw mut own_desc, 1)
                }
                Local::Many(iov, desc, count) => (iov, desc, count),
            };
            // SAFETY: a vector of the caller's or the one above.
            let range = fi_rma_iov { addr, len: unsafe { bytes_of(msg_iov, iov_count) }, key };
            let (rma_iov, rma_iov_count) = (&raw const range, 1);
            let msg = fi_msg_rma { msg_iov, desc, iov_count, addr: peer, rma_iov, rma_iov_count, context, data: $data };
            // SAFETY: an open endpoint, as for every call.
            let flags = unsafe { flags_of(ep, DefaultFlags::tx) } | $added;
            // SAFETY: the structure is valid with its vectors, which are this call's arguments.
            unsafe { $call(ep, &msg, flags) }
        }
    )*};
}

/// What an access names on this side.
enum Local {
    One(*const c_void, usize, *mut c_void),
    Many(*const iovec, *mut *mut c_void, usize),
}

accesses! {
    read(buf: *mut c_void, len: usize, desc: *mut c_void) Local::One(buf, len, desc), 0 => readmsg, 0;
    readv(iov: *const iovec, desc: *mut *mut c_void, count: usize) Local::Many(iov, desc, count), 0 => readmsg, 0;
    write(buf: *const c_void, len: usize, desc: *mut c_void) Local::One(buf, len, desc), 0 => writemsg, 0;
    writev(iov: *const iovec, desc: *mut *mut c_void, count: usize) Local::Many(iov, desc, count), 0 => writemsg, 0;
    writedata(buf: *const c_void, len: usize, desc: *mut c_void, data: u64) Local::One(buf, len, desc), data
        => writemsg, DATA;
}

/// Where and how an atomic operation acts.
struct Atomic {
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
}

impl Atomic {
    /// Has `call` act with this operation's structure, and with the alias's flags.
    ///
    /// # Safety
    /// `ep` is an open endpoint, and `iov` null or a vector of `count` pieces with as many `desc`.
    unsafe fn act(
        self,
        ep: *mut fid_ep,
        (msg_iov, desc, iov_count): (*const fi_ioc, *mut *mut c_void, usize),
        call: impl FnOnce(*const fi_msg_atomic, u64) -> isize,
    ) -> isize {
        let Self { peer, addr, key, datatype, op, context } = self;
        // SAFETY: this function's contract.
        let range = fi_rma_ioc { addr, count: unsafe { elements_of(msg_iov, iov_count) }, key };
        let (rma_iov, rma_iov_count) = (&raw const range, 1);
        let msg = fi_msg_atomic {
            msg_iov,
            desc,
            iov_count,
            addr: peer,
            rma_iov,
            rma_iov_count,
            datatype,
            op,
            context,
            data: 0,
        };
        // SAFETY: this function's contract.
        call(&raw const msg, unsafe { flags_of(ep, DefaultFlags::tx) })
    }
}

unsafe extern "C" fn atomic_writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    desc: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let atomic = Atomic { peer, addr, key, datatype, op, context };
    // SAFETY: the structure is valid with its vectors, which are this call's arguments.
    let call = |msg, flags| unsafe { atomicmsg(ep, msg, flags) };
    // SAFETY: the arguments are those of this call.
    unsafe { atomic.act(ep, (iov, desc, count), call) }
}

unsafe extern "C" fn atomic_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    mut desc: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let iov = fi_ioc { addr: buf.cast_mut(), count };
    // SAFETY: a vector of one piece.
    unsafe { atomic_writev(ep, &raw const iov, &raw mut desc, 1, peer, addr, key, datatype, op, context) }
}

unsafe extern "C" fn fetch_atomicv(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    desc: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    result_desc: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let atomic = Atomic { peer, addr, key, datatype, op, context };
    // SAFETY: the structure is valid with its vectors, which are this call's arguments.
    let call = |msg, flags| unsafe { fetch_atomicmsg(ep, msg, results, result_desc, result_count, flags) };
    // SAFETY: the arguments are those of this call.
    unsafe { atomic.act(ep, (iov, desc, count), call) }
}

unsafe extern "C" fn fetch_atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    mut desc: *mut c_void,
    result: *mut c_void,
    mut result_desc: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let iov = fi_ioc { addr: buf.cast_mut(), count };
    let mut results = fi_ioc { addr: result, count };
    let (desc, results, result_desc) = (&raw mut desc, &raw mut results, &raw mut result_desc);
    // SAFETY: vectors of one piece.
    unsafe {
        fetch_atomicv(ep, &raw const iov, desc, 1, results, result_desc, 1, peer, addr, key, datatype, op, context)
    }
}

unsafe extern "C" fn compare_atomicv(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    desc: *mut *mut c_void,
    count: usize,
    compares: *const fi_ioc,
    compare_desc: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    result_desc: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let atomic = Atomic { peer, addr, key, datatype, op, context };
    // SAFETY: the structure is valid with its vectors, which are this call's arguments.
    let call = |msg, flags| unsafe {
        compare_atomicmsg(ep, msg, compares, compare_desc, compare_count, results, result_desc, result_count, flags)
    };
    // SAFETY: the arguments are those of this call.
    unsafe { atomic.act(ep, (iov, desc, count), call) }
}

unsafe extern "C" fn compare_atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    mut desc: *mut c_void,
    compare: *const c_void,
    mut compare_desc: *mut c_void,
    result: *mut c_void,
    mut result_desc: *mut c_void,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let iov = fi_ioc { addr: buf.cast_mut(), count };
    let compares = fi_ioc { addr: compare.cast_mut(), count };
    let mut results = fi_ioc { addr: result, count };
    let (iov, desc) = (&raw const iov, &raw mut desc);
    let (compares, compare_desc) = (&raw const compares, &raw mut compare_desc);
    let (results, result_desc) = (&raw mut results, &raw mut result_desc);
    // SAFETY: vectors of one piece.
    unsafe {
        compare_atomicv(
            ep,
            iov,
            desc,
            1,
            compares,
            compare_desc,
            1,
            results,
            result_desc,
            1,
            peer,
            addr,
            key,
            datatype,
            op,
            context,
        )
    }
}
