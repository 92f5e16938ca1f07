//! The public headers as Rust types, with C's names: types, constants, tables of functions, and no
//! behaviour. The headers and the manual pages document the fields.
//!
//! `layout.rs` asserts sizes and offsets; `xtask abi` generates it from `abi/values.txt`.
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_camel_case_types, missing_docs, reason = "the names are C's, and its manual pages document the fields")]

mod data;
mod fabric;
mod layout;
mod objects;
mod trigger;

pub use data::*;
pub use fabric::*;
pub use objects::*;
pub use trigger::*;
