//! InfiniBand devices, as sysfs lists them. All memory is allocated so that a lack of it is an
//! error: callers are lookups that report it.
#![allow(unsafe_code)]

use crate::{fallible, shortage};
use core::ffi::c_char;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder of the system's sysfs.
pub const SYSFS: &str = "/sys";

/// Visits the GIDs of all active ports whose link layer is InfiniBand, device by device, in
/// ascending order of their names: a shorter name comes first. `sysfs` is the folder of the sysfs:
/// [`SYSFS`], or what a test has made.
///
/// # Errors
/// A lack of memory or of descriptors. A device that goes away meanwhile, and a machine that has
/// none, are no errors.
pub fn each_gid(sysfs: &Path, mut visit: impl FnMut([u8; 16])) -> io::Result<()> {
    each_name(&joined(sysfs, "class/infiniband")?, |device| {
        let ports = joined(&joined(&joined(sysfs, "class/infiniband")?, device)?, "ports")?;
        each_name(&ports, |port| {
            let port = joined(&ports, port)?;
            let mut text = [0; LINE];
            let layer = line(&joined(&port, "link_layer")?, &mut text)?;
            if layer != Some("InfiniBand") {
                return Ok(());
            }
            let state = line(&joined(&port, "state")?, &mut text)?;
            if !state.is_some_and(|state| state.ends_with("ACTIVE")) {
                return Ok(());
            }
            let gids = joined(&port, "gids")?;
            each_name(&gids, |gid| {
                let gid = line(&joined(&gids, gid)?, &mut text)?.and_then(|gid| gid.parse::<Ipv6Addr>().ok());
                // The unused entries of the table are zero.
                if let Some(gid) = gid.filter(|gid| !gid.is_unspecified()) {
                    visit(gid.octets());
                }
                Ok(())
            })
        })
    })
}

/// Visits each RDMA device that works over a network interface, with the interface's name: device
/// by device, port by port. `sysfs` is as for [`each_gid`].
///
/// # Errors
/// As for [`each_gid`].
pub fn each_interface(sysfs: &Path, mut visit: impl FnMut(&str, &str)) -> io::Result<()> {
    each_name(&joined(sysfs, "class/infiniband")?, |device| {
        let ports = joined(&joined(&joined(sysfs, "class/infiniband")?, device)?, "ports")?;
        each_name(&ports, |port| {
            let interfaces = joined(&joined(&ports, port)?, "gid_attrs/ndevs")?;
            let (mut text, mut last) = ([0; LINE], [0; LINE]);
            let mut unused = 0;
            each_name(&interfaces, |entry| {
                // A table has 1024 entries on some devices, and few are used.
                if unused == MOST_UNUSED {
                    return Ok(());
                }
                // The unused entries of the table cannot be read; most used ones repeat the name.
                let Some(name) = line(&joined(&interfaces, entry)?, &mut text)?.filter(|name| !name.is_empty()) else {
                    unused += 1;
                    return Ok(());
                };
                unused = 0;
                if last.split(|byte| *byte == 0).next() != Some(name.as_bytes()) {
                    visit(device, name);
                    last = [0; LINE];
                    last[..name.len()].copy_from_slice(name.as_bytes());
                }
                Ok(())
            })
        })
    })
}

/// Whether a device speaks iWARP. `sysfs` is as for [`each_gid`].
pub fn is_iwarp(sysfs: &Path, device: &str) -> bool {
    let path = joined(sysfs, "class/infiniband").and_then(|all| joined(&joined(&all, device)?, "node_type"));
    // The kernel prints the number of RDMA_NODE_RNIC and its name.
    path.and_then(|path| line(&path, &mut [0; LINE]).map(|line| line.is_some_and(|line| line.starts_with('4'))))
        .unwrap_or(false)
}

/// So many unused entries in a row are taken for the end of a table: the kernel fills the first
/// unused entry, so there are gaps only where addresses have gone away.
const MOST_UNUSED: u32 = 32;
/// The longest line that is read: more than a GID has.
const LINE: usize = 64;

fn joined(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let mut out = PathBuf::new();
    out.try_reserve_exact(folder.as_os_str().len() + 1 + name.len())?;
    out.push(folder);
    out.push(name);
    Ok(out)
}

/// The first line of a file, without white space at its ends; `None` if it cannot be read.
fn line<'a>(path: &Path, text: &'a mut [u8; LINE]) -> io::Result<Option<&'a str>> {
    match File::open(path).and_then(|mut file| file.read(text)) {
        Ok(len) => Ok(core::str::from_utf8(&text[..len]).ok().and_then(|text| text.lines().next()).map(str::trim)),
        Err(error) if shortage::is_one(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Visits the names in a folder in ascending order of length and text, so that "10" comes behind
/// "9". A folder that cannot be read is empty.
fn each_name(folder: &Path, mut visit: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let mut names = names(folder)?;
    names.sort_unstable_by(|name, other| (name.len(), name).cmp(&(other.len(), other)));
    names.iter().try_for_each(|name| visit(name))
}

/// The names in a folder. std's iterator over a folder ends the process where there is no memory.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    let path = fallible::terminated(folder.as_os_str().as_bytes())?;
    // SAFETY: the path ends with NUL.
    let open = unsafe { libc::opendir(path.as_ptr().cast()) };
    if open.is_null() {
        let error = io::Error::last_os_error();
        return if shortage::is_one(&error) { Err(error) } else { Ok(out) };
    }
    let read = loop {
        // SAFETY: the folder is open, and only this thread has it.
        let entry = unsafe { libc::readdir(open) };
        if entry.is_null() {
            break Ok(());
        }
        // SAFETY: the entry is valid until the next call for this folder.
        let name = unsafe { &raw const (*entry).d_name };
        // SAFETY: the name ends with NUL.
        let name = unsafe { CStr::from_ptr(name.cast::<c_char>()) };
        if let Ok(name) = name.to_str()
            && !name.starts_with('.')
            && let Err(error) = keep(&mut out, name)
        {
            break Err(error);
        }
    };
    // SAFETY: opened above, and closed once.
    unsafe { libc::closedir(open) };
    read.map(|()| out)
}

fn keep(names: &mut Vec<String>, name: &str) -> io::Result<()> {
    let name = fallible::string(name)?;
    names.try_reserve(1)?;
    names.push(name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes the files of a made-up sysfs.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("class/infiniband").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(root: &Path) -> Vec<Ipv6Addr> {
        let mut out = Vec::new();
        each_gid(root, |gid| out.push(gid.into())).unwrap();
        out
    }

    #[test]
    fn gids_of_active_infiniband_ports_are_found() {
        let root = sysfs(&[
            ("mlx5_0/ports/1/link_layer", "InfiniBand\n"),
            ("mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n"),
            ("mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("mlx5_0/ports/1/gids/2", "fec0:0000:0000:0001:0002:c903:0000:0001\n"),
            ("mlx5_0/ports/1/gids/10", "fec0:0000:0000:0001:0002:c903:0000:0003\n"),
            ("mlx5_0/ports/2/link_layer", "InfiniBand\n"),
            ("mlx5_0/ports/2/state", "1: DOWN\n"),
            ("mlx5_0/ports/2/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0002\n"),
            ("rxe0/ports/1/link_layer", "Ethernet\n"),
            ("rxe0/ports/1/state", "4: ACTIVE\n"),
            ("rxe0/ports/1/gids/0", "fe80:0000:0000:0000:00ff:00ff:fe00:0001\n"),
            ("odd0/ports/1/link_layer", "InfiniBand\n"),
        ]);
        let wanted = ["fe80::2:c903:0:1", "fec0::1:2:c903:0:1", "fec0::1:2:c903:0:3"];
        assert_eq!(found(root.path()), wanted.map(|gid| gid.parse::<Ipv6Addr>().unwrap()));
    }

    #[test]
    fn devices_name_their_network_interfaces() {
        let root = sysfs(&[
            ("rxe0/ports/1/gid_attrs/ndevs/0", "eth0\n"),
            ("rxe0/ports/1/gid_attrs/ndevs/1", "eth0\n"),
            ("rxe0/ports/1/gid_attrs/ndevs/2", "eth\n"),
            ("mlx5_10/ports/1/gid_attrs/ndevs/0", "ib0\n"),
            ("mlx5_10/ports/2/gid_attrs/types/0", "IB/RoCE v1\n"),
        ]);
        let mut found = Vec::new();
        each_interface(root.path(), |device, interface| found.push(format!("{device} {interface}"))).unwrap();
        assert_eq!(found, ["rxe0 eth0", "rxe0 eth", "mlx5_10 ib0"]);
    }

    #[test]
    fn a_table_ends_with_its_unused_entries() {
        let table = |used: &[usize], len| {
            let path = |entry| format!("rxe0/ports/1/gid_attrs/ndevs/{entry}");
            let text = |entry: usize| if used.contains(&entry) { format!("eth{entry}\n") } else { "\n".to_owned() };
            let files: Vec<_> = (0..len).map(|entry| (path(entry), text(entry))).collect();
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let (root, mut found) = (sysfs(&files), Vec::new());
            each_interface(root.path(), |_, interface| found.push(interface.to_owned())).unwrap();
            found
        };
        assert_eq!(table(&[0, 32], 40), ["eth0", "eth32"]);
        assert_eq!(table(&[0, 33], 40), ["eth0"]);
    }

    #[test]
    fn a_machine_without_devices_has_no_gids() {
        assert_eq!(found(sysfs(&[]).path()), [] as [Ipv6Addr; 0]);
        assert_eq!(found(Path::new("/nowhere")), [] as [Ipv6Addr; 0]);
    }
}
