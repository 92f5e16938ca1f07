//! Text that a process publishes for others of its user: an unnamed file of memory
//! (memfd_create(2)), which they find among its descriptors in /proc. Nothing stays behind when the
//! process ends, and publishing needs no thread, no socket and no name.
#![allow(unsafe_code)]

use crate::descriptor::Private;
use core::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The file's name, which only /proc shows.
const NAME: &CStr = c"ofi-state";
const LINK: &str = "/memfd:ofi-state (deleted)";
/// The length of the file's head: the format, the number of the text, and its length.
const HEAD: usize = 64;
/// The head while the text is written. A reader that finds the same other head before and after it
/// has read the text has one text.
const BUSY: Head = Head { number: 0, len: 0 };
/// The longest text that is read of another process.
const MOST: usize = 64 << 20;
/// How often to read a text that its process may be writing.
const ATTEMPTS: usize = 100;

/// The head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    number: u64,
    len: usize,
}

impl Head {
    fn bytes(self) -> Vec<u8> {
        let Self { number, len } = self;
        format!("{:<width$}\n", format!("ofi-state 1 {number} {len}"), width = HEAD - 1).into_bytes()
    }

    /// `None` if there is no text to read now.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(bytes.get(..HEAD)?).ok()?.strip_prefix("ofi-state 1 ")?.split_whitespace();
        let head = Self { number: words.next()?.parse().ok()?, len: words.next()?.parse().ok()? };
        (head != BUSY).then_some(head)
    }
}

/// A process's published text.
#[derive(Debug)]
pub struct StateFile {
    file: Private<File>,
    /// The number of the latest text.
    number: u64,
    /// Its inode number: an application may close descriptors that are not its own, and their
    /// numbers are used again.
    inode: u64,
    /// The process that has made it: a forked child has no copy.
    process: u32,
}

impl StateFile {
    /// An empty file of this process.
    ///
    /// # Errors
    /// EMFILE or ENFILE if there is no descriptor left, ENOSYS or EPERM where the system has no
    /// such files.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the name ends with NUL.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and owned by nothing else.
        let file = Private::new(unsafe { File::from_raw_fd(fd) });
        let inode = file.metadata()?.ino();
        Ok(Self { file, number: 0, inode, process: std::process::id() })
    }

    /// Whether it is of this process, not of the one that has forked it.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Replaces the text.
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if there is no memory for it, EBADF if the application has closed the file.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        if self.file.metadata()?.ino() != self.inode {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.number += 1;
        self.file.write_all_at(&BUSY.bytes(), 0)?;
        self.file.write_all_at(text.as_bytes(), HEAD as u64)?;
        self.file.set_len((HEAD + text.len()) as u64)?;
        self.file.write_all_at(&Head { number: self.number, len: text.len() }.bytes(), 0)
    }
}

/// Opens a descriptor of another process.
fn open(path: &Path) -> io::Result<File> {
    // It may belong to another file by now: opening a pipe would wait for its writer.
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The text in a file; `None` if there is none, or it changes all the time.
fn read_one(file: &File) -> io::Result<Option<String>> {
    let head = || {
        let mut bytes = [0; HEAD];
        file.read_exact_at(&mut bytes, 0).ok().and_then(|()| Head::parse(&bytes))
    };
    for _ in 0..ATTEMPTS {
        if let Some(before) = head()
            && before.len <= MOST.min(usize::try_from(file.metadata()?.len()).unwrap_or(MOST))
        {
            let mut text = vec![0; before.len];
            if file.read_exact_at(&mut text, HEAD as u64).is_ok() && head() == Some(before) {
                return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        std::thread::yield_now();
    }
    Ok(None)
}

/// What a process has published: a text for each copy of the library in it.
///
/// # Errors
/// ENOENT if there is no such process, EACCES if it is not this user's.
pub fn read(process: u32) -> io::Result<Vec<String>> {
    let (mut texts, mut inodes) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let path = entry?.path();
        // Descriptors come and go.
        if !std::fs::read_link(&path).is_ok_and(|to| to.as_os_str() == LINK) {
            continue;
        }
        let Ok(file) = open(&path) else { continue };
        // A process that reads its own state has two descriptors of one file meanwhile.
        let inode = file.metadata()?.ino();
        if !inodes.contains(&inode) {
            inodes.push(inode);
            texts.extend(read_one(&file).ok().flatten());
        }
    }
    Ok(texts)
}

/// The command of a process, as ps(1) shows it; empty if it has ended.
pub fn command_of(process: u32) -> String {
    let command = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    command.trim_end().replace(|one: char| one.is_control(), "?")
}

/// The processes of this user.
pub fn processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut all: Vec<u32> = entries.filter_map(number).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_sync::primitive::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by tests that read: a reader has a descriptor of each file of this process, which
    /// would keep the file of another test.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process has published in files of one test, whose texts begin with `name`.
    fn found(name: &str) -> Vec<String> {
        let all = read(std::process::id()).unwrap();
        all.into_iter().filter(|text| text.starts_with(name)).collect()
    }

    #[test]
    fn the_latest_text_is_read() {
        let _alone = alone();
        let mut file = StateFile::new().unwrap();
        assert!(file.is_own());
        for text in ["latest: a long first text", "latest: short", "latest:"] {
            file.write(text).unwrap();
            assert_eq!(found("latest:"), [text]);
        }
        let me = std::process::id();
        assert!(processes().contains(&me));
        assert!(!command_of(me).is_empty());
        drop(file);
        assert_eq!(found("latest:"), [] as [&str; 0], "the file is gone");
    }

    #[test]
    fn a_file_with_two_descriptors_is_read_once() {
        let _alone = alone();
        let mut file = StateFile::new().unwrap();
        file.write("twice:").unwrap();
        let _copy = file.file.try_clone().unwrap();
        assert_eq!(found("twice:"), ["twice:"]);
    }

    #[test]
    fn heads_have_one_length_and_are_parsed() {
        for head in [Head { number: 1, len: 0 }, Head { number: u64::MAX, len: usize::MAX }] {
            assert_eq!((head.bytes().len(), Head::parse(&head.bytes())), (HEAD, Some(head)));
        }
        assert_eq!((BUSY.bytes().len(), Head::parse(&BUSY.bytes())), (HEAD, None));
        for wrong in ["", "ofi-state 2 1 3", "ofi-state 1 1", "ofi-state 1 x 3"] {
            assert_eq!(Head::parse(format!("{wrong:<63}\n").as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_text_is_never_torn() {
        let _alone = alone();
        let mut file = StateFile::new().unwrap();
        let text = |at: usize| format!("torn:{}", (100 + at % 900).to_string().repeat(3_000));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..).take_while(|_| !done.load(Ordering::Relaxed)).for_each(|at| file.write(&text(at)).unwrap());
            });
            // Some attempts find that the text changes all the time.
            let seen: Vec<String> = (0..100_000).filter_map(|_| found("torn:").pop()).take(300).collect();
            done.store(true, Ordering::Relaxed);
            assert_eq!(seen.len(), 300);
            for found in seen {
                let at: usize = found[5..8].parse().unwrap();
                assert!(found == text(at - 100), "{found:.60}");
            }
        });
    }

    #[test]
    fn a_pipe_without_a_writer_does_not_hold_up_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(crate::spawning::start(std::process::Command::new("mkfifo").arg(&path)).wait().unwrap().success());
        // It cannot be read at an offset, so it has no head.
        assert!(read_one(&open(&path).unwrap()).unwrap_or_default().is_none());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(read(u32::MAX).is_err());
        assert_eq!(command_of(u32::MAX), "");
    }
}
