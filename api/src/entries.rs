//! The entries of the table of operations. An entry's context names it to the engine, and carries a
//! generation, so that a completion that an endpoint left behind when it closed meets no later
//! operation. Places are used again where they lie, so that an operation writes little.

use crate::buf::{Bytes, Kept};
use crate::engine::Post;
use crate::wakers::Wakers;
use core::task::Waker;
use ofi_core::{Completion, Failure, FiAddr, Instant, OpFlags};
use ofi_memory::fresh;

/// What is told of an operation that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) flags: OpFlags,
    pub(crate) len: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) src: FiAddr,
}

impl Done {
    /// The same, moved word by word: it may have been made a moment ago.
    #[inline(always)]
    pub(crate) fn moved(&self) -> Self {
        let Self { flags, len, data, tag, src } = self;
        Self { flags: fresh(flags), len: fresh(len), data: fresh(data), tag: fresh(tag), src: fresh(src) }
    }
}

impl From<&Completion> for Done {
    #[inline(always)]
    fn from(completion: &Completion) -> Self {
        let Completion { flags, len, data, tag, src, .. } = completion;
        Self { flags: fresh(flags), len: fresh(len), data: fresh(data), tag: fresh(tag), src: fresh(src) }
    }
}

/// How an operation ended.
pub(crate) type Outcome = Result<Done, Box<Failure>>;

/// Where an operation stands.
#[derive(Debug, Default)]
pub(crate) enum State {
    /// The engine has no room for it yet.
    Held(Box<(Post, Bytes)>),
    /// The engine has it.
    #[default]
    Posted,
    /// It has ended.
    Ended(Outcome),
    /// The engine has it; its future is gone.
    Abandoned,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Of the operation, or of the next one if the place is free.
    generation: u32,
    /// It waits for room among the receives, not among the sends.
    pub(crate) is_receive: bool,
    /// The deadline has passed: a cancellation is a timeout.
    pub(crate) late: bool,
    /// For a place that is free, [`FREE`] and the next one.
    pub(crate) endpoint: usize,
    /// Of a place that is free, whatever it was last.
    kept: Kept,
    pub(crate) state: State,
    pub(crate) waker: Option<Waker>,
    pub(crate) deadline: Option<Instant>,
}

/// Marks a place that is free.
const FREE: usize = !(usize::MAX >> 1);

impl Entry {
    /// What to post, and where its bytes lie, if it waits for room.
    pub(crate) fn held(&self) -> Option<(Post, Bytes)> {
        if let State::Held(held) = &self.state { Some(**held) } else { None }
    }

    /// Takes its waker, to be woken.
    #[inline]
    pub(crate) fn wake(&mut self, awaited: &mut usize, wakers: &mut Wakers) {
        if let Some(waker) = self.waker.take() {
            *awaited -= 1;
            wakers.push(waker);
        }
    }

    const fn is_free(&self) -> bool {
        self.endpoint & FREE != 0
    }
}

/// The operations of a domain.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    places: Vec<Entry>,
    /// The first place that is free; a new one if that is none.
    free: usize,
}

const fn context_of(generation: u32, key: usize) -> usize {
    (generation as usize) << 32 | (key + 1)
}

impl Entries {
    /// Adds an operation of an endpoint, a receive or another one; returns its context, which is
    /// not 0.
    #[inline(always)]
    pub(crate) fn insert(&mut self, (endpoint, is_receive): (usize, bool), kept: Kept, state: State) -> usize {
        let key = self.free;
        if key >= self.places.len() {
            self.grow();
        }
        let entry = &mut self.places[key];
        self.free = entry.endpoint & !FREE;
        (entry.is_receive, entry.late, entry.endpoint) = (is_receive, false, endpoint);
        entry.kept = kept;
        // A free place is left in the state of most operations.
        if !matches!(state, State::Posted) {
            entry.state = state;
        }
        context_of(entry.generation, key)
    }

    #[cold]
    fn grow(&mut self) {
        self.places.push(Entry {
            generation: 0,
            is_receive: false,
            late: false,
            endpoint: FREE | (self.places.len() + 1),
            kept: Kept::to_fill(()).0,
            state: State::Posted,
            waker: None,
            deadline: None,
        });
    }

    /// The operation with this context, and its place.
    #[inline(always)]
    fn find(places: &mut [Entry], context: usize) -> Option<(usize, &mut Entry)> {
        let key = (context & u32::MAX as usize).wrapping_sub(1);
        let entry = places.get_mut(key).filter(|entry| entry.generation as usize == context >> 32)?;
        Some((key, entry))
    }

    /// The operation with this context.
    #[inline(always)]
    pub(crate) fn get(&mut self, context: usize) -> Option<&mut Entry> {
        Some(Self::find(&mut self.places, context)?.1)
    }

    /// Removes an operation: how it stood, and its buffer.
    pub(crate) fn remove(&mut self, context: usize) -> Option<(State, Kept)> {
        let (key, entry) = Self::find(&mut self.places, context)?;
        debug_assert!(entry.waker.is_none() && entry.deadline.is_none(), "nothing is left of it");
        let state = core::mem::take(&mut entry.state);
        Some((state, Self::release(entry, key, &mut self.free).duplicate()))
    }

    /// Removes an operation that has completed, and has no deadline: what is told of it, and its
    /// buffer where it lies. `None`, and nothing has changed, if it is not of these.
    #[inline(always)]
    pub(crate) fn remove_done(&mut self, context: usize) -> Option<(Done, &Kept)> {
        let (key, entry) = Self::find(&mut self.places, context)?;
        let State::Ended(Ok(done)) = &entry.state else { return None };
        if entry.deadline.is_some() {
            return None;
        }
        let done = done.moved();
        entry.state = State::Posted;
        Some((done, Self::release(entry, key, &mut self.free)))
    }

    /// Removes an operation that the engine has and nothing waits for: its buffer where it lies.
    /// `None`, and nothing has changed, if it is not of these.
    #[inline(always)]
    pub(crate) fn remove_posted(&mut self, context: usize) -> Option<&Kept> {
        let (key, entry) = Self::find(&mut self.places, context)?;
        let is_plain = matches!(entry.state, State::Posted) && entry.waker.is_none() && entry.deadline.is_none();
        is_plain.then(|| Self::release(entry, key, &mut self.free))
    }

    /// Frees the place of an operation; its buffer is still there.
    #[inline(always)]
    const fn release<'a>(entry: &'a mut Entry, key: usize, free: &mut usize) -> &'a Kept {
        entry.generation = entry.generation.wrapping_add(1);
        entry.endpoint = FREE | *free;
        *free = key;
        &entry.kept
    }

    /// The contexts of an endpoint's operations.
    pub(crate) fn of_endpoint(&self, endpoint: usize) -> Vec<usize> {
        let of_it =
            |(key, entry): (usize, &Entry)| (entry.endpoint == endpoint).then_some(context_of(entry.generation, key));
        self.places.iter().enumerate().filter_map(of_it).collect()
    }

    /// Whether the engine has an operation of the endpoint whose completion makes room for
    /// receives, or for others. The search begins at `from`, where the last one ended.
    pub(crate) fn has_posted(&self, endpoint: usize, is_receive: bool, from: &mut usize) -> bool {
        let is_one = |at: &usize| {
            self.places.get(*at).is_some_and(|entry| {
                (entry.endpoint, entry.is_receive) == (endpoint, is_receive)
                    && matches!(entry.state, State::Posted | State::Abandoned)
            })
        };
        let found = (*from..self.places.len()).chain(0..*from).find(is_one);
        *from = found.unwrap_or(0);
        found.is_some()
    }

    /// All operations, and places that are free.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.places.iter_mut()
    }

    /// How many operations there are.
    pub(crate) fn len(&self) -> usize {
        self.places.iter().filter(|entry| !entry.is_free()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::failure;
    use ofi_core::{Cause, Errno};

    fn add(entries: &mut Entries, state: State) -> usize {
        entries.insert((0, true), Kept::to_fill(()).0, state)
    }

    #[test]
    fn a_place_is_used_again_and_the_earlier_context_names_nothing() {
        let mut entries = Entries::default();
        let (first, other) = (add(&mut entries, State::Posted), add(&mut entries, State::Posted));
        entries.remove(first).unwrap();
        assert!(entries.get(first).is_none() && entries.remove(first).is_none());
        let second = add(&mut entries, State::Posted);
        let key_of = |context| context & u32::MAX as usize;
        assert_eq!(
            (key_of(first), first == second, entries.places.len(), entries.len()),
            (key_of(second), false, 2, 2)
        );
        assert!(entries.get(first).is_none() && entries.remove_posted(first).is_none());
        for context in [second, other] {
            entries.remove_posted(context).unwrap();
        }
        assert_eq!(entries.len(), 0);
    }

    #[test]
    fn only_what_the_engine_has_and_nothing_waits_for_is_removed_at_once() {
        let mut entries = Entries::default();
        let context = add(&mut entries, State::Abandoned);
        assert!(entries.remove_posted(context).is_none());
        let entry = entries.get(context).unwrap();
        (entry.state, entry.waker) = (State::Posted, Some(Waker::noop().clone()));
        assert!(entries.remove_posted(context).is_none());
        let entry = entries.get(context).unwrap();
        (entry.waker, entry.deadline) = (None, Some(Instant::default()));
        assert!(entries.remove_posted(context).is_none());
        entries.get(context).unwrap().deadline = None;
        entries.remove_posted(context).unwrap();
        assert!(matches!(entries.places[0].state, State::Posted) && entries.free == 0);
    }

    #[test]
    fn what_has_completed_is_removed_at_once_unless_it_has_a_deadline() {
        let mut entries = Entries::default();
        let done = Done { flags: OpFlags::MSG, len: 3, data: 4, tag: 5, src: FiAddr::UNSPEC };
        let failed = failure(0, Errno::ECANCELED, Cause::Cancelled, Cause::Cancelled.text());
        for state in [State::Posted, State::Ended(Err(failed))] {
            let context = add(&mut entries, state);
            assert!(entries.remove_done(context).is_none() && entries.get(context).is_some());
        }
        let context = add(&mut entries, State::Ended(Ok(done)));
        entries.get(context).unwrap().deadline = Some(Instant::default());
        assert!(entries.remove_done(context).is_none());
        entries.get(context).unwrap().deadline = None;
        let (told, _) = entries.remove_done(context).unwrap();
        assert_eq!((told.flags, told.len, told.data, told.tag), (OpFlags::MSG, 3, 4, 5));
        assert!(entries.get(context).is_none() && entries.remove_done(context).is_none());
        assert!(matches!(entries.places[2].state, State::Posted));
    }

    #[test]
    fn an_endpoint_has_an_operation_posted_until_it_ends() {
        let mut entries = Entries::default();
        let context = add(&mut entries, State::Posted);
        let mut from = 0;
        assert!(!entries.has_posted(0, false, &mut from) && !entries.has_posted(1, true, &mut from));
        let second = add(&mut entries, State::Posted);
        entries.remove(context).unwrap();
        assert!(entries.has_posted(0, true, &mut from) && from == 1);
        let context = add(&mut entries, State::Posted);
        entries.remove(second).unwrap();
        assert!(entries.has_posted(0, true, &mut from) && from == 0, "it begins at the start again");
        assert_eq!(entries.of_endpoint(0), [context]);
        entries.get(context).unwrap().state = State::Abandoned;
        assert!(entries.has_posted(0, true, &mut from), "its completion reports room as well");
        entries.remove(context).unwrap();
        assert!(!entries.has_posted(0, true, &mut from) && entries.of_endpoint(0).is_empty());
    }
}
