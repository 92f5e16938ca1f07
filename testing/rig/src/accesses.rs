//! Random one-sided operations of one side on the memory of another, checked against a model.

use crate::access::{Exposed, Target};
use crate::model::{Fate, Model, What};
use crate::side::{Finished, Side};
use fastrand::Rng;
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::op::{MOST_ATOMIC, MOST_REMOTE_RANGES, RemoteRange};
use ofi_engine::transport::Transport;
use std::collections::{HashMap, HashSet};

/// The longest write of an inject call, in bytes.
const MOST_INJECTED: usize = 4096;

/// The completion that an operation with data must have at the target.
#[derive(Clone, Copy, Debug)]
struct Notice {
    number: usize,
    len: usize,
    class: OpFlags,
    reported: bool,
}

/// Memory that a side exposes to one peer, and the operations of that peer on it.
#[derive(Debug, Default)]
pub struct Accesses {
    model: Model,
    /// Regions by key, including closed ones.
    open: HashMap<u64, Exposed>,
    closed: HashMap<u64, (Exposed, Option<Vec<u8>>)>,
    /// All regions that have been exposed, as key and length.
    places: Vec<(u64, usize)>,
    /// Operations that have not completed, by context.
    pending: HashMap<usize, usize>,
    /// Operations whose success is not reported.
    injected: Vec<usize>,
    /// An operation whose success is not reported has failed.
    inject_failed: bool,
    /// Operations beyond the end of their region.
    wild: HashSet<usize>,
    fenced: HashSet<usize>,
    /// By completion data.
    notices: HashMap<u64, Notice>,
    latest_notice: Option<usize>,
    target_died: bool,
}

impl Accesses {
    /// The target exposes a region of random bytes.
    pub fn expose<T: Transport>(&mut self, target: &Side<T>, key: u64, len: usize, rng: &mut Rng) {
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        self.open.insert(key, target.expose(key, bytes.clone()));
        self.model.expose(key, bytes);
        self.places.push((key, len));
    }

    /// The target closes one of its regions, even if it is in use, but never the last one.
    pub fn close_one(&mut self, rng: &mut Rng) {
        let mut keys: Vec<u64> = self.open.keys().copied().collect();
        keys.sort_unstable();
        let Some(key) = rng.choice(keys).filter(|_| self.open.len() > 1) else { return };
        if let Some(exposed) = self.open.remove(&key) {
            exposed.retire();
            self.closed.insert(key, (exposed, None));
            self.look_at_closed();
        }
    }

    /// The initiator posts a random operation of up to `most` bytes. `data` is unique.
    pub fn post<T: Transport>(
        &mut self,
        initiator: &mut Side<T>,
        peer: FiAddr,
        (most, data): (usize, u64),
        rng: &mut Rng,
    ) -> Result<(), Errno> {
        let Some((what, ranges)) = self.draw(most, rng) else { return Ok(()) };
        let len: u64 = ranges.iter().map(|range| range.len).sum();
        let len = usize::try_from(len).expect("short");
        let is_write = matches!(what, What::Write(_));
        let inject = !what.returns() && len <= MOST_INJECTED && rng.u8(0..6) == 0;
        let mut flags = match rng.u8(0..8) {
            0 => OpFlags::DELIVERY_COMPLETE,
            1 => OpFlags::INJECT_COMPLETE,
            2 => OpFlags::TRANSMIT_COMPLETE,
            3 => OpFlags::MORE,
            4 if is_write && len <= MOST_INJECTED => OpFlags::INJECT,
            _ => OpFlags::empty(),
        };
        if rng.u8(0..16) == 0 {
            flags |= OpFlags::FENCE;
        }
        let class = if matches!(what, What::Atomic { .. }) { OpFlags::ATOMIC } else { OpFlags::RMA };
        let data = (is_write && rng.u8(0..3) == 0).then_some(data);
        let target = Target { peer, ranges: ranges.clone() };
        let posted = match &what {
            What::Write(bytes) if inject => {
                initiator.try_inject_write(&target, bytes.clone(), data, flags).map(|()| None)
            }
            What::Write(bytes) => initiator.try_write(&target, bytes.clone(), data, flags).map(Some),
            What::Read => initiator.try_read(&target, flags).map(Some),
            What::Atomic { action, operands, compare } if inject => {
                initiator.inject_atomic(&target, *action, operands, compare, flags).map(|()| None)
            }
            What::Atomic { action, operands, compare } => {
                initiator.try_atomic(&target, *action, operands, compare, flags).map(Some)
            }
        };
        let context = posted?;
        let within = self.model.is_within(&ranges);
        let number = self.model.posted(what, ranges);
        if !within {
            self.wild.insert(number);
        }
        match context {
            Some(context) => drop(self.pending.insert(context, number)),
            None => self.injected.push(number),
        }
        if flags.contains(OpFlags::FENCE) {
            self.fenced.insert(number);
        }
        if let Some(data) = data {
            self.notices.insert(data, Notice { number, len, class, reported: false });
        }
        Ok(())
    }

    /// The initiator's operation has completed.
    ///
    /// # Panics
    /// If this completion is not allowed.
    pub fn completed(&mut self, finished: &Finished) {
        let done = finished.completion();
        let Some(number) = self.pending.remove(&done.context) else {
            panic!("a completion of no known operation: {finished:?}");
        };
        let returns = self.model.what(number).returns();
        let class = match self.model.what(number) {
            What::Write(_) => OpFlags::RMA | OpFlags::WRITE,
            What::Read => OpFlags::RMA | OpFlags::READ,
            What::Atomic { .. } if returns => OpFlags::ATOMIC | OpFlags::READ,
            What::Atomic { .. } => OpFlags::ATOMIC | OpFlags::WRITE,
        };
        assert_eq!(done.flags & (OpFlags::RMA | OpFlags::ATOMIC | OpFlags::READ | OpFlags::WRITE), class);
        let fate = match &finished.outcome {
            Ok(_) => {
                assert!(!self.wild.contains(&number), "an operation beyond its region succeeded: {finished:?}");
                if self.fenced.contains(&number) {
                    let before = self.pending.values().find(|other| **other < number);
                    assert_eq!(before, None, "operation {number} is fenced");
                }
                Fate::Done(finished.bytes.clone())
            }
            Err(failure) => {
                let refused = matches!(failure.errno, Errno::EACCES | Errno::EINVAL);
                if failure.errno == Errno::ECANCELED || refused && self.model.is_one_frame(number) {
                    Fate::Never
                } else {
                    assert!(refused || !self.wild.contains(&number) || is_of_link(failure.errno), "{failure:?}");
                    Fate::Unknown
                }
            }
        };
        self.model.ended(number, fate);
    }

    /// An operation of the initiator whose success is not reported has failed.
    pub fn inject_failed(&mut self) {
        self.inject_failed = true;
    }

    /// The target's queue has reported an operation.
    ///
    /// # Panics
    /// If there is no such operation, or it was reported before.
    pub fn noticed(&mut self, finished: &Finished) {
        let done = finished.completion();
        let notice = self.notices.get_mut(&done.data).unwrap_or_else(|| panic!("no operation has this data: {done:?}"));
        assert!(!notice.reported, "reported twice: {done:?}");
        notice.reported = true;
        assert_eq!(done.len, notice.len, "{done:?}");
        assert_eq!(done.flags, notice.class | OpFlags::REMOTE_WRITE | OpFlags::REMOTE_CQ_DATA);
        assert!(self.latest_notice < Some(notice.number), "{done:?} is reported after {:?}", self.latest_notice);
        self.latest_notice = Some(notice.number);
    }

    /// Whether this is the context of an operation that has not completed.
    pub fn awaits(&self, context: usize) -> bool {
        self.pending.contains_key(&context)
    }

    /// Whether this data belongs to one of these operations.
    pub fn knows(&self, data: u64) -> bool {
        self.notices.contains_key(&data)
    }

    /// The initiator has died: the fate of its pending operations is unknown.
    pub fn initiator_died(&mut self) {
        self.pending.clear();
        self.inject_failed = true;
    }

    /// The target has died: further reports are lost.
    pub fn target_died(&mut self) {
        self.target_died = true;
    }

    /// Records the contents of closed regions that are no longer in use. They must not change
    /// again.
    pub fn look_at_closed(&mut self) {
        for (exposed, bytes) in self.closed.values_mut() {
            if bytes.is_none() && exposed.region.is_idle() {
                *bytes = Some(exposed.rest());
            }
        }
    }

    /// Checks everything, when no operation is pending.
    ///
    /// # Panics
    /// If a promise about these operations was broken.
    pub fn check(mut self) {
        assert!(self.pending.is_empty(), "never completed: {:?}", self.pending);
        for number in &self.injected {
            let fate =
                if self.inject_failed || self.wild.contains(number) { Fate::Unknown } else { Fate::Done(vec![]) };
            self.model.ended(*number, fate);
        }
        for (data, notice) in &self.notices {
            match self.model.fate(notice.number) {
                Fate::Done(_) => {
                    assert!(notice.reported || self.target_died, "{data:#x} was never reported: {notice:?}")
                }
                Fate::Never => assert!(!notice.reported, "{data:#x} was reported but not carried out: {notice:?}"),
                Fate::Unknown => {}
            }
        }
        self.look_at_closed();
        let mut ends = HashMap::new();
        for (key, (exposed, bytes)) in &self.closed {
            let bytes = bytes.clone().unwrap_or_else(|| panic!("region {key} is still in use"));
            assert!(exposed.rest() == bytes, "region {key} has changed after it was closed");
            ends.insert(*key, bytes);
        }
        for (key, exposed) in self.open {
            exposed.retire();
            assert!(exposed.region.is_idle(), "region {key} is still in use");
            ends.insert(key, exposed.rest());
        }
        self.model.check(&ends);
    }

    fn draw(&self, most: usize, rng: &mut Rng) -> Option<(What, Vec<RemoteRange>)> {
        let count = if rng.u8(0..4) == 0 { rng.usize(2..=MOST_REMOTE_RANGES) } else { 1 };
        let atomic = rng.u8(0..3) == 0;
        let most = match rng.u8(0..20) {
            _ if atomic => rng.usize(1..=64).min(MOST_ATOMIC / 16),
            0..=11 => 200,
            12..=16 => 8000,
            17..=18 => 60_000,
            _ => most,
        };
        let action = atomic.then(|| draw_action(rng));
        // Elements of most datatypes are aligned, as fi_atomic(3) requires.
        let unit = action.map_or(1, |(.., datatype)| datatype.size());
        let mut ranges = Vec::new();
        let open: Vec<(u64, usize)> =
            self.places.iter().filter(|(key, _)| self.open.contains_key(key)).copied().collect();
        for _ in 0..count {
            let places = if open.is_empty() || rng.u8(0..32) == 0 { &self.places } else { &open };
            let (key, size) = *rng.choice(places)?;
            let elements = rng.usize(usize::from(atomic)..=(most / count / unit).max(1));
            let len = (elements * unit).min(size / unit * unit);
            if atomic && len == 0 {
                return None;
            }
            let addr = rng.usize(0..=size - len) / unit * unit;
            let beyond = if rng.u8(0..64) == 0 { size } else { 0 };
            ranges.push(RemoteRange { addr: (addr + beyond) as u64, len: len as u64, key });
        }
        let len = ranges.iter().map(|range| usize::try_from(range.len).expect("short")).sum();
        let reads = rng.bool();
        let mut bytes = |wanted: bool| {
            let mut bytes = vec![0; if wanted { len } else { 0 }];
            rng.fill(&mut bytes);
            bytes
        };
        let what = match action {
            Some(action @ (kind, op, _)) => {
                let (operands, compare) = (bytes(op.has_operand()), bytes(kind == AtomicKind::Compare));
                What::Atomic { action, operands, compare }
            }
            None if reads => What::Read,
            None => What::Write(bytes(true)),
        };
        Some((what, ranges))
    }
}

/// Errors of operations whose link or peer is gone.
fn is_of_link(errno: Errno) -> bool {
    !matches!(errno, Errno::EINVAL | Errno::EACCES | Errno::EFAULT)
}

fn draw_action(rng: &mut Rng) -> (AtomicKind, AtomicOp, Datatype) {
    loop {
        let kind = rng.choice([AtomicKind::Base, AtomicKind::Fetch, AtomicKind::Compare]).unwrap_or(AtomicKind::Base);
        let op = rng.choice(AtomicOp::ALL).unwrap_or(AtomicOp::Sum);
        let datatype = rng.choice(Datatype::ALL).unwrap_or(Datatype::Uint8);
        if op.is_valid(kind, datatype) {
            return (kind, op, datatype);
        }
    }
}
