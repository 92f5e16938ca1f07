//! Which receive takes which message: posted receives and unexpected messages, each in order (fi_tagged(3)).
//! Invariant: a message and a receive that fit each other are never both in here.
//! Entries hold what is compared, close together; the operations themselves live in slabs of the endpoint.

use ofi_core::FiAddr;
use std::collections::VecDeque;

/// What a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not count.
    pub ignore: u64,
    /// The sender, or [`FiAddr::UNSPEC`] for any.
    pub src: FiAddr,
}

impl Pattern {
    /// Whether a message fits.
    #[inline]
    pub fn fits(&self, tag: u64, src: FiAddr) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && (self.src == FiAddr::UNSPEC || self.src == src)
    }
}

#[derive(Debug)]
struct Posted {
    pattern: Pattern,
    key: u32,
    live: bool,
    /// It takes one message after the other until it is withdrawn (FI_MULTI_RECV).
    stays: bool,
}

#[derive(Debug)]
struct Unexpected {
    tag: u64,
    src: FiAddr,
    key: u32,
    live: bool,
}

/// A queue of posted receives and one of unexpected messages. Removing from the middle leaves a gap that is
/// closed when it reaches the front.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Those before `front` are gone; the one there is live, unless there is none.
    posted: Vec<Posted>,
    front: usize,
    posted_live: usize,
    unexpected: VecDeque<Unexpected>,
    unexpected_live: usize,
}

impl Matcher {
    /// Posts a receive that no unexpected message fits.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, key: u32) {
        self.push(Posted { pattern, key, live: true, stays: false });
    }

    /// Posts a receive that takes messages until it is withdrawn. Those that wait already are the caller's to give.
    pub fn post_staying(&mut self, pattern: Pattern, key: u32) {
        self.push(Posted { pattern, key, live: true, stays: true });
    }

    #[inline(always)]
    fn push(&mut self, posted: Posted) {
        if self.posted.len() == self.posted.capacity() {
            self.make_room();
        }
        self.posted.push(posted);
        self.posted_live += 1;
    }

    #[cold]
    fn make_room(&mut self) {
        if self.front > self.posted.len() / 2 {
            self.drop_gone();
        } else {
            self.posted.reserve(self.posted.len().max(32));
        }
    }

    fn drop_gone(&mut self) {
        self.posted.drain(..self.front);
        self.front = 0;
    }

    /// The oldest posted receive if the message fits it and it goes with one message: [`Self::take_first`] removes it.
    #[inline(always)]
    pub fn first(&self, tag: u64, src: FiAddr) -> Option<u32> {
        self.posted.get(self.front).filter(|first| first.pattern.fits(tag, src) && !first.stays).map(|first| first.key)
    }

    /// Removes the oldest posted receive.
    #[inline(always)]
    pub fn take_first(&mut self) {
        self.front += 1;
        self.posted_live -= 1;
        if self.posted_live == 0 {
            // Used again from the beginning, where the cache still knows it.
            self.posted.clear();
            self.front = 0;
        } else if !self.posted.get(self.front).is_some_and(|next| next.live) {
            self.close_gaps();
        }
    }

    /// Whether messages wait for receives.
    #[inline(always)]
    pub const fn has_unexpected(&self) -> bool {
        self.unexpected_live > 0
    }

    /// The oldest posted receive that the message fits, removed unless it stays.
    pub fn take_posted(&mut self, tag: u64, src: FiAddr) -> Option<u32> {
        if let Some(first) = self.first(tag, src) {
            self.take_first();
            return Some(first);
        }
        let at = self.position(|posted| posted.pattern.fits(tag, src))?;
        if self.posted[at].stays {
            return Some(self.posted[at].key);
        }
        Some(self.remove_posted_at(at))
    }

    /// The place of the oldest posted receive of which that is true.
    fn position(&self, mut what: impl FnMut(&Posted) -> bool) -> Option<usize> {
        let at = self.posted[self.front..].iter().position(|posted| posted.live && what(posted))?;
        Some(self.front + at)
    }

    fn remove_posted_at(&mut self, at: usize) -> u32 {
        let entry = &mut self.posted[at];
        entry.live = false;
        let key = entry.key;
        self.posted_live -= 1;
        self.close_gaps();
        key
    }

    /// Gaps at the front go at once, those elsewhere when there are many.
    fn close_gaps(&mut self) {
        while self.posted.get(self.front).is_some_and(|posted| !posted.live) {
            self.front += 1;
        }
        let held = self.posted.len() - self.front;
        if held == 0 {
            self.posted.clear();
            self.front = 0;
        } else if held > 32 && held / 4 > self.posted_live {
            self.drop_gone();
            self.posted.retain(|posted| posted.live);
        }
    }

    /// Removes a posted receive; false if it is not posted (any more).
    pub fn withdraw(&mut self, key: u32) -> bool {
        match self.position(|posted| posted.key == key) {
            Some(at) => {
                self.remove_posted_at(at);
                true
            }
            None => false,
        }
    }

    /// The oldest unexpected message that fits, left where it is.
    pub fn find_unexpected(&self, pattern: &Pattern) -> Option<u32> {
        self.unexpected.iter().find(|entry| entry.live && pattern.fits(entry.tag, entry.src)).map(|entry| entry.key)
    }

    /// The keys of the posted receives, oldest first.
    pub fn posted(&self) -> impl Iterator<Item = u32> + '_ {
        self.posted[self.front..].iter().filter(|posted| posted.live).map(|posted| posted.key)
    }

    /// The keys of the posted receives that name `src`, oldest first.
    pub fn posted_from(&self, src: FiAddr) -> impl Iterator<Item = u32> + '_ {
        let held = self.posted[self.front..].iter();
        held.filter(move |posted| posted.live && posted.pattern.src == src).map(|posted| posted.key)
    }

    /// Queues a message that no posted receive fits.
    pub fn push_unexpected(&mut self, tag: u64, src: FiAddr, key: u32) {
        self.unexpected.push_back(Unexpected { tag, src, key, live: true });
        self.unexpected_live += 1;
    }

    /// The oldest unexpected message that fits the receive, removed.
    #[inline]
    pub fn take_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        if self.unexpected_live == 0 {
            return None;
        }
        let at = self.unexpected.iter().position(|entry| entry.live && pattern.fits(entry.tag, entry.src))?;
        Some(self.remove_unexpected_at(at))
    }

    fn remove_unexpected_at(&mut self, at: usize) -> u32 {
        let entry = &mut self.unexpected[at];
        entry.live = false;
        let key = entry.key;
        self.unexpected_live -= 1;
        while self.unexpected.front().is_some_and(|entry| !entry.live) {
            self.unexpected.pop_front();
        }
        if self.unexpected.len() > 32 && self.unexpected.len() / 4 > self.unexpected_live {
            self.unexpected.retain(|entry| entry.live);
        }
        key
    }

    /// Removes an unexpected message: it can no longer be received, or is promised to somebody.
    pub fn drop_unexpected(&mut self, key: u32) {
        if let Some(at) = self.unexpected.iter().position(|entry| entry.live && entry.key == key) {
            self.remove_unexpected_at(at);
        }
    }

    /// Renames senders after the address vector changed; receives that now fit a message are not looked for by
    /// renaming, so `each` returns the new name and the caller looks again.
    pub fn rename(&mut self, mut each: impl FnMut(u32, FiAddr) -> FiAddr) {
        for entry in self.unexpected.iter_mut().filter(|entry| entry.live) {
            entry.src = each(entry.key, entry.src);
        }
    }

    /// The oldest message and the receive that fit each other, both removed, the receive unless it stays: only after
    /// [`Self::rename`].
    pub fn take_pair(&mut self) -> Option<(u32, u32)> {
        let (at, posted) =
            self.unexpected.iter().enumerate().filter(|(_, entry)| entry.live).find_map(|(at, entry)| {
                let posted = self.position(|posted| posted.pattern.fits(entry.tag, entry.src))?;
                Some((at, posted))
            })?;
        let receive = if self.posted[posted].stays { self.posted[posted].key } else { self.remove_posted_at(posted) };
        Some((self.remove_unexpected_at(at), receive))
    }

    /// How many receives are posted.
    pub const fn posted_len(&self) -> usize {
        self.posted_live
    }

    /// How many messages wait.
    pub const fn unexpected_len(&self) -> usize {
        self.unexpected_live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Post(Pattern),
        Arrive(u64, u64),
        Withdraw(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let src = prop_oneof![Just(FiAddr::UNSPEC), (0u64..3).prop_map(FiAddr)];
        let ignore = prop_oneof![Just(0u64), Just(3), Just(u64::MAX)];
        let pattern = (0u64..4, ignore, src).prop_map(|(tag, ignore, src)| Pattern { tag, ignore, src });
        prop_oneof![
            3 => pattern.prop_map(Step::Post),
            3 => (0u64..4, 0u64..3).prop_map(|(tag, src)| Step::Arrive(tag, src)),
            1 => (0usize..8).prop_map(Step::Withdraw),
        ]
    }

    /// The rule, said as plainly as possible: two lists, searched from the front.
    #[derive(Default)]
    struct Model {
        posted: Vec<(Pattern, u32)>,
        waiting: Vec<(u64, FiAddr, u32)>,
    }

    proptest! {
        #[test]
        fn matching_equals_a_naive_model(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut model, mut matcher) = (Model::default(), Matcher::default());
            for (key, step) in (0u32..).zip(steps) {
                match step {
                    Step::Post(pattern) => {
                        let at = model.waiting.iter().position(|(tag, src, _)| {
                            (tag | pattern.ignore) == (pattern.tag | pattern.ignore)
                                && (pattern.src == FiAddr::UNSPEC || pattern.src == *src)
                        });
                        let expected = at.map(|at| model.waiting.remove(at).2);
                        let found = matcher.take_unexpected(&pattern);
                        prop_assert_eq!(found, expected);
                        if found.is_none() {
                            model.posted.push((pattern, key));
                            matcher.post(pattern, key);
                        }
                    }
                    Step::Arrive(tag, src) => {
                        let src = FiAddr(src);
                        let at = model.posted.iter().position(|(pattern, _)| {
                            (tag | pattern.ignore) == (pattern.tag | pattern.ignore)
                                && (pattern.src == FiAddr::UNSPEC || pattern.src == src)
                        });
                        let expected = at.map(|at| model.posted.remove(at).1);
                        let found = matcher.take_posted(tag, src);
                        prop_assert_eq!(found, expected);
                        if found.is_none() {
                            model.waiting.push((tag, src, key));
                            matcher.push_unexpected(tag, src, key);
                        }
                    }
                    Step::Withdraw(at) => {
                        if at < model.posted.len() {
                            let (_, key) = model.posted.remove(at);
                            prop_assert!(matcher.withdraw(key));
                            prop_assert!(!matcher.withdraw(key));
                        }
                    }
                }
                prop_assert_eq!(matcher.posted().collect::<Vec<_>>(), model.posted.iter().map(|p| p.1).collect::<Vec<_>>());
                prop_assert_eq!(matcher.unexpected_len(), model.waiting.len());
                prop_assert!(matcher.take_pair().is_none());
            }
        }
    }

    #[test]
    fn a_renamed_sender_finds_its_receive() {
        let mut matcher = Matcher::default();
        matcher.push_unexpected(1, FiAddr::UNSPEC, 10);
        let pattern = Pattern { tag: 1, ignore: 0, src: FiAddr(5) };
        assert_eq!(matcher.take_unexpected(&pattern), None);
        matcher.post(pattern, 20);
        matcher.rename(|_, _| FiAddr(5));
        assert_eq!(matcher.take_pair(), Some((10, 20)));
        assert_eq!(matcher.take_pair(), None);
    }
}
