//! Match queues: match messages to receives. Posted receives and unexpected messages are each kept
//! in order (fi_tagged(3)).
//! A message names its sender by peer number, which changes to the address vector do not affect.
//! Invariant: a message and a receive that fit each other are never both queued, except between
//! [`MatchQueue::resolve`] or [`MatchQueue::merge`] and the caller's next match.
//! Entries hold only the compared fields, close together; the operations live in tables of the
//! endpoint.

mod entries;
mod filter;
mod index;
mod pattern;
mod queues;

use entries::{Posted, Unexpected};
use index::{Excess, Lazy, Position, PostedIndex, Search, UnexpectedIndex};
use ofi_core::FiAddr;
use ofi_sync::account::Account;
pub(crate) use pattern::{Pattern, Source};
pub(crate) use queues::{MatchQueues, QueueKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries up to which a queue has no use for an index. Tests make long queues short.
const LINEAR: usize = if cfg!(test) { 3 } else { 32 };

/// A queue of posted receives and one of unexpected messages. Removing from the middle leaves a gap
/// that is closed when it reaches the front.
#[derive(Debug)]
pub(crate) struct MatchQueue {
    /// Entries before `front` are gone; the first at `front` and the last, if any, are live.
    posted: Vec<Posted>,
    front: usize,
    posted_live: usize,
    /// Of all entries but the last few: most receives are matched before they would be indexed.
    posted_index: Lazy<PostedIndex>,
    /// The place of the receive that [`Self::first`] found.
    found: usize,
    /// The first, if any, is live.
    unexpected: VecDeque<Unexpected>,
    unexpected_live: usize,
    /// The place of the entry at 0.
    unexpected_base: Position,
    unexpected_index: Lazy<UnexpectedIndex>,
    /// Charged for that index.
    account: Arc<Account>,
    /// Posted receives whose handle has no known peer yet.
    pending: usize,
    /// Number of posted receives that only one sender can fill, by the sender's number.
    directed: Vec<u32>,
}

impl MatchQueue {
    /// An empty queue. Its index of unexpected messages is charged to the account.
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self {
            posted: Vec::new(),
            front: 0,
            posted_live: 0,
            posted_index: Lazy::default(),
            found: 0,
            unexpected: VecDeque::new(),
            unexpected_live: 0,
            unexpected_base: 0,
            unexpected_index: Lazy::default(),
            account: account.clone(),
            pending: 0,
            directed: Vec::new(),
        }
    }

    /// Posts a receive that no unexpected message fits.
    #[inline(always)]
    pub(crate) fn post(&mut self, pattern: Pattern, key: u32) {
        self.push(Posted { pattern, key, live: true, persistent: false });
    }

    /// Posts a receive that takes messages until it is withdrawn. The caller delivers the
    /// unexpected messages that fit.
    pub(crate) fn post_persistent(&mut self, pattern: Pattern, key: u32) {
        self.push(Posted { pattern, key, live: true, persistent: true });
    }

    #[inline(always)]
    fn push(&mut self, posted: Posted) {
        self.pending += usize::from(posted.pattern.src.pending().is_some());
        if let Some(sender) = posted.pattern.src.one() {
            self.count_directed(sender);
        }
        if self.posted.len() == self.posted.capacity() {
            self.make_room();
        }
        self.posted.push(posted);
        self.posted_live += 1;
    }

    /// Counts a posted receive that only this sender can fill.
    #[inline(never)]
    fn count_directed(&mut self, sender: u32) {
        let index = sender as usize;
        if self.directed.len() <= index {
            self.directed.resize(index + 1, 0);
        }
        self.directed[index] += 1;
    }

    /// A receive is no longer posted.
    fn uncount(&mut self, src: Source) {
        if let Some(count) = src.one().and_then(|sender| self.directed.get_mut(sender as usize)) {
            *count -= 1;
        }
    }

    /// Whether posted receives are searched one by one.
    fn posted_is_linear(&self) -> bool {
        let pays = || self.posted_index.built.is_some() || self.posted_index.excess.pays_for(self.posted_live);
        self.posted.len() - self.front <= LINEAR || !pays()
    }

    /// The index of a queue with more than [`LINEAR`] entries: of all but at most as many.
    #[inline]
    fn posted_index(&mut self) -> &mut PostedIndex {
        if self.posted_index.built.as_ref().is_none_or(|index| self.posted.len() - index.len() > LINEAR) {
            self.extend_index();
        }
        self.posted_index.built.get_or_insert_default()
    }

    /// Adds the entries that the index lacks, but the newest: a receive is often matched before the
    /// next is posted. An index that is mostly stale is built anew.
    #[cold]
    fn extend_index(&mut self) {
        self.posted_index.built.take_if(|index| index.is_stale(self.posted_live));
        self.posted_index.excess = Excess::default();
        let index = self.posted_index.built.get_or_insert_default();
        let older = self.posted.len().saturating_sub(1);
        for (place, posted) in self.posted.iter().enumerate().take(older).skip(index.len().max(self.front)) {
            if posted.live {
                index.add(place, &posted.pattern, posted.key);
            }
        }
        index.extend_to(index.len().max(older));
    }

    #[cold]
    fn make_room(&mut self) {
        if self.front > self.posted.len() / 2 {
            self.drop_gone();
        } else {
            // Each connected endpoint has a queue, mostly of one or two.
            self.posted.reserve(self.posted.len().max(2));
        }
    }

    fn drop_gone(&mut self) {
        // The entries get other places.
        self.posted_index.built = None;
        self.posted.drain(..self.front);
        self.front = 0;
    }

    /// The oldest posted receive that the message fits, if it is not persistent:
    /// [`Self::take_first`] removes it.
    #[inline(always)]
    pub(crate) fn first(&mut self, tag: u64, peer: u32) -> Option<u32> {
        let first = self.posted.get(self.front)?;
        self.found = self.front;
        if first.pattern.fits(tag, peer) && !first.persistent {
            Some(first.key)
        } else {
            self.first_of_others(tag, peer)
        }
    }

    /// [`Self::first`] if the oldest receive is not the one.
    #[inline(never)]
    fn first_of_others(&mut self, tag: u64, peer: u32) -> Option<u32> {
        if let Some(index) = &mut self.posted_index.built
            && index.lacks(tag)
            && !index.is_short()
            && let Some(recent) = self.posted.get(index.len()..)
        {
            for (passed, posted) in recent.iter().enumerate() {
                if posted.pattern.fits(tag, peer) && posted.live {
                    index.note_passed(passed);
                    self.found = index.len() + passed;
                    return (!posted.persistent).then_some(posted.key);
                }
            }
            index.note_passed(recent.len());
            return None;
        }
        self.first_of_all(tag, peer)
    }

    #[inline(never)]
    fn first_of_all(&mut self, tag: u64, peer: u32) -> Option<u32> {
        self.found = self.search_posted(tag, peer)?;
        let found = self.posted.get(self.found)?;
        (!found.persistent).then_some(found.key)
    }

    /// Removes the receive that [`Self::first`] has just returned.
    #[inline(always)]
    pub(crate) fn take_first(&mut self) {
        if self.found != self.front || self.posted_index.built.is_some() {
            return if self.is_recent(self.found) { self.take_last() } else { self.take_other() };
        }
        if !self.directed.is_empty() {
            self.uncount(self.posted[self.front].pattern.src);
        }
        self.front += 1;
        self.posted_live -= 1;
        if self.posted_live == 0 {
            // Begin again at 0, where the entries are still cached.
            self.posted.clear();
            self.front = 0;
        } else if !self.posted.get(self.front).is_some_and(|next| next.live) {
            self.close_gaps();
        }
    }

    /// Whether the entry is the last one, and can go without a trace: the index lacks it, and the
    /// one before is live.
    #[inline(always)]
    fn is_recent(&self, at: usize) -> bool {
        at + 1 == self.posted.len()
            && at > self.front
            && self.posted_index.built.as_ref().is_none_or(|index| index.len() <= at)
            && self.posted.get(at - 1).is_some_and(|before| before.live)
    }

    /// Removes the last entry. The caller has seen that [`Self::is_recent`] is true.
    #[inline(always)]
    fn take_last(&mut self) {
        if let Some(last) = self.posted.pop() {
            self.forget(last.pattern.src);
        }
    }

    /// A receive with this source is no longer posted.
    #[inline(always)]
    fn forget(&mut self, src: Source) {
        self.posted_live -= 1;
        if src == Source::ANY {
            return;
        }
        self.pending -= usize::from(src.pending().is_some());
        if !self.directed.is_empty() {
            self.uncount(src);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_other(&mut self) {
        self.remove_posted_at(self.found);
    }

    /// True if posting this receive only queues it, as far as a glance tells: none of the
    /// unexpected messages has its tag.
    #[inline(always)]
    pub(crate) fn only_queues(&self, pattern: &Pattern) -> bool {
        self.unexpected.is_empty() || self.lacks_unexpected(pattern)
    }

    #[inline(never)]
    fn lacks_unexpected(&self, pattern: &Pattern) -> bool {
        let tag = pattern.tag;
        pattern.ignore == 0
            && match &self.unexpected_index.built {
                Some(index) => !index.has_tag(tag),
                None => self.unexpected.len() <= LINEAR && self.unexpected.iter().all(|entry| entry.tag != tag),
            }
    }

    /// The oldest posted receive that the message fits, removed unless it is persistent.
    #[inline]
    pub(crate) fn take_posted(&mut self, tag: u64, peer: u32) -> Option<u32> {
        if self.posted_live == 0 {
            return None;
        }
        if let Some(first) = self.first(tag, peer) {
            self.take_first();
            return Some(first);
        }
        // A persistent one stays.
        self.search_posted(tag, peer).map(|at| self.posted[at].key)
    }

    /// The place of the oldest posted receive that the message fits.
    fn search_posted(&mut self, tag: u64, peer: u32) -> Option<usize> {
        if self.posted_is_linear() {
            let found = self.position(self.front, |posted| posted.pattern.fits(tag, peer));
            self.posted_index.excess.note(found.unwrap_or(self.posted.len()) - self.front);
            return found;
        }
        if self.posted_index.built.as_ref().is_some_and(|index| index.is_short()) {
            self.extend_index();
        }
        self.posted_index();
        let Self { posted, front, posted_index: Lazy { built: Some(index), .. }, .. } = self else { return None };
        let entry = |place: usize| posted.get(place).filter(|posted| place >= *front && posted.live);
        let fits = |place| entry(place).is_some_and(|posted| posted.pattern.fits(tag, peer));
        if let Some(found) = index.find(tag, peer, |place| entry(place).is_some(), fits) {
            return Some(found);
        }
        let rest = index.len();
        self.position(rest, |posted| posted.pattern.fits(tag, peer))
    }

    /// The place of the oldest posted receive from `from` on for which `what` is true.
    fn position(&self, from: usize, mut what: impl FnMut(&Posted) -> bool) -> Option<usize> {
        let from = from.max(self.front);
        let at = self.posted[from..].iter().position(|posted| posted.live && what(posted))?;
        Some(from + at)
    }

    fn remove_posted_at(&mut self, at: usize) -> u32 {
        let key = self.posted[at].key;
        if self.is_recent(at) {
            self.take_last();
        } else {
            self.posted[at].live = false;
            self.forget(self.posted[at].pattern.src);
            self.close_gaps();
        }
        key
    }

    /// Closes gaps at both ends at once, others when there are many.
    fn close_gaps(&mut self) {
        while self.posted.len() > self.front
            && let Some(last) = self.posted.pop_if(|last| !last.live)
        {
            if let Some(index) = &mut self.posted_index.built {
                // A later entry may get its place.
                index.remove_last(self.posted.len(), &last.pattern, last.key);
            }
        }
        while self.posted.get(self.front).is_some_and(|posted| !posted.live) {
            self.front += 1;
        }
        let held = self.posted.len() - self.front;
        if held == 0 {
            self.posted.clear();
            (self.front, self.posted_index) = (0, Lazy::default());
        } else if held > 32 && held / 4 > self.posted_live {
            self.drop_gone();
            self.posted.retain(|posted| posted.live);
        }
    }

    /// Removes a posted receive; false if it is not posted.
    pub(crate) fn withdraw(&mut self, key: u32) -> bool {
        let from = if self.posted_is_linear() { self.front } else { self.posted_index().len() };
        let indexed = self.posted_index.built.as_ref().and_then(|index| index.place_of(key)).filter(|at| {
            let entry = self.posted.get(*at).filter(|_| *at >= self.front);
            entry.is_some_and(|entry| entry.live && entry.key == key)
        });
        match indexed.or_else(|| self.position(from, |posted| posted.key == key)) {
            Some(at) => {
                if self.posted_index.built.is_none() {
                    self.posted_index.excess.note(at - self.front);
                }
                self.remove_posted_at(at);
                true
            }
            None => false,
        }
    }

    /// The oldest unexpected message that fits, left where it is.
    pub(crate) fn find_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        let at = self.position_unexpected(pattern)?;
        self.unexpected.get(at).map(|entry| entry.key)
    }

    /// The index of the oldest unexpected message that fits.
    fn position_unexpected(&mut self, pattern: &Pattern) -> Option<usize> {
        if pattern.src.pending().is_some() {
            return None;
        }
        let fits = |entry: &Unexpected| entry.live && pattern.fits(entry.tag, entry.peer);
        let (found, searched) = self.search_one_by_one(fits);
        if found.is_some() || searched == self.unexpected.len() {
            return found;
        }
        if let Some(search) = Search::of(pattern)
            && let Some((index, unexpected, base)) = self.unexpected_index()
        {
            let entry = |place: Position| {
                let at = usize::try_from(place.checked_sub(base)?).ok()?;
                unexpected.get(at).filter(|entry| entry.live)
            };
            let fits = |place| entry(place).is_some_and(|entry| pattern.fits(entry.tag, entry.peer));
            let found = index.find(search, |place| entry(place).is_some(), fits)?;
            return usize::try_from(found - base).ok();
        }
        self.unexpected.iter().skip(searched).position(fits).map(|at| searched + at)
    }

    /// Without an index, searches the unexpected messages, or only the oldest of them if an index
    /// would pay, and tells how many: most receives fit one of the oldest.
    fn search_one_by_one(&mut self, what: impl Fn(&Unexpected) -> bool) -> (Option<usize>, usize) {
        if self.unexpected_index.built.is_some() {
            return (None, 0);
        }
        let all = self.unexpected.len();
        let most = if self.unexpected_index.excess.pays_for(self.unexpected_live) { all.min(LINEAR) } else { all };
        let found = self.unexpected.iter().take(most).position(what);
        self.unexpected_index.excess.note(found.unwrap_or(most));
        (found, most)
    }

    /// The index of unexpected messages, which is built if there is none. None if there is no room
    /// for it.
    fn unexpected_index(&mut self) -> Option<(&mut UnexpectedIndex, &VecDeque<Unexpected>, Position)> {
        let (unexpected, base) = (&self.unexpected, self.unexpected_base);
        if self.unexpected_index.built.is_none() {
            let mut index = UnexpectedIndex::new(self.unexpected_live, &self.account)?;
            let mut live = (base..).zip(unexpected).filter(|(_, entry)| entry.live);
            if !live.all(|(place, entry)| index.add(place, entry.tag, entry.peer, entry.key)) {
                return None;
            }
            self.unexpected_index.built = Some(Box::new(index));
            self.unexpected_index.excess = Excess::default();
        }
        let index = self.unexpected_index.built.as_mut()?;
        Some((index, unexpected, base))
    }

    /// The keys of the posted receives, oldest first.
    pub(crate) fn posted(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.posted[self.front..].iter().filter(|posted| posted.live).map(|posted| posted.key)
    }

    /// Whether a receive is posted that only that peer can fill.
    pub(crate) fn is_awaited(&self, peer: u32) -> bool {
        self.directed.get(peer as usize).is_some_and(|count| *count > 0)
    }

    /// Whether a receive is posted that accepts messages from that peer.
    pub(crate) fn wants(&self, peer: u32) -> bool {
        self.is_awaited(peer) || self.posted_of(|src| src == Source::ANY).next().is_some()
    }

    /// The keys of the posted receives that accept only that peer, oldest first.
    pub(crate) fn posted_from(&self, peer: u32) -> impl Iterator<Item = u32> + '_ {
        let held = if self.is_awaited(peer) { &self.posted[self.front..] } else { &[] };
        let held = held.iter();
        held.filter(move |posted| posted.live && posted.pattern.src == Source::peer(peer)).map(|posted| posted.key)
    }

    /// The keys of the posted receives for whose source `what` is true, oldest first.
    pub(crate) fn posted_of(&self, what: impl Fn(Source) -> bool) -> impl Iterator<Item = u32> {
        let held = self.posted[self.front..].iter();
        held.filter(move |posted| posted.live && what(posted.pattern.src)).map(|posted| posted.key)
    }

    /// Queues a message that no posted receive fits.
    #[inline(always)]
    pub(crate) fn push_unexpected(&mut self, tag: u64, peer: u32, key: u32) {
        if let Some(index) = &mut self.unexpected_index.built {
            let place = self.unexpected_base + self.unexpected.len() as Position;
            if index.is_stale(self.unexpected_live) || !index.add(place, tag, peer, key) {
                self.unexpected_index.built = None;
            }
        }
        self.unexpected.push_back(Unexpected { tag, peer, key, live: true });
        self.unexpected_live += 1;
    }

    /// The oldest unexpected message that fits the receive, removed.
    #[inline]
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        let oldest = self.unexpected.front()?;
        let at = if pattern.fits(oldest.tag, oldest.peer) { 0 } else { self.position_unexpected(pattern)? };
        Some(self.remove_unexpected_at(at))
    }

    fn remove_unexpected_at(&mut self, at: usize) -> u32 {
        let entry = &mut self.unexpected[at];
        entry.live = false;
        let key = entry.key;
        self.unexpected_live -= 1;
        while self.unexpected.front().is_some_and(|entry| !entry.live) {
            self.unexpected.pop_front();
            self.unexpected_base += 1;
        }
        if self.unexpected.len() > 32 && self.unexpected.len() / 4 > self.unexpected_live {
            self.unexpected.retain(|entry| entry.live);
            // The entries have other places now.
            self.unexpected_index.built = None;
        }
        if self.unexpected.len() <= LINEAR {
            // Dropping it releases the memory that it is charged for.
            self.unexpected_index = Lazy::default();
        }
        key
    }

    /// Removes an unexpected message that was matched, claimed, discarded or lost.
    pub(crate) fn drop_unexpected(&mut self, key: u32) {
        let is_it = |entry: &Unexpected| entry.live && entry.key == key;
        let (mut found, searched) = self.search_one_by_one(is_it);
        if found.is_none() && searched < self.unexpected.len() {
            found = match self.unexpected_index() {
                Some((index, unexpected, base)) => {
                    let at = index.place_of(key).and_then(|place| usize::try_from(place.checked_sub(base)?).ok());
                    at.filter(|at| unexpected.get(*at).is_some_and(is_it))
                }
                None => self.unexpected.iter().position(is_it),
            };
        }
        if let Some(at) = found {
            self.remove_unexpected_at(at);
        }
    }

    /// The handles without a known peer that receives are posted for.
    pub(crate) fn pending_handles(&self) -> Vec<FiAddr> {
        if self.pending == 0 {
            return Vec::new();
        }
        let held = self.posted[self.front..].iter().filter(|posted| posted.live);
        held.filter_map(|posted| posted.pattern.src.pending()).collect()
    }

    /// Drops the index of unexpected messages: its memory is needed for messages.
    pub(crate) fn drop_index(&mut self) {
        self.unexpected_index.built = None;
    }

    /// Whether there are posted receives whose handle has no known peer yet.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Resolves the handles of posted receives to the peers that `find` knows. True if any was
    /// resolved: an unexpected message may fit now, so the caller matches again by
    /// [`Self::unexpected`] and [`Self::take_posted`].
    pub(crate) fn resolve(&mut self, mut find: impl FnMut(FiAddr) -> Option<u32>) -> bool {
        let before = self.pending;
        if before == 0 {
            return false;
        }
        let mut found = Vec::new();
        for posted in self.posted[self.front..].iter_mut().filter(|posted| posted.live) {
            if let Some(peer) = posted.pattern.src.pending().and_then(&mut find) {
                posted.pattern.src = Source::peer(peer);
                found.push(peer);
            }
        }
        if !found.is_empty() {
            self.pending -= found.len();
            self.posted_index.built = None;
        }
        found.into_iter().for_each(|peer| self.count_directed(peer));
        self.pending < before
    }

    /// Reassigns the unexpected messages of a peer that turns out to be another. The caller matches
    /// again as after [`Self::resolve`].
    pub(crate) fn merge(&mut self, peer: u32, into: u32) {
        for entry in self.unexpected.iter_mut().filter(|entry| entry.peer == peer) {
            entry.peer = into;
            self.unexpected_index.built = None;
        }
    }

    /// The keys of the unexpected messages and their senders, oldest first.
    pub(crate) fn unexpected(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.unexpected.iter().filter(|entry| entry.live).map(|entry| (entry.key, entry.peer))
    }

    /// How many messages wait for a receive.
    pub(crate) const fn unexpected_len(&self) -> usize {
        self.unexpected_live
    }

    /// How many receives are posted.
    pub(crate) const fn posted_len(&self) -> usize {
        self.posted_live
    }
}

#[cfg(test)]
mod tests;
