//! Peeking at unexpected messages, claiming and discarding them (fi_tagged(3): FI_PEEK, FI_CLAIM,
//! FI_DISCARD).

use super::pair::{LONG, Pair, assert_content, content, sizes};
use super::{Case, EndpointMedium, cases};
use crate::medium::Need;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Finished, Message, Receive};

pub(super) fn cases<M: EndpointMedium>() -> Vec<Case> {
    let mut all = cases![&[];
        a_peek_that_finds_nothing_fails,
        a_peek_reports_the_message_and_leaves_it,
        a_peek_finds_the_oldest_that_matches,
        untagged_messages_are_found_too,
        a_claimed_message_is_received_by_its_context_alone,
        claims_are_identified_by_their_contexts,
        a_claim_into_a_short_buffer_is_truncated,
        a_peek_discards_the_message,
        a_claimed_message_is_discarded,
        messages_that_are_still_arriving_are_found,
        messages_that_are_still_arriving_are_claimed,
        messages_that_are_still_arriving_are_discarded,
        a_claim_of_nothing_is_refused,
        a_peek_does_not_stay_posted,
    ];
    all.extend(cases![&[Need::Third]; a_directed_peek_finds_messages_of_its_source_only]);
    all
}

impl<M: EndpointMedium> Pair<M> {
    fn peek(&mut self, tag: u64, flags: OpFlags) -> Finished {
        let peek = self.b.post_receive(Receive::new(0).tagged(tag).flags(OpFlags::PEEK | flags));
        self.got(peek)
    }

    #[track_caller]
    fn peek_finds_nothing(&mut self, tag: u64) {
        let peek = self.peek(tag, OpFlags::empty());
        let failure = peek.outcome.expect_err("nothing is there");
        assert_eq!((failure.errno, failure.completion.tag), (Errno::ENOMSG, tag));
    }

    /// Peeks until the message is found, perhaps before all of it has arrived. Also returns the
    /// context of the peek.
    fn peek_early(&mut self, tag: u64, flags: OpFlags) -> (usize, Finished) {
        for _ in 0..1_000_000 {
            self.a.progress();
            let peek = self.b.post_receive(Receive::new(0).tagged(tag).flags(OpFlags::PEEK | flags));
            let found = self.got(peek);
            match &found.outcome {
                Ok(_) => return (peek, found),
                Err(failure) => assert_eq!(failure.errno, Errno::ENOMSG),
            }
        }
        panic!("the message is never found\n{}\n{}", self.a.ep.describe(), self.b.ep.describe());
    }

    /// Acts on the message that a context has claimed.
    #[track_caller]
    fn claim(&mut self, context: usize, tag: u64, len: usize, flags: OpFlags) {
        let claim = Receive::new(len).tagged(tag).flags(OpFlags::CLAIM | flags);
        self.b.try_post_receive_as(context, claim).expect("it is claimed");
    }
}

/// Peeks and claims; returns the context.
fn claimed<M: EndpointMedium>(pair: &mut Pair<M>, tag: u64) -> usize {
    let peek = pair.b.post_receive(Receive::new(0).tagged(tag).flags(OpFlags::PEEK | OpFlags::CLAIM));
    assert!(pair.got(peek).outcome.is_ok(), "nothing to claim");
    peek
}

/// fi_tagged(3), FI_PEEK: without a message the error is FI_ENOMSG.
fn a_peek_that_finds_nothing_fails<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for flags in [OpFlags::empty(), OpFlags::CLAIM, OpFlags::DISCARD] {
        let miss = pair.peek(5, flags);
        assert_eq!(miss.outcome.expect_err("nothing was sent").errno, Errno::ENOMSG);
    }
    let sent = pair.send(6, 6, 8);
    pair.barrier();
    pair.peek_finds_nothing(5);
    let receive = pair.b.receive(FiAddr::UNSPEC, 6, 8);
    assert_content(&pair.got(receive), 6, 8);
    pair.sent(sent);
    pair.peek_finds_nothing(6);
    pair.end();
}

/// fi_tagged(3), FI_PEEK: the completion has length, tag, source and data; the message stays.
fn a_peek_reports_the_message_and_leaves_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>()) {
        let data = (tag % 2 == 0).then_some(tag + 7);
        let message = Message::new(pair.to_b, content(tag, len)).tagged(tag);
        let sent = pair.a.post(if let Some(data) = data { message.data(data) } else { message });
        pair.barrier();
        for _ in 0..3 {
            let found = pair.peek(tag, OpFlags::empty());
            let done = found.outcome.as_ref().expect("it has arrived");
            assert_eq!((done.len, done.tag, done.src), (len, tag, pair.to_a));
            let with_data = if data.is_some() { OpFlags::REMOTE_CQ_DATA } else { OpFlags::empty() };
            assert_eq!((done.flags, done.data), (OpFlags::TAGGED | OpFlags::RECV | with_data, data.unwrap_or(0)));
        }
        let receive = pair.b.receive(FiAddr::UNSPEC, tag, len);
        assert_content(&pair.got(receive), tag, len);
        pair.sent(sent);
        pair.peek_finds_nothing(tag);
    }
    pair.end();
}

fn a_peek_finds_the_oldest_that_matches<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    // More than a queue searches linearly; their lengths identify them.
    for tag in 0..40 {
        pair.send(tag, tag, usize::try_from(tag).unwrap());
    }
    pair.barrier();
    for (tag, ignore, oldest) in [(0, u64::MAX, 0), (33, 0, 33), (33, 0b11, 32), (16, 0b1111, 16)] {
        let peek = pair.b.post_receive(Receive::new(0).matching(tag, ignore).flags(OpFlags::PEEK));
        let found = pair.got(peek);
        let done = found.outcome.as_ref().expect("it has arrived");
        assert_eq!((done.tag, done.len), (oldest, usize::try_from(oldest).unwrap()));
    }
    for tag in 0..40 {
        let receive = pair.b.post_receive(Receive::new(40).matching(0, u64::MAX));
        assert_content(&pair.got(receive), tag, usize::try_from(tag).unwrap());
    }
    pair.end();
}

/// fi_msg(3), FI_CLAIM and FI_DISCARD, of untagged messages.
fn untagged_messages_are_found_too<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, MOST_EAGER, LONG] {
        let messages = [1, 2, 3].map(|number| pair.a.post(Message::new(pair.to_b, content(number, len))));
        pair.tagged_barrier();
        let peek = pair.b.post_receive(Receive::new(0).flags(OpFlags::PEEK | OpFlags::CLAIM));
        let found = pair.got(peek);
        let done = found.outcome.as_ref().expect("it has arrived");
        assert_eq!((done.len, done.flags), (len, OpFlags::MSG | OpFlags::RECV));
        let discard = pair.b.post_receive(Receive::new(0).flags(OpFlags::PEEK | OpFlags::DISCARD));
        assert!(pair.got(discard).outcome.is_ok());
        let third = pair.b.post_receive(Receive::new(len));
        assert_content(&pair.got(third), 3, len);
        pair.b.try_post_receive_as(peek, Receive::new(len).flags(OpFlags::CLAIM)).expect("it is claimed");
        assert_content(&pair.got(peek), 1, len);
        messages.into_iter().for_each(|sent| pair.sent(sent));
    }
    pair.end();
}

/// fi_tagged(3), FI_CLAIM: a claimed message is received by a paired FI_CLAIM only.
fn a_claimed_message_is_received_by_its_context_alone<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).step_by(2).zip(sizes::<M::Carrier>()) {
        let sent = [number, number + 1].map(|number| pair.send(5, number, len));
        pair.barrier();
        let claim = claimed(&mut pair, 5);
        let receives = [5, 5].map(|tag| pair.b.receive(FiAddr::UNSPEC, tag, len));
        assert_content(&pair.got(receives[0]), number + 1, len);
        pair.barrier();
        pair.peek_finds_nothing(5);
        assert!(pair.b.outcome(receives[1]).is_none(), "a receive matched the claimed message");
        pair.claim(claim, 5, len, OpFlags::empty());
        let got = pair.got(claim);
        assert_content(&got, number, len);
        assert_eq!((got.completion().tag, got.completion().src), (5, pair.to_a));
        pair.b.ep.cancel(receives[1]);
        assert!(pair.got(receives[1]).outcome.is_err());
        sent.into_iter().for_each(|sent| pair.sent(sent));
    }
    pair.end();
}

/// fi_tagged(3), FI_CLAIM: the context of the peek identifies the message.
fn claims_are_identified_by_their_contexts<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, MOST_EAGER, MOST_EAGER + 1] {
        let sent = [1, 2, 3].map(|number| pair.send(5, number, len));
        pair.barrier();
        let claims = [1, 2, 3].map(|_| claimed(&mut pair, 5));
        for at in [2, 0, 1] {
            pair.claim(claims[at], 5, len, OpFlags::empty());
            assert_content(&pair.got(claims[at]), at as u64 + 1, len);
        }
        sent.into_iter().for_each(|sent| pair.sent(sent));
    }
    pair.end();
}

fn a_claim_into_a_short_buffer_is_truncated<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in [8, MOST_EAGER, LONG] {
        let sent = pair.send(5, 1, len);
        pair.barrier();
        let claim = claimed(&mut pair, 5);
        pair.claim(claim, 5, len - 1, OpFlags::empty());
        let got = pair.got(claim);
        let failure = got.outcome.as_ref().expect_err("it does not fit");
        assert_eq!((failure.errno, failure.olen, failure.completion.len), (Errno::ETRUNC, 1, len - 1));
        assert!(got.bytes == content(1, len)[..len - 1]);
        pair.sent(sent);
    }
    pair.end();
}

/// fi_tagged(3), FI_DISCARD with FI_PEEK: the message is gone.
fn a_peek_discards_the_message<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).step_by(2).zip(sizes::<M::Carrier>()) {
        let sent = [number, number + 1].map(|number| pair.send(5, number, len));
        pair.barrier();
        let gone = pair.peek(5, OpFlags::DISCARD);
        let done = gone.outcome.as_ref().expect("it has arrived");
        assert_eq!((done.len, done.tag), (len, 5));
        let receive = pair.b.receive(FiAddr::UNSPEC, 5, len);
        assert_content(&pair.got(receive), number + 1, len);
        pair.peek_finds_nothing(5);
        // A discarded rendezvous ends at its sender too.
        sent.into_iter().for_each(|sent| pair.sent(sent));
    }
    pair.end();
}

/// fi_tagged(3), FI_DISCARD with FI_CLAIM. The buffer is not touched.
fn a_claimed_message_is_discarded<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in sizes::<M::Carrier>() {
        let sent = pair.send(5, 1, len);
        pair.barrier();
        let claim = claimed(&mut pair, 5);
        pair.claim(claim, 5, len, OpFlags::DISCARD);
        let gone = pair.got(claim);
        assert!(gone.outcome.is_ok(), "{gone:?}");
        assert!(gone.bytes.iter().all(|byte| *byte == 0), "the buffer was written");
        pair.peek_finds_nothing(5);
        pair.sent(sent);
        // The claim is used up.
        let again = Receive::new(len).tagged(5).flags(OpFlags::CLAIM);
        assert_eq!(pair.b.try_post_receive_as(claim, again), Err(Errno::EINVAL));
    }
    pair.end();
}

const ARRIVING: [usize; 4] = [8, 100_000, MOST_EAGER, LONG];

fn messages_that_are_still_arriving_are_found<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in ARRIVING {
        let sent = pair.send(5, 1, len);
        let (_, found) = pair.peek_early(5, OpFlags::empty());
        assert_eq!(found.completion().len, len);
        let receive = pair.b.receive(FiAddr::UNSPEC, 5, len);
        assert_content(&pair.got(receive), 1, len);
        pair.sent(sent);
    }
    pair.end();
}

fn messages_that_are_still_arriving_are_claimed<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in ARRIVING {
        let sent = pair.send(5, 1, len);
        let (claim, found) = pair.peek_early(5, OpFlags::CLAIM);
        assert_eq!(found.completion().len, len);
        let other = pair.b.receive(FiAddr::UNSPEC, 5, len);
        pair.claim(claim, 5, len, OpFlags::empty());
        assert_content(&pair.got(claim), 1, len);
        pair.sent(sent);
        assert!(pair.b.outcome(other).is_none());
        pair.b.ep.cancel(other);
        assert!(pair.got(other).outcome.is_err());
    }
    pair.end();
}

fn messages_that_are_still_arriving_are_discarded<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for len in ARRIVING {
        for claim in [false, true] {
            let sent = pair.send(5, 1, len);
            if claim {
                let (claim, _) = pair.peek_early(5, OpFlags::CLAIM);
                pair.claim(claim, 5, 0, OpFlags::DISCARD);
                assert!(pair.got(claim).outcome.is_ok());
            } else {
                let (_, gone) = pair.peek_early(5, OpFlags::DISCARD);
                assert_eq!(gone.completion().len, len);
            }
            pair.sent(sent);
            pair.peek_finds_nothing(5);
            // The link stays up.
            let sent = pair.send(5, 2, 8);
            let receive = pair.b.receive(FiAddr::UNSPEC, 5, 8);
            assert_content(&pair.got(receive), 2, 8);
            pair.sent(sent);
        }
    }
    pair.end();
}

/// The manual does not define FI_CLAIM without a claimed message: here the call fails.
fn a_claim_of_nothing_is_refused<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let sent = pair.send(5, 1, 8);
    pair.barrier();
    for flags in [OpFlags::CLAIM, OpFlags::CLAIM | OpFlags::DISCARD, OpFlags::DISCARD] {
        let receive = Receive::new(8).tagged(5).flags(flags);
        assert_eq!(pair.b.try_post_receive(receive), Err(Errno::EINVAL));
    }
    let receive = pair.b.receive(FiAddr::UNSPEC, 5, 8);
    assert_content(&pair.got(receive), 1, 8);
    pair.sent(sent);
    pair.end();
}

/// fi_tagged(3), FI_PEEK: a peek that finds nothing does not stay queued.
fn a_peek_does_not_stay_posted<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for _ in 0..3 {
        pair.peek_finds_nothing(5);
    }
    let sent = pair.send(5, 1, 8);
    pair.barrier();
    let found = pair.peek(5, OpFlags::empty());
    assert_eq!(found.completion().len, 8);
    let receive = pair.b.receive(FiAddr::UNSPEC, 5, 8);
    assert_content(&pair.got(receive), 1, 8);
    pair.sent(sent);
    pair.end();
}

/// fi_getinfo(3), FI_DIRECTED_RECV, for peeks.
fn a_directed_peek_finds_messages_of_its_source_only<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let c = pair.third();
    let to_c = pair.b.know(c.addr());
    let sent = pair.send(5, 1, 8);
    pair.barrier();
    let peek = |src| Receive::new(0).tagged(5).from(src).flags(OpFlags::PEEK);
    let miss = pair.b.post_receive(peek(to_c));
    assert_eq!(pair.got(miss).outcome.expect_err("C has sent nothing").errno, Errno::ENOMSG);
    let hit = pair.b.post_receive(peek(pair.to_a));
    assert_eq!(pair.got(hit).completion().src, pair.to_a);
    pair.sent(sent);
    pair.end_with(vec![c]);
}
