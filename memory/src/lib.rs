//! The only code that touches an application's bytes. Above it, buffers are values that can be
//! moved, measured and filled, but not dereferenced.
#![deny(unsafe_code)]

mod buffer;
mod copy;
mod erased;
mod fresh;
mod loan;
#[cfg(test)]
mod pages;
pub mod prefetch;
mod region;
pub mod rmw;
mod shared;
mod ticket;

pub use buffer::{Buffer, Chunk, ChunkMut, Registered, Span};
pub use erased::Erased;
pub use fresh::{fresh, fresh_word};
pub use loan::Loan;
pub use region::{Reach, Region, RegionError, RegionUse};
pub use shared::Shared;
pub use ticket::{Lent, Ticket};
