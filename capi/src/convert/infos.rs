//! C infos, allocated with malloc. Each node and member is a block of its own, because programs
//! free some of them themselves. Blocks are linked in before they are filled, so that a partial
//! info is freed when memory runs out.

use super::blocks::{free_list, release};
use super::nic;
use crate::enosys;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{
    FI_CLASS_NIC, FI_DUP, fi_bus_attr, fi_device_attr, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info,
    fi_link_attr, fi_ops, fi_pci_attr, fi_rx_attr, fi_tx_attr, fid, fid_nic,
};
use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Info, LinkState, Nic, RxAttr, TxAttr};
use ofi_core::{Addr, Errno};

/// The result of an allocation with malloc: `ENOMEM` if it fails.
pub(crate) type AllocResult<T> = Result<T, Errno>;

/// An owned list of infos, which may be empty; freed when dropped.
#[derive(Debug)]
pub(crate) struct Infos(*mut fi_info);

impl Infos {
    const NONE: Self = Self(core::ptr::null_mut());

    /// Hands the list to C, which frees it.
    pub(crate) fn into_raw(self) -> *mut fi_info {
        core::mem::ManuallyDrop::new(self).0
    }

    /// The list, still owned by this value; null if it is empty.
    pub(crate) const fn as_ptr(&self) -> *mut fi_info {
        self.0
    }

    pub(crate) fn node(&mut self) -> Option<&mut fi_info> {
        // SAFETY: null, or a list that this value owns.
        unsafe { self.0.as_mut() }
    }

    /// An empty list.
    pub(crate) const fn none() -> Self {
        Self::NONE
    }

    /// Puts another list behind this one.
    pub(crate) fn append(&mut self, other: Self) {
        let Some(mut last) = self.node() else {
            *self = other;
            return;
        };
        // SAFETY: null, or the next node of the list that this value owns.
        while let Some(next) = unsafe { last.next.as_mut() } {
            last = next;
        }
        last.next = other.into_raw();
    }

    /// Sets the handle of the first info.
    pub(crate) fn set_handle(&mut self, handle: *mut fid) {
        if let Some(node) = self.node() {
            node.handle = handle;
        }
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        // SAFETY: this value owns the list, which is allocated with malloc.
        unsafe { free_list(self.0) };
    }
}

fn checked<T>(place: *mut c_void) -> AllocResult<*mut T> {
    if place.is_null() { Err(Errno::ENOMEM) } else { Ok(place.cast()) }
}

/// Points `slot` to a new block with that value.
fn fill<T>(slot: &mut *mut T, value: T) -> AllocResult<&mut T> {
    // SAFETY: calloc takes any sizes.
    *slot = checked(unsafe { libc::calloc(1, size_of::<T>()) })?;
    // SAFETY: a fresh block of the right size, aligned for everything.
    unsafe { slot.write(value) };
    // SAFETY: it was just filled, and is not shared.
    Ok(unsafe { &mut **slot })
}

/// A copy of `len` bytes; null for none.
///
/// # Safety
/// `data` is null or has `len` readable bytes.
unsafe fn copied(data: *const c_void, len: usize) -> AllocResult<*mut c_void> {
    if data.is_null() || len == 0 {
        return Ok(core::ptr::null_mut());
    }
    // SAFETY: malloc takes any size.
    let place = checked(unsafe { libc::malloc(len) })?;
    // SAFETY: `len` bytes are readable by this function's contract, and the block has as many.
    unsafe { core::ptr::copy_nonoverlapping(data.cast::<u8>(), place, len) };
    Ok(place.cast())
}

/// A copy of bytes; null for none.
fn block(bytes: &[u8]) -> AllocResult<*mut u8> {
    // SAFETY: a slice has its bytes.
    unsafe { copied(bytes.as_ptr().cast(), bytes.len()) }.map(<*mut c_void>::cast)
}

/// A copy of a C string; null for none.
///
/// # Safety
/// `text` is null or ends with NUL.
unsafe fn copied_string(text: *const c_char) -> AllocResult<*mut c_char> {
    if text.is_null() {
        return Ok(core::ptr::null_mut());
    }
    // SAFETY: not null, so it ends with NUL.
    checked(unsafe { libc::strdup(text) }.cast())
}

/// A text as a C string, cut at its first NUL; null for none.
pub(super) fn string(text: Option<&str>) -> AllocResult<*mut c_char> {
    let Some(text) = text else { return Ok(core::ptr::null_mut()) };
    let len = text.bytes().position(|byte| byte == 0).unwrap_or(text.len());
    // SAFETY: the text has at least that many bytes, and none of them is NUL.
    checked(unsafe { libc::strndup(text.as_ptr().cast(), len) }.cast())
}

fn addr(addr: Option<Addr>) -> AllocResult<(*mut c_void, usize)> {
    let Some(addr) = addr else { return Ok((core::ptr::null_mut(), 0)) };
    let (bytes, len) = addr.encode();
    Ok((block(&bytes[..len])?.cast(), len))
}

/// An info for C, not linked to others.
pub(crate) fn to_c(info: &Info) -> AllocResult<Infos> {
    let Info { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric, nic } = info;
    let mut out = Infos::NONE;
    let node = fill(&mut out.0, EMPTY)?;
    (node.caps, node.mode, node.addr_format) = (caps.bits(), mode.bits(), addr_format.0);
    (node.src_addr, node.src_addrlen) = addr(*src_addr)?;
    (node.dest_addr, node.dest_addrlen) = addr(*dest_addr)?;
    fill(&mut node.tx_attr, tx_to_c(tx))?;
    fill(&mut node.rx_attr, rx_to_c(rx))?;
    let c = fill(&mut node.ep_attr, ep_to_c(ep))?;
    c.auth_key = block(&ep.auth_key)?;
    let c = fill(&mut node.domain_attr, domain_to_c(domain))?;
    c.name = string(domain.name.as_deref())?;
    c.auth_key = block(&domain.auth_key)?;
    let c = fill(&mut node.fabric_attr, fabric_to_c(fabric))?;
    c.name = string(fabric.name.as_deref())?;
    c.prov_name = string(fabric.prov_name.as_deref())?;
    if let Some(nic) = nic {
        nic_to_c(nic, &mut node.nic)?;
    }
    Ok(out)
}

/// A node without members.
const EMPTY: fi_info = fi_info {
    next: core::ptr::null_mut(),
    caps: 0,
    mode: 0,
    addr_format: 0,
    src_addrlen: 0,
    dest_addrlen: 0,
    src_addr: core::ptr::null_mut(),
    dest_addr: core::ptr::null_mut(),
    handle: core::ptr::null_mut(),
    tx_attr: core::ptr::null_mut(),
    rx_attr: core::ptr::null_mut(),
    ep_attr: core::ptr::null_mut(),
    domain_attr: core::ptr::null_mut(),
    fabric_attr: core::ptr::null_mut(),
    nic: core::ptr::null_mut(),
};

pub(crate) const fn tx_to_c(attr: &TxAttr) -> fi_tx_attr {
    let TxAttr { caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass } =
        *attr;
    fi_tx_attr {
        caps: caps.bits(),
        mode: mode.bits(),
        op_flags: op_flags.bits(),
        msg_order: msg_order.bits(),
        comp_order,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass: tclass.0,
    }
}

pub(crate) const fn rx_to_c(attr: &RxAttr) -> fi_rx_attr {
    let RxAttr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit } = *attr;
    fi_rx_attr {
        caps: caps.bits(),
        mode: mode.bits(),
        op_flags: op_flags.bits(),
        msg_order: msg_order.bits(),
        comp_order,
        total_buffered_recv,
        size,
        iov_limit,
    }
}

/// Leaves the key null.
fn ep_to_c(attr: &EpAttr) -> fi_ep_attr {
    let EpAttr {
        kind,
        protocol,
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        auth_key,
    } = attr;
    fi_ep_attr {
        r#type: kind.0,
        protocol: protocol.0,
        protocol_version: *protocol_version,
        max_msg_size: *max_msg_size,
        msg_prefix_size: *msg_prefix_size,
        max_order_raw_size: *max_order_raw_size,
        max_order_war_size: *max_order_war_size,
        max_order_waw_size: *max_order_waw_size,
        mem_tag_format: *mem_tag_format,
        tx_ctx_cnt: *tx_ctx_cnt,
        rx_ctx_cnt: *rx_ctx_cnt,
        auth_key_size: auth_key.len(),
        auth_key: core::ptr::null_mut(),
    }
}

/// Leaves the name and the key null.
fn domain_to_c(attr: &DomainAttr) -> fi_domain_attr {
    let DomainAttr {
        name: _,
        threading,
        control_progress,
        progress,
        resource_mgmt,
        av_type,
        mr_mode,
        mr_key_size,
        cq_data_size,
        cq_cnt,
        ep_cnt,
        tx_ctx_cnt,
        rx_ctx_cnt,
        max_ep_tx_ctx,
        max_ep_rx_ctx,
        max_ep_stx_ctx,
        max_ep_srx_ctx,
        cntr_cnt,
        mr_iov_limit,
        caps,
        mode,
        auth_key,
        av_auth_key: _,
        max_err_data,
        mr_cnt,
        tclass,
        max_ep_auth_key,
        max_group_id,
        max_cntr_value,
        max_err_cntr_value,
    } = attr;
    fi_domain_attr {
        domain: core::ptr::null_mut(),
        name: core::ptr::null_mut(),
        threading: threading.0,
        control_progress: control_progress.0,
        progress: progress.0,
        resource_mgmt: resource_mgmt.0,
        av_type: av_type.0,
        mr_mode: mr_mode.bits(),
        mr_key_size: *mr_key_size,
        cq_data_size: *cq_data_size,
        cq_cnt: *cq_cnt,
        ep_cnt: *ep_cnt,
        tx_ctx_cnt: *tx_ctx_cnt,
        rx_ctx_cnt: *rx_ctx_cnt,
        max_ep_tx_ctx: *max_ep_tx_ctx,
        max_ep_rx_ctx: *max_ep_rx_ctx,
        max_ep_stx_ctx: *max_ep_stx_ctx,
        max_ep_srx_ctx: *max_ep_srx_ctx,
        cntr_cnt: *cntr_cnt,
        mr_iov_limit: *mr_iov_limit,
        caps: caps.bits(),
        mode: mode.bits(),
        auth_key: core::ptr::null_mut(),
        auth_key_size: auth_key.len(),
        max_err_data: *max_err_data,
        mr_cnt: *mr_cnt,
        tclass: tclass.0,
        max_ep_auth_key: *max_ep_auth_key,
        max_group_id: *max_group_id,
        max_cntr_value: *max_cntr_value,
        max_err_cntr_value: *max_err_cntr_value,
    }
}

/// Leaves the names null.
fn fabric_to_c(attr: &FabricAttr) -> fi_fabric_attr {
    let FabricAttr { name: _, prov_name: _, prov_version, api_version } = attr;
    fi_fabric_attr {
        fabric: core::ptr::null_mut(),
        name: core::ptr::null_mut(),
        prov_name: core::ptr::null_mut(),
        prov_version: *prov_version,
        api_version: api_version.0,
    }
}

/// A list of infos for C.
pub(crate) fn list_to_c(infos: &[Info]) -> AllocResult<Infos> {
    let mut head = Infos::NONE;
    for info in infos.iter().rev() {
        let mut node = to_c(info)?;
        if let Some(node) = node.node() {
            node.next = head.into_raw();
        }
        head = node;
    }
    Ok(head)
}

/// A copy of one node with all its members, or a node with five zeroed attributes.
///
/// # Safety
/// `info` is null or a valid node with valid members (fi_dupinfo(3)).
pub(crate) unsafe fn duplicate(info: *const fi_info) -> AllocResult<Infos> {
    let mut out = Infos::NONE;
    let node = fill(&mut out.0, EMPTY)?;
    // SAFETY: this function's contract.
    let Some(info) = (unsafe { info.as_ref() }) else {
        alloc_zeroed(&mut node.tx_attr)?;
        alloc_zeroed(&mut node.rx_attr)?;
        alloc_zeroed(&mut node.ep_attr)?;
        alloc_zeroed(&mut node.domain_attr)?;
        alloc_zeroed(&mut node.fabric_attr)?;
        return Ok(out);
    };
    let fi_info {
        next: _,
        caps,
        mode,
        addr_format,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic,
    } = *info;
    (node.caps, node.mode, node.addr_format, node.handle) = (caps, mode, addr_format, handle);
    (node.src_addrlen, node.dest_addrlen) = (src_addrlen, dest_addrlen);
    // SAFETY: null or valid for its length.
    node.src_addr = unsafe { copied(src_addr, src_addrlen) }?;
    // SAFETY: null or valid for its length.
    node.dest_addr = unsafe { copied(dest_addr, dest_addrlen) }?;
    // SAFETY: null or valid.
    if let Some(attr) = unsafe { tx_attr.as_ref() } {
        fill(&mut node.tx_attr, *attr)?;
    }
    // SAFETY: null or valid.
    if let Some(attr) = unsafe { rx_attr.as_ref() } {
        fill(&mut node.rx_attr, *attr)?;
    }
    // SAFETY: null or valid.
    if let Some(attr) = unsafe { ep_attr.as_ref() } {
        let copy = fill(&mut node.ep_attr, fi_ep_attr { auth_key: core::ptr::null_mut(), ..*attr })?;
        // SAFETY: null or valid for its size.
        copy.auth_key = unsafe { copied(attr.auth_key.cast(), attr.auth_key_size) }?.cast();
    }
    // SAFETY: null or valid.
    if let Some(attr) = unsafe { domain_attr.as_ref() } {
        let null = fi_domain_attr { name: core::ptr::null_mut(), auth_key: core::ptr::null_mut(), ..*attr };
        let copy = fill(&mut node.domain_attr, null)?;
        // SAFETY: null or ends with NUL.
        copy.name = unsafe { copied_string(attr.name) }?;
        // This value is FI_AV_AUTH_KEY, not a size.
        let size = if attr.auth_key_size == usize::MAX { 0 } else { attr.auth_key_size };
        // SAFETY: null or valid for its size.
        copy.auth_key = unsafe { copied(attr.auth_key.cast(), size) }?.cast();
    }
    // SAFETY: null or valid.
    if let Some(attr) = unsafe { fabric_attr.as_ref() } {
        let null = fi_fabric_attr { name: core::ptr::null_mut(), prov_name: core::ptr::null_mut(), ..*attr };
        let copy = fill(&mut node.fabric_attr, null)?;
        // SAFETY: null or ends with NUL.
        copy.name = unsafe { copied_string(attr.name) }?;
        // SAFETY: null or ends with NUL.
        copy.prov_name = unsafe { copied_string(attr.prov_name) }?;
    }
    // SAFETY: null or a valid nic, whose table is its owner's.
    if let Some(nic) = unsafe { nic.as_mut() } {
        // SAFETY: every object has a table, and every table a control.
        let control = unsafe { (*nic.fid.ops).control };
        let place: *mut *mut fid_nic = &raw mut node.nic;
        // SAFETY: the nic's own function, for the nic; FI_DUP writes the copy's address.
        let copied = unsafe { control(&mut nic.fid, FI_DUP, place.cast()) };
        // Another library's nic may not support FI_DUP: then there is no copy.
        if copied == Errno::ENOMEM.negative() {
            return Err(Errno::ENOMEM);
        }
    }
    Ok(out)
}

/// Points `slot` to a new zeroed block.
fn alloc_zeroed<T>(slot: &mut *mut T) -> AllocResult<()> {
    // SAFETY: calloc takes any sizes.
    *slot = checked(unsafe { libc::calloc(1, size_of::<T>()) })?;
    Ok(())
}

static NIC_OPS: fi_ops =
    fi_ops { control: nic_control, tostr: crate::exports::tostr::nic_tostr, ..enosys::fid_ops(nic_close) };

/// Builds a network interface for C in `slot`. On failure `slot` is null or a partial nic, which
/// can be closed.
fn nic_to_c(nic: &Nic, slot: &mut *mut fid_nic) -> AllocResult<()> {
    let Nic { name, device_id, device_version, vendor_id, driver, firmware, pci, address, mtu, speed, state, network } =
        nic;
    let c = fid_nic {
        fid: fid { fclass: FI_CLASS_NIC, context: core::ptr::null_mut(), ops: &NIC_OPS },
        device_attr: core::ptr::null_mut(),
        bus_attr: core::ptr::null_mut(),
        link_attr: core::ptr::null_mut(),
        prov_attr: core::ptr::null_mut(),
    };
    let c = fill(slot, c)?;
    let null = core::ptr::null_mut();
    let blank = fi_device_attr {
        name: null,
        device_id: null,
        device_version: null,
        vendor_id: null,
        driver: null,
        firmware: null,
    };
    let device = fill(&mut c.device_attr, blank)?;
    device.name = string(name.as_deref())?;
    device.device_id = string(device_id.as_deref())?;
    device.device_version = string(device_version.as_deref())?;
    device.vendor_id = string(vendor_id.as_deref())?;
    device.driver = string(driver.as_deref())?;
    device.firmware = string(firmware.as_deref())?;
    let (bus_type, attr) = match *pci {
        Some((domain_id, bus_id, device_id, function_id)) => {
            (1, fi_pci_attr { domain_id, bus_id, device_id, function_id })
        }
        None => (0, fi_pci_attr { domain_id: 0, bus_id: 0, device_id: 0, function_id: 0 }),
    };
    fill(&mut c.bus_attr, fi_bus_attr { bus_type, attr })?;
    let state = match state {
        LinkState::Unknown => 0,
        LinkState::Down => 1,
        LinkState::Up => 2,
    };
    let speed = usize::try_from(*speed).unwrap_or(usize::MAX);
    let link = fi_link_attr { address: null, mtu: *mtu, speed, state, network_type: null };
    let link = fill(&mut c.link_attr, link)?;
    link.address = string(address.as_deref())?;
    link.network_type = string(network.as_deref())?;
    Ok(())
}

unsafe extern "C" fn nic_close(nic: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let Some(nic) = (unsafe { nic.cast::<fid_nic>().as_mut() }) else { return Errno::EINVAL.negative() };
    // SAFETY: the parts are null or allocated with malloc, by `nic_to_c`.
    if let Some(device) = unsafe { nic.device_attr.as_ref() } {
        let fi_device_attr { name, device_id, device_version, vendor_id, driver, firmware } = *device;
        for text in [name, device_id, device_version, vendor_id, driver, firmware] {
            // SAFETY: as above, and the device that held it goes, too.
            unsafe { release(text) };
        }
    }
    // SAFETY: as above.
    if let Some(link) = unsafe { nic.link_attr.as_ref() } {
        for text in [link.address, link.network_type] {
            // SAFETY: as above, and the link that held it goes, too.
            unsafe { release(text) };
        }
    }
    let fid_nic { fid: _, device_attr, bus_attr, link_attr, prov_attr: _ } = *nic;
    // SAFETY: as above; its members are freed.
    unsafe { release(device_attr) };
    // SAFETY: as above; it points to nothing.
    unsafe { release(bus_attr) };
    // SAFETY: as above; its members are freed.
    unsafe { release(link_attr) };
    // SAFETY: the nic is one block from malloc, which fi_close(3) gives up.
    unsafe { release(core::ptr::from_mut(nic)) };
    0
}

unsafe extern "C" fn nic_control(nic: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    if command != FI_DUP {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: C passes the object that holds this table, whose parts are valid or null.
    let (Some(nic), false) = (unsafe { self::nic(nic.cast()) }, arg.is_null()) else { return Errno::EINVAL.negative() };
    let mut copy = core::ptr::null_mut();
    if let Err(errno) = nic_to_c(&nic, &mut copy) {
        if !copy.is_null() {
            // SAFETY: made above, and not handed out.
            unsafe { nic_close(copy.cast()) };
        }
        return errno.negative();
    }
    // SAFETY: not null, and FI_DUP passes a place for the copy (fi_control(3)).
    unsafe { arg.cast::<*mut fid_nic>().write(copy) };
    0
}

#[cfg(test)]
mod tests;
