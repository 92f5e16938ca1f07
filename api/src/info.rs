//! What the providers offer: queries with typed hints (fi_getinfo(3)).

use core::fmt;
use core::ops::{Deref, DerefMut};
use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr};
use ofi_core::{
    Addr, AddrFormat, Caps, EndpointType, Errno, Error, Hints, MsgOrder, ProgressModel, TrafficClass, Version,
};
use ofi_registry::{Query, Refusals};

/// An offer: one way to communicate (`struct fi_info`, fi_getinfo(3)).
///
/// It dereferences to its [`Attributes`], which a program may read, and change before it opens
/// something with them.
///
/// ```
/// let info = ofi::Info::builder().provider("shm").query()?.remove(0);
/// assert_eq!(info.fabric.prov_name.as_deref(), Some("shm"));
/// assert!(info.ep.max_msg_size > 1 << 20, "in bytes");
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info(Attributes);

/// The attributes of an offer (fi_getinfo(3), fi_endpoint(3), fi_domain(3), fi_fabric(3)).
pub type Attributes = ofi_core::Info;

impl From<Attributes> for Info {
    fn from(attributes: Attributes) -> Self {
        Self(attributes)
    }
}

impl From<Info> for Attributes {
    fn from(info: Info) -> Self {
        info.0
    }
}

impl Deref for Info {
    type Target = Attributes;
    fn deref(&self) -> &Attributes {
        &self.0
    }
}

impl DerefMut for Info {
    fn deref_mut(&mut self) -> &mut Attributes {
        &mut self.0
    }
}

impl Info {
    /// Starts a query.
    ///
    /// ```
    /// for info in ofi::Info::builder().query()? {
    ///     println!("{:?} {}", info.fabric.prov_name, info.ep.kind);
    /// }
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn builder() -> InfoBuilder {
        InfoBuilder::default()
    }
}

/// Why a query found nothing: a reason for each provider.
///
/// ```
/// use ofi::{Caps, Info};
/// let error = Info::builder().provider("udp").caps(Caps::TAGGED).query().unwrap_err();
/// assert!(error.refusals().iter().any(|refusal| refusal.provider == "udp"));
/// println!("{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    error: Error,
    refusals: Refusals,
}

impl QueryError {
    /// The error number: ENODATA if no provider matches; EBADFLAGS for unknown flags.
    pub const fn errno(&self) -> Errno {
        self.error.errno()
    }

    /// Why each provider does not match; empty if the query itself is wrong.
    pub fn refusals(&self) -> &[ofi_registry::Refusal] {
        &self.refusals.0
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refusals.0.is_empty() { self.error.fmt(f) } else { self.refusals.fmt(f) }
    }
}

impl core::error::Error for QueryError {}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// A query of the providers, made of typed hints (fi_getinfo(3)). What is not set is left to the
/// provider.
///
/// ```
/// use ofi::{Caps, EndpointType, Info};
/// let offers = Info::builder()
///     .endpoint(EndpointType::RDM)
///     .caps(Caps::TAGGED | Caps::RMA | Caps::ATOMIC)
///     .query()?;
/// assert!(!offers.is_empty(), "best first");
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a query starts with `query`"]
pub struct InfoBuilder {
    query: Query,
    hints: Hints,
}

impl InfoBuilder {
    fn ep(&mut self) -> &mut EpAttr {
        self.hints.ep.get_or_insert_default()
    }

    fn domain(&mut self) -> &mut DomainAttr {
        self.hints.domain.get_or_insert_default()
    }

    fn fabric(&mut self) -> &mut FabricAttr {
        self.hints.fabric.get_or_insert_default()
    }

    fn tx(&mut self) -> &mut TxAttr {
        self.hints.tx.get_or_insert_default()
    }

    fn rx(&mut self) -> &mut RxAttr {
        self.hints.rx.get_or_insert_default()
    }

    /// Only this provider: `tcp`, `shm`, `udp` or `verbs`, or a layered name such as `tcp;ofi_rxm`.
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.fabric().prov_name = Some(name.into());
        self
    }

    /// Only endpoints of this type (fi_endpoint(3)).
    pub fn endpoint(mut self, kind: EndpointType) -> Self {
        self.ep().kind = kind;
        self
    }

    /// Only offers with all of these capabilities (fi_getinfo(3)).
    pub const fn caps(mut self, caps: Caps) -> Self {
        self.hints.caps = caps;
        self
    }

    /// The peer's host name, address or address string; with [`Self::source`], this host's.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.query.node = Some(node.into());
        self
    }

    /// A service name or port number, for the same end as [`Self::node`].
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.query.service = Some(service.into());
        self
    }

    /// Node and service name this side, where the endpoint or listener is reached (FI_SOURCE).
    pub const fn source(mut self) -> Self {
        self.query.source = true;
        self
    }

    /// The address of this side.
    pub const fn source_addr(mut self, addr: Addr) -> Self {
        self.hints.src_addr = Some(addr);
        self
    }

    /// Only addresses of this format.
    pub const fn addr_format(mut self, format: AddrFormat) -> Self {
        self.hints.addr_format = format;
        self
    }

    /// Only this domain: for socket providers, the name of an interface.
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.domain().name = Some(name.into());
        self
    }

    /// Who makes progress (fi_domain(3)): with [`ProgressModel::AUTO`], a thread of the domain;
    /// otherwise the tasks that await operations.
    pub fn progress(mut self, model: ProgressModel) -> Self {
        self.domain().progress = model;
        self
    }

    /// Which pairs of operations keep their order (fi_endpoint(3)).
    pub fn msg_order(mut self, order: MsgOrder) -> Self {
        self.tx().msg_order = order;
        self.rx().msg_order = order;
        self
    }

    /// How the network shall treat the traffic (fi_endpoint(3)).
    pub fn traffic_class(mut self, class: TrafficClass) -> Self {
        self.tx().tclass = class;
        self
    }

    /// At least how many sends and accesses an endpoint has in progress at once.
    pub fn tx_size(mut self, operations: usize) -> Self {
        self.tx().size = operations;
        self
    }

    /// At least how many receives an endpoint has posted at once.
    pub fn rx_size(mut self, operations: usize) -> Self {
        self.rx().size = operations;
        self
    }

    /// Asks the providers. Offers come best first; there is at least one.
    ///
    /// # Errors
    /// ENODATA with each provider's reason if none matches; EBADFLAGS for unknown flags.
    pub fn query(self) -> Result<Vec<Info>, QueryError> {
        #[cfg(feature = "tracing")]
        crate::trace::install();
        let query = Query { version: Version::API, hints: Some(self.hints), ..self.query };
        match discover(&query) {
            Ok((infos, refusals)) if infos.is_empty() => {
                Err(QueryError { error: Error::new(Errno::ENODATA, "find a provider"), refusals })
            }
            Ok((infos, _)) => Ok(infos),
            Err(error) => Err(QueryError { error, refusals: Refusals::default() }),
        }
    }
}

/// The offers that match a query in all its parts, and the reasons of the providers that do not
/// match (fi_getinfo(3)). [`Info::builder`] covers what programs need.
///
/// # Errors
/// ENOSYS for a newer version of the interface, EBADFLAGS for unknown flags.
///
/// ```
/// use ofi::{Query, Version};
/// let (infos, refusals) = ofi::discover(&Query { version: Version::API, ..Query::default() })?;
/// assert!(!infos.is_empty(), "{refusals}");
/// # Ok::<(), ofi::Error>(())
/// ```
pub fn discover(query: &Query) -> ofi_core::error::Result<(Vec<Info>, Refusals)> {
    let (infos, refusals) = ofi_registry::discover(query)?;
    Ok((infos.into_iter().map(Info).collect(), refusals))
}
