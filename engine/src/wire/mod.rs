//! The wire format: what two engines say to each other, whatever transport carries it.

pub mod frame;
pub mod hello;
