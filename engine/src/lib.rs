//! What an endpoint means: matching, the protocol between two endpoints, completions, events, progress.
//! Written once, generic over the [`transport::Transport`] that carries its frames. Pure: no socket, no clock of its own,
//! no unsafe code.
#![forbid(unsafe_code)]

pub mod auto;
pub mod av;
pub mod counter;
pub mod cq;
pub mod datagram;
pub mod endpoint;
pub mod eq;
pub mod frame;
mod hash;
pub mod hello;
pub mod limits;
pub mod match_queue;
pub mod op;
pub mod passive;
pub mod progress_set;
mod sinks;
mod table;
pub mod transport;
mod waiting;

pub use auto::Auto;
pub use av::AddressVector;
pub use counter::Counter;
pub use cq::{CompletionQueue, Waited};
pub use datagram::DatagramEndpoint;
pub use endpoint::Endpoint;
pub use eq::EventQueue;
pub use passive::PassiveEndpoint;
pub use waiting::Waiting;
