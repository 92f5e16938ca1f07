//! What the helper process found out about files, kept between processes: a file is tried once,
//! until it or this library changes.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Entries that are kept.
const MOST: usize = 200;

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
    changed: bool,
}

impl Verdicts {
    /// Reads the verdicts. Without a file there are none.
    pub(crate) fn read(place: Option<PathBuf>) -> Self {
        let text = place.as_ref().and_then(|place| text_of(place).ok()).unwrap_or_default();
        let entries = text.lines().filter_map(|line| line.split_once('|'));
        let entries = entries.map(|(key, verdict)| (key.to_owned(), verdict.to_owned())).collect();
        Self { place, entries, changed: false }
    }

    pub(crate) fn of(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, verdict)| verdict.as_str())
    }

    pub(crate) fn add(&mut self, key: String, verdict: &str) {
        self.entries.retain(|(known, _)| *known != key);
        self.entries.push((key, verdict.replace(['\n', '\r'], " ")));
        self.changed = true;
    }

    /// Keeps the verdicts, replacing the file at once; a folder that cannot be written keeps none.
    pub(crate) fn write(&self) {
        let (Some(place), true) = (&self.place, self.changed) else { return };
        let Some(folder) = place.parent() else { return };
        let first = self.entries.len().saturating_sub(MOST);
        let lines: String = self.entries[first..].iter().fold(String::new(), |mut out, (key, verdict)| {
            let _ = writeln!(out, "{key}|{verdict}");
            out
        });
        // A name that no other process chooses, and that none can foresee.
        let random = u64::from_ne_bytes(ofi_os::random());
        let fresh = folder.join(format!("providers.{random:016x}"));
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let made =
            made.and_then(|()| std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh));
        let Ok(mut file) = made else { return };
        let written = file.write_all(lines.as_bytes()).and_then(|()| std::fs::rename(&fresh, place));
        if written.is_err() {
            drop(std::fs::remove_file(&fresh));
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
        assert_eq!(std::fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        let reads = |place: &Path| Verdicts::read(Some(place.into())).of("key").is_some();
        assert!(reads(&place));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert!(!reads(&link) && !reads(folder.path()));
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(!reads(&place));
    }
}
