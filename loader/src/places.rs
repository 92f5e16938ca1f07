//! Where files of providers are, and in which order they are loaded (fi_provider(3),
//! FI_PROVIDER_PATH).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the environment says about loaded providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// FI_PROVIDER_PATH; empty counts as unset.
    pub path: Option<String>,
    /// The names that loaded providers take from built-in ones: a list with commas, or "all".
    pub prefer: Option<String>,
    /// This library's file, which the helper process runs; without it nothing is tried.
    pub library: Option<PathBuf>,
    /// The folder of this library, whose folder `libfabric` is the default one.
    pub own_folder: Option<PathBuf>,
    /// The folders of LD_LIBRARY_PATH and of the system, in which known names are looked for.
    pub search: Vec<PathBuf>,
}

/// A file that may be a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub file: PathBuf,
    /// Its providers win over others of their names (`+` in FI_PROVIDER_PATH).
    pub preferred: bool,
}

/// Names of providers that exist, without `ofi_` and `off_`: their files are looked for by name.
const NAMES: &[&str] = &[
    "efa", "psm2", "opx", "usnic", "verbs", "cxi", "psm3", "ucx", "rxm", "rxd", "shm", "udp", "tcp", "sockets", "net",
];

/// What the places have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The files in the order in which they are loaded.
    pub files: Vec<Candidate>,
    /// Whether the first file of a name wins (`@`) instead of the newest.
    pub first_wins: bool,
    /// Entries of FI_PROVIDER_PATH that cannot be used, and why.
    pub refused: Vec<(PathBuf, &'static str)>,
}

/// Looks for files. A relative folder begins at the working directory of this call, whatever it is
/// when a file of it is loaded.
pub fn candidates(settings: &Settings) -> Found {
    let text = settings.path.as_deref().unwrap_or_default();
    let (first_wins, text) = match text.strip_prefix('@') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut found: Vec<Candidate> = Vec::new();
    let mut refused = Vec::new();
    let mut folders = false;
    for item in text.split(':').filter(|item| !item.is_empty()) {
        match item.strip_prefix('+') {
            Some(file) => match unusable(Path::new(file)) {
                None => add(&mut found, vec![file.into()], true),
                Some(why) => refused.push((file.into(), why)),
            },
            None => {
                folders = true;
                add(&mut found, in_folder(&from_here(Path::new(item))), false);
            }
        }
    }
    if !folders {
        add(&mut found, by_name(settings), false);
        if let Some(own) = &settings.own_folder {
            add(&mut found, in_folder(&own.join("libfabric")), false);
        }
    }
    Found { files: found, first_wins, refused }
}

/// Why a file that FI_PROVIDER_PATH prefers cannot be used.
fn unusable(file: &Path) -> Option<&'static str> {
    if !file.is_absolute() {
        // fi_provider(7) wants the full path of a preferred file.
        Some("its path in FI_PROVIDER_PATH is relative, and after + it must begin with /")
    } else if !file.is_file() {
        Some("FI_PROVIDER_PATH names it, and there is no such file")
    } else {
        None
    }
}

/// The path as it is from the working directory.
fn from_here(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Adds files that are not in the list. The dynamic loader loads a file once, whatever its paths
/// are, so a file that is in the list by another path is the same one, and only becomes preferred.
fn add(found: &mut Vec<Candidate>, files: Vec<PathBuf>, preferred: bool) {
    for file in files {
        match found.iter_mut().find(|known| is_same(&known.file, &file)) {
            Some(known) => known.preferred |= preferred,
            None => found.push(Candidate { file, preferred }),
        }
    }
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|state| (state.dev(), state.ino()));
    one == other || inode(one).is_some_and(|known| inode(other) == Some(known))
}

/// The files `lib<name>-fi.so` of known names: for each, the first that the folders have.
fn by_name(settings: &Settings) -> Vec<PathBuf> {
    let folders = || settings.search.iter().chain(&settings.own_folder).map(|folder| from_here(folder));
    NAMES
        .iter()
        .filter_map(|name| folders().map(|folder| folder.join(format!("lib{name}-fi.so"))).find(|file| file.is_file()))
        .collect()
}

/// The files of a folder that end in `fi.so`, last name first. A folder that cannot be read has
/// none.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"fi.so")))
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, write};

    /// A folder with these files.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            write(folder.path().join(file), "").unwrap();
        }
        folder
    }

    fn names(found: &[Candidate]) -> Vec<String> {
        found.iter().map(|known| known.file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_path_lists_folders_whose_files_come_last_name_first() {
        let (one, two) = (folder(&["liba-fi.so", "libb-fi.so", "fi.so.1", "c.so"]), folder(&["xfi.so"]));
        let path = format!("{}:/no/such/folder::{}", one.path().display(), two.path().display());
        let found = candidates(&Settings { path: Some(path.clone()), ..Settings::default() });
        assert_eq!(names(&found.files), ["libb-fi.so", "liba-fi.so", "xfi.so"]);
        assert!(!found.first_wins && found.files.iter().all(|known| !known.preferred));
        let same = candidates(&Settings { path: Some(format!("@{path}")), ..Settings::default() });
        assert!(same.first_wins);
        assert_eq!(same.files, found.files);
    }

    #[test]
    fn a_relative_folder_is_that_of_the_working_directory() {
        // Tests run in the folder of their crate.
        let found = candidates(&Settings { path: Some("src/no-fi.so:src".into()), ..Settings::default() });
        assert_eq!((found.files, found.refused), (vec![], vec![]));
        let place = tempfile::tempdir_in(".").unwrap();
        write(place.path().join("a-fi.so"), "").unwrap();
        let name = place.path().file_name().unwrap().to_string_lossy().into_owned();
        let found = candidates(&Settings { path: Some(name.clone()), ..Settings::default() });
        assert_eq!(found.files[0].file, std::env::current_dir().unwrap().join(name).join("a-fi.so"));
    }

    #[test]
    fn a_file_is_listed_once_by_whatever_paths() {
        let (one, two) = (folder(&["a-fi.so", "b-fi.so"]), folder(&["c-fi.so"]));
        std::os::unix::fs::symlink(one.path().join("a-fi.so"), two.path().join("soft-fi.so")).unwrap();
        std::fs::hard_link(one.path().join("b-fi.so"), two.path().join("hard-fi.so")).unwrap();
        let (first, second) = (one.path().display(), two.path().display());
        let found = |path: String| candidates(&Settings { path: Some(path), ..Settings::default() }).files;
        let all = found(format!("{first}:{second}"));
        assert_eq!(names(&all), ["b-fi.so", "a-fi.so", "c-fi.so"]);
        // In either order, `+` prefers the one entry.
        for path in [format!("{first}:+{second}/soft-fi.so"), format!("+{first}/a-fi.so:{first}")] {
            let all = found(path);
            let preferred: Vec<_> = all.iter().filter(|known| known.preferred).cloned().collect();
            assert_eq!((all.len(), names(&preferred)), (2, vec!["a-fi.so".to_owned()]));
        }
    }

    #[test]
    fn without_folders_the_known_names_come_first_and_then_the_default_folder() {
        let own = folder(&["libefa-fi.so", "libnone-fi.so"]);
        let search = folder(&["libverbs-fi.so", "libefa-fi.so"]);
        create_dir(own.path().join("libfabric")).unwrap();
        for file in ["libx-fi.so", "libz-fi.so"] {
            write(own.path().join("libfabric").join(file), "").unwrap();
        }
        let mut settings = Settings {
            own_folder: Some(own.path().into()),
            search: vec!["/no/such/folder".into(), search.path().into()],
            ..Settings::default()
        };
        let default = ["libefa-fi.so", "libverbs-fi.so", "libz-fi.so", "libx-fi.so"];
        let found = candidates(&settings).files;
        assert_eq!(names(&found), default);
        assert!(found[0].file.starts_with(search.path()));
        // Empty counts as unset.
        settings.path = Some(String::new());
        assert_eq!(candidates(&settings).files, found);
        // Only preferred libraries: the default ones are looked for, too.
        let one = folder(&["liba.so"]);
        settings.path = Some(format!("+{}/liba.so:+relative.so:+/no/such/file.so", one.path().display()));
        let Found { files: more, refused, .. } = candidates(&settings);
        assert_eq!(names(&more)[1..], default);
        assert!(more[0].preferred && names(&more)[0] == "liba.so");
        let why = |(file, why): &(PathBuf, &'static str)| format!("{}: {why}", file.display());
        let refused: Vec<String> = refused.iter().map(why).collect();
        assert!(refused[0].starts_with("relative.so: ") && refused[0].contains("must begin with /"), "{refused:?}");
        assert!(refused[1].starts_with("/no/such/file.so: ") && refused[1].contains("no such file"), "{refused:?}");
        // A folder beside them: only what is listed.
        settings.path = Some(format!("+{}/liba.so:{}", one.path().display(), search.path().display()));
        assert_eq!(names(&candidates(&settings).files), ["liba.so", "libverbs-fi.so", "libefa-fi.so"]);
    }
}
