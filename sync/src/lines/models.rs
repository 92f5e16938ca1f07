use super::*;
use crate::primitive::{Arc, AtomicBool};

#[derive(Clone)]
struct Plain(Arc<([[AtomicU64; WORDS]; LINES as usize], AtomicU64)>);

impl Memory for Plain {
    fn line(&self, index: usize) -> &[AtomicU64; WORDS] {
        &self.0.0[index]
    }
    fn consumed(&self) -> &AtomicU64 {
        &self.0.1
    }
}

fn ring() -> Plain {
    let zero = || core::array::from_fn(|_| AtomicU64::new(0));
    Plain(Arc::new((core::array::from_fn(|_| zero()), AtomicU64::new(0))))
}

#[test]
fn a_line_is_seen_whole() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memory = ring();
        let mut reader = Reader::new(memory.clone());
        let mut writer = Writer::new(memory);
        let other = loom::thread::spawn(move || {
            for number in 0..LINES + 2 {
                while !writer.has_room(1).unwrap() {
                    loom::thread::yield_now();
                }
                writer.write(number, &[number; BODY]);
            }
        });
        for number in 0..LINES + 2 {
            let (head, body) = loop {
                if let Some(line) = reader.read() {
                    break line;
                }
                loom::thread::yield_now();
            };
            assert_eq!((head, body[0], body[BODY - 1]), (number, number, number));
            reader.advance(1);
        }
        other.join().unwrap();
    });
}

#[test]
fn two_lines_are_seen_together() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let memory = ring();
        let reader = Reader::new(memory.clone());
        let mut writer = Writer::new(memory);
        let other = loom::thread::spawn(move || writer.write_two(1, &[2; BODY], &[3; BODY]));
        if reader.read().is_some() {
            assert_eq!(reader.read_second(), Ok([3; BODY]));
        }
        other.join().unwrap();
    });
}

#[test]
fn no_room_is_slept_through() {
    loom::model(|| {
        let memory = ring();
        let word = Arc::new(AtomicU64::new(0));
        let rung = Arc::new(AtomicBool::new(false));
        let mut reader = Reader::new(memory.clone());
        let mut writer = Writer::new(memory);
        for _ in 0..LINES {
            writer.write(0, &[0; BODY]);
        }
        let other = {
            let (word, rung) = (word.clone(), rung.clone());
            loom::thread::spawn(move || {
                reader.advance(1);
                reader.tell();
                if wake_action(&word, News::Room, Order::ByBoth) == WakeAction::Wake {
                    rung.store(true, Ordering::Relaxed);
                }
            })
        };
        SleepState::asleep(false, true).announce(&word);
        order_own();
        let saw = writer.has_room(1).unwrap();
        other.join().unwrap();
        assert!(saw || rung.load(Ordering::Relaxed), "would sleep for ever");
    });
}

/// Another thread writes a line, and records whether it must wake the reader.
fn write_and_wake(
    mut writer: Writer<Plain>,
    word: &Arc<AtomicU64>,
    rung: &Arc<AtomicBool>,
) -> loom::thread::JoinHandle<()> {
    let (word, rung) = (word.clone(), rung.clone());
    loom::thread::spawn(move || {
        writer.write(1, &[0; BODY]);
        if wake_action(&word, News::Line, Order::ByBoth) == WakeAction::Wake {
            rung.store(true, Ordering::Relaxed);
        }
    })
}

fn no_line_is_slept_through_by(idle: bool) {
    loom::model(move || {
        let memory = ring();
        let word = Arc::new(AtomicU64::new(0));
        let rung = Arc::new(AtomicBool::new(false));
        let reader = Reader::new(memory.clone());
        let writer = Writer::new(memory);
        let other = write_and_wake(writer, &word, &rung);
        SleepState::asleep(idle, false).announce(&word);
        order_own();
        let saw = reader.is_ready();
        other.join().unwrap();
        assert!(saw || rung.load(Ordering::Relaxed), "would sleep for ever");
        assert!(!rung.load(Ordering::Relaxed) || was_woken(&word));
    });
}

#[test]
fn no_line_is_slept_through() {
    no_line_is_slept_through_by(false);
    no_line_is_slept_through_by(true);
}

/// A line wakes a sleeper that meanwhile announces that it also waits for room, and does not
/// check for lines again.
#[test]
fn no_line_is_slept_through_by_a_side_that_announces_its_sleep_anew() {
    loom::model(|| {
        let memory = ring();
        let word = Arc::new(AtomicU64::new(0));
        let rung = Arc::new(AtomicBool::new(false));
        let reader = Reader::new(memory.clone());
        let writer = Writer::new(memory);
        SleepState::asleep(false, false).announce(&word);
        let other = write_and_wake(writer, &word, &rung);
        SleepState::asleep(false, true).announce(&word);
        other.join().unwrap();
        assert!(reader.is_ready());
        assert!(rung.load(Ordering::Relaxed), "would sleep for ever");
    });
}

#[test]
fn a_line_is_seen_by_the_reader_that_takes_its_bit() {
    loom::model(|| {
        let memory = ring();
        let (word, bitmap) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        SleepState::awake(true).announce(&word);
        let reader = Reader::new(memory.clone());
        let mut writer = Writer::new(memory);
        let other = {
            let bitmap = bitmap.clone();
            loom::thread::spawn(move || {
                writer.write(1, &[0; BODY]);
                assert_eq!(wake_action(&word, News::Line, Order::ByReader), WakeAction::Note);
                set_ready(&bitmap, 2);
            })
        };
        let early = take_ready(&bitmap);
        assert!(early == 0 || reader.is_ready());
        other.join().unwrap();
        assert_eq!(early | take_ready(&bitmap), 2, "the bit is lost");
        assert!(reader.is_ready());
    });
}
