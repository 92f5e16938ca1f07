//! A model of memory that one peer accesses. From the operations, in the order of posting, and
//! their outcomes it derives the possible contents of the memory and the possible results of reads.
//! The arithmetic of atomic operations is that of `ofi_memory::rmw`, which has its own tests: the
//! model checks which operations are carried out, where, and in which order.

use ofi_core::MrAccess;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_engine::op::RemoteRange;
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_memory::{Region, rmw};
use std::collections::HashMap;

/// The longest read that is ordered with later writes (max_order_war_size, fi_endpoint(3)).
const ORDERED: usize = 4096;

/// What a one-sided operation does.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Reads.
    Read,
    /// Changes elements; operands and compare values are empty if the operation has none.
    Atomic {
        /// Group of calls, operation and type of the elements.
        action: (AtomicKind, AtomicOp, Datatype),
        /// The operands.
        operands: Vec<u8>,
        /// The compare values.
        compare: Vec<u8>,
    },
}

impl What {
    /// Whether the operation returns bytes to the initiator.
    pub(crate) const fn returns(&self) -> bool {
        match self {
            Self::Write(_) => false,
            Self::Read => true,
            Self::Atomic { action: (kind, ..), .. } => !matches!(kind, AtomicKind::Base),
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Carried out, with the bytes that it returned.
    Done(Vec<u8>),
    /// Carried out or not, or in part.
    Unknown,
    /// Not carried out.
    Never,
}

#[derive(Debug)]
struct Step {
    what: What,
    ranges: Vec<RemoteRange>,
    fate: Fate,
    /// Number of operations that had been posted when this one ended.
    until: usize,
}

/// The possible values of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Is(u8),
    Either(u8, u8),
    Any,
}

impl Byte {
    const fn allows(self, value: u8) -> bool {
        match self {
            Self::Is(one) => one == value,
            Self::Either(one, other) => one == value || other == value,
            Self::Any => true,
        }
    }

    const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (_, Self::Is(value)) if self.allows(value) => self,
            (Self::Is(value), _) if other.allows(value) => other,
            (Self::Is(one), Self::Is(two)) => Self::Either(one, two),
            (Self::Either(a, b), Self::Either(c, d)) if a == c && b == d || a == d && b == c => self,
            (Self::Either(..), _) | (_, Self::Either(..)) => Self::Any,
        }
    }
}

/// The bytes, if all are certain.
fn certain(bytes: &[Byte]) -> Option<Vec<u8>> {
    bytes.iter().map(|byte| if let Byte::Is(value) = byte { Some(*value) } else { None }).collect()
}

fn exactly(bytes: &[u8]) -> Vec<Byte> {
    bytes.iter().map(|byte| Byte::Is(*byte)).collect()
}

/// A long read: operations posted before it completed may have overtaken it.
#[derive(Debug)]
struct LongRead {
    step: usize,
    until: usize,
    range: RemoteRange,
    allowed: Vec<Byte>,
    returned: Vec<u8>,
}

/// The memory of one side that one peer accesses, and the peer's operations.
#[derive(Debug, Default)]
pub(crate) struct Model {
    regions: HashMap<u64, Vec<u8>>,
    steps: Vec<Step>,
}

impl Model {
    /// The peer may access these bytes from now on.
    pub(crate) fn expose(&mut self, key: u64, bytes: Vec<u8>) {
        assert!(self.regions.insert(key, bytes).is_none(), "a key names one region");
    }

    /// An operation has been posted; returns its number.
    pub(crate) fn posted(&mut self, what: What, ranges: Vec<RemoteRange>) -> usize {
        self.steps.push(Step { what, ranges, fate: Fate::Unknown, until: usize::MAX });
        self.steps.len() - 1
    }

    /// An operation has ended.
    pub(crate) fn ended(&mut self, number: usize, fate: Fate) {
        self.steps[number].until = self.steps.len();
        self.steps[number].fate = fate;
    }

    /// What an operation does.
    pub(crate) fn what(&self, number: usize) -> &What {
        &self.steps[number].what
    }

    /// Whether an operation travels in one frame, so that it is refused as a whole.
    pub(crate) fn is_one_frame(&self, number: usize) -> bool {
        let step = &self.steps[number];
        let len: u64 = step.ranges.iter().map(|range| range.len).sum();
        step.ranges.len() == 1 && (len <= MOST_EAGER as u64 || !matches!(step.what, What::Write(_)))
    }

    /// The fate of an operation.
    pub(crate) fn fate(&self, number: usize) -> &Fate {
        &self.steps[number].fate
    }

    /// Whether all of an operation's bytes lie in regions that have been exposed.
    pub(crate) fn is_within(&self, ranges: &[RemoteRange]) -> bool {
        ranges.iter().all(|range| {
            let len = self.regions.get(&range.key).map(|bytes| bytes.len() as u64);
            len.is_some_and(|len| range.addr.checked_add(range.len).is_some_and(|end| end <= len))
        })
    }

    /// Checks what operations returned, and what the regions hold in the end.
    ///
    /// # Panics
    /// If these operations do not allow it.
    pub(crate) fn check(self, ends: &HashMap<u64, Vec<u8>>) {
        let regions = self.regions.iter().map(|(key, bytes)| (*key, exactly(bytes))).collect();
        let mut memory = Memory { regions, reads: Vec::new() };
        for (number, step) in self.steps.iter().enumerate() {
            memory.reads.extract_if(.., |read| read.until <= number).for_each(|read| read.check(&self));
            memory.take(number, step, &self);
        }
        memory.reads.drain(..).for_each(|read| read.check(&self));
        for (key, bytes) in ends {
            let range = RemoteRange { addr: 0, len: bytes.len() as u64, key: *key };
            self.compare(bytes, &memory.regions[key], &range, "the end");
        }
    }

    /// Checks the bytes that a range held.
    #[track_caller]
    fn compare(&self, bytes: &[u8], allowed: &[Byte], range: &RemoteRange, when: &str) {
        assert_eq!(bytes.len(), allowed.len(), "{when}: the length of {range:?}");
        let Some(at) = bytes.iter().zip(allowed).position(|(byte, allowed)| !allowed.allows(*byte)) else { return };
        let addr = range.addr + at as u64;
        let covers = |it: &&RemoteRange| it.key == range.key && (it.addr..it.addr + it.len).contains(&addr);
        let steps = self.steps.iter().enumerate();
        let trail = steps.filter_map(|(number, step)| Some((number, step, step.ranges.iter().find(covers)?)));
        let trail = trail.map(|(number, step, range)| {
            let what = match &step.what {
                What::Write(_) => "write".to_owned(),
                What::Read => "read".to_owned(),
                What::Atomic { action, .. } => format!("{action:?}"),
            };
            let fate = match step.fate {
                Fate::Done(_) => "done",
                Fate::Unknown => "unknown",
                Fate::Never => "never",
            };
            format!("step {number}: {what} of {range:?}, {fate} by {}", step.until)
        });
        let trail: Vec<String> = trail.collect();
        panic!("{when}: byte {addr} is {:#x}, and not {:x?}, after\n{}", bytes[at], allowed[at], trail.join("\n"));
    }
}

impl LongRead {
    fn check(&self, model: &Model) {
        model.compare(&self.returned, &self.allowed, &self.range, &format!("the long read {}", self.step));
    }
}

#[derive(Debug)]
struct Memory {
    regions: HashMap<u64, Vec<Byte>>,
    reads: Vec<LongRead>,
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("regions of tests are short")
}

impl Memory {
    /// Carries out a step.
    fn take(&mut self, number: usize, step: &Step, model: &Model) {
        if step.fate == Fate::Never {
            return;
        }
        let mut at = 0;
        for range in &step.ranges {
            let here = at..at + to_usize(range.len);
            at = here.end;
            let place = to_usize(range.addr)..to_usize(range.addr + range.len);
            let Some(before) = self.regions.get(&range.key).and_then(|region| region.get(place.clone())) else {
                assert_eq!(step.fate, Fate::Unknown, "step {number} is beyond its region");
                continue;
            };
            let mut before = before.to_vec();
            let returned = match &step.fate {
                Fate::Done(bytes) if step.what.returns() => Some(&bytes[here.clone()]),
                Fate::Done(_) | Fate::Unknown | Fate::Never => None,
            };
            if let Some(returned) = returned {
                if matches!(step.what, What::Read) && returned.len() > ORDERED {
                    let (until, range, allowed) = (step.until, *range, before);
                    self.reads.push(LongRead { step: number, until, range, allowed, returned: returned.to_vec() });
                    continue;
                }
                model.compare(returned, &before, range, &format!("step {number}"));
                before = exactly(returned);
            }
            let after = match &step.what {
                What::Write(bytes) => exactly(&bytes[here]),
                What::Read => before.clone(),
                What::Atomic { action: (_, op, datatype), operands, compare } => {
                    let part = |bytes: &[u8]| bytes.get(here.clone()).unwrap_or_default().to_vec();
                    changed(&before, (*op, *datatype), &part(operands), &part(compare))
                }
            };
            let after = if step.fate == Fate::Unknown {
                before.iter().zip(&after).map(|(before, after)| before.or(*after)).collect()
            } else {
                after
            };
            self.overtake(range, &after);
            self.regions.get_mut(&range.key).expect("found above")[place].copy_from_slice(&after);
        }
    }

    /// Long reads that have not completed may return these bytes too.
    fn overtake(&mut self, range: &RemoteRange, bytes: &[Byte]) {
        for read in self.reads.iter_mut().filter(|read| read.range.key == range.key) {
            let from = range.addr.max(read.range.addr);
            let to = (range.addr + range.len).min(read.range.addr + read.range.len);
            for addr in from..to {
                let allowed = &mut read.allowed[to_usize(addr - read.range.addr)];
                *allowed = allowed.or(bytes[to_usize(addr - range.addr)]);
            }
        }
    }
}

/// The elements after an atomic operation.
fn changed(before: &[Byte], action: (AtomicOp, Datatype), operands: &[u8], compare: &[u8]) -> Vec<Byte> {
    let (op, datatype) = action;
    if let Some(bytes) = certain(before) {
        return exactly(&applied(bytes, action, operands, compare));
    }
    if before.len() > datatype.size() {
        let part = |bytes: &'_ [u8], at: usize| bytes.get(at..at + datatype.size()).unwrap_or_default().to_vec();
        let elements = before.chunks(datatype.size()).enumerate();
        let elements = elements.map(|(number, element)| (number * datatype.size(), element));
        return elements.flat_map(|(at, it)| changed(it, action, &part(operands, at), &part(compare, at))).collect();
    }
    match op {
        AtomicOp::Read => before.to_vec(),
        // Not the operand itself: of a long double, it leaves no padding as it was.
        AtomicOp::Write => exactly(&applied(vec![0; before.len()], action, operands, compare)),
        _ => vec![Byte::Any; before.len()],
    }
}

fn applied(bytes: Vec<u8>, (op, datatype): (AtomicOp, Datatype), operand: &[u8], compare: &[u8]) -> Vec<u8> {
    let len = bytes.len();
    let region = Region::owned(bytes, MrAccess::REMOTE);
    let all = region.resolve(0, len, MrAccess::empty()).expect("it is open");
    let call = rmw::AtomicCall { datatype, op, operand, compare };
    rmw::apply(&all, &call, None).expect("the operation was accepted");
    let mut after = vec![0; len];
    all.read(0, &mut after).expect("it is mapped");
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: RemoteRange = RemoteRange { addr: 0, len: 4, key: 1 };

    fn model(steps: Vec<(What, Fate)>) -> Model {
        let mut model = Model::default();
        model.expose(1, vec![0; 4]);
        for (what, fate) in steps {
            let number = model.posted(what, vec![ALL]);
            model.ended(number, fate);
        }
        model
    }

    fn ends(bytes: [u8; 4]) -> HashMap<u64, Vec<u8>> {
        HashMap::from([(1, bytes.to_vec())])
    }

    fn write(value: u8) -> What {
        What::Write(vec![value; 4])
    }

    fn sum(value: u8) -> What {
        let action = (AtomicKind::Base, AtomicOp::Sum, Datatype::Uint8);
        What::Atomic { action, operands: vec![value; 4], compare: Vec::new() }
    }

    fn is_allowed(steps: Vec<(What, Fate)>, end: [u8; 4]) -> bool {
        std::panic::catch_unwind(|| model(steps).check(&ends(end))).is_ok()
    }

    const DONE: Fate = Fate::Done(Vec::new());

    #[test]
    fn completed_operations_count_in_order() {
        assert!(is_allowed(vec![(write(1), DONE), (write(2), DONE), (sum(3), DONE)], [5; 4]));
        assert!(!is_allowed(vec![(write(1), DONE), (write(2), DONE)], [1; 4]));
        assert!(is_allowed(vec![(write(1), DONE), (write(2), Fate::Never)], [1; 4]));
        assert!(!is_allowed(vec![(write(1), DONE), (write(2), Fate::Never)], [2; 4]));
    }

    #[test]
    fn operations_of_unknown_fate_count_byte_by_byte() {
        assert!(is_allowed(vec![(write(1), DONE), (write(2), Fate::Unknown)], [1, 2, 1, 2]));
        assert!(!is_allowed(vec![(write(1), DONE), (write(2), Fate::Unknown)], [1, 2, 1, 3]));
        let unknown = [(write(2), Fate::Unknown), (sum(1), DONE)];
        assert!(is_allowed([vec![(write(1), DONE)], unknown.to_vec()].concat(), [2, 3, 9, 9]));
    }

    #[test]
    fn reads_return_possible_contents_and_narrow_them() {
        let read = |bytes: [u8; 4]| (What::Read, Fate::Done(bytes.to_vec()));
        assert!(is_allowed(vec![(write(1), DONE), read([1; 4]), (write(2), DONE)], [2; 4]));
        assert!(!is_allowed(vec![(write(1), DONE), read([2; 4]), (write(2), DONE)], [2; 4]));
        assert!(is_allowed(vec![(write(1), Fate::Unknown), read([1; 4])], [1; 4]));
        assert!(!is_allowed(vec![(write(1), Fate::Unknown), read([1; 4])], [0; 4]));
    }
}
