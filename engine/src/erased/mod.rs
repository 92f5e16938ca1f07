//! Object-safe traits over the engine's types, which are generic over transport and lock kind: the
//! interfaces above make all calls off the data path through them. Messages are not among them, so
//! that each interface decides whether it posts them by a virtual call.
//! Implemented by forwarding: in these modules `Self::name` and `self.name` are the types' own
//! methods. Trait objects need no import of their trait; beside the types themselves it would hide
//! their methods that take `&Arc<Self>`.

mod endpoint;
mod queue;

pub use endpoint::{EndpointControl, PassiveControl};
pub use queue::{CounterControl, QueueControl, Waitable};
