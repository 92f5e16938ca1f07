//! `struct rdma_addrinfo` of `<rdma/rdma_cma.h>`: reads hints and makes result lists.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use ofi_os::fallible;
use ofi_rdma::ib::SOCKADDR_IB_LEN;
use ofi_rdma::{AddrInfo, Address, Errno, Error, Family, Flags, Hints, Kind, PortSpace, QpType, Result};
use ofi_sync::primitive::{AtomicBool, Ordering};
use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    addresses: [[u64; ADDRESS_WORDS]; 2],
    /// Each ends with NUL.
    names: [Option<Vec<u8>>; 2],
    /// In words too: a route is an array of structures.
    route: Vec<u64>,
    connect: Vec<u64>,
}

/// Words of the longest address.
const ADDRESS_WORDS: usize = SOCKADDR_IB_LEN / size_of::<u64>();

type Entries = Vec<usize>;

/// The addresses of the entries in the caller's hands, in order. [`free`] leaves all others to
/// their library.
static ENTRIES: Mutex<Entries> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Entries> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Lock held by the forking thread across fork: another thread's lock would never be released
    /// in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, Entries>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    // The handlers may be registered twice. A thread that exits has lost its thread-locals.
    if FORKING.try_with(|held| held.borrow().is_none()) == Ok(true) {
        hold(Some(entries()));
    }
}

extern "C" fn after_fork() {
    hold(None);
}

/// Stores or releases the lock; does nothing if the thread is exiting and has lost its
/// thread-locals.
fn hold(guard: Option<MutexGuard<'static, Entries>>) {
    drop(FORKING.try_with(|held| held.replace(guard)));
}

/// Registers the handlers before the lock is first taken. Uses no lock, because a fork could copy
/// it while it is held: concurrent first calls may all register, which is harmless.
fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Relaxed: it protects nothing.
    if WATCHED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers live as long as this library, and unloading it removes them
    // (pthread_atfork(3)).
    let code = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    // Fails only without memory for three pointers; the next call tries again.
    WATCHED.store(code == 0, Ordering::Relaxed);
}

/// Maximum size of a route or of connection data, in bytes. A connection transfers less than 256,
/// and a route has a few paths of 72 each.
const MOST_BYTES: usize = 1 << 20;

/// EAI_SYSTEM with EINVAL, for errors without a code in the manual.
#[cold]
pub(crate) fn invalid(why: impl Into<Cow<'static, str>>) -> Error {
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
        let why = format_args!("{what} is {len} bytes long, more than the maximum of {MOST_BYTES}");
        return Err(Error::new(Kind::System(Errno::EMSGSIZE), fallible::message(why)));
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
            let with_name =
                |error: Error| Error::new(error.kind(), fallible::message(format_args!("{what}: {}", error.why())));
            Address::decode(bytes).map_err(with_name)
        };
        (!bytes.is_empty()).then(|| read(bytes)).transpose()
    };
    let name = |from: *const c_char, what: &str| {
        // SAFETY: a name of a valid entry is null or ends with NUL (rdma_getaddrinfo(3)).
        let name = (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) });
        let refused = |_| Error::new(Kind::NoName, fallible::message(format_args!("{what} is not valid UTF-8")));
        name.map(|name| name.to_str().map_err(refused).and_then(|name| Ok(fallible::string(name)?))).transpose()
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
        route: fallible::bytes(route)?,
        connect: fallible::bytes(connect)?,
    })
}

/// Up to 8 bytes as a word; missing ones are zero.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Copies bytes into memory aligned for any structure.
fn words(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut out = fallible::room(bytes.len().div_ceil(8))?;
    out.extend(bytes.chunks(8).map(word));
    Ok(out)
}

/// Copies a name; one that contains NUL is dropped.
fn ended(name: Option<String>) -> Result<Option<Vec<u8>>> {
    let Some(name) = name.filter(|name| !name.contains('\0')) else { return Ok(None) };
    Ok(Some(fallible::terminated(name.as_bytes())?))
}

/// A pointer to the words, or null if there are none.
fn at(words: &[u64]) -> *const c_void {
    if words.is_empty() { null() } else { words.as_ptr().cast() }
}

fn entry(info: AddrInfo, next: *mut rdma_addrinfo) -> Result<*mut rdma_addrinfo> {
    let addresses = [info.source, info.destination].map(|address| address.map(|address| address.encode()));
    // At most 48 bytes.
    let len = |of: usize| addresses[of].map_or(0, |(_, len)| libc::socklen_t::try_from(len).unwrap_or(0));
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
    let aligned = |address: Option<([u8; SOCKADDR_IB_LEN], usize)>| {
        let bytes = address.map_or([0; SOCKADDR_IB_LEN], |(bytes, _)| bytes);
        core::array::from_fn(|index| word(&bytes[index * 8..][..8]))
    };
    let addresses = addresses.map(aligned);
    let names = [ended(info.source_name)?, ended(info.destination_name)?];
    let (route, connect) = (words(&info.route)?, words(&info.connect)?);
    // Before the lock is taken: a fork takes it behind the one of the handlers.
    watch_forks();
    let mut entries = entries();
    entries.try_reserve(1)?;
    // A list of one has the layout of the entry, and can be allocated where a box would abort.
    let made = fallible::one(Entry { public, addresses, names, route, connect })?.into_boxed_slice();
    let made: *mut Entry = Box::into_raw(made).cast();
    // SAFETY: made above, and not handed out before this function returns.
    let entry = unsafe { &mut *made };
    // Set the pointers only now: the entry no longer moves.
    let name = |of: &Option<Vec<u8>>| of.as_ref().map_or(null(), |name| name.as_ptr().cast());
    let address = |of: usize| if len_of(&entry.public, of) == 0 { null() } else { at(&entry.addresses[of]) };
    let (source, destination) = (address(0), address(1));
    entry.public.ai_src_addr = source;
    entry.public.ai_dst_addr = destination;
    entry.public.ai_src_canonname = name(&entry.names[0]);
    entry.public.ai_dst_canonname = name(&entry.names[1]);
    entry.public.ai_route = at(&entry.route);
    entry.public.ai_connect = at(&entry.connect);
    if let Err(place) = entries.binary_search(&made.addr()) {
        entries.insert(place, made.addr());
    }
    Ok(made.cast())
}

/// The length of the source address (0) or of the destination address (1).
const fn len_of(public: &rdma_addrinfo, of: usize) -> libc::socklen_t {
    if of == 0 { public.ai_src_len } else { public.ai_dst_len }
}

/// Makes a list, in the order of `found`.
///
/// # Errors
/// [`Kind::Memory`]; nothing is left of the list.
pub(crate) fn from(found: Vec<AddrInfo>) -> Result<*mut rdma_addrinfo> {
    let mut list = null_mut();
    for info in found.into_iter().rev() {
        match entry(info, list) {
            Ok(first) => list = first,
            Err(error) => {
                // SAFETY: all entries were made above and not handed out.
                unsafe { free(list, |_| ()) };
                return Err(error);
            }
        }
    }
    Ok(list)
}

/// Frees a list; passes entries not made by [`from`] to `foreign`, unlinked one by one.
///
/// # Safety
/// `list` is null, or links entries, in any order, that are no longer in use.
pub(crate) unsafe fn free(list: *mut rdma_addrinfo, foreign: impl Fn(*mut rdma_addrinfo)) {
    let mut next = list;
    while !next.is_null() {
        let this = next;
        let ours = forget(this.addr());
        // SAFETY: the entry is no longer in use, and every library's entry has this link.
        let public = unsafe { &mut *this };
        next = core::mem::replace(&mut public.ai_next, null_mut());
        if ours {
            // SAFETY: the public part comes first in an entry, which was made as a boxed list of
            // one and has the same layout; it is freed once: it was in the list of entries.
            drop(unsafe { Box::from_raw(this.cast::<Entry>()) });
        } else {
            foreign(this);
        }
    }
}

/// Removes an entry from those in the caller's hands; false if it is none of them.
fn forget(entry: usize) -> bool {
    let mut entries = entries();
    let place = entries.binary_search(&entry);
    place.map(|place| entries.remove(place)).is_ok()
}
