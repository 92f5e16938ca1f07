//! `libfabric.so.1`: the engine behind the C interface of libfabric 2.6.
//! Every pointer from C is turned into a value here, at the edge; nothing below knows that C exists.

mod abi;
mod convert;
mod endpoint;
mod enosys;
mod erased;
mod exports;
mod ffi;
mod fork;
mod objects;
mod reserve;
mod shims;
mod state;
