//! The public headers as Rust types, with C's names; the headers and the manual pages document the
//! fields. `layout.rs` asserts sizes and offsets; `xtask abi` generates it from `abi/values.txt`.
#![allow(non_camel_case_types, missing_docs, clippy::missing_docs_in_private_items)]

pub(crate) mod data;
pub(crate) mod fabric;
mod layout;
pub(crate) mod objects;

pub(crate) use data::*;
pub(crate) use fabric::*;
pub(crate) use objects::*;
