//! The shared harness for tests of C programs: builds libraries and tools once, compiles each
//! program once, and runs it under a time limit. A test whose tool is missing is skipped with a
//! message, and fails under `CI=true`.
//!
//! `OFI_TEST_LIBRARY` and `OFI_TEST_RDMA_LIBRARY` name builds to test instead of this tree's;
//! `OFI_TEST_ASAN=1` marks them as instrumented.
#![forbid(unsafe_code)]

mod build;
mod program;
mod run;

pub use build::{Library, built, fabric, is_instrumented, is_sanitized, rdma, target};
pub use program::{Headers, Program};
pub use run::{Run, in_ci, missing};
