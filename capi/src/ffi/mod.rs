//! The boundary to C: object handles, conversions of pointers, and the tables of objects inherited
//! across fork(2).

pub(crate) mod handle;
pub(crate) mod inherited;
pub(crate) mod ptr;
