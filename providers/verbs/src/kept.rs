//! Registrations that outlive a payload, because programs often send from the same memory again.
//! They are found by range, and given up when their memory is no longer what it was, when others
//! of their protection domain need their room, and with that. Memory that is used for the first
//! time is registered for that time only: a program that allocates each payload anew would pay for
//! the watching, and gain nothing.

use crate::watched::{self, Place, Watched};
use core::ops::Range;
use ofi_os::mappings::is_private;
use ofi_os::process::page_size;
use ofi_sync::primitive::real::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Ranges that are remembered because they were used once.
const SEEN: usize = 64;

/// What a registration lets a device do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// A peer's device reads it through a window; without one, nothing may.
    Windows,
    /// The same, and this side's device writes it.
    Write,
}

/// How much is kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl Limits {
    /// What the parameters ask for; the monitor "disabled" means nothing.
    pub(crate) fn new(monitor: Option<&str>, count: u64, bytes: u64) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(watched::MOST);
        Self { count: if monitor == Some("disabled") { 0 } else { count }, bytes }
    }
}

/// Bytes that all protection domains keep.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// The registrations that a protection domain keeps.
#[derive(Debug)]
pub(crate) struct Kept<R> {
    entries: Vec<Entry<R>>,
    seen: VecDeque<Range<usize>>,
    limits: Limits,
    /// `None` if nothing can be kept.
    watched: Option<&'static Watched>,
    /// Changes that were looked at.
    changes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry<R> {
    place: Place,
    range: Range<usize>,
    access: Access,
    registration: Arc<R>,
    last_use: u64,
}

impl<R> Entry<R> {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.registration) == 1
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn pages(range: &Range<usize>) -> Option<Range<usize>> {
    let size = page_size();
    Some(range.start / size * size..range.end.checked_next_multiple_of(size)?)
}

impl<R> Kept<R> {
    pub(crate) fn new(limits: Limits) -> Self {
        let watched = if limits.count > 0 && limits.bytes > 0 { Watched::get() } else { None };
        Self { entries: Vec::new(), seen: VecDeque::new(), limits, watched, changes: 0, uses: 0 }
    }

    /// Whether memory was used before, so that registering it is likely to cost little.
    pub(crate) fn knows(&self, range: &Range<usize>) -> bool {
        self.watched.is_some()
            && (self.entries.iter().any(|entry| covers(&entry.range, range))
                || self.seen.iter().any(|seen| covers(seen, range)))
    }

    /// Memory was used.
    pub(crate) fn note(&mut self, range: &Range<usize>) {
        if self.watched.is_some() && !self.knows(range) {
            self.seen.truncate(SEEN - 1);
            self.seen.push_front(range.clone());
        }
    }

    /// A registration of memory: one that is kept, or a new one.
    ///
    /// # Errors
    /// Those of `register`, which registers a range.
    pub(crate) fn get(
        &mut self,
        range: &Range<usize>,
        access: Access,
        register: &dyn Fn(&Range<usize>, Access) -> io::Result<R>,
    ) -> io::Result<Arc<R>> {
        self.give_up_changed();
        let Some(watched) = self.watched else { return register(range, access).map(Arc::new) };
        self.uses += 1;
        let uses = self.uses;
        let fits = |entry: &&mut Entry<R>| covers(&entry.range, range) && entry.access >= access;
        if let Some(entry) = self.entries.iter_mut().find(fits)
            && watched.is_current(entry.place)
        {
            entry.last_use = uses;
            return Ok(entry.registration.clone());
        }
        let seen = self.seen.iter().position(|seen| covers(seen, range));
        let is_due = seen.is_some() || self.knows(range);
        if let Some(entry) =
            pages(range).filter(|_| is_due).and_then(|pages| self.keep(watched, pages, access, register))
        {
            if let Some(seen) = seen {
                self.seen.remove(seen);
            }
            return Ok(entry);
        }
        self.note(range);
        let mut once = register(range, access);
        while matches!(&once, Err(error) if error.kind() == io::ErrorKind::OutOfMemory) && self.give_up_oldest() {
            once = register(range, access);
        }
        once.map(Arc::new)
    }

    /// Registers memory, and keeps that, if its changes can be learned.
    fn keep(
        &mut self,
        watched: &'static Watched,
        range: Range<usize>,
        access: Access,
        register: &dyn Fn(&Range<usize>, Access) -> io::Result<R>,
    ) -> Option<Arc<R>> {
        let len = range.len() as u64;
        let most = self.limits.bytes;
        if len > most {
            return None;
        }
        // Relaxed: only the sum matters.
        let own: u64 = self.entries.iter().map(|entry| entry.range.len() as u64).sum();
        let others = KEPT.load(Ordering::Relaxed).saturating_sub(own);
        if others.saturating_add(len) > most {
            return None;
        }
        while self.entries.len() >= self.limits.count || KEPT.load(Ordering::Relaxed).saturating_add(len) > most {
            if !self.give_up_oldest() {
                return None;
            }
        }
        let place = watched.add(&range)?;
        let registration = register(&range, access).ok().map(Arc::new);
        let is_sure = registration.is_some() && is_private(&range) && watched.is_current(place);
        let Some(registration) = registration.filter(|_| is_sure) else {
            watched.remove(place);
            return None;
        };
        KEPT.fetch_add(len, Ordering::Relaxed);
        let entry = Entry { place, range, access, registration: registration.clone(), last_use: self.uses };
        self.entries.push(entry);
        Some(registration)
    }

    /// Gives up what is no longer the memory that it was. Cheap without a change.
    pub(crate) fn give_up_changed(&mut self) {
        if let Some(watched) = self.watched
            && let changes = watched.changes()
            && changes != self.changes
        {
            self.changes = changes;
            self.look_for_changes(watched);
        }
    }

    #[cold]
    fn look_for_changes(&mut self, watched: &Watched) {
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            if watched.has_changed(entry.place) { self.give_up(at) } else { at += 1 }
        }
    }

    /// Gives up the registration that was not used for the longest time. False if all are in use.
    #[cold]
    fn give_up_oldest(&mut self) -> bool {
        let idle = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_idle());
        let oldest = idle.min_by_key(|(_, entry)| entry.last_use).map(|(at, _)| at);
        oldest.map(|at| self.give_up(at)).is_some()
    }

    #[cold]
    fn give_up_all(&mut self) {
        while !self.entries.is_empty() {
            self.give_up(0);
        }
    }

    #[cold]
    fn give_up(&mut self, at: usize) {
        let Entry { place, range, registration, .. } = self.entries.swap_remove(at);
        KEPT.fetch_sub(range.len() as u64, Ordering::Relaxed);
        // Whoever uses the registration still has it.
        drop(registration);
        if let Some(watched) = self.watched {
            watched.remove(place);
        }
    }
}

impl<R> Drop for Kept<R> {
    fn drop(&mut self) {
        self.give_up_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_os::unmapped::Pages;

    use std::sync::{Mutex, MutexGuard, PoisonError};

    const LIMITS: Limits = Limits { count: 4, bytes: 1 << 20 };

    /// Counts registrations that exist.
    #[derive(Debug)]
    struct Counted(Arc<AtomicU64>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    struct Registrar {
        kept: Kept<Counted>,
        made: AtomicU64,
        existing: Arc<AtomicU64>,
        /// How many may exist.
        most: u64,
        /// A change that one test makes would be in progress while another one registers. Dropped
        /// last.
        _alone: MutexGuard<'static, ()>,
    }

    impl Registrar {
        /// `None` where the system does not let a process watch its memory.
        fn new(limits: Limits) -> Option<Self> {
            static ALONE: Mutex<()> = Mutex::new(());
            let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = Kept::new(limits);
            if kept.watched.is_none() {
                eprintln!("not tested: the system lets this process not watch its memory");
                return None;
            }
            Some(Self { kept, made: AtomicU64::new(0), existing: Arc::default(), most: u64::MAX, _alone: alone })
        }

        fn get(&mut self, range: &Range<usize>, access: Access) -> io::Result<Arc<Counted>> {
            let Self { kept, made, existing, most, .. } = self;
            kept.get(range, access, &|_, _| {
                if existing.load(Ordering::SeqCst) >= *most {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                existing.fetch_add(1, Ordering::SeqCst);
                made.fetch_add(1, Ordering::SeqCst);
                Ok(Counted(existing.clone()))
            })
        }

        fn made(&self) -> u64 {
            self.made.load(Ordering::SeqCst)
        }

        fn existing(&self) -> u64 {
            self.existing.load(Ordering::SeqCst)
        }
    }

    fn written(count: usize) -> Pages {
        let mut pages = Pages::new(count).unwrap();
        pages.bytes().fill(1);
        pages
    }

    #[test]
    fn memory_that_is_used_again_stays_registered() {
        let Some(mut registrar) = Registrar::new(LIMITS) else { return };
        let pages = written(4);
        let Range { start, end } = pages.range();
        let part = start + 10..end - 10;
        assert!(!registrar.kept.knows(&part));
        drop(registrar.get(&part, Access::Windows).unwrap());
        assert_eq!((registrar.made(), registrar.existing(), registrar.kept.knows(&part)), (1, 0, true));
        for _ in 0..5 {
            drop(registrar.get(&part, Access::Windows).unwrap());
        }
        // Parts of it, and the rest of its pages, are registered too.
        drop(registrar.get(&(start..start + 1), Access::Windows).unwrap());
        assert_eq!((registrar.made(), registrar.existing()), (2, 1));
        // For another use, once more; that serves both.
        for access in [Access::Write, Access::Write, Access::Windows] {
            drop(registrar.get(&part, access).unwrap());
        }
        assert_eq!((registrar.made(), registrar.existing()), (3, 2));
        let existing = registrar.existing.clone();
        drop(registrar);
        assert_eq!(existing.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn memory_that_changes_is_given_up() {
        let Some(mut registrar) = Registrar::new(LIMITS) else { return };
        let mut pages = written(4);
        let range = pages.range();
        for _ in 0..2 {
            drop(registrar.get(&range, Access::Write).unwrap());
        }
        assert_eq!((registrar.made(), registrar.existing()), (2, 1));
        pages.empty(1..2).unwrap();
        let used = registrar.get(&range, Access::Write).unwrap();
        assert_eq!(registrar.made(), 3, "other memory is there now");
        let used_again = registrar.get(&range, Access::Write).unwrap();
        drop(pages);
        registrar.kept.give_up_changed();
        assert!(!registrar.kept.knows(&range) && registrar.existing() > 0, "it is still used");
        drop((used, used_again));
        assert_eq!(registrar.existing(), 0);
    }

    #[test]
    fn other_memory_at_the_same_address_is_registered_anew() {
        let Some(mut registrar) = Registrar::new(LIMITS) else { return };
        let mut before = 0..0;
        let mut reused = 0;
        for _ in 0..200 {
            let pages = written(16);
            reused += usize::from(pages.range() == before);
            before = pages.range();
            let made = registrar.made();
            drop(registrar.get(&before, Access::Write).unwrap());
            assert_eq!(registrar.made(), made + 1, "a registration of memory that is gone");
            drop(registrar.get(&before, Access::Write).unwrap());
        }
        assert!(reused > 0, "the system never maps an address again");
    }

    #[test]
    fn the_oldest_gives_way() {
        let Some(mut registrar) = Registrar::new(LIMITS) else { return };
        let all: Vec<Pages> = (0..6).map(|_| written(1)).collect();
        for pages in &all {
            for _ in 0..2 {
                drop(registrar.get(&pages.range(), Access::Write).unwrap());
            }
        }
        assert_eq!(registrar.existing(), LIMITS.count as u64);
        assert!(!registrar.kept.knows(&all[0].range()) && registrar.kept.knows(&all[5].range()));
        // What is used stays.
        let used: Vec<_> = all[2..].iter().map(|pages| registrar.get(&pages.range(), Access::Write).unwrap()).collect();
        for _ in 0..2 {
            drop(registrar.get(&all[0].range(), Access::Write).unwrap());
        }
        assert_eq!(registrar.existing(), used.len() as u64);
        // Too much at once.
        let large = written((1 << 20) / page_size() + 1);
        for _ in 0..3 {
            drop(registrar.get(&large.range(), Access::Write).unwrap());
        }
        assert_eq!(registrar.existing(), used.len() as u64);
    }

    #[test]
    fn what_is_kept_gives_way_to_what_is_needed() {
        let Some(mut registrar) = Registrar::new(LIMITS) else { return };
        let all: Vec<Pages> = (0..3).map(|_| written(1)).collect();
        registrar.most = 2;
        for pages in &all[..2] {
            for _ in 0..2 {
                drop(registrar.get(&pages.range(), Access::Write).unwrap());
            }
        }
        assert_eq!(registrar.existing(), 2);
        let first = registrar.get(&all[2].range(), Access::Write).unwrap();
        assert_eq!(registrar.existing(), 2);
        let used = registrar.get(&all[1].range(), Access::Write).unwrap();
        let error = registrar.get(&all[0].range(), Access::Write).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        drop((first, used));
    }

    #[test]
    fn a_monitor_that_is_disabled_keeps_nothing() {
        assert_eq!(Limits::new(Some("disabled"), 7, 8).count, 0);
        assert_eq!(Limits::new(Some("userfaultfd"), 7, 8), Limits { count: 7, bytes: 8 });
        assert_eq!(Limits::new(None, u64::MAX, 8).count, watched::MOST);
    }

    #[test]
    fn without_a_limit_above_zero_nothing_is_kept() {
        for limits in [Limits { count: 0, ..LIMITS }, Limits { bytes: 0, ..LIMITS }] {
            let kept: Kept<Counted> = Kept::new(limits);
            assert!(kept.watched.is_none());
        }
    }
}
