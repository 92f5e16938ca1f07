//! Large messages that arrive before their receives: they stay in the sender's memory until one
//! matches.

use super::*;
use ofi_core::OpFlags;
use ofi_engine::completion::cq::Waited;
use ofi_os::process::seam as copies;
use ofi_rig::Receive;

const TAG: u64 = 3;

/// Two sides that may read each other's memory. No probe of a peer ends a sleep.
fn open_pair(mode: CmaMode) -> (Side, Side, FiAddr) {
    let open = || open_with(None, Settings { cma: mode, probe_every: Duration::from_hours(1), ..Settings::default() });
    let (mut a, mut b) = (open(), open());
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    warm(&mut a, &mut b, to_b);
    warm(&mut b, &mut a, to_a);
    (a, b, to_b)
}

/// A message whose bytes tell its number.
fn bytes_of(number: usize) -> Vec<u8> {
    (0..LARGE).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

/// Reads what has arrived, and tells the other side what waits.
fn poll(side: &mut Side) {
    (0..100).for_each(|_| _ = side.progress());
}

/// A sends messages, and B learns of them. Returns the sends.
fn send_early(a: &mut Side, b: &mut Side, to_b: FiAddr, count: usize) -> Vec<usize> {
    let sent = (0..count).map(|number| a.send(to_b, TAG, bytes_of(number))).collect();
    poll(b);
    sent
}

fn expect_sent(a: &mut Side, sent: &[usize]) {
    expect(&RealTime, &mut [a], "the sends end", |sides| sent.iter().all(|one| sides[0].is_done(*one)));
}

#[test]
fn they_arrive_while_their_sender_does_something_else() {
    for mode in [CmaMode::IfAllowed, CmaMode::Read, CmaMode::Both] {
        let (mut a, mut b, to_b) = open_pair(mode);
        let sent = send_early(&mut a, &mut b, to_b, 5);
        // Three at once, and two one after the other.
        let three = [0, 1, 2].map(|_| b.receive(FiAddr::UNSPEC, TAG, LARGE));
        expect(&RealTime, &mut [&mut b], "three messages", |sides| three.iter().all(|one| sides[0].is_done(*one)));
        let mut got: Vec<_> = three.into_iter().map(|one| b.take(one).remove(0).bytes).collect();
        for _ in 0..2 {
            let one = b.receive(FiAddr::UNSPEC, TAG, LARGE);
            expect(&RealTime, &mut [&mut b], "a message", |sides| sides[0].is_done(one));
            got.push(b.take(one).remove(0).bytes);
        }
        for (number, bytes) in got.into_iter().enumerate() {
            assert!(bytes[..LARGE] == bytes_of(number), "{mode:?}: other bytes came than were sent in {number}");
        }
        expect_sent(&mut a, &sent);
    }
}

#[test]
fn receives_that_are_too_short_take_what_fits() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::IfAllowed);
    let rooms = [0, 1, 5000, LARGE - 1];
    let sent = send_early(&mut a, &mut b, to_b, rooms.len());
    for (number, room) in rooms.into_iter().enumerate() {
        let got = b.receive(FiAddr::UNSPEC, TAG, room);
        expect(&RealTime, &mut [&mut b], "it ends", |sides| sides[0].outcome(got).is_some());
        let ended = b.take(got).remove(0);
        assert_eq!(ended.outcome.expect_err("a message that does not fit").errno, Errno::ETRUNC);
        assert!(ended.bytes[..room] == bytes_of(number)[..room], "{room}");
    }
    expect_sent(&mut a, &sent);
}

#[test]
fn they_are_dropped_unread_if_the_program_discards_them() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::IfAllowed);
    let sent = send_early(&mut a, &mut b, to_b, 2);
    let read = copies::bytes_read();
    let look = b.post_receive(Receive::new(0).tagged(TAG).flags(OpFlags::PEEK | OpFlags::DISCARD));
    expect(&RealTime, &mut [&mut b], "it is gone", |sides| sides[0].is_done(look));
    expect_sent(&mut a, &sent[..1]);
    assert_eq!(copies::bytes_read(), read);
    // The next one is there.
    let got = b.receive(FiAddr::UNSPEC, TAG, LARGE);
    expect(&RealTime, &mut [&mut b], "a message", |sides| sides[0].is_done(got));
    assert!(b.take(got).remove(0).bytes == bytes_of(1));
    expect_sent(&mut a, &sent[1..]);
}

#[test]
fn a_receive_that_is_posted_while_another_thread_sleeps_is_served() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::IfAllowed);
    for _ in 0..20 {
        let sent = send_early(&mut a, &mut b, to_b, 1);
        let cq = b.cq.clone();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || cq.wait(1, Some(Duration::from_secs(10))));
            // Long enough for it to be asleep, mostly.
            a.cq.wait(1, Some(Duration::from_millis(2))).unwrap();
            let got = b.receive(FiAddr::UNSPEC, TAG, LARGE);
            assert_eq!(sleeper.join().unwrap(), Ok(Waited::Ready), "{}", b.ep.describe());
            b.progress();
            assert!(b.is_done(got));
            b.take(got);
        });
        expect_sent(&mut a, &sent);
    }
}

#[test]
fn a_sender_that_closes_does_not_wait_for_a_receive() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::IfAllowed);
    send_early(&mut a, &mut b, to_b, 1);
    // It learns that the message waits. The peer's program does nothing from now on.
    poll(&mut a);
    let start = clock::now();
    a.close();
    // Far less than the deadline for closing.
    assert!(clock::now().since(start) < Duration::from_secs(1));
    let got = b.receive(FiAddr::UNSPEC, TAG, LARGE);
    expect(&RealTime, &mut [&mut b], "the receive fails", |sides| sides[0].outcome(got).is_some());
    let failure = b.take(got).remove(0).outcome.expect_err("the sender has ended");
    assert!(matches!(failure.errno, Errno::ECONNRESET | Errno::ECONNABORTED | Errno::ESHUTDOWN), "{failure:?}");
}

#[test]
fn a_message_behind_them_is_received_first_if_the_program_wants_that() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::IfAllowed);
    let sent = send_early(&mut a, &mut b, to_b, 1);
    let short = a.send(to_b, TAG + 1, vec![8; 8]);
    let got = b.receive(FiAddr::UNSPEC, TAG + 1, 8);
    expect(&RealTime, &mut [&mut a, &mut b], "the short one", |sides| sides[0].is_done(short) && sides[1].is_done(got));
    let got = b.receive(FiAddr::UNSPEC, TAG, LARGE);
    expect(&RealTime, &mut [&mut b], "the large one", |sides| sides[0].is_done(got));
    assert!(b.take(got).remove(0).bytes == bytes_of(0));
    expect_sent(&mut a, &sent);
}
