//! The query of fi_getinfo(3), as an application makes it.

use ofi_core::Version;
use ofi_core::info::Hints;

/// The query of an application.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The interface version that the application was written for; 0 counts as 1.0.
    pub version: Version,
    /// A host name, an address, or an address string.
    pub node: Option<String>,
    /// A service name or a port number.
    pub service: Option<String>,
    /// Node and service name the source, not the destination (FI_SOURCE).
    pub source: bool,
    /// The node is a numeric address: skips name resolution (FI_NUMERICHOST).
    pub numeric: bool,
    /// Only names and versions of providers are wanted (FI_PROV_ATTR_ONLY).
    pub names_only: bool,
    /// The hints; `None` for any.
    pub hints: Option<Hints>,
}
