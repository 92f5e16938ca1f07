//! Named shared memory: a file in /dev/shm that exists as long as a process has it open. The file
//! gets its name when its head is complete, so no process finds it half made.
//!
//! Every process that has the file open holds a read lock on its first byte. A process that gets a
//! write lock there is the only user, and removes the name: the last process to close the file
//! does so, or, if that was killed, the next process that opens memory of this kind. Writers hold
//! a lock on the second byte. All are locks of open file descriptions (fcntl(2)), which the kernel
//! releases when their process ends.
//!
//! Another process of the user that truncates the file makes the others' next accesses fail with
//! SIGBUS: the files of /dev/shm cannot be sealed as those of memfd_create(2).
#![allow(unsafe_code)]

use crate::clock;
use crate::descriptor::Private;
use crate::limits::{self, Limit};
use crate::shm::{self, Mapping, PAGE};
use core::fmt::Write as _;
use core::ops::Range;
use core::slice;
use ofi_core::Instant;
use ofi_sync::primitive::real::AtomicU64;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

const FOLDER: &str = "/dev/shm";
/// The longest name of a file.
const LONGEST: usize = 255;
/// How long to wait for processes that hold a lock for a few instructions, but may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts to get a lock that another process holds before this one sleeps between attempts.
const YIELDS: u32 = 100;
/// The longest sleep between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The byte that stands for having the memory open.
const OPEN: i64 = 0;
/// The byte that stands for writing.
const WRITING: i64 = 1;

/// What a process does with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads memory that there is already.
    Read,
    /// Reads and writes; makes it if there is none.
    Write,
}

/// The layout of memory that is to be made.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Words of the whole.
    pub words: usize,
    /// Words that are allocated at once.
    pub head: Range<usize>,
}

/// Shared memory with a name.
#[derive(Debug)]
pub struct NamedMemory {
    mapping: Mapping,
    access: Access,
    turns: WriterQueue,
    file: OpenFile,
}

/// A file whose first byte this process has locked for reading. Dropping it removes the file if no
/// other process has it open.
#[derive(Debug)]
struct OpenFile {
    file: Private<File>,
    path: PathBuf,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Of two that close at once, the second to unlock finds no lock of the first.
        unlock(&self.file, OPEN);
        // After a failure the next process that opens memory of this kind removes the file.
        let _ = remove_if_unused(&self.path, &self.file);
    }
}

/// Writers of one process take turns here: the lock on the file excludes other processes only.
#[derive(Debug, Default)]
struct WriterQueue {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

impl WriterQueue {
    /// Waits for this thread's turn.
    fn take(&self, end: Instant) -> io::Result<WriterTurn<'_>> {
        let is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(is_taken, end.since(clock::now()), |is_taken| *is_taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is_taken {
            return Err(error(libc::EAGAIN));
        }
        *is_taken = true;
        Ok(WriterTurn(self))
    }
}

/// The turn of a thread, until dropped.
#[derive(Debug)]
struct WriterTurn<'a>(&'a WriterQueue);

impl Drop for WriterTurn<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.ended.notify_one();
    }
}

/// The right to write, until dropped.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    file: &'a File,
    _turn: WriterTurn<'a>,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        unlock(self.file, WRITING);
    }
}

/// What became of an attempt to open.
enum Attempt {
    Opened(OpenFile),
    /// There is no such file.
    Missing,
    /// Another process is removing the file.
    BeingRemoved,
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Locks a byte, as F_RDLCK or F_WRLCK. False if another process has a lock that excludes this one.
fn try_lock(file: &File, byte: i64, kind: i32) -> io::Result<bool> {
    // SAFETY: an all-zero flock is a valid one.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = i16::try_from(kind).map_err(|_| error(libc::EINVAL))?;
    lock.l_whence = i16::try_from(libc::SEEK_SET).map_err(|_| error(libc::EINVAL))?;
    (lock.l_start, lock.l_len) = (byte, 1);
    // SAFETY: `lock` is a local.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

fn unlock(file: &File, byte: i64) {
    // If it fails, closing unlocks.
    let _ = try_lock(file, byte, libc::F_UNLCK);
}

/// Calls `attempt` until it has a result; EAGAIN at the end of the patience.
fn retry<T>(end: Instant, mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let mut pause = Duration::from_micros(50);
    for count in 0.. {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        let left = end.since(clock::now());
        if left.is_zero() {
            break;
        }
        if count < YIELDS {
            std::thread::yield_now();
            continue;
        }
        #[allow(clippy::disallowed_methods, reason = "the kernel signals no release of another process's lock")]
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Err(error(libc::EAGAIN))
}

/// Whether the path names this file.
fn names(path: &Path, file: &File) -> bool {
    let key = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let (named, open) = (path.symlink_metadata().map(key), file.metadata().map(key));
    matches!((named, open), (Ok(named), Ok(open)) if named == open)
}

/// Removes a file that no process has open. The lock stays until `file` is closed.
fn remove_if_unused(path: &Path, file: &File) -> io::Result<bool> {
    let is_unused = try_lock(file, OPEN, libc::F_WRLCK)?;
    // Only a holder of this lock removes the file, so the name does not change in between.
    if is_unused && names(path, file) {
        std::fs::remove_file(path)?;
    }
    Ok(is_unused)
}

fn open_file(path: &Path) -> io::Result<Private<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = Private::new(options.open(path)?);
    let meta = file.metadata()?;
    // SAFETY: the call takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // Anyone may make files in this folder.
    if !meta.is_file() || meta.uid() != user || meta.mode() & 0o077 != 0 {
        return Err(error(libc::EACCES));
    }
    Ok(file)
}

/// Opens a file that a process has open; one that was left behind is removed.
fn join(path: &Path) -> io::Result<Attempt> {
    let file = match open_file(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Missing),
        Err(error) => return Err(error),
    };
    if remove_if_unused(path, &file)? || !try_lock(&file, OPEN, libc::F_RDLCK)? {
        return Ok(Attempt::BeingRemoved);
    }
    let file = OpenFile { file, path: path.to_owned() };
    // With the lock it cannot be removed any more, but it may have been before.
    let is_removed = file.file.metadata()?.nlink() == 0;
    Ok(if is_removed { Attempt::BeingRemoved } else { Attempt::Opened(file) })
}

/// Allocates a part of a file.
fn allocate(file: &Private<File>, words: Range<usize>) -> io::Result<()> {
    shm::allocate(file.as_fd(), words.start * size_of::<u64>()..words.end * size_of::<u64>())
}

/// Gives a file without a name this one. False if there is such a file.
fn link(file: &File, path: &Path) -> io::Result<bool> {
    let unnamed = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both paths end with NUL.
    if unsafe { libc::linkat(here, unnamed.as_ptr(), here, path.as_ptr(), follow) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        error => Err(error),
    }
}

/// Removes the files of this kind that killed processes left behind.
fn sweep(prefix: &str) {
    // What cannot be removed stays: others' files among them, and those of processes that are
    // alive.
    let Ok(entries) = Path::new(FOLDER).read_dir() else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let is_ours = path.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()));
        if is_ours && let Ok(file) = open_file(&path) {
            let _ = remove_if_unused(&path, &file);
        }
    }
}

/// The part of a file name that stands for some text: no two texts have the same.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
        out
    })
}

impl NamedMemory {
    /// Opens the memory of that kind and name. The name may have several parts. `initialize` writes
    /// the head of memory that is made.
    ///
    /// # Errors
    /// ENOENT with [`Access::Read`] if no process has it open, EACCES if it is another user's,
    /// EINVAL if it has another length, ENAMETOOLONG, EAGAIN if another process was stopped while
    /// it removed it, or errors of the system.
    pub fn open(
        kind: &str,
        name: &[&str],
        access: Access,
        layout: &Layout,
        initialize: impl Fn(&[AtomicU64]),
    ) -> io::Result<Self> {
        // SAFETY: the call takes nothing and cannot fail.
        let prefix = format!("ofi-{kind}.{}.", unsafe { libc::geteuid() });
        let parts: Vec<String> = name.iter().map(|part| escaped(part)).collect();
        let name = format!("{prefix}{}", parts.join("."));
        if name.len() > LONGEST {
            return Err(error(libc::ENAMETOOLONG));
        }
        let path = Path::new(FOLDER).join(name);
        retry(clock::now() + PATIENCE, || match (join(&path)?, access) {
            (Attempt::Opened(file), _) => Self::map(file, access, layout).map(Some),
            (Attempt::Missing, Access::Read) => Err(error(libc::ENOENT)),
            (Attempt::Missing, Access::Write) => {
                sweep(&prefix);
                Self::make(&path, layout, &initialize)
            }
            (Attempt::BeingRemoved, _) => Ok(None),
        })
    }

    /// Makes the file. `None` if another process did.
    fn make(path: &Path, layout: &Layout, initialize: impl Fn(&[AtomicU64])) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = Private::new(options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(FOLDER)?);
        let len = (layout.words * size_of::<u64>()) as u64;
        // Beyond this limit ftruncate(2) would end the process by a signal.
        if limits::limit(Limit::FileLength).is_some_and(|(most, _)| most < len) {
            return Err(error(libc::EFBIG));
        }
        file.set_len(len)?;
        allocate(&file, layout.head.clone())?;
        // Before it has a name: from then on it counts as left behind without this lock.
        if !try_lock(&file, OPEN, libc::F_RDLCK)? {
            return Err(error(libc::EAGAIN));
        }
        let memory = Self::map(OpenFile { file, path: path.to_owned() }, Access::Write, layout)?;
        initialize(memory.words());
        Ok(link(&memory.file.file, path)?.then_some(memory))
    }

    fn map(file: OpenFile, access: Access, layout: &Layout) -> io::Result<Self> {
        let bytes = layout.words * size_of::<u64>();
        if file.file.metadata()?.len() != bytes as u64 {
            return Err(error(libc::EINVAL));
        }
        let mapping = Mapping::sparse(file.file.as_fd(), bytes, access == Access::Write)?;
        Ok(Self { mapping, access, turns: WriterQueue::default(), file })
    }

    /// All words. Words of pages that are not allocated read as zero, and allocate them.
    pub fn words(&self) -> &[AtomicU64] {
        let base = self.mapping.base().cast::<AtomicU64>().as_ptr().cast_const();
        // SAFETY: mapped as long as `self`, aligned to a page, and every process accesses it only
        // as atomic words.
        unsafe { slice::from_raw_parts(base, self.mapping.len() / size_of::<AtomicU64>()) }
    }

    /// What this process may do with it. A write to memory opened for reading ends the process.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Waits until no other process and no other thread writes.
    ///
    /// # Errors
    /// EAGAIN if another process does not end writing in time, because it is stopped; ESTALE if the
    /// file was removed under its users: processes that open the name later get other memory.
    pub fn write(&self) -> io::Result<WriteGuard<'_>> {
        self.write_within(PATIENCE)
    }

    fn write_within(&self, patience: Duration) -> io::Result<WriteGuard<'_>> {
        let end = clock::now() + patience;
        let (turn, file) = (self.turns.take(end)?, &self.file.file);
        retry(end, || Ok(try_lock(file, WRITING, libc::F_WRLCK)?.then_some(())))?;
        let guard = WriteGuard { file, _turn: turn };
        if file.metadata()?.nlink() == 0 {
            return Err(error(libc::ESTALE));
        }
        Ok(guard)
    }

    /// Allocates words: without memory an error now, instead of SIGBUS at the first access.
    ///
    /// # Errors
    /// ENOSPC if there is no memory.
    pub fn allocate(&self, words: Range<usize>) -> io::Result<()> {
        // Whole pages, which the kernel would allocate anyway.
        let (first, last) = (words.start / WORDS * WORDS, words.end.next_multiple_of(WORDS));
        allocate(&self.file.file, first..last.min(self.words().len()))
    }
}

/// Words of a page.
const WORDS: usize = PAGE / size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_sync::primitive::real::Ordering;

    fn open(name: &str, access: Access) -> io::Result<NamedMemory> {
        open_as(&kind(name), name, access)
    }

    /// Each test has a kind of its own, in each process: making memory removes what was left behind
    /// of its kind, and looks at what is in use.
    fn kind(test: &str) -> String {
        format!("named-{test}-{}", std::process::id())
    }

    fn open_as(kind: &str, name: &str, access: Access) -> io::Result<NamedMemory> {
        let initialize = |words: &[AtomicU64]| words[0].store(7, Ordering::Relaxed);
        let layout = Layout { words: 4 * WORDS, head: 0..WORDS };
        NamedMemory::open(kind, &[name, "x/."], access, &layout, initialize)
    }

    fn errno(result: io::Result<NamedMemory>) -> Option<i32> {
        result.map(drop).err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn who_opens_it_sees_what_others_wrote() {
        let first = open("seen", Access::Write).unwrap();
        let second = open("seen", Access::Write).unwrap();
        let reader = open("seen", Access::Read).unwrap();
        assert_eq!(reader.words()[0].load(Ordering::Relaxed), 7);
        first.allocate(WORDS..WORDS + 1).unwrap();
        first.words()[WORDS].store(8, Ordering::Relaxed);
        for other in [&second, &reader] {
            assert_eq!(other.words()[WORDS].load(Ordering::Relaxed), 8);
        }
        assert_eq!((reader.access(), reader.words().len()), (Access::Read, 4 * WORDS));
    }

    #[test]
    fn the_last_to_close_it_removes_it() {
        let writer = open("last", Access::Write).unwrap();
        let path = writer.file.path.clone();
        let user = path.metadata().unwrap().uid();
        assert_eq!(path, Path::new(&format!("/dev/shm/ofi-{}.{user}.last.x%2f%2e", kind("last"))));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let reader = open("last", Access::Read).unwrap();
        drop(writer);
        assert!(path.exists());
        drop(reader);
        assert!(!path.exists());
        assert_eq!(errno(open("last", Access::Read)), Some(libc::ENOENT));
        let again = open("last", Access::Write).unwrap();
        assert_eq!(again.words()[0].load(Ordering::Relaxed), 7);
    }

    /// What a killed process leaves: the file, without locks.
    fn leave(name: &str) -> PathBuf {
        let memory = open_as(&kind("left"), name, Access::Write).unwrap();
        memory.words()[0].store(99, Ordering::Relaxed);
        let (path, kept) =
            (memory.file.path.clone(), Path::new("/dev/shm").join(format!("ofi-{name}-kept-{}", std::process::id())));
        std::fs::hard_link(&path, &kept).unwrap();
        drop(memory);
        std::fs::rename(kept, &path).unwrap();
        path
    }

    #[test]
    fn what_was_left_behind_is_not_used() {
        let path = leave("left");
        let error = open_as(&kind("left"), "left", Access::Read).map(drop).unwrap_err();
        assert_eq!((error.raw_os_error(), path.exists()), (Some(libc::ENOENT), false));
        leave("left");
        let memory = open_as(&kind("left"), "left", Access::Write).unwrap();
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 7);
        let other = leave("left-too");
        assert!(other.exists());
        let unrelated = open_as(&kind("left"), "unrelated", Access::Write).unwrap();
        assert!(!other.exists() && memory.file.path.exists() && unrelated.file.path.exists());
    }

    #[test]
    fn writers_take_turns() {
        let memories = [(); 2].map(|()| open("turns", Access::Write).unwrap());
        std::thread::scope(|scope| {
            for memory in memories.iter().chain(&memories) {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _writing = memory.write().unwrap();
                        let word = &memory.words()[1];
                        let value = word.load(Ordering::Relaxed);
                        word.store(value + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(memories[0].words()[1].load(Ordering::Relaxed), 4000);
    }

    /// Neither an attempt of another process nor one of another thread waits for ever, or burns
    /// the time of a processor.
    #[test]
    fn a_writer_that_is_stopped_is_not_waited_for_long() {
        let memories = [(); 2].map(|()| open("stopped", Access::Write).unwrap());
        let patience = Duration::from_millis(500);
        let _stopped = memories[0].write().unwrap();
        for memory in &memories {
            let (begin, used) = (clock::now(), processor_time());
            assert_eq!(memory.write_within(patience).map(drop).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
            assert!(clock::now().since(begin) >= patience);
            assert!(processor_time() - used < patience / 2);
        }
    }

    /// What this thread has used.
    fn processor_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a local, and the clock exists on every Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
    }

    #[test]
    fn memory_whose_name_was_removed_is_not_written() {
        let memory = open("stale", Access::Write).unwrap();
        drop(memory.write().unwrap());
        std::fs::remove_file(&memory.file.path).unwrap();
        let other = open("stale", Access::Write).unwrap();
        assert_eq!(memory.write().map(drop).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 7);
        drop(memory);
        assert!(other.file.path.exists());
        drop(other.write().unwrap());
    }

    /// A process opens the file while the last user closes it, and then fails to map it.
    #[test]
    fn a_failed_open_leaves_no_file() {
        let memory = open("failed", Access::Write).unwrap();
        let path = memory.file.path.clone();
        let Ok(Attempt::Opened(joined)) = join(&path) else { panic!("it is there") };
        drop(memory);
        assert!(path.exists());
        let longer = Layout { words: 5 * WORDS, head: 0..WORDS };
        assert_eq!(errno(NamedMemory::map(joined, Access::Write, &longer)), Some(libc::EINVAL));
        assert!(!path.exists());
    }

    #[test]
    fn openers_and_closers_at_once_always_agree() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let memory = open("agree", Access::Write).unwrap();
                        // As long as it is open, its name stays its own.
                        assert!(names(&memory.file.path, &memory.file.file));
                    }
                });
            }
        });
        assert_eq!(errno(open("agree", Access::Read)), Some(libc::ENOENT));
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(errno(open(&"long".repeat(80), Access::Write)), Some(libc::ENAMETOOLONG));
        let memory = open("other", Access::Write).unwrap();
        let longer = Layout { words: 5 * WORDS, head: 0..WORDS };
        let other = NamedMemory::open(&kind("other"), &["other", "x/."], Access::Write, &longer, |_| ());
        assert_eq!(errno(other), Some(libc::EINVAL));
        let path = memory.file.path.clone();
        drop(memory);
        std::os::unix::fs::symlink("/proc/self/exe", &path).unwrap();
        assert_eq!(errno(open("other", Access::Write)), Some(libc::ELOOP));
        std::fs::remove_file(&path).unwrap();
        OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).unwrap();
        assert_eq!(errno(open("other", Access::Write)), Some(libc::EACCES));
        std::fs::remove_file(&path).unwrap();
    }
}
