//! `libfabric.so.1`: the C interface of libfabric 2.6 over the engine. This crate turns every
//! pointer from C into a value; the crates below know nothing of C.

mod convert;
mod endpoint;
mod enosys;
mod exports;
mod ffi;
mod fork;
mod objects;
mod reserve;
mod state;
