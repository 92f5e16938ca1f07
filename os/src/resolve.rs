//! Name resolution by the system's resolver (getaddrinfo(3)).
#![allow(unsafe_code)]

use crate::{fallible, shortage};
use ofi_core::Errno;
use ofi_core::error::{Error, Result};
use std::collections::TryReserveError;
use std::ffi::CStr;
use std::net::SocketAddr;

/// The wanted address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Either.
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The wanted address family.
    pub family: Family,
    /// For binding: no node means any interface, not loopback.
    pub passive: bool,
    /// Never asks a name server.
    pub numeric: bool,
    /// Looks up services of datagrams, not of connections.
    pub datagram: bool,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The addresses, in the system's order; at least one.
    pub addrs: Vec<SocketAddr>,
    /// The node's canonical name, if the resolver knows one.
    pub canonical: Option<String>,
}

/// A resolver error (getaddrinfo(3)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The EAI code, negative.
    pub code: i32,
    /// The resolver's text for the code.
    pub text: &'static str,
    /// The system's error behind EAI_SYSTEM.
    pub errno: Option<Errno>,
}

impl Failure {
    fn new(code: i32) -> Self {
        let system = (code == libc::EAI_SYSTEM).then(std::io::Error::last_os_error);
        if code == libc::EAI_MEMORY {
            shortage::note(&std::io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let errno = system.map(|error| {
            shortage::note(&error);
            error.into()
        });
        // SAFETY: the function takes any code.
        let text = unsafe { libc::gai_strerror(code) };
        // SAFETY: it returns a static string for every code.
        let text = unsafe { CStr::from_ptr(text) };
        Self { code, text: text.to_str().unwrap_or("an error of the resolver"), errno }
    }

    /// An unknown name is no system error; lack of memory is one.
    fn errno(&self) -> Errno {
        let no_memory = self.code == libc::EAI_MEMORY || self.errno == Some(Errno::ENOMEM);
        if no_memory { Errno::ENOMEM } else { Errno::ENODATA }
    }
}

/// The addresses of `node` and `service`, best first.
///
/// # Errors
/// EINVAL for text that contains NUL, ENOMEM if the resolver ran out of memory, ENODATA for its
/// other errors.
pub fn resolve(node: Option<&str>, service: Option<&str>, options: Options) -> Result<Vec<SocketAddr>> {
    let doing = || format!("resolve node {:?} service {:?}", node.unwrap_or(""), service.unwrap_or(""));
    let no_nul = |text: Option<&str>| text.is_none_or(|text| !text.contains('\0'));
    if !no_nul(node) || !no_nul(service) {
        return Err(Error::new(Errno::EINVAL, doing()));
    }
    match lookup(node, service, options) {
        Ok(found) => Ok(found.addrs),
        Err(failure) => Err(Error::new(failure.errno(), format!("{} ({})", doing(), failure.text))),
    }
}

/// The addresses of `node` and `service` with the node's canonical name, or the resolver's error.
/// Text that contains NUL is EAI_NONAME.
pub fn lookup(node: Option<&str>, service: Option<&str>, options: Options) -> Result<Found, Failure> {
    let text = |text: Option<&str>| text.map(ended).transpose();
    let (node, service) = (text(node)?, text(service)?);
    // SAFETY: all-zero is a valid addrinfo of hints.
    let mut hints: libc::addrinfo = unsafe { core::mem::zeroed() };
    hints.ai_family = match options.family {
        Family::Any => libc::AF_UNSPEC,
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    hints.ai_socktype = if options.datagram { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    for (wanted, flag) in [
        (options.passive, libc::AI_PASSIVE),
        (options.numeric, libc::AI_NUMERICHOST),
        (node.is_some() && !options.numeric, libc::AI_CANONNAME),
    ] {
        if wanted {
            hints.ai_flags |= flag;
        }
    }
    let pointer = |text: &Option<Vec<u8>>| text.as_ref().map_or(core::ptr::null(), |text| text.as_ptr().cast());
    let mut list = core::ptr::null_mut();
    // SAFETY: both strings end with NUL or are null, `hints` is valid, `list` is a place for the
    // result.
    let code = unsafe { libc::getaddrinfo(pointer(&node), pointer(&service), &hints, &mut list) };
    if code != 0 {
        return Err(Failure::new(code));
    }
    // SAFETY: the resolver has returned the list, which is valid until it is freed below.
    let found = unsafe { read(list) };
    // SAFETY: the list came from getaddrinfo and is freed once.
    unsafe { libc::freeaddrinfo(list) };
    match found {
        Ok(found) if found.addrs.is_empty() => Err(Failure::new(libc::EAI_NODATA)),
        Ok(found) => Ok(found),
        Err(_) => Err(Failure::new(libc::EAI_MEMORY)),
    }
}

/// Reads the resolver's list; fails without memory for a copy.
///
/// # Safety
/// The list is one of getaddrinfo(3), or null.
unsafe fn read(list: *const libc::addrinfo) -> Result<Found, TryReserveError> {
    let mut found = Found { addrs: Vec::new(), canonical: None };
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of a list of getaddrinfo(3), by this function's contract.
        let entry = unsafe { &*next };
        let len = usize::try_from(entry.ai_addrlen).unwrap_or(0);
        // SAFETY: the resolver says that `len` bytes of address are there.
        let bytes = unsafe { core::slice::from_raw_parts(entry.ai_addr.cast::<u8>(), len) };
        if let Some(addr) = ofi_core::Addr::decode(bytes) {
            found.addrs.try_reserve(1)?;
            found.addrs.push(addr.socket());
        }
        if found.canonical.is_none() && !entry.ai_canonname.is_null() {
            // SAFETY: the resolver's names end with NUL.
            let name = unsafe { CStr::from_ptr(entry.ai_canonname) };
            found.canonical = Some(lossy(name)?);
        }
        next = entry.ai_next;
    }
    Ok(found)
}

/// The text as a C string. Fails with EAI_NONAME if it contains NUL, with EAI_MEMORY without memory
/// for the copy.
fn ended(text: &str) -> Result<Vec<u8>, Failure> {
    if text.contains('\0') {
        return Err(Failure::new(libc::EAI_NONAME));
    }
    fallible::terminated(text.as_bytes()).map_err(|_| Failure::new(libc::EAI_MEMORY))
}

/// A copy of a name, in which U+FFFD replaces what is not UTF-8.
fn lossy(name: &CStr) -> Result<String, TryReserveError> {
    let mut out = String::new();
    for part in name.to_bytes().utf8_chunks() {
        let replacement = if part.invalid().is_empty() { "" } else { "\u{fffd}" };
        out.try_reserve(part.valid().len() + replacement.len())?;
        out.push_str(part.valid());
        out.push_str(replacement);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_name_server() {
        let options = Options { family: Family::Any, passive: false, numeric: true, datagram: false };
        let found = resolve(Some("127.0.0.1"), Some("80"), options).unwrap();
        assert_eq!(found, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve(Some("a-name"), None, options).unwrap_err().errno(), Errno::ENODATA);
        assert_eq!(resolve(Some("a\0b"), None, options).unwrap_err().errno(), Errno::EINVAL);
    }

    #[test]
    fn a_lack_of_memory_is_told_from_an_unknown_name() {
        let system = |errno| Failure { code: libc::EAI_SYSTEM, text: "", errno: Some(errno) };
        assert_eq!(Failure::new(libc::EAI_MEMORY).errno(), Errno::ENOMEM);
        assert_eq!(system(Errno::ENOMEM).errno(), Errno::ENOMEM);
        assert_eq!(system(Errno::EIO).errno(), Errno::ENODATA);
        assert_eq!(Failure::new(libc::EAI_NONAME).errno(), Errno::ENODATA);
    }

    #[test]
    fn passive_means_every_interface() {
        let options = Options { family: Family::V4, passive: true, numeric: false, datagram: false };
        assert_eq!(resolve(None, Some("7471"), options).unwrap(), ["0.0.0.0:7471".parse().unwrap()]);
    }
}
