//! The wire format between two engines, the same over any transport.

pub mod frame;
pub mod hello;
pub mod one_sided;
mod violation;
