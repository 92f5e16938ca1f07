//! fi_tostr(3): values and structures as text, in libfabric's layout because scripts parse it.

use crate::convert;
use crate::ffi::ptr::{put_text, sized_addr, text};
use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use ofi_abi::{
    fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_cq_err_entry, fi_domain_attr, fi_info, fi_mr_attr, fi_ops, fid,
};
use ofi_core::caps::completion_flag_names;
use ofi_core::show::{self, Besides, Text, joined, listed};
use ofi_core::{
    AddrFormat, AvType, Caps, CqFormat, EndpointType, Mode, MrMode, MsgOrder, OpFlags, ProgressModel, Protocol,
    Threading, WaitObjectKind,
};

fn pointer<T>(pointer: *const T) -> String {
    show::pointer(pointer.addr())
}

/// # Safety
/// `pointer` is null or ends with NUL.
unsafe fn name(pointer: *const c_char) -> String {
    // SAFETY: this function's contract.
    unsafe { text(pointer) }.unwrap_or_else(|| "(null)".to_owned())
}

/// # Safety
/// `data` is null or an address of `len` bytes.
unsafe fn address(format: u32, data: *const c_void, len: usize) -> Option<String> {
    if data.is_null() {
        return None;
    }
    if AddrFormat(format) == AddrFormat::ADDR_STR {
        // SAFETY: a string that ends with NUL, or after `len` bytes.
        let len = unsafe { libc::strnlen(data.cast(), len) };
        // SAFETY: that many bytes were just read.
        let bytes = unsafe { crate::ffi::ptr::bytes(data, len) };
        return Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    // SAFETY: this function's contract.
    Some(unsafe { sized_addr(data, len) }.map(|addr| addr.to_string()).unwrap_or_default())
}

/// # Safety
/// `info` is valid with all its members.
unsafe fn info(out: &mut Text, info: &fi_info) {
    // SAFETY: this function's contract.
    let parts = unsafe { convert::hints(info) };
    // SAFETY: this function's contract.
    let nic = unsafe { convert::nic(info.nic) };
    let besides = Besides {
        // SAFETY: null or valid for its length.
        src: (info.src_addrlen, unsafe { address(info.addr_format, info.src_addr, info.src_addrlen) }),
        // SAFETY: null or valid for its length.
        dest: (info.dest_addrlen, unsafe { address(info.addr_format, info.dest_addr, info.dest_addrlen) }),
        handle: info.handle.addr(),
        // SAFETY: null or valid.
        domain: unsafe { info.domain_attr.as_ref() }.map_or(0, |attr| attr.domain.addr()),
    };
    show::parts(out, &parts, nic.as_ref(), &besides);
}

/// # Safety
/// The vector's name is null or ends with NUL.
unsafe fn av_attr(out: &mut Text, attr: &fi_av_attr) {
    out.head(0, "fi_av_attr");
    out.line(1, "type", AvType(attr.r#type));
    out.line(1, "rx_ctx_bits", attr.rx_ctx_bits);
    out.line(1, "count", attr.count);
    out.line(1, "ep_per_node", attr.ep_per_node);
    // SAFETY: this function's contract.
    out.line(1, "name", unsafe { name(attr.name) });
    out.line(1, "map_addr", pointer(attr.map_addr));
    out.line(1, "flags", format_args!("{:#x}", attr.flags));
}

fn cq_attr(out: &mut Text, attr: &fi_cq_attr) {
    out.head(0, "fi_cq_attr");
    out.line(1, "size", attr.size);
    out.line(1, "flags", format_args!("{:#x}", attr.flags));
    out.line(1, "format", CqFormat(attr.format));
    out.line(1, "wait_obj", WaitObjectKind(attr.wait_obj));
    out.line(1, "signaling_vector", attr.signaling_vector);
    out.line(1, "wait_cond", indexed(&WAIT_CONDS, attr.wait_cond));
    out.line(1, "wait_set", pointer(attr.wait_set));
}

fn mr_attr(out: &mut Text, attr: &fi_mr_attr) {
    out.head(0, "fi_mr_attr");
    out.line(1, "mr_iov", pointer(attr.mr_iov));
    out.line(1, "iov_count", attr.iov_count);
    let access = Caps::from_bits_retain(attr.access);
    out.line(1, "access", listed(access.names()));
    out.line(1, "offset", attr.offset);
    out.line(1, "requested_key", attr.requested_key);
    out.line(1, "context", pointer(attr.context));
    out.line(1, "auth_key_size", attr.auth_key_size);
    out.line(1, "auth_key", pointer(attr.auth_key));
    out.line(1, "iface", indexed(&HMEM_IFACES, attr.iface));
    out.line(1, "device", format_args!("{:#x}", attr.device));
    out.line(1, "hmem_data", pointer(attr.hmem_data));
    out.line(1, "page_size", attr.page_size);
    out.line(1, "base_mr", pointer(attr.base_mr));
    out.line(1, "sub_mr_cnt", attr.sub_mr_cnt);
}

fn cntr_attr(out: &mut Text, attr: &fi_cntr_attr) {
    out.head(0, "fi_cntr_attr");
    out.line(1, "events", indexed(&["FI_CNTR_EVENTS_COMP", "FI_CNTR_EVENTS_BYTES"], attr.events));
    out.line(1, "wait_obj", WaitObjectKind(attr.wait_obj));
    out.line(1, "wait_set", pointer(attr.wait_set));
    out.line(1, "flags", format_args!("{:#x}", attr.flags));
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

const ATOMIC_TYPES: [&str; 16] = [
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
    "FI_INT128",
    "FI_UINT128",
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
const WAIT_CONDS: [&str; 2] = ["FI_CQ_COND_NONE", "FI_CQ_COND_THRESHOLD"];
const HMEM_IFACES: [&str; 6] =
    ["FI_HMEM_SYSTEM", "FI_HMEM_CUDA", "FI_HMEM_ROCR", "FI_HMEM_ZE", "FI_HMEM_NEURON", "FI_HMEM_SYNAPSEAI"];

fn indexed(names: &[&str], value: u32) -> String {
    (*names.get(value as usize).unwrap_or(&"Unknown")).to_owned()
}

/// An object as text: by its own `tostr`, or its address if it has none.
///
/// # Safety
/// `fid` is an object, ours or another library's, whose table is as long as it says.
unsafe fn object(fid: *const fid) -> String {
    let address = || format!("fid: {}\n", pointer(fid));
    type ToStr = unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int;
    let at = offset_of!(fi_ops, tostr);
    // An application's table may be short and have empty slots, so it is not read as a `fi_ops`.
    // SAFETY: an object has a table, or null.
    let ops = unsafe { (*fid).ops }.cast::<u8>();
    if ops.is_null() {
        return address();
    }
    // SAFETY: a table begins with its size.
    let size = unsafe { ops.cast::<usize>().read() };
    if size < at + size_of::<ToStr>() {
        return address();
    }
    // SAFETY: the table has that slot; an empty one is `None`.
    let Some(tostr) = (unsafe { ops.wrapping_add(at).cast::<Option<ToStr>>().read() }) else { return address() };
    let mut text = vec![0u8; 8192];
    // SAFETY: the object's own function, for the object, with a buffer of that size.
    if unsafe { tostr(fid, text.as_mut_ptr().cast(), text.len()) } != 0 {
        return address();
    }
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    String::from_utf8_lossy(&text).into_owned()
}

/// The text of a value of that kind.
///
/// # Safety
/// `data` points to a value of that kind.
unsafe fn render(data: *const c_void, kind: c_int) -> String {
    let mut out = Text::default();
    // SAFETY: numeric kinds have four or eight bytes; each is read with its size.
    let small = || unsafe { data.cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let large = || unsafe { data.cast::<u64>().read_unaligned() };
    /// A reference to a structure of that kind.
    unsafe fn part<'a, T>(data: *const c_void) -> Option<&'a T> {
        // SAFETY: the caller chooses the type by the kind.
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
        // SAFETY: `kind` names the type.
        5 => show::tx(&mut out, 0, unsafe { part(data) }.map(convert::tx_from_c).as_ref()),
        // SAFETY: `kind` names the type.
        6 => show::rx(&mut out, 0, unsafe { part(data) }.map(convert::rx_from_c).as_ref()),
        7 => {
            // SAFETY: `kind` names the type, and its members are valid; that holds for both.
            let attr = unsafe { part(data) }.map(|attr| unsafe { convert::ep_from_c(attr) });
            show::ep(&mut out, 0, attr.as_ref());
        }
        8 => {
            // SAFETY: `kind` names the type.
            let attr: Option<&fi_domain_attr> = unsafe { part(data) };
            let open = attr.map_or(0, |attr| attr.domain.addr());
            // SAFETY: its members are valid.
            show::domain(&mut out, 0, attr.map(|attr| unsafe { convert::domain_from_c(attr) }).as_ref(), open);
        }
        9 => {
            // SAFETY: `kind` names the type, and its members are valid; that holds for both.
            let attr = unsafe { part(data) }.map(|attr| unsafe { convert::fabric_from_c(attr) });
            show::fabric(&mut out, 0, attr.as_ref());
        }
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
        // SAFETY: `kind` names the type.
        23 => return unsafe { object(data.cast()) },
        24 => return indexed(&COLLECTIVE_OPS, small()),
        25 => return indexed(&HMEM_IFACES, small()),
        26 => return CqFormat(small()).to_string(),
        27 => return indexed(&["warn", "trace", "info", "debug"], small()),
        28 => {
            let names = ["core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr"];
            return indexed(&names, small());
        }
        29 => {
            // SAFETY: `kind` names the type.
            if let Some(value) = unsafe { part(data) } {
                // SAFETY: its members are valid.
                unsafe { av_attr(&mut out, value) };
            }
        }
        30 => {
            // SAFETY: `kind` names the type.
            if let Some(value) = unsafe { part(data) } {
                cq_attr(&mut out, value);
            }
        }
        31 => {
            // SAFETY: `kind` names the type.
            if let Some(value) = unsafe { part(data) } {
                mr_attr(&mut out, value);
            }
        }
        32 => {
            // SAFETY: `kind` names the type.
            if let Some(value) = unsafe { part(data) } {
                cntr_attr(&mut out, value);
            }
        }
        33 => {
            // SAFETY: `kind` names the type.
            if let Some(value) = unsafe { part(data) } {
                cq_err_entry(&mut out, value);
            }
        }
        34 => return indexed(&WAIT_CONDS, small()),
        35 => return WaitObjectKind(small()).to_string(),
        _ => return "Unknown type".to_owned(),
    }
    out.0
}

/// fi_tostr(3): writes to one buffer of the whole process, as the interface requires.
pub(crate) unsafe extern "C" fn fi_tostr(data: *const c_void, kind: c_int) -> *mut c_char {
    if data.is_null() {
        return core::ptr::null_mut();
    }
    crate::fork::try_watch();
    // Rendered without the lock: an object's own `tostr` may call this function.
    // SAFETY: fi_tostr(3) passes a value of that kind.
    let text = unsafe { render(data, kind) };
    let mut buffer = crate::state::texts::buffer();
    let place = buffer.0.as_mut_ptr().cast::<c_char>();
    // The last two bytes are never part of the text.
    // SAFETY: the buffer has its size.
    unsafe { put_text(&text, place, buffer.0.len() - 1) };
    place
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
    // SAFETY: fi_tostr(3) passes a buffer of `len` bytes.
    unsafe { put_text(&text, buf, len.saturating_sub(1).max(1)) };
    buf
}

pub(crate) unsafe extern "C" fn nic_tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int {
    let mut out = Text::default();
    // SAFETY: C passes the nic that holds this table.
    let nic = unsafe { convert::nic(fid.cast()) };
    show::nic(&mut out, 0, nic.as_ref());
    // SAFETY: fi_nic(3) passes a buffer of `len` bytes, or null.
    unsafe { put_text(&out.0, buf, len) };
    0
}
