//! How often a poll that finds nothing looks at the lines that come next.
//!
//! A look takes the line into this core's cache, and the peer's next store has to fetch it back: a
//! reader that looks all the time slows a peer down that sends a burst. Not one that answers, and
//! for an answer the moment counts: polls after a send look often.

use core::cell::Cell;

/// Further looks of a poll that awaits an answer: together they take about as long as 15 polls.
const MORE: usize = 15;
/// More messages in a row, either way, are a burst, and the peer is better left alone with it.
const FEW_MESSAGES: u32 = 4;
/// Polls after a send that look once: the peer may be in the middle of a burst of its own.
const FEW_POLLS: u32 = 3;
/// Polls after a send until the wait is so long, some microseconds, that the moment does not count.
/// If the peer waits for this core, it is better left to it.
const ALL_POLLS: u32 = 16;

thread_local! {
    /// The address of the [`Looks`] for whose endpoint the thread has last awaited an answer.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// What an endpoint has sent and read, and how often it was polled in vain since.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Messages that were sent since a line was last read: the program may await an answer.
    sent: u32,
    /// Reads since a message was last sent.
    read: u32,
    /// Reads before that message, and after the one before it.
    read_before: u32,
    /// Polls that have found nothing since the first of the messages in `sent`.
    empty: u32,
    /// The thread has awaited the last answer here too, not at another endpoint.
    is_only: bool,
}

impl Looks {
    /// A message is sent.
    #[inline(always)]
    pub(super) const fn note_sent(&mut self) {
        if self.read > 0 {
            (self.read_before, self.read) = (self.read, 0);
        }
        self.sent = self.sent.saturating_add(1);
    }

    /// A line was read.
    #[inline(always)]
    pub(super) const fn note_read(&mut self) {
        (self.sent, self.empty) = (0, 0);
        self.read = self.read.saturating_add(1);
    }

    /// Counts a poll that has looked once at each link; returns how many more looks are worth their
    /// time.
    #[inline(always)]
    pub(super) fn count(&mut self) -> usize {
        if self.sent == 0 || self.sent > FEW_MESSAGES || self.read_before > FEW_MESSAGES {
            return 0;
        }
        self.empty = self.empty.saturating_add(1);
        if self.empty == 1 {
            self.compare();
        }
        if self.is_only && self.empty > FEW_POLLS && self.empty <= ALL_POLLS { MORE } else { 0 }
    }

    /// Finds out whether the thread has last awaited an answer here. If it has not, it may await
    /// answers at several endpoints in turn, and many looks at one would delay the others.
    #[inline(never)]
    fn compare(&mut self) {
        let address = core::ptr::from_ref(self).addr();
        self.is_only = LAST.replace(address) == address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(looks: &mut Looks, count: u32) -> Vec<usize> {
        (0..count).map(|_| looks.count()).collect()
    }

    #[test]
    fn polls_look_often_for_a_while_after_a_send() {
        let mut looks = Looks::default();
        looks.compare();
        assert_eq!(polls(&mut looks, 100), [0; 100], "nothing was sent");
        looks.note_sent();
        assert_eq!(polls(&mut looks, FEW_POLLS), [0; FEW_POLLS as usize]);
        let often = ALL_POLLS - FEW_POLLS;
        assert_eq!(polls(&mut looks, often), vec![MORE; often as usize]);
        assert_eq!(polls(&mut looks, 100), [0; 100], "the answer takes long");
        looks.note_read();
        assert_eq!(polls(&mut looks, 100), [0; 100], "what comes now is no answer");
        looks.note_sent();
        assert_eq!(polls(&mut looks, FEW_POLLS + 1), [0, 0, 0, MORE]);
        looks.note_read();
        (0..=FEW_MESSAGES).for_each(|_| looks.note_sent());
        assert_eq!(polls(&mut looks, 100), [0; 100], "the answer comes to a burst");
        (0..=FEW_MESSAGES).for_each(|_| looks.note_read());
        looks.note_sent();
        assert_eq!(polls(&mut looks, 100), [0; 100], "the next burst comes");
        looks.note_read();
        looks.note_sent();
        assert_eq!(polls(&mut looks, FEW_POLLS + 1), [0, 0, 0, MORE]);
    }

    #[test]
    fn a_thread_that_awaits_answers_at_two_endpoints_looks_once_at_each() {
        let mut both = [Looks::default(), Looks::default()];
        for _ in 0..10 {
            both.iter_mut().for_each(Looks::note_sent);
            for _ in 0..10 {
                assert_eq!(both.each_mut().map(Looks::count), [0; 2]);
            }
            both.iter_mut().for_each(Looks::note_read);
        }
        let awaits = |looks: &mut Looks| {
            looks.note_sent();
            let often = polls(looks, FEW_POLLS + 1).contains(&MORE);
            looks.note_read();
            often
        };
        let [one, other] = &mut both;
        assert_eq!([awaits(one), awaits(one)], [false, true], "the thread polls this one alone now");
        let twice = std::thread::scope(|scope| scope.spawn(|| [awaits(other), awaits(other)]).join().unwrap());
        assert_eq!(twice, [false, true], "another thread polls the other one alone");
        assert!(awaits(one), "which does not matter here");
    }
}
