//! The public headers as Rust types, with C's names; the headers and the manual pages document the
//! fields. `layout.rs` asserts sizes and offsets; `xtask abi` generates it from `abi/values.txt`.
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, missing_docs)]

mod data;
mod fabric;
mod layout;
mod objects;

pub use data::*;
pub use fabric::*;
pub use objects::*;
