//! The fabric library for Rust programs: the engine that `libfabric.so.1` exposes to C, with owned
//! buffers. A buffer is moved in with an operation and comes back with its completion, so nothing
//! can be freed too early. Memory that peers access is moved into a [`MemoryRegion`].
//!
//! The shape of this interface is not final: it is what the project's own tools need.
//!
//! ```
//! let (infos, refusals) = ofi::discover(&ofi::Query { version: ofi::Version::API, ..ofi::Query::default() })?;
//! assert!(!infos.is_empty(), "{refusals}");
//! # Ok::<(), ofi::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod buf;
mod connection;
pub mod doctor;
mod domain;
mod memory;

pub use buf::{Done, Failed};
pub use connection::{Event, EventQueue, Listener, Request};
pub use domain::{CompletionQueue, Domain, Endpoint};
pub use memory::{MemoryRegion, RemoteAddr};
pub use ofi_core::caps::MrAccess;
pub use ofi_core::error::Result;
pub use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr};
pub use ofi_core::info::{Hints, Info};
pub use ofi_core::param::{self, Param, ParamKind};
pub use ofi_core::reason::{Problem, Reason};
pub use ofi_core::show::info as text_of;
pub use ofi_core::{
    Addr, AddrFormat, Caps, Cause, EndpointType, Errno, Error, FiAddr, Mode, MrMode, OpFlags, Protocol, Version,
};
pub use ofi_registry::{Query, Refusal, Refusals, discover, params};
