//! Transport-independent addresses for RDMA connections: rdma_getaddrinfo(3) in safe Rust, on
//! machines with and without RDMA devices. The C library `librdmaaddrinfo.so.1` (`ffi/`) wraps it.
//!
//! ```
//! use ofi_rdma::{Flags, Hints, resolve};
//!
//! let hints = Hints { flags: Flags::PASSIVE, ..Hints::default() };
//! let list = resolve(Some("127.0.0.1"), Some("7471"), &hints)?;
//! assert_eq!(list[0].source.map(|source| source.to_string()).as_deref(), Some("127.0.0.1:7471"));
//! # Ok::<(), ofi_rdma::Error>(())
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
pub mod ib;
mod memory;
mod order;
pub mod path;
mod resolve;
mod types;

pub use error::{Error, Kind, Result};
pub use ib::IbAddr;
pub use ofi_core::Errno;
pub use resolve::{complete, resolve};
pub use types::{AddrInfo, Address, Family, Flags, Hints, PortSpace, QpType};

use std::future::Future;

/// Like [`resolve()`] without blocking the executor: the lookup runs on another thread. Works with
/// any executor. Dropping the future discards the result; a lookup already started runs to its end.
///
/// # Errors
/// As [`resolve()`].
pub fn resolve_async(
    node: Option<&str>,
    service: Option<&str>,
    hints: &Hints,
) -> impl Future<Output = Result<Vec<AddrInfo>>> + Send + use<> {
    let (node, service, hints) = (node.map(str::to_owned), service.map(str::to_owned), hints.clone());
    blocking::unblock(move || resolve(node.as_deref(), service.as_deref(), &hints))
}
