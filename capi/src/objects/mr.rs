//! Memory registration (fi_mr(3)). Local buffers need no registration: regions are for access by
//! peers, and descriptors are ignored.

use crate::endpoint::object::{EpObj, endpoint};
use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::{make, put, status};
use crate::objects::cntr::CntrObj;
use crate::objects::domain::DomainObj;
use crate::objects::memory::{RAW_KEY_SIZE, locked};
use core::ffi::{c_int, c_void};
use ofi_abi::FI_CLASS_MR;
use ofi_abi::{
    FI_ENABLE, FI_GET_RAW_MR, FI_HMEM_SYSTEM, FI_REFRESH, FI_RMA_EVENT, FI_RMA_PMEM, fi_mr_attr, fi_mr_modify,
    fi_mr_raw_attr, fi_ops, fi_ops_mr, fid, fid_mr, iovec,
};
use ofi_core::caps::MrAccess;
use ofi_core::error::{Error, Result};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{BindFlags, Errno, Version};
use ofi_engine::endpoint::CLOSE_DEADLINE;
use ofi_engine::target::mr::{KeyChoice, MemoryRegion, NO_KEY};
use ofi_memory::{Reach, Region};
use ofi_sync::busy::{Child, Children};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum number of buffers of a region (`mr_iov_limit`).
const IOV_LIMIT: usize = 8;
/// The last interface of device memory that the headers define (FI_HMEM_SYNAPSEAI).
const LAST_DEVICE: u32 = 5;

pub(crate) static OPS: fi_ops_mr = fi_ops_mr { size: size_of::<fi_ops_mr>(), reg, regv, regattr };

/// A memory region.
#[repr(C)]
pub(crate) struct MrObj {
    pub(crate) c: fid_mr,
    region: Arc<MemoryRegion>,
    /// Address and length of its buffers.
    buffers: Vec<(usize, usize)>,
    domain: *const DomainObj,
    bound: Mutex<Bound>,
    /// Number of regions within this one (`base_mr`).
    parts: Children,
    /// Keeps the base region of a sub-region open.
    _base: Option<Child>,
    _parent: Child,
}

/// The objects bound to a region.
#[derive(Default)]
struct Bound {
    /// Keep the counters and the endpoint open.
    users: Vec<Child>,
    has_endpoint: bool,
    /// fi_mr_enable has been called.
    enabled: bool,
}

object!(MrObj, FI_CLASS_MR, FID_OPS, c.fid []);

pub(crate) static FID_OPS: fi_ops = fi_ops { bind, control, ..enosys::fid_ops(close) };

/// A request to register memory.
struct Request<'a> {
    buffers: &'a [iovec],
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    base: Option<&'a MrObj>,
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain);
    let buffers = &[iovec { iov_base: buf.cast_mut(), iov_len: len }];
    let request = Request { buffers, access, offset, requested_key, flags, base: None };
    // SAFETY: `out` is null or valid by fi_mr_reg(3), and the region is new; the application keeps
    // the buffer until it closes the region.
    unsafe { make(out, WHAT, |_| register(domain, &request, context)) }
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let domain = ours!(DomainObj, domain);
    // SAFETY: fi_mr_regv(3) passes `count` elements, or null.
    let buffers = match unsafe { vector(iov, count) } {
        Ok(buffers) => buffers,
        Err(error) => return status(Err(error)),
    };
    let request = Request { buffers, access, offset, requested_key, flags, base: None };
    // SAFETY: `out` is null or valid by fi_mr_regv(3), and the region is new; the application keeps
    // the buffers until it closes the region.
    unsafe { make(out, WHAT, |_| register(domain, &request, context)) }
}

unsafe extern "C" fn regattr(domain: *mut fid, attr: *const fi_mr_attr, flags: u64, out: *mut *mut fid_mr) -> c_int {
    let domain = ours!(DomainObj, domain);
    if attr.is_null() {
        return Errno::EINVAL.negative();
    }
    // SAFETY: not null, so it has the fields of the caller's version by fi_mr_regattr(3).
    let read = unsafe { attributes(attr, domain.api, flags) };
    let (request, context) = match read {
        Ok(read) => read,
        Err(error) => return status(Err(error)),
    };
    // SAFETY: `out` is null or valid by fi_mr_regattr(3), and the region is new; the application
    // keeps the buffers until it closes the region.
    unsafe { make(out, WHAT, |_| register(domain, &request, context)) }
}

const WHAT: &str = "register memory";

#[cold]
fn refused(errno: Errno, why: impl core::fmt::Display) -> Error {
    Error::new(errno, format!("{WHAT}: {why}"))
}

/// The buffers of a vector.
///
/// # Safety
/// `iov` is null or has `count` elements, for as long as the result is used.
unsafe fn vector<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count == 0 || count > IOV_LIMIT || iov.is_null() {
        return Err(refused(Errno::EINVAL, format_args!("{count} buffers, of 1 to {IOV_LIMIT}")));
    }
    // SAFETY: not null, so `count` elements are there.
    Ok(unsafe { core::slice::from_raw_parts(iov, count) })
}

/// The fields of the attributes that the caller's version has. Those of a later version may lie
/// behind the end of the caller's structure.
///
/// # Safety
/// `attr` has the fields of that version, with valid pointers.
unsafe fn attributes<'a>(attr: *const fi_mr_attr, api: Version, flags: u64) -> Result<(Request<'a>, *mut c_void)> {
    macro_rules! field {
        ($field:ident) => {
            // SAFETY: the caller's version has the field by this function's contract, and this
            // makes no reference to the others.
            unsafe { (&raw const (*attr).$field).read() }
        };
    }
    if api >= Version::new(1, 5) && field!(auth_key_size) != 0 {
        return Err(refused(Errno::EINVAL, "the domain has no authorization keys"));
    }
    // The field counts only with FI_HMEM, which no provider offers, but device memory is not
    // accessible in any case.
    if api >= Version::new(1, 9) && (FI_HMEM_SYSTEM + 1..=LAST_DEVICE).contains(&field!(iface)) {
        return Err(refused(Errno::ENOSYS, "device memory"));
    }
    let base: *const fid = if api >= Version::new(2, 0) { field!(base_mr).cast() } else { core::ptr::null() };
    let base = if base.is_null() {
        None
    } else {
        // SAFETY: a region, ours or another library's, by fi_mr_regattr(3).
        Some(unsafe { handle::borrow::<MrObj>(base.cast_mut()) }.map_err(|errno| refused(errno, "its base_mr"))?)
    };
    let (iov, count) = (field!(mr_iov), field!(iov_count));
    // SAFETY: this function's contract.
    let buffers = unsafe { vector(iov, count) }?;
    let (access, offset, requested_key) = (field!(access), field!(offset), field!(requested_key));
    Ok((Request { buffers, access, offset, requested_key, flags, base }, field!(context)))
}

impl Request<'_> {
    fn check(&self, domain: &DomainObj) -> Result<MrAccess> {
        let unknown = self.flags & !(FI_RMA_EVENT | FI_RMA_PMEM);
        if unknown != 0 {
            return Err(refused(Errno::EBADFLAGS, format_args!("the flags {unknown:#x} are not supported")));
        }
        let access = MrAccess::from_bits_retain(self.access);
        let known = MrAccess::COLLECTIVE
            | (MrAccess::READ | MrAccess::WRITE)
            | (MrAccess::SEND | MrAccess::RECV)
            | MrAccess::REMOTE;
        if !known.contains(access) {
            return Err(refused(Errno::EINVAL, format_args!("unknown rights in {:#x}", self.access)));
        }
        if self.offset != 0 {
            return Err(refused(Errno::EINVAL, "an offset other than 0"));
        }
        if self.buffers.iter().all(|buffer| buffer.iov_len == 0) {
            return Err(refused(Errno::EINVAL, "no bytes"));
        }
        if self.requested_key == NO_KEY && access.intersects(MrAccess::REMOTE) && !domain.memory.provider_keys {
            return Err(refused(Errno::EKEYREJECTED, "the key FI_KEY_NOTAVAIL"));
        }
        if let Some(base) = self.base {
            base.check_part(domain, self.buffers)?;
        }
        Ok(access)
    }
}

/// Registers memory.
fn register(domain: &DomainObj, request: &Request<'_>, context: *mut c_void) -> Result<*mut fid_mr> {
    let access = request.check(domain)?;
    let memory = &domain.memory;
    let buffers: Vec<(usize, usize)> =
        request.buffers.iter().map(|buffer| (buffer.iov_base.addr(), buffer.iov_len)).collect();
    let ranges: Vec<(*mut u8, usize)> =
        request.buffers.iter().map(|buffer| (buffer.iov_base.cast(), buffer.iov_len)).collect();
    let first = if memory.virtual_addresses { buffers.first().map_or(0, |(base, _)| *base as u64) } else { 0 };
    let is_mapped = |write| ofi_os::mappings::are_mapped(buffers.iter().copied(), write);
    // SAFETY: the application lends the memory by fi_mr(3). Without FI_MR_ALLOCATED, which no
    // provider requires, it may be mapped later.
    let reach = unsafe { Reach::of(&ranges, access, is_mapped) };
    // SAFETY: fi_mr(3) has the application keep the memory until fi_close returns, which waits
    // until the region is idle; memory that is not mapped now is probed.
    let region =
        unsafe { Region::new(&ranges, first, access, reach) }.map_err(|error| refused(Errno::EINVAL, error))?;
    let mut random = || u64::from_ne_bytes(ofi_os::random());
    let key = if memory.provider_keys {
        KeyChoice::Random(&mut random)
    } else {
        KeyChoice::Application(request.requested_key)
    };
    let waits = memory.waits_for_endpoint || memory.waits_for_counters && request.flags & FI_RMA_EVENT != 0;
    let region = if request.flags & FI_RMA_PMEM == 0 {
        memory.regions.register(region, access, key, !waits)?
    } else {
        memory.regions.register_persistent(region, access, key, !waits)?
    };
    let c = fid_mr { fid: handle::header::<MrObj>(context), mem_desc: core::ptr::null_mut(), key: region.key() };
    let mr = handle::install(MrObj {
        c,
        region,
        buffers,
        domain,
        bound: Mutex::default(),
        parts: Children::new(),
        _base: request.base.map(|base| base.parts.add()),
        _parent: domain.children.add(),
    });
    // SAFETY: made above and not handed out yet.
    unsafe { (*mr).c.mem_desc = mr.cast() };
    Ok(mr.cast())
}

impl MrObj {
    fn domain(&self) -> &DomainObj {
        // SAFETY: the domain stays open while it has regions.
        unsafe { &*self.domain }
    }

    /// Whether buffers lie within this region's.
    fn check_part(&self, domain: &DomainObj, buffers: &[iovec]) -> Result<()> {
        if !core::ptr::eq(self.domain, domain) {
            return Err(refused(Errno::EDOMAIN, "its base_mr is a region of another domain"));
        }
        let within = |part: &iovec| {
            self.buffers.iter().any(|(base, len)| {
                part.iov_base.addr().checked_sub(*base).is_some_and(|at| at <= *len && part.iov_len <= len - at)
            })
        };
        if buffers.iter().all(within) { Ok(()) } else { Err(refused(Errno::EINVAL, "beyond its base_mr")) }
    }

    fn bind_counter(&self, cntr: &CntrObj, flags: u64) -> Result<()> {
        if !self.domain().memory.events {
            return Err(Error::new(Errno::ENOSYS, "bind a counter to a memory region without FI_RMA_EVENT"));
        }
        if !core::ptr::eq(cntr.domain, self.domain) {
            return Err(Error::new(Errno::EDOMAIN, "bind a counter to a memory region of another domain"));
        }
        let mut bound = self.bindable()?;
        self.domain().memory.followed.add_counter(&cntr.control)?;
        self.region.bind_counter(cntr.control.clone(), BindFlags::from_bits_retain(flags))?;
        bound.users.push(cntr.control.users().add());
        Ok(())
    }

    fn bind_endpoint(&self, ep: &EpObj, flags: u64) -> Result<()> {
        if flags != 0 {
            return Err(Error::new(Errno::EBADFLAGS, "bind an endpoint to a memory region with flags"));
        }
        if !core::ptr::eq(ep.domain, self.domain) {
            return Err(Error::new(Errno::EDOMAIN, "bind an endpoint to a memory region of another domain"));
        }
        let mut bound = self.bindable()?;
        bound.users.push(ep.dependents.add());
        bound.has_endpoint = true;
        Ok(())
    }

    /// The bound objects, unless the region is enabled.
    fn bindable(&self) -> Result<MutexGuard<'_, Bound>> {
        let bound = locked(&self.bound);
        if bound.enabled {
            return Err(Error::new(Errno::EOPBADSTATE, "bind to a memory region that is enabled"));
        }
        Ok(bound)
    }

    fn enable(&self) -> Result<()> {
        let mut bound = locked(&self.bound);
        if self.domain().memory.waits_for_endpoint && !bound.has_endpoint {
            return Err(Error::new(Errno::EOPBADSTATE, "enable a memory region without an endpoint"));
        }
        bound.enabled = true;
        self.region.enable();
        Ok(())
    }

    /// Writes out the raw key, as much as fits, and its size (fi_mr_raw_attr).
    ///
    /// # Safety
    /// The places are null or valid, that of the key with the given size.
    unsafe fn raw_attr(&self, attr: &fi_mr_raw_attr) -> core::result::Result<(), Errno> {
        if attr.flags != 0 {
            return Err(Errno::EBADFLAGS);
        }
        // SAFETY: null or valid by this function's contract.
        let size = unsafe { attr.key_size.as_mut() }.ok_or(Errno::EINVAL)?;
        let room = core::mem::replace(size, RAW_KEY_SIZE);
        if attr.raw_key.is_null() || room < RAW_KEY_SIZE {
            return Err(Errno::ETOOSMALL);
        }
        // SAFETY: there is room for a raw key by this function's contract.
        unsafe { attr.raw_key.cast::<[u8; RAW_KEY_SIZE]>().write(self.region.key().to_le_bytes()) };
        // SAFETY: null or valid by this function's contract.
        unsafe { put(attr.base_addr, self.region.region().first()) }
    }

    /// The pages of a region have changed (fi_mr_refresh). Addresses are looked up at each access,
    /// so there is nothing to do.
    fn refresh(modify: &fi_mr_modify) -> core::result::Result<(), Errno> {
        match modify {
            fi_mr_modify { flags: 0, .. } => Ok(()),
            _ => Err(Errno::EBADFLAGS),
        }
    }
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let mr = ours!(MrObj, fid);
    // SAFETY: fi_mr_bind(3) passes an object, ours or another library's.
    if let Ok(cntr) = unsafe { handle::borrow::<CntrObj>(other) } {
        return status(mr.bind_counter(cntr, flags));
    }
    // SAFETY: as above.
    if let Ok(ep) = unsafe { endpoint(other) } {
        return status(mr.bind_endpoint(ep, flags));
    }
    // SAFETY: as above.
    unsafe { handle::unfit(other) }.negative()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let mr = ours!(MrObj, fid);
    let result = match command {
        FI_ENABLE => return status(mr.enable()),
        FI_GET_RAW_MR => {
            // SAFETY: null or valid by fi_mr_raw_attr, fi_mr(3).
            let attr = unsafe { arg.cast::<fi_mr_raw_attr>().as_ref() };
            // SAFETY: its places are null or valid.
            attr.ok_or(Errno::EINVAL).and_then(|attr| unsafe { mr.raw_attr(attr) })
        }
        FI_REFRESH => {
            // SAFETY: null or valid by fi_mr_refresh, fi_mr(3).
            unsafe { arg.cast::<fi_mr_modify>().as_ref() }.ok_or(Errno::EINVAL).and_then(MrObj::refresh)
        }
        _ => Err(Errno::ENOSYS),
    };
    result.map_or_else(Errno::negative, |()| 0)
}

/// Ends the registration: afterwards no peer accesses the memory. If a peer's access has not ended
/// at the deadline, the region is disabled but stays open.
unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    let mr = ours!(MrObj, fid);
    if mr.parts.count() > 0 {
        return Errno::EBUSY.negative();
    }
    let memory = &mr.domain().memory;
    memory.regions.remove(&mr.region);
    if !memory.wait_until_idle(&mr.region) {
        log::log("", Level::Warn, Subsystem::Mr, || {
            format!("close a memory region: a peer still uses it after {CLOSE_DEADLINE:?}")
        });
        return Errno::EBUSY.negative();
    }
    // SAFETY: nothing else refers to it, and fi_close(3) forbids its use from now on.
    drop(unsafe { handle::reclaim::<MrObj>(fid) });
    0
}
