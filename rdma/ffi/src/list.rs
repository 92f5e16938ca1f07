//! `struct rdma_addrinfo` of `<rdma/rdma_cma.h>`: reads hints and makes result lists.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use ofi_rdma::{AddrInfo, Address, Errno, Error, Family, Flags, Hints, Kind, PortSpace, QpType, Result};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// An entry of a list. The layout is that of the C structure.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub(crate) struct rdma_addrinfo {
    ai_flags: c_int,
    ai_family: c_int,
    ai_qp_type: c_int,
    ai_port_space: c_int,
    ai_src_len: libc::socklen_t,
    ai_dst_len: libc::socklen_t,
    ai_src_addr: *const c_void,
    ai_dst_addr: *const c_void,
    ai_src_canonname: *const c_char,
    ai_dst_canonname: *const c_char,
    ai_route_len: usize,
    ai_route: *const c_void,
    ai_connect_len: usize,
    ai_connect: *const c_void,
    ai_next: *mut Self,
}

/// An entry with the memory behind its pointers. Freeing it frees these, even if the caller has
/// changed the pointers.
#[repr(C)]
#[derive(Debug)]
struct Entry {
    public: rdma_addrinfo,
    /// In words, so that they are aligned for every address type.
    addresses: [Box<[u64]>; 2],
    names: [Option<CString>; 2],
    /// In words too: a route is an array of structures.
    route: Box<[u64]>,
    connect: Box<[u64]>,
}

type Entries = BTreeSet<usize>;

/// The addresses of the entries in the caller's hands. [`free`] leaves all others to their library.
static ENTRIES: Mutex<Entries> = Mutex::new(BTreeSet::new());

fn entries() -> MutexGuard<'static, Entries> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Lock held by the forking thread across fork: another thread's lock would never be released
    /// in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, Entries>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    hold(Some(entries()));
}

extern "C" fn after_fork() {
    hold(None);
}

/// Stores or releases the lock; does nothing if the thread is exiting and has lost its
/// thread-locals.
fn hold(guard: Option<MutexGuard<'static, Entries>>) {
    drop(FORKING.try_with(|held| held.replace(guard)));
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers live as long as this library, and unloading it removes them
        // (pthread_atfork(3)).
        let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
        // Fails only without memory for three pointers; then a fork may leave the lock held in the
        // child.
        debug_assert_eq!(failed, 0);
    });
}

/// Maximum size of a route or of connection data, in bytes. A connection transfers less than 256,
/// and a route has a few paths of 72 each.
const MOST_BYTES: usize = 1 << 20;

/// EAI_SYSTEM with EINVAL, for errors without a code in the manual.
#[cold]
pub(crate) fn invalid(why: impl Into<String>) -> Error {
    Error::new(Kind::System(Errno::EINVAL), why)
}

/// The `len` bytes at `from`; empty if the pointer is null, whatever the length.
///
/// # Safety
/// `from` is null, or valid for reads of `len` bytes for `'a`.
unsafe fn bytes<'a>(from: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    if from.is_null() || len == 0 {
        return Ok(&[]);
    }
    if len > MOST_BYTES {
        let why = format!("{what} is {len} bytes long, more than the maximum of {MOST_BYTES}");
        return Err(Error::new(Kind::System(Errno::EMSGSIZE), why));
    }
    // SAFETY: the caller vouches for the bytes, and `len` is within the limit for a slice.
    Ok(unsafe { core::slice::from_raw_parts(from.cast(), len) })
}

/// Converts hints.
pub(crate) fn hints(given: &rdma_addrinfo) -> Result<Hints> {
    let address = |from: *const c_void, len: libc::socklen_t, what: &str| -> Result<Option<Address>> {
        let len = usize::try_from(len).map_err(|_| invalid("invalid address length"))?;
        // SAFETY: a pointer of a valid entry is null or points to as many bytes as its length says
        // (rdma_getaddrinfo(3)).
        let bytes = unsafe { bytes(from, len, what) }?;
        let read = |bytes| {
            Address::decode(bytes).map_err(|error| Error::new(error.kind(), format!("{what}: {}", error.why())))
        };
        (!bytes.is_empty()).then(|| read(bytes)).transpose()
    };
    let name = |from: *const c_char, what: &str| {
        // SAFETY: a name of a valid entry is null or ends with NUL (rdma_getaddrinfo(3)).
        let name = (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) });
        let refused = |_| Error::new(Kind::NoName, format!("{what} is not valid UTF-8"));
        name.map(|name| name.to_str().map(str::to_owned).map_err(refused)).transpose()
    };
    // SAFETY: as for addresses.
    let route = unsafe { bytes(given.ai_route, given.ai_route_len, "hints.ai_route") }?;
    // SAFETY: as for addresses.
    let connect = unsafe { bytes(given.ai_connect, given.ai_connect_len, "hints.ai_connect") }?;
    Ok(Hints {
        flags: Flags::from_raw(given.ai_flags)?,
        family: Family::from_raw(given.ai_family)?,
        qp_type: QpType::from_raw(given.ai_qp_type)?,
        port_space: PortSpace::from_raw(given.ai_port_space)?,
        source: address(given.ai_src_addr, given.ai_src_len, "hints.ai_src_addr")?,
        destination: address(given.ai_dst_addr, given.ai_dst_len, "hints.ai_dst_addr")?,
        source_name: name(given.ai_src_canonname, "hints.ai_src_canonname")?,
        destination_name: name(given.ai_dst_canonname, "hints.ai_dst_canonname")?,
        route: route.to_vec(),
        connect: connect.to_vec(),
    })
}

/// Copies bytes into memory aligned for any structure.
fn words(bytes: &[u8]) -> Box<[u64]> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// A pointer to the words, or null if there are none.
fn at(words: &[u64]) -> *const c_void {
    if words.is_empty() { null() } else { words.as_ptr().cast() }
}

fn entry(info: AddrInfo, next: *mut rdma_addrinfo) -> *mut rdma_addrinfo {
    let addresses =
        [info.source, info.destination].map(|address| address.map_or_else(Vec::new, |address| address.encode()));
    // At most 48 bytes.
    let len = |of: usize| libc::socklen_t::try_from(addresses[of].len()).unwrap_or(0);
    let public = rdma_addrinfo {
        ai_flags: info.flags.bits(),
        ai_family: info.family.map_or(0, Family::raw),
        ai_qp_type: info.qp_type.map_or(0, QpType::raw),
        ai_port_space: info.port_space.map_or(0, PortSpace::raw),
        ai_src_len: len(0),
        ai_dst_len: len(1),
        ai_src_addr: null(),
        ai_dst_addr: null(),
        ai_src_canonname: null(),
        ai_dst_canonname: null(),
        ai_route_len: info.route.len(),
        ai_route: null(),
        ai_connect_len: info.connect.len(),
        ai_connect: null(),
        ai_next: next,
    };
    let mut entry = Box::new(Entry {
        public,
        addresses: addresses.map(|bytes| words(&bytes)),
        // A name that contains NUL is dropped.
        names: [info.source_name, info.destination_name].map(|name| name.and_then(|name| CString::new(name).ok())),
        route: words(&info.route),
        connect: words(&info.connect),
    });
    // Set the pointers only now: the entry no longer moves.
    let name = |of: &Option<CString>| of.as_ref().map_or(null(), |name| name.as_ptr());
    entry.public.ai_src_addr = at(&entry.addresses[0]);
    entry.public.ai_dst_addr = at(&entry.addresses[1]);
    entry.public.ai_src_canonname = name(&entry.names[0]);
    entry.public.ai_dst_canonname = name(&entry.names[1]);
    entry.public.ai_route = at(&entry.route);
    entry.public.ai_connect = at(&entry.connect);
    let entry: *mut rdma_addrinfo = Box::into_raw(entry).cast();
    watch_forks();
    entries().insert(entry.addr());
    entry
}

/// Makes a list, in the order of `found`.
pub(crate) fn from(found: Vec<AddrInfo>) -> *mut rdma_addrinfo {
    found.into_iter().rev().fold(null_mut(), |next, info| entry(info, next))
}

/// Frees a list; passes entries not made by [`from`] to `foreign`, unlinked one by one.
///
/// # Safety
/// `list` is null, or links entries, in any order, that are no longer in use.
pub(crate) unsafe fn free(list: *mut rdma_addrinfo, foreign: impl Fn(*mut rdma_addrinfo)) {
    let mut next = list;
    while !next.is_null() {
        let this = next;
        let ours = entries().remove(&this.addr());
        // SAFETY: the entry is no longer in use, and every library's entry has this link.
        let public = unsafe { &mut *this };
        next = core::mem::replace(&mut public.ai_next, null_mut());
        if ours {
            // SAFETY: the public part comes first in an entry made as a box, and the entry is freed
            // once: it was in the set.
            drop(unsafe { Box::from_raw(this.cast::<Entry>()) });
        } else {
            foreign(this);
        }
    }
}
