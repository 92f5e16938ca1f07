//! What the helper process found out about files, kept between processes: a file is tried once,
//! until it or this library changes.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Entries that are kept.
const MOST: usize = 200;
/// How long a process waits for others that write.
const PATIENCE: Duration = Duration::from_secs(1);

/// The state of two files, by inode and time: a provider's and this library's.
pub(crate) fn key(file: &Path, library: &Path) -> Option<String> {
    let mut out = String::new();
    for path in [file, library] {
        let state = std::fs::metadata(path).ok()?;
        let (seconds, nanoseconds) = (state.mtime(), state.mtime_nsec());
        let _ = write!(out, "{}.{}.{}.{seconds}.{nanoseconds} ", state.dev(), state.ino(), state.size());
    }
    Some(out.trim_end().to_owned())
}

/// The file that keeps the verdicts of this user: in the folder for caches. A program with more
/// rights than its user keeps none, since the user would choose the folder.
pub(crate) fn place() -> Option<PathBuf> {
    if ofi_os::dylib::is_privileged() {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(folder.join("ofi/providers"))
}

/// The text of a file that only this user can write.
fn text_of(place: &Path) -> std::io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(place)?;
    let state = file.metadata()?;
    if !state.is_file() || state.uid() != ofi_os::control_socket::user() || state.mode() & 0o022 != 0 {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The verdicts: empty for a provider that loads, a reason for one that does not.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    place: Option<PathBuf>,
    entries: Vec<(String, String)>,
    /// The keys that this process adds.
    added: Vec<String>,
}

impl Verdicts {
    /// Reads the verdicts. Without a file there are none.
    pub(crate) fn read(place: Option<PathBuf>) -> Self {
        let text = place.as_ref().and_then(|place| text_of(place).ok()).unwrap_or_default();
        let entries = text.lines().filter_map(|line| line.split_once('|'));
        let entries = entries.map(|(key, verdict)| (key.to_owned(), verdict.to_owned())).collect();
        Self { place, entries, added: Vec::new() }
    }

    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, verdict)| verdict.as_str())
    }

    pub(crate) fn add(&mut self, key: String, verdict: &str) {
        self.entries.retain(|(known, _)| *known != key);
        self.entries.push((key.clone(), verdict.replace(['\n', '\r'], " ")));
        self.added.push(key);
    }

    /// Keeps the verdicts beside those that other processes have kept meanwhile, replacing the file
    /// at once. A folder that cannot be written, or whose lock is not free soon, keeps none.
    pub(crate) fn write(&self) {
        let Some(place) = self.place.as_deref().filter(|_| !self.added.is_empty()) else { return };
        // What is not kept is tried again.
        let _ = self.replace(place);
    }

    fn replace(&self, place: &Path) -> std::io::Result<()> {
        let folder = place.parent().ok_or(std::io::ErrorKind::NotFound)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let lock = options.clone().create(true).truncate(false).open(folder.join("providers.lock"))?;
        lock_soon(&lock)?;
        let mut entries = Self::read(Some(place.to_owned())).entries;
        entries.retain(|(known, _)| !self.added.contains(known));
        entries.extend(self.entries.iter().filter(|(known, _)| self.added.contains(known)).cloned());
        let first = entries.len().saturating_sub(MOST);
        let lines: String = entries[first..].iter().fold(String::new(), |mut out, (key, verdict)| {
            let _ = writeln!(out, "{key}|{verdict}");
            out
        });
        // Under the lock, a file of this name is what a process left that was killed.
        let fresh = folder.join("providers.new");
        drop(std::fs::remove_file(&fresh));
        let mut file = options.clone().create_new(true).open(&fresh)?;
        file.write_all(lines.as_bytes())?;
        std::fs::rename(&fresh, place)
    }
}

/// Takes the lock of the folder. Other processes hold it for a moment; one that was stopped may
/// hold it for long.
fn lock_soon(lock: &std::fs::File) -> std::io::Result<()> {
    let begin = ofi_os::clock::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
            Err(std::fs::TryLockError::WouldBlock) if ofi_os::clock::now().since(begin) < PATIENCE => {
                std::thread::yield_now()
            }
            Err(std::fs::TryLockError::WouldBlock) => return Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_kept_until_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, library) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&file, "1").unwrap();
        std::fs::write(&library, "2").unwrap();
        let place = Some(folder.path().join("deeper/providers"));
        let (good, bad) = (key(&file, &library).unwrap(), key(&library, &file).unwrap());
        let mut verdicts = Verdicts::read(place.clone());
        assert_eq!(verdicts.of(&good), None);
        verdicts.add(good.clone(), "");
        verdicts.add(bad.clone(), "crashes\nhard | so");
        verdicts.write();
        let again = Verdicts::read(place);
        assert_eq!(again.of(&good), Some(""));
        assert_eq!(again.of(&bad), Some("crashes hard | so"));
        std::fs::write(&file, "longer").unwrap();
        assert_eq!(again.of(&key(&file, &library).unwrap()), None);
        assert_eq!(key(Path::new("/no/such/file"), &library), None);
    }

    #[test]
    fn only_a_file_of_this_user_alone_is_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deeper/providers");
        let mut verdicts = Verdicts::read(Some(place.clone()));
        verdicts.add("key".into(), "why");
        verdicts.write();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(place.parent().unwrap()), mode(&place)), (0o700, 0o600));
        // The verdicts and the lock.
        assert_eq!(std::fs::read_dir(place.parent().unwrap()).unwrap().count(), 2);
        let reads = |place: &Path| Verdicts::read(Some(place.into())).of("key").is_some();
        assert!(reads(&place));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert!(!reads(&link) && !reads(folder.path()));
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(!reads(&place));
    }

    #[test]
    fn processes_that_write_at_once_keep_the_verdicts_of_all() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("providers");
        // Each has read before any has written.
        let mut all: Vec<Verdicts> = (0..8).map(|_| Verdicts::read(Some(place.clone()))).collect();
        // What a killed process has left.
        std::fs::write(folder.path().join("providers.new"), "x|y").unwrap();
        std::thread::scope(|scope| {
            for (index, verdicts) in all.iter_mut().enumerate() {
                scope.spawn(move || {
                    verdicts.add(format!("key {index}"), "why");
                    verdicts.write();
                });
            }
        });
        let kept = Verdicts::read(Some(place));
        assert!((0..8).all(|index| kept.of(&format!("key {index}")) == Some("why")), "{kept:?}");
        assert_eq!(kept.of("x"), None);
    }
}
