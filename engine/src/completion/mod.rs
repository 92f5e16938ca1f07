//! Where operations and connections report their outcome: completion queues, counters, event
//! queues, and an endpoint's bindings to them.

pub mod counter;
pub mod cq;
pub mod eq;
pub(crate) mod sinks;
