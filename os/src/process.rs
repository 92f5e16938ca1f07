//! Another process: accesses to its memory (process_vm_readv(2), process_vm_writev(2)), and
//! detecting its exit (pidfd_open(2)).
#![allow(unsafe_code)]

use crate::clock;
use crate::descriptor::{Private, PrivateFd};
use core::cell::Cell;
use core::ptr;
use ofi_core::Instant;
use ofi_memory::{Chunk, ChunkMut};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::OnceLock;
use std::time::Duration;

/// Detects a process's exit, even after its pid and its names have been reused.
#[derive(Debug)]
pub struct Life {
    /// `None`: the process had already ended.
    process: Option<PrivateFd>,
}

impl Life {
    /// The life of the process with this pid in our pid namespace. `None` if the system cannot
    /// tell.
    pub fn of(id: i32) -> Option<Self> {
        if id <= 0 {
            // The process is not visible in our pid namespace.
            return None;
        }
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        let Some(fd) = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0) else {
            let is_over = io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            return is_over.then_some(Self { process: None });
        };
        // SAFETY: the descriptor is fresh and owned by nothing else.
        Some(Self { process: Some(Private::new(unsafe { OwnedFd::from_raw_fd(fd) })) })
    }

    /// Whether the process has ended.
    pub fn is_over(&self) -> bool {
        let Some(process) = &self.process else { return true };
        let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is a local.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 1
    }
}

/// Whether the kernel copies memory between processes about as fast as a process copies its own:
/// [`SAMPLE`] bytes in less than three times as long. On one AMD EPYC it takes five times as long;
/// on others a whole message takes less than half of that. The first call finds out, which takes a
/// tenth of a millisecond.
pub fn copies_fast() -> bool {
    static FAST: OnceLock<bool> = OnceLock::new();
    *FAST.get_or_init(|| is_faster_than(3).unwrap_or(false))
}

/// Bytes of a sample of the kernel's speed.
const SAMPLE: usize = 64 << 10;

/// Whether the kernel takes less than so many times as long as this process. `None` if it does not
/// copy at all.
fn is_faster_than(times: u32) -> Option<bool> {
    // At equal places in their pages: between others, copies take much longer on some processors.
    let mut both = vec![1u8; 2 * SAMPLE];
    let (source, target) = both.split_at_mut(SAMPLE);
    let id = i32::try_from(std::process::id()).ok()?;
    let (mut by_kernel, mut by_process) = (Duration::MAX, Duration::MAX);
    // The least of several, as some are interrupted, and the first find little in the caches.
    for _ in 0..5 {
        let start = clock::now();
        let there = piece(source.as_ptr().addr(), SAMPLE);
        let here = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: SAMPLE };
        // SAFETY: `here` names the target; the kernel checks `there`, which is the source.
        let got = unsafe { libc::process_vm_readv(id, &raw const here, 1, &raw const there, 1, 0) };
        if !usize::try_from(got).is_ok_and(|got| got == SAMPLE) {
            return None;
        }
        let between = clock::now();
        target.copy_from_slice(core::hint::black_box(source));
        core::hint::black_box(&mut *target);
        by_kernel = by_kernel.min(between.since(start));
        by_process = by_process.min(clock::now().since(between));
    }
    Some(by_kernel < times * by_process)
}

/// Counters for tests.
#[doc(hidden)]
pub mod seam {
    use core::cell::Cell;

    thread_local!(static READ: Cell<usize> = const { Cell::new(0) });
    thread_local!(static WRITTEN: Cell<usize> = const { Cell::new(0) });
    thread_local!(static FOUND: Cell<usize> = const { Cell::new(0) });

    /// Bytes that this thread has read from the memory of processes.
    pub fn bytes_read() -> usize {
        READ.get()
    }

    /// Bytes that this thread has written to the memory of processes.
    pub fn bytes_written() -> usize {
        WRITTEN.get()
    }

    /// Number of readable processes that this thread has found.
    pub fn found() -> usize {
        FOUND.get()
    }

    pub(super) fn note(bytes: usize) {
        READ.set(READ.get() + bytes);
    }

    pub(super) fn note_written(bytes: usize) {
        WRITTEN.set(WRITTEN.get() + bytes);
    }

    pub(super) fn note_found() {
        FOUND.set(FOUND.get() + 1);
    }
}

/// A process, identified by its pid and a secret in its memory: pids are reused, and a process may
/// execute another program.
#[derive(Debug)]
pub struct Process {
    id: libc::pid_t,
    /// The secret's address in that process.
    at: usize,
    secret: [u8; 16],
    /// Its `/proc/<pid>/pagemap`.
    pages: Private<File>,
    /// It is a process of this user, which may do to it what it likes.
    is_own: bool,
    /// Ranges that were safe to access a moment ago, if it is.
    seen: Box<[Cell<Seen>; REMEMBERED]>,
}

/// A range that was safe to access.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: usize,
    len: usize,
    safe_for: Access,
    at: Option<Instant>,
}

/// What a range is safe for: what is safe to write is safe to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Read,
    Write,
}

impl Seen {
    const NOTHING: Self = Self { from: 0, len: 0, safe_for: Access::Read, at: None };
}

/// Ranges that are remembered, by a hash of their address.
const REMEMBERED: usize = 64;
/// How long: to ask again takes as long as to copy some kilobytes, and programs use their buffers
/// again and again.
const MOMENT: Duration = Duration::from_millis(10);

/// How long a pid stays that of a process that has been seen: pids are given in turn.
const SHORTLY: Duration = Duration::from_millis(1);
/// Pages queried per read of the pagemap.
const PAGES: usize = 257;
/// The pagemap bit of a page that is in memory (proc(5)).
const PRESENT: u64 = 1 << 63;
/// Those of a page whose first write a handler may serve: a page of a file, or shared; and one that
/// userfaultfd(2) protects.
const SERVED: u64 = 1 << 61 | 1 << 57;

/// The page size in bytes.
pub fn page_size() -> usize {
    // SAFETY: the call takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|page| *page > 0).unwrap_or(crate::shm::PAGE)
}

/// Where a range from this address is remembered.
fn place_of(from: usize) -> usize {
    // Fibonacci hashing: buffers lie at equal distances.
    let hash = (from as u64 / 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 32) as usize % REMEMBERED
}

fn piece(base: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: ptr::without_provenance_mut(base), iov_len: len }
}

impl Process {
    /// Maximum pieces per read.
    pub const PIECES: usize = 16;
    /// Maximum ranges per read.
    pub const RANGES: usize = 2;

    /// The process with this pid in our pid namespace, if it is readable and holds the secret at
    /// `at`.
    pub fn find(id: i32, at: usize, secret: [u8; 16]) -> Option<Self> {
        let pages = File::open(format!("/proc/{id}/pagemap")).ok().filter(|_| id > 0)?;
        // SAFETY: the call takes no pointers.
        let user = unsafe { libc::geteuid() };
        let is_own = pages.metadata().is_ok_and(|status| status.uid() == user);
        let seen = Box::new([const { Cell::new(Seen::NOTHING) }; REMEMBERED]);
        let process = Self { id, at, secret, pages: Private::new(pages), is_own, seen };
        let found = process.read(0, &mut []);
        found.then(seam::note_found).map(|()| process)
    }

    /// Whether all pages of the range are in memory, so that an access does not fault. A fault
    /// served by user space (FUSE, userfaultfd(2)) could block the caller indefinitely; a process
    /// that drops its pages after this check can still cause one. One of this user, which could
    /// stop this process as well, is believed for [`MOMENT`].
    pub fn is_present(&self, from: usize, len: usize) -> bool {
        self.is_safe(from, len, Access::Read)
    }

    /// The same for a write, of private memory without a handler.
    pub fn is_writable(&self, from: usize, len: usize) -> bool {
        self.is_safe(from, len, Access::Write)
    }

    fn is_safe(&self, from: usize, len: usize, access: Access) -> bool {
        let is_safe = || match access {
            Access::Read => self.are_pages(from, len, |page| page & PRESENT != 0),
            Access::Write => self.are_pages(from, len, |page| page & (PRESENT | SERVED) == PRESENT),
        };
        if !self.is_own {
            return is_safe();
        }
        let (seen, now) = (&self.seen[place_of(from)], clock::now());
        let last = seen.get();
        if (last.from, last.len) == (from, len)
            && last.safe_for >= access
            && last.at.is_some_and(|at| now.since(at) < MOMENT)
        {
            return true;
        }
        let safe = is_safe();
        if safe {
            seen.set(Seen { from, len, safe_for: access, at: Some(now) });
        }
        safe
    }

    fn are_pages(&self, from: usize, len: usize, test: impl Fn(u64) -> bool) -> bool {
        let page = page_size();
        let (mut at, end) = (from / page, from.saturating_add(len).div_ceil(page));
        let mut words = [0u8; PAGES * 8];
        while at < end {
            let count = (end - at).min(PAGES);
            let words = &mut words[..count * 8];
            if self.pages.read_exact_at(words, at as u64 * 8).is_err() {
                return false;
            }
            if !words.as_chunks::<8>().0.iter().all(|word| test(u64::from_ne_bytes(*word))) {
                return false;
            }
            at += count;
        }
        true
    }

    /// Copies the memory at `from` in that process to the pieces, in order. False if not all of it
    /// was readable or the process is another one; the content of the pieces is then unspecified.
    ///
    /// # Panics
    /// If there are more than [`Self::PIECES`].
    pub fn read(&self, from: usize, pieces: &mut [ChunkMut<'_>]) -> bool {
        let len: usize = pieces.iter().map(ChunkMut::len).sum();
        self.read_ranges(&[(from, len)], pieces, None)
    }

    /// The same of several ranges, each an address and a length, which together are as long as the
    /// pieces. `age`: how long ago the process said that it lives. If that is less than a
    /// millisecond, and it is one of this user, this does not look again whether it is the same, as
    /// in [`Self::is_same`]: no pid is given to another process as soon, and a program that
    /// replaces itself (execve(2)) has no memory at the same address, but by chance.
    ///
    /// # Panics
    /// If there are more than [`Self::PIECES`] pieces, or more than [`Self::RANGES`] ranges.
    pub fn read_ranges(&self, ranges: &[(usize, usize)], pieces: &mut [ChunkMut<'_>], age: Option<Duration>) -> bool {
        let len: usize = pieces.iter().map(ChunkMut::len).sum();
        let mut found = [0u8; 16];
        let mut here = [piece(0, 0); Self::PIECES + 1];
        for (to, piece) in here.iter_mut().zip(pieces.iter_mut()) {
            *to = libc::iovec { iov_base: piece.base().cast(), iov_len: piece.len() };
        }
        here[pieces.len()] = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
        let mut there = [piece(0, 0); Self::RANGES + 1];
        let mut parts = 0;
        for (from, len) in ranges.iter().copied().filter(|(_, len)| *len > 0) {
            there[parts] = piece(from, len);
            parts += 1;
        }
        // The secret is read last: a process that still holds it held it all along.
        there[parts] = piece(self.at, found.len());
        let looks = !(self.is_own && age.is_some_and(|age| age < SHORTLY));
        let count = (pieces.len() + usize::from(looks)) as libc::c_ulong;
        let parts = (parts + usize::from(looks)) as libc::c_ulong;
        // SAFETY: `here` names the pieces, writable as long as they live, and a local; the kernel
        // checks `there`, which lies in the other process.
        let got = unsafe { libc::process_vm_readv(self.id, here.as_ptr(), count, there.as_ptr(), parts, 0) };
        let len_found = if looks { found.len() } else { 0 };
        let is_same = !looks || found == self.secret;
        let whole = is_same && usize::try_from(got).is_ok_and(|got| got == len + len_found);
        if whole {
            seam::note(len);
        }
        whole
    }

    /// Whether the pid is still that of the process that holds the secret. One of this user need
    /// not be looked at if it says that it lived at `lived`, shortly before `now`: no pid is given
    /// to another process as soon.
    pub fn is_same(&self, lived: Option<Instant>, now: Instant) -> bool {
        let lives = lived.is_some_and(|lived| lived <= now && now.since(lived) < SHORTLY);
        self.is_own && lives || self.read(0, &mut [])
    }

    /// Whether no process has the pid any more.
    pub fn has_ended(&self) -> bool {
        !self.read(0, &mut []) && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    /// Copies the pieces to the memory at `to` in that process, in order. The caller has just seen
    /// that it [is the same](Self::is_same). False if not all of the memory was writable; its
    /// content is then unspecified.
    ///
    /// # Panics
    /// If there are more than [`Self::PIECES`].
    pub fn write(&self, to: usize, pieces: &[Chunk<'_>]) -> bool {
        let len: usize = pieces.iter().map(Chunk::len).sum();
        let mut here = [piece(0, 0); Self::PIECES];
        for (from, piece) in here.iter_mut().zip(pieces) {
            *from = libc::iovec { iov_base: piece.base().cast_mut().cast(), iov_len: piece.len() };
        }
        let (count, there) = (pieces.len() as libc::c_ulong, piece(to, len));
        // SAFETY: `here` names the pieces, readable as long as they live; the kernel checks
        // `there`, which lies in the other process.
        let put = unsafe { libc::process_vm_writev(self.id, here.as_ptr(), count, &raw const there, 1, 0) };
        let whole = usize::try_from(put).is_ok_and(|put| put == len);
        if whole {
            seam::note_written(len);
        }
        whole
    }
}

/// Whether the whole range is mapped in this process.
pub fn is_mapped(at: usize, len: usize) -> bool {
    let page = page_size();
    let (start, end) = (at / page * page, at.saturating_add(len));
    let mut resident = vec![0u8; (end - start).div_ceil(page)];
    // SAFETY: the vector has a byte for each page; the call does not touch the pages.
    let result = unsafe { libc::mincore(ptr::without_provenance_mut(start), end - start, resident.as_mut_ptr()) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{self, Mapping, PAGE};
    use std::os::fd::AsFd;

    #[test]
    fn memory_is_read_from_the_process_that_has_the_secret() {
        let id = i32::try_from(std::process::id()).unwrap();
        let secret: Box<[u8; 16]> = Box::new(crate::random());
        let at = secret.as_ptr().addr();
        assert!(Process::find(id, at, [0; 16]).is_none());
        assert!(Process::find(id, 8, *secret).is_none());
        assert!(Process::find(0, at, *secret).is_none());
        let mut me = Process::find(id, at, *secret).unwrap();
        let (from, mut a, mut b) = ([1u8, 2, 3, 4, 5], [0u8; 2], [0u8; 3]);
        assert!(me.read(from.as_ptr().addr(), &mut [ChunkMut::of(&mut a), ChunkMut::of(&mut b)]));
        assert_eq!((a, b), ([1, 2], [3, 4, 5]));
        assert!(!me.read(8, &mut [ChunkMut::of(&mut a)]));
        assert_eq!(seam::bytes_read(), 5);
        let place = from.as_ptr().addr();
        let ranges = [(place + 3, 2), (place, 1)];
        assert!(me.read_ranges(&ranges, &mut [ChunkMut::of(&mut b)], None));
        assert_eq!(b, [4, 5, 1]);
        assert!(!me.read_ranges(&[(place, 1), (8, 2)], &mut [ChunkMut::of(&mut b)], None));
        me.secret[0] ^= 1;
        assert!(!me.read(from.as_ptr().addr(), &mut [ChunkMut::of(&mut a)]));
        // It is not looked at if the process, of this user, has just said that it lives.
        let mut reads = |me: &Process, age| me.read_ranges(&[(place, 2)], &mut [ChunkMut::of(&mut a)], Some(age));
        assert!(reads(&me, Duration::ZERO) && !reads(&me, SHORTLY));
        me.is_own = false;
        assert!(!reads(&me, Duration::ZERO));
    }

    #[test]
    fn memory_is_written_in_the_process_that_has_the_secret() {
        let id = i32::try_from(std::process::id()).unwrap();
        let secret: Box<[u8; 16]> = Box::new(crate::random());
        let mut me = Process::find(id, secret.as_ptr().addr(), *secret).unwrap();
        let to = shm::create(PAGE, 0..PAGE).unwrap();
        let to = Mapping::new(to.as_fd(), PAGE).unwrap();
        let at = to.base().as_ptr();
        let now = crate::clock::now();
        assert!(me.is_same(None, now) && me.is_same(Some(now), now));
        assert!(me.write(at.addr(), &[Chunk::of(&[1, 2]), Chunk::of(&[3])]));
        let byte = |offset: usize| {
            // SAFETY: the page is mapped, and nothing writes to it now.
            unsafe { at.wrapping_add(offset).read_volatile() }
        };
        assert_eq!([0, 1, 2, 3].map(byte), [1, 2, 3, 0]);
        assert!(!me.write(8, &[Chunk::of(&[1])]));
        me.secret[0] ^= 1;
        let earlier = now - Duration::from_millis(2);
        assert!(!me.is_same(None, now) && !me.is_same(Some(now), earlier) && !me.is_same(Some(earlier), now));
        assert!(me.is_same(Some(now), now), "a process of this user says that it lives");
        me.is_own = false;
        assert!(!me.is_same(Some(now), now));
    }

    #[test]
    fn a_process_that_has_ended_is_not_read() {
        let mut child = crate::spawning::start(&mut std::process::Command::new("true"));
        let id = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        assert!(Process::find(id, 4096, [0; 16]).is_none());
    }

    #[test]
    fn a_life_is_over_when_its_process_is() {
        let mut child = crate::spawning::start(std::process::Command::new("sleep").arg("1000"));
        let life = Life::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!life.is_over());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(life.is_over());
        // A `Life` made after the exit reports the same.
        assert!(Life::of(i32::try_from(child.id()).unwrap()).unwrap().is_over());
        assert!(Life::of(0).is_none());
    }

    #[test]
    fn untouched_pages_are_not_present() {
        let fd = shm::create(600 * PAGE, 0..0).unwrap();
        let mapping = Mapping::new(fd.as_fd(), 600 * PAGE).unwrap();
        let base = mapping.base().as_ptr().addr();
        let secret: Box<[u8; 16]> = Box::new(crate::random());
        let me = Process::find(i32::try_from(std::process::id()).unwrap(), secret.as_ptr().addr(), *secret).unwrap();
        assert!(!me.is_present(base, 1));
        for at in (0..600).filter(|at| *at != 300) {
            // SAFETY: the page lies within the mapping.
            let page = unsafe { mapping.base().add(at * PAGE) };
            // SAFETY: no other code uses the mapping.
            unsafe { page.write_volatile(1) };
        }
        assert!(me.is_present(base, 300 * PAGE) && me.is_present(base + 301 * PAGE, 299 * PAGE));
        assert!(!me.is_present(base + 7, 600 * PAGE - 7) && !me.is_present(base + 300 * PAGE - 1, 2));
    }

    #[test]
    fn what_was_safe_is_believed_of_a_process_of_this_user_for_a_moment() {
        let fd = shm::create(PAGE, 0..PAGE).unwrap();
        let mapping = Mapping::new(fd.as_fd(), PAGE).unwrap();
        let base = mapping.base().as_ptr().addr();
        let secret: Box<[u8; 16]> = Box::new(crate::random());
        let id = i32::try_from(std::process::id()).unwrap();
        let mut me = Process::find(id, secret.as_ptr().addr(), *secret).unwrap();
        mapping.populate(0, PAGE).unwrap();
        assert!(me.is_present(base, 100));
        mapping.release(0, PAGE);
        assert!(!me.is_present(base, 101), "another range");
        let place = &me.seen[place_of(base)];
        let read = Seen { from: base, len: 100, safe_for: Access::Read, at: Some(clock::now()) };
        place.set(read);
        assert!(me.is_present(base, 100));
        assert!(!me.is_writable(base, 100), "a write needs more than a read");
        place.set(Seen { safe_for: Access::Write, ..read });
        assert!(me.is_writable(base, 100) && me.is_present(base, 100));
        let earlier = Some(clock::now() - MOMENT);
        place.set(Seen { at: earlier, ..read });
        assert!(!me.is_present(base, 100), "that was a moment ago");
        place.set(Seen { at: Some(clock::now()), ..read });
        me.is_own = false;
        assert!(!me.is_present(base, 100), "another user's process is always looked at");
    }

    #[test]
    fn the_kernels_speed_is_measured() {
        assert_eq!((is_faster_than(0), is_faster_than(1_000_000)), (Some(false), Some(true)));
    }

    #[test]
    fn unmapped_memory_is_known() {
        // Far from where the kernel puts mappings of its own choice: another test's thread would
        // soon be given a range that was unmapped there. Some kernels have addresses of 39 bits.
        let (far, rights) = (ptr::without_provenance_mut(0x10_0000_0000), libc::PROT_READ);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: the kernel refuses the address if something is mapped there.
        let base = unsafe { libc::mmap(far, 3 * PAGE, rights, flags, -1, 0) };
        assert_eq!(base, far, "{}", io::Error::last_os_error());
        assert!(is_mapped(base.addr() + 1, 3 * PAGE - 1));
        // SAFETY: the mapping is the test's own, and nothing refers to it.
        assert_eq!(unsafe { libc::munmap(base, 3 * PAGE) }, 0);
        assert!(!is_mapped(base.addr() + PAGE, 10));
    }
}
