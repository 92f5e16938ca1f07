//! Eager messages that stay in the sender's memory until the receiver has copied them.

use super::*;
use ofi_os::process::seam as copies;
use ofi_shm::seam as seam_of_shm;

const SIZES: [usize; 4] = [16 << 10, (16 << 10) + 1, 20_000, 32 << 10];

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
}

/// Two sides that may read each other's memory, one way.
fn open_pair(mode: CmaMode) -> (Side, Side, FiAddr) {
    let (mut a, mut b) = (open_direct(mode), open_direct(mode));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    exchange(&mut b, &mut a, to_a, 5 << 20);
    warm(&mut a, &mut b, to_b);
    (a, b, to_b)
}

#[test]
fn they_are_read_out_of_the_senders_memory() {
    for mode in [CmaMode::Read, CmaMode::Both] {
        let (mut a, mut b, to_b) = open_pair(mode);
        for len in SIZES {
            let before = copies::bytes_read() + copies::bytes_written();
            let got = b.receive(FiAddr::UNSPEC, 1, len);
            let sent = a.send(to_b, 1, bytes_of(len));
            expect(&RealTime, &mut [&mut a, &mut b], "a message", |sides| {
                sides[0].is_done(sent) && sides[1].is_done(got)
            });
            assert!(b.take(got)[0].bytes == bytes_of(len), "other bytes came than were sent");
            assert_eq!(copies::bytes_read() + copies::bytes_written() - before, len, "{mode:?}");
        }
    }
}

#[test]
fn unexpected_ones_keep_their_order_with_short_ones() {
    let (mut a, mut b, to_b) = open_pair(CmaMode::Read);
    for len in SIZES {
        let before = copies::bytes_read();
        let lens = [len, 8, len, 0, len];
        let sent = lens.map(|len| a.send(to_b, 1, bytes_of(len)));
        expect(&RealTime, &mut [&mut a, &mut b], "the sends", |sides| sent.iter().all(|one| sides[0].is_done(*one)));
        assert_eq!(copies::bytes_read() - before, 3 * len);
        let got = lens.map(|_| b.receive(FiAddr::UNSPEC, 1, 32 << 10));
        expect(&RealTime, &mut [&mut a, &mut b], "the receives", |sides| got.iter().all(|one| sides[1].is_done(*one)));
        for (context, len) in got.into_iter().zip(lens) {
            let ended = b.take(context).remove(0);
            assert_eq!(len_of(&ended.outcome), len);
            assert!(ended.bytes[..len] == bytes_of(len), "other bytes came than were sent");
        }
    }
}

#[test]
fn receives_that_are_too_short_take_what_fits() {
    for mode in [CmaMode::Read, CmaMode::Both] {
        let (mut a, mut b, to_b) = open_pair(mode);
        for room in [0, 1, 8, 5000, 19_999] {
            let got = b.receive(FiAddr::UNSPEC, 1, room);
            let sent = a.send(to_b, 1, bytes_of(20_000));
            expect(&RealTime, &mut [&mut a, &mut b], "a message", |sides| {
                sides[0].is_done(sent) && sides[1].outcome(got).is_some()
            });
            let ended = b.take(got).remove(0);
            let failure = ended.outcome.expect_err("a message that does not fit");
            assert_eq!(failure.errno, Errno::ETRUNC);
            assert!(ended.bytes[..room] == bytes_of(room), "{mode:?} {room}");
        }
    }
}

#[test]
fn those_whose_pages_are_missing_keep_their_order() {
    const LEN: usize = 24_000;
    let (mut a, mut b, to_b) = open_pair(CmaMode::Read);
    let bounced = seam_of_shm::bounced();
    // More than after which the sender lends no more for a while.
    for _ in 0..12 {
        let memory = map_far_away(LEN);
        // SAFETY: it is mapped until the send has completed.
        let span = unsafe { Span::new(memory, LEN) };
        let got = [LEN, 8].map(|len| b.receive(FiAddr::UNSPEC, 1, len));
        let sent = [a.post(Message::lent(to_b, Buffer::One(span)).tagged(1)), a.send(to_b, 1, vec![1; 8])];
        expect(&RealTime, &mut [&mut a, &mut b], "two messages", |sides| {
            sent.iter().all(|one| sides[0].is_done(*one)) && got.iter().all(|one| sides[1].is_done(*one))
        });
        let [first, second] = got.map(|context| b.take(context).remove(0).bytes);
        assert!(first == vec![0; LEN] && second == vec![1; 8]);
        // SAFETY: the mapping is the test's own.
        assert_eq!(unsafe { libc::munmap(memory.cast(), LEN) }, 0);
    }
    assert!(seam_of_shm::bounced() > bounced);
}

#[test]
fn memory_that_is_unmapped_under_way_costs_its_message_alone() {
    const LEN: usize = 24_000;
    let (mut a, mut b, to_b) = open_pair(CmaMode::Read);
    for is_posted in [true, false] {
        let memory = map_far_away(LEN);
        // SAFETY: the test unmaps it before the send has completed, on purpose: only the other
        // side's system call reads it.
        let span = unsafe { Span::new(memory, LEN) };
        let posted = is_posted.then(|| b.receive(FiAddr::UNSPEC, 5, LEN));
        let sent = a.post(Message::lent(to_b, Buffer::One(span)).tagged(5));
        let next = a.send(to_b, 6, vec![1; 8]);
        // SAFETY: the mapping is the test's own.
        assert_eq!(unsafe { libc::munmap(memory.cast(), LEN) }, 0);
        let behind = b.receive(FiAddr::UNSPEC, 6, 8);
        expect(&RealTime, &mut [&mut a, &mut b], "it fails", |sides| {
            let has_failed = posted.is_none_or(|got| sides[1].outcome(got).is_some());
            sides[0].outcome(sent).is_some() && sides[0].is_done(next) && sides[1].is_done(behind) && has_failed
        });
        let failure = a.take(sent).remove(0).outcome.expect_err("completed without its memory");
        assert_eq!(failure.errno, Errno::EFAULT);
        // One that no receive has matched has not been there.
        if let Some(got) = posted {
            let failure = b.take(got).remove(0).outcome.expect_err("completed without its memory");
            assert_eq!(failure.errno, Errno::EFAULT);
        }
        exchange_all(&mut a, &mut b, to_b, LEN, 5..6);
    }
}
