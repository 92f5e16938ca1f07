//! Payloads that a simulated device may read, and the windows through which it does.

use crate::verbs::{Wire, lock};
use ofi_memory::Buffer;
use ofi_verbs::device::{Exposed, Place};

/// A payload that the other side may read.
#[derive(Debug)]
pub(crate) struct FakeExposed {
    wire: Wire,
    side: usize,
    place: Place,
    buffer: Option<Buffer>,
}

impl FakeExposed {
    pub(crate) const fn new(wire: Wire, side: usize, place: Place, buffer: Buffer) -> Self {
        Self { wire, side, place, buffer: Some(buffer) }
    }

    /// The buffer, if the other side has ended the window.
    pub(crate) fn take_back(mut self) -> Result<Buffer, Self> {
        let has_ended = {
            let ended = &mut lock(&self.wire)[self.side].ended;
            let at = ended.iter().position(|key| *key == self.place.key);
            at.map(|at| ended.swap_remove(at)).is_some()
        };
        if has_ended { Ok(self.buffer.take().expect("it is taken back once")) } else { Err(self) }
    }
}

impl Exposed for FakeExposed {
    fn place(&self) -> Place {
        self.place
    }
    fn withdraw(mut self) -> Buffer {
        self.buffer.take().expect("it is withdrawn once")
    }
}

impl Drop for FakeExposed {
    fn drop(&mut self) {
        lock(&self.wire)[self.side].exposed.remove(&self.place.key);
    }
}
