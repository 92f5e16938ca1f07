//! Indexes of long match queues: where the entries with a tag and a peer are, oldest first. A queue
//! builds one when linear searches have cost as much, and throws it away when most of it is stale.
//! An entry that has left stays in the lists until it is met: callers say which are live.

use super::filter::TagFilter;
use super::{Pattern, Source};
use crate::hash::HashMap;
use ofi_sync::account::Account;
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

/// The number of an entry since its queue was made.
pub(super) type Position = u64;

/// Positions by a key, oldest first.
type Positions<K> = HashMap<K, VecDeque<Position>>;

/// Stale places that an index may hold beside as many live ones.
const SLACK: usize = 64;

/// Entries that searches pass over before they are indexed: about what an index saves.
const PASSES: usize = if cfg!(test) { 3 } else { 64 };

/// What an operation on an index costs, counted in entries that a search passes over.
const OPERATION: usize = if cfg!(test) { 1 } else { 64 };

/// How many more entries searches have passed over than operations on an index would have cost.
/// Queues that are short, or are soon empty again, need none.
#[derive(Debug, Default)]
pub(super) struct Excess(usize);

impl Excess {
    /// A search has passed over so many entries.
    #[inline]
    pub(super) const fn note(&mut self, passed: usize) {
        self.0 = self.0.saturating_add(passed).saturating_sub(OPERATION);
    }

    /// Whether an index of so many entries would have paid for itself by now.
    #[inline]
    pub(super) const fn pays_for(&self, entries: usize) -> bool {
        self.0 > OPERATION * entries
    }
}

/// An index that is built once it pays.
#[derive(Debug)]
pub(super) struct Lazy<I> {
    pub(super) built: Option<Box<I>>,
    /// While there is none.
    pub(super) excess: Excess,
}

impl<I> Default for Lazy<I> {
    fn default() -> Self {
        Self { built: None, excess: Excess::default() }
    }
}

/// The oldest live place of a list. Drops the stale ones before it, and an empty list.
fn oldest<K: Eq + Hash>(places: &mut Positions<K>, key: &K, is_live: impl Fn(Position) -> bool) -> Option<Position> {
    let list = places.get_mut(key)?;
    while let Some(&place) = list.front() {
        if is_live(place) {
            return Some(place);
        }
        list.pop_front();
    }
    places.remove(key);
    None
}

/// Removes a place from the end of its list, where it is if it is the largest.
fn drop_last<K: Eq + Hash>(places: &mut Positions<K>, key: &K, place: Position) {
    let Some(list) = places.get_mut(key) else { return };
    if list.back() == Some(&place) {
        list.pop_back();
    }
    if list.is_empty() {
        places.remove(key);
    }
}

/// Places of posted receives, by the tags and senders that they accept. Positions are indexes into
/// the queue's memory, and ascend in each list; a queue that moves its entries drops the index.
#[derive(Debug, Default)]
pub(super) struct PostedIndex {
    /// Those that accept one tag from any peer, by tag.
    exact: Positions<u64>,
    /// The tags in there.
    tags: TagFilter,
    /// Those that accept one tag from one peer, by tag and source.
    directed: Positions<(u64, u64)>,
    /// The others, by source; a search compares their tags one by one.
    masked: Positions<u64>,
    by_key: HashMap<u32, Position>,
    added: usize,
    /// The places before this are indexed.
    len: usize,
    /// How many later entries searches have passed over.
    passed: usize,
}

impl PostedIndex {
    pub(super) fn add(&mut self, place: usize, pattern: &Pattern, key: u32) {
        let list = match (pattern.ignore, pattern.src) {
            (0, Source::ANY) => {
                self.tags.add(pattern.tag, self.exact.keys());
                self.exact.entry(pattern.tag).or_default()
            }
            (0, src) => self.directed.entry((pattern.tag, src.0)).or_default(),
            (_, src) => self.masked.entry(src.0).or_default(),
        };
        list.push_back(place as Position);
        self.by_key.insert(key, place as Position);
        self.added += 1;
        self.len = place + 1;
    }

    /// The entries up to that length that are not in the index are gone.
    pub(super) const fn extend_to(&mut self, len: usize) {
        self.len = len;
        self.passed = 0;
    }

    /// A search has passed over entries behind the indexed ones.
    #[inline(always)]
    pub(super) const fn note_passed(&mut self, entries: usize) {
        self.passed += entries;
    }

    /// Whether searches have passed over so many entries that these should be indexed.
    #[inline(always)]
    pub(super) const fn is_short(&self) -> bool {
        self.passed > PASSES
    }

    /// Removes the entry at the last place of the queue, if it is indexed.
    pub(super) fn remove_last(&mut self, place: usize, pattern: &Pattern, key: u32) {
        if place >= self.len {
            return;
        }
        self.len = place;
        let last = place as Position;
        match (pattern.ignore, pattern.src) {
            (0, Source::ANY) => drop_last(&mut self.exact, &pattern.tag, last),
            (0, src) => drop_last(&mut self.directed, &(pattern.tag, src.0), last),
            (_, src) => drop_last(&mut self.masked, &src.0, last),
        }
        if self.by_key.get(&key) == Some(&last) {
            self.by_key.remove(&key);
        }
    }

    /// True if no receive in the index accepts the tag, as far as a glance tells.
    #[inline(always)]
    pub(super) fn lacks(&self, tag: u64) -> bool {
        !self.tags.may_have(tag) && self.directed.is_empty() && self.masked.is_empty()
    }

    /// The places before this are indexed.
    #[inline(always)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether most of the index is stale, with so many entries in the queue.
    pub(super) const fn is_stale(&self, live: usize) -> bool {
        self.added > 2 * live + SLACK
    }

    /// The place of the oldest live receive that the message fits. `fits` compares the entry at a
    /// place, and is false for one that has left. A list may name the place of a later entry of
    /// another pattern.
    pub(super) fn find(
        &mut self,
        tag: u64,
        peer: u32,
        is_live: impl Fn(usize) -> bool,
        fits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let (is_live, fits) = (|place| is_live(at(place)), |place| fits(at(place)));
        let mut found = if self.tags.may_have(tag) { oldest(&mut self.exact, &tag, fits) } else { None };
        // Few programs have receives of the other kinds.
        if !self.directed.is_empty() {
            found = earlier(found, oldest(&mut self.directed, &(tag, Source::peer(peer).0), fits));
        }
        if !self.masked.is_empty() {
            for src in [Source::peer(peer).0, Source::ANY.0] {
                if oldest(&mut self.masked, &src, is_live).is_some() {
                    let list = self.masked.get(&src);
                    found = earlier(found, list.and_then(|list| list.iter().copied().find(|place| fits(*place))));
                }
            }
        }
        found.map(at)
    }

    /// The place of the receive with that key, which may have left.
    pub(super) fn place_of(&self, key: u32) -> Option<usize> {
        self.by_key.get(&key).map(|place| at(*place))
    }
}

fn earlier(one: Option<Position>, other: Option<Position>) -> Option<Position> {
    [one, other].into_iter().flatten().min()
}

#[allow(clippy::cast_possible_truncation, reason = "places of posted receives are indexes")]
const fn at(place: Position) -> usize {
    place as usize
}

/// What an unexpected message costs in the index, in bytes, if no other has its tag: an entry in
/// three tables that are half empty, and two lists.
const COST: usize = 400;
/// Messages that are charged for at a time.
const CHUNK: usize = 256;

/// Whether the account has room for an index, which only saves time: a quarter of it is for
/// messages alone.
fn is_affordable(account: &Account) -> bool {
    account.room() > account.limit() / 4
}

/// Places of unexpected messages, by tag and sender. Its memory is charged to the account of the
/// memory that the endpoint holds for its peers.
#[derive(Debug)]
pub(super) struct UnexpectedIndex {
    exact: Positions<(u64, u32)>,
    by_tag: Positions<u64>,
    /// The tags in there.
    tags: TagFilter,
    by_peer: Positions<u32>,
    by_key: HashMap<u32, Position>,
    added: usize,
    /// Messages that are charged for.
    charged: usize,
    account: Arc<Account>,
}

impl Drop for UnexpectedIndex {
    fn drop(&mut self) {
        self.account.release(self.charged * COST);
    }
}

impl UnexpectedIndex {
    /// An index for so many messages, if the account has room for it.
    pub(super) fn new(messages: usize, account: &Arc<Account>) -> Option<Self> {
        let charged = messages.next_multiple_of(CHUNK);
        let (exact, by_tag, by_peer) = (Positions::default(), Positions::default(), Positions::default());
        let (by_key, account) = (HashMap::default(), account.clone());
        let is_charged = is_affordable(&account) && account.try_charge(charged * COST);
        is_charged.then(|| Self {
            exact,
            by_tag,
            tags: TagFilter::default(),
            by_peer,
            by_key,
            added: 0,
            charged,
            account,
        })
    }

    /// False if the account has no room for another message: the index is incomplete then.
    #[must_use]
    pub(super) fn add(&mut self, place: Position, tag: u64, peer: u32, key: u32) -> bool {
        if self.added == self.charged {
            if !is_affordable(&self.account) || !self.account.try_charge(CHUNK * COST) {
                return false;
            }
            self.charged += CHUNK;
        }
        self.exact.entry((tag, peer)).or_default().push_back(place);
        self.tags.add(tag, self.by_tag.keys());
        self.by_tag.entry(tag).or_default().push_back(place);
        self.by_peer.entry(peer).or_default().push_back(place);
        self.by_key.insert(key, place);
        self.added += 1;
        true
    }

    /// Whether most of the index is stale, with so many messages in the queue.
    pub(super) const fn is_stale(&self, live: usize) -> bool {
        self.added > 2 * live + SLACK
    }

    /// The place of the oldest live message that the search is for. `fits` compares the entry at a
    /// place with the receive, and is false for one that has left.
    pub(super) fn find(
        &mut self,
        search: Search,
        is_live: impl Fn(Position) -> bool,
        fits: impl Fn(Position) -> bool,
    ) -> Option<Position> {
        match search {
            Search::Exact(tag, peer) => oldest(&mut self.exact, &(tag, peer), is_live),
            Search::Tag(tag) => oldest(&mut self.by_tag, &tag, is_live),
            Search::Peer(peer) => {
                oldest(&mut self.by_peer, &peer, is_live)?;
                self.by_peer.get(&peer)?.iter().copied().find(|place| fits(*place))
            }
        }
    }

    /// Whether there may be messages with that tag.
    #[inline]
    pub(super) fn has_tag(&self, tag: u64) -> bool {
        self.tags.may_have(tag) && self.by_tag.contains_key(&tag)
    }

    /// The place of the message with that key, which may have left.
    pub(super) fn place_of(&self, key: u32) -> Option<Position> {
        self.by_key.get(&key).copied()
    }
}

/// A search for an unexpected message that the index answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Search {
    /// A tag from a peer.
    Exact(u64, u32),
    /// A tag from any peer.
    Tag(u64),
    /// Any of several tags from a peer.
    Peer(u32),
}

impl Search {
    /// The search for what a receive accepts. None if it ignores bits of the tag and accepts any
    /// peer.
    pub(super) fn of(pattern: &Pattern) -> Option<Self> {
        match (pattern.ignore, pattern.src.one()) {
            (0, Some(peer)) => Some(Self::Exact(pattern.tag, peer)),
            (0, None) => Some(Self::Tag(pattern.tag)),
            (_, Some(peer)) => Some(Self::Peer(peer)),
            (_, None) => None,
        }
    }
}
