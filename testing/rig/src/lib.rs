//! A rig for tests of endpoints: opens them over any transport, posts operations, polls with a time
//! limit, and checks that every accepted operation completes exactly once.
//! It depends on the engine only, so that tests of every transport can use it.
#![forbid(unsafe_code)]

mod access;
mod accesses;
mod model;
mod op;
mod side;
mod watch;

pub use access::{Exposed, Target};
pub use accesses::Accesses;
pub use op::{Message, Receive};
pub use side::{Finished, Kind, Options, Outcome, Side};
pub use watch::{RealTime, Watch, expect, finish, ping_pong, until};
