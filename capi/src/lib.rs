//! `libfabric.so.1`: the engine behind the C interface of libfabric 2.6.
//! Every pointer from C is turned into a value here, at the edge; nothing below knows that C exists.

mod abi;
mod compat;
mod convert;
mod exports;
mod ffi;
mod fork;
mod logging;
mod object;
mod open_objects;
mod ops;
mod param;
mod reserve;
mod tostr;
