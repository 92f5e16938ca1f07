//! The memory in which a member carries out its plan: its own, to which it copies the
//! contribution, or for long operations the application's buffers.
//! Invariant: while a message in flight uses the application's memory, [`Workspace::is_idle`] is
//! false, so that the operation does not end.

use super::plan::Plan;
use super::rounds::{Inbound, Then};
use super::spares::Spares;
use crate::op::Elements;
use core::ops::Range;
use ofi_core::{Errno, MrAccess};
use ofi_memory::{Buffer, Region, RegionUse, rmw};

/// Bytes that are copied or combined at once, so that they stay in the fastest cache.
const BLOCK: usize = 4 << 10;

/// A member's workspace of an operation.
#[derive(Debug)]
pub(super) struct Workspace {
    elements: Option<Elements>,
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// Memory of this endpoint, and the buffer that the result is copied to.
    Copied { work: Vec<u8>, result: Buffer },
    /// The result buffer and, behind it, the contribution. Messages are sent from both, and
    /// received into the result, without a copy.
    Lent { result: Region, contribution: Region },
}

impl Workspace {
    /// The workspace of a plan, with the contribution in its places.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(
        plan: &Plan,
        elements: Option<Elements>,
        (contribution, mut result): (Buffer, Buffer),
        spares: &mut Spares,
    ) -> Result<Self, Errno> {
        let size = element_size(elements);
        let memory = if plan.in_place && !contribution.overlaps(&result) {
            let len = result.len();
            for copied in plan.input.iter().filter(|copied| (copied.to + copied.len) * size <= len) {
                copy((&contribution, copied.from * size), (&mut result, copied.to * size), copied.len * size);
            }
            let result = Region::lent(result, MrAccess::SEND.union(MrAccess::RECV));
            Memory::Lent { result, contribution: Region::lent(contribution, MrAccess::SEND) }
        } else {
            let mut work = spares.take(plan.work * size)?;
            for copied in &plan.input {
                if let Some(place) = work.get_mut(copied.to * size..(copied.to + copied.len) * size) {
                    contribution.read_at(copied.from * size, place);
                }
            }
            Memory::Copied { work, result }
        };
        Ok(Self { elements, memory })
    }

    /// Size of an element in bytes.
    pub(super) fn element_size(&self) -> usize {
        element_size(self.elements)
    }

    /// Whether messages in flight use the application's memory, once rounds have begun.
    pub(super) const fn is_lent(&self) -> bool {
        matches!(self.memory, Memory::Lent { .. })
    }

    /// Whether no message in flight uses the application's memory.
    pub(super) fn is_idle(&self) -> bool {
        match &self.memory {
            Memory::Copied { .. } => true,
            Memory::Lent { result, contribution } => result.is_idle() && contribution.is_idle(),
        }
    }

    /// The payload of a message with this part.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn outbound(&self, part: &Range<usize>, spares: &mut Spares) -> Result<Buffer, Errno> {
        let bytes = self.bytes_of(part);
        match &self.memory {
            Memory::Copied { work, .. } => Ok(Buffer::Owned(spares.copy(work.get(bytes).unwrap_or_default())?)),
            Memory::Lent { result, contribution } => Ok(lend((result, contribution), bytes, MrAccess::SEND)),
        }
    }

    /// A buffer for a message that a receive takes.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn inbound(&self, inbound: &Inbound, spares: &mut Spares) -> Result<Buffer, Errno> {
        let bytes = self.bytes_of(&inbound.part);
        match (&self.memory, inbound.then) {
            (Memory::Lent { result, contribution }, Then::Store) => {
                Ok(lend((result, contribution), bytes, MrAccess::RECV))
            }
            _ => Ok(Buffer::Owned(spares.take(bytes.len())?)),
        }
    }

    fn bytes_of(&self, part: &Range<usize>) -> Range<usize> {
        part.start * self.element_size()..part.end * self.element_size()
    }

    /// Takes a message that has arrived in the buffer of [`Self::inbound`]: stores it in its part,
    /// unless it has arrived there, or combines the two.
    pub(super) fn take(&mut self, inbound: &Inbound, message: &mut [u8]) {
        let (part, elements) = (self.bytes_of(&inbound.part), self.elements);
        let base = inbound.base * self.element_size();
        match &mut self.memory {
            Memory::Copied { work, .. } => {
                if base != part.start && base + part.len() <= work.len() {
                    work.copy_within(base..base + part.len(), part.start);
                }
                let Some(place) = work.get_mut(part) else { return };
                match inbound.then {
                    Then::Store => place.copy_from_slice(message),
                    Then::After => combine(elements, place, message),
                    Then::Before => {
                        combine(elements, message, place);
                        place.copy_from_slice(message);
                    }
                }
            }
            Memory::Lent { result, contribution } if inbound.then != Then::Store && !message.is_empty() => {
                let place = part_of((result, contribution), part.clone(), MrAccess::RECV);
                let base = part_of((result, contribution), base..base + part.len(), MrAccess::SEND);
                if let (Some(place), Some(base)) = (place, base) {
                    combine_lent(elements, (&place, &base), (inbound.then, message));
                }
            }
            Memory::Lent { .. } => {}
        }
    }

    /// Ends the operation: the result is in the application's buffer.
    pub(super) fn deliver(self, plan: &Plan, spares: &mut Spares) {
        let size = self.element_size();
        if let Memory::Copied { work, mut result } = self.memory {
            for copied in &plan.output {
                if let Some(bytes) = work.get(copied.from * size..(copied.from + copied.len) * size) {
                    result.write_at(copied.to * size, bytes);
                }
            }
            spares.put(work);
        }
    }
}

/// Size of an element in bytes.
fn element_size(elements: Option<Elements>) -> usize {
    elements.map_or(1, |elements| elements.datatype.size())
}

fn copy((from, at): (&Buffer, usize), (to, place): (&mut Buffer, usize), len: usize) {
    let mut block = [0; BLOCK];
    for done in (0..len).step_by(BLOCK) {
        let block = &mut block[..BLOCK.min(len - done)];
        from.read_at(at + done, block);
        to.write_at(place + done, block);
    }
}

/// These bytes of the result, or behind it of the contribution.
fn part_of<'a>(
    (result, contribution): (&'a Region, &'a Region),
    bytes: Range<usize>,
    access: MrAccess,
) -> Option<RegionUse<&'a Region>> {
    let (start, len) = (bytes.start as u64, bytes.len());
    let place = match start.checked_sub(result.len()) {
        Some(start) => contribution.resolve(start, len, access),
        None => result.resolve(start, len, access),
    };
    debug_assert!(place.is_ok(), "no part lies in both buffers, and nothing is received into the contribution");
    place.ok()
}

/// The same, to be kept by a transfer.
fn lend(regions: (&Region, &Region), bytes: Range<usize>, access: MrAccess) -> Buffer {
    if bytes.is_empty() {
        return Buffer::empty();
    }
    let part = part_of(regions, bytes, access).map(RegionUse::into_owned);
    part.and_then(|part| Buffer::registered(part).ok()).unwrap_or_else(Buffer::empty)
}

/// `place` becomes `base` combined with a message as long.
fn combine_lent(
    elements: Option<Elements>,
    (place, base): (&RegionUse<&Region>, &RegionUse<&Region>),
    (then, message): (Then, &mut [u8]),
) {
    let mut block = [0; BLOCK];
    // BLOCK is a multiple of every element's size.
    for (at, message) in (0..).step_by(BLOCK).zip(message.chunks_mut(BLOCK)) {
        let block = &mut block[..message.len()];
        // All of the memory is mapped and the caller has the rights: neither fails.
        let _ = base.read(at, block);
        let combined = if then == Then::After {
            combine(elements, block, message);
            block
        } else {
            combine(elements, message, block);
            message
        };
        let _ = place.write(at, combined);
    }
}

/// `first` becomes `first` combined with `second`. FI_NOOP keeps the first member's elements.
fn combine(elements: Option<Elements>, first: &mut [u8], second: &[u8]) {
    if let Some(Elements { datatype, op: Some(op), .. }) = elements {
        // `Groups::post` has excluded both errors: the type suits the operation.
        let _ = rmw::combine(datatype, op, first, second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Shape;
    use super::*;
    use crate::op::CollectiveKind;
    use ofi_core::atomic::{AtomicOp, Datatype};
    use ofi_memory::Loan;

    const COUNT: usize = 10_000;

    fn bytes(elements: impl Iterator<Item = u64>) -> Vec<u8> {
        elements.flat_map(u64::to_ne_bytes).collect()
    }

    fn sums(count: usize) -> (Plan, Elements) {
        let kind = CollectiveKind::Allreduce;
        let shape = Shape { kind, members: 2, root: 0, count, size: 8, commutes: true };
        (shape.plan(0), Elements { datatype: Datatype::Uint64, op: Some(AtomicOp::Sum), count })
    }

    #[test]
    fn a_long_operation_uses_the_applications_buffers_and_is_idle_without_messages() {
        let (plan, elements) = sums(COUNT);
        let (contribution, sent) = Loan::new(bytes(0..COUNT as u64));
        let (result, place) = Loan::new(vec![0; COUNT * 8]);
        let address = place.address();
        let mut spares = Spares::default();
        let mut workspace = Workspace::new(&plan, Some(elements), (sent, place), &mut spares).unwrap();
        assert!(workspace.is_lent() && workspace.is_idle());
        for round in &plan.rounds {
            let message = workspace.outbound(&round.sends[0].part, &mut spares).unwrap();
            assert!(!workspace.is_idle(), "a message reads it");
            drop(message);
            let inbound = &round.receives[0];
            let mut arriving = workspace.inbound(inbound, &mut spares).unwrap();
            arriving.write_at(0, &bytes(inbound.part.clone().map(|at| 7 + at as u64)));
            match arriving {
                Buffer::Owned(mut message) => workspace.take(inbound, &mut message),
                lent => {
                    assert_eq!(lent.address(), address + inbound.part.start * 8);
                    assert!(!workspace.is_idle(), "a message writes to it");
                    drop(lent);
                    workspace.take(inbound, &mut []);
                }
            }
            assert!(workspace.is_idle());
        }
        workspace.deliver(&plan, &mut spares);
        // The first half is the sum of both members' elements; the other member has sent the rest.
        let half = COUNT as u64 / 2;
        assert!(result.end() == bytes((0..half).map(|at| 7 + 2 * at).chain((half..2 * half).map(|at| 7 + at))));
        assert!(contribution.end() == bytes(0..COUNT as u64), "it is only read");
    }

    #[test]
    fn a_result_that_overlaps_the_contribution_is_not_used_in_place() {
        let (plan, elements) = sums(COUNT);
        assert!(plan.in_place);
        let memory = Region::owned(vec![1; COUNT * 8 + 8], MrAccess::SEND.union(MrAccess::RECV));
        let part = |from: u64| {
            let part = memory.resolve(from, COUNT * 8, MrAccess::SEND).unwrap().into_owned();
            Buffer::registered(part).unwrap()
        };
        for (contribution, result) in [(0, 0), (0, 8), (8, 0)] {
            let buffers = (part(contribution), part(result));
            let workspace = Workspace::new(&plan, Some(elements), buffers, &mut Spares::default()).unwrap();
            assert!(!workspace.is_lent());
        }
    }

    #[test]
    fn short_operations_copy() {
        let (plan, elements) = sums(10);
        let buffers = (Buffer::Owned(vec![1; 80]), Buffer::Owned(vec![0; 80]));
        let workspace = Workspace::new(&plan, Some(elements), buffers, &mut Spares::default()).unwrap();
        assert!(!workspace.is_lent() && workspace.is_idle());
    }
}
