//! The engine: matching, the protocol between two endpoints, completions, events, progress.
//! Written once, generic over the [`transport::Transport`] that carries its frames. Pure: no
//! socket, no clock of its own, no unsafe code.
#![forbid(unsafe_code)]

pub mod av;
pub mod av_set;
mod cancel;
mod collective;
pub mod completion;
pub mod connections;
pub mod datagram;
pub mod endpoint;
pub mod erased;
mod hash;
mod keys;
pub mod limits;
mod measures;
pub mod offer;
pub mod op;
pub mod passive;
mod peer;
mod portal;
pub mod progress;
pub mod provider;
pub mod report;
mod rx;
pub mod scalable;
mod statistics;
#[cfg(test)]
mod still;
mod table;
pub mod target;
pub mod transport;
pub mod trigger;
mod tx;
pub mod wire;

pub use av::AddressVector;
pub use completion::counter::{Counter, CounterUnit};
pub use completion::cq::{CompletionQueue, Waited};
pub use completion::eq::EventQueue;
pub use datagram::DatagramEndpoint;
pub use endpoint::Endpoint;
pub use measures::{Counts, Measures};
pub use passive::PassiveEndpoint;
pub use progress::auto::Auto;
pub use progress::backstop::Backstop;
pub use progress::publish::{Held as HeldReports, Publisher, hold as hold_reports, publish};
pub use progress::set::Watcher;
pub use progress::wait::Waiting;
pub use rx::RxSettings;
pub use rx::shared::SharedRx;
pub use scalable::ScalableEndpoint;
pub use statistics::{Exchanged, PeerStatistics, Statistics, Traffic};
