//! Insertions into address vectors (fi_av(3)). With FI_EVENT they report to an event queue what
//! they otherwise return; the work is done in the call in either case.

use crate::ffi::handle::ours;
use crate::ffi::ptr::{refuse, socket_addr, text};
use crate::objects::av::{AvObj, USER_ID};
use crate::reserve::Watch;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{FI_MORE, FI_SYNC_ERR, fi_addr_t, fid_av};
use ofi_core::error::Result;
use ofi_core::{Addr, AddrFormat, Errno, FiAddr};
use ofi_engine::EventQueue;
use ofi_engine::completion::eq::{Event, EventKind};

/// A call that inserts addresses: where it reports what became of each, and what it has done so
/// far.
struct Insertion<'a> {
    av: &'a AvObj,
    /// The array for handles; null if not requested.
    handles: *mut fi_addr_t,
    /// The array for errors with FI_SYNC_ERR; otherwise null.
    errors: *mut c_int,
    /// Takes the results with FI_EVENT.
    events: Option<&'a EventQueue>,
    /// The call's context, which its events carry.
    context: usize,
    inserted: usize,
    /// The last failure of an address, or the first one of the address vector.
    failure: Option<Errno>,
    /// A process that changes the address vector is stopped: the other addresses are not tried.
    aborted: bool,
}

/// Whether an address vector fails with this error, whatever the address: no memory, opened for
/// reading only, a process that changes it is stopped, or its file was removed.
const fn is_of_vector(errno: Errno) -> bool {
    matches!(errno, Errno::ENOMEM | Errno::EACCES | Errno::AGAIN | Errno::ESTALE)
}

impl<'a> Insertion<'a> {
    /// Checks what is common to all calls that insert.
    fn begin(av: &'a AvObj, handles: *mut fi_addr_t, flags: u64, context: *mut c_void) -> Result<Self, Errno> {
        let events = av.event_queue()?.map(|queue| &**queue);
        // SAFETY: the domain stays open while it has address vectors.
        let ids = unsafe { &*av.domain }.user_ids();
        if flags & !(FI_MORE | FI_SYNC_ERR | USER_ID) != 0 || flags & USER_ID != 0 && !ids {
            return Err(Errno::EBADFLAGS);
        }
        if flags & USER_ID != 0 && av.av.is_shared() {
            // The ids would be other processes' as well.
            return Err(Errno::ENOSYS);
        }
        if flags & USER_ID != 0 && av.ids {
            // A vector opened with FI_AV_USER_ID gets its ids by fi_av_set_user_id(3) only.
            return Err(Errno::EINVAL);
        }
        let errors = match (flags & FI_SYNC_ERR != 0, events) {
            (false, _) => core::ptr::null_mut(),
            // The context cannot be an array and what events carry.
            (true, Some(_)) => return Err(Errno::EBADFLAGS),
            (true, None) if context.is_null() => return Err(Errno::EINVAL),
            (true, None) => context.cast(),
        };
        Ok(Self {
            av,
            handles,
            errors,
            events,
            context: context.expose_provenance(),
            inserted: 0,
            failure: None,
            aborted: false,
        })
    }

    /// Reports what became of an address.
    ///
    /// # Safety
    /// Both arrays are null or have an element `index`.
    unsafe fn put(&mut self, index: usize, result: Result<FiAddr, Errno>) {
        if !self.handles.is_null() {
            // SAFETY: the array has an element `index` by this function's contract.
            unsafe { self.handles.wrapping_add(index).write(result.unwrap_or(FiAddr::UNSPEC).0) };
        }
        if !self.errors.is_null() {
            // SAFETY: the array has an element `index` by this function's contract.
            unsafe { self.errors.wrapping_add(index).write(result.err().map_or(0, Errno::raw)) };
        }
        match result {
            Ok(_) => self.inserted += 1,
            Err(errno) => {
                // A failure of the address vector outweighs those of addresses.
                if !self.failure.is_some_and(is_of_vector) {
                    self.failure = Some(errno);
                }
                self.push(EventKind::InsertionFailed { context: self.context, index, errno });
            }
        }
    }

    /// Inserts the address that `read` returns.
    fn insert(&mut self, read: impl FnOnce() -> Result<Addr, Errno>) -> Result<FiAddr, Errno> {
        if self.aborted {
            return Err(Errno::ECANCELED);
        }
        let inserted = insert_one(self.av, read);
        // Each other address would wait as long.
        self.aborted = inserted == Err(Errno::AGAIN);
        inserted
    }

    fn push(&self, kind: EventKind) {
        if let Some(events) = self.events {
            events.push(Event { owner: self.av.owner(), kind });
        }
    }

    /// Ends the call. Its result: the number of inserted addresses, or 0 if an event has it. An
    /// error if nothing was inserted because the address vector failed or, `alone`, because of any
    /// failure.
    fn end(self, alone: bool) -> c_int {
        self.push(EventKind::Inserted { context: self.context, count: self.inserted });
        match self.failure {
            _ if self.events.is_some() => 0,
            Some(errno) if self.inserted == 0 && (alone || is_of_vector(errno)) => errno.negative(),
            // The calls refuse counts that do not fit.
            _ => c_int::try_from(self.inserted).unwrap_or(c_int::MAX),
        }
    }
}

/// Reads the string to which the pointer at `place` points.
///
/// # Safety
/// There is a pointer at `place`, null or to a string.
unsafe fn string_addr(place: *const u8) -> Option<Addr> {
    // SAFETY: this function's contract.
    let text = unsafe { place.cast::<*const c_char>().read_unaligned() };
    // SAFETY: null or a string by this function's contract.
    unsafe { socket_addr(text.cast()) }
}

/// Reads the address at `place`.
///
/// # Safety
/// There is an address.
unsafe fn first_addr(place: *const u8) -> Option<Addr> {
    // SAFETY: this function's contract.
    unsafe { socket_addr(place.cast()) }
}

/// Inserts the address that `read` returns. Removes it again if that used the memory reserve:
/// entries live long, while the reserve is for short-lived allocations.
fn insert_one(av: &AvObj, read: impl FnOnce() -> Result<Addr, Errno>) -> Result<FiAddr, Errno> {
    let watch = Watch::begin();
    let inserted = read().and_then(|addr| av.av.try_insert(addr));
    if !watch.verdict() {
        return inserted;
    }
    match inserted {
        // The entry of a shared address vector, which another process keeps from being changed.
        Ok(handle) if av.av.try_remove(handle).is_err() => Ok(handle),
        _ => Err(Errno::ENOMEM),
    }
}

/// Resolves a node and a service in the vector's format.
fn resolve(av: &AvObj, node: Option<&str>, service: Option<&str>) -> Result<Option<Addr>> {
    if av.format == AddrFormat::ADDR_STR {
        return Ok(ofi_registry::local::lookup(node, service));
    }
    ofi_registry::inet::lookup(node, service, false, false, &mut av.format.clone())
}

pub(crate) unsafe extern "C" fn insert(
    av: *mut fid_av,
    addrs: *const c_void,
    count: usize,
    handles: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let mut insertion = match Insertion::begin(av, handles, flags, context) {
        Ok(insertion) => insertion,
        Err(errno) => return errno.negative(),
    };
    if count > 0 && (addrs.is_null() || flags & USER_ID != 0 && handles.is_null()) {
        return Errno::EINVAL.negative();
    }
    if c_int::try_from(count).is_err() {
        return Errno::EINVAL.negative();
    }
    let mut at = addrs.cast::<u8>();
    // Programs pass strings as an array of pointers (fi_av(3)), or packed as fi_getname returned
    // them. The high bytes of a pointer are zero; a string has no zero in its first eight bytes.
    let has_zero = || {
        (0..size_of::<*const c_char>()).any(|byte| {
            // SAFETY: `count` is not 0, so there is a pointer, or a string that ends with its first
            // zero.
            unsafe { at.wrapping_add(byte).read() == 0 }
        })
    };
    let strings = av.format == AddrFormat::ADDR_STR && count > 0 && has_zero();
    for index in 0..count {
        let read = if strings { string_addr } else { first_addr };
        // SAFETY: fi_av_insert(3) passes `count` addresses in the domain's format, one behind the
        // other.
        let addr = unsafe { read(at) };
        let result = insertion.insert(|| addr.ok_or(Errno::EINVAL));
        if let (Ok(handle), true) = (result, flags & USER_ID != 0) {
            // SAFETY: with FI_AV_USER_ID the array holds `count` ids to begin with (fi_av(3)).
            let id = FiAddr(unsafe { *handles.wrapping_add(index) });
            av.av.set_user_id(handle, id);
        }
        // SAFETY: fi_av_insert(3) passes arrays of `count` elements, or null.
        unsafe { insertion.put(index, result) };
        let stride = match av.format {
            ofi_core::AddrFormat::SOCKADDR_IN6 => ofi_core::addr::SOCKADDR_IN6_LEN,
            ofi_core::AddrFormat::SOCKADDR_IN => ofi_core::addr::SOCKADDR_IN_LEN,
            _ if strings => size_of::<*const c_char>(),
            _ => addr.map_or(ofi_core::addr::SOCKADDR_IN_LEN, |addr| addr.encoded_len()),
        };
        at = at.wrapping_add(stride);
    }
    insertion.end(false)
}

pub(crate) unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    handle: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let mut insertion = match Insertion::begin(av, handle, flags, context) {
        Ok(insertion) => insertion,
        Err(errno) => return errno.negative(),
    };
    let read = || {
        // SAFETY: fi_av_insertsvc(3) passes strings, or null; that holds for both.
        let (node, service) = (unsafe { text(node) }, unsafe { text(service) });
        if node.is_none() || service.is_none() && !node.as_deref().is_some_and(|node| node.contains("://")) {
            return Err(Errno::EINVAL);
        }
        match resolve(av, node.as_deref(), service.as_deref()) {
            Ok(addr) => addr.ok_or(Errno::EINVAL),
            Err(error) => {
                refuse(&error);
                Err(error.errno())
            }
        }
    };
    let result = insertion.insert(read);
    // SAFETY: fi_av_insertsvc(3) passes places for one element, or null.
    unsafe { insertion.put(0, result) };
    insertion.end(true)
}

/// Consecutive names of nodes or services: addresses and numbers count up, other names count in the
/// number at their end.
enum Series<'a> {
    V4(u32),
    V6(u128),
    Numbered { stem: &'a str, start: u64, width: usize },
    Single(&'a str),
}

impl<'a> Series<'a> {
    /// The series of `count` names that begins with `first`. `EINVAL` if there is none.
    fn new(first: &'a str, count: usize) -> Result<Self, Errno> {
        use std::net::{Ipv4Addr, Ipv6Addr};
        let last = u32::try_from(count).map_err(|_| Errno::EINVAL)?.saturating_sub(1);
        let (stem, digits) = first.split_at(first.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let series = if let Ok(ip) = first.parse::<Ipv4Addr>() {
            ip.to_bits().checked_add(last).map(|_| Self::V4(ip.to_bits()))
        } else if let Ok(ip) = first.parse::<Ipv6Addr>() {
            ip.to_bits().checked_add(u128::from(last)).map(|_| Self::V6(ip.to_bits()))
        } else if last == 0 {
            Some(Self::Single(first))
        } else {
            let start = digits.parse::<u64>().ok().filter(|start| start.checked_add(u64::from(last)).is_some());
            start.map(|start| Self::Numbered { stem, start, width: digits.len() })
        };
        series.ok_or(Errno::EINVAL)
    }

    /// The name at an index.
    fn name(&self, at: u32) -> String {
        use std::net::{Ipv4Addr, Ipv6Addr};
        match *self {
            Self::V4(first) => Ipv4Addr::from(first.wrapping_add(at)).to_string(),
            Self::V6(first) => Ipv6Addr::from(first.wrapping_add(u128::from(at))).to_string(),
            Self::Numbered { stem, start, width } => format!("{stem}{:0width$}", start.wrapping_add(u64::from(at))),
            Self::Single(name) => name.to_owned(),
        }
    }
}

pub(crate) unsafe extern "C" fn insertsym(
    av: *mut fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    handles: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let av = ours!(AvObj, av.cast());
    let mut insertion = match Insertion::begin(av, handles, flags & !USER_ID, context) {
        Ok(insertion) => insertion,
        Err(errno) => return errno.negative(),
    };
    if flags & USER_ID != 0 {
        return Errno::EBADFLAGS.negative();
    }
    // SAFETY: fi_av_insertsym(3) passes strings, or null; that holds for both.
    let (Some(node), Some(service)) = (unsafe { text(node) }, unsafe { text(service) }) else {
        return Errno::EINVAL.negative();
    };
    let in_range = nodes.checked_mul(services).is_some_and(|count| c_int::try_from(count).is_ok());
    let (Ok(node), Ok(service), true) = (Series::new(&node, nodes), Series::new(&service, services), in_range) else {
        return Errno::EINVAL.negative();
    };
    for index in 0..nodes * services {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let result = insertion.insert(|| {
            let (node, service) = (node.name(place(index / services)), service.name(place(index % services)));
            resolve(av, Some(&node), Some(&service)).map_err(|error| error.errno())?.ok_or(Errno::EINVAL)
        });
        // SAFETY: fi_av_insertsym(3) passes arrays of nodes times services elements, or null.
        unsafe { insertion.put(index, result) };
    }
    insertion.end(false)
}

#[cfg(test)]
mod tests {
    use super::Series;

    fn names(first: &str, count: u32) -> Option<Vec<String>> {
        let series = Series::new(first, count as usize).ok()?;
        Some((0..count).map(|at| series.name(at)).collect())
    }

    #[test]
    fn names_count_up() {
        assert_eq!(names("10.0.0.254", 3).unwrap(), ["10.0.0.254", "10.0.0.255", "10.0.1.0"]);
        assert_eq!(names("host09", 2).unwrap(), ["host09", "host10"]);
        assert_eq!(names("::1", 2).unwrap(), ["::1", "::2"]);
        assert_eq!(names("7000", 2).unwrap(), ["7000", "7001"]);
        assert_eq!(names("localhost", 1).unwrap(), ["localhost"]);
        assert!(names("localhost", 2).is_none());
        assert!(names("255.255.255.255", 2).is_none());
        assert!(names("18446744073709551615", 2).is_none());
        assert!(names("localhost", 0).unwrap().is_empty());
    }
}
