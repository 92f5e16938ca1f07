//! Hooks (fi_hook(7), FI_HOOK): they watch the calls of a program on any object, of this library or
//! of a loaded provider. A hooked object stays the object that its provider made; only its tables
//! of functions are exchanged, for copies whose slots lead through this crate to the original ones.
//! Without FI_HOOK no table is touched.
//!
//! `copies` exchanges tables, `stubs` has their functions, `call` calls the original ones and
//! reports to the hooks, one file each. The C library uses this crate.
#![deny(unsafe_code)]

mod call;
mod chosen;
mod copies;
mod debug;
mod fabric;
mod hook;
mod perf;
mod profile;
mod stubs;
mod tables;
mod totals;
mod trace;

pub use chosen::{finish, is_on};
pub use copies::original;
pub use fabric::hook_fabric;
