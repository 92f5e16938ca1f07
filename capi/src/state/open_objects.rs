//! Registry of open fabrics and domains: fi_getinfo(3) returns them in infos, and accepts them in
//! hints as a restriction.

use crate::ffi::ptr::text;
use core::ffi::c_void;
use ofi_abi::{fi_info, fid};
use ofi_core::info::{DomainAttr, FabricAttr, Hints};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An open fabric or domain.
#[derive(Clone, Debug)]
struct Entry {
    address: usize,
    domain: bool,
    /// The address of a domain's fabric, or its own.
    fabric: usize,
    provider: String,
    name: String,
}

fn list() -> MutexGuard<'static, Vec<Entry>> {
    static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list's lock, held across fork(2).
#[derive(Debug)]
pub(crate) struct Held(MutexGuard<'static, Vec<Entry>>);

/// Locks the list.
pub(crate) fn hold() -> Held {
    Held(list())
}

impl Held {
    /// Clears the addresses: in a child, fi_getinfo(3) must not return the parent's objects.
    pub(crate) fn forget_all(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.address = 0);
    }
}

/// Keeps an object in the list until dropped.
#[derive(Debug)]
pub(crate) struct Listed(usize);

impl Listed {
    /// Lists a fabric, or a domain of that fabric.
    pub(crate) fn new(object: *const c_void, fabric: Option<&Self>, provider: &str, name: &str) -> Self {
        let (address, domain) = (object.addr(), fabric.is_some());
        let fabric = fabric.map_or(address, |fabric| fabric.0);
        list().push(Entry { address, domain, fabric, provider: provider.to_owned(), name: name.to_owned() });
        Self(address)
    }

    /// The name with which it is listed.
    pub(crate) fn name(&self) -> String {
        self.entry().map(|entry| entry.name).unwrap_or_default()
    }

    /// The name of its provider.
    pub(crate) fn provider(&self) -> String {
        self.entry().map(|entry| entry.provider).unwrap_or_default()
    }

    fn entry(&self) -> Option<Entry> {
        list().iter().find(|entry| entry.address == self.0).cloned()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        list().retain(|entry| entry.address != self.0);
    }
}

/// Whether the hints name a fabric or a domain of this library: then no loaded provider matches.
///
/// # Safety
/// As for [`narrow`].
pub(crate) unsafe fn are_named_in(hints: &fi_info) -> bool {
    // SAFETY: null or valid by this function's contract.
    let fabric = unsafe { hints.fabric_attr.as_ref() }.map_or(0, |attr| attr.fabric.addr());
    // SAFETY: null or valid by this function's contract.
    let domain = unsafe { hints.domain_attr.as_ref() }.map_or(0, |attr| attr.domain.addr());
    list().iter().any(|entry| entry.address != 0 && [fabric, domain].contains(&entry.address))
}

/// Restricts `wanted` to the objects in the hints. A closed object matches nothing.
///
/// # Safety
/// The hints are valid with all their members.
pub(crate) unsafe fn narrow(hints: &fi_info, wanted: &mut Hints) {
    let entry = |object: *mut c_void, domain: bool| {
        let known = list().iter().find(|entry| entry.address == object.addr() && entry.domain == domain).cloned();
        let closed = || Entry {
            address: 0,
            domain,
            fabric: 0,
            provider: String::new(),
            name: "(an object that is closed)".into(),
        };
        (!object.is_null()).then(|| known.unwrap_or_else(closed))
    };
    // SAFETY: null or valid by this function's contract.
    let fabric = unsafe { hints.fabric_attr.as_ref() }.and_then(|attr| entry(attr.fabric.cast(), false));
    // SAFETY: null or valid by this function's contract.
    let domain = unsafe { hints.domain_attr.as_ref() }.and_then(|attr| entry(attr.domain.cast(), true));
    if let Some(fabric) = fabric {
        let attr = wanted.fabric.get_or_insert_with(FabricAttr::default);
        attr.name = Some(fabric.name);
        attr.prov_name.get_or_insert(fabric.provider);
    }
    if let Some(domain) = domain {
        wanted.domain.get_or_insert_with(DomainAttr::default).name = Some(domain.name);
        wanted.fabric.get_or_insert_with(FabricAttr::default).prov_name.get_or_insert(domain.provider);
    }
}

/// Sets in each info the first open domain that matches it with its fabric, or the first such
/// fabric, and the hints' handle.
///
/// # Safety
/// `list_of_infos` is null or a list of infos that is not shared.
pub(crate) unsafe fn complete(list_of_infos: *mut fi_info, handle: *mut fid) {
    let open = list();
    let mut next = list_of_infos;
    // SAFETY: this function's contract.
    while let Some(info) = unsafe { next.as_mut() } {
        next = info.next;
        info.handle = handle;
        // SAFETY: an info of ours has all its parts; they are its own.
        let Some(fabric) = (unsafe { info.fabric_attr.as_mut() }) else { continue };
        // SAFETY: as above.
        let Some(domain) = (unsafe { info.domain_attr.as_mut() }) else { continue };
        // SAFETY: null or ends with NUL.
        let provider = unsafe { text(fabric.prov_name) }.unwrap_or_default();
        let named = |is_domain: bool, name: Option<String>| {
            let fits = |entry: &&Entry| {
                entry.address != 0
                    && entry.domain == is_domain
                    && entry.provider.eq_ignore_ascii_case(&provider)
                    && name.as_deref() == Some(entry.name.as_str())
            };
            open.iter().filter(fits).collect::<Vec<_>>()
        };
        // SAFETY: null or ends with NUL.
        let fabrics = named(false, unsafe { text(fabric.name) });
        // SAFETY: null or ends with NUL.
        let domains = named(true, unsafe { text(domain.name) });
        // Domains of several fabrics may have the same name.
        let is_of_one = |domain: &&&Entry| fabrics.iter().any(|fabric| fabric.address == domain.fabric);
        let found = domains.iter().find(is_of_one);
        let object = |address| core::ptr::with_exposed_provenance_mut::<c_void>(address);
        let fabric_at = found.map(|domain| domain.fabric).or_else(|| fabrics.first().map(|entry| entry.address));
        domain.domain = found.map_or(core::ptr::null_mut(), |domain| object(domain.address).cast());
        fabric.fabric = fabric_at.map_or(core::ptr::null_mut(), |address| object(address).cast());
    }
}
