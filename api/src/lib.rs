//! Fabric communication for Rust programs: the engine that `libfabric.so.1` exposes to C, safe and
//! async.
//!
//! ```
//! use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
//! let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
//! let domain = Fabric::open(&info)?.domain(&info)?;
//! let ep = RdmEndpoint::open(&domain, &info)?;
//! let me = ep.peer(ep.local_addr()?)?; // usually the address of another process
//! let receive = ep.receive(vec![0; 64]);
//! ofi::block_on(ep.send(me, "hello")).0?;
//! let (received, buf) = ofi::block_on(receive);
//! assert_eq!(&buf[..received?.len()], b"hello");
//! # Ok::<(), ofi::Error>(())
//! ```
//!
//! - The terms are libfabric's, so that its manual pages stay useful; each item names its page.
//! - An [`Operation`] owns its buffer until it ends, and then gives it back: nothing can be freed
//!   or changed too early, and dropping a future is sound. Every function of this crate is safe,
//!   but [`Domain::register_foreign`], for memory that the crate does not own.
//! - Operations are futures. [`block_on`] runs them without an executor. With the feature `tokio`
//!   they run in a tokio runtime, and with `async-io` in any executor. There is no thread unless a
//!   domain is opened with [`ProgressModel::AUTO`], and no polling: tasks that wait use no
//!   processor time.
//! - A query that finds nothing says why, provider by provider; every operation ends, and one that
//!   fails says why.
//!
//! `docs/guide` of the project starts from zero; its programs are tested with this crate.
//!
//! # Features
//! `tcp`, `shm`, `udp`, `verbs` (default): the providers. `tokio`, `async-io`: the reactors.
//! `bytes`: `Bytes` and `BytesMut` as buffers. `sim`: a simulated network, to test programs with.
//! `tracing`: what the library has to say as events of the crate tracing, with the target `ofi` and
//! the fields `provider` and `subsystem`: errors for lost connections (at most one a second
//! for each endpoint) and truncated messages, warnings for refusals.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod atomic;
mod av;
mod buf;
mod closing;
mod counter;
mod counting;
mod dgram;
pub mod doctor;
mod drivers;
mod element;
mod endpoint;
mod engine;
mod entries;
mod event_queue;
#[cfg_attr(not(any(feature = "tokio", feature = "async-io")), allow(dead_code, reason = "for reactors"))]
mod events;
mod fabric;
mod foreign;
mod parker;
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/README.md")]
pub mod guide {}
mod group;
mod incoming;
mod info;
#[cfg(feature = "async-io")]
mod inline;
mod inner;
mod message;
mod msg;
mod operation;
#[cfg_attr(not(any(feature = "tokio", feature = "async-io")), allow(dead_code, reason = "for reactors"))]
mod operations;
mod pool;
pub mod published;
#[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "for reactors"))]
mod pump;
mod queue;
mod rdm;
mod reactor;
mod region;
mod statistics;
#[cfg_attr(not(any(feature = "tokio", feature = "async-io")), allow(dead_code, reason = "for reactors"))]
mod table;
#[cfg(feature = "tracing")]
mod trace;
mod typed;
mod wakers;

#[cfg(feature = "sim")]
pub mod sim;

pub use atomic::Fetch;
pub use av::{AddressVector, Peer};
pub use buf::{IoBuf, IoBufMut};
pub use counter::Counter;
pub use dgram::DatagramEndpoint;
pub use element::Element;
pub use event_queue::{Event, EventQueue};
pub use fabric::{Domain, Fabric};
pub use group::Group;
pub use incoming::{ConnectionIncoming, Incoming, ReceivedMessage};
pub use info::{Attributes, Info, InfoBuilder, QueryError, discover};
pub use message::Message;
pub use msg::{ConnectionRequest, MsgEndpoint, MsgListener};
pub use ofi_core::atomic::AtomicOp;
pub use ofi_core::caps::{BindFlags, MrAccess, MsgOrder};
pub use ofi_core::error::Result;
pub use ofi_core::info::Hints;
pub use ofi_core::info::{DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr};
pub use ofi_core::param::{self, Param, ParamKind};
pub use ofi_core::reason::{Problem, Reason};
pub use ofi_core::show::info as text_of;
pub use ofi_core::{
    Addr, AddrFormat, Caps, Cause, EndpointType, Errno, Error, Mode, MrMode, OpFlags, ProgressModel, Protocol,
    TrafficClass, Version,
};
pub use ofi_engine::op::Ways;
pub use ofi_engine::{Exchanged, PeerStatistics, Statistics, Traffic};
pub use ofi_registry::{Query, Refusal, Refusals, params};
pub use operation::{Completion, Operation, OperationError};
pub use parker::block_on;
pub use pool::{BufferPool, PooledBuf};
pub use queue::{CompletionQueue, QueueEntry};
pub use rdm::RdmEndpoint;
pub use region::{MemoryRegion, RemoteKey};
pub use statistics::prometheus;
pub use typed::Typed;
