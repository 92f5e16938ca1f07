//! Buffered receives (FI_BUFFERED_RECV, fi_msg(3) of 1.17) while links break: an accepted claim
//! completes once, with the message or with an error, and a discard leaves no entry.
//!
//! `OFI_SIM_SEEDS=n` runs n seeds (default 300), `OFI_SIM_SEED=s` only seed s.

use ofi_core::{Addr, Cause, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_engine::op::{MessageOps, RecvOp};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};
use ofi_memory::{Buffer, Loan};
use ofi_rig::{Message, Watch};
use ofi_sim::node::{Node, Options, addr, ip, open_node};
use ofi_sim::raw::{Raw, Received, connect_hello};
use ofi_sim::seeds;
use ofi_sim::{Faults, World};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Longer than any eager message: it waits at its sender until the claim.
const LONG: usize = 1 << 20;
/// Stands for the C object of the endpoint.
const EP: usize = 0x1000;
const NONE: FiAddr = FiAddr::UNSPEC;

/// A receiver with buffered receives, and a sender.
struct Scene {
    world: World,
    sender: Node,
    receiver: Node,
    to: FiAddr,
    /// Messages that wait for a claim.
    notices: Vec<Completion>,
    /// How claims and posted tags ended.
    ended: Vec<Result<Completion, Failure>>,
}

impl Scene {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::with_min(seed, faults, 0)
    }

    /// The entry of a long message has this many of its bytes.
    fn with_min(seed: u64, faults: Faults, least: usize) -> Self {
        let world = World::new(seed, faults);
        let sender = open_node(&world, &Options::at(addr(1, 1000)));
        let buffered = Some((EP, least));
        let receiver = open_node(&world, &Options { buffered, ..Options::at(addr(2, 1000)) });
        let to = sender.know(receiver.addr());
        Self { world, sender, receiver, to, notices: Vec::new(), ended: Vec::new() }
    }

    /// Both sides make progress once, and time passes.
    fn poll(&mut self) {
        self.sender.progress();
        loop {
            let Self { notices, ended, .. } = self;
            let read = self.receiver.cq.read(8, |entry| {
                if entry.flags.contains(OpFlags::CLAIM) { ended.push(Ok(*entry)) } else { notices.push(*entry) }
            });
            match read {
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.ended.push(Err(self.receiver.cq.read_error().expect("there is an error"))),
            }
        }
        self.world.pass();
    }

    #[track_caller]
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = self.world.now() + Duration::from_secs(30);
        while !is_so(self) {
            assert!(self.world.now() < end, "{what}: did not happen\n{}", self.receiver.ep.describe());
            self.poll();
        }
    }

    /// Anything that comes from now on is a second completion.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.poll();
        }
    }

    fn send(&mut self, tag: Option<u64>, len: usize) {
        let message = Message::new(self.to, vec![7; len]);
        self.sender.post(tag.into_iter().fold(message, Message::tagged));
    }

    /// A receive call of the endpoint.
    fn receive(&self, context: usize, tag: Option<u64>, buffer: Buffer, flags: OpFlags) -> Result<(), Errno> {
        let tag = tag.map(|tag| (tag, 0));
        self.receiver.ep.receive(RecvOp { src: NONE, buffer, context, tag, flags })
    }

    /// Posts a tag; its message's claim completes with this context.
    fn post_tag(&self, tag: u64, context: usize) {
        self.receive(context, Some(tag), Buffer::empty(), OpFlags::empty()).expect("few tags are posted");
    }

    /// Claims or discards the message of a notice.
    fn take(&self, notice: &Completion, buffer: Buffer, flags: OpFlags) -> Result<(), Errno> {
        let tag = notice.flags.contains(OpFlags::TAGGED).then_some(0);
        self.receive(notice.context, tag, buffer, flags)
    }

    /// The notice of one message.
    fn notice(&mut self) -> Completion {
        self.until("a notice", |scene| !scene.notices.is_empty());
        self.notices.remove(0)
    }

    fn errors(&self) -> Vec<(usize, Cause)> {
        self.ended.iter().filter_map(|one| one.as_ref().err()).map(|one| (one.completion.context, one.cause)).collect()
    }
}

fn reliable() -> Faults {
    Faults { stall: 0, split: false }
}

#[test]
fn a_claim_fails_once_when_its_link_breaks() {
    let mut scene = Scene::new(1, reliable());
    scene.post_tag(5, 50);
    scene.send(Some(5), LONG);
    let notice = scene.notice();
    assert!(notice.flags.contains(OpFlags::MORE) && notice.len == LONG && notice.tag == 5);
    scene.take(&notice, Buffer::Owned(vec![0; LONG]), OpFlags::CLAIM).expect("it waits for its claim");
    assert_eq!(scene.take(&notice, Buffer::empty(), OpFlags::CLAIM), Err(Errno::EINVAL), "it is claimed");
    // The sender has not read the clear to send yet.
    scene.world.break_connections();
    scene.until("the claim ends", |scene| !scene.ended.is_empty());
    scene.settle();
    let [Err(failure)] = &scene.ended[..] else { panic!("{:?}", scene.ended) };
    assert_eq!(failure.completion.context, 50);
    assert!(failure.completion.flags.contains(OpFlags::CLAIM | OpFlags::TAGGED | OpFlags::RECV));
    assert!(!failure.text.is_empty());
    assert!(scene.notices.is_empty());
}

#[test]
fn a_message_that_is_lost_before_its_claim_fails_the_claim_once() {
    for tag in [None, Some(9)] {
        let mut scene = Scene::new(2, reliable());
        tag.into_iter().for_each(|tag| scene.post_tag(tag, 90));
        scene.send(tag, LONG);
        let notice = scene.notice();
        scene.world.break_connections();
        scene.settle();
        assert!(scene.ended.is_empty(), "nothing is claimed yet: {:?}", scene.ended);
        scene.take(&notice, Buffer::Owned(vec![0; LONG]), OpFlags::CLAIM).expect("its context is valid");
        scene.settle();
        let [Err(failure)] = &scene.ended[..] else { panic!("{:?}", scene.ended) };
        assert_eq!((failure.completion.context, failure.completion.tag), (tag.map_or(0, |_| 90), tag.unwrap_or(0)));
        assert!(failure.completion.flags.contains(OpFlags::CLAIM) && failure.cause != Cause::NoMessage);
        assert_eq!(scene.take(&notice, Buffer::empty(), OpFlags::CLAIM), Err(Errno::EINVAL));
    }
}

#[test]
fn a_discard_leaves_no_entry_when_its_link_breaks() {
    // Before the discard, or after it.
    for before in [true, false] {
        let mut scene = Scene::new(3, reliable());
        scene.send(None, LONG);
        let notice = scene.notice();
        if before {
            scene.world.break_connections();
            scene.settle();
        }
        scene.take(&notice, Buffer::empty(), OpFlags::DISCARD).expect("its context is valid");
        assert_eq!(scene.take(&notice, Buffer::empty(), OpFlags::DISCARD), Err(Errno::EINVAL));
        scene.world.break_connections();
        scene.settle();
        assert!(scene.ended.is_empty() && scene.notices.is_empty(), "{:?}", scene.ended);
    }
}

#[test]
fn a_message_that_is_here_survives_its_link() {
    let mut scene = Scene::new(4, reliable());
    for len in [0, 16, 17, 32 << 10] {
        scene.send(None, len);
        let notice = scene.notice();
        assert!(!notice.flags.contains(OpFlags::MORE));
        scene.world.break_connections();
        scene.settle();
        let (loan, buffer) = Loan::new(vec![0; len]);
        scene.take(&notice, buffer, OpFlags::CLAIM).expect("it is here");
        scene.until("the claim ends", |scene| !scene.ended.is_empty());
        let ended = scene.ended.remove(0).expect("it is here");
        assert_eq!((ended.len, ended.context), (len, 0));
        assert_eq!(loan.end(), vec![7; len]);
    }
}

#[test]
fn a_message_is_claimed_by_calls_of_its_own_kind() {
    let mut scene = Scene::new(5, reliable());
    scene.send(None, 8);
    let notice = scene.notice();
    let call = |tag, flags| scene.receive(notice.context, tag, Buffer::empty(), flags);
    assert_eq!(call(Some(0), OpFlags::CLAIM), Err(Errno::EINVAL), "it has no tag");
    assert_eq!(call(Some(0), OpFlags::DISCARD), Err(Errno::EINVAL), "it has no tag");
    assert_eq!(call(None, OpFlags::empty()), Err(Errno::EINVAL), "untagged messages need no receives");
    assert_eq!(call(None, OpFlags::CLAIM | OpFlags::DISCARD), Ok(()));
}

#[test]
fn claims_need_no_room_among_posted_tags() {
    let mut scene = Scene::new(6, reliable());
    scene.send(None, LONG);
    let notice = scene.notice();
    let mut posted = 0;
    while scene.receive(posted, Some(1), Buffer::empty(), OpFlags::empty()).is_ok() {
        posted += 1;
        assert!(posted <= 1 << 20);
    }
    scene.take(&notice, Buffer::Owned(vec![0; LONG]), OpFlags::CLAIM).expect("senders' credit bounds claims");
    scene.until("the claim ends", |scene| !scene.ended.is_empty());
    assert!(scene.ended[0].is_ok());
}

/// A request to send that brings more or less than the receiver asks for ends its link, and one
/// whose bytes do not all come leaves nothing.
#[test]
fn a_preview_has_the_length_that_the_receiver_asks_for() {
    for (least, len, total, is_right) in [
        (1000, 999, 1 << 20, false),
        (1000, 1001, 1 << 20, false),
        (1000, 0, 1 << 20, false),
        (0, 1, 1 << 20, false),
        (1000, 1000, 1 << 20, true),
        (1000, 10, 10, true),
        (0, 0, 1 << 20, true),
    ] {
        let mut scene = Scene::with_min(7, reliable(), least);
        let mut raw = Raw::connect(&scene.world, ip(3), addr(2, 1000));
        raw.hello(&connect_hello(Addr::from(addr(3, 1000)), [3; 16]));
        let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
        assert!(raw.send());
        scene.settle();
        let rts = Frame::Rts { id: 0, len: total, info };
        raw.begin_frame(&rts, len, &vec![9; len / 2]);
        assert!(raw.send());
        scene.settle();
        assert_eq!(scene.notices.len(), usize::from(is_right && len == 0), "{least} {len}");
        raw.bytes(&vec![9; len - len / 2]);
        raw.send();
        scene.settle();
        assert_eq!(raw.read().contains(&Received::End), !is_right, "{least} {len}");
        assert_eq!(scene.notices.len(), usize::from(is_right), "{least} {len}");
        assert!(scene.notices.iter().all(|notice| (notice.buf != 0) == (len > 0)));
        // The next one breaks in the middle.
        raw.begin_frame(&rts, len, &vec![9; len / 2]);
        raw.send();
        scene.settle();
        drop(raw);
        scene.settle();
        assert!(scene.ended.is_empty() && scene.notices.len() <= 1 + usize::from(len == 0), "{:?}", scene.notices);
        for notice in std::mem::take(&mut scene.notices) {
            scene.take(&notice, Buffer::empty(), OpFlags::DISCARD).expect("its context is valid");
        }
        scene.until("memory is released", |scene| scene.receiver.account.used() == 0);
    }
}

/// What became of the messages of a random exchange, each with a number of its own.
#[derive(Default)]
struct Tally {
    /// Claims that have not completed, with their buffers: by context if tagged, else by number.
    tagged: HashMap<usize, (u64, Loan)>,
    untagged: HashMap<u64, Loan>,
    /// Untagged claims that failed: their entries do not name them.
    failed: usize,
    /// Messages that the application has been notified of.
    seen: HashSet<u64>,
    /// Tags whose message was lost while it arrived.
    lost: HashSet<usize>,
}

/// The context of the posted tag for a message.
fn context_of(number: u64) -> usize {
    1000 + usize::try_from(number).expect("few messages are sent")
}

fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    vec![number.to_le_bytes()[0] | 1; len]
}

impl Tally {
    /// Checks how claims ended.
    fn check(&mut self, ended: Vec<Result<Completion, Failure>>) {
        for one in ended {
            let entry = *one.as_ref().unwrap_or_else(|failure| &failure.completion);
            if !entry.flags.contains(OpFlags::CLAIM) {
                assert!(one.is_err() && self.lost.insert(entry.context), "a tag fails once: {one:?}");
                continue;
            }
            let tagged = entry.flags.contains(OpFlags::TAGGED);
            let (number, loan) = match (tagged, &one) {
                (true, _) => self.tagged.remove(&entry.context).expect("a claim completes once"),
                (false, Ok(_)) => (entry.data, self.untagged.remove(&entry.data).expect("a claim completes once")),
                (false, Err(_)) => {
                    self.failed += 1;
                    continue;
                }
            };
            let bytes = loan.end();
            if one.is_ok() {
                assert_eq!(entry.data, number);
                assert!(bytes == bytes_of(number, entry.len), "message {number} arrived changed");
            }
        }
    }
}

fn exchange(seed: u64) {
    const SIZES: [usize; 8] = [0, 1, 16, 17, 3000, 32 << 10, 100_000, LONG];
    let mut rng = fastrand::Rng::with_seed(seed);
    let least = *rng.choice(&[0, 1, 1000, 32 << 10]).expect("there are some");
    let mut scene = Scene::with_min(seed, Faults { stall: 20, split: rng.bool() }, least);
    let (mut tally, mut sizes, mut waiting) = (Tally::default(), Vec::new(), Vec::new());
    let mut unposted: Vec<u64> = Vec::new();
    for step in 0..400u64 {
        let ending = step >= 300;
        if !ending && rng.u8(..5) == 0 {
            let (number, len) = (sizes.len() as u64, SIZES[rng.usize(..SIZES.len())]);
            let message = Message::new(scene.to, bytes_of(number, len)).data(number);
            let tagged = rng.bool();
            if scene.sender.try_post(if tagged { message.tagged(number) } else { message }).is_ok() {
                sizes.push(len);
                unposted.extend(tagged.then_some(number));
            }
        }
        while !unposted.is_empty() && (ending || rng.u8(..8) == 0) {
            let number = unposted.swap_remove(rng.usize(..unposted.len()));
            scene.post_tag(number, context_of(number));
        }
        while !waiting.is_empty() && (ending || rng.u8(..8) == 0) {
            let notice: Completion = waiting.swap_remove(rng.usize(..waiting.len()));
            if rng.u8(..4) == 0 {
                scene.take(&notice, Buffer::empty(), OpFlags::DISCARD).expect("it waits");
                continue;
            }
            let (loan, buffer) = Loan::new(vec![0; notice.len]);
            scene.take(&notice, buffer, OpFlags::CLAIM).expect("it waits");
            if notice.flags.contains(OpFlags::TAGGED) {
                tally.tagged.insert(context_of(notice.data), (notice.data, loan));
            } else {
                tally.untagged.insert(notice.data, loan);
            }
        }
        if !ending && rng.u8(..60) == 0 {
            scene.world.break_connections();
        }
        scene.poll();
        for notice in core::mem::take(&mut scene.notices) {
            let number = notice.data;
            assert!(tally.seen.insert(number), "message {number} is announced once");
            assert_eq!(notice.len, sizes[usize::try_from(number).expect("few messages are sent")]);
            let is_here = !notice.flags.contains(OpFlags::MORE) || notice.len < LONG;
            assert_eq!(notice.buf != 0, is_here || least > 0, "{notice:?}");
            waiting.push(notice);
        }
        tally.check(core::mem::take(&mut scene.ended));
    }
    scene.until("claims end", |scene| {
        let failed = scene.errors().iter().filter(|(context, _)| *context == 0).count() + tally.failed;
        let done = scene.ended.iter().filter(|one| one.is_ok()).count();
        let tagged = scene.errors().iter().filter(|(context, _)| tally.tagged.contains_key(context)).count();
        tally.tagged.len() + tally.untagged.len() <= failed + done + tagged
    });
    scene.settle();
    tally.check(core::mem::take(&mut scene.ended));
    assert!(tally.tagged.is_empty(), "claims that never ended");
    assert_eq!(tally.untagged.len(), tally.failed, "each claim ends once");
    // A notice that came late is given back; then nothing is held for the peer.
    for notice in core::mem::take(&mut scene.notices).into_iter().chain(waiting) {
        scene.take(&notice, Buffer::empty(), OpFlags::DISCARD).expect("it waits");
    }
    scene.sender.close();
    scene.until("memory is released", |scene| scene.receiver.account.used() == 0);
    scene.receiver.close();
}

#[test]
fn random_claims_complete_exactly_once() {
    seeds::run(300, exchange);
}
