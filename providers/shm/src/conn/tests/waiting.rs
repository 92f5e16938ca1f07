//! Offers that wait at the receiver until a receive matches their message.

use super::{Ends, Event, Events, LEN, LINK, SHORT, message, message_of};
use crate::cma::{Kind, Outcome};
use crate::conn::Out;
use crate::conn::line::{KIND_END, KIND_OUTCOME, KIND_WINDOW};
use crate::conn::read::MOST_WAITING;
use ofi_core::Errno;
use ofi_engine::transport::{OfferId, RecvTarget};
use ofi_memory::Buffer;
use ofi_sync::lines::{News, Reader, SleepState};

/// Where the payload of the message of an offer goes: `take` bytes of it.
fn target_of(offer: usize, take: usize) -> RecvTarget {
    let offer = Some(OfferId::new(3, message_of(offer)));
    RecvTarget { buffer: Buffer::Owned(vec![1; take]), at: 0, take, offer }
}

/// Ends whose receiver has seen `count` offers of [`LEN`] bytes, for which it has no receive.
fn ends_with_waiting(count: usize) -> Ends {
    let mut ends = Ends::new();
    ends.events.waits = (1..=count).collect();
    (0..count).for_each(|_| ends.offer(message()));
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    assert_eq!((ends.events.offers, ends.events.seen.len()), (count, 0));
    assert!(ends.to.has_untold());
    ends
}

#[test]
fn an_offer_is_read_once_a_receive_matches_and_holds_nothing_up() {
    let mut ends = ends_with_waiting(2);
    ends.send_frame();
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.events.seen, [Event::Frame]);
    assert!(!ends.to.has_news(), "the receiver may sleep");
    ends.events.seen.clear();
    // The sender does nothing meanwhile.
    for offer in [2, 1] {
        ends.to.take_offer(target_of(offer, LEN)).unwrap();
        assert!(ends.to.has_news(), "the next poll has work");
        while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    }
    assert!(ends.events.seen == [Event::Arrived(message()[..LEN].to_vec()), Event::Arrived(message()[..LEN].to_vec())]);
    assert!(!ends.to.has_news());
    assert_eq!(ends.answer(), [Event::Sent, Event::Sent]);
}

#[test]
fn less_than_the_whole_may_be_wanted() {
    let mut ends = ends_with_waiting(2);
    for (offer, take) in [(1, 100), (2, 0)] {
        ends.to.take_offer(target_of(offer, take)).unwrap();
        while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
        assert!(ends.events.seen.pop() == Some(Event::Arrived(message()[..take].to_vec())));
    }
    assert_eq!(ends.answer(), [Event::Sent, Event::Sent]);
}

#[test]
fn windows_of_offers_that_are_taken_together_open_together() {
    let mut ends = Ends::new();
    ends.events.waits = vec![1, 2, 3];
    (0..3).for_each(|_| ends.lend(message(), SHORT, Kind::Offer));
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    (1..=3).for_each(|offer| ends.to.take_offer(target_of(offer, SHORT)).unwrap());
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    assert_eq!(ends.events.seen.len(), 3);
    assert!(!ends.to.has_untold());
    let kinds = ends.kinds_of_answers();
    assert_eq!(kinds, [KIND_WINDOW, KIND_WINDOW, KIND_WINDOW, KIND_OUTCOME, KIND_OUTCOME, KIND_OUTCOME]);
}

#[test]
fn the_offers_of_a_connected_endpoint_are_declined() {
    let mut ends = Ends::new();
    ends.to.is_connectionless = false;
    ends.events.waits = vec![1];
    ends.offer(message());
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.answer(), [Event::Declined]);
    assert!(ends.to.take_offer(target_of(1, LEN)).is_err());
}

#[test]
fn so_many_wait_and_no_more() {
    // Payloads are not zeros: pages that nobody has written are not there to be copied.
    const LITTLE: usize = 16 << 10;
    let mut ends = Ends::new();
    ends.events.waits = (1..=MOST_WAITING + 1).collect();
    for _ in 0..MOST_WAITING {
        ends.lend(vec![1; LITTLE], LITTLE, Kind::Offer);
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    }
    ends.lend(vec![1; LITTLE], LITTLE, Kind::Offer);
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.answer(), [Event::Declined]);
    assert!(ends.to.take_offer(target_of(MOST_WAITING + 1, LITTLE)).is_err());
    assert!(ends.to.take_offer(target_of(MOST_WAITING, LITTLE)).is_ok());
    assert!(ends.to.take_offer(target_of(MOST_WAITING, LITTLE)).is_err(), "once");
}

#[test]
fn many_that_are_taken_at_once_leave_lines_their_turn() {
    let mut ends = Ends::new();
    ends.events.waits = (1..=10).collect();
    (0..10).for_each(|_| ends.lend(message(), SHORT, Kind::Offer));
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    (1..=10).for_each(|offer| ends.to.take_offer(target_of(offer, SHORT)).unwrap());
    ends.send_frame();
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    assert_eq!(ends.events.seen.len(), 11);
    assert!(ends.events.seen[1..10].contains(&Event::Frame), "the frame comes between them");
    assert!(!ends.to.has_news());
    // Those that have not come when the link ends are given back.
    let mut ends = ends_with_waiting(3);
    (1..=3).for_each(|offer| ends.to.take_offer(target_of(offer, LEN)).unwrap());
    ends.to.abandon(LINK, &mut ends.events);
    assert_eq!(ends.events.seen, [Event::Retry, Event::Retry, Event::Retry]);
}

#[test]
fn a_sender_that_sleeps_is_woken_when_the_ring_is_full_of_those_that_wait() {
    // Payloads are not zeros: pages that nobody has written are not there to be copied.
    const LITTLE: usize = 16 << 10;
    let mut ends = Ends::new();
    ends.events.waits = (1..=MOST_WAITING).collect();
    ends.from.presence.announce(SleepState::asleep(false, false));
    let mut news = Vec::new();
    while ends.to.sender.has_room_for_line() {
        ends.lend(vec![1; LITTLE], LITTLE, Kind::Offer);
        assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
        ends.to.tell_waiting().unwrap();
        assert!(!ends.to.has_untold());
        news.push(ends.to.take_news());
    }
    assert_eq!(news.pop(), Some(Some(News::Line)));
    assert!(news.len() > 50 && !news.contains(&Some(News::Line)), "before, it is left alone");
    // The receiver keeps an offer for which the ring has no line, too. Once it has taken that one,
    // it sends nothing but the outcome.
    ends.lend(vec![1; LITTLE], LITTLE, Kind::Offer);
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    ends.to.tell_waiting().unwrap();
    assert!(ends.to.has_untold());
    let mut events = Events::default();
    while ends.from.read(LINK, true, &mut events).unwrap() {}
    ends.to.take_offer(target_of(ends.events.offers, LITTLE)).unwrap();
    while ends.to.read(LINK, true, &mut ends.events).unwrap() {}
    assert!(!ends.to.has_untold());
    while ends.from.read(LINK, true, &mut events).unwrap() {}
    assert_eq!(events.seen, [Event::Sent]);
}

#[test]
fn the_number_of_a_message_that_waits_is_not_taken_for_another() {
    let mut ends = ends_with_waiting(1);
    ends.events.offers = 0;
    ends.offer(message());
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.answer(), [Event::Declined]);
}

#[test]
fn the_end_of_the_link_waits_for_payloads_but_not_for_a_receive() {
    let mut ends = ends_with_waiting(1);
    ends.from.sender.close();
    assert_eq!(ends.send_waiting(), []);
    assert!(!ends.from.sender.has_ended(), "the sender has yet to learn that the offer waits");
    ends.to.tell_waiting().unwrap();
    assert_eq!(ends.answer(), []);
    assert_eq!(ends.send_waiting(), []);
    assert!(ends.from.sender.has_ended());
    let (mut reader, mut last) = (Reader::new(ends.region.ring(super::Side::Initiator)), 0);
    while let Some((head, _)) = reader.read() {
        (last, _) = (head >> 40, reader.advance(1));
    }
    assert_eq!(last, KIND_END);
    // It gets its payload back, and the receiver has nothing to give back.
    let mut events = Events::default();
    assert!(!ends.from.abandon(LINK, &mut events));
    assert_eq!(events.seen, [Event::Returned]);
    assert!(!ends.to.abandon(LINK, &mut ends.events));
    assert_eq!(ends.events.seen, []);
}

#[test]
fn one_whose_sender_has_left_fails() {
    let mut ends = ends_with_waiting(1);
    ends.from.presence.leave();
    ends.to.take_offer(target_of(1, LEN)).unwrap();
    assert!(ends.to.read(LINK, true, &mut ends.events).unwrap());
    assert_eq!(ends.events.seen, [Event::Failed(Errno::ECONNRESET)]);
}

#[test]
fn a_peer_says_once_that_an_offer_waits() {
    let outcome = |number| Out::Outcome(number, Outcome::Waits, None);
    let cases = [(Kind::Offer, [1, 2]), (Kind::Offer, [1, 1]), (Kind::Unordered, [1, 1]), (Kind::Ordered, [1, 1])];
    for (kind, numbers) in cases {
        let mut ends = Ends::new();
        ends.lend(message(), LEN, kind);
        for number in numbers {
            assert!(ends.to.cma.reply());
            ends.to.sender.queue(outcome(number));
        }
        assert_eq!(super::send_waiting(&mut ends.to), []);
        assert!(ends.from.read(LINK, true, &mut Events::default()).is_err(), "{kind:?} {numbers:?}");
    }
}
