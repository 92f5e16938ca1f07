//! One conformance suite for the contract between the engine and its transports
//! (`engine/src/transport.rs`), run over any [`Medium`]. A transport that passes it works with the
//! engine. `README.md` explains how a new transport instantiates it.
//! The suite uses only the public contract: `frame.rs` makes frames, `ledger.rs` models what must
//! arrive, `observer.rs` checks every event against it, `node.rs` and `world.rs`
//! drive the transports, and `cases` has the scripts.
//! `endpoint` has a second suite, for the behaviour of endpoints over any transport: matching,
//! completion levels, peeking, multi-receive, one-sided operations.
#![forbid(unsafe_code)]

mod cases;
mod endpoint;
mod frame;
mod ledger;
mod medium;
mod node;
mod observer;
mod runner;
mod world;

pub use endpoint::{EndpointMedium, endpoint_trials};
pub use medium::{Medium, Need, Nowhere};
pub use runner::{ExpectedFailure, first_failure, trials};
