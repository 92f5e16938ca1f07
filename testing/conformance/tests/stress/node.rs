//! An endpoint's random operations, and the checks of their completions.

use crate::world::{
    ACCESS, ENDPOINTS, GUEST, LAST, MOST, MOST_INJECTED, MOST_POSTED, Name, TAGS, World, reached_by, wait,
};
use fastrand::Rng;
use ofi_core::{Completion, Errno, FiAddr, OpFlags};
use ofi_engine::transport::Transport;
use ofi_rig::{Finished, Kind, Message, Receive, Side};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A posted receive.
#[derive(Clone, Copy)]
struct Posted {
    /// The tag with its ignore mask.
    tag: Option<(u64, u64)>,
    order: u32,
    /// It matches any message.
    any: bool,
}

/// Author and tag.
type Stream = (usize, Option<u64>);

/// An endpoint, and what it has received in this round.
pub(crate) struct Node<T: Transport> {
    pub(crate) number: usize,
    pub(crate) rig: Side<T>,
    peers: Vec<FiAddr>,
    posted: HashMap<usize, Posted>,
    arrived: HashSet<u64>,
    /// (Order of the receive, number of the message).
    order: HashMap<Stream, Vec<(u32, u32)>>,
    next_message: u32,
    next_receive: u32,
    next_access: u64,
}

impl<T: Transport> Node<T> {
    pub(crate) fn new(number: usize, rig: Side<T>, peers: &[FiAddr]) -> Self {
        Self {
            number,
            rig,
            peers: peers.to_vec(),
            posted: HashMap::new(),
            arrived: HashSet::new(),
            order: HashMap::new(),
            next_message: 0,
            next_receive: 0,
            next_access: 0,
        }
    }

    pub(crate) fn step(&mut self, world: &World, rng: &mut Rng) {
        match rng.u8(0..20) {
            0..=5 => {
                for _ in 0..rng.usize(1..5) {
                    let dest = rng.choice(reached_by(self.number)).unwrap_or(LAST);
                    self.send(dest, world, rng);
                }
            }
            6..=9 => (0..rng.usize(1..5)).for_each(|_| self.receive(rng)),
            10..=13 => {
                self.reap(world);
            }
            14..=16 => (0..rng.usize(1..4)).for_each(|_| self.access(world, rng)),
            17 => self.rig.ep.cancel(self.rig.next_context() - rng.usize(0..32.min(self.rig.next_context()))),
            18 if rng.u8(0..8) == 0 => world.accesses(rng.usize(0..ENDPOINTS), self.number).close_one(rng),
            18 => world.accesses(rng.usize(0..ENDPOINTS), self.number).look_at_closed(),
            _ => wait(&self.rig.cq, Duration::from_micros(rng.u64(0..300))),
        }
        if self.number == LAST {
            world.tally().latest = self.rig.next_context();
        }
    }

    /// Sends the next message. False if there is no room for it.
    pub(crate) fn send(&mut self, dest: usize, world: &World, rng: &mut Rng) -> bool {
        let name = Name { author: self.number, dest, number: self.next_message };
        let (tag, bytes) = name.tag_and_bytes(world.seed);
        let is_short = bytes.len() <= MOST_INJECTED;
        let mut flags = match rng.u8(0..8) {
            0 => OpFlags::DELIVERY_COMPLETE,
            1 => OpFlags::MATCH_COMPLETE,
            2 => OpFlags::TRANSMIT_COMPLETE,
            3 => OpFlags::MORE,
            4 if is_short => OpFlags::INJECT,
            _ => OpFlags::empty(),
        };
        if rng.u8(0..16) == 0 {
            flags |= OpFlags::FENCE;
        }
        let mut message = Message::new(self.peers[dest], bytes).data(name.data()).flags(flags);
        if let Some(tag) = tag {
            message = message.tagged(tag);
        }
        match self.rig.try_post(if is_short && rng.u8(0..4) == 0 { message.injected() } else { message }) {
            Ok(_) => {
                self.next_message += 1;
                world.tally().sent += 1;
                true
            }
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                false
            }
        }
    }

    fn access(&mut self, world: &World, rng: &mut Rng) {
        let target = rng.choice(reached_by(self.number)).unwrap_or(LAST);
        self.next_access += 1;
        let data = ACCESS | (self.number as u64) << 32 | self.next_access;
        // Locked until the operation is recorded: it may complete at the target at once.
        let posted = world.accesses(self.number, target).post(&mut self.rig, self.peers[target], (MOST, data), rng);
        assert!(matches!(posted, Ok(()) | Err(Errno::AGAIN)), "{posted:?}");
    }

    fn receive(&mut self, rng: &mut Rng) {
        let src = if rng.bool() { self.peers[rng.usize(0..ENDPOINTS)] } else { FiAddr::UNSPEC };
        let ignore = if rng.u8(0..4) == 0 { u64::MAX } else { 0 };
        let tag = rng.bool().then(|| (rng.u64(0..TAGS), ignore));
        let receive = match rng.u8(0..8) {
            0 => Receive::new(2 * MOST).flags(OpFlags::MULTI_RECV),
            1 => Receive::new(MOST),
            _ => Receive::new(rng.usize(0..70_000)),
        };
        // The remaining room is for the end of the round.
        if self.posted.len() < MOST_POSTED {
            self.post(receive.from(src), tag, false);
        }
    }

    /// Posts receives for any message, untagged and tagged, if few of them are posted.
    pub(crate) fn post_any(&mut self) {
        for tag in [None, Some((0, u64::MAX))] {
            if self.posted.values().filter(|posted| posted.any && posted.tag == tag).count() < 4 {
                self.post(Receive::new(MOST), tag, true);
            }
        }
    }

    fn post(&mut self, mut receive: Receive, tag: Option<(u64, u64)>, any: bool) {
        let order = self.next_receive;
        self.next_receive += 1;
        if let Some((tag, ignore)) = tag {
            receive = receive.matching(tag, ignore);
        }
        match self.rig.try_post_receive(receive) {
            Ok(context) => drop(self.posted.insert(context, Posted { tag, order, any })),
            Err(errno) => assert_eq!(errno, Errno::AGAIN),
        }
    }

    /// Reads the completion queue until it is empty, and checks the entries. True if there were
    /// any.
    pub(crate) fn reap(&mut self, world: &World) -> bool {
        let finished = self.rig.reap();
        for one in &finished {
            self.check(one, world);
        }
        world.watch.count(finished.len());
        !finished.is_empty()
    }

    fn check(&mut self, one: &Finished, world: &World) {
        let done = *one.completion();
        let errno = one.outcome.as_ref().err().map(|failure| failure.errno);
        match one.kind {
            Kind::Send if done.flags.contains(OpFlags::SEND) => match errno {
                None => {}
                Some(Errno::ECANCELED) => world.tally().sent -= 1,
                Some(_) => panic!("no link fails: {:?}", one.outcome),
            },
            Kind::Send => {
                assert!(matches!(errno, Some(Errno::EACCES | Errno::EINVAL)), "no link fails: {:?}", one.outcome);
                (0..ENDPOINTS).for_each(|target| world.accesses(self.number, target).inject_failed());
            }
            Kind::Access => {
                let allowed = [None, Some(Errno::ECANCELED), Some(Errno::EACCES), Some(Errno::EINVAL)];
                assert!(allowed.contains(&errno), "no link fails: {:?}", one.outcome);
                let mut all = (0..ENDPOINTS).map(|target| world.accesses(self.number, target));
                all.find(|it| it.awaits(done.context)).expect("it was posted").completed(one);
            }
            Kind::Notice => {
                let initiator = usize::try_from((done.data & !ACCESS) >> 32).expect("a small number");
                world.accesses(initiator, self.number).noticed(one);
            }
            Kind::Receive | Kind::MultiRecv | Kind::Peek => {
                match &one.outcome {
                    // A multi-receive buffer may be released without another message.
                    Ok(_) if !done.flags.contains(OpFlags::RECV) => assert_eq!(one.kind, Kind::MultiRecv),
                    Ok(_) => self.check_message(&done, done.len, &one.bytes, world),
                    Err(failure) if failure.errno == Errno::ETRUNC => {
                        self.check_message(&done, done.len + failure.olen, &one.bytes, world);
                    }
                    // ENOBUFS: only a peer whose messages have used up the memory could match it.
                    Err(failure) => assert!(
                        matches!(failure.errno, Errno::ECANCELED | Errno::ENOBUFS),
                        "no link fails: {failure:?}"
                    ),
                }
                if one.kind != Kind::MultiRecv || done.flags.contains(OpFlags::MULTI_RECV) {
                    self.posted.remove(&done.context);
                }
            }
        }
    }

    fn check_message(&mut self, done: &Completion, total: usize, bytes: &[u8], world: &World) {
        let posted = self.posted[&done.context];
        assert!(done.flags.contains(OpFlags::REMOTE_CQ_DATA), "{done:?}");
        let name = Name::of(done.data);
        let (tag, sent) = name.tag_and_bytes(world.seed);
        assert_eq!((name.dest, total), (self.number, sent.len()), "{name:?}");
        assert_eq!(done.src, self.peers[if name.author == GUEST { LAST } else { name.author }], "{name:?}");
        assert_eq!(tag.is_some(), done.flags.contains(OpFlags::TAGGED), "{name:?}");
        if let (Some(tag), Some((wanted, ignore))) = (tag, posted.tag) {
            assert_eq!(((tag ^ wanted) & !ignore, tag), (0, done.tag), "{name:?}");
        }
        assert!(sent[..done.len] == bytes[..done.len], "{name:?} arrived changed");
        assert!(self.arrived.insert(done.data), "{name:?} arrived twice");
        self.order.entry((name.author, tag)).or_default().push((posted.order, name.number));
        world.tally().received += 1;
    }

    /// Exposes memory to every endpoint, including itself.
    pub(crate) fn expose(&mut self, world: &World, rng: &mut Rng) {
        for initiator in 0..ENDPOINTS {
            for _ in 0..rng.usize(1..4) {
                self.next_access += 1;
                let len = if rng.bool() { rng.usize(0..3000) } else { rng.usize(0..40_000) };
                world.accesses(initiator, self.number).expose(&self.rig, self.next_access, len, rng);
            }
        }
    }

    /// Cancels the remaining receives after all messages have arrived.
    pub(crate) fn end_receives(&mut self, world: &World) {
        for context in self.rig.pending() {
            self.rig.ep.cancel(context);
        }
        while !self.rig.pending().is_empty() {
            self.reap(world);
        }
        assert!(!self.reap(world), "an operation completed twice");
        assert!(self.posted.is_empty(), "receives that ended without a completion");
    }

    /// Checks the messages of the round and the contents of the memory.
    pub(crate) fn end_round(&mut self, world: &World) {
        self.arrived.clear();
        for (stream, mut pairs) in self.order.drain() {
            pairs.sort_unstable();
            assert!(pairs.is_sorted_by_key(|(_, number)| *number), "out of order for {stream:?}: {pairs:?}");
        }
        for initiator in 0..ENDPOINTS {
            std::mem::take(&mut *world.accesses(initiator, self.number)).check();
        }
    }
}
