//! A wait object for unit tests.

use ofi_core::Instant;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use std::time::Duration;

/// A wait object on which nothing happens.
#[derive(Debug)]
pub(crate) struct Still;

impl WaitObject for Still {
    fn add(&self, _fd: Descriptor, _key: u64) -> Result<()> {
        Ok(())
    }
    fn remove(&self, _fd: Descriptor) {}
    fn ready(&self, _timeout: Option<Duration>, _keys: &mut Vec<u64>) {}
    fn signal(&self) {}
    fn drain(&self) {}
    fn set_timer(&self, _when: Option<Instant>) {}
    fn descriptor(&self) -> Descriptor {
        -1
    }
    fn now(&self) -> Instant {
        Instant::from_nanos(0)
    }
}
