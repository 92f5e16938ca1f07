//! fi_tostr(3): values and structures as text, in the layout that programs print and scripts read.

use crate::abi::{
    fi_av_attr, fi_cq_attr, fi_cq_err_entry, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr,
    fi_tx_attr, fid, fid_nic,
};
use crate::exports::copy_text;
use crate::guard::text;
use core::ffi::{c_char, c_int, c_void};
use core::fmt::Write;
use ofi_core::caps::completion_flag_names;
use ofi_core::{
    Addr, AddrFormat, AvType, Caps, CqFormat, EndpointType, Mode, MrMode, MsgOrder, OpFlags, ProgressModel, Protocol,
    ResourceMgmt, Threading, Version, WaitObject,
};
use std::sync::Mutex;

/// Text with an indentation.
struct Text(String);

impl Text {
    fn line(&mut self, depth: usize, name: &str, value: impl core::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{:width$}{name}: {value}", "", width = depth * 4);
    }

    fn head(&mut self, depth: usize, name: &str) {
        let _ = writeln!(self.0, "{:width$}{name}:", "", width = depth * 4);
    }

    fn absent(&mut self, depth: usize, name: &str) {
        let _ = writeln!(self.0, "{:width$}{name}: (null)", "", width = depth * 4);
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[ {} ]", joined(names))
}

fn pointer<T>(pointer: *const T) -> String {
    if pointer.is_null() { "(nil)".to_owned() } else { format!("{:#x}", pointer.addr()) }
}

/// # Safety
/// `pointer` is null or ends with NUL.
unsafe fn name(pointer: *const c_char) -> String {
    // SAFETY: this function's contract.
    unsafe { text(pointer) }.unwrap_or_else(|| "(null)".to_owned())
}

fn contexts(count: usize) -> String {
    if count == usize::MAX { "FI_SHARED_CONTEXT".to_owned() } else { count.to_string() }
}

/// # Safety
/// `data` is null or an address of `len` bytes.
unsafe fn address(format: u32, data: *const c_void, len: usize) -> String {
    if data.is_null() {
        return "(null)".to_owned();
    }
    // SAFETY: this function's contract.
    let bytes = unsafe { crate::guard::bytes(data, len) };
    if AddrFormat(format) == AddrFormat::ADDR_STR {
        return String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
    }
    Addr::decode(&bytes).map(|addr| addr.to_string()).unwrap_or_default()
}

fn tx(out: &mut Text, depth: usize, attr: Option<&fi_tx_attr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_tx_attr") };
    let fi_tx_attr {
        caps,
        mode,
        op_flags,
        msg_order,
        comp_order: _,
        inject_size,
        size,
        iov_limit,
        rma_iov_limit,
        tclass,
    } = *attr;
    out.head(depth, "fi_tx_attr");
    out.line(depth + 1, "caps", listed(Caps::from_bits_retain(caps).names()));
    out.line(depth + 1, "mode", listed(Mode::from_bits_retain(mode).names()));
    out.line(depth + 1, "op_flags", listed(OpFlags::from_bits_retain(op_flags).names()));
    out.line(depth + 1, "msg_order", listed(MsgOrder::from_bits_retain(msg_order).names()));
    out.line(depth + 1, "inject_size", inject_size);
    out.line(depth + 1, "size", size);
    out.line(depth + 1, "iov_limit", iov_limit);
    out.line(depth + 1, "rma_iov_limit", rma_iov_limit);
    out.line(depth + 1, "tclass", format_args!("{tclass:#x}"));
}

fn rx(out: &mut Text, depth: usize, attr: Option<&fi_rx_attr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_rx_attr") };
    let fi_rx_attr { caps, mode, op_flags, msg_order, comp_order: _, total_buffered_recv: _, size, iov_limit } = *attr;
    out.head(depth, "fi_rx_attr");
    out.line(depth + 1, "caps", listed(Caps::from_bits_retain(caps).names()));
    out.line(depth + 1, "mode", listed(Mode::from_bits_retain(mode).names()));
    out.line(depth + 1, "op_flags", listed(OpFlags::from_bits_retain(op_flags).names()));
    out.line(depth + 1, "msg_order", listed(MsgOrder::from_bits_retain(msg_order).names()));
    out.line(depth + 1, "size", size);
    out.line(depth + 1, "iov_limit", iov_limit);
}

fn ep(out: &mut Text, depth: usize, attr: Option<&fi_ep_attr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_ep_attr") };
    out.head(depth, "fi_ep_attr");
    let depth = depth + 1;
    out.line(depth, "type", EndpointType(attr.r#type));
    out.line(depth, "protocol", Protocol(attr.protocol));
    out.line(depth, "protocol_version", attr.protocol_version);
    out.line(depth, "max_msg_size", attr.max_msg_size);
    out.line(depth, "msg_prefix_size", attr.msg_prefix_size);
    out.line(depth, "max_order_raw_size", attr.max_order_raw_size);
    out.line(depth, "max_order_war_size", attr.max_order_war_size);
    out.line(depth, "max_order_waw_size", attr.max_order_waw_size);
    out.line(depth, "mem_tag_format", format_args!("{:#018x}", attr.mem_tag_format));
    out.line(depth, "tx_ctx_cnt", contexts(attr.tx_ctx_cnt));
    out.line(depth, "rx_ctx_cnt", contexts(attr.rx_ctx_cnt));
    out.line(depth, "auth_key_size", attr.auth_key_size);
}

fn domain(out: &mut Text, depth: usize, attr: Option<&fi_domain_attr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_domain_attr") };
    out.head(depth, "fi_domain_attr");
    let depth = depth + 1;
    out.line(depth, "domain", pointer(attr.domain));
    // SAFETY: null or ends with NUL.
    out.line(depth, "name", unsafe { name(attr.name) });
    out.line(depth, "threading", Threading(attr.threading));
    out.line(depth, "progress", ProgressModel(attr.progress));
    out.line(depth, "resource_mgmt", ResourceMgmt(attr.resource_mgmt));
    out.line(depth, "av_type", AvType(attr.av_type));
    out.line(depth, "mr_mode", listed(MrMode::from_bits_retain(attr.mr_mode).names()));
    out.line(depth, "mr_key_size", attr.mr_key_size);
    out.line(depth, "cq_data_size", attr.cq_data_size);
    out.line(depth, "cq_cnt", attr.cq_cnt);
    out.line(depth, "ep_cnt", attr.ep_cnt);
    out.line(depth, "tx_ctx_cnt", contexts(attr.tx_ctx_cnt));
    out.line(depth, "rx_ctx_cnt", contexts(attr.rx_ctx_cnt));
    out.line(depth, "max_ep_tx_ctx", attr.max_ep_tx_ctx);
    out.line(depth, "max_ep_rx_ctx", attr.max_ep_rx_ctx);
    out.line(depth, "max_ep_stx_ctx", attr.max_ep_stx_ctx);
    out.line(depth, "max_ep_srx_ctx", attr.max_ep_srx_ctx);
    out.line(depth, "cntr_cnt", attr.cntr_cnt);
    out.line(depth, "mr_iov_limit", attr.mr_iov_limit);
    out.line(depth, "caps", listed(Caps::from_bits_retain(attr.caps).names()));
    out.line(depth, "mode", listed(Mode::from_bits_retain(attr.mode).names()));
    out.line(depth, "auth_key_size", attr.auth_key_size);
    out.line(depth, "max_err_data", attr.max_err_data);
    out.line(depth, "mr_cnt", attr.mr_cnt);
    out.line(depth, "tclass", format_args!("{:#x}", attr.tclass));
    out.line(depth, "max_ep_auth_key", attr.max_ep_auth_key);
    out.line(depth, "max_group_id", attr.max_group_id);
    out.line(depth, "max_cntr_value", attr.max_cntr_value);
    out.line(depth, "max_err_cntr_value", attr.max_err_cntr_value);
}

fn fabric(out: &mut Text, depth: usize, attr: Option<&fi_fabric_attr>) {
    let Some(attr) = attr else { return out.absent(depth, "fi_fabric_attr") };
    out.head(depth, "fi_fabric_attr");
    // SAFETY: null or ends with NUL.
    out.line(depth + 1, "name", unsafe { name(attr.name) });
    // SAFETY: null or ends with NUL.
    out.line(depth + 1, "prov_name", unsafe { name(attr.prov_name) });
    out.line(depth + 1, "prov_version", Version(attr.prov_version));
    out.line(depth + 1, "api_version", Version(attr.api_version));
}

fn nic(out: &mut Text, depth: usize, nic: Option<&fid_nic>) {
    let Some(nic) = nic else {
        let _ = writeln!(out.0, "{:width$}nic: (nil)", "", width = depth * 4);
        return;
    };
    out.head(depth, "nic");
    let depth = depth + 1;
    // SAFETY: the parts of a nic are valid or null.
    if let Some(device) = unsafe { nic.device_attr.as_ref() } {
        out.head(depth, "fi_device_attr");
        for (label, pointer) in [
            ("name", device.name),
            ("device_id", device.device_id),
            ("device_version", device.device_version),
            ("vendor_id", device.vendor_id),
            ("driver", device.driver),
            ("firmware", device.firmware),
        ] {
            // SAFETY: null or ends with NUL.
            out.line(depth + 1, label, unsafe { name(pointer) });
        }
    }
    // SAFETY: as above.
    if let Some(bus) = unsafe { nic.bus_attr.as_ref() } {
        out.head(depth, "fi_bus_attr");
        out.line(depth + 1, "bus_type", if bus.bus_type == 1 { "FI_BUS_PCI" } else { "FI_BUS_UNKNOWN" });
        if bus.bus_type == 1 {
            out.head(depth + 1, "fi_pci_attr");
            out.line(depth + 2, "domain_id", bus.attr.domain_id);
            out.line(depth + 2, "bus_id", bus.attr.bus_id);
            out.line(depth + 2, "device_id", bus.attr.device_id);
            out.line(depth + 2, "function_id", bus.attr.function_id);
        }
    }
    // SAFETY: as above.
    if let Some(link) = unsafe { nic.link_attr.as_ref() } {
        out.head(depth, "fi_link_attr");
        // SAFETY: null or ends with NUL.
        out.line(depth + 1, "address", unsafe { name(link.address) });
        out.line(depth + 1, "mtu", link.mtu);
        out.line(depth + 1, "speed", link.speed);
        let state = ["FI_LINK_UNKNOWN", "FI_LINK_DOWN", "FI_LINK_UP"];
        out.line(depth + 1, "state", state.get(link.state as usize).unwrap_or(&"FI_LINK_UNKNOWN"));
        // SAFETY: null or ends with NUL.
        out.line(depth + 1, "network_type", unsafe { name(link.network_type) });
    }
}

/// # Safety
/// `info` is valid with all its members.
unsafe fn info(out: &mut Text, info: &fi_info) {
    out.head(0, "fi_info");
    out.line(1, "caps", listed(Caps::from_bits_retain(info.caps).names()));
    out.line(1, "mode", listed(Mode::from_bits_retain(info.mode).names()));
    out.line(1, "addr_format", AddrFormat(info.addr_format));
    out.line(1, "src_addrlen", info.src_addrlen);
    out.line(1, "dest_addrlen", info.dest_addrlen);
    // SAFETY: null or valid for its length.
    out.line(1, "src_addr", unsafe { address(info.addr_format, info.src_addr, info.src_addrlen) });
    // SAFETY: null or valid for its length.
    out.line(1, "dest_addr", unsafe { address(info.addr_format, info.dest_addr, info.dest_addrlen) });
    out.line(1, "handle", pointer(info.handle));
    // SAFETY: null or valid.
    tx(out, 1, unsafe { info.tx_attr.as_ref() });
    // SAFETY: null or valid.
    rx(out, 1, unsafe { info.rx_attr.as_ref() });
    // SAFETY: null or valid.
    ep(out, 1, unsafe { info.ep_attr.as_ref() });
    // SAFETY: null or valid.
    domain(out, 1, unsafe { info.domain_attr.as_ref() });
    // SAFETY: null or valid.
    fabric(out, 1, unsafe { info.fabric_attr.as_ref() });
    // SAFETY: null or valid.
    nic(out, 1, unsafe { info.nic.as_ref() });
}

fn av_attr(out: &mut Text, attr: &fi_av_attr) {
    out.head(0, "fi_av_attr");
    out.line(1, "type", AvType(attr.r#type));
    out.line(1, "rx_ctx_bits", attr.rx_ctx_bits);
    out.line(1, "count", attr.count);
    out.line(1, "ep_per_node", attr.ep_per_node);
    // SAFETY: null or ends with NUL.
    out.line(1, "name", unsafe { name(attr.name) });
    out.line(1, "map_addr", pointer(attr.map_addr));
    out.line(1, "flags", format_args!("{:#x}", attr.flags));
}

fn cq_attr(out: &mut Text, attr: &fi_cq_attr) {
    out.head(0, "fi_cq_attr");
    out.line(1, "size", attr.size);
    out.line(1, "flags", format_args!("{:#x}", attr.flags));
    out.line(1, "format", CqFormat(attr.format));
    out.line(1, "wait_obj", WaitObject(attr.wait_obj));
    out.line(1, "signaling_vector", attr.signaling_vector);
    out.line(1, "wait_cond", if attr.wait_cond == 1 { "FI_CQ_COND_THRESHOLD" } else { "FI_CQ_COND_NONE" });
    out.line(1, "wait_set", pointer(attr.wait_set));
}

fn cq_err_entry(out: &mut Text, entry: &fi_cq_err_entry) {
    out.head(0, "fi_cq_err_entry");
    out.line(1, "op_context", pointer(entry.op_context));
    out.line(1, "flags", listed(completion_flag_names(OpFlags::from_bits_retain(entry.flags))));
    out.line(1, "len", entry.len);
    out.line(1, "buf", pointer(entry.buf));
    out.line(1, "data", entry.data);
    out.line(1, "tag", entry.tag);
    out.line(1, "olen", entry.olen);
    out.line(1, "err", entry.err);
    out.line(1, "prov_errno", entry.prov_errno);
    out.line(1, "err_data", pointer(entry.err_data));
    out.line(1, "err_data_size", entry.err_data_size);
}

const ATOMIC_TYPES: [&str; 14] = [
    "FI_INT8",
    "FI_UINT8",
    "FI_INT16",
    "FI_UINT16",
    "FI_INT32",
    "FI_UINT32",
    "FI_INT64",
    "FI_UINT64",
    "FI_FLOAT",
    "FI_DOUBLE",
    "FI_FLOAT_COMPLEX",
    "FI_DOUBLE_COMPLEX",
    "FI_LONG_DOUBLE",
    "FI_LONG_DOUBLE_COMPLEX",
];
const ATOMIC_OPS: [&str; 19] = [
    "FI_MIN",
    "FI_MAX",
    "FI_SUM",
    "FI_PROD",
    "FI_LOR",
    "FI_LAND",
    "FI_BOR",
    "FI_BAND",
    "FI_LXOR",
    "FI_BXOR",
    "FI_ATOMIC_READ",
    "FI_ATOMIC_WRITE",
    "FI_CSWAP",
    "FI_CSWAP_NE",
    "FI_CSWAP_LE",
    "FI_CSWAP_LT",
    "FI_CSWAP_GE",
    "FI_CSWAP_GT",
    "FI_MSWAP",
];
const EQ_EVENTS: [&str; 7] =
    ["FI_NOTIFY", "FI_CONNREQ", "FI_CONNECTED", "FI_SHUTDOWN", "FI_MR_COMPLETE", "FI_AV_COMPLETE", "FI_JOIN_COMPLETE"];
const OP_TYPES: [&str; 11] = [
    "FI_OP_RECV",
    "FI_OP_SEND",
    "FI_OP_TRECV",
    "FI_OP_TSEND",
    "FI_OP_READ",
    "FI_OP_WRITE",
    "FI_OP_ATOMIC",
    "FI_OP_FETCH_ATOMIC",
    "FI_OP_COMPARE_ATOMIC",
    "FI_OP_CNTR_SET",
    "FI_OP_CNTR_ADD",
];
const COLLECTIVE_OPS: [&str; 9] = [
    "FI_BARRIER",
    "FI_BROADCAST",
    "FI_ALLTOALL",
    "FI_ALLREDUCE",
    "FI_ALLGATHER",
    "FI_REDUCE_SCATTER",
    "FI_REDUCE",
    "FI_SCATTER",
    "FI_GATHER",
];
const HMEM_IFACES: [&str; 6] =
    ["FI_HMEM_SYSTEM", "FI_HMEM_CUDA", "FI_HMEM_ROCR", "FI_HMEM_ZE", "FI_HMEM_NEURON", "FI_HMEM_SYNAPSEAI"];

fn indexed(names: &[&str], value: u32) -> String {
    (*names.get(value as usize).unwrap_or(&"Unknown")).to_owned()
}

/// The text of a value of that kind.
///
/// # Safety
/// `data` points to a value of that kind.
unsafe fn render(data: *const c_void, kind: c_int) -> String {
    let mut out = Text(String::new());
    // SAFETY: kinds of numbers are four or eight bytes; each is read as what it is.
    let small = || unsafe { data.cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let large = || unsafe { data.cast::<u64>().read_unaligned() };
    /// A reference to a structure of that kind.
    unsafe fn part<'a, T>(data: *const c_void) -> Option<&'a T> {
        // SAFETY: the caller says what it is.
        unsafe { data.cast::<T>().as_ref() }
    }
    match kind {
        0 => {
            // SAFETY: an info with its members.
            if let Some(value) = unsafe { part::<fi_info>(data) } {
                // SAFETY: as above.
                unsafe { info(&mut out, value) };
            }
        }
        1 => return EndpointType(small()).to_string(),
        2 => return joined(Caps::from_bits_retain(large()).names()),
        3 => return joined(OpFlags::from_bits_retain(large()).names()),
        4 => return AddrFormat(small()).to_string(),
        // SAFETY: the kind says what it is.
        5 => tx(&mut out, 0, unsafe { part(data) }),
        // SAFETY: the kind says what it is.
        6 => rx(&mut out, 0, unsafe { part(data) }),
        // SAFETY: the kind says what it is.
        7 => ep(&mut out, 0, unsafe { part(data) }),
        // SAFETY: the kind says what it is.
        8 => domain(&mut out, 0, unsafe { part(data) }),
        // SAFETY: the kind says what it is.
        9 => fabric(&mut out, 0, unsafe { part(data) }),
        10 => return Threading(small()).to_string(),
        11 => return ProgressModel(small()).to_string(),
        12 => return Protocol(small()).to_string(),
        13 => return joined(MsgOrder::from_bits_retain(large()).names()),
        14 => return joined(Mode::from_bits_retain(large()).names()),
        15 => return AvType(small()).to_string(),
        16 => return indexed(&ATOMIC_TYPES, small()),
        17 => return indexed(&ATOMIC_OPS, small()),
        18 => return concat!(env!("CARGO_PKG_VERSION"), " (libfabric 2.6)").to_owned(),
        19 => return indexed(&EQ_EVENTS, small()),
        20 => return joined(completion_flag_names(OpFlags::from_bits_retain(large()))),
        21 => return joined(MrMode::from_bits_retain(small()).names()),
        22 => return indexed(&OP_TYPES, small()),
        23 => return format!("fid: {}\n", pointer(data)),
        24 => return indexed(&COLLECTIVE_OPS, small()),
        25 => return indexed(&HMEM_IFACES, small()),
        26 => return CqFormat(small()).to_string(),
        27 => return indexed(&["warn", "trace", "info", "debug"], small()),
        28 => {
            let names = ["core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr"];
            return indexed(&names, small());
        }
        29 => {
            // SAFETY: the kind says what it is.
            if let Some(value) = unsafe { part(data) } {
                av_attr(&mut out, value);
            }
        }
        30 => {
            // SAFETY: the kind says what it is.
            if let Some(value) = unsafe { part(data) } {
                cq_attr(&mut out, value);
            }
        }
        33 => {
            // SAFETY: the kind says what it is.
            if let Some(value) = unsafe { part(data) } {
                cq_err_entry(&mut out, value);
            }
        }
        34 => return indexed(&["FI_CQ_COND_NONE", "FI_CQ_COND_THRESHOLD"], small()),
        35 => return WaitObject(small()).to_string(),
        _ => return "Unknown type".to_owned(),
    }
    out.0
}

struct Shared([u8; 8192]);

/// fi_tostr(3): in one buffer of the whole process, which is what the interface says.
pub(crate) unsafe extern "C" fn fi_tostr(data: *const c_void, kind: c_int) -> *mut c_char {
    static BUFFER: Mutex<Shared> = Mutex::new(Shared([0; 8192]));
    let mut buffer = BUFFER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = buffer.0.as_mut_ptr().cast::<c_char>();
    // SAFETY: the arguments are those of that function, the buffer has its size.
    unsafe { fi_tostr_r(place, buffer.0.len(), data, kind) }
}

/// fi_tostr(3).
pub(crate) unsafe extern "C" fn fi_tostr_r(
    buf: *mut c_char,
    len: usize,
    data: *const c_void,
    kind: c_int,
) -> *mut c_char {
    if data.is_null() || buf.is_null() || len == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: fi_tostr(3) passes a value of that kind.
    let text = unsafe { render(data, kind) };
    // The last two bytes are never part of the text.
    copy_text(&text, buf, len.saturating_sub(1).max(1));
    buf
}

pub(crate) unsafe extern "C" fn nic_tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int {
    let mut out = Text(String::new());
    // SAFETY: C passes the nic that holds this table.
    nic(&mut out, 0, unsafe { fid.cast::<fid_nic>().as_ref() });
    copy_text(&out.0, buf, len);
    0
}
