//! Ordered payloads that cannot be read, and lent payloads whose answers are wrong.

use super::*;

/// Ends with a payload whose pages are missing and a frame behind it, which the receiver has seen.
fn ends_that_bounce(kind: Kind) -> Ends {
    let mut ends = Ends::new();
    lend_nothing(&mut ends.from, SHORT, kind);
    ends.send_frame();
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    ends
}

/// The kinds of payloads that bounce.
const ORDERED: [Kind; 2] = [Kind::Eager, Kind::Ordered];

#[test]
fn an_ordered_payload_whose_pages_are_missing_comes_in_pieces_before_the_frames_behind_it() {
    ORDERED.into_iter().for_each(comes_in_pieces);
}

fn comes_in_pieces(kind: Kind) {
    let mut ends = ends_that_bounce(kind);
    assert!(!ends.to.has_news(), "the receiver waits for the first piece");
    assert_eq!(ends.answer(), []);
    let mut sent = Vec::new();
    for piece in 1.. {
        assert!(ends.events.seen.is_empty() && piece <= SHORT.div_ceil(BOUNCE_LEN));
        assert!(ends.from.has_news(), "there is room for piece {piece}");
        ends.from.announce_sleep(false);
        sent = ends.send_waiting();
        assert!(!ends.from.has_news() && ends.send_waiting().is_empty(), "there is room for one piece");
        assert!(ends.to.has_news());
        ends.to.must_notify = false;
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert!(ends.to.must_notify, "a sender that sleeps waits for room");
        if !sent.is_empty() {
            break;
        }
    }
    assert_eq!(sent, [Event::Sent]);
    assert!(ends.events.seen == [Event::Arrived(vec![0; SHORT]), Event::Frame]);
    assert!(!ends.from.sender.has_more() && ends.from.cma.lends(SHORT));
    // The next one, too.
    lend_nothing(&mut ends.from, SHORT, kind);
    ends.to.read(LINK, true, &mut ends.events).unwrap();
    assert_eq!(ends.answer(), []);
    while ends.events.seen.len() == 2 {
        ends.send_waiting();
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    }
    assert!(ends.events.seen[2] == Event::Arrived(vec![0; SHORT]));
}

#[test]
fn an_ordered_payload_whose_memory_is_gone_fails_before_the_frames_behind_it() {
    for kind in ORDERED {
        let mut ends = ends_that_bounce(kind);
        ends.from.sender.bounce(None);
        ends.send_waiting();
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert_eq!(ends.events.seen, [Event::Failed(Errno::EFAULT), Event::Frame]);
        assert!(!ends.from.sender.has_more());
    }
}

#[test]
fn a_link_that_ends_returns_what_is_bouncing() {
    for kind in ORDERED {
        let mut ends = ends_that_bounce(kind);
        assert_eq!(ends.answer(), []);
        ends.send_waiting();
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        assert!(!ends.to.abandon(LINK, &mut ends.events));
        assert_eq!(ends.events.seen, [Event::Retry]);
        let mut events = Events::default();
        ends.from.abandon(LINK, &mut events);
        assert_eq!(events.seen, [Event::Returned]);
    }
}

#[test]
fn payloads_of_both_directions_bounce_at_once() {
    let mut ends = Ends::new();
    let mut back = Events::default();
    for side in [&mut ends.from, &mut ends.to] {
        lend_nothing(side, SHORT, Kind::Ordered);
        // The end waits for the payload.
        assert!(side.sender.close());
    }
    let mut sent = Vec::new();
    let mut over = [false; 2];
    for _ in 0..10 * SHORT / BOUNCE_LEN {
        let Ends { from, to, events, .. } = &mut ends;
        for (at, (side, events)) in [(from, &mut back), (to, events)].into_iter().enumerate() {
            over[at] |= matches!(side.read(LINK, true, events), Err(ReadError::Ended));
            sent.extend(send_waiting(side));
        }
    }
    assert!(ends.events.seen == [Event::Arrived(vec![0; SHORT])] && back.seen == ends.events.seen);
    assert_eq!((sent, over), (vec![Event::Sent, Event::Sent], [true; 2]));
}

#[test]
fn a_part_that_is_missing_is_asked_for_once_the_sender_has_finished_its_own() {
    let (mut ends, claim) = ends_that_wait(Kind::Ordered, |ends| lend_nothing(&mut ends.from, LEN, Kind::Ordered));
    assert!(ends.events.seen.is_empty() && !ends.to.has_news(), "the sender may still be writing");
    ends.to.must_notify = false;
    let window = PeerWindow::new(NUMBER, window_of(Kind::Ordered));
    window.finish(ends.region.window(Side::Acceptor, NUMBER), &claim, true);
    assert!(ends.to.has_news() && ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert!(ends.to.must_notify, "the sender may sleep");
    assert!(ends.from.has_news());
    assert_eq!(ends.answer(), []);
    while ends.events.seen.is_empty() {
        ends.send_waiting();
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    }
    assert!(ends.events.seen == [Event::Arrived(vec![0; LEN])]);
}

#[test]
fn an_ordered_payload_of_a_sender_that_has_left_does_not_arrive() {
    for kind in ORDERED {
        let mut ends = Ends::new();
        ends.lend(message(), SHORT, kind);
        ends.send_frame();
        ends.from.presence.leave();
        assert!(matches!(ends.to.read(LINK, true, &mut ends.events), Err(ReadError::Ended)));
        assert_eq!(ends.events.seen, [Event::Retry], "nor does what is behind it");
    }
}

#[test]
fn a_payload_whose_turn_comes_is_lent_in_its_place() {
    let mut ends = Ends::new();
    let bytes = message();
    for may_lend in [false, true, false] {
        let (header, buffer) = (header_of(SHORT, Kind::Ordered), Buffer::Owned(bytes.clone()));
        let large = Large { header, buffer, from: 0, len: SHORT, done: 0, token: Some(Token(0)), may_lend };
        ends.from.sender.queue(Out::Large(large));
    }
    ends.from.sender.queue(Out::Absent(header_of(SHORT, Kind::Ordered), SHORT));
    let before = process::seam::bytes_read();
    let mut sent = Vec::new();
    for _ in 0..100 {
        let Conn { sender, cma, .. } = &mut ends.from;
        // The pool may grow.
        sender.send_waiting(cma, (true, false), &mut (1 << 20), |_| sent.push(Event::Sent)).unwrap();
        ends.to.read(LINK, true, &mut ends.events).unwrap();
    }
    let arrived = || Event::Arrived(bytes[..SHORT].to_vec());
    assert!(ends.events.seen == [arrived(), arrived(), arrived(), Event::Failed(Errno::EFAULT)]);
    assert_eq!(sent.len(), 2, "those that take the pool");
    assert!(process::seam::bytes_read() > before, "the other one is lent");
    assert_eq!(ends.answer(), [Event::Sent]);
}

#[test]
fn an_answer_that_no_correct_side_gives_costs_the_link_and_no_buffer() {
    let (declined, refused) = (Outcome::Declined, Outcome::Refused);
    for (kind, outcome) in [(Kind::Unordered, declined), (Kind::Ordered, declined), (Kind::Ordered, refused)] {
        let mut ends = Ends::new();
        ends.lend(message(), SHORT, kind);
        assert!(ends.to.sender.send_outcome(NUMBER, outcome).unwrap());
        let mut events = Events::default();
        assert!(ends.from.read(LINK, true, &mut events).is_err(), "{kind:?}");
        ends.from.abandon(LINK, &mut events);
        assert_eq!(events.seen, [Event::Returned], "{kind:?}");
    }
}

#[test]
fn a_payload_that_no_correct_side_wants_costs_the_link_and_no_buffer() {
    let want = |ends: &Ends, requests: u64, number: u32| {
        ends.region.bounce(Side::Initiator).wanted().store(requests << 32 | u64::from(number), Ordering::Relaxed);
    };
    for (kind, number) in [(Kind::Ordered, NUMBER + 2), (Kind::Ordered, 0), (Kind::Unordered, NUMBER + 1)] {
        let mut ends = Ends::new();
        ends.lend(message(), SHORT, Kind::Ordered);
        ends.lend(message(), SHORT, kind);
        want(&ends, 1, number);
        let mut events = Events::default();
        assert!(ends.from.read(LINK, true, &mut events).is_err(), "{kind:?} {number}");
        ends.from.abandon(LINK, &mut events);
        assert_eq!(events.seen, [Event::Returned, Event::Returned]);
    }
    // A second one while the first is on its way.
    let mut ends = Ends::new();
    (0..2).for_each(|_| ends.lend(message(), SHORT, Kind::Ordered));
    let mut events = Events::default();
    want(&ends, 1, NUMBER);
    assert!(ends.from.read(LINK, true, &mut events).unwrap());
    want(&ends, 2, NUMBER + 1);
    assert!(ends.from.read(LINK, true, &mut events).is_err());
    ends.from.abandon(LINK, &mut events);
    assert_eq!(events.seen, [Event::Returned, Event::Returned]);
}

#[test]
fn a_piece_has_the_length_that_it_must_have() {
    for len in [1, BOUNCE_LEN - 1, BOUNCE_LEN + 1, usize::MAX >> 32] {
        let mut ends = ends_that_bounce(Kind::Ordered);
        ends.region.bounce(Side::Initiator).filled().store(1 << 32 | len as u64, Ordering::Relaxed);
        assert!(ends.to.read(LINK, true, &mut ends.events).is_err(), "{len}");
        ends.to.abandon(LINK, &mut ends.events);
        assert_eq!(ends.events.seen, [Event::Retry]);
    }
}
