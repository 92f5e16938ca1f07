//! What the tests of the crate share.
#![allow(dead_code, reason = "each test uses a part")]

use ofi::{EndpointType, Info, InfoBuilder};

/// A query for endpoints of this host.
pub(crate) fn query(provider: &str, kind: EndpointType) -> InfoBuilder {
    let query = Info::builder().provider(provider).endpoint(kind);
    if provider == "shm" { query } else { query.node("127.0.0.1").source() }
}

/// The best offer of such a query.
pub(crate) fn info(provider: &str, kind: EndpointType) -> Info {
    query(provider, kind).query().unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// The providers of reliable endpoints that the crate was built with.
pub(crate) fn providers() -> Vec<&'static str> {
    let mut all = Vec::new();
    all.extend(cfg!(feature = "tcp").then_some("tcp"));
    all.extend(cfg!(feature = "shm").then_some("shm"));
    all
}
