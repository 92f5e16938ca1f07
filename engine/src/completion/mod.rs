//! Where operations and connections report their outcome: completion queues, counters, event
//! queues, an endpoint's bindings to them, and what it reports.

pub mod counter;
pub mod cq;
pub(crate) mod deferred;
pub mod eq;
pub(crate) mod reporter;
pub(crate) mod sinks;
pub mod threshold;
