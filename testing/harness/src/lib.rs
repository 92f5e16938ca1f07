//! What all tests of C programs share: the libraries and tools are built once, programs are compiled once, and each runs
//! under a time limit. A test whose tool is missing says so, and fails under `CI=true`.
//!
//! `OFI_TEST_LIBRARY` and `OFI_TEST_RDMA_LIBRARY` name builds to test instead of this tree's, `OFI_TEST_ASAN=1` says that
//! they are instrumented.
#![forbid(unsafe_code)]

mod build;
mod program;
mod run;

pub use build::{Library, built, fabric, is_instrumented, is_sanitized, rdma, target};
pub use program::{Headers, Program};
pub use run::{Run, in_ci, missing};
