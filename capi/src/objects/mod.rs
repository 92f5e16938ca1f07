//! Objects but endpoints: each file has the struct, its tables of functions and their thunks.

pub(crate) mod av;
pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod domain;
mod domain_ops;
pub(crate) mod eq;
pub(crate) mod fabric;
pub(crate) mod fabric_ops;
pub(crate) mod mc;
pub(crate) mod poll;
pub(crate) mod wait;
