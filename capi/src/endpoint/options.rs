//! Endpoint options (fi_getopt(3), fi_setopt(3)).

use crate::endpoint::object::{EpObj, cancel, endpoint, our_endpoint};
use crate::enosys;
use crate::ffi::ptr::{counted, put_size, read_size, status};
use core::ffi::{c_int, c_void};
use ofi_abi::{
    FI_CLASS_RX_CTX, FI_CLASS_TX_CTX, FI_OPT_BUFFERED_LIMIT, FI_OPT_BUFFERED_MIN, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT,
    FI_OPT_INJECT_ATOMIC_SIZE, FI_OPT_INJECT_MSG_SIZE, FI_OPT_INJECT_RMA_SIZE, FI_OPT_INJECT_TAGGED_SIZE,
    FI_OPT_MAX_ATOMIC_SIZE, FI_OPT_MAX_MSG_SIZE, FI_OPT_MAX_RMA_SIZE, FI_OPT_MAX_TAGGED_SIZE, FI_OPT_MIN_MULTI_RECV,
    fi_ops_ep, fid, fid_ep,
};
use ofi_core::{Caps, Errno};
use ofi_engine::limits::SizeLimit;
use ofi_engine::wire::hello::MAX_USER_DATA;

/// The table of an endpoint.
pub(super) const fn endpoint_table() -> fi_ops_ep {
    fi_ops_ep { rx_size_left, tx_size_left, ..table(cancel) }
}

/// The table of a passive endpoint, but for how many operations it takes: it has none.
pub(super) const fn table(cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize) -> fi_ops_ep {
    enosys::ep_ops(cancel, getopt, setopt)
}

/// fi_rx_size_left: receives that can be posted now. A transmit context takes none.
unsafe extern "C" fn rx_size_left(ep: *mut fid_ep) -> isize {
    let ep = our_endpoint!(ep.cast(), isize);
    let receives = ep.c.fid.fclass != FI_CLASS_TX_CTX;
    counted(if receives { Ok(ep.control.rx_size_left()) } else { Err(Errno::ENOSYS) })
}

/// fi_tx_size_left: sends and one-sided operations that can be posted now. A receive context takes
/// none.
unsafe extern "C" fn tx_size_left(ep: *mut fid_ep) -> isize {
    let ep = our_endpoint!(ep.cast(), isize);
    let transmits = ep.c.fid.fclass != FI_CLASS_RX_CTX;
    counted(if transmits { ep.control.tx_size_left() } else { Err(Errno::ENOSYS) })
}

impl EpObj {
    /// Whether it has one of these capabilities.
    fn has(&self, caps: Caps) -> bool {
        self.caps.intersects(caps)
    }
}

/// An option whose value is a size_t.
enum SizeOption {
    MinMultiRecv,
    ConnectionData,
    /// The longest buffered message that is reported whole.
    BufferedLimit,
    /// How much of a longer one is in its entry's buffer.
    BufferedMin,
    /// A size limit, which the application may lower.
    Limit(SizeLimit),
}

fn size_option(ep: Option<&EpObj>, level: c_int, name: c_int) -> core::result::Result<SizeOption, Errno> {
    if level != FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    let connected = ep.is_none_or(|ep| ep.connected);
    match (name, ep) {
        (FI_OPT_CM_DATA_SIZE, _) if connected => Ok(SizeOption::ConnectionData),
        (FI_OPT_MIN_MULTI_RECV, Some(ep)) if ep.has(Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV) => {
            Ok(SizeOption::MinMultiRecv)
        }
        (FI_OPT_BUFFERED_LIMIT, Some(ep)) if ep.control.buffered_limit().is_some() => Ok(SizeOption::BufferedLimit),
        (FI_OPT_BUFFERED_MIN, Some(ep)) if ep.control.buffered_limit().is_some() => Ok(SizeOption::BufferedMin),
        (FI_OPT_MAX_MSG_SIZE, Some(_)) => Ok(SizeOption::Limit(SizeLimit::Message)),
        (FI_OPT_MAX_TAGGED_SIZE, Some(ep)) if ep.has(Caps::TAGGED) => Ok(SizeOption::Limit(SizeLimit::TaggedMessage)),
        (FI_OPT_MAX_RMA_SIZE, Some(ep)) if ep.has(Caps::RMA) => Ok(SizeOption::Limit(SizeLimit::Access)),
        (FI_OPT_MAX_ATOMIC_SIZE, Some(ep)) if ep.has(Caps::ATOMIC) => Ok(SizeOption::Limit(SizeLimit::Atomic)),
        (FI_OPT_INJECT_MSG_SIZE, Some(_)) => Ok(SizeOption::Limit(SizeLimit::Inject)),
        (FI_OPT_INJECT_TAGGED_SIZE, Some(ep)) if ep.has(Caps::TAGGED) => Ok(SizeOption::Limit(SizeLimit::TaggedInject)),
        (FI_OPT_INJECT_RMA_SIZE, Some(ep)) if ep.has(Caps::RMA) => Ok(SizeOption::Limit(SizeLimit::InjectWrite)),
        (FI_OPT_INJECT_ATOMIC_SIZE, Some(ep)) if ep.has(Caps::ATOMIC) => Ok(SizeOption::Limit(SizeLimit::InjectAtomic)),
        _ => Err(Errno::ENOPROTOOPT),
    }
}

/// fi_getopt(3), also for passive endpoints.
unsafe extern "C" fn getopt(fid: *mut fid, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: C passes the object that holds this table; a passive endpoint shares the header.
    let ep = unsafe { endpoint(fid) }.ok();
    let found = match size_option(ep, level, name) {
        Ok(SizeOption::ConnectionData) => MAX_USER_DATA,
        Ok(SizeOption::MinMultiRecv) => ep.map_or(0, |ep| ep.control.min_multi_recv()),
        Ok(SizeOption::BufferedLimit) => ep.and_then(|ep| ep.control.buffered_limit()).unwrap_or(0),
        Ok(SizeOption::BufferedMin) => ep.map_or(0, |ep| ep.control.buffered_min()),
        Ok(SizeOption::Limit(which)) => ep.map_or(0, |ep| ep.control.limit(which)),
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid by fi_getopt(3).
    unsafe { put_size(found, value, len) }
}

/// fi_setopt(3); passive endpoints have no settable option.
unsafe extern "C" fn setopt(fid: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    // SAFETY: C passes the object that holds this table; a passive endpoint shares the header.
    let Ok(ep) = (unsafe { endpoint(fid) }) else { return Errno::ENOPROTOOPT.negative() };
    let option = match size_option(Some(ep), level, name) {
        Ok(SizeOption::ConnectionData) => return Errno::ENOPROTOOPT.negative(),
        Ok(option) => option,
        Err(errno) => return errno.negative(),
    };
    // SAFETY: null or valid by fi_setopt(3).
    let size = match unsafe { read_size(value, len) } {
        Ok(size) => size,
        Err(errno) => return errno.negative(),
    };
    match option {
        SizeOption::MinMultiRecv => ep.control.set_min_multi_recv(size),
        SizeOption::BufferedLimit => return status(ep.control.set_buffered_limit(size)),
        SizeOption::BufferedMin => return status(ep.control.set_buffered_min(size)),
        SizeOption::Limit(which) => return status(ep.control.set_limit(which, size)),
        SizeOption::ConnectionData => {}
    }
    0
}
