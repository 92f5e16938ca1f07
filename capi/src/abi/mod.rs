//! The public headers as Rust types, a file for each; spelled as in C. What the fields mean is said in the headers and
//! in the manual pages. Sizes and offsets are asserted in `layout.rs`, which `xtask abi` makes from `abi/values.txt`.
#![allow(non_camel_case_types, missing_docs, clippy::missing_docs_in_private_items)]

pub(crate) mod data;
pub(crate) mod fabric;
mod layout;
pub(crate) mod objects;

pub(crate) use data::*;
pub(crate) use fabric::*;
pub(crate) use objects::*;
