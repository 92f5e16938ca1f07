//! A second thread that uses an endpoint.

use crate::world::{GUEST, LAST, Name, World, reached_by, wait};
use fastrand::Rng;
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_engine::op::{MessageOps, SendOp};
use ofi_engine::transport::Transport;
use ofi_engine::{AddressVector, CompletionQueue, Endpoint};
use ofi_memory::Loan;
use ofi_sync::lock::Park;
use std::sync::Arc;
use std::time::Duration;

/// The thread that uses [`LAST`] beside the one that drives it. It reads no completions.
pub(crate) struct Guest<T: Transport> {
    pub(crate) ep: Arc<Endpoint<T, Park>>,
    pub(crate) cq: Arc<CompletionQueue<Park>>,
    pub(crate) av: Arc<AddressVector>,
    pub(crate) peers: Vec<FiAddr>,
    pub(crate) stranger: Addr,
    pub(crate) next_message: u32,
}

impl<T: Transport> Guest<T> {
    pub(crate) fn visit(mut self, world: &World, rng: &mut Rng) {
        for round in 0..world.rounds {
            world.barrier.wait();
            (0..world.steps).for_each(|_| self.step(world, rng));
            world.tally().settled += 1;
            while !world.is_quiet(round) {
                self.progress(rng);
            }
            world.barrier.wait();
            world.barrier.wait();
        }
    }

    fn step(&mut self, world: &World, rng: &mut Rng) {
        match rng.u8(0..8) {
            0..=2 => self.inject(world, rng),
            3..=4 => {
                let latest = world.tally().latest;
                // Not 0, which is the context of all inject calls.
                self.ep.cancel(latest.saturating_sub(rng.usize(0..16)).max(1));
            }
            // Receives from any source check the address vector for changes.
            5 => assert!(self.av.remove(self.av.insert(self.stranger))),
            _ => self.progress(rng),
        }
    }

    fn inject(&mut self, world: &World, rng: &mut Rng) {
        let dest = rng.choice(reached_by(LAST)).unwrap_or(LAST);
        let name = Name { author: GUEST, dest, number: self.next_message };
        let (tag, bytes) = name.tag_and_bytes(world.seed);
        let (dest, data, flags) = (self.peers[dest], Some(name.data()), OpFlags::empty());
        let (loan, buffer) = Loan::new(bytes);
        let sent = self.ep.send(SendOp { dest, buffer, context: 0, tag, data, flags, inject: true });
        loan.end().fill(0xee);
        match sent {
            Ok(()) => {
                self.next_message += 1;
                world.tally().sent += 1;
            }
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    fn progress(&self, rng: &mut Rng) {
        if rng.bool() {
            wait(&self.cq, Duration::from_micros(rng.u64(0..1000)));
        } else {
            // The entries belong to the other thread.
            self.cq.read(0, |_| ()).ok();
        }
    }
}
