//! Loaded providers in fi_getinfo(3) and fi_fabric(3): which are asked, what their infos become,
//! and which fabrics they open.

use crate::convert::foreign::{self, Summary};
use crate::convert::infos::Infos;
use core::ffi::{c_char, c_int, c_void};
use ofi_abi::{FI_CLASS_FABRIC, OFI_CORE_PROV_ONLY, OFI_OFFLOAD_PROV_ONLY, fi_fabric_attr, fi_info, fid_fabric};
use ofi_core::info::{Hints, Info};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::negotiate::{Reason, format_covers};
use ofi_core::{AddrFormat, Errno, Version};
use ofi_loader::{Layers, Loaded, Provider, Settings, core_only, is_layer, is_offload, rank};
use ofi_os::{dylib, mappings};
use ofi_registry::{PREFER_LOADED, PROVIDER, PROVIDER_PATH, Refusal, asked_for, format_asked, selected};
use std::path::PathBuf;

/// Folders of the system in which files of known names are looked for.
const SYSTEM: [&str; 4] = ["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// The loaded providers; the first call loads them.
pub(crate) fn all() -> &'static Loaded {
    ofi_loader::loaded(settings, ofi_registry::has_provider)
}

// SAFETY: the section holds addresses of functions without arguments, which the dynamic loader
// calls when it ends the library. Unlike functions of atexit(3), that is after all of those that
// the application has registered, which may still close objects of providers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = clean_up;

extern "C" fn clean_up() {
    ofi_hooks::finish();
    ofi_loader::clean_up();
}

fn settings() -> Settings {
    // Any function of this library tells where it is.
    let here: fn() -> &'static Loaded = all;
    let file = dylib::file_of(here as usize).and_then(|file| {
        // A relative name is from the working directory at the program's start.
        if file.is_absolute() { Some(file) } else { mappings::file_at(here as usize) }
    });
    let own_folder = file.as_ref().and_then(|file| file.parent()).map(PathBuf::from);
    let system = SYSTEM.iter().map(PathBuf::from);
    if dylib::is_privileged() {
        // A user without these rights must not choose what runs with them.
        return Settings { library: file, own_folder, search: system.collect(), ..Settings::default() };
    }
    let list = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = list.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let search = listed.chain(system).collect();
    Settings { path: PROVIDER_PATH.text(), prefer: PREFER_LOADED.text(), library: file, own_folder, search }
}

/// A call of fi_getinfo(3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) version: Version,
    pub(crate) node: *const c_char,
    pub(crate) service: *const c_char,
    pub(crate) flags: u64,
    pub(crate) hints: *const fi_info,
    /// The hints' names and address format.
    pub(crate) wanted: Option<&'a Hints>,
}

/// What the loaded providers answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Infos that come before those of the built-in providers.
    pub(crate) before: Infos,
    /// Infos that come after them.
    pub(crate) after: Infos,
    /// Why providers do not match.
    pub(crate) refusals: Vec<Refusal>,
}

impl Answer {
    pub(crate) const fn empty() -> Self {
        Self { before: Infos::none(), after: Infos::none(), refusals: Vec::new() }
    }

    pub(crate) const fn has_no_infos(&self) -> bool {
        self.before.as_ptr().is_null() && self.after.as_ptr().is_null()
    }
}

/// Asks every loaded provider that the request reaches.
///
/// # Errors
/// ENOMEM.
///
/// # Safety
/// Node, service and hints are valid as for fi_getinfo(3).
pub(crate) unsafe fn ask(loaded: &Loaded, ask: &Ask<'_>) -> Result<Answer, Errno> {
    let wanted = ask.wanted.and_then(|hints| hints.fabric.as_ref()).and_then(|fabric| fabric.prov_name.as_deref());
    let filter = Filter { wanted, list: PROVIDER.text(), format: format_asked(), layers: Layers::parse(wanted) };
    let mut out = Answer::empty();
    let mut found: Vec<(usize, Infos)> = Vec::new();
    for provider in loaded.providers.iter().filter(|provider| provider.is_discoverable()) {
        // SAFETY: this function's contract.
        match unsafe { ask_one(provider, ask, &filter)? } {
            Ok(infos) => found.extend(infos),
            Err(reason) => {
                out.refusals.push(Refusal { provider: provider.name.clone(), endpoint: "loaded", reason });
            }
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    for (place, infos) in found {
        let list = if place < rank(None) { &mut out.before } else { &mut out.after };
        list.append(infos);
    }
    Ok(out)
}

/// What an application and the environment filter by.
struct Filter<'a> {
    wanted: Option<&'a str>,
    list: Option<String>,
    format: Option<AddrFormat>,
    layers: Layers,
}

impl Filter<'_> {
    /// Whether a provider is asked at all.
    fn reach(&self, provider: &Provider, ask: &Ask<'_>) -> Result<(), Reason> {
        let name = provider.name.as_str();
        let offloads = ask.flags & OFI_OFFLOAD_PROV_ONLY != 0;
        let named = || Reason::new("fabric_attr->prov_name", self.wanted.unwrap_or_default(), name);
        if is_offload(name) != offloads {
            return Err(Reason::unusable("flags", "it serves other providers, not applications"));
        }
        if ask.flags & OFI_CORE_PROV_ONLY != 0 {
            let list = self.list.as_deref();
            return if is_layer(name) || !self.layers.reach_below(name) {
                Err(named())
            } else if !core_only(list, name) {
                Err(Reason::new(PROVIDER.name, list.unwrap_or_default(), name))
            } else {
                Ok(())
            };
        }
        if !self.layers.reach(name) {
            return Err(named());
        }
        // A layer's answers have names that begin with what it is over, so it has to be asked.
        let list = self.list.as_deref();
        if !is_layer(name) && !selected(list, name) && !core_only(list, name) {
            return Err(Reason::new(PROVIDER.name, list.unwrap_or_default(), name));
        }
        Ok(())
    }

    /// Whether an info passes.
    fn passes(&self, info: &Summary, full: &str, ask: &Ask<'_>) -> Result<(), Reason> {
        if ask.flags & OFI_CORE_PROV_ONLY == 0 {
            if !asked_for(self.wanted, full) {
                return Err(Reason::new("fabric_attr->prov_name", self.wanted.unwrap_or_default(), full));
            }
            let list = self.list.as_deref();
            if !selected(list, full) {
                return Err(Reason::new(PROVIDER.name, list.unwrap_or_default(), full));
            }
        }
        let fabric = ask.wanted.and_then(|hints| hints.fabric.as_ref()).and_then(|attr| attr.name.as_deref());
        let domain = ask.wanted.and_then(|hints| hints.domain.as_ref()).and_then(|attr| attr.name.as_deref());
        for (field, wanted, offered) in
            [("fabric_attr->name", fabric, &info.fabric), ("domain_attr->name", domain, &info.domain)]
        {
            let offered = offered.as_deref().unwrap_or_default();
            if let Some(wanted) = wanted.filter(|wanted| !wanted.eq_ignore_ascii_case(offered)) {
                return Err(Reason::new(field, wanted, offered));
            }
        }
        if let Some(format) = self.format.filter(|format| !format_covers(*format, info.format)) {
            return Err(Reason::differs(ofi_registry::ADDR_FORMAT.name, format, info.format));
        }
        Ok(())
    }
}

/// The full name of an info: a layer's begins with the name of what it is over.
fn full_name(given: Option<&str>, provider: &str) -> String {
    let given = given.unwrap_or_default();
    let last = given.rsplit(';').next().unwrap_or_default();
    if given.is_empty() {
        provider.to_owned()
    } else if last.eq_ignore_ascii_case(provider) {
        given.to_owned()
    } else {
        format!("{given};{provider}")
    }
}

/// Asks one provider. The outer error is ENOMEM.
///
/// # Safety
/// As for [`ask`].
unsafe fn ask_one(
    provider: &Provider,
    ask: &Ask<'_>,
    filter: &Filter<'_>,
) -> Result<Result<Vec<(usize, Infos)>, Reason>, Errno> {
    if let Err(reason) = filter.reach(provider, ask) {
        return Ok(Err(reason));
    }
    if provider.api < ask.version {
        let (api, version) = (provider.api, ask.version);
        let text = format!("{} is built for interface {api}, older than the requested {version}", provider.name);
        log::log("", Level::Warn, Subsystem::Core, || text.clone());
        return Ok(Err(Reason::unusable("version", text)));
    }
    // SAFETY: this function's contract.
    let list = match unsafe { provider.getinfo(ask.version, ask.node, ask.service, ask.flags, ask.hints) } {
        Ok(list) => list,
        Err(why) => {
            log::log("", Level::Info, Subsystem::Core, || format!("{}: {why}", provider.name));
            return Ok(Err(Reason::unusable("fi_getinfo", why)));
        }
    };
    // SAFETY: the nodes are the provider's answer, which is not freed yet.
    let copies = unsafe { copies(provider, &list, ask, filter) };
    for node in list.nodes {
        // SAFETY: the answer is the caller's (fi_getinfo(3)), each node is in it once, and the
        // copies share nothing with it.
        unsafe { foreign::free(node.as_ptr(), provider.api) };
    }
    copies
}

/// Copies of the infos that match. The outer error is ENOMEM.
///
/// # Safety
/// The list is the provider's answer, not freed.
unsafe fn copies(
    provider: &Provider,
    list: &ofi_loader::Infos,
    ask: &Ask<'_>,
    filter: &Filter<'_>,
) -> Result<Result<Vec<(usize, Infos)>, Reason>, Errno> {
    let mut out = Vec::new();
    let mut first = None;
    for node in &list.nodes {
        // SAFETY: a node of the provider's answer, which is not freed yet.
        let mut copy = unsafe { foreign::copy(node.as_ptr(), provider.api)? };
        let Some(info) = copy.node() else { continue };
        // SAFETY: the copy has the parts of the original, which the loader has checked.
        let summary = unsafe { foreign::summary(info) };
        let full = full_name(summary.prov_name.as_deref(), &provider.name);
        match filter.passes(&summary, &full, ask) {
            Ok(()) => {
                // SAFETY: as above.
                unsafe { foreign::sign(info, &full, provider.version, ask.version)? };
                out.push((rank(Some(&full)), copy));
            }
            Err(reason) => first = first.or(Some(reason)),
        }
    }
    let nothing = || Reason::unusable("fi_getinfo", "it returns no info");
    Ok(if out.is_empty() { Err(first.unwrap_or_else(nothing)) } else { Ok(out) })
}

/// Adds the names of loaded providers to the answer to FI_PROV_ATTR_ONLY.
pub(crate) fn add_names(loaded: &Loaded, found: &mut Vec<Info>) {
    for provider in &loaded.providers {
        let same = |info: &Info| {
            info.fabric.prov_name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(&provider.name))
        };
        if !found.iter().any(same) {
            let mut info = Info::default();
            info.fabric.prov_name = Some(provider.name.clone());
            info.fabric.prov_version = provider.version.0;
            found.push(info);
        }
    }
}

/// The loaded provider that opens fabrics of that name, unless a built-in one does.
pub(crate) fn opener(name: &str) -> Option<&'static Provider> {
    let loaded = all();
    if loaded.serves(name) || !ofi_registry::has_provider(name) { loaded.named(name) } else { None }
}

/// Opens a fabric of a loaded provider. Its objects are the provider's own.
///
/// # Safety
/// `attr` is valid, and `out` is null or valid (fi_fabric(3)).
pub(crate) unsafe fn open(
    provider: &Provider,
    attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    if out.is_null() {
        return Errno::EINVAL.negative();
    }
    // SAFETY: this function's contract.
    let fabric = match unsafe { provider.fabric(attr, context) } {
        Ok(fabric) => fabric,
        Err(code) => return code,
    };
    // SAFETY: the provider has opened it.
    let opened = unsafe { &mut *fabric.as_ptr() };
    if opened.fid.fclass != FI_CLASS_FABRIC || opened.fid.ops.is_null() || opened.ops.is_null() {
        let name = provider.name.clone();
        log::log("", Level::Error, Subsystem::Fabric, || format!("{name}: its fi_fabric returns no fabric"));
        return Errno::EOTHER.negative();
    }
    // Older fabrics have no such member.
    if provider.api >= Version::new(1, 5) {
        // SAFETY: this function's contract.
        opened.api_version = unsafe { (*attr).api_version };
    }
    // SAFETY: not null, so valid by this function's contract.
    unsafe { out.write(fabric.as_ptr()) };
    0
}
