//! When a send completes, and which completions are reported (fi_cq(3), fi_endpoint(3), fi_msg(3)).
//! A side that is not polled makes no progress, so an operation that needs its progress cannot
//! complete.

use super::pair::{INJECT, LONG, Pair, assert_content, content, sizes};
use super::{Case, EndpointMedium, cases};
use ofi_core::{BindFlags, Errno, FiAddr, OpFlags};
use ofi_engine::transport::Transport;
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Message, Receive};

pub(super) fn cases<M: EndpointMedium>() -> Vec<Case> {
    cases![&[];
        an_inject_call_frees_the_buffer_and_reports_no_success,
        the_inject_flag_frees_the_buffer_and_reports_success,
        an_injected_message_that_has_to_wait_keeps_its_bytes,
        an_inject_above_the_limit_is_refused,
        a_send_without_a_level_does_not_wait_for_the_peer,
        inject_complete_does_not_wait_for_the_peer,
        eager_messages_complete_without_a_receive,
        transmit_complete_waits_for_the_peer_but_not_for_a_receive,
        delivery_complete_waits_for_the_peer_but_not_for_a_receive,
        a_rendezvous_is_delivered_once_its_receive_is_posted,
        match_complete_waits_for_the_receive,
        a_discarded_message_counts_as_matched,
        at_every_level_a_posted_receive_suffices,
        a_fenced_send_waits_for_those_before_it,
        the_level_of_a_fence_covers_earlier_sends,
        selective_completion_reports_sends_that_request_it,
        selective_completion_reports_receives_that_request_it,
        errors_are_reported_with_selective_completion_too,
        selective_completion_is_for_every_level,
    ]
}

/// Sizes of eager messages.
fn eager_sizes<T: Transport>() -> impl Iterator<Item = usize> {
    sizes::<T>().into_iter().filter(|len| *len <= MOST_EAGER)
}

fn send_at<M: EndpointMedium>(pair: &mut Pair<M>, tag: u64, len: usize, level: OpFlags) -> usize {
    pair.a.post(Message::new(pair.to_b, content(tag, len)).tagged(tag).flags(level))
}

fn receive<M: EndpointMedium>(pair: &mut Pair<M>, tag: u64, len: usize) {
    let receive = pair.b.receive(FiAddr::UNSPEC, tag, len);
    assert_content(&pair.got(receive), tag, len);
}

/// fi_msg(3), fi_inject: the buffer may be reused at once, and success is not reported. The rig
/// overwrites the buffer and fails if it reads a success.
fn an_inject_call_frees_the_buffer_and_reports_no_success<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (number, len) in (0..).zip(sizes::<M::Carrier>().into_iter().filter(|len| *len <= INJECT)) {
        for tag in [number, number + 100] {
            pair.a.post(Message::new(pair.to_b, content(tag, len)).tagged(tag).injected());
        }
        receive(&mut pair, number + 100, len);
        receive(&mut pair, number, len);
    }
    assert!(pair.a.inject_errors().is_empty());
    pair.end();
}

/// fi_endpoint(3), FI_INJECT: the buffer may be reused at once; the completion is reported.
fn the_inject_flag_frees_the_buffer_and_reports_success<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let levels = [OpFlags::empty(), OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE];
    for (number, len) in (0..).zip(sizes::<M::Carrier>().into_iter().filter(|len| *len <= INJECT)) {
        for (tag, level) in (10 * number..).zip(levels) {
            let sent = send_at(&mut pair, tag, len, OpFlags::INJECT | level);
            pair.sent(sent);
            receive(&mut pair, tag, len);
        }
    }
    pair.end();
}

/// fi_msg(3), fi_inject: the buffer may be reused at once even if the message must wait, because
/// there is no link yet or the link is full. Only half of the calls report a completion.
fn an_injected_message_that_has_to_wait_keeps_its_bytes<M: EndpointMedium>(seed: u64) {
    for linked in [false, true] {
        let mut pair = if linked { Pair::<M>::new(seed) } else { Pair::<M>::unlinked(seed, |_| ()) };
        let ahead = if linked { 20 } else { 0 };
        for tag in 1000..1000 + ahead {
            pair.send(tag, tag, MOST_EAGER);
        }
        let lens: Vec<usize> = sizes::<M::Carrier>().into_iter().filter(|len| *len <= INJECT).collect();
        for (tag, len) in (0..).step_by(2).zip(&lens) {
            pair.a.post(Message::new(pair.to_b, content(tag, *len)).tagged(tag).injected());
            send_at(&mut pair, tag + 1, *len, OpFlags::INJECT);
        }
        for tag in 1000..1000 + ahead {
            receive(&mut pair, tag, MOST_EAGER);
        }
        for (tag, len) in (0..).step_by(2).zip(lens) {
            receive(&mut pair, tag, len);
            receive(&mut pair, tag + 1, len);
        }
        assert!(pair.a.inject_errors().is_empty());
        pair.end();
    }
}

/// fi_endpoint(3), `inject_size`.
fn an_inject_above_the_limit_is_refused<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for message in [
        Message::new(pair.to_b, content(1, INJECT + 1)).injected(),
        Message::new(pair.to_b, content(1, INJECT + 1)).tagged(1).injected(),
        Message::new(pair.to_b, content(1, INJECT + 1)).flags(OpFlags::INJECT),
    ] {
        assert_eq!(pair.a.try_post(message), Err(Errno::EMSGSIZE));
    }
    pair.barrier();
    pair.end();
}

/// fi_endpoint(3), `op_flags`: the default level is FI_INJECT_COMPLETE (a choice of this library).
fn a_send_without_a_level_does_not_wait_for_the_peer<M: EndpointMedium>(seed: u64) {
    completes_alone::<M>(seed, OpFlags::empty());
}

/// fi_cq(3), FI_INJECT_COMPLETE: the buffer may be reused.
fn inject_complete_does_not_wait_for_the_peer<M: EndpointMedium>(seed: u64) {
    completes_alone::<M>(seed, OpFlags::INJECT_COMPLETE);
}

fn completes_alone<M: EndpointMedium>(seed: u64, level: OpFlags) {
    let mut pair = Pair::<M>::new(seed);
    for (tag, len) in (0..).zip([0, 1, 8, 100]) {
        let sent = send_at(&mut pair, tag, len, level);
        let alone = ofi_rig::until(pair.medium.watch(), &mut [&mut pair.a], |sides| sides[0].is_done(sent));
        assert!(alone, "the send waits for the peer:\n{}", pair.a.ep.describe());
        receive(&mut pair, tag, len);
    }
    pair.end();
}

fn eager_messages_complete_without_a_receive<M: EndpointMedium>(seed: u64) {
    for level in [OpFlags::empty(), OpFlags::INJECT_COMPLETE, OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE] {
        let mut pair = Pair::<M>::new(seed);
        for (tag, len) in (0..).zip(eager_sizes::<M::Carrier>()) {
            let sent = send_at(&mut pair, tag, len, level);
            pair.sent(sent);
        }
        for (tag, len) in (0..).zip(eager_sizes::<M::Carrier>()) {
            receive(&mut pair, tag, len);
        }
        pair.end();
    }
}

/// fi_cq(3), FI_TRANSMIT_COMPLETE: the operation no longer depends on the initiator: the message
/// is at the peer's endpoint (a choice of this library).
fn transmit_complete_waits_for_the_peer_but_not_for_a_receive<M: EndpointMedium>(seed: u64) {
    waits_for_the_peer::<M>(seed, OpFlags::TRANSMIT_COMPLETE);
}

/// fi_cq(3), FI_DELIVERY_COMPLETE: the message is at the destination.
fn delivery_complete_waits_for_the_peer_but_not_for_a_receive<M: EndpointMedium>(seed: u64) {
    waits_for_the_peer::<M>(seed, OpFlags::DELIVERY_COMPLETE);
}

fn waits_for_the_peer<M: EndpointMedium>(seed: u64, level: OpFlags) {
    let mut pair = Pair::<M>::new(seed);
    for (tag, len) in (0..).zip(eager_sizes::<M::Carrier>()) {
        let sent = send_at(&mut pair, tag, len, level);
        pair.poll_a();
        assert!(pair.a.outcome(sent).is_none(), "the send completed without the peer");
        pair.sent(sent);
        receive(&mut pair, tag, len);
    }
    pair.end();
}

/// fi_cq(3): a rendezvous message needs a receive before its payload is sent.
fn a_rendezvous_is_delivered_once_its_receive_is_posted<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let levels = [OpFlags::empty(), OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE];
    for (tag, level) in (0..).zip(levels) {
        for len in [MOST_EAGER + 1, LONG] {
            let sent = send_at(&mut pair, tag, len, level);
            pair.barrier();
            assert!(pair.a.outcome(sent).is_none(), "the send completed before a receive was posted");
            receive(&mut pair, tag, len);
            pair.sent(sent);
        }
    }
    pair.end();
}

/// fi_cq(3), FI_MATCH_COMPLETE: the message is matched to a receive.
fn match_complete_waits_for_the_receive<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>()) {
        let sent = send_at(&mut pair, tag, len, OpFlags::MATCH_COMPLETE);
        pair.barrier();
        assert!(pair.a.outcome(sent).is_none(), "{len} bytes were matched without a receive");
        // A receive that does not match changes nothing.
        let other = pair.b.receive(FiAddr::UNSPEC, tag + 1000, len);
        pair.barrier();
        assert!(pair.a.outcome(sent).is_none());
        receive(&mut pair, tag, len);
        pair.sent(sent);
        pair.b.ep.cancel(other);
        assert_eq!(pair.got(other).outcome.expect_err("it is cancelled").errno, Errno::ECANCELED);
    }
    pair.end();
}

/// fi_tagged(3), FI_MATCH_COMPLETE: the message is matched to a tagged receive, or discarded.
fn a_discarded_message_counts_as_matched<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>()) {
        let sent = send_at(&mut pair, tag, len, OpFlags::MATCH_COMPLETE);
        pair.barrier();
        assert!(pair.a.outcome(sent).is_none());
        let flags = OpFlags::PEEK | OpFlags::DISCARD;
        let discard = pair.b.post_receive(Receive::new(0).tagged(tag).flags(flags));
        assert!(pair.got(discard).outcome.is_ok());
        pair.sent(sent);
    }
    pair.end();
}

fn at_every_level_a_posted_receive_suffices<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let levels = [
        OpFlags::empty(),
        OpFlags::INJECT_COMPLETE,
        OpFlags::TRANSMIT_COMPLETE,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::MATCH_COMPLETE,
    ];
    for len in sizes::<M::Carrier>() {
        // All levels at once, each with and without a fence.
        let fences = [OpFlags::empty(), OpFlags::FENCE];
        let all = levels.into_iter().flat_map(|level| fences.map(|fence| level | fence));
        let all: Vec<(u64, OpFlags)> = (0..).zip(all).collect();
        let receives: Vec<usize> = all.iter().map(|(tag, _)| pair.b.receive(FiAddr::UNSPEC, *tag, len)).collect();
        let sends: Vec<usize> = all.iter().map(|(tag, flags)| send_at(&mut pair, *tag, len, *flags)).collect();
        for (tag, receive) in (0..).zip(receives) {
            assert_content(&pair.got(receive), tag, len);
        }
        sends.into_iter().for_each(|sent| pair.sent(sent));
    }
    pair.end();
}

/// fi_endpoint(3), FI_FENCE: the operation begins when all earlier ones to that peer have
/// completed.
fn a_fenced_send_waits_for_those_before_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::new(seed);
    let first = send_at(&mut pair, 1, MOST_EAGER + 1, OpFlags::DELIVERY_COMPLETE);
    let fenced = send_at(&mut pair, 2, 8, OpFlags::FENCE);
    let behind = pair.b.receive(FiAddr::UNSPEC, 2, 8);
    // No barrier: its message would wait behind the fence.
    pair.poll();
    assert!(pair.a.outcome(first).is_none() && pair.a.outcome(fenced).is_none());
    assert!(pair.b.outcome(behind).is_none(), "the fenced message overtook the one before it");
    receive(&mut pair, 1, MOST_EAGER + 1);
    pair.sent(first);
    pair.sent(fenced);
    assert_content(&pair.got(behind), 2, 8);
    pair.end();
}

/// A fenced operation completes when all earlier ones have reached its level (a choice of this
/// library).
fn the_level_of_a_fence_covers_earlier_sends<M: EndpointMedium>(seed: u64) {
    let earlier = [OpFlags::empty(), OpFlags::INJECT_COMPLETE, OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE];
    // A longer message may wait at its sender for a receive.
    for len in [0, 8, 5000, 32 << 10] {
        let mut pair = Pair::<M>::new(seed);
        for (tag, level) in (10..).step_by(2).zip(earlier) {
            let first = send_at(&mut pair, tag, len, level);
            pair.sent(first);
            let fenced = send_at(&mut pair, tag + 1, 8, OpFlags::FENCE | OpFlags::MATCH_COMPLETE);
            receive(&mut pair, tag + 1, 8);
            pair.barrier();
            assert!(pair.a.outcome(fenced).is_none(), "the message before the fence is not matched");
            receive(&mut pair, tag, len);
            pair.sent(fenced);
        }
        pair.end();
    }
}

/// fi_endpoint(3), FI_SELECTIVE_COMPLETION. The rig fails if another success is reported.
fn selective_completion_reports_sends_that_request_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::with(seed, |options| options.bind = BindFlags::SELECTIVE_COMPLETION);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>()) {
        let loud = pair.b.post_receive(Receive::new(len).tagged(tag).flags(OpFlags::COMPLETION));
        let next = pair.b.post_receive(Receive::new(len).tagged(tag).flags(OpFlags::COMPLETION));
        send_at(&mut pair, tag, len, OpFlags::empty());
        let sent = send_at(&mut pair, tag, len, OpFlags::COMPLETION);
        for receive in [loud, next] {
            assert_content(&pair.got(receive), tag, len);
        }
        pair.sent(sent);
    }
    pair.end();
}

fn selective_completion_reports_receives_that_request_it<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::with(seed, |options| options.bind = BindFlags::SELECTIVE_COMPLETION);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>()) {
        let silent = pair.b.post_receive(Receive::new(len).tagged(tag));
        let loud = pair.b.post_receive(Receive::new(len).tagged(tag).flags(OpFlags::COMPLETION));
        let level = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
        let sends = [level, level].map(|flags| send_at(&mut pair, tag, len, flags));
        sends.into_iter().for_each(|sent| pair.sent(sent));
        assert_content(&pair.got(loud), tag, len);
        assert!(pair.b.outcome(silent).is_none());
    }
    pair.end();
}

/// fi_endpoint(3), FI_SELECTIVE_COMPLETION: errors are always reported.
fn errors_are_reported_with_selective_completion_too<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::with(seed, |options| options.bind = BindFlags::SELECTIVE_COMPLETION);
    for (tag, len) in (0..).zip(sizes::<M::Carrier>().into_iter().filter(|len| *len > 0)) {
        let short = pair.b.receive(FiAddr::UNSPEC, tag, len - 1);
        send_at(&mut pair, tag, len, OpFlags::empty());
        assert_eq!(pair.got(short).outcome.expect_err("it does not fit").errno, Errno::ETRUNC);
    }
    let cancelled = pair.b.receive(FiAddr::UNSPEC, 5, 8);
    pair.b.ep.cancel(cancelled);
    assert_eq!(pair.got(cancelled).outcome.expect_err("it is cancelled").errno, Errno::ECANCELED);
    pair.end();
}

fn selective_completion_is_for_every_level<M: EndpointMedium>(seed: u64) {
    let mut pair = Pair::<M>::with(seed, |options| options.bind = BindFlags::SELECTIVE_COMPLETION);
    let levels = [OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE];
    for (tag, level) in (0..).zip(levels) {
        for len in [8, MOST_EAGER, LONG] {
            let receive = pair.b.post_receive(Receive::new(len).tagged(tag).flags(OpFlags::COMPLETION));
            send_at(&mut pair, tag, len, level);
            assert_content(&pair.got(receive), tag, len);
        }
    }
    pair.end();
}
