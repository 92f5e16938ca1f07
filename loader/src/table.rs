//! A loaded provider: its table, checked once, and its calls. The only code that touches what it
//! hands out, besides the C library's copy of its infos.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use ofi_abi::{fi_fabric_attr, fi_getinfo_fn, fi_info, fi_provider, fid_fabric};
use ofi_core::Version;
use ofi_os::dylib::Library;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The oldest interface of providers that may register.
const OLDEST: Version = Version::new(1, 3);
/// Infos of one answer, beyond which it is refused.
const MOST_INFOS: usize = 100_000;
/// Bytes of a name, beyond which it is refused.
const LONGEST_NAME: usize = 64;

/// A provider that a file contains.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its file.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Its own version.
    pub version: Version,
    /// The interface that it was built for.
    pub api: Version,
    /// Whether FI_PROVIDER_PATH prefers its file.
    pub preferred: bool,
    table: NonNull<fi_provider>,
}

// SAFETY: the table belongs to a library that is never unloaded, its members are only read after
// the load, and fi_provider(3) has its functions called from any thread.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

/// A provider's answer to fi_getinfo(3), which belongs to the caller: nodes with their parts, each
/// node once.
#[derive(Clone, Debug, Default)]
pub struct Infos {
    /// All nodes in order.
    pub nodes: Vec<NonNull<fi_info>>,
}

/// Loads a file and registers its provider.
///
/// # Errors
/// Why the file is not a provider, or why it is refused.
pub(crate) fn load(file: &Path, preferred: bool) -> Result<Provider, String> {
    let library = Library::open(file)?;
    let entry = library.symbol(c"fi_prov_ini").ok_or("it does not export fi_prov_ini")?;
    // SAFETY: fi_provider(3) gives this symbol of a provider's library that type.
    let entry = unsafe { core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> *mut fi_provider>(entry) };
    // SAFETY: fi_provider(3) has it called once, after the load.
    let table = NonNull::new(unsafe { entry() }).ok_or("fi_prov_ini returns no provider")?;
    // SAFETY: fi_prov_ini returns a table that lives as long as its library.
    let provider = register(unsafe { table.as_ref() })?;
    Ok(Provider { file: file.into(), preferred, table, ..provider })
}

/// Checks a table as registration demands.
fn register(table: &fi_provider) -> Result<Provider, String> {
    let fi_provider { version, fi_version, context: _, name, getinfo: _, fabric, cleanup: _ } = *table;
    let (version, api) = (Version(version), Version(fi_version));
    if fabric.is_none() {
        return Err("its fi_provider has no fabric call".into());
    }
    if api < OLDEST {
        return Err(format!("it is built for interface {api}, older than {OLDEST}"));
    }
    if api.major() > Version::API.major() {
        return Err(format!("it is built for interface {api}, and this library is {}", Version::API));
    }
    // SAFETY: null, or a name that ends with NUL (fi_provider(3)); no more than its limit is read.
    let name = unsafe { bounded_text(name) }.ok_or("its fi_provider has no name")?;
    let usable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'^' | b':');
    if name.is_empty() || name.len() >= LONGEST_NAME || !name.bytes().all(usable) {
        return Err(format!("its name {name:?} cannot be requested"));
    }
    Ok(Provider { file: PathBuf::new(), name, version, api, preferred: false, table: NonNull::from(table) })
}

/// The beginning of a C string.
///
/// # Safety
/// `text` is null or ends with NUL.
unsafe fn bounded_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so it ends with NUL, and no more than the limit is read.
    let len = unsafe { libc::strnlen(text, LONGEST_NAME) };
    // SAFETY: `len` bytes were read above.
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len) };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// The negative error number of a call: others would look like success.
pub(crate) fn failure(code: c_int) -> c_int {
    if code < 0 { code } else { ofi_core::Errno::EOTHER.negative() }
}

impl Provider {
    fn table(&self) -> &fi_provider {
        // SAFETY: the library is never unloaded, and the table belongs to it.
        unsafe { self.table.as_ref() }
    }

    /// Whether both are one: a library that was loaded under two names.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.table == other.table
    }

    /// Whether it can be discovered: hooks cannot.
    pub fn is_discoverable(&self) -> bool {
        self.table().getinfo.is_some()
    }

    /// Asks the provider (fi_getinfo(3)). An answer without infos is empty.
    ///
    /// # Errors
    /// The code that it returns, or what is wrong with its answer.
    ///
    /// # Safety
    /// Node, service and hints are valid as for fi_getinfo(3).
    pub unsafe fn getinfo(
        &self,
        version: Version,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
    ) -> Result<Infos, String> {
        let Some(getinfo): Option<fi_getinfo_fn> = self.table().getinfo else { return Ok(Infos::default()) };
        let mut list = core::ptr::null_mut();
        // SAFETY: the provider's own function; the arguments are this function's contract.
        let code = unsafe { getinfo(version.0, node, service, flags, hints, &mut list) };
        if code != 0 {
            let errno = ofi_core::Errno::from_raw(code.checked_neg().unwrap_or(0));
            return Err(format!("its fi_getinfo returns {code} ({errno})"));
        }
        // SAFETY: a provider that returns 0 has written a list, or left null.
        unsafe { nodes_of(list) }
    }

    /// Opens a fabric (fi_fabric(3)).
    ///
    /// # Errors
    /// The negative error number of the call.
    ///
    /// # Safety
    /// `attr` is valid, and `context` is the application's.
    pub unsafe fn fabric(&self, attr: *mut fi_fabric_attr, context: *mut c_void) -> Result<NonNull<fid_fabric>, c_int> {
        let Some(fabric) = self.table().fabric else { return Err(ofi_core::Errno::ENOSYS.negative()) };
        let mut out = core::ptr::null_mut();
        // SAFETY: the provider's own function; the arguments are this function's contract.
        let code = unsafe { fabric(attr, &mut out, context) };
        match NonNull::new(out) {
            Some(out) if code == 0 => Ok(out),
            _ => Err(failure(code)),
        }
    }

    /// Ends the provider's work, at the end of the process or when it is not used.
    pub fn cleanup(&self) {
        if let Some(cleanup) = self.table().cleanup {
            // SAFETY: fi_provider(3) has it called once, when nothing else of the provider runs.
            unsafe { cleanup() };
        }
    }
}

/// The nodes of a list.
///
/// # Errors
/// What is wrong with it; it is not freed then.
///
/// # Safety
/// `list` is null or a list of infos.
unsafe fn nodes_of(list: *mut fi_info) -> Result<Infos, String> {
    let mut seen = HashSet::new();
    let mut nodes = Vec::new();
    let mut next = list;
    while let Some(node) = NonNull::new(next) {
        if !seen.insert(node) || nodes.len() == MOST_INFOS {
            return Err("its fi_getinfo returns a list without an end".into());
        }
        // SAFETY: a node of the list.
        let info = unsafe { node.as_ref() };
        for (part, name) in [
            (info.tx_attr.is_null(), "tx_attr"),
            (info.rx_attr.is_null(), "rx_attr"),
            (info.ep_attr.is_null(), "ep_attr"),
            (info.domain_attr.is_null(), "domain_attr"),
            (info.fabric_attr.is_null(), "fabric_attr"),
        ] {
            if part {
                return Err(format!("its fi_getinfo returns an info without {name}"));
            }
        }
        nodes.push(node);
        next = info.next;
    }
    Ok(Infos { nodes })
}

/// Reads every text of an answer, so that a pointer that is none shows.
///
/// # Safety
/// The answer is the provider's, not freed.
pub(crate) unsafe fn read(infos: &Infos) -> usize {
    let mut bytes = 0;
    for node in &infos.nodes {
        // SAFETY: this function's contract.
        let info = unsafe { node.as_ref() };
        // SAFETY: `nodes_of` has checked that the part is there.
        let fabric = unsafe { &*info.fabric_attr };
        // SAFETY: as above.
        let domain = unsafe { &*info.domain_attr };
        for text in [fabric.name, fabric.prov_name, domain.name] {
            if !text.is_null() {
                // SAFETY: a name ends with NUL by fi_getinfo(3).
                bytes += unsafe { CStr::from_ptr(text) }.count_bytes();
            }
        }
        for (addr, len) in [(info.src_addr, info.src_addrlen), (info.dest_addr, info.dest_addrlen)] {
            if !addr.is_null() {
                // SAFETY: an address has its length by fi_getinfo(3).
                let addr = unsafe { core::slice::from_raw_parts(addr.cast::<u8>(), len) };
                bytes += addr.iter().filter(|byte| **byte != 0).count();
            }
        }
    }
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    unsafe extern "C" fn no_fabric(_: *mut fi_fabric_attr, _: *mut *mut fid_fabric, _: *mut c_void) -> c_int {
        0
    }

    /// A table of a provider with that name.
    const fn table(name: &'static CStr, version: Version, api: Version) -> fi_provider {
        fi_provider {
            version: version.0,
            fi_version: api.0,
            context: [0; 4],
            name: name.as_ptr(),
            getinfo: None,
            fabric: Some(no_fabric),
            cleanup: None,
        }
    }

    /// A provider of that name and version.
    pub(crate) fn provider(name: &'static CStr, version: Version) -> Provider {
        register(Box::leak(Box::new(table(name, version, Version::API)))).unwrap()
    }

    #[test]
    fn registration_demands_a_name_a_fabric_call_and_a_known_interface() {
        let (version, api) = (Version::new(5, 1), Version::new(1, 13));
        let good = table(c"good", version, api);
        let provider = register(&good).unwrap();
        assert_eq!((provider.name.as_str(), provider.version, provider.api), ("good", version, api));
        let refused = |table: fi_provider| register(&table).unwrap_err();
        assert!(refused(fi_provider { fabric: None, ..good }).contains("no fabric call"));
        assert!(refused(fi_provider { name: core::ptr::null(), ..good }).contains("no name"));
        for name in [c"", c"a;b", c"a b", c"^a", c"\x01"] {
            assert!(refused(fi_provider { name: name.as_ptr(), ..good }).contains("cannot be requested"));
        }
        assert!(refused(fi_provider { fi_version: Version::new(1, 2).0, ..good }).contains("1.2, older than 1.3"));
        assert!(refused(fi_provider { fi_version: Version::new(3, 0).0, ..good }).contains("interface 3.0"));
        assert!(register(&fi_provider { fi_version: Version::new(1, 3).0, ..good }).is_ok());
        assert!(register(&fi_provider { fi_version: Version::new(2, 9).0, ..good }).is_ok());
    }

    #[test]
    fn a_list_without_an_end_or_without_its_parts_is_refused() {
        // SAFETY: pointers and numbers may be zero.
        let mut info: fi_info = unsafe { core::mem::zeroed() };
        info.next = &raw mut info;
        // SAFETY: a list of one node.
        assert!(unsafe { nodes_of(&raw mut info) }.unwrap_err().contains("without tx_attr"));
        // SAFETY: an empty list.
        assert!(unsafe { nodes_of(core::ptr::null_mut()) }.unwrap().nodes.is_empty());
    }
}
