//! Buffers for several messages (fi_msg(3), FI_MULTI_RECV; fi_endpoint(3),
//! FI_OPT_MIN_MULTI_RECV).

use super::pair::{LONG, Pair, assert_content, content};
use super::{Case, EndpointMedium, cases};
use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Finished, Message, Receive};

pub(super) fn cases<M: EndpointMedium>() -> Vec<Case> {
    cases![&[];
        messages_are_packed_in_order,
        unexpected_messages_are_packed_in_order,
        long_and_short_messages_share_a_buffer,
        a_buffer_is_released_below_the_minimum,
        a_buffer_is_released_after_its_last_message,
        a_message_that_does_not_fit_goes_to_the_next_buffer,
        a_first_message_larger_than_the_buffer_is_truncated,
        an_unused_buffer_can_be_cancelled,
        a_partly_used_buffer_can_be_cancelled,
        a_buffer_cancelled_while_a_message_arrives_is_released_behind_it,
        a_tagged_buffer_takes_messages_that_match,
        a_buffer_takes_its_turn_among_receives,
        without_the_capability_a_buffer_is_refused,
        completion_data_arrives_in_a_buffer_too,
    ]
}

impl<M: EndpointMedium> Pair<M> {
    fn post_buffer(&mut self, len: usize) -> usize {
        self.b.post_receive(Receive::new(len).flags(OpFlags::MULTI_RECV))
    }

    fn send_untagged(&mut self, number: u64, len: usize) -> usize {
        self.a.post(Message::new(self.to_b, content(number, len)))
    }

    /// Waits until a buffer has reported at least `count` entries, and takes them.
    #[track_caller]
    fn entries(&mut self, buffer: usize, count: usize) -> Vec<Finished> {
        self.wait("a multi-receive buffer reports", |_, b| b.finished(buffer).len() >= count);
        self.b.take(buffer)
    }

    /// All entries up to the one that releases the buffer.
    #[track_caller]
    fn entries_to_release(&mut self, buffer: usize) -> Vec<Finished> {
        self.wait("a multi-receive buffer is released", |_, b| b.finished(buffer).last().is_some_and(releases));
        self.b.take(buffer)
    }
}

/// fi_cq(3), FI_MULTI_RECV: the entry with this flag releases the buffer.
fn releases(entry: &Finished) -> bool {
    entry.completion().flags.contains(OpFlags::MULTI_RECV)
}

/// Whether an entry reports a message; otherwise it only releases the buffer.
fn has_message(entry: &Finished) -> bool {
    entry.completion().flags.contains(OpFlags::RECV)
}

/// fi_msg(3), FI_MULTI_RECV: each message has its own completion and is placed behind the one
/// before.
fn messages_are_packed_in_order<M: EndpointMedium>(seed: u64) {
    packed::<M>(seed, false);
}

fn unexpected_messages_are_packed_in_order<M: EndpointMedium>(seed: u64) {
    packed::<M>(seed, true);
}

fn packed<M: EndpointMedium>(seed: u64, early: bool) {
    let mut pair = Pair::<M>::new(seed);
    pair.b.ep.set_min_multi_recv(1);
    let lens = [5, 0, 8, 1, 300, 0, 5000, 7];
    let total: usize = lens.iter().sum();
    let send = |pair: &mut Pair<M>| {
        (0..).zip(lens).for_each(|(number, len)| _ = pair.send_untagged(number, len));
    };
    if early {
        send(&mut pair);
        pair.tagged_barrier();
    }
    let buffer = pair.post_buffer(total + 1);
    if !early {
        send(&mut pair);
    }
    let entries = pair.entries(buffer, lens.len());
    let mut at = 0;
    for (number, (entry, len)) in (0..).zip(entries.iter().zip(lens)) {
        assert_content(entry, number, len);
        assert_eq!(entry.at, at, "message {number} is not behind the one before it");
        assert_eq!(entry.completion().flags, OpFlags::MSG | OpFlags::RECV);
        assert_eq!(entry.completion().src, pair.to_a);
        at += len;
    }
    assert_eq!(entries.len(), lens.len());
    // The last byte fills the buffer.
    pair.send_untagged(99, 1);
    let entries = pair.entries_to_release(buffer);
    assert_content(&entries[0], 99, 1);
    assert_eq!(entries[0].at, total);
    pair.end();
}

/// Rendezvous and eager messages complete in any order, but are placed in the order of sending.
fn long_and_short_messages_share_a_buffer<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let lens = [8, LONG, 100, MOST_EAGER + 1, 0, MOST_EAGER, 8];
    let buffer = pair.post_buffer(lens.iter().sum::<usize>() + (64 << 10));
    let sends: Vec<usize> = (0..).zip(lens).map(|(number, len)| pair.send_untagged(number, len)).collect();
    let mut entries = pair.entries(buffer, lens.len());
    // Empty messages come before the next one at the same offset.
    entries.sort_by_key(|entry| (entry.at, entry.completion().len));
    let mut at = 0;
    for (number, (entry, len)) in (0..).zip(entries.iter().zip(lens)) {
        assert_content(entry, number, len);
        assert_eq!(entry.at, at);
        at += len;
    }
    sends.into_iter().for_each(|sent| pair.sent(sent));
    pair.end();
}

/// fi_endpoint(3), FI_OPT_MIN_MULTI_RECV: the buffer is released when less than this is free.
fn a_buffer_is_released_below_the_minimum<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    pair.b.ep.set_min_multi_recv(100);
    // After the first message 156 bytes are free, after the second exactly 100, after the third 99.
    let buffer = pair.post_buffer(256);
    for (number, len) in [(1, 100), (2, 56)] {
        pair.send_untagged(number, len);
        let entries = pair.entries(buffer, 1);
        assert!(entries.len() == 1 && !releases(&entries[0]), "{entries:?}");
        pair.tagged_barrier();
        assert!(pair.b.finished(buffer).is_empty(), "the minimum is still free");
    }
    pair.send_untagged(3, 1);
    let entries = pair.entries_to_release(buffer);
    assert_content(&entries[0], 3, 1);
    // The released buffer takes no further message: the next one waits for another receive.
    pair.send_untagged(4, 8);
    pair.tagged_barrier();
    let receive = pair.b.post_receive(Receive::new(8));
    let got = pair.got(receive);
    assert_content(&got, 4, 8);
    assert!(!releases(&got), "a buffer of one message is never released");
    pair.end();
}

/// fi_cq(3), FI_MULTI_RECV: no message is still arriving in a released buffer.
fn a_buffer_is_released_after_its_last_message<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    pair.b.ep.set_min_multi_recv(1);
    let first = pair.post_buffer(LONG + 100);
    let second = pair.post_buffer(LONG);
    // The second message does not fit behind the first, whose payload has not arrived yet.
    pair.send_untagged(1, LONG);
    pair.send_untagged(2, 200);
    let entries = pair.entries_to_release(first);
    assert_content(&entries[0], 1, LONG);
    assert_eq!(entries.iter().filter(|entry| has_message(entry)).count(), 1);
    assert!(entries.iter().rev().skip(1).all(|entry| !releases(entry)), "released once, at the end");
    let entries = pair.entries(second, 1);
    assert_content(&entries[0], 2, 200);
    assert_eq!(entries[0].at, 0);
    pair.end();
}

/// fi_msg(3), FI_MULTI_RECV: a message that does not fit into the free space releases the buffer.
fn a_message_that_does_not_fit_goes_to_the_next_buffer<M: EndpointMedium>(seed: u64) {
    for long in [false, true] {
        let unit = if long { MOST_EAGER + 1 } else { 100 };
        let mut pair = Pair::<M>::new(seed);
        pair.b.ep.set_min_multi_recv(1);
        let buffers = [3 * unit, 3 * unit].map(|len| pair.post_buffer(len));
        pair.send_untagged(1, 2 * unit);
        let entries = pair.entries(buffers[0], 1);
        assert_content(&entries[0], 1, 2 * unit);
        pair.send_untagged(2, 2 * unit);
        pair.send_untagged(3, unit - 1);
        let entries = pair.entries_to_release(buffers[0]);
        assert!(entries.len() == 1 && !has_message(&entries[0]), "{entries:?}");
        let mut entries = pair.entries(buffers[1], 2);
        entries.sort_by_key(|entry| entry.at);
        assert_content(&entries[0], 2, 2 * unit);
        assert_content(&entries[1], 3, unit - 1);
        assert_eq!((entries[0].at, entries[1].at), (0, 2 * unit), "the released buffer took another message");
        pair.end();
    }
}

/// fi_cq(3), FI_ETRUNC: a message for which even an empty buffer is too small.
fn a_first_message_larger_than_the_buffer_is_truncated<M: EndpointMedium>(seed: u64) {
    for len in [9, 5000, MOST_EAGER, MOST_EAGER + 1, LONG] {
        for early in [false, true] {
            let mut pair = Pair::<M>::new(seed);
            pair.b.ep.set_min_multi_recv(1);
            let sent = if early {
                let sent = pair.send_untagged(1, len);
                pair.tagged_barrier();
                Some(sent)
            } else {
                None
            };
            let buffer = pair.post_buffer(8);
            let sent = sent.unwrap_or_else(|| pair.send_untagged(1, len));
            let entries = pair.entries_to_release(buffer);
            let cut = entries.iter().find(|entry| has_message(entry)).expect("the message is reported");
            let failure = cut.outcome.as_ref().expect_err("it does not fit");
            assert_eq!((failure.errno, failure.olen, failure.completion.len), (Errno::ETRUNC, len - 8, 8));
            assert!(cut.bytes == content(1, len)[..8]);
            pair.sent(sent);
            // The link stays up.
            let next = pair.post_buffer(1000);
            pair.send_untagged(2, 8);
            let entries = pair.entries(next, 1);
            assert_content(&entries[0], 2, 8);
            pair.end();
        }
    }
}

fn an_unused_buffer_can_be_cancelled<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let buffer = pair.post_buffer(1 << 20);
    pair.b.ep.cancel(buffer);
    cancelled(&mut pair, buffer);
    pair.end();
}

/// fi_endpoint(3), fi_cancel: the buffer is released and takes no further message.
fn a_partly_used_buffer_can_be_cancelled<M: EndpointMedium>(seed: u64) {
    for len in [8, MOST_EAGER + 1] {
        let mut pair = Pair::<M>::new(seed);
        let buffer = pair.post_buffer(4 << 20);
        for number in [1, 2] {
            pair.send_untagged(number, len);
            let entries = pair.entries(buffer, 1);
            assert_content(&entries[0], number, len);
        }
        pair.b.ep.cancel(buffer);
        cancelled(&mut pair, buffer);
        pair.end();
    }
}

/// fi_cq(3), FI_MULTI_RECV: no entry refers to the released buffer, even if it was cancelled while
/// a message was arriving.
fn a_buffer_cancelled_while_a_message_arrives_is_released_behind_it<M: EndpointMedium>(seed: u64) {
    // How many polls it takes until the message is arriving depends on the transport.
    for polls in 0..12 {
        let mut pair = Pair::<M>::new(seed);
        let buffer = pair.post_buffer(4 << 20);
        let sent = pair.send_untagged(1, LONG);
        for _ in 0..polls {
            pair.a.progress();
            pair.b.progress();
        }
        pair.b.ep.cancel(buffer);
        // The rig accepts no entry behind the one that releases the buffer.
        let mut entries = pair.entries_to_release(buffer);
        let last = entries.pop().expect("the release");
        assert_eq!(last.outcome.as_ref().expect_err("it is cancelled").errno, Errno::ECANCELED);
        if entries.is_empty() {
            let receive = pair.b.post_receive(Receive::new(LONG));
            entries.push(pair.got(receive));
        }
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_content(&entries[0], 1, LONG);
        pair.wait("the send completes", |a, _| a.is_done(sent));
        pair.end();
    }
}

/// Checks that a buffer ends as cancelled, and that the next message goes elsewhere.
fn cancelled<M: EndpointMedium>(pair: &mut Pair<M>, buffer: usize) {
    let entries = pair.entries_to_release(buffer);
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].outcome.as_ref().expect_err("it is cancelled").errno, Errno::ECANCELED);
    pair.send_untagged(9, 8);
    pair.tagged_barrier();
    let receive = pair.b.post_receive(Receive::new(8));
    assert_content(&pair.got(receive), 9, 8);
}

/// fi_tagged(3), FI_MULTI_RECV with FI_TAGGED_MULTI_RECV.
fn a_tagged_buffer_takes_messages_that_match<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    pair.b.ep.set_min_multi_recv(64);
    let buffer = pair.b.post_receive(Receive::new(1000).matching(8, 7).flags(OpFlags::MULTI_RECV));
    for (number, tag) in (0..).zip([8, 1, 15, 16, 9]) {
        pair.send(tag, number, 50);
    }
    let entries = pair.entries(buffer, 3);
    for ((entry, (number, tag)), at) in entries.iter().zip([(0, 8), (2, 15), (4, 9)]).zip([0, 50, 100]) {
        assert_content(entry, number, 50);
        assert_eq!((entry.at, entry.completion().tag), (at, tag));
        assert_eq!(entry.completion().flags, OpFlags::TAGGED | OpFlags::RECV);
    }
    // An untagged message does not match.
    pair.send_untagged(7, 8);
    pair.tagged_barrier();
    assert!(pair.b.finished(buffer).is_empty());
    for (number, tag) in [(3, 16), (1, 1)] {
        let receive = pair.b.receive(FiAddr::UNSPEC, tag, 50);
        assert_content(&pair.got(receive), number, 50);
    }
    let receive = pair.b.post_receive(Receive::new(8));
    assert_content(&pair.got(receive), 7, 8);
    pair.end();
}

/// fi_msg(3): receives and multi-receive buffers match in the order of posting.
fn a_buffer_takes_its_turn_among_receives<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let before = pair.b.post_receive(Receive::new(8));
    let buffer = pair.post_buffer(1 << 20);
    let behind = pair.b.post_receive(Receive::new(8));
    for number in 1..4 {
        pair.send_untagged(number, 8);
    }
    assert_content(&pair.got(before), 1, 8);
    let entries = pair.entries(buffer, 2);
    assert_content(&entries[0], 2, 8);
    assert_content(&entries[1], 3, 8);
    assert!(pair.b.outcome(behind).is_none());
    pair.b.ep.cancel(buffer);
    pair.entries_to_release(buffer);
    pair.send_untagged(4, 8);
    assert_content(&pair.got(behind), 4, 8);
    pair.end();
}

/// fi_endpoint(3): FI_MULTI_RECV and FI_TAGGED_MULTI_RECV must be requested.
fn without_the_capability_a_buffer_is_refused<M: EndpointMedium>(seed: u64) {
    let both = Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV;
    let mut pair = Pair::<M>::with(seed, |options| options.caps = options.caps.difference(both));
    for receive in [Receive::new(100), Receive::new(100).tagged(5)] {
        let posted = pair.b.try_post_receive(receive.flags(OpFlags::MULTI_RECV));
        assert_eq!(posted, Err(Errno::EBADFLAGS));
    }
    pair.barrier();
    pair.end();
}

fn completion_data_arrives_in_a_buffer_too<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let buffer = pair.post_buffer(4 << 20);
    for (number, len) in (1..).zip([0, 8, MOST_EAGER, MOST_EAGER + 1]) {
        pair.a.post(Message::new(pair.to_b, content(number, len)).data(number));
        let entries = pair.entries(buffer, 1);
        assert_content(&entries[0], number, len);
        let done = entries[0].completion();
        assert_eq!((done.data, done.flags), (number, OpFlags::MSG | OpFlags::RECV | OpFlags::REMOTE_CQ_DATA));
    }
    pair.end();
}
