//! Completion queues (fi_cq(3)). Each entry format is a prefix of the longest, so writing an entry
//! is one copy.

use crate::enosys;
use crate::ffi::handle;
use crate::ffi::handle::object;
use crate::ffi::handle::ours;
use crate::ffi::ptr::put_text;
use crate::objects::domain::{DomainObj, Format};
use crate::objects::entries::err_entry;
use crate::objects::wait::Wait;
use crate::objects::wait::WaitConfig;
use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use ofi_abi::FI_CLASS_CQ;
use ofi_abi::{
    FI_AFFINITY, fi_addr_t, fi_cq_attr, fi_cq_err_entry, fi_cq_tagged_entry, fi_ops, fi_ops_cq, fid, fid_cq,
};
use ofi_core::error::{Error, Result};
use ofi_core::{Completion, CqFormat, Errno, Version};
use ofi_engine::erased::QueueControl;
use ofi_engine::trigger::Membership;
use ofi_engine::{CompletionQueue, Waited, Waiting};
use ofi_memory::fresh;
use ofi_sync::busy::Child;
use ofi_sync::lock::LockKind;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A completion queue.
#[repr(C)]
pub(crate) struct CqObj {
    pub(crate) c: fid_cq,
    /// The `CompletionQueue<K>` for which the table was made.
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn QueueControl>,
    pub(crate) wait: Wait,
    /// With FI_TRIGGER: reading it starts deferred work.
    pub(crate) membership: Option<Membership>,
    /// Error data that the last error entry points to.
    pub(crate) error_data: Mutex<Vec<u8>>,
    pub(crate) threshold: bool,
    pub(crate) api: Version,
    pub(crate) domain: *const DomainObj,
    pub(crate) parent: Child,
}

object!(CqObj, FI_CLASS_CQ, FID_OPS, c.fid[ops]);

pub(crate) static FID_OPS: fi_ops = fi_ops { control, ..enosys::fid_ops(close) };

/// The function table for a lock kind and an entry format.
pub(crate) fn table<K: LockKind>(format: Format) -> &'static fi_ops_cq {
    match format {
        Format::Context => Table::<K, 1>::OPS,
        Format::Msg => Table::<K, 3>::OPS,
        Format::Data => Table::<K, 5>::OPS,
        Format::Tagged => Table::<K, ENTRY>::OPS,
    }
}

/// Function tables for entries of `N` words.
struct Table<K, const N: usize>(PhantomData<K>);

impl<K: LockKind, const N: usize> Table<K, N> {
    const OPS: &'static fi_ops_cq = &fi_ops_cq {
        size: size_of::<fi_ops_cq>(),
        read: read::<K, N>,
        readfrom: readfrom::<K, N>,
        readerr: readerr::<K>,
        sread: sread::<K, N>,
        sreadfrom: sreadfrom::<K, N>,
        signal: signal::<K>,
        strerror: strerror::<K>,
        export_xpu: enosys::enosys,
    };
}

/// Opens a completion queue.
///
/// # Safety
/// The attribute's wait set is open where its kind is FI_WAIT_SET.
pub(crate) unsafe fn open(domain: &DomainObj, attr: &fi_cq_attr, context: *mut c_void) -> Result<*mut fid_cq> {
    let refuse = |errno, what: String| Err(Error::new(errno, format!("open a completion queue with {what}")));
    if attr.flags & !FI_AFFINITY != 0 {
        return refuse(Errno::EINVAL, format!("flags {:#x}", attr.flags));
    }
    let format = match CqFormat(attr.format) {
        CqFormat::UNSPEC | CqFormat::CONTEXT => Format::Context,
        CqFormat::MSG => Format::Msg,
        CqFormat::DATA => Format::Data,
        CqFormat::TAGGED => Format::Tagged,
        other => return refuse(Errno::EINVAL, format!("format {}", other.0)),
    };
    let cpu = (attr.flags & FI_AFFINITY != 0).then(|| usize::try_from(attr.signaling_vector).ok()).flatten();
    // SAFETY: this function's contract.
    let config = unsafe { WaitConfig::new(attr.wait_obj, attr.wait_set, domain.control.signaler(), cpu) }?;
    let waitable = config.waiting != Waiting::Never;
    // Without a wait object the condition is ignored (fi_cq(3)).
    if waitable && attr.wait_cond > 1 {
        return refuse(Errno::EINVAL, format!("wait condition {}", attr.wait_cond));
    }
    let opened = domain.control.cq(attr.size, config.wait_object.clone(), config.waiting);
    let wait = config.open(opened.control.clone())?;
    let c = fid_cq { fid: handle::header::<CqObj>(context), ops: (opened.ops)(format) };
    let object = CqObj {
        c,
        engine_ptr: opened.engine_ptr,
        control: opened.control,
        wait,
        membership: opened.membership,
        error_data: Mutex::default(),
        threshold: waitable && attr.wait_cond == 1,
        api: domain.api,
        domain,
        parent: domain.children.add(),
    };
    Ok(handle::install(object).cast())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C passes the object that holds this table, for the last time if it is closed.
    unsafe { handle::close::<CqObj>(fid, |cq| cq.control.users().count() > 0) }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let cq = ours!(CqObj, fid);
    // SAFETY: fi_cq(3) passes null or the type for the command and the kind of wait object.
    unsafe { cq.wait.control(command, arg, cq.control.descriptor()) }
}

/// The object and its engine.
///
/// # Safety
/// `cq` is a living completion queue of ours whose table is `Table<K>`.
#[inline]
unsafe fn parts<'a, K: LockKind>(cq: *mut fid_cq) -> (&'a CqObj, &'a CompletionQueue<K>) {
    // SAFETY: the table that holds this thunk is installed only in a `CqObj`, and fi_close(3)
    // forbids calls after it.
    let object = unsafe { &*cq.cast::<CqObj>() };
    // SAFETY: `engine_ptr` was made from a `CompletionQueue<K>` together with this table, and lives
    // as long as the object.
    let queue = unsafe { &*object.engine_ptr.cast::<CompletionQueue<K>>() };
    (object, queue)
}

/// The words of an entry, which was written a moment ago.
#[inline(always)]
fn words(completion: &Completion) -> [u64; ENTRY] {
    let Completion { context, flags, len, buf, data, tag, .. } = completion;
    let [context, len, buf] = [context, len, buf].map(|word| fresh(word) as u64);
    [context, fresh(flags).bits(), len, buf, fresh(data), fresh(tag)]
}

/// Words of the longest entry.
const ENTRY: usize = size_of::<fi_cq_tagged_entry>() / size_of::<u64>();

/// Reads entries of `N` words.
///
/// # Safety
/// `buf` has room for `count` such entries or is null, `src` for `count` addresses or is null.
#[inline(always)]
unsafe fn read_into<K: LockKind, const N: usize>(
    queue: &CompletionQueue<K>,
    buf: *mut c_void,
    count: usize,
    src: *mut fi_addr_t,
) -> isize {
    let mut place = buf.cast::<[u64; N]>();
    let mut from_place = src;
    let count = if buf.is_null() { 0 } else { count };
    let result = queue.read(count, |completion| {
        let words = words(completion);
        let entry: [u64; N] = core::array::from_fn(|at| words[at]);
        // SAFETY: there is room for `count` entries, and every format is a prefix of the tagged
        // one, in words.
        unsafe { place.write_unaligned(entry) };
        place = place.wrapping_add(1);
        if !from_place.is_null() {
            // SAFETY: `src` has room for `count` addresses.
            unsafe { from_place.write(completion.src.0) };
            from_place = from_place.wrapping_add(1);
        }
    });
    match result {
        Ok(count) => count.cast_signed(),
        Err(errno) => errno.negative() as isize,
    }
}

unsafe extern "C" fn read<K: LockKind, const N: usize>(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (_, queue) = unsafe { parts::<K>(cq) };
    // SAFETY: fi_cq_read(3) passes room for `count` entries.
    unsafe { read_into::<K, N>(queue, buf, count, core::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom<K: LockKind, const N: usize>(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    src: *mut fi_addr_t,
) -> isize {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (_, queue) = unsafe { parts::<K>(cq) };
    // SAFETY: fi_cq_readfrom(3) passes room for `count` entries and addresses.
    unsafe { read_into::<K, N>(queue, buf, count, src) }
}

unsafe extern "C" fn sread<K: LockKind, const N: usize>(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the arguments are those of this function.
    unsafe { sreadfrom::<K, N>(cq, buf, count, core::ptr::null_mut(), cond, timeout) }
}

/// The threshold of a read of `count` entries. The condition "is interpreted as a size_t", says
/// fi_cq(3): programs pass the number itself, or its address.
///
/// # Safety
/// `cond` is a number up to `count`, or outside of the addresses that programs have, or points to a
/// size_t.
unsafe fn threshold_of(cond: *const c_void, count: usize) -> usize {
    /// The lowest address of a program that is not position-independent, and the end of all.
    const ADDRESSES: core::ops::Range<usize> = 1 << 22..1 << 47;
    if cond.addr() <= count || !ADDRESSES.contains(&cond.addr()) {
        return cond.addr();
    }
    // SAFETY: this function's contract.
    unsafe { cond.cast::<usize>().read_unaligned() }
}

unsafe extern "C" fn sreadfrom<K: LockKind, const N: usize>(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    src: *mut fi_addr_t,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (object, queue) = unsafe { parts::<K>(cq) };
    if object.control.waiting() == Waiting::Never {
        return Errno::ENOSYS.negative() as isize;
    }
    // SAFETY: fi_cq_sread(3) passes room for `count` entries and addresses.
    let first = unsafe { read_into::<K, N>(queue, buf, count, src) };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let threshold = if object.threshold {
        // SAFETY: with FI_CQ_COND_THRESHOLD the condition is a threshold or its address (fi_cq(3)).
        unsafe { threshold_of(cond, count) }.clamp(1, count.max(1))
    } else {
        1
    };
    if first != Errno::AGAIN.negative() as isize || timeout == Some(Duration::ZERO) {
        return first;
    }
    let end = timeout.map(|timeout| ofi_os::clock::now() + timeout);
    loop {
        let left = end.map(|end| end.since(ofi_os::clock::now()));
        let waited = queue.wait(threshold, left);
        // SAFETY: as above.
        let got = unsafe { read_into::<K, N>(queue, buf, count, src) };
        let waited = match waited {
            Ok(waited) => waited,
            // A signal ends the wait for the threshold, but some entries may be there.
            Err(errno) if got == Errno::AGAIN.negative() as isize => return errno.negative() as isize,
            Err(_) => return got,
        };
        // Return nothing only after a signal or the timeout; otherwise another reader was faster,
        // so wait again.
        if got != Errno::AGAIN.negative() as isize || waited != Waited::Ready {
            return got;
        }
    }
}

unsafe extern "C" fn readerr<K: LockKind>(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, _flags: u64) -> isize {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (object, queue) = unsafe { parts::<K>(cq) };
    if entry.is_null() {
        return Errno::EINVAL.negative() as isize;
    }
    let failure = match queue.read_error() {
        Ok(failure) => failure,
        Err(errno) => return errno.negative() as isize,
    };
    let mut filled = fi_cq_err_entry {
        olen: failure.olen,
        err: failure.errno.raw(),
        prov_errno: failure.cause.code(),
        ..err_entry(&failure.completion)
    };
    let size = if object.api < Version::new(1, 5) {
        72
    } else if object.api < Version::new(1, 20) {
        80
    } else {
        size_of::<fi_cq_err_entry>()
    };
    if let Some(sender) = failure.sender {
        let (bytes, len) = sender.encode();
        let (theirs, room) = if object.api >= Version::new(1, 5) {
            // SAFETY: `entry` is not null, and has this field in these versions (fi_cq(3)).
            let theirs = unsafe { (*entry).err_data };
            // SAFETY: as above.
            (theirs, unsafe { (*entry).err_data_size })
        } else {
            (core::ptr::null_mut(), 0)
        };
        if room > 0 && !theirs.is_null() {
            let count = room.min(len);
            // SAFETY: the caller's buffer has `room >= count` bytes (fi_cq(3)).
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), theirs.cast::<u8>(), count) };
            (filled.err_data, filled.err_data_size) = (theirs, count);
        } else {
            let mut kept = object.error_data.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = bytes[..len].to_vec();
            (filled.err_data, filled.err_data_size) = (kept.as_mut_ptr().cast(), len);
        }
    } else if object.api >= Version::new(1, 5) {
        // No error data: the caller's buffer stays in the entry; a pointer without a size is
        // ignored (fi_cq(3)).
        // SAFETY: the entry of such a caller has this field.
        let room = unsafe { (*entry).err_data_size };
        if room > 0 {
            // SAFETY: as above.
            filled.err_data = unsafe { (*entry).err_data };
        }
    }
    // SAFETY: a caller of that interface version passes an entry of at least `size` bytes
    // (fi_cq(3)).
    unsafe { core::ptr::copy_nonoverlapping(core::ptr::from_ref(&filled).cast::<u8>(), entry.cast::<u8>(), size) };
    1
}

unsafe extern "C" fn signal<K: LockKind>(cq: *mut fid_cq) -> c_int {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (object, _) = unsafe { parts::<K>(cq) };
    object.control.signal().map_or_else(Errno::negative, |()| 0)
}

unsafe extern "C" fn strerror<K: LockKind>(
    cq: *mut fid_cq,
    code: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: C calls this thunk through the table of the queue that it passes.
    let (_, queue) = unsafe { parts::<K>(cq) };
    let text = queue.strerror(code);
    // SAFETY: fi_cq_strerror(3) passes `len` bytes, or null.
    unsafe { put_text(&text, buf, len) };
    if buf.is_null() || len == 0 { crate::state::texts::keep(text) } else { buf }
}
