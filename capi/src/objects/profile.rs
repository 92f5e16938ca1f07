//! Profiles (fi_profile(3)): states of an endpoint, or of all endpoints of a domain, as variables.
//! There are no events: to report them would cost every message that no receive waits for.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::make;
use crate::objects::entries::err_entry;
use core::ffi::{CStr, c_char, c_int, c_void};
use ofi_abi::{
    FI_CLASS_PROFILE, FI_TYPE_CQ_ERR_ENTRY, FI_UINT64, FI_VAR_CONNECTION_CNT, FI_VAR_OFI_MEM, FI_VAR_UNEXP_MSG_CNT,
    FI_VAR_UNEXP_MSG_QUEUE, fi_cq_err_entry, fi_ops, fi_profile_desc, fi_profile_ops, fid, fid_profile,
};
use ofi_core::Errno;
use ofi_engine::{Counts, Measures};
use ofi_sync::busy::{Child, Children};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reads the state, with a list of the messages that wait for a receive, or without.
type Measure = dyn Fn(bool) -> Result<Measures, Errno>;

/// A profile.
#[repr(C)]
pub(crate) struct ProfileObj {
    c: fid_profile,
    measure: Box<Measure>,
    /// What all reads answer between fi_profile_start_reads and fi_profile_end_reads.
    snapshot: Mutex<Option<Measures>>,
    /// What had happened at the last reset.
    reset: Mutex<Counts>,
    /// Keeps the endpoint or domain open.
    _parent: Child,
}

object!(ProfileObj, FI_CLASS_PROFILE, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = enosys::fid_ops(close);

static OPS: fi_profile_ops = fi_profile_ops {
    size: size_of::<fi_profile_ops>(),
    reset,
    query_vars,
    query_events,
    read_var,
    reg_callback,
    start_reads,
    end_reads,
};

/// The name by which fi_open_ops opens a profile.
const NAME: &CStr = c"fi_profile_ops";

/// `enum fi_profile_type`: the type of a variable is an `enum fi_datatype`, or an `enum fi_type`.
const PRIMITIVE: u32 = 0;
const DEFINED: u32 = 1;

/// How a variable is read.
enum Value {
    /// A number that holds now.
    State(fn(&Measures) -> u64),
    /// A number of what has happened since the last reset.
    Count(fn(&Counts) -> u64),
    /// The messages that wait for a receive.
    Messages,
}

/// A variable.
struct Variable {
    id: u32,
    value: Value,
    name: &'static CStr,
    desc: &'static CStr,
}

/// The first of our own variables; the header's come before.
const OWN: u32 = 0x1_0000;

static VARIABLES: [Variable; 17] = [
    Variable {
        id: FI_VAR_UNEXP_MSG_CNT,
        value: Value::State(|measures| measures.unexpected),
        name: c"FI_VAR_UNEXP_MSG_CNT",
        desc: c"messages that wait for a receive",
    },
    Variable {
        id: FI_VAR_UNEXP_MSG_QUEUE,
        value: Value::Messages,
        name: c"FI_VAR_UNEXP_MSG_QUEUE",
        desc: c"the messages that wait for a receive, one entry each",
    },
    Variable {
        id: FI_VAR_CONNECTION_CNT,
        value: Value::State(|measures| measures.connections),
        name: c"FI_VAR_CONNECTION_CNT",
        desc: c"open connections",
    },
    Variable {
        id: FI_VAR_OFI_MEM,
        value: Value::State(|measures| measures.peer_memory),
        name: c"FI_VAR_OFI_MEM",
        desc: c"bytes of memory that is held for peers (FI_OFI_PEER_MEMORY limits it for each endpoint)",
    },
    Variable {
        id: OWN,
        value: Value::State(|measures| measures.queue_high_water),
        name: c"OFI_VAR_CQ_HIGH_WATER",
        desc: c"the most completions that waited to be read at a time",
    },
    count(1, |all| all.exchanged.sent.messages, c"OFI_VAR_SENT_MSG_CNT", c"messages sent"),
    count(2, |all| all.exchanged.sent.message_bytes, c"OFI_VAR_SENT_MSG_BYTES", c"bytes of messages sent"),
    count(3, |all| all.exchanged.received.messages, c"OFI_VAR_RECV_MSG_CNT", c"messages received"),
    count(4, |all| all.exchanged.received.message_bytes, c"OFI_VAR_RECV_MSG_BYTES", c"bytes of messages received"),
    count(5, |all| all.exchanged.sent.accesses, c"OFI_VAR_OUT_ACCESS_CNT", c"one-sided operations to peers' memory"),
    count(
        6,
        |all| all.exchanged.sent.access_bytes,
        c"OFI_VAR_OUT_ACCESS_BYTES",
        c"bytes of operations to peers' memory",
    ),
    count(7, |all| all.exchanged.received.accesses, c"OFI_VAR_IN_ACCESS_CNT", c"one-sided operations of peers"),
    count(8, |all| all.exchanged.received.access_bytes, c"OFI_VAR_IN_ACCESS_BYTES", c"bytes of operations of peers"),
    count(9, |all| all.failures, c"OFI_VAR_FAILED_CNT", c"operations that failed"),
    count(10, |all| all.connected, c"OFI_VAR_CONNECTED_CNT", c"connections that were made"),
    count(11, |all| all.ended, c"OFI_VAR_ENDED_CNT", c"connections that ended or could not be made"),
    count(12, |all| all.refused, c"OFI_VAR_REFUSED_CNT", c"connect requests that were refused"),
];

const fn count(number: u32, value: fn(&Counts) -> u64, name: &'static CStr, desc: &'static CStr) -> Variable {
    Variable { id: OWN + number, value: Value::Count(value), name, desc }
}

/// fi_open_ops on an object whose state `measure` reads. The profile is the only set of operations
/// that can be opened; it keeps the `parent` open.
///
/// # Safety
/// The name is null or ends with NUL; `ops` is null or valid.
pub(crate) unsafe fn open(
    (name, flags): (*const c_char, u64),
    ops: *mut *mut c_void,
    context: *mut c_void,
    parent: &Children,
    measure: impl Fn(bool) -> Result<Measures, Errno> + 'static,
) -> c_int {
    if name.is_null() || ops.is_null() {
        return Errno::EINVAL.negative();
    }
    // SAFETY: not null, so it ends with NUL by this function's contract.
    if unsafe { CStr::from_ptr(name) } != NAME {
        return Errno::ENOSYS.negative();
    }
    if flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    let mut profile = core::ptr::null_mut();
    let open = |_: &_| {
        let c = fid_profile { fid: handle::header::<ProfileObj>(context), ops: &OPS };
        let object = ProfileObj {
            c,
            measure: Box::new(measure),
            snapshot: Mutex::default(),
            reset: Mutex::default(),
            _parent: parent.add(),
        };
        Ok(handle::install(object).cast::<fid>())
    };
    // SAFETY: the place is a local variable, and the profile's object is new.
    let status = unsafe { make(&raw mut profile, "open a profile", open) };
    if status == 0 {
        // The caller finds the profile by the place of its table (fi_profile_open).
        // SAFETY: the profile was just made.
        let place = unsafe { &raw mut (*profile.cast::<ProfileObj>()).c.ops };
        // SAFETY: not null, so valid by this function's contract.
        unsafe { ops.write(place.cast()) };
    }
    status
}

impl ProfileObj {
    fn snapshot(&self) -> MutexGuard<'_, Option<Measures>> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time.
    unsafe { handle::close::<ProfileObj>(fid, |_| false) }
}

/// Counts begin anew at 0; states are what they are.
unsafe extern "C" fn reset(profile: *mut fid_profile, flags: u64) -> c_int {
    let profile = ours!(ProfileObj, profile.cast());
    if flags != 0 {
        return Errno::EBADFLAGS.negative();
    }
    match (profile.measure)(false) {
        Ok(measures) => {
            *profile.reset.lock().unwrap_or_else(PoisonError::into_inner) = measures.counts;
            0
        }
        Err(errno) => errno.negative(),
    }
}

unsafe extern "C" fn query_vars(profile: *mut fid_profile, list: *mut fi_profile_desc, count: *mut usize) -> isize {
    let _ = ours!(ProfileObj, profile.cast(), isize);
    // SAFETY: null or valid by fi_profile_query_vars.
    unsafe { list_into(&VARIABLES, list, count) }
}

unsafe extern "C" fn query_events(profile: *mut fid_profile, list: *mut fi_profile_desc, count: *mut usize) -> isize {
    let _ = ours!(ProfileObj, profile.cast(), isize);
    // SAFETY: null or valid by fi_profile_query_events.
    unsafe { list_into(&[], list, count) }
}

/// Describes as many variables as there is room for, and counts all. Returns how many it described.
///
/// # Safety
/// `count` is null or valid, and `list` is null or has room for that many.
unsafe fn list_into(variables: &[Variable], list: *mut fi_profile_desc, count: *mut usize) -> isize {
    // SAFETY: null or valid by this function's contract.
    let Some(count) = (unsafe { count.as_mut() }) else { return Errno::EINVAL.negative() as isize };
    let room = if list.is_null() { 0 } else { *count };
    *count = variables.len();
    for (index, variable) in variables.iter().take(room).enumerate() {
        let (datatype_sel, datatype, size) = match variable.value {
            Value::State(_) | Value::Count(_) => (PRIMITIVE, FI_UINT64, size_of::<u64>()),
            Value::Messages => (DEFINED, FI_TYPE_CQ_ERR_ENTRY, size_of::<fi_cq_err_entry>()),
        };
        let (name, desc) = (variable.name.as_ptr(), variable.desc.as_ptr());
        let described = fi_profile_desc { id: variable.id, datatype_sel, datatype, flags: 0, size, name, desc };
        // SAFETY: the list has room for more entries than `index`.
        unsafe { list.wrapping_add(index).write(described) };
    }
    room.min(variables.len()).cast_signed()
}

/// Writes a variable's value: a number whole, of a list as many entries as fit; -FI_ETOOSMALL if
/// the buffer has no room for a number, or is there but has no room for an entry. `size` becomes
/// the size of the whole value. Returns the number of bytes written.
unsafe extern "C" fn read_var(profile: *mut fid_profile, id: u32, data: *mut c_void, size: *mut usize) -> isize {
    let profile = ours!(ProfileObj, profile.cast(), isize);
    let variable = VARIABLES.iter().find(|variable| variable.id == id);
    // SAFETY: null or valid by fi_profile(3).
    let (Some(variable), Some(size)) = (variable, unsafe { size.as_mut() }) else {
        return Errno::EINVAL.negative() as isize;
    };
    let snapshot = profile.snapshot();
    let fresh;
    let measures = match &*snapshot {
        Some(measures) => measures,
        None => match (profile.measure)(matches!(variable.value, Value::Messages)) {
            Ok(measures) => {
                fresh = measures;
                &fresh
            }
            Err(errno) => return errno.negative() as isize,
        },
    };
    let room = if data.is_null() { 0 } else { *size };
    let number = match variable.value {
        Value::State(state) => Some(state(measures)),
        Value::Count(count) => {
            let since = profile.reset.lock().unwrap_or_else(PoisonError::into_inner);
            // A domain loses the counts of an endpoint that closes, also after the reset.
            Some(count(&measures.counts).saturating_sub(count(&since)))
        }
        Value::Messages => None,
    };
    match number {
        Some(number) => {
            *size = size_of::<u64>();
            if room < *size {
                return Errno::ETOOSMALL.negative() as isize;
            }
            // SAFETY: there is room for a number.
            unsafe { data.cast::<u64>().write_unaligned(number) };
            size.cast_signed()
        }
        None => {
            const ENTRY: usize = size_of::<fi_cq_err_entry>();
            let count = measures.messages.len().min(room / ENTRY);
            *size = measures.messages.len() * ENTRY;
            if !data.is_null() && room < ENTRY {
                return Errno::ETOOSMALL.negative() as isize;
            }
            for (index, message) in measures.messages.iter().take(count).enumerate() {
                // SAFETY: there is room for `count` entries.
                unsafe { data.cast::<fi_cq_err_entry>().wrapping_add(index).write_unaligned(err_entry(message)) };
            }
            (count * ENTRY).cast_signed()
        }
    }
}

/// There are no events.
unsafe extern "C" fn reg_callback(profile: *mut fid_profile, _: u32, _: *const c_void, _: *mut c_void) -> c_int {
    let _ = ours!(ProfileObj, profile.cast());
    Errno::EINVAL.negative()
}

unsafe extern "C" fn start_reads(profile: *mut fid_profile, _: u64) {
    // SAFETY: C passes the object that holds this table.
    if let Ok(profile) = unsafe { handle::borrow::<ProfileObj>(profile.cast()) } {
        // Without memory there is no snapshot, and reads answer what holds when they are made.
        let measures = (profile.measure)(true).ok();
        *profile.snapshot() = measures;
    }
}

unsafe extern "C" fn end_reads(profile: *mut fid_profile, _: u64) {
    // SAFETY: C passes the object that holds this table.
    if let Ok(profile) = unsafe { handle::borrow::<ProfileObj>(profile.cast()) } {
        *profile.snapshot() = None;
    }
}
