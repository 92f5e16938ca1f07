//! Large one-sided operations, whose payloads keep their order whatever way they take.

use super::*;
use ofi_core::OpFlags;
use ofi_rig::Target;
use ofi_shm::seam as seam_of_shm;

const KEY: u64 = 7;
const ROOM: usize = 3 << 20;
/// The last and the longest take more than one frame.
const SIZES: [usize; 9] =
    [1000, 16 << 10, 32 << 10, (32 << 10) + 1, 65_536, 200_003, 300_000, (1 << 20) - 3, (2 << 20) + 77];

/// Bytes that tell where they are and which operation they are of.
fn bytes_of(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + number * 31) % 251).unwrap()).collect()
}

fn one_sided() -> Options {
    Options { tx_size: 1024, provider: "shm", ..Options::default() }
}

fn open_for(direct: CmaMode) -> Side {
    let settings = Settings { cma: direct, ..Settings::default() };
    Side::open(one_sided(), Arc::new(FdWaitObject::new(true).unwrap()), |_| {
        Box::new(move |_: Option<Addr>| ShmTransport::new(None, settings.clone()))
    })
}

/// Completes operations of the first side, successfully. Returns the bytes of each.
fn complete(sides: &mut [&mut Side; 2], contexts: &[usize]) -> Vec<Vec<u8>> {
    expect(&RealTime, sides, "operations complete", |sides| {
        contexts.iter().all(|context| sides[0].outcome(*context).is_some())
    });
    let take = |context: &usize| sides[0].take(*context).pop().unwrap();
    let ended = contexts.iter().map(take).inspect(|ended| assert!(ended.outcome.is_ok(), "{:?}", ended.outcome));
    ended.map(|ended| ended.bytes).collect()
}

#[test]
fn operations_that_overlap_are_carried_out_in_order() {
    for mode in CmaMode::ALL {
        let (mut a, mut b) = (open_for(mode), open_for(mode));
        let (to_b, exposed) = (a.know(b.addr()), b.expose(KEY, vec![0; ROOM]));
        let mut rng = fastrand::Rng::with_seed(7);
        let mut expected = vec![0; ROOM];
        let mut direct = 0;
        for round in 0..40 {
            let before = process::seam::bytes_read();
            let mut contexts = Vec::new();
            for number in 0..6 {
                // Short ones are as likely, which must not overtake the others.
                let len = if rng.bool() { rng.usize(1..100) } else { SIZES[rng.usize(..SIZES.len())] };
                let (at, bytes) = (rng.usize(..=ROOM - len), bytes_of(round * 6 + number, len));
                expected[at..at + len].copy_from_slice(&bytes);
                contexts.push(a.write(&Target::new(to_b, KEY, at as u64, len), bytes));
            }
            complete(&mut [&mut a, &mut b], &contexts);
            direct += process::seam::bytes_read() - before;
            assert!(exposed.bytes() == expected, "{mode:?}: round {round}");
            let mut reads = Vec::new();
            for _ in 0..3 {
                let len = SIZES[rng.usize(..SIZES.len())];
                let at = rng.usize(..=ROOM - len);
                reads.push((a.read(&Target::new(to_b, KEY, at as u64, len)), at..at + len));
            }
            let contexts: Vec<_> = reads.iter().map(|(context, _)| *context).collect();
            let found = complete(&mut [&mut a, &mut b], &contexts);
            for (found, (_, range)) in found.iter().zip(reads) {
                assert!(*found == expected[range], "{mode:?}: round {round}");
            }
        }
        // Of the writes alone.
        match mode {
            CmaMode::IfFaster => {}
            _ if mode.is_allowed() => assert!(direct > ROOM, "{mode:?}: {direct}"),
            _ => assert_eq!(direct, 0),
        }
        exposed.close();
    }
}

/// Completes an operation of each size, so that each side knows whether it may reach the other's
/// memory.
fn acquaint(a: &mut Side, b: &mut Side, to_b: FiAddr) {
    for size in SIZES {
        let target = Target::new(to_b, KEY, 0, size);
        for _ in 0..3 {
            let contexts = [a.write(&target, bytes_of(1, size)), a.read(&target)];
            complete(&mut [a, b], &contexts);
        }
    }
}

/// Length of the writes from [`Nowhere`].
const LONG: usize = 100_000;

/// Memory that the system has not provided yet.
struct Nowhere(*mut u8);

impl Nowhere {
    fn new() -> Self {
        Self(map_far_away(LONG))
    }

    fn buffer(&self) -> Buffer {
        // SAFETY: it is mapped until the value is dropped, and each test completes what uses it.
        Buffer::One(unsafe { Span::new(self.0, LONG) })
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), LONG) }, 0);
    }
}

/// Writes from there, and then the last word of the same range.
fn write_from_nowhere(side: &mut Side, to: FiAddr, nowhere: &Nowhere) -> [usize; 2] {
    let first = side.write_lent(&Target::new(to, KEY, 0, LONG), nowhere.buffer());
    [first, side.write(&Target::new(to, KEY, LONG as u64 - 8, 8), vec![1; 8])]
}

fn check_write_from_nowhere(bytes: &[u8], before: &[u8]) {
    assert!(bytes[..LONG - 8].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[LONG - 8..LONG], [1; 8], "the writes are in order");
    assert!(bytes[LONG..] == before[LONG..]);
}

#[test]
fn a_write_whose_pages_are_missing_keeps_its_order() {
    for mode in [CmaMode::IfAllowed, CmaMode::Read, CmaMode::Both] {
        let (mut a, mut b) = (open_for(mode), open_for(mode));
        let (to_b, exposed) = (a.know(b.addr()), b.expose(KEY, vec![9; ROOM]));
        acquaint(&mut a, &mut b, to_b);
        let bounced = seam_of_shm::bounced();
        // More than after which the initiator lends no more for a while.
        for _ in 0..12 {
            let (before, nowhere) = (exposed.bytes(), Nowhere::new());
            let contexts = write_from_nowhere(&mut a, to_b, &nowhere);
            complete(&mut [&mut a, &mut b], &contexts);
            check_write_from_nowhere(&exposed.bytes(), &before);
        }
        assert!(seam_of_shm::bounced() > bounced, "{mode:?}");
        exposed.close();
    }
}

#[test]
fn writes_of_both_directions_whose_pages_are_missing_keep_their_order() {
    let (mut a, mut b) = (open_for(CmaMode::IfAllowed), open_for(CmaMode::IfAllowed));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    let (of_a, of_b) = (a.expose(KEY, vec![9; ROOM]), b.expose(KEY, vec![9; ROOM]));
    acquaint(&mut a, &mut b, to_b);
    acquaint(&mut b, &mut a, to_a);
    for _ in 0..5 {
        let (before, bounced) = ([of_a.bytes(), of_b.bytes()], seam_of_shm::bounced());
        let nowhere = [Nowhere::new(), Nowhere::new()];
        let mine = write_from_nowhere(&mut a, to_b, &nowhere[0]);
        let theirs = write_from_nowhere(&mut b, to_a, &nowhere[1]);
        expect(&RealTime, &mut [&mut a, &mut b], "the writes complete", |sides| {
            let ended = |side: usize, contexts: &[usize]| contexts.iter().all(|one| sides[side].is_done(*one));
            ended(0, &mine) && ended(1, &theirs)
        });
        check_write_from_nowhere(&of_a.bytes(), &before[0]);
        check_write_from_nowhere(&of_b.bytes(), &before[1]);
        assert_eq!(seam_of_shm::bounced() - bounced, 2 * LONG.div_ceil(1024), "both came in pieces");
        // Both may lend again.
        acquaint(&mut a, &mut b, to_b);
        acquaint(&mut b, &mut a, to_a);
    }
}

#[test]
fn sides_that_sleep_bring_a_write_whose_pages_are_missing() {
    let (mut a, mut b) = (open_for(CmaMode::IfAllowed), open_for(CmaMode::IfAllowed));
    let (to_b, to_a) = (a.know(b.addr()), b.know(a.addr()));
    let exposed = b.expose(KEY, vec![9; ROOM]);
    acquaint(&mut a, &mut b, to_b);
    let (before, bounced, nowhere) = (exposed.bytes(), seam_of_shm::bounced(), Nowhere::new());
    let (ep_a, ep_b) = (a.ep.clone(), b.ep.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ends when the initiator says so.
            let got = b.receive(FiAddr::UNSPEC, 1, 8);
            wait(&mut b, &ep_a, got);
            let sent = b.send(to_a, 1, vec![1; 8]);
            wait(&mut b, &ep_a, sent);
        });
        for context in write_from_nowhere(&mut a, to_b, &nowhere) {
            wait(&mut a, &ep_b, context);
        }
        let (sent, got) = (a.send(to_b, 1, vec![1; 8]), a.receive(FiAddr::UNSPEC, 1, 8));
        wait(&mut a, &ep_b, sent);
        wait(&mut a, &ep_b, got);
    });
    check_write_from_nowhere(&exposed.bytes(), &before);
    assert_eq!(seam_of_shm::bounced() - bounced, LONG.div_ceil(1024));
}

#[test]
fn operations_go_on_if_reading_is_denied() {
    let (mut a, mut b) = (open_for(CmaMode::IfAllowed), open_for(CmaMode::IfAllowed));
    let (to_b, exposed) = (a.know(b.addr()), b.expose(KEY, vec![0; ROOM]));
    acquaint(&mut a, &mut b, to_b);
    // The filter is this thread's, and ends with it.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            deny_reading();
            for round in 0..20 {
                let mut expected = exposed.bytes();
                // A response and the writes behind it cross.
                let mut contexts = vec![a.read(&Target::new(to_b, KEY, 50_000, 200_000))];
                for (at, len) in [(0, 300_000), (100_000, 65_536), (120_000, 8), (0, 65_536)] {
                    let bytes = bytes_of(round + at, len);
                    expected[at..at + len].copy_from_slice(&bytes);
                    contexts.push(a.write(&Target::new(to_b, KEY, at as u64, len), bytes));
                }
                contexts.push(a.read(&Target::new(to_b, KEY, 50_000, 200_000)));
                let found = complete(&mut [&mut a, &mut b], &contexts);
                assert!(found[5] == expected[50_000..250_000] && exposed.bytes() == expected, "round {round}");
            }
            assert!(seam_of_shm::bounced() > 0);
            assert_eq!(process::seam::bytes_read(), 0);
        });
    });
}

#[test]
fn memory_that_is_unmapped_under_way_costs_its_write_alone() {
    let (mut a, mut b) = (open_for(CmaMode::IfAllowed), open_for(CmaMode::IfAllowed));
    let (to_b, exposed) = (a.know(b.addr()), b.expose(KEY, vec![0; ROOM]));
    acquaint(&mut a, &mut b, to_b);
    let len = 200_000;
    let memory = map_far_away(len);
    // SAFETY: the test unmaps it before the write has completed, on purpose: only the other side's
    // system call reads it.
    let span = unsafe { Span::new(memory, len) };
    let failing = a.write_lent(&Target::new(to_b, KEY, 0, len), Buffer::One(span));
    // SAFETY: the mapping is the test's own.
    assert_eq!(unsafe { libc::munmap(memory.cast(), len) }, 0);
    let behind = a.write(&Target::new(to_b, KEY, 8, 8), vec![5; 8]);
    expect(&RealTime, &mut [&mut a, &mut b], "one fails and one succeeds", |sides| {
        [failing, behind].iter().all(|context| sides[0].outcome(*context).is_some())
    });
    let failure = a.outcome(failing).unwrap().as_ref().expect_err("completed without its memory");
    assert_eq!(failure.errno, Errno::EFAULT);
    assert!(a.outcome(behind).unwrap().is_ok());
    assert_eq!(exposed.bytes()[8..16], [5; 8]);
    let context = a.write(&Target::new(to_b, KEY, 0, len), bytes_of(3, len));
    complete(&mut [&mut a, &mut b], &[context]);
    assert!(exposed.bytes()[..len] == bytes_of(3, len));
    assert!(a.try_write(&Target::new(to_b, KEY, 0, 8), vec![1; 8], None, OpFlags::empty()).is_ok());
}
