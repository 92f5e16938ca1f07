//! Addresses and connections (fi_cm(3)).

use crate::endpoint::object::{EpObj, our_endpoint};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{bytes, put_addr, refuse, sized_addr, socket_addr, status};
use core::ffi::{c_int, c_void};
use ofi_abi::{fi_ops_cm, fid, fid_ep};
use ofi_core::error::{Error, Result};
use ofi_core::negotiate::format_covers;
use ofi_core::{Addr, AddrFormat, Errno};
use ofi_engine::wire::hello::MAX_USER_DATA;
use std::sync::PoisonError;

pub(super) static CONNECTED: fi_ops_cm =
    fi_ops_cm { getpeer, connect, accept, shutdown, ..enosys::cm_ops(setname, getname) };

pub(crate) static CONNECTIONLESS: fi_ops_cm = enosys::cm_ops(setname, getname);

/// For connectionless endpoints with FI_COLLECTIVE.
pub(super) static COLLECTIVE: fi_ops_cm =
    fi_ops_cm { join: crate::objects::mc::join_collective, ..enosys::cm_ops(setname, getname) };

/// For datagram endpoints with FI_MULTICAST.
pub(super) static MULTICAST: fi_ops_cm =
    fi_ops_cm { join: crate::objects::mc::join, ..enosys::cm_ops(setname, getname) };

unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, len: *mut usize) -> c_int {
    let ep = our_endpoint!(fid);
    // SAFETY: fi_getname(3) passes a buffer of `*len` bytes, or null.
    unsafe { put_name(ep.control.local_addr(), addr, len) }
}

unsafe extern "C" fn setname(fid: *mut fid, addr: *mut c_void, len: usize) -> c_int {
    let ep = our_endpoint!(fid);
    // SAFETY: fi_setname(3) passes an address of `len` bytes, or null.
    let set = unsafe { name_of_format(addr, len, ep.format) };
    set.map_or_else(Errno::negative, |name| status(name.and_then(|name| ep.control.set_local_addr(name))))
}

/// Copies an endpoint's address out to C.
///
/// # Safety
/// `addr` is null or has `*len` writable bytes; `len` is null or valid.
pub(crate) unsafe fn put_name(name: Result<Addr>, addr: *mut c_void, len: *mut usize) -> c_int {
    match name {
        // SAFETY: this function's contract.
        Ok(local) => unsafe { put_addr(&local, addr, len) },
        Err(error) => refuse(&error),
    }
}

/// Reads an address that names an endpoint, which must be in the endpoint's format. `EINVAL` for
/// null.
///
/// # Safety
/// `addr` is null or has `len` readable bytes.
pub(crate) unsafe fn name_of_format(
    addr: *mut c_void,
    len: usize,
    format: AddrFormat,
) -> core::result::Result<Result<Addr>, Errno> {
    // SAFETY: this function's contract.
    let name = unsafe { sized_addr(addr, len) }.ok_or(Errno::EINVAL)?;
    Ok(is_of(&name, format).map(|()| name))
}

/// Refuses a name that is not in an endpoint's format.
fn is_of(name: &Addr, format: AddrFormat) -> Result<()> {
    if format_covers(format, name.format()) {
        return Ok(());
    }
    Err(Error::new(Errno::EINVAL, format!("set address {name} on an endpoint with address format {format}")))
}

unsafe extern "C" fn getpeer(ep: *mut fid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: C passes the endpoint that holds this table.
    match unsafe { handle::borrow::<EpObj>(ep.cast()) } {
        Ok(ep) => match ep.control.peer_addr() {
            // SAFETY: fi_getpeer(3) passes a buffer of `*len` bytes, or null.
            Ok(peer) => unsafe { put_addr(&peer, addr, len) },
            Err(error) => error.errno().negative(),
        },
        Err(errno) => errno.negative(),
    }
}

/// Reads the user data of a connection. `EINVAL` for more than [`MAX_USER_DATA`] bytes.
///
/// # Safety
/// `param` is null or has `len` readable bytes.
unsafe fn user_data(param: *const c_void, len: usize) -> core::result::Result<Vec<u8>, Errno> {
    if len > MAX_USER_DATA {
        return Err(Errno::EINVAL);
    }
    // SAFETY: this function's contract.
    Ok(unsafe { bytes(param, len) })
}

unsafe extern "C" fn connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, len: usize) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    // SAFETY: fi_connect(3) passes an address in the endpoint's format, or null.
    let Some(to) = (unsafe { socket_addr(addr) }) else { return Errno::EINVAL.negative() };
    // SAFETY: fi_connect(3) passes `len` bytes of data, or null.
    let Ok(data) = (unsafe { user_data(param, len) }) else { return Errno::EINVAL.negative() };
    status(ep.prepare().and_then(|()| ep.control.clone().connect(to, &data)))
}

unsafe extern "C" fn accept(ep: *mut fid_ep, param: *const c_void, len: usize) -> c_int {
    let ep = ours!(EpObj, ep.cast());
    // SAFETY: fi_accept(3) passes `len` bytes of data, or null.
    let Ok(data) = (unsafe { user_data(param, len) }) else { return Errno::EINVAL.negative() };
    let mut place = ep.request.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(request) = place.take() else { return Errno::EOPBADSTATE.negative() };
    let mut request = Some(*request);
    let accepted = ep.prepare().and_then(|()| ep.control.clone().accept(&mut request, &data));
    // It may be tried again.
    *place = request.map(Box::new);
    status(accepted)
}

unsafe extern "C" fn shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    if flags != 0 {
        return Errno::EINVAL.negative();
    }
    // SAFETY: C passes the endpoint that holds this table.
    match unsafe { handle::borrow::<EpObj>(ep.cast()) } {
        Ok(ep) => ep.control.shut_down().map_or_else(Errno::negative, |()| 0),
        Err(errno) => errno.negative(),
    }
}
