//! Configuration of an endpoint.

use crate::limits::Limits;
use crate::target::mr::Regions;
use crate::wire::hello::{Contexts, EndpointKind};
use ofi_core::Caps;
use ofi_sync::account::Account;
use std::sync::Arc;

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connectionless or connected.
    pub kind: EndpointKind,
    /// Capabilities.
    pub caps: Caps,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Maximum number of posted receives.
    pub rx_size: usize,
    /// Message size limits.
    pub limits: Limits,
    /// Random number that identifies this endpoint.
    pub nonce: [u8; 16],
    /// The provider's name, for logs.
    pub provider: &'static str,
    /// The domain's registered memory, which peers may access.
    pub regions: Arc<Regions>,
    /// Charged with the memory that the engine and its transport hold for peers.
    pub account: Arc<Account>,
    /// The context of a scalable endpoint that it is; the default for an ordinary endpoint.
    pub contexts: Contexts,
}
