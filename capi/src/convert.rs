//! Infos between C and Rust. What C gets lives in malloc memory, each node and member a block of its own, because
//! programs free pieces of it themselves.

use crate::abi::{
    FI_CLASS_NIC, FI_DUP, fi_bus_attr, fi_device_attr, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info,
    fi_link_attr, fi_ops, fi_pci_attr, fi_rx_attr, fi_tx_attr, fid, fid_nic,
};
use crate::guard::text;
use crate::ops::absent;
use core::ffi::{c_char, c_int, c_void};
use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Hints, Info, LinkState, Nic, RxAttr, TxAttr};
use ofi_core::{
    Addr, AddrFormat, AvType, Caps, EndpointType, Errno, Mode, MrMode, MsgOrder, OpFlags, ProgressModel, Protocol,
    ResourceMgmt, Threading, Version,
};

/// A zeroed block of the C library's.
pub(crate) fn zeroed<T>() -> *mut T {
    // SAFETY: calloc takes any sizes.
    unsafe { libc::calloc(1, size_of::<T>()) }.cast()
}

/// A block of the C library's with that value; null if there is no memory.
fn boxed<T>(value: T) -> *mut T {
    let place = zeroed::<T>();
    if !place.is_null() {
        // SAFETY: a fresh block of the right size, aligned for everything.
        unsafe { place.write(value) };
    }
    place
}

/// A copy of bytes in a block of the C library's; null for none.
fn block(bytes: &[u8]) -> *mut u8 {
    if bytes.is_empty() {
        return core::ptr::null_mut();
    }
    // SAFETY: malloc takes any size.
    let place = unsafe { libc::malloc(bytes.len()) }.cast::<u8>();
    if !place.is_null() {
        // SAFETY: a fresh block of that many bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }
    place
}

/// A C string in a block of the C library's; null for none.
fn string(text: Option<&str>) -> *mut c_char {
    text.map_or(core::ptr::null_mut(), |text| {
        let mut bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
        bytes.push(0);
        block(&bytes).cast()
    })
}

fn addr(addr: Option<Addr>) -> (*mut c_void, usize) {
    addr.map_or((core::ptr::null_mut(), 0), |addr| {
        let (bytes, len) = addr.encode();
        (block(&bytes[..len]).cast(), len)
    })
}

/// An info for C, not linked to others.
pub(crate) fn to_c(info: &Info) -> *mut fi_info {
    let Info { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric, nic } = info;
    let (src, src_len) = addr(*src_addr);
    let (dest, dest_len) = addr(*dest_addr);
    boxed(fi_info {
        next: core::ptr::null_mut(),
        caps: caps.bits(),
        mode: mode.bits(),
        addr_format: addr_format.0,
        src_addrlen: src_len,
        dest_addrlen: dest_len,
        src_addr: src,
        dest_addr: dest,
        handle: core::ptr::null_mut(),
        tx_attr: boxed(tx_to_c(tx)),
        rx_attr: boxed(rx_to_c(rx)),
        ep_attr: boxed(ep_to_c(ep)),
        domain_attr: boxed(domain_to_c(domain)),
        fabric_attr: boxed(fabric_to_c(fabric)),
        nic: nic.as_ref().map_or(core::ptr::null_mut(), nic_to_c),
    })
}

const fn tx_to_c(attr: &TxAttr) -> fi_tx_attr {
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
        tclass,
    }
}

const fn rx_to_c(attr: &RxAttr) -> fi_rx_attr {
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
        auth_key: block(auth_key),
    }
}

fn domain_to_c(attr: &DomainAttr) -> fi_domain_attr {
    let DomainAttr {
        name,
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
        name: string(name.as_deref()),
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
        auth_key: block(auth_key),
        auth_key_size: auth_key.len(),
        max_err_data: *max_err_data,
        mr_cnt: *mr_cnt,
        tclass: *tclass,
        max_ep_auth_key: *max_ep_auth_key,
        max_group_id: *max_group_id,
        max_cntr_value: *max_cntr_value,
        max_err_cntr_value: *max_err_cntr_value,
    }
}

fn fabric_to_c(attr: &FabricAttr) -> fi_fabric_attr {
    let FabricAttr { name, prov_name, prov_version, api_version } = attr;
    fi_fabric_attr {
        fabric: core::ptr::null_mut(),
        name: string(name.as_deref()),
        prov_name: string(prov_name.as_deref()),
        prov_version: *prov_version,
        api_version: api_version.0,
    }
}

static NIC_OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: nic_close,
    bind: absent::bind,
    control: nic_control,
    ops_open: absent::ops_open,
    tostr: crate::tostr::nic_tostr,
    ops_set: absent::ops_set,
};

fn nic_to_c(nic: &Nic) -> *mut fid_nic {
    let Nic { name, device_id, device_version, vendor_id, driver, firmware, pci, address, mtu, speed, state, network } =
        nic;
    let (bus_type, attr) = match *pci {
        Some((domain_id, bus_id, device_id, function_id)) => {
            (1, fi_pci_attr { domain_id, bus_id, device_id, function_id })
        }
        None => (0, fi_pci_attr { domain_id: 0, bus_id: 0, device_id: 0, function_id: 0 }),
    };
    let device = fi_device_attr {
        name: string(name.as_deref()),
        device_id: string(device_id.as_deref()),
        device_version: string(device_version.as_deref()),
        vendor_id: string(vendor_id.as_deref()),
        driver: string(driver.as_deref()),
        firmware: string(firmware.as_deref()),
    };
    let link = fi_link_attr {
        address: string(address.as_deref()),
        mtu: *mtu,
        speed: usize::try_from(*speed).unwrap_or(usize::MAX),
        state: match state {
            LinkState::Unknown => 0,
            LinkState::Down => 1,
            LinkState::Up => 2,
        },
        network_type: string(network.as_deref()),
    };
    boxed(fid_nic {
        fid: fid { fclass: FI_CLASS_NIC, context: core::ptr::null_mut(), ops: &NIC_OPS },
        device_attr: boxed(device),
        bus_attr: boxed(fi_bus_attr { bus_type, attr }),
        link_attr: boxed(link),
        prov_attr: core::ptr::null_mut(),
    })
}

/// A network interface as C has it.
///
/// # Safety
/// `nic` is null or valid with all its parts.
pub(crate) unsafe fn nic(nic: *const fid_nic) -> Option<Nic> {
    // SAFETY: this function's contract.
    let nic = unsafe { nic.as_ref() }?;
    let mut out = Nic::default();
    // SAFETY: null or valid.
    if let Some(device) = unsafe { nic.device_attr.as_ref() } {
        // SAFETY: null or ends with NUL; so are all of these.
        let owned = |name: *const c_char| unsafe { text(name) };
        out.name = owned(device.name);
        out.device_id = owned(device.device_id);
        out.device_version = owned(device.device_version);
        out.vendor_id = owned(device.vendor_id);
        out.driver = owned(device.driver);
        out.firmware = owned(device.firmware);
    }
    // SAFETY: null or valid.
    if let Some(bus) = unsafe { nic.bus_attr.as_ref() }
        && bus.bus_type == 1
    {
        let fi_pci_attr { domain_id, bus_id, device_id, function_id } = bus.attr;
        out.pci = Some((domain_id, bus_id, device_id, function_id));
    }
    // SAFETY: null or valid.
    if let Some(link) = unsafe { nic.link_attr.as_ref() } {
        // SAFETY: null or ends with NUL.
        out.address = unsafe { text(link.address) };
        out.mtu = link.mtu;
        out.speed = link.speed as u64;
        out.state = match link.state {
            1 => LinkState::Down,
            2 => LinkState::Up,
            _ => LinkState::Unknown,
        };
        // SAFETY: null or ends with NUL.
        out.network = unsafe { text(link.network_type) };
    }
    Some(out)
}

unsafe extern "C" fn nic_close(nic: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table.
    let Some(nic) = (unsafe { nic.cast::<fid_nic>().as_mut() }) else { return Errno::EINVAL.negative() };
    // SAFETY: the parts are null or blocks of the C library's, by `nic_to_c` or a copy of it.
    if let Some(device) = unsafe { nic.device_attr.as_ref() } {
        let fi_device_attr { name, device_id, device_version, vendor_id, driver, firmware } = *device;
        for text in [name, device_id, device_version, vendor_id, driver, firmware] {
            release(text);
        }
    }
    // SAFETY: as above.
    if let Some(link) = unsafe { nic.link_attr.as_ref() } {
        release(link.address);
        release(link.network_type);
    }
    release(nic.device_attr);
    release(nic.bus_attr);
    release(nic.link_attr);
    release(core::ptr::from_mut(nic));
    0
}

unsafe extern "C" fn nic_control(nic: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    if command != FI_DUP {
        return Errno::ENOSYS.negative();
    }
    // SAFETY: C passes the object that holds this table, whose parts are valid or null.
    let copy = unsafe { self::nic(nic.cast()) }.map(|nic| nic_to_c(&nic));
    let Some(copy) = copy else { return Errno::EINVAL.negative() };
    // SAFETY: FI_DUP passes a place for the copy (fi_control(3)), or null.
    match unsafe { crate::guard::put(arg.cast::<*mut fid_nic>(), copy) } {
        Ok(()) => 0,
        Err(errno) => errno.negative(),
    }
}

fn release<T>(block: *mut T) {
    // SAFETY: null or a block of the C library's, which nobody uses any more.
    unsafe { libc::free(block.cast()) };
}

/// A list of infos for C.
pub(crate) fn list_to_c(infos: &[Info]) -> *mut fi_info {
    let mut head = core::ptr::null_mut();
    for info in infos.iter().rev() {
        let node = to_c(info);
        // SAFETY: a fresh node, or null.
        if let Some(node) = unsafe { node.as_mut() } {
            node.next = head;
        }
        head = node;
    }
    head
}

/// Frees a list.
///
/// # Safety
/// `info` is null or a list whose nodes and members are null or blocks of the C library's (fi_freeinfo(3)).
pub(crate) unsafe fn free_list(mut info: *mut fi_info) {
    // SAFETY: null or a valid node by this function's contract.
    while let Some(node) = unsafe { info.as_mut() } {
        let next = node.next;
        release(node.src_addr);
        release(node.dest_addr);
        release(node.tx_attr);
        release(node.rx_attr);
        // SAFETY: null or valid.
        if let Some(ep) = unsafe { node.ep_attr.as_ref() } {
            release(ep.auth_key);
        }
        release(node.ep_attr);
        // SAFETY: null or valid.
        if let Some(domain) = unsafe { node.domain_attr.as_ref() } {
            release(domain.auth_key);
            release(domain.name);
        }
        release(node.domain_attr);
        // SAFETY: null or valid.
        if let Some(fabric) = unsafe { node.fabric_attr.as_ref() } {
            release(fabric.name);
            release(fabric.prov_name);
        }
        release(node.fabric_attr);
        // SAFETY: null or a valid nic, whose table is its owner's.
        if let Some(nic) = unsafe { node.nic.as_mut() } {
            // SAFETY: every object has a table, and every table a close.
            let close = unsafe { (*nic.fid.ops).close };
            // SAFETY: the nic's own function, for the nic.
            unsafe { close(&mut nic.fid) };
        }
        release(info);
        info = next;
    }
}

/// A copy of one node with all its members; null if there is no memory.
///
/// # Safety
/// `info` is null or a valid node with valid members (fi_dupinfo(3)).
pub(crate) unsafe fn duplicate(info: *const fi_info) -> *mut fi_info {
    // SAFETY: null or a valid node by this function's contract.
    let Some(info) = (unsafe { info.as_ref() }) else { return empty() };
    // SAFETY: each is null or valid for its length.
    let blob = |data: *const c_void, len: usize| block(&unsafe { crate::guard::bytes(data, len) });
    // SAFETY: each is null or ends with NUL.
    let copy = |pointer: *mut c_char| string(unsafe { text(pointer) }.as_deref());
    let mut out = *info;
    out.next = core::ptr::null_mut();
    out.src_addr = blob(info.src_addr, info.src_addrlen).cast();
    out.dest_addr = blob(info.dest_addr, info.dest_addrlen).cast();
    // SAFETY: null or valid.
    out.tx_attr = unsafe { info.tx_attr.as_ref() }.map_or(core::ptr::null_mut(), |attr| boxed(*attr));
    // SAFETY: null or valid.
    out.rx_attr = unsafe { info.rx_attr.as_ref() }.map_or(core::ptr::null_mut(), |attr| boxed(*attr));
    // SAFETY: null or valid.
    out.ep_attr = unsafe { info.ep_attr.as_ref() }.map_or(core::ptr::null_mut(), |attr| {
        boxed(fi_ep_attr { auth_key: blob(attr.auth_key.cast(), attr.auth_key_size), ..*attr })
    });
    // SAFETY: null or valid.
    out.domain_attr = unsafe { info.domain_attr.as_ref() }.map_or(core::ptr::null_mut(), |attr| {
        let size = if attr.auth_key_size == usize::MAX { 0 } else { attr.auth_key_size };
        boxed(fi_domain_attr { name: copy(attr.name), auth_key: blob(attr.auth_key.cast(), size), ..*attr })
    });
    // SAFETY: null or valid.
    out.fabric_attr = unsafe { info.fabric_attr.as_ref() }.map_or(core::ptr::null_mut(), |attr| {
        boxed(fi_fabric_attr { name: copy(attr.name), prov_name: copy(attr.prov_name), ..*attr })
    });
    out.nic = core::ptr::null_mut();
    // SAFETY: null or a valid nic, whose table is its owner's.
    if let Some(nic) = unsafe { info.nic.as_mut() } {
        // SAFETY: every object has a table, and every table a control.
        let control = unsafe { (*nic.fid.ops).control };
        let place: *mut *mut fid_nic = &raw mut out.nic;
        // SAFETY: the nic's own function, for the nic; FI_DUP writes the copy's address. Without it there is no copy.
        unsafe { control(&mut nic.fid, FI_DUP, place.cast()) };
    }
    boxed(out)
}

/// A zeroed node with its five attributes.
pub(crate) fn empty() -> *mut fi_info {
    let node = zeroed::<fi_info>();
    // SAFETY: a fresh node, or null.
    if let Some(node) = unsafe { node.as_mut() } {
        node.tx_attr = zeroed();
        node.rx_attr = zeroed();
        node.ep_attr = zeroed();
        node.domain_attr = zeroed();
        node.fabric_attr = zeroed();
    }
    node
}

pub(crate) fn tx_from_c(attr: &fi_tx_attr) -> TxAttr {
    let fi_tx_attr { caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass } =
        *attr;
    TxAttr {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        op_flags: OpFlags::from_bits_retain(op_flags),
        msg_order: MsgOrder::from_bits_retain(msg_order),
        comp_order,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass,
    }
}

pub(crate) fn rx_from_c(attr: &fi_rx_attr) -> RxAttr {
    let fi_rx_attr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit } = *attr;
    RxAttr {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        op_flags: OpFlags::from_bits_retain(op_flags),
        msg_order: MsgOrder::from_bits_retain(msg_order),
        comp_order,
        total_buffered_recv,
        size,
        iov_limit,
    }
}

pub(crate) fn ep_from_c(attr: &fi_ep_attr) -> EpAttr {
    let fi_ep_attr {
        r#type,
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
        auth_key_size,
        auth_key,
    } = *attr;
    EpAttr {
        kind: EndpointType(r#type),
        protocol: Protocol(protocol),
        protocol_version,
        max_msg_size,
        msg_prefix_size,
        max_order_raw_size,
        max_order_war_size,
        max_order_waw_size,
        mem_tag_format,
        tx_ctx_cnt,
        rx_ctx_cnt,
        // SAFETY: null or valid for its size.
        auth_key: unsafe { crate::guard::bytes(auth_key.cast(), auth_key_size) },
    }
}

pub(crate) fn domain_from_c(attr: &fi_domain_attr) -> DomainAttr {
    let fi_domain_attr {
        domain: _,
        name,
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
        auth_key_size,
        max_err_data,
        mr_cnt,
        tclass,
        max_ep_auth_key,
        max_group_id,
        max_cntr_value,
        max_err_cntr_value,
    } = *attr;
    let av_auth_key = auth_key_size == usize::MAX;
    DomainAttr {
        // SAFETY: null or ends with NUL.
        name: unsafe { text(name) },
        threading: Threading(threading),
        control_progress: ProgressModel(control_progress),
        progress: ProgressModel(progress),
        resource_mgmt: ResourceMgmt(resource_mgmt),
        av_type: AvType(av_type),
        mr_mode: MrMode::from_bits_retain(mr_mode),
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
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        // SAFETY: null or valid for its size.
        auth_key: unsafe { crate::guard::bytes(auth_key.cast(), if av_auth_key { 0 } else { auth_key_size }) },
        av_auth_key,
        max_err_data,
        mr_cnt,
        tclass,
        max_ep_auth_key,
        max_group_id,
        max_cntr_value,
        max_err_cntr_value,
    }
}

pub(crate) fn fabric_from_c(attr: &fi_fabric_attr) -> FabricAttr {
    let fi_fabric_attr { fabric: _, name, prov_name, prov_version, api_version } = *attr;
    // SAFETY: null or ends with NUL.
    let name = unsafe { text(name) };
    // SAFETY: null or ends with NUL.
    let prov_name = unsafe { text(prov_name) };
    FabricAttr { name, prov_name, prov_version, api_version: Version(api_version) }
}

/// What an application asks for.
///
/// # Safety
/// `info` is valid with all its members (fi_getinfo(3)).
pub(crate) unsafe fn hints(info: &fi_info) -> Hints {
    let fi_info {
        next: _,
        caps,
        mode,
        addr_format,
        src_addrlen,
        dest_addrlen,
        src_addr,
        dest_addr,
        handle: _,
        tx_attr,
        rx_attr,
        ep_attr,
        domain_attr,
        fabric_attr,
        nic: _,
    } = *info;
    // SAFETY: null or valid for its length.
    let addr = |data: *mut c_void, len| Addr::decode(&unsafe { crate::guard::bytes(data, len) });
    Hints {
        caps: Caps::from_bits_retain(caps),
        mode: Mode::from_bits_retain(mode),
        addr_format: AddrFormat(addr_format),
        src_addr: addr(src_addr, src_addrlen),
        dest_addr: addr(dest_addr, dest_addrlen),
        // SAFETY: null or valid.
        tx: unsafe { tx_attr.as_ref() }.map(tx_from_c),
        // SAFETY: null or valid.
        rx: unsafe { rx_attr.as_ref() }.map(rx_from_c),
        // SAFETY: null or valid.
        ep: unsafe { ep_attr.as_ref() }.map(ep_from_c),
        // SAFETY: null or valid.
        domain: unsafe { domain_attr.as_ref() }.map(domain_from_c),
        // SAFETY: null or valid.
        fabric: unsafe { fabric_attr.as_ref() }.map(fabric_from_c),
    }
}

/// An info as the application gives it to open an object: whatever it changed is taken as it is, what it left out is
/// as the provider has it.
///
/// # Safety
/// `info` is valid with all its members.
pub(crate) unsafe fn info(info: &fi_info, provider: &str) -> Info {
    // SAFETY: this function's contract.
    let hints = unsafe { hints(info) };
    let Hints { caps, mode, addr_format, src_addr, dest_addr, tx, rx, ep, domain, fabric } = hints;
    let kind = ep.as_ref().map_or(EndpointType::UNSPEC, |ep| ep.kind);
    let named = fabric.as_ref().and_then(|fabric| fabric.prov_name.as_deref()).unwrap_or(provider);
    let fits = |offer: &ofi_core::info::Offer| {
        let name = offer.most.fabric.prov_name.as_deref().unwrap_or_default();
        (kind == EndpointType::UNSPEC || kind == offer.most.ep.kind) && (named.is_empty() || named == name)
    };
    let offers = ofi_registry::providers();
    let default = offers.iter().find(|offer| fits(offer)).or_else(|| offers.first()).cloned();
    let (offered, size) = default.map_or_else(|| (Info::default(), 1), |offer| (offer.most, offer.default_size));
    let mut tx = tx.unwrap_or_default();
    let mut rx = rx.unwrap_or_default();
    if tx.size == 0 {
        tx.size = size;
    }
    if tx.inject_size == 0 {
        tx.inject_size = offered.tx.inject_size;
    }
    if rx.size == 0 {
        rx.size = size;
    }
    let mut fabric = fabric.unwrap_or_default();
    if fabric.prov_name.is_none() {
        fabric.prov_name = if provider.is_empty() { offered.fabric.prov_name } else { Some(provider.to_owned()) };
    }
    let caps = if caps.is_empty() { offered.caps - Caps::ONLY_IF_NAMED } else { caps };
    let mut ep = ep.unwrap_or_default();
    if ep.max_msg_size == 0 {
        ep.max_msg_size = offered.ep.max_msg_size;
    }
    Info {
        caps,
        mode,
        addr_format: src_addr.map_or(addr_format, |addr| addr.format()),
        src_addr,
        dest_addr,
        tx,
        rx,
        ep,
        domain: domain.unwrap_or_default(),
        fabric,
        nic: None,
    }
}
