//! Addresses and connections (fi_cm(3)).

use super::absent;
use crate::abi::{fi_ops_cm, fid, fid_ep};
use crate::guard::{bytes, put_addr, refuse, socket_addr, status};
use crate::object::{self, EpObj, PepObj, ours};
use core::ffi::{c_int, c_void};
use ofi_core::error::Result;
use ofi_core::{Addr, Errno};
use std::sync::PoisonError;

pub(super) static CONNECTED: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen: absent::listen,
    accept,
    reject: absent::reject,
    shutdown,
    join: absent::join,
};

pub(super) static CONNECTIONLESS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname,
    getname,
    getpeer: absent::getpeer,
    connect: absent::connect,
    listen: absent::listen,
    accept: absent::accept,
    reject: absent::reject,
    shutdown: absent::shutdown,
    join: absent::join,
};

pub(super) static DATAGRAM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname,
    getname,
    getpeer: absent::getpeer,
    connect: absent::connect,
    listen: absent::listen,
    accept: absent::accept,
    reject: absent::reject,
    shutdown: absent::shutdown,
    join: super::group::join,
};

/// The address of an endpoint or a passive endpoint.
fn local_addr(fid: *mut fid) -> Result<Addr> {
    // SAFETY: C passes an endpoint or a passive endpoint, both with this table.
    if let Ok(ep) = unsafe { object::borrow::<EpObj>(fid) } {
        return ep.control.local_addr();
    }
    // SAFETY: as above.
    unsafe { object::borrow::<PepObj>(fid) }?.control.local_addr()
}

pub(super) unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, len: *mut usize) -> c_int {
    match local_addr(fid) {
        // SAFETY: fi_getname(3) passes a buffer of `*len` bytes, or null.
        Ok(local) => unsafe { put_addr(&local, addr, len) },
        Err(error) => refuse(&error),
    }
}

pub(super) unsafe extern "C" fn setname(fid: *mut fid, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: fi_setname(3) passes an address of `len` bytes, or null.
    let name = unsafe { bytes(addr, len) };
    let Some(name) = Addr::decode(&name) else { return Errno::EINVAL.negative() };
    // SAFETY: C passes an endpoint or a passive endpoint, both with this table.
    if let Ok(ep) = unsafe { object::borrow::<EpObj>(fid) } {
        return status(ep.control.set_local_addr(name));
    }
    // SAFETY: as above.
    match unsafe { object::borrow::<PepObj>(fid) } {
        Ok(pep) => status(pep.control.set_local_addr(name)),
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn getpeer(ep: *mut fid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: C passes the endpoint that holds this table.
    match unsafe { object::borrow::<EpObj>(ep.cast()) } {
        Ok(ep) => match ep.control.peer_addr() {
            // SAFETY: fi_getpeer(3) passes a buffer of `*len` bytes, or null.
            Ok(peer) => unsafe { put_addr(&peer, addr, len) },
            Err(error) => error.errno().negative(),
        },
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, len: usize) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    // SAFETY: fi_connect(3) passes an address in the endpoint's format, or null.
    let Some(to) = (unsafe { socket_addr(addr) }) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_connect(3) passes `len` bytes of data, or null.
    let data = unsafe { bytes(param, len) };
    status(ep.control.connect(to, &data))
}

unsafe extern "C" fn accept(ep: *mut fid_ep, param: *const c_void, len: usize) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    // SAFETY: fi_accept(3) passes `len` bytes of data, or null.
    let data = unsafe { bytes(param, len) };
    let request = ep.request.lock().unwrap_or_else(PoisonError::into_inner).take();
    match request {
        Some(request) => status(ep.control.accept(request, &data)),
        None => Errno::EOPBADSTATE.negative(),
    }
}

unsafe extern "C" fn shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    if flags != 0 {
        return Errno::EINVAL.negative();
    }
    // SAFETY: C passes the endpoint that holds this table.
    match unsafe { object::borrow::<EpObj>(ep.cast()) } {
        Ok(ep) => ep.control.shut_down().map_or_else(Errno::negative, |()| 0),
        Err(errno) => errno.negative(),
    }
}
