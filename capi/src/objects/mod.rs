//! All objects except endpoints: each file has a struct, its function tables and their thunks;
//! `fabric_ops` and `domain_ops` have the calls that open other objects; `av_ops` opens address
//! vectors.

pub(crate) mod av;
mod av_insert;
mod av_ops;
mod av_set;
pub(crate) mod cntr;
pub(crate) mod cq;
mod deferred;
pub(crate) mod domain;
mod domain_ops;
mod entries;
pub(crate) mod eq;
pub(crate) mod fabric;
pub(crate) mod fabric_ops;
pub(crate) mod followed;
pub(crate) mod mc;
pub(crate) mod memory;
pub(crate) mod mr;
pub(crate) mod poll;
pub(crate) mod profile;
pub(crate) mod sep;
pub(crate) mod signaler;
pub(crate) mod srx;
pub(crate) mod wait;
pub(crate) mod work;
