//! What an endpoint means: matching, the protocol between two endpoints, completions, events, progress.
//! Written once, generic over the [`transport::Transport`] that carries its frames. Pure: no socket, no clock of its own,
//! no unsafe code.
#![forbid(unsafe_code)]

pub mod av;
pub mod cq;
pub mod endpoint;
pub mod eq;
pub mod frame;
pub mod group;
mod hash;
pub mod hello;
pub mod matching;
pub mod op;
pub mod passive;
pub mod transport;
mod waiting;

pub use av::AddressVector;
pub use cq::CompletionQueue;
pub use endpoint::Endpoint;
pub use eq::EventQueue;
pub use passive::PassiveEndpoint;
