//! Parser for address strings (fi_getinfo(3), FI_ADDR_STR): a scheme that names the address format,
//! then an optional node, service, fields and keys. [`Addr`]'s `Display` writes such strings, its
//! `FromStr` reads them.
//!
//! ```text
//! address_format[://[node][:[service][/[field3]...][?[key=value][&k2=v2]...]]]
//! fi_sockaddr_in6://[fe80::6:12%eth0]:7471/field?qos=3
//! ```
//! No provider here uses fields and keys: the parser keeps them. It does not parse a name within a
//! host any further: the whole string is the [`Name`](crate::addr::Name).

use crate::addr::{Addr, NAME_SCHEMES};
use crate::kinds::AddrFormat;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The parts of an address string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddrString<'a> {
    /// The format that the scheme names; [`AddrFormat::FORMAT_UNSPEC`] for an empty one.
    pub format: AddrFormat,
    /// A host name or an address, without brackets and scope.
    pub node: Option<&'a str>,
    /// The scope of an IPv6 address: an interface by its name or number.
    pub scope: Option<&'a str>,
    /// A service name or a port.
    pub service: Option<&'a str>,
    /// The fields after the service, each preceded by a slash.
    pub fields: Vec<&'a str>,
    /// Keys and values; a key without `=` has an empty value.
    pub keys: Vec<(&'a str, &'a str)>,
}

impl<'a> AddrString<'a> {
    /// Parses an address string. `None` for a plain node: it lacks `://` and names no format.
    ///
    /// # Errors
    /// What is wrong with the text, in a sentence.
    pub fn parse(text: &'a str) -> Option<Result<Self, String>> {
        let (scheme, rest) = match text.split_once("://") {
            Some(parts) => parts,
            None if AddrFormat::named(text).is_some() => (text, ""),
            None => return None,
        };
        let refuse = |what: String| Some(Err(format!("the address string \"{text}\" {what}")));
        let Some(format) = format_of(scheme) else {
            return refuse(format!("has the scheme \"{scheme}\", which names no address format"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = match rest.split_once('/') {
            Some((place, path)) => (place, Some(path)),
            None => (rest, None),
        };
        let ((node, scope), service) = match split_place(place) {
            Ok(parts) => parts,
            Err(what) => return refuse(what.to_owned()),
        };
        Some(Ok(Self {
            format,
            node: some(node),
            scope,
            service: service.and_then(some),
            fields: path.map_or_else(Vec::new, |path| path.split('/').collect()),
            keys: query.split('&').filter_map(some).map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect(),
        }))
    }

    /// The address, if it is numeric: without a node any address, without a service port 0.
    /// `scope_of` maps an interface name to its index. `None` if the string needs a look-up, or
    /// does not match its scheme's format.
    pub fn numeric(&self, scope_of: impl FnOnce(&str) -> Option<u32>) -> Option<SocketAddr> {
        let ip = match self.node {
            Some(node) => node.parse::<IpAddr>().ok()?,
            None if self.format == AddrFormat::SOCKADDR_IN6 => Ipv6Addr::UNSPECIFIED.into(),
            None => Ipv4Addr::UNSPECIFIED.into(),
        };
        let port = self.service.map_or(Some(0), |service| service.parse::<u16>().ok())?;
        let scope = match self.scope {
            Some(scope) => scope.parse::<u32>().ok().or_else(|| scope_of(scope))?,
            None => 0,
        };
        match (ip, self.format) {
            (IpAddr::V4(_), AddrFormat::SOCKADDR_IN6) | (IpAddr::V6(_), AddrFormat::SOCKADDR_IN) => None,
            (IpAddr::V4(ip), _) if self.scope.is_none() => Some((ip, port).into()),
            (IpAddr::V4(_), _) => None,
            (IpAddr::V6(ip), _) => Some(SocketAddrV6::new(ip, port, 0, scope).into()),
        }
        .filter(|_| self.is_inet())
    }

    /// Whether the format allows an IP address.
    pub fn is_inet(&self) -> bool {
        use AddrFormat as F;
        matches!(self.format, F::FORMAT_UNSPEC | F::SOCKADDR | F::SOCKADDR_IP | F::SOCKADDR_IN | F::SOCKADDR_IN6)
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn format_of(scheme: &str) -> Option<AddrFormat> {
    if scheme.is_empty() {
        return Some(AddrFormat::FORMAT_UNSPEC);
    }
    if NAME_SCHEMES.iter().any(|name| name.eq_ignore_ascii_case(scheme)) {
        return Some(AddrFormat::ADDR_STR);
    }
    AddrFormat::named(scheme)
}

/// A node with its scope.
type Node<'a> = (&'a str, Option<&'a str>);

fn split_scope(node: &str) -> Node<'_> {
    node.split_once('%').map_or((node, None), |(node, scope)| (node, Some(scope)))
}

/// Splits `node:service`; an IPv6 address is in brackets, or stands alone.
fn split_place(place: &str) -> Result<(Node<'_>, Option<&str>), &'static str> {
    if let Some(inside) = place.strip_prefix('[') {
        let (node, behind) = inside.split_once(']').ok_or("has an unclosed bracket")?;
        let (node, scope) = split_scope(node);
        if scope == Some("") {
            return Err("has an empty scope");
        }
        return match behind.strip_prefix(':') {
            Some(service) => Ok(((node, scope), Some(service))),
            None if behind.is_empty() => Ok(((node, scope), None)),
            None => Err("has text after the closing bracket without a colon"),
        };
    }
    let (alone, scope) = split_scope(place);
    if alone.parse::<Ipv6Addr>().is_ok() && scope != Some("") {
        return Ok(((alone, scope), None));
    }
    Ok(match place.split_once(':') {
        Some((node, service)) => ((node, None), Some(service)),
        None => ((place, None), None),
    })
}

impl core::str::FromStr for Addr {
    type Err = ();

    /// Parses the output of [`Addr`]'s `Display`, and other address strings that need no look-up.
    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(name) = crate::addr::Name::new(text) {
            return Ok(Self::Name(name));
        }
        let parts = AddrString::parse(text).ok_or(())?.map_err(|_| ())?;
        parts.numeric(|_| None).map(Self::Inet).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> AddrString<'_> {
        AddrString::parse(text).expect("an address string").expect("a good one")
    }

    #[test]
    fn the_manuals_examples() {
        let string = parts("fi_sockaddr://10.31.6.12:7471?qos=3");
        assert_eq!(
            (string.format, string.node, string.service),
            (AddrFormat::SOCKADDR, Some("10.31.6.12"), Some("7471"))
        );
        assert_eq!(string.keys, [("qos", "3")]);
        let string = parts("fi_sockaddr_in6://[fe80::6:12]:7471");
        assert_eq!(string.numeric(|_| None), Some("[fe80::6:12]:7471".parse().unwrap()));
    }

    #[test]
    fn everything_but_the_format_may_be_missing() {
        for text in
            ["fi_sockaddr_in", "fi_sockaddr_in://", "fi_sockaddr_in://:", "fi_sockaddr_in://?", "FI_SOCKADDR_IN:///?&"]
        {
            let string = parts(text);
            assert_eq!(string.format, AddrFormat::SOCKADDR_IN, "{text}");
            assert_eq!((string.node, string.service), (None, None), "{text}");
            assert_eq!(string.numeric(|_| None), Some("0.0.0.0:0".parse().unwrap()), "{text}");
        }
        assert_eq!(parts("://localhost:7471").node, Some("localhost"));
        assert_eq!(parts("://localhost:7471").format, AddrFormat::FORMAT_UNSPEC);
        assert_eq!(parts("fi_sockaddr://:http").service, Some("http"));
        assert_eq!(parts("fi_sockaddr_in6://:80").numeric(|_| None), Some("[::]:80".parse().unwrap()));
        let string = parts("fi_sockaddr://host/a//b?x&=y&z=1=2");
        assert_eq!((string.node, string.service), (Some("host"), None));
        assert_eq!(string.fields, ["a", "", "b"]);
        assert_eq!(string.keys, [("x", ""), ("", "y"), ("z", "1=2")]);
    }

    #[test]
    fn scopes_are_names_or_numbers() {
        let index = |name: &str| (name == "eth0").then_some(7);
        let read = |text: &'static str| parts(text).numeric(index);
        assert_eq!(read("fi_sockaddr_in6://[fe80::1%eth0]:9"), Some("[fe80::1%7]:9".parse().unwrap()));
        assert_eq!(read("fi_sockaddr_in6://[fe80::1%3]:9"), Some("[fe80::1%3]:9".parse().unwrap()));
        assert_eq!(read("fi_sockaddr_in6://fe80::1%3"), Some("[fe80::1%3]:0".parse().unwrap()));
        assert_eq!(read("fi_sockaddr_in6://::1"), Some("[::1]:0".parse().unwrap()));
        assert_eq!(read("fi_sockaddr_in6://[fe80::1%eth9]:9"), None);
        assert_eq!(read("://[1.2.3.4%3]:9"), None);
    }

    #[test]
    fn plain_nodes_and_bad_address_strings_are_told_apart() {
        for plain in ["localhost", "10.0.0.1", "::1", "fi_shm", "a:b", ""] {
            assert_eq!(AddrString::parse(plain), None, "{plain}");
        }
        for bad in
            ["http://host", "fi_nothing://", "fi_sockaddr://[::1", "fi_sockaddr://[::1]x", "fi_sockaddr://[fe80::1%]:5"]
        {
            let text = AddrString::parse(bad).expect("has a scheme").expect_err(bad);
            assert!(text.contains(bad), "{text}");
        }
        // Valid address strings, but not addresses of their format.
        for other in [
            "fi_sockaddr_in://[::1]:5",
            "fi_sockaddr_in6://1.2.3.4:5",
            "fi_sockaddr://1.2.3.4:65536",
            "fi_addr_efa://x",
        ] {
            assert_eq!(parts(other).numeric(|_| None), None, "{other}");
            assert!(other.parse::<Addr>().is_err(), "{other}");
        }
    }
}
