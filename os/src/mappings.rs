//! Which addresses of this process have memory behind them, and which files
//! (proc_pid_maps(5)).

use core::ops::Range;
use std::path::PathBuf;

/// Whether all of these ranges, each an address and a length, are mapped and readable, and writable
/// if asked for. If the kernel does not say so, they count as not mapped.
pub fn are_mapped(ranges: impl IntoIterator<Item = (usize, usize)>, writable: bool) -> bool {
    // Mappings come and go while the file is read in parts: what is missing then counts as not
    // mapped.
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    ranges.into_iter().all(|(base, len)| covers(&maps, base, len, writable))
}

/// Whether a range is private memory without a file, so that no other process can exchange its
/// pages. False if the kernel does not report the mappings.
pub fn is_private(range: &Range<usize>) -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| is_private_in(&maps, range))
}

fn is_private_in(maps: &str, range: &Range<usize>) -> bool {
    // Address, rights, offset, device and inode.
    let is_private = |line: &str| {
        let mut columns = line.split(' ').skip(1);
        columns.next().is_some_and(|rights| rights.ends_with('p')) && columns.nth(2) == Some("0")
    };
    let of_others = |line: &str| !is_private(line) && mapping(line, false).is_some_and(|other| overlap(other, range));
    covers(maps, range.start, range.len(), false) && !maps.lines().any(of_others)
}

const fn overlap((first, behind): (usize, usize), range: &Range<usize>) -> bool {
    first < range.end && range.start < behind
}

fn covers(maps: &str, base: usize, len: usize, writable: bool) -> bool {
    let Some(end) = base.checked_add(len) else { return false };
    let mut next = base;
    // The mappings are sorted by address.
    for (first, behind) in maps.lines().filter_map(|line| mapping(line, writable)) {
        if next >= end || first > next {
            break;
        }
        next = next.max(behind);
    }
    next >= end
}

/// First address, and address behind the last, of a line's mapping if it has the rights.
fn mapping(line: &str, writable: bool) -> Option<(usize, usize)> {
    let (addresses, rest) = line.split_once(' ')?;
    let (first, behind) = addresses.split_once('-')?;
    let rights = rest.as_bytes().get(..2)?;
    if rights[0] != b'r' || writable && rights[1] != b'w' {
        return None;
    }
    Some((usize::from_str_radix(first, 16).ok()?, usize::from_str_radix(behind, 16).ok()?))
}

/// The file that is mapped at an address, by the full path that it had when it was mapped.
pub fn file_at(address: usize) -> Option<PathBuf> {
    file_in(&std::fs::read_to_string("/proc/self/maps").ok()?, address)
}

fn file_in(maps: &str, address: usize) -> Option<PathBuf> {
    let line = maps
        .lines()
        .find(|line| mapping(line, false).is_some_and(|(first, behind)| (first..behind).contains(&address)))?;
    // Address, rights, offset, device and inode come before the path, which may contain spaces.
    let path = line.split_once('/').map(|(_, rest)| format!("/{rest}"))?;
    (!path.ends_with(" (deleted)")).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-3000 r--p 00000000 08:01 12 /bin/true\n\
                        3000-4000 rw-p 00000000 00:00 0 \n\
                        4000-5000 ---p 00000000 00:00 0 \n\
                        6000-9000 rw-s 00000000 00:00 0 [heap]\n";

    #[test]
    fn neighbouring_mappings_count_as_one() {
        assert!(covers(MAPS, 0x1000, 0x3000, false));
        assert!(covers(MAPS, 0x2fff, 2, false) && covers(MAPS, 0x6000, 0x3000, true));
    }

    #[test]
    fn holes_and_missing_rights_are_found() {
        assert!(!covers(MAPS, 0xfff, 2, false));
        assert!(!covers(MAPS, 0x3000, 0x1001, false), "a mapping without rights");
        assert!(!covers(MAPS, 0x3fff, 0x3000, false), "a hole");
        assert!(!covers(MAPS, 0x2fff, 2, true), "a mapping that is read-only");
        assert!(!covers(MAPS, 0x8fff, 2, false) && !covers(MAPS, 0, usize::MAX, false));
        assert!(!covers(MAPS, usize::MAX, 2, false));
    }

    #[test]
    fn memory_of_files_and_of_others_is_not_private() {
        assert!(is_private_in(MAPS, &(0x3000..0x4000)));
        assert!(!is_private_in(MAPS, &(0x1000..0x2000)), "of a file");
        assert!(!is_private_in(MAPS, &(0x6000..0x7000)), "shared");
        assert!(!is_private_in(MAPS, &(0x3000..0x4001)) && !is_private_in(MAPS, &(0x9000..0xa000)));
    }

    #[test]
    fn a_mapping_names_its_file() {
        let named = "7000-8000 r-xp 00000000 08:01 12                         /a folder/x.so\n\
                     8000-9000 r-xp 00000000 08:01 13                         /y.so (deleted)\n";
        assert_eq!(file_in(named, 0x7fff), Some(PathBuf::from("/a folder/x.so")));
        assert_eq!(file_in(named, 0x8000), None);
        assert_eq!(file_in(MAPS, 0x6000), None);
        let here = file_at(file_in as fn(&str, usize) -> Option<PathBuf> as usize);
        assert_eq!(here, std::env::current_exe().ok());
    }

    #[test]
    fn memory_of_this_process_is_mapped() {
        let (mut here, text) = ([0u8; 64], "text");
        let here = (here.as_mut_ptr().addr(), here.len());
        assert!(are_mapped([here], true) && are_mapped([(text.as_ptr().addr(), text.len())], false));
        assert!(!are_mapped([here, (16, 1)], false));
    }
}
