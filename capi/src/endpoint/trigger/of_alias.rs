//! The calls without flags on an alias that was opened with FI_TRIGGER (fi_ep_alias(3)): each does
//! what the call with a message structure does with the alias's flags. Calls that inject have no
//! context, and so no trigger.

use super::{atomicmsg, compare_atomicmsg, fetch_atomicmsg, readmsg, recvmsg, sendmsg, trecvmsg, tsendmsg, writemsg};
use crate::endpoint::data_path::{DataPath, DefaultFlags};
use crate::endpoint::message::IOV_LIMIT;
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

fn elements(buf: *const c_void, count: usize) -> fi_ioc {
    fi_ioc { addr: buf.cast_mut(), count }
}

/// A vector, the descriptors of its pieces, and how many there are.
type Pieces<T> = (*const T, *mut *mut c_void, usize);

/// The sum of the pieces' lengths. A call with more pieces than it may have, or longer ones than
/// memory, is refused whatever this is.
///
/// # Safety
/// `iov` is null or has `count` elements.
unsafe fn length_of<T>(iov: *const T, count: usize, len: impl Fn(&T) -> usize) -> usize {
    if iov.is_null() || count > IOV_LIMIT {
        return 0;
    }
    // SAFETY: this function's contract.
    let iov = unsafe { slice::from_raw_parts(iov, count) };
    iov.iter().fold(0, |sum, piece| sum.saturating_add(len(piece)))
}

/// Defines calls with the manual page's arguments, which pass them on in a message structure.
macro_rules! calls {
    ($($name:ident($($arg:ident: $of:ty),*) { $($make:stmt;)* } $msg:expr => $call:ident, $flags:expr, $added:expr;)*) => {$(
        unsafe extern "C" fn $name(ep: *mut fid_ep, $($arg: $of),*) -> isize {
            $($make)*
            let msg = $msg;
            // SAFETY: an open endpoint, as for every call.
            let flags = unsafe { flags_of(ep, $flags) } | $added;
            // SAFETY: the structure is valid with its vectors, which are this call's arguments.
            unsafe { $call(ep, &msg, flags) }
        }
    )*};
}

calls! {
    send(buf: *const c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data: 0 } => sendmsg, DefaultFlags::tx, 0;
    sendv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, context: *mut c_void) {
    } fi_msg { msg_iov: iov, desc, iov_count, addr, context, data: 0 } => sendmsg, DefaultFlags::tx, 0;
    senddata(buf: *const c_void, len: usize, own_desc: *mut c_void, data: u64, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data } => sendmsg, DefaultFlags::tx, DATA;
    recv(buf: *mut c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, context, data: 0 } => recvmsg, DefaultFlags::rx, 0;
    recvv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, context: *mut c_void) {
    } fi_msg { msg_iov: iov, desc, iov_count, addr, context, data: 0 } => recvmsg, DefaultFlags::rx, 0;
    tsend(buf: *const c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, tag: u64, context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore: 0, context, data: 0 }
        => tsendmsg, DefaultFlags::tx, 0;
    tsendv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, tag: u64, context: *mut c_void) {
    } fi_msg_tagged { msg_iov: iov, desc, iov_count, addr, tag, ignore: 0, context, data: 0 }
        => tsendmsg, DefaultFlags::tx, 0;
    tsenddata(buf: *const c_void, len: usize, own_desc: *mut c_void, data: u64, addr: fi_addr_t, tag: u64,
        context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore: 0, context, data }
        => tsendmsg, DefaultFlags::tx, DATA;
    trecv(buf: *mut c_void, len: usize, own_desc: *mut c_void, addr: fi_addr_t, tag: u64, ignore: u64,
        context: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } fi_msg_tagged { msg_iov: &iov, desc: &mut desc, iov_count: 1, addr, tag, ignore, context, data: 0 }
        => trecvmsg, DefaultFlags::tagged_rx, 0;
    trecvv(iov: *const iovec, desc: *mut *mut c_void, iov_count: usize, addr: fi_addr_t, tag: u64, ignore: u64,
        context: *mut c_void) {
    } fi_msg_tagged { msg_iov: iov, desc, iov_count, addr, tag, ignore, context, data: 0 }
        => trecvmsg, DefaultFlags::tagged_rx, 0;
}

/// Defines accesses likewise: `$own` is what they name here, and the remote range is as long.
macro_rules! accesses {
    ($($name:ident($($arg:ident: $of:ty),*) { $($make:stmt;)* } $own:expr, $data:expr => $call:ident, $added:expr;)*) => {$(
        unsafe extern "C" fn $name(
            ep: *mut fid_ep, $($arg: $of,)* peer: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize {
            $($make)*
            let (msg_iov, desc, iov_count): Pieces<iovec> = $own;
            // SAFETY: a vector of the caller's, or of one piece.
            let range = fi_rma_iov { addr, len: unsafe { length_of(msg_iov, iov_count, |piece| piece.iov_len) }, key };
            let (rma_iov, rma_iov_count) = (&raw const range, 1);
            let msg = fi_msg_rma { msg_iov, desc, iov_count, addr: peer, rma_iov, rma_iov_count, context, data: $data };
            // SAFETY: an open endpoint, as for every call.
            let flags = unsafe { flags_of(ep, DefaultFlags::tx) } | $added;
            // SAFETY: the structure is valid with its vectors, which are this call's arguments.
            unsafe { $call(ep, &msg, flags) }
        }
    )*};
}

accesses! {
    read(buf: *mut c_void, len: usize, own_desc: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } (&iov, &mut desc, 1), 0 => readmsg, 0;
    readv(iov: *const iovec, desc: *mut *mut c_void, count: usize) {
    } (iov, desc, count), 0 => readmsg, 0;
    write(buf: *const c_void, len: usize, own_desc: *mut c_void) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } (&iov, &mut desc, 1), 0 => writemsg, 0;
    writev(iov: *const iovec, desc: *mut *mut c_void, count: usize) {
    } (iov, desc, count), 0 => writemsg, 0;
    writedata(buf: *const c_void, len: usize, own_desc: *mut c_void, data: u64) {
        let (iov, mut desc) = (one(buf, len), own_desc);
    } (&iov, &mut desc, 1), data => writemsg, DATA;
}

/// Defines atomic operations likewise.
macro_rules! atomics {
    ($($name:ident($($arg:ident: $of:ty),*) { $($make:stmt;)* } $own:expr => $call:ident($($more:expr),*);)*) => {$(
        unsafe extern "C" fn $name(
            ep: *mut fid_ep, $($arg: $of,)* peer: fi_addr_t, addr: u64, key: u64, datatype: u32, op: u32,
            context: *mut c_void,
        ) -> isize {
            $($make)*
            let (msg_iov, desc, iov_count): Pieces<fi_ioc> = $own;
            // SAFETY: a vector of the caller's, or of one piece.
            let range = fi_rma_ioc { addr, count: unsafe { length_of(msg_iov, iov_count, |piece| piece.count) }, key };
            let (rma_iov, rma_iov_count) = (&raw const range, 1);
            let msg = fi_msg_atomic {
                msg_iov, desc, iov_count, addr: peer, rma_iov, rma_iov_count, datatype, op, context, data: 0,
            };
            // SAFETY: an open endpoint, as for every call.
            let flags = unsafe { flags_of(ep, DefaultFlags::tx) };
            // SAFETY: the structure is valid with its vectors, which are this call's arguments.
            unsafe { $call(ep, &msg, $($more,)* flags) }
        }
    )*};
}

atomics! {
    atomic_write(buf: *const c_void, count: usize, own_desc: *mut c_void) {
        let (iov, mut desc) = (elements(buf, count), own_desc);
    } (&iov, &mut desc, 1) => atomicmsg();
    atomic_writev(iov: *const fi_ioc, desc: *mut *mut c_void, count: usize) {
    } (iov, desc, count) => atomicmsg();
    fetch_atomic(buf: *const c_void, count: usize, own_desc: *mut c_void, result: *mut c_void,
        own_result_desc: *mut c_void) {
        let (iov, mut desc) = (elements(buf, count), own_desc);
        let (mut results, mut result_desc) = (elements(result, count), own_result_desc);
    } (&iov, &mut desc, 1) => fetch_atomicmsg(&mut results, &mut result_desc, 1);
    fetch_atomicv(iov: *const fi_ioc, desc: *mut *mut c_void, count: usize, results: *mut fi_ioc,
        result_desc: *mut *mut c_void, result_count: usize) {
    } (iov, desc, count) => fetch_atomicmsg(results, result_desc, result_count);
    compare_atomic(buf: *const c_void, count: usize, own_desc: *mut c_void, compare: *const c_void,
        own_compare_desc: *mut c_void, result: *mut c_void, own_result_desc: *mut c_void) {
        let (iov, mut desc) = (elements(buf, count), own_desc);
        let (compares, mut compare_desc) = (elements(compare, count), own_compare_desc);
        let (mut results, mut result_desc) = (elements(result, count), own_result_desc);
    } (&iov, &mut desc, 1)
        => compare_atomicmsg(&compares, &mut compare_desc, 1, &mut results, &mut result_desc, 1);
    compare_atomicv(iov: *const fi_ioc, desc: *mut *mut c_void, count: usize, compares: *const fi_ioc,
        compare_desc: *mut *mut c_void, compare_count: usize, results: *mut fi_ioc, result_desc: *mut *mut c_void,
        result_count: usize) {
    } (iov, desc, count)
        => compare_atomicmsg(compares, compare_desc, compare_count, results, result_desc, result_count);
}
