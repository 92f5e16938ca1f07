//! Copies of objects' tables with the stubs in place, and the exchange of an object's tables.
#![allow(unsafe_code)]

use crate::chosen::chosen;
use crate::tables::{FID, FIRST, Owner, TABLES, Table, tables, tables_of};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use ofi_abi::fi_ops;
use ofi_core::log::{self, Level, Subsystem};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A function of a table, of whatever type.
pub(crate) type Stub = unsafe extern "C" fn();

/// The stub of a place in the object and a slot, with the hooks or without.
pub(crate) static STUB: OnceLock<fn(usize, usize, bool) -> Stub> = OnceLock::new();

/// Words of a table that are copied: its size and its slots. What is behind them no program of
/// today knows.
const WORDS: usize = 33;
/// Copies that there are at most. Providers have a few tables for each kind of object.
const COPIES: usize = 2048;

/// A copy of a table. Objects point at `words`; `pass` in `stubs` finds the original in front.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Copied {
    pub(crate) owner: &'static Owner,
    pub(crate) table: &'static Table,
    original: usize,
    words: [usize; WORDS],
}

const IN_FRONT: usize = core::mem::offset_of!(Copied, words);
const _: () = assert!(core::mem::offset_of!(Copied, original) + 8 == IN_FRONT);

/// All copies, which never move and never end: their addresses distinguish them from other tables.
static ALL: Mutex<Vec<Copied>> = Mutex::new(Vec::new());
/// The addresses of the first copy, and behind the last possible one.
static RANGE: OnceLock<(usize, usize)> = OnceLock::new();

/// The copy that a table is.
pub(crate) fn copied(table: usize) -> Option<&'static Copied> {
    let (first, behind) = *RANGE.get()?;
    let start = table.checked_sub(IN_FRONT)?;
    if start < first || start >= behind {
        return None;
    }
    // SAFETY: only `copy` hands out addresses in this range, those of copies, which stay.
    Some(unsafe { &*with_exposed_provenance::<Copied>(start) })
}

/// The table that stands behind an object's table: the one that its provider installed.
pub fn original(ops: *const fi_ops) -> *const fi_ops {
    copied(ops.addr()).map_or(ops, |copied| with_exposed_provenance(copied.original))
}

/// The word at an address.
///
/// # Safety
/// A readable word is there.
pub(crate) unsafe fn word(address: usize) -> usize {
    // SAFETY: this function's contract.
    unsafe { with_exposed_provenance::<usize>(address).read() }
}

impl Copied {
    /// The original function of a slot.
    pub(crate) fn function(&self, slot: usize) -> usize {
        // SAFETY: providers keep their tables as long as their objects, and the copy has stubs only
        // for slots that the original has.
        unsafe { word(self.original + 8 * (slot + 1)) }
    }

    /// Whether it is still right for a table: the same size, and slots in the same places.
    ///
    /// # Safety
    /// `words` is a table of a living object.
    unsafe fn fits(&self, original: usize) -> bool {
        // SAFETY: this function's contract.
        let size = unsafe { word(original) };
        // SAFETY: the table is as long as its size says, and no more than the copy's is read.
        self.words[0] == size
            && (1..words_of(size)).all(|at| {
                // SAFETY: as above.
                (unsafe { word(original + 8 * at) } == 0) == (self.words[at] == 0)
            })
    }
}

fn words_of(size: usize) -> usize {
    (size / 8).clamp(1, WORDS)
}

/// The copy of a table at that place of an object, new or known; `None` if there are too many.
///
/// # Safety
/// `original` is a table of that kind of a living object.
unsafe fn copy(owner: &'static Owner, table: &'static Table, original: usize, place: usize) -> Option<usize> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if all.capacity() == 0 {
        all.reserve_exact(COPIES);
        let first = all.as_ptr().expose_provenance();
        RANGE.get_or_init(|| (first, first + COPIES * size_of::<Copied>()));
    }
    let known = all.iter().find(|copied| {
        // SAFETY: this function's contract.
        copied.original == original
            && core::ptr::eq(copied.owner, owner)
            && copied.table.index == table.index
            && unsafe { copied.fits(original) }
    });
    if let Some(known) = known {
        return Some(known.words.as_ptr().expose_provenance());
    }
    if all.len() == COPIES {
        return None;
    }
    let mut words = [0; WORDS];
    // SAFETY: this function's contract.
    words[0] = unsafe { word(original) };
    let is_watched = chosen().is_some_and(|chosen| !chosen.hooks.is_empty());
    for at in 1..words_of(words[0]) {
        // SAFETY: the table is as long as its size says.
        words[at] = unsafe { word(original + 8 * at) };
        if let Some(slot) = table.slots.get(at - 1).filter(|_| words[at] != 0) {
            let watched = is_watched || slot.opens.is_some() || slot.changes_tables;
            if let Some(stub) = STUB.get() {
                words[at] = (stub(place, slot.index, watched) as *const ()).expose_provenance();
            }
        }
    }
    all.push(Copied { owner, table, original, words });
    all.last().map(|copied| copied.words.as_ptr().expose_provenance())
}

/// Exchanges the tables of an object that are not exchanged yet.
///
/// # Safety
/// `object` is the address of a living object of that provider.
pub(crate) unsafe fn exchange(owner: &'static Owner, object: usize) {
    // SAFETY: this function's contract; a class begins an object.
    let class = unsafe { word(object) };
    let kinds = core::iter::once(&FID).chain(tables_of(class, owner));
    for (place, kind) in kinds.enumerate().take(TABLES) {
        let field = object + 8 * (FIRST + place);
        // SAFETY: an object of that class has a pointer there.
        let original = unsafe { word(field) };
        if original == 0 || copied(original).is_some() {
            continue;
        }
        // SAFETY: the object is alive, so its tables are, of the kinds that its class has.
        let Some(copy) = (unsafe { copy(owner, &tables()[*kind], original, place) }) else {
            log::log("", Level::Warn, Subsystem::Core, || {
                format!("FI_HOOK: {} has too many tables, and some of its calls are not watched", owner.name())
            });
            continue;
        };
        // SAFETY: as above. The program does not have the object yet, or is in a call that may
        // exchange its tables, which nothing may overlap (fi_enable(3)).
        unsafe { with_exposed_provenance_mut::<usize>(field).write(copy) };
    }
}
