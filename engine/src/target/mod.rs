//! What peers ask for: access to registered memory. Everything in their frames is untrusted.
//! Knows nothing of sends and receives; answers with frames.

pub mod mr;
