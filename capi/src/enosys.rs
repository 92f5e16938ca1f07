//! Stubs that return -FI_ENOSYS: whole tables of unsupported operations, tables to which an object
//! adds what it supports, and single slots.

use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{
    fi_addr_t, fi_ops, fi_ops_cm, fi_ops_collective, fi_ops_ep, fi_rx_attr, fi_tx_attr, fid, fid_ep, fid_mc, fid_pep,
};
use ofi_core::Errno;

const ENOSYS: c_int = Errno::ENOSYS.negative();

/// For any slot: `int` and `ssize_t` are returned in the same register.
pub(crate) unsafe extern "C" fn enosys() -> isize {
    Errno::ENOSYS.negative() as isize
}

pub(crate) static COLLECTIVE: fi_ops_collective = fi_ops_collective {
    size: size_of::<fi_ops_collective>(),
    barrier,
    broadcast,
    alltoall: exchange,
    allreduce: combine,
    allgather: exchange,
    reduce_scatter: combine,
    reduce,
    scatter: root,
    gather: root,
    msg: enosys,
    barrier2,
};

macro_rules! collectives {
    ($($name:ident($($type:ty),*);)*) => {$(
        unsafe extern "C" fn $name($(_: $type),*) -> isize {
            ENOSYS as isize
        }
    )*};
}

type Ep = *mut fid_ep;
type In = *const c_void;
type Out = *mut c_void;

collectives! {
    barrier(Ep, fi_addr_t, Out);
    barrier2(Ep, fi_addr_t, u64, Out);
    broadcast(Ep, Out, usize, Out, fi_addr_t, fi_addr_t, u32, u64, Out);
    exchange(Ep, In, usize, Out, Out, Out, fi_addr_t, u32, u64, Out);
    combine(Ep, In, usize, Out, Out, Out, fi_addr_t, u32, u32, u64, Out);
    reduce(Ep, In, usize, Out, Out, Out, fi_addr_t, fi_addr_t, u32, u32, u64, Out);
    root(Ep, In, usize, Out, Out, Out, fi_addr_t, fi_addr_t, u32, u64, Out);
}

/// The general operations of an object that supports only fi_close.
pub(crate) const fn fid_ops(close: unsafe extern "C" fn(*mut fid) -> c_int) -> fi_ops {
    fi_ops { size: size_of::<fi_ops>(), close, bind, control, ops_open, tostr, ops_set }
}

/// The operations of an endpoint that supports only options and fi_cancel.
pub(crate) const fn ep_ops(
    cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize,
    getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
) -> fi_ops_ep {
    fi_ops_ep {
        size: size_of::<fi_ops_ep>(),
        cancel,
        getopt,
        setopt,
        tx_ctx,
        rx_ctx,
        rx_size_left: size_left,
        tx_size_left: size_left,
        export_xpu: enosys,
    }
}

/// Connection management of an endpoint that supports only names.
pub(crate) const fn cm_ops(
    setname: unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int,
    getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
) -> fi_ops_cm {
    let size = size_of::<fi_ops_cm>();
    fi_ops_cm { size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join }
}

unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    ENOSYS
}

unsafe extern "C" fn control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    ENOSYS
}

unsafe extern "C" fn ops_open(_: *mut fid, _: *const c_char, _: u64, _: *mut *mut c_void, _: *mut c_void) -> c_int {
    ENOSYS
}

unsafe extern "C" fn ops_set(_: *mut fid, _: *const c_char, _: u64, _: *mut c_void, _: *mut c_void) -> c_int {
    ENOSYS
}

unsafe extern "C" fn tx_ctx(
    _: *mut fid_ep,
    _: c_int,
    _: *mut fi_tx_attr,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    ENOSYS
}

unsafe extern "C" fn rx_ctx(
    _: *mut fid_ep,
    _: c_int,
    _: *mut fi_rx_attr,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    ENOSYS
}

unsafe extern "C" fn size_left(_: *mut fid_ep) -> isize {
    ENOSYS as isize
}

unsafe extern "C" fn tostr(_: *const fid, _: *mut c_char, _: usize) -> c_int {
    ENOSYS
}

unsafe extern "C" fn listen(_: *mut fid_pep) -> c_int {
    ENOSYS
}

unsafe extern "C" fn reject(_: *mut fid_pep, _: *mut fid, _: *const c_void, _: usize) -> c_int {
    ENOSYS
}

unsafe extern "C" fn connect(_: *mut fid_ep, _: *const c_void, _: *const c_void, _: usize) -> c_int {
    ENOSYS
}

unsafe extern "C" fn accept(_: *mut fid_ep, _: *const c_void, _: usize) -> c_int {
    ENOSYS
}

unsafe extern "C" fn getpeer(_: *mut fid_ep, _: *mut c_void, _: *mut usize) -> c_int {
    ENOSYS
}

unsafe extern "C" fn shutdown(_: *mut fid_ep, _: u64) -> c_int {
    ENOSYS
}

unsafe extern "C" fn join(_: *mut fid_ep, _: *const c_void, _: u64, _: *mut *mut fid_mc, _: *mut c_void) -> c_int {
    ENOSYS
}
