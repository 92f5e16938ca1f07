//! Names for providers within this host, formed from a node, a service and hints.

use crate::inet::Endpoints;
use crate::query::Query;
use ofi_core::addr::Name;
use ofi_core::addr_string::AddrString;
use ofi_core::info::{Hints, Info, Offer};
use ofi_core::negotiate::Reason;
use ofi_core::{Addr, AddrFormat};

/// The name that a node and a service form: an address string as it is; a plain node as
/// `fi_shm://`; a service, with or without a node, as `fi_ns://`. An address string without a
/// scheme gives a node and a service.
fn name(node: Option<&str>, service: Option<&str>) -> Result<Option<String>, String> {
    let beside = |node: &str| match service {
        Some(service) => {
            Err(format!("the service \"{service}\" beside the address string \"{node}\", which says its own"))
        }
        None => Ok(()),
    };
    // A name need not have the parts of other address strings.
    if let Some(name) = node.and_then(Name::new) {
        return beside(name.as_str()).map(|()| Some(name.as_str().to_owned()));
    }
    let string = match node.and_then(AddrString::parse) {
        None => return Ok(joined(node, service)),
        Some(string) => string?,
    };
    let node = node.unwrap_or_default();
    beside(node)?;
    match string.format {
        AddrFormat::FORMAT_UNSPEC => Ok(joined(string.node, string.service)),
        AddrFormat::ADDR_STR => Ok(Some(node.to_owned())),
        format => Err(format!("the address string \"{node}\" is of the format {format:?}, not of FI_ADDR_STR")),
    }
}

fn joined(node: Option<&str>, service: Option<&str>) -> Option<String> {
    match (node, service) {
        (Some(node), None) => Some(format!("fi_shm://{node}")),
        (None, Some(service)) => Some(format!("fi_ns://{service}")),
        (Some(node), Some(service)) => Some(format!("fi_ns://{node}:{service}")),
        (None, None) => None,
    }
}

/// The address that a node and a service form within this host; `None` if they form none.
pub fn lookup(node: Option<&str>, service: Option<&str>) -> Option<Addr> {
    Name::new(&name(node, service).ok()??).map(Addr::Name)
}

/// The addresses that node, service and hints select.
pub(crate) fn endpoints(query: &Query, hints: &Hints) -> Result<Endpoints, Reason> {
    const FIELD: &str = "node and service";
    let (node, service) = (query.node.as_deref(), query.service.as_deref());
    if query.source && node.is_none() && service.is_none() {
        return Err(Reason::unusable(FIELD, "FI_SOURCE needs one of them"));
    }
    let found = match name(node, service).map_err(|why| Reason::unusable(FIELD, why))? {
        None => None,
        Some(text) => Some(Addr::Name(Name::new(&text).ok_or_else(|| {
            let most = "a name has a scheme, something behind it, no blanks and at most 63 characters";
            Reason::unusable(FIELD, format_args!("\"{text}\" is no name: {most}"))
        })?)),
    };
    let (src, dest) = if query.source { (found, hints.dest_addr) } else { (hints.src_addr, found.or(hints.dest_addr)) };
    for (field, end) in [("src_addr", src), ("dest_addr", dest)] {
        if let Some(addr) = end.filter(|addr| addr.format() != AddrFormat::ADDR_STR) {
            return Err(Reason::new(field, addr, "FI_ADDR_STR"));
        }
    }
    Ok(Endpoints { src, dest, format: AddrFormat::ADDR_STR })
}

/// Expands an offer to its one info. The source always has a name, so that it can be opened.
pub(crate) fn expand(offer: &Offer, ends: Endpoints) -> Info {
    let mut info = offer.most.clone();
    info.src_addr = ends.src.or_else(|| offer.fresh_name.map(|fresh| fresh()));
    info.dest_addr = ends.dest;
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_services_become_names() {
        let of = |node, service| lookup(node, service).map(|addr| addr.to_string());
        assert_eq!(of(Some("job-7"), None).as_deref(), Some("fi_shm://job-7"));
        assert_eq!(of(Some("fi_shm://a"), None).as_deref(), Some("fi_shm://a"));
        assert_eq!(of(None, Some("7")).as_deref(), Some("fi_ns://7"));
        assert_eq!(of(Some("a"), Some("7")).as_deref(), Some("fi_ns://a:7"));
        assert_eq!(of(Some("fi_ns://a:7"), None).as_deref(), Some("fi_ns://a:7"));
        assert_eq!(of(Some("://a:7"), None).as_deref(), Some("fi_ns://a:7"));
        assert_eq!(of(Some("://a"), None).as_deref(), Some("fi_shm://a"));
        assert_eq!(of(Some("fi_sockaddr_in://1.2.3.4:5"), None), None);
        assert_eq!(of(Some("what://ever"), None), None);
        assert_eq!(of(None, None), None);
        // The text after a name's scheme is opaque; the scheme ignores case, as in other formats.
        for name in ["fi_shm://[a", "fi_ns://a?b/c%", "fi_shm://[::1]x"] {
            assert_eq!(of(Some(name), None).as_deref(), Some(name));
            assert_eq!(of(Some(name), Some("7")), None, "{name}");
        }
        assert_eq!(of(Some("FI_SHM://Job"), None).as_deref(), Some("fi_shm://Job"));
        // An address string of any format includes the service.
        for string in ["fi_shm://a", "fi_ns://a:7", "://a", "fi_sockaddr_in://1.2.3.4"] {
            assert_eq!(of(Some(string), Some("7")), None, "{string}");
        }
    }
}
