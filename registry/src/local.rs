//! Names for providers within this host: what a node, a service and hints make of them.

use crate::discover::Query;
use crate::inet::Endpoints;
use ofi_core::addr::Name;
use ofi_core::info::{Hints, Info, Offer};
use ofi_core::negotiate::Reason;
use ofi_core::{Addr, AddrFormat};

/// The name that a node and a service stand for: a node with a scheme as it is, another behind ours, with a service in
/// the form that programs know for both.
fn name(node: Option<&str>, service: Option<&str>) -> Option<String> {
    match (node, service) {
        (Some(node), None) if node.contains("://") => Some(node.to_owned()),
        (Some(node), None) => Some(format!("fi_shm://{node}")),
        (None, Some(service)) => Some(format!("fi_ns://{service}")),
        (Some(node), Some(service)) => Some(format!("fi_ns://{node}:{service}")),
        (None, None) => None,
    }
}

/// The address that a node and a service stand for within this host.
pub fn lookup(node: Option<&str>, service: Option<&str>) -> Option<Addr> {
    Name::new(&name(node, service)?).map(Addr::Name)
}

/// What node, service and hints say of names.
pub(crate) fn endpoints(query: &Query, hints: &Hints) -> Result<Endpoints, Reason> {
    let (node, service) = (query.node.as_deref(), query.service.as_deref());
    if query.source && node.is_none() && service.is_none() {
        return Err(Reason::new("node and service", "FI_SOURCE", "neither given"));
    }
    let found = match name(node, service) {
        None => None,
        Some(text) => match lookup(node, service) {
            Some(addr) => Some(addr),
            None => return Err(Reason::new("node and service", text, "fi_shm:// and at most 54 characters")),
        },
    };
    let ends = if query.source {
        Endpoints { src: found, dest: hints.dest_addr }
    } else {
        Endpoints { src: hints.src_addr, dest: found.or(hints.dest_addr) }
    };
    for (field, end) in [("src_addr", ends.src), ("dest_addr", ends.dest)] {
        if let Some(addr) = end.filter(|addr| addr.format() != AddrFormat::ADDR_STR) {
            return Err(Reason::new(field, addr, AddrFormat::ADDR_STR));
        }
    }
    Ok(ends)
}

/// The one info of an offer.
pub(crate) fn expand(offer: &Offer, ends: Endpoints) -> Info {
    let mut info = offer.most.clone();
    (info.src_addr, info.dest_addr) = (ends.src, ends.dest);
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
        assert_eq!(of(Some("fi_sockaddr_in://1.2.3.4:5"), None), None);
        assert_eq!(of(None, None), None);
    }
}
