//! The tables of functions behind each object, and the generic thunks that fill them.

pub(crate) mod av;
pub(crate) mod cm;
pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod dead;
pub(crate) mod domain;
pub(crate) mod endpoint;
pub(crate) mod enosys;
pub(crate) mod eq;
pub(crate) mod fabric;
pub(crate) mod group;
pub(crate) mod message;
pub(crate) mod passive;
pub(crate) mod poll;
pub(crate) mod wait;
