//! The ranges of this process's memory that are watched for changes, and the thread that takes the
//! changes. A thread that changes such memory waits for that thread, so it must neither allocate
//! nor wait for anybody who may: it takes no lock but that of a table, and who holds that does
//! neither. (A program that suspends a thread which holds it, and then changes such memory, waits
//! for ever; FI_MR_CACHE_MONITOR=disabled is for those.)

use core::ops::Range;
use ofi_core::log::{self, Level, Subsystem};
use ofi_os::thread;
use ofi_os::unmapped::Watcher;
use ofi_sync::primitive::real::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Ranges at most.
pub(crate) const MOST: usize = 1024;

/// A watched range: its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

#[derive(Clone, Debug)]
struct Watch {
    range: Range<usize>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Current,
    /// Its memory is no longer what it was.
    Changed,
}

/// The watched ranges.
#[derive(Debug)]
pub(crate) struct Watched {
    watcher: Watcher,
    table: Mutex<Box<[Watch]>>,
    /// Held while ranges are added or removed, so that nobody stops watching what another one has
    /// just begun to watch. The thread does not take it.
    changing: Mutex<()>,
    /// Grows before changes are taken.
    changes: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Watched {
    /// The ranges of this process; `None` where the system does not let it watch its memory.
    pub(crate) fn get() -> Option<&'static Self> {
        static WATCHED: OnceLock<Option<Watched>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let watched = WATCHED.get_or_init(Self::new).as_ref()?;
        let runs = THREAD.get_or_init(|| thread::spawn(c"ofi-unmapped", || watched.take_changes()).is_ok());
        runs.then_some(watched)
    }

    fn new() -> Option<Self> {
        let watch = Watch { range: 0..0, state: State::Free };
        match Watcher::new() {
            Ok(watcher) => Some(Self {
                watcher,
                table: Mutex::new(vec![watch; MOST].into_boxed_slice()),
                changing: Mutex::default(),
                changes: AtomicU64::new(0),
            }),
            Err(error) => {
                log::log("verbs", Level::Info, Subsystem::Mr, || {
                    format!(
                        "no registration of a payload is kept, because the system tells of no unmapped memory: {error}"
                    )
                });
                None
            }
        }
    }

    /// Takes changes for ever.
    fn take_changes(&self) {
        loop {
            // Without an answer, this thread must go on, because others wait for it.
            if self.watcher.wait().is_err() {
                std::thread::yield_now();
            }
            // A thread that finds all changes taken also finds the new number; once it has the
            // lock, it finds them noted.
            let mut table = lock(&self.table);
            // Release: with the load of `changes`.
            self.changes.fetch_add(1, Ordering::Release);
            while let Some(changed) = self.watcher.take() {
                for watch in table.iter_mut().filter(|watch| overlap(&watch.range, &changed)) {
                    if watch.state == State::Current {
                        watch.state = State::Changed;
                    }
                }
            }
        }
    }

    /// A number that grows whenever changes are taken.
    pub(crate) fn changes(&self) -> u64 {
        // Acquire: with the thread's addition.
        self.changes.load(Ordering::Acquire)
    }

    /// Watches a range of whole pages; `None` if that is impossible or there is no room.
    pub(crate) fn add(&self, range: &Range<usize>) -> Option<Place> {
        let changing = lock(&self.changing);
        let mut table = lock(&self.table);
        let at = table.iter().position(|watch| watch.state == State::Free)?;
        table[at] = Watch { range: range.clone(), state: State::Current };
        drop(table);
        let watches = self.watcher.watch(range).is_ok();
        if !watches {
            lock(&self.table)[at].state = State::Free;
        }
        drop(changing);
        watches.then_some(Place(at))
    }

    /// Whether a range's memory, which the caller may use, is what it was when it was added.
    pub(crate) fn is_current(&self, place: Place) -> bool {
        self.watcher.is_quiet() && !self.has_changed(place)
    }

    /// Whether a change of the range was taken.
    pub(crate) fn has_changed(&self, Place(at): Place) -> bool {
        lock(&self.table)[at].state != State::Current
    }

    /// Watches a range no longer, unless it overlaps others, or has changed: then somebody else may
    /// watch what is there now, and some kernels would end that too.
    pub(crate) fn remove(&self, Place(at): Place) {
        let changing = lock(&self.changing);
        let mut table = lock(&self.table);
        let Watch { range, state } = table[at].clone();
        table[at].state = State::Free;
        let is_alone = state == State::Current
            && !table.iter().any(|watch| watch.state != State::Free && overlap(&watch.range, &range));
        drop(table);
        if is_alone {
            self.watcher.forget(&range);
        }
        drop(changing);
    }
}
