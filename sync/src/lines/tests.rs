use super::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Plain(Arc<(Vec<[AtomicU64; WORDS]>, AtomicU64)>);

impl Memory for Plain {
    fn line(&self, index: usize) -> &[AtomicU64; WORDS] {
        &self.0.0[index]
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.0.1
    }
}

fn ring() -> (Plain, Writer<Plain>, Reader<Plain>) {
    let lines = (0..LINES).map(|_| core::array::from_fn(|_| AtomicU64::new(0))).collect();
    let memory = Plain(Arc::new((lines, AtomicU64::new(0))));
    (memory.clone(), Writer::new(memory.clone()), Reader::new(memory))
}

#[test]
fn lines_arrive_in_order_for_many_laps() {
    let (_, mut writer, mut reader) = ring();
    let mut sent = 0u64;
    for read in 0..LINES * 66_000 {
        while writer.has_room(1).unwrap() {
            writer.write(sent & HEAD, &[sent; BODY]);
            sent += 1;
        }
        let (head, body) = reader.read().expect("a line");
        assert_eq!((head, body), (read & HEAD, [read; BODY]));
        reader.advance(1);
    }
    // The stamps have wrapped round by now.
    assert!(sent > LINES << 16);
}

#[test]
fn a_full_ring_has_no_room_until_the_reader_tells() {
    let (_, mut writer, mut reader) = ring();
    for _ in 0..LINES {
        assert_eq!(writer.has_room(1), Ok(true));
        writer.write(0, &[0; BODY]);
    }
    assert_eq!(writer.has_room(1), Ok(false));
    reader.advance(1);
    assert_eq!(writer.has_room(1), Ok(false));
    reader.tell();
    assert_eq!(writer.has_room(1), Ok(true));
    assert_eq!(writer.has_room(2), Ok(false));
}

#[test]
fn two_lines_are_one() {
    let (_, mut writer, mut reader) = ring();
    for lap in 0..3 * LINES / 2 + 1 {
        assert!(writer.has_room(2).unwrap());
        writer.write_two(7, &[lap; BODY], &[lap + 1; BODY]);
        assert_eq!(reader.read(), Some((7, [lap; BODY])));
        assert_eq!(reader.read_second(), Ok([lap + 1; BODY]));
        reader.advance(2);
        assert!(!reader.is_ready());
    }
}

#[test]
fn a_reader_that_claims_too_much_or_goes_back_is_noticed() {
    let (memory, mut writer, _) = ring();
    writer.write(0, &[0; BODY]);
    memory.consumed().store(2, Ordering::Relaxed);
    assert_eq!(writer.look(), Err(Damaged));
    memory.consumed().store(1, Ordering::Relaxed);
    assert_eq!(writer.look(), Ok(1));
    memory.consumed().store(0, Ordering::Relaxed);
    assert_eq!(writer.look(), Err(Damaged));
}

#[test]
fn the_wake_action_depends_on_the_sleep_state() {
    let word = AtomicU64::new(0);
    for (state, line, room) in [
        (SleepState::awake(false), WakeAction::Nothing, WakeAction::Nothing),
        (SleepState::awake(true), WakeAction::Note, WakeAction::Nothing),
        (SleepState::asleep(false, false), WakeAction::Wake, WakeAction::Nothing),
        (SleepState::asleep(true, false), WakeAction::Wake, WakeAction::Nothing),
        (SleepState::asleep(true, true), WakeAction::Wake, WakeAction::Wake),
    ] {
        for (news, expected) in [(News::Line, line), (News::Room, room)] {
            state.announce(&word);
            assert_eq!(wake_action(&word, news, Order::ByBoth), expected, "{state:?} {news:?}");
            if expected == WakeAction::Wake {
                // Once; an idle link stays idle.
                assert!(was_woken(&word));
                assert_ne!(wake_action(&word, news, Order::ByBoth), WakeAction::Wake);
            }
        }
    }
}

#[test]
fn scribbling_never_panics() {
    let (memory, mut writer, mut reader) = ring();
    let mut x = 88_172_645_463_325_252u64;
    for _ in 0..100_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memory.line(index(x >> 8))[index(x) % WORDS].store(x, Ordering::Relaxed);
        if x.is_multiple_of(97) {
            memory.consumed().store(x >> 40, Ordering::Relaxed);
        }
        if writer.has_room(2) == Ok(true) {
            writer.write_two(x, &[x; BODY], &[x; BODY]);
        }
        if reader.read().is_some() {
            reader.advance(1 + u64::from(reader.read_second().is_ok()));
        }
    }
}
