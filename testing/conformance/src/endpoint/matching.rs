//! Matching of messages and receives: rules, order and completions (fi_tagged(3), fi_msg(3)).

use super::pair::{INJECT, LONG, Pair, assert_content, content, message_of, sizes};
use super::{Case, EndpointMedium, cases};
use crate::medium::Need;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Message, Receive, expect};

/// More entries than a match queue searches linearly.
const MANY: u64 = 40;

pub(super) fn cases<M: EndpointMedium>() -> Vec<Case> {
    let mut all = cases![&[];
        messages_of_every_size_arrive_at_posted_receives,
        unexpected_messages_of_every_size_are_kept,
        messages_cross_in_both_directions,
        ignored_bits_of_a_tag_may_differ,
        the_receive_that_was_posted_first_takes_the_first_message,
        unexpected_messages_are_received_in_the_order_of_sending,
        receives_posted_in_reverse_match_their_own_tags,
        a_wildcard_between_exact_receives_keeps_its_turn,
        random_tags_match_as_the_model_says,
        tagged_and_untagged_messages_do_not_match,
        a_directed_receive_waits_until_its_address_is_inserted,
        a_truncated_message_is_an_error_of_its_receive_alone,
        an_unexpected_message_is_truncated_too,
        a_cancelled_receive_takes_nothing,
        cancelling_an_unknown_context_does_nothing,
        a_cancelled_send_does_not_arrive,
        cancelling_a_completed_operation_does_nothing,
        completion_data_reaches_the_receiver,
        messages_of_no_bytes_keep_their_tags,
    ];
    all.extend(cases![&[Need::Third];
        a_directed_receive_takes_messages_of_its_source_only,
        an_untagged_directed_receive_takes_messages_of_its_source_only,
        receives_from_any_source_keep_the_order_of_each,
    ]);
    all
}

/// fi_cq(3): `len`, `tag`, `data` and the flags of a received message; fi_cq(3), fi_cq_readfrom:
/// its source.
fn messages_of_every_size_arrive_at_posted_receives<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).zip(sizes::<M::Carrier>()) {
        let tagged = pair.b.receive(FiAddr::UNSPEC, number, len + 3);
        let untagged = pair.b.post_receive(Receive::new(len));
        let sent = [pair.send(number, number, len), pair.a.post(Message::new(pair.to_b, content(number + 100, len)))];
        let got = pair.got(tagged);
        assert_content(&got, number, len);
        let done = got.outcome.as_ref().unwrap();
        assert_eq!((done.tag, done.src), (number, pair.to_a));
        assert_eq!(done.flags, OpFlags::TAGGED | OpFlags::RECV);
        assert!(got.bytes[len..].iter().all(|byte| *byte == 0), "bytes behind the message were written");
        let got = pair.got(untagged);
        assert_content(&got, number + 100, len);
        let done = got.outcome.as_ref().unwrap();
        assert_eq!((done.flags, done.src), (OpFlags::MSG | OpFlags::RECV, pair.to_a));
        sent.into_iter().for_each(|context| pair.sent(context));
    }
    pair.end();
}

/// fi_endpoint(3), FI_EP_RDM: messages that arrive before a receive are not lost.
fn unexpected_messages_of_every_size_are_kept<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).zip(sizes::<M::Carrier>()) {
        let sent = pair.send(number, number, len);
        pair.barrier();
        let receive = pair.b.receive(FiAddr::UNSPEC, number, len);
        let got = pair.got(receive);
        assert_content(&got, number, len);
        let done = got.outcome.as_ref().unwrap();
        assert_eq!((done.tag, done.src, done.flags), (number, pair.to_a, OpFlags::TAGGED | OpFlags::RECV));
        pair.sent(sent);
    }
    pair.end();
}

fn messages_cross_in_both_directions<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (number, len) in (0..).zip(sizes::<M::Carrier>()) {
        ours.push(pair.send(number, number, len));
        theirs.push(pair.b.send(pair.to_a, number, content(number + 100, len)));
    }
    let (mut to_b, mut to_a) = (Vec::new(), Vec::new());
    for (number, len) in (0..).zip(sizes::<M::Carrier>()) {
        to_b.push(pair.b.receive(FiAddr::UNSPEC, number, len));
        to_a.push(pair.a.receive(FiAddr::UNSPEC, number, len));
    }
    pair.wait("messages cross", |a, b| {
        let done = ours.iter().chain(&to_a).all(|context| a.is_done(*context));
        done && theirs.iter().chain(&to_b).all(|context| b.is_done(*context))
    });
    for ((number, len), (to_b, to_a)) in (0..).zip(sizes::<M::Carrier>()).zip(to_b.into_iter().zip(to_a)) {
        assert_content(&pair.b.take(to_b)[0], number, len);
        assert_content(&pair.a.take(to_a)[0], number + 100, len);
    }
    pair.end();
}

/// fi_tagged(3): the tags have to be equal in all bits that `ignore` does not mask.
fn ignored_bits_of_a_tag_may_differ<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let high = 1 << 63;
    let receive = pair.b.post_receive(Receive::new(8).matching(high | 0b1010, 0b0110));
    // One bit that is not ignored differs.
    for tag in [0b1010, high | 0b1011, high | 0b0010] {
        pair.send(tag, tag, 8);
    }
    pair.barrier();
    assert!(pair.b.outcome(receive).is_none(), "{:?}", pair.b.outcome(receive));
    pair.send(high | 0b1100, 1, 8);
    let got = pair.got(receive);
    assert_content(&got, 1, 8);
    assert_eq!(got.completion().tag, high | 0b1100, "the tag of the message is reported");
    // A mask of all bits matches the oldest; then a receive finds an unexpected message behind
    // others.
    let last = pair.b.post_receive(Receive::new(8).matching(high, 0b1111));
    assert_content(&pair.got(last), high | 0b1011, 8);
    let any = pair.b.post_receive(Receive::new(8).matching(77, u64::MAX));
    assert_content(&pair.got(any), 0b1010, 8);
    let rest = pair.b.receive(FiAddr::UNSPEC, high | 0b0010, 8);
    assert_content(&pair.got(rest), high | 0b0010, 8);
    pair.end();
}

/// Sizes of short messages among long ones, so that a short one might overtake.
fn mixed(number: u64) -> usize {
    [8, 70_000, MOST_EAGER + 1, 0, 300][usize::try_from(number % 5).unwrap()]
}

/// fi_tagged(3): a message goes to the first posted receive that it matches; fi_endpoint(3),
/// FI_ORDER_SAS.
fn the_receive_that_was_posted_first_takes_the_first_message<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for tagged in [true, false] {
        let receive = || if tagged { Receive::new(300_000).tagged(5) } else { Receive::new(300_000) };
        let receives: Vec<usize> = (0..MANY).map(|_| pair.b.post_receive(receive())).collect();
        for number in 0..MANY {
            let message = Message::new(pair.to_b, content(number, mixed(number)));
            pair.a.post(if tagged { message.tagged(5) } else { message });
        }
        for (number, receive) in (0..).zip(receives) {
            assert_content(&pair.got(receive), number, mixed(number));
        }
    }
    pair.end();
}

/// fi_endpoint(3), FI_ORDER_SAS: messages of all sizes match in the order of sending.
fn unexpected_messages_are_received_in_the_order_of_sending<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for number in 0..MANY {
        pair.send(5, number, mixed(number));
    }
    // No barrier: the link's credit is limited, so some messages are still in flight.
    pair.poll();
    for number in 0..MANY {
        let receive = pair.b.receive(FiAddr::UNSPEC, 5, 300_000);
        assert_content(&pair.got(receive), number, mixed(number));
    }
    pair.end();
}

fn receives_posted_in_reverse_match_their_own_tags<M: EndpointMedium>(seed: u64) {
    for early in [true, false] {
        let mut pair = Pair::<M>::new(seed);
        let len = |number: u64| usize::try_from(number).unwrap() * 50;
        if early {
            (0..MANY).for_each(|tag| _ = pair.send(tag, tag, len(tag)));
            pair.barrier();
        }
        let receives: Vec<usize> = (0..MANY).rev().map(|tag| pair.b.receive(FiAddr::UNSPEC, tag, 2000)).collect();
        if !early {
            (0..MANY).for_each(|tag| _ = pair.send(tag, tag, len(tag)));
        }
        for (tag, receive) in (0..MANY).rev().zip(receives) {
            assert_content(&pair.got(receive), tag, len(tag));
        }
        pair.end();
    }
}

/// fi_tagged(3): receives match in the order of posting.
fn a_wildcard_between_exact_receives_keeps_its_turn<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let tags = [(1, 0), (2, 0), (9, u64::MAX), (1, 0), (2, 0), (9, u64::MAX)];
    let receives = tags.map(|(tag, ignore)| pair.b.post_receive(Receive::new(8).matching(tag, ignore)));
    // Tags of the messages, and the receives that they match.
    for (tag, place) in [(1, 0), (1, 2), (2, 1), (2, 4), (7, 5), (1, 3)] {
        let number = 10 * tag + place;
        pair.send(tag, number, 8);
        let got = pair.got(receives[usize::try_from(place).unwrap()]);
        assert_content(&got, number, 8);
    }
    pair.end();
}

/// A receive of the model: its context, tag and ignored bits.
type Wanted = (usize, u64, u64);

/// fi_tagged(3): the order of matching, for random tags, ignored bits and sizes.
fn random_tags_match_as_the_model_says<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let (mut posted, mut waiting): (Vec<Wanted>, Vec<(u64, u64, usize)>) = (Vec::new(), Vec::new());
    let fits = |(_, wanted, ignore): &Wanted, tag: u64| (wanted ^ tag) & !ignore == 0;
    for number in 0..150 {
        let tag = pair.rng.u64(0..6);
        if pair.rng.bool() {
            let len = *[0, 8, 200, 5000, MOST_EAGER + 1].get(pair.rng.usize(0..5)).unwrap();
            pair.send(tag, number, len);
            pair.barrier();
            match posted.iter().position(|receive| fits(receive, tag)) {
                Some(at) => assert_content(&pair.got(posted.remove(at).0), number, len),
                None => waiting.push((tag, number, len)),
            }
        } else {
            let ignore = [0, 0, 1, 3, u64::MAX][pair.rng.usize(0..5)];
            let context = pair.b.post_receive(Receive::new(MOST_EAGER + 1).matching(tag, ignore));
            let receive = (context, tag, ignore);
            match waiting.iter().position(|(tag, ..)| fits(&receive, *tag)) {
                Some(at) => {
                    let (_, number, len) = waiting.remove(at);
                    assert_content(&pair.got(context), number, len);
                }
                None => posted.push(receive),
            }
        }
        assert!(posted.iter().all(|(context, ..)| pair.b.outcome(*context).is_none()), "another receive completed");
    }
    for (tag, number, len) in waiting {
        let receive = pair.b.receive(FiAddr::UNSPEC, tag, MOST_EAGER + 1);
        assert_content(&pair.got(receive), number, len);
    }
    pair.end();
}

/// fi_tagged(3): tagged and untagged messages are matched separately.
fn tagged_and_untagged_messages_do_not_match<M: EndpointMedium>(seed: u64) {
    for len in [8, MOST_EAGER + 1] {
        let mut pair = Pair::<M>::new(seed);
        let any_tag = pair.b.post_receive(Receive::new(len).matching(0, u64::MAX));
        pair.a.post(Message::new(pair.to_b, content(1, len)));
        // A tagged barrier's message would match this receive.
        pair.poll();
        assert!(pair.b.outcome(any_tag).is_none());
        let untagged = pair.b.post_receive(Receive::new(len));
        assert_content(&pair.got(untagged), 1, len);
        let untagged = pair.b.post_receive(Receive::new(len));
        pair.send(0, 2, len);
        assert_content(&pair.got(any_tag), 2, len);
        pair.send(0, 3, len);
        pair.tagged_barrier();
        assert!(pair.b.outcome(untagged).is_none());
        let tagged = pair.b.receive(FiAddr::UNSPEC, 0, len);
        assert_content(&pair.got(tagged), 3, len);
        pair.end();
    }
}

/// fi_getinfo(3), FI_DIRECTED_RECV: a receive with a source matches only messages from it.
fn a_directed_receive_takes_messages_of_its_source_only<M: EndpointMedium>(seed: u64) {
    directed::<M>(seed, Some(5));
}

fn an_untagged_directed_receive_takes_messages_of_its_source_only<M: EndpointMedium>(seed: u64) {
    directed::<M>(seed, None);
}

fn directed<M: EndpointMedium>(seed: u64, tag: Option<u64>) {
    for len in [0, 8, MOST_EAGER, LONG] {
        let mut pair = Pair::<M>::new(seed);
        let mut c = pair.third();
        let (c_to_b, to_c) = (c.know(pair.b.addr()), pair.b.know(c.addr()));
        let receive = || if let Some(tag) = tag { Receive::new(len).tagged(tag) } else { Receive::new(len) };
        let message = |to, number| {
            let message = Message::new(to, content(number, len));
            if let Some(tag) = tag { message.tagged(tag) } else { message }
        };
        let from_c = pair.b.post_receive(receive().from(to_c));
        let from_a = pair.b.post_receive(receive().from(pair.to_a));
        pair.a.post(message(pair.to_b, 1));
        let got = pair.got(from_a);
        assert_content(&got, 1, len);
        assert!(pair.b.outcome(from_c).is_none(), "the receive matched a message of another source");
        // One source's message stays unexpected while another's matches.
        pair.a.post(message(pair.to_b, 2));
        if tag.is_some() {
            pair.barrier()
        } else {
            pair.tagged_barrier()
        }
        c.post(message(c_to_b, 3));
        expect(pair.medium.watch(), &mut [&mut pair.a, &mut pair.b, &mut c], "a message of C", |sides| {
            sides[1].is_done(from_c)
        });
        let got = pair.b.take(from_c).remove(0);
        assert_content(&got, 3, len);
        assert_eq!(got.completion().src, to_c);
        let any = pair.b.post_receive(receive());
        let got = pair.got(any);
        assert_content(&got, 2, len);
        assert_eq!(got.completion().src, pair.to_a);
        pair.end_with(vec![c]);
    }
}

/// fi_endpoint(3): FI_ORDER_SAS holds between two endpoints, not across senders.
fn receives_from_any_source_keep_the_order_of_each<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let mut c = pair.third();
    let (c_to_b, to_c) = (c.know(pair.b.addr()), pair.b.know(c.addr()));
    for number in 0..MANY {
        pair.send(5, number, mixed(number));
        c.send(c_to_b, 5, content(100 + number, mixed(number)));
    }
    let (mut of_a, mut of_c) = (0, 100);
    for _ in 0..2 * MANY {
        let receive = pair.b.receive(FiAddr::UNSPEC, 5, 300_000);
        expect(pair.medium.watch(), &mut [&mut pair.a, &mut pair.b, &mut c], "the next message", |sides| {
            sides[1].is_done(receive)
        });
        let got = pair.b.take(receive).remove(0);
        let next = if got.completion().src == to_c { &mut of_c } else { &mut of_a };
        assert_content(&got, *next, mixed(*next));
        *next += 1;
    }
    assert_eq!((of_a, of_c), (MANY, 100 + MANY));
    pair.end_with(vec![c]);
}

/// A receive may name a source before it is in the address vector (a choice of this library). After
/// the insertion it matches earlier messages too.
fn a_directed_receive_waits_until_its_address_is_inserted<M: EndpointMedium>(seed: u64) {
    for len in [8, MOST_EAGER, LONG] {
        let mut pair = Pair::<M>::unlinked(seed, |_| ());
        let first = pair.b.receive(FiAddr(0), 5, len);
        let second = pair.b.receive(FiAddr(0), 5, len);
        pair.send(5, 1, len);
        pair.barrier();
        assert!(pair.b.outcome(first).is_none(), "the source has no address yet");
        pair.to_a = pair.b.know(pair.a.addr());
        assert_eq!(pair.to_a, FiAddr(0));
        let got = pair.got(first);
        assert_content(&got, 1, len);
        assert_eq!(got.completion().src, FiAddr(0));
        pair.send(5, 2, len);
        assert_content(&pair.got(second), 2, len);
        pair.end();
    }
}

/// fi_cq(3), FI_ETRUNC: the message is truncated, and `olen` is the excess. The send succeeds, and
/// the link stays up.
fn a_truncated_message_is_an_error_of_its_receive_alone<M: EndpointMedium>(seed: u64) {
    truncate::<M>(seed, false);
}

fn an_unexpected_message_is_truncated_too<M: EndpointMedium>(seed: u64) {
    truncate::<M>(seed, true);
}

fn truncate<M: EndpointMedium>(seed: u64, early: bool) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).zip(sizes::<M::Carrier>().into_iter().filter(|len| *len > 0)) {
        for room in [0, len / 2, len - 1] {
            let sent = if early {
                let sent = pair.send(5, number, len);
                pair.barrier();
                Some(sent)
            } else {
                None
            };
            let receive = pair.b.receive(FiAddr::UNSPEC, 5, room);
            let sent = sent.unwrap_or_else(|| pair.send(5, number, len));
            let got = pair.got(receive);
            let failure = got.outcome.as_ref().expect_err("it does not fit");
            let done = failure.completion;
            assert_eq!((failure.errno, failure.olen, done.len), (Errno::ETRUNC, len - room, room));
            assert_eq!((done.tag, done.flags), (5, OpFlags::TAGGED | OpFlags::RECV));
            assert!(got.bytes == content(number, len)[..room], "the part that fits has arrived");
            pair.sent(sent);
            let next = pair.b.receive(FiAddr::UNSPEC, 5, len);
            pair.send(5, number + 100, len);
            assert_content(&pair.got(next), number + 100, len);
        }
    }
    pair.end();
}

/// fi_endpoint(3), fi_cancel: a cancelled receive ends with FI_ECANCELED and matches no message.
fn a_cancelled_receive_takes_nothing<M: EndpointMedium>(seed: u64) {
    for len in [8, MOST_EAGER, LONG] {
        let mut pair = Pair::<M>::new(seed);
        let receives = [5, 5, 6].map(|tag| pair.b.receive(FiAddr::UNSPEC, tag, len));
        pair.b.ep.cancel(receives[0]);
        let failure = pair.got(receives[0]).outcome.expect_err("it is cancelled");
        assert_eq!(failure.errno, Errno::ECANCELED);
        pair.send(5, 1, len);
        assert_content(&pair.got(receives[1]), 1, len);
        pair.send(6, 2, len);
        assert_content(&pair.got(receives[2]), 2, len);
        // No receive is left that could match another message.
        pair.send(5, 3, len);
        pair.barrier();
        let late = pair.b.receive(FiAddr::UNSPEC, 5, len);
        assert_content(&pair.got(late), 3, len);
        pair.end();
    }
}

fn cancelling_an_unknown_context_does_nothing<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let posted = pair.b.receive(FiAddr::UNSPEC, 5, 8);
    // A context of no operation.
    pair.b.ep.cancel(posted + 1000);
    pair.barrier();
    assert!(pair.b.outcome(posted).is_none());
    pair.send(5, 1, 8);
    assert_content(&pair.got(posted), 1, 8);
    pair.end();
}

/// fi_endpoint(3), fi_cancel: a queued send is cancelled, and those behind it are sent.
fn a_cancelled_send_does_not_arrive<M: EndpointMedium>(seed: u64) {
    for len in [8, MOST_EAGER, LONG] {
        // Nothing is sent before the link is open, which needs polls of both sides.
        let mut pair = Pair::<M>::unlinked(seed, |_| ());
        let sends = [1, 2, 3].map(|number| pair.send(5, number, len));
        pair.a.ep.cancel(sends[1]);
        for number in [1, 3] {
            let receive = pair.b.receive(FiAddr::UNSPEC, 5, len);
            assert_content(&pair.got(receive), number, len);
        }
        pair.wait("the sends end", |a, _| sends.iter().all(|context| a.outcome(*context).is_some()));
        let failure = pair.a.outcome(sends[1]).unwrap().as_ref().expect_err("it is cancelled");
        assert_eq!(failure.errno, Errno::ECANCELED);
        assert!(pair.a.is_done(sends[0]) && pair.a.is_done(sends[2]));
        let none = pair.b.receive(FiAddr::UNSPEC, 5, len);
        pair.barrier();
        assert!(pair.b.outcome(none).is_none(), "the cancelled message arrived");
        pair.end();
    }
}

fn cancelling_a_completed_operation_does_nothing<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let receive = pair.b.receive(FiAddr::UNSPEC, 5, 8);
    let sent = pair.send(5, 1, 8);
    pair.sent(sent);
    pair.a.ep.cancel(sent);
    assert_content(&pair.got(receive), 1, 8);
    pair.b.ep.cancel(receive);
    // The rig fails if anything else completes.
    pair.barrier();
    pair.end();
}

/// fi_cq(3): FI_REMOTE_CQ_DATA is set if and only if the sender passed data.
fn completion_data_reaches_the_receiver<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).zip(sizes::<M::Carrier>()) {
        for (tagged, early, data) in
            [(true, false, u64::MAX), (false, false, 0), (true, true, 0x0123_4567_89ab_cdef), (false, true, 1)]
        {
            let message = Message::new(pair.to_b, content(number, len)).data(data);
            let message = if tagged { message.tagged(number) } else { message };
            let message = if len <= INJECT && data == 1 { message.injected() } else { message };
            let receive = if tagged { Receive::new(len).tagged(number) } else { Receive::new(len) };
            let context = if early {
                pair.a.post(message);
                if tagged {
                    pair.barrier()
                } else {
                    pair.tagged_barrier()
                }
                pair.b.post_receive(receive)
            } else {
                let context = pair.b.post_receive(receive);
                pair.a.post(message);
                context
            };
            let got = pair.got(context);
            assert_content(&got, number, len);
            let kind = if tagged { OpFlags::TAGGED } else { OpFlags::MSG };
            let done = got.completion();
            assert_eq!((done.data, done.flags), (data, kind | OpFlags::RECV | OpFlags::REMOTE_CQ_DATA));
        }
    }
    pair.end();
}

fn messages_of_no_bytes_keep_their_tags<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    // Into a non-empty buffer too.
    let receives = [7, 8, 9].map(|tag| pair.b.receive(FiAddr::UNSPEC, tag, usize::try_from(tag).unwrap() - 7));
    for tag in [9, 7, 8] {
        pair.send(tag, 0, 0);
    }
    for (tag, receive) in (7..).zip(receives) {
        let got = pair.got(receive);
        assert!(message_of(&got).is_empty() && got.completion().tag == tag);
    }
    pair.end();
}
