//! Names to addresses, by the system's resolver.
#![allow(unsafe_code)]

use ofi_core::Errno;
use ofi_core::error::{Error, Result};
use std::ffi::{CStr, CString};
use std::net::SocketAddr;

/// Which addresses are wanted.
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
    /// Which addresses are wanted.
    pub family: Family,
    /// For binding: no node means any interface, not loopback.
    pub passive: bool,
    /// Never asks a name server.
    pub numeric: bool,
}

/// The addresses of `node` and `service`, best first.
pub fn resolve(node: Option<&str>, service: Option<&str>, options: Options) -> Result<Vec<SocketAddr>> {
    let doing = || format!("resolve node {:?} service {:?}", node.unwrap_or(""), service.unwrap_or(""));
    let text = |text: Option<&str>| text.map(CString::new).transpose().map_err(|_| Error::new(Errno::EINVAL, doing()));
    let (node_text, service_text) = (text(node)?, text(service)?);
    // SAFETY: all-zero is a valid addrinfo of hints.
    let mut hints: libc::addrinfo = unsafe { core::mem::zeroed() };
    hints.ai_family = match options.family {
        Family::Any => libc::AF_UNSPEC,
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    hints.ai_socktype = libc::SOCK_STREAM;
    if options.passive {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    if options.numeric {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    let pointer = |text: &Option<CString>| text.as_ref().map_or(core::ptr::null(), |text| text.as_ptr());
    let mut list = core::ptr::null_mut();
    // SAFETY: both strings end with NUL or are null, `hints` is valid, `list` is a place for the result.
    let code = unsafe { libc::getaddrinfo(pointer(&node_text), pointer(&service_text), &hints, &mut list) };
    if code != 0 {
        // SAFETY: the function takes any code.
        let why = unsafe { libc::gai_strerror(code) };
        // SAFETY: it returns a static string for every code.
        let why = unsafe { CStr::from_ptr(why) };
        return Err(Error::new(Errno::ENODATA, format!("{} ({})", doing(), why.to_string_lossy())));
    }
    let mut out = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the resolver's list is valid until it is freed below.
        let entry = unsafe { &*next };
        let len = usize::try_from(entry.ai_addrlen).unwrap_or(0);
        // SAFETY: the resolver says that `len` bytes of address are there.
        let bytes = unsafe { core::slice::from_raw_parts(entry.ai_addr.cast::<u8>(), len) };
        if let Some(addr) = ofi_core::Addr::decode(bytes) {
            out.push(addr.socket());
        }
        next = entry.ai_next;
    }
    // SAFETY: the list came from getaddrinfo and is freed once.
    unsafe { libc::freeaddrinfo(list) };
    if out.is_empty() { Err(Error::new(Errno::ENODATA, doing())) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_name_server() {
        let options = Options { family: Family::Any, passive: false, numeric: true };
        let found = resolve(Some("127.0.0.1"), Some("80"), options).unwrap();
        assert_eq!(found, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolve(Some("a-name"), None, options).unwrap_err().errno(), Errno::ENODATA);
        assert_eq!(resolve(Some("a\0b"), None, options).unwrap_err().errno(), Errno::EINVAL);
    }

    #[test]
    fn passive_means_every_interface() {
        let options = Options { family: Family::V4, passive: true, numeric: false };
        assert_eq!(resolve(None, Some("7471"), options).unwrap(), ["0.0.0.0:7471".parse().unwrap()]);
    }
}
