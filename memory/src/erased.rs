//! Owned values of any type: small ones in place, others on the heap, so that a vector as the
//! buffer of an operation costs no allocation.
//! Invariant: `words` hold a value of the type that `kind` says, or the address of its box, until
//! it is taken or dropped. A value in place may be moved with the words, by copying them: nothing
//! refers to its own bytes.
#![allow(unsafe_code)]

use crate::fresh;
use core::any::TypeId;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};

/// Room for a value in place: a vector's three words, and one more.
type Words = [MaybeUninit<usize>; 4];

/// A value's type, and whether the words hold the value or the address of its box.
struct Kind {
    type_id: TypeId,
    is_on_heap: bool,
    /// # Safety
    /// The words hold such a value, which nothing uses any more.
    drop: unsafe fn(*mut Words),
}

/// The two kinds of a type.
struct Kinds<T>(T);

impl<T> Kinds<T> {
    const FITS: bool = size_of::<T>() <= size_of::<Words>() && align_of::<T>() <= align_of::<Words>();
}

impl<T: Send + 'static> Kinds<T> {
    const IN_PLACE: Kind = Kind {
        type_id: TypeId::of::<T>(),
        is_on_heap: false,
        drop: |words| {
            // SAFETY: the caller promises that the words hold a value, and gives it up.
            unsafe { words.cast::<T>().drop_in_place() }
        },
    };
    const ON_HEAP: Kind = Kind {
        type_id: TypeId::of::<T>(),
        is_on_heap: true,
        drop: |words| {
            // SAFETY: the caller promises that the words hold the address of a box.
            let boxed = unsafe { words.cast::<*mut T>().read() };
            // SAFETY: it was leaked as a box, and the caller gives it up.
            drop(unsafe { Box::from_raw(boxed) });
        },
    };
}

/// The words of a value that fits: moved one by one if it consists of words, because they may just
/// have been stored so ([`fresh()`]).
#[inline(always)]
fn words_of<T>(value: T) -> Words {
    const WORD: usize = size_of::<usize>();
    let mut words = [MaybeUninit::uninit(); 4];
    if align_of::<T>() == WORD && size_of::<T>().is_multiple_of(WORD) {
        let from = (&raw const value).cast::<MaybeUninit<usize>>();
        for (at, word) in words.iter_mut().enumerate().take(size_of::<T>() / WORD) {
            // SAFETY: it is a word of the value.
            let place = unsafe { from.add(at) };
            // SAFETY: as above.
            *word = fresh(unsafe { &*place });
        }
        core::mem::forget(value);
    } else {
        // SAFETY: the words have room for the value, and its alignment.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
    }
    words
}

/// An owned value.
pub struct Erased {
    words: Words,
    kind: &'static Kind,
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Erased")
    }
}

impl Drop for Erased {
    fn drop(&mut self) {
        // SAFETY: the words hold a value of this kind, and no code reaches it after this drop.
        unsafe { (self.kind.drop)(&raw mut self.words) }
    }
}

impl Erased {
    /// Keeps a value; also returns what `look` says of it: the place and the length of bytes that
    /// it owns. Bytes within the value itself would move with it, so such a value goes to the heap.
    #[inline(always)]
    pub fn new<T: Send + 'static>(mut value: T, look: impl Fn(&mut T) -> (*mut u8, usize)) -> (Self, (*mut u8, usize)) {
        if Kinds::<T>::FITS {
            let mut words = words_of(value);
            let place = words.as_mut_ptr().cast::<T>();
            // SAFETY: these are the words of the value, and nothing else refers to them. From here
            // on they move as words, so that the address below stays valid.
            let (base, len) = look(unsafe { &mut *place });
            let within = place.addr()..place.addr() + size_of::<T>();
            if len == 0 || !within.contains(&base.addr()) {
                // Loaded again: the look may have changed the value.
                let words = core::array::from_fn(|at| fresh(&words[at]));
                return (Self { words, kind: &Kinds::<T>::IN_PLACE }, (base, len));
            }
            // SAFETY: the value is there; the words are not used again.
            value = unsafe { place.read() };
        }
        Self::on_heap(value, look)
    }

    /// The same on the heap.
    fn on_heap<T: Send + 'static>(value: T, look: impl Fn(&mut T) -> (*mut u8, usize)) -> (Self, (*mut u8, usize)) {
        let boxed = Box::into_raw(Box::new(value));
        let mut words = [MaybeUninit::uninit(); 4];
        // SAFETY: the words have room for a pointer.
        unsafe { words.as_mut_ptr().cast::<*mut T>().write(boxed) };
        // SAFETY: the box was just leaked, and nothing else refers to its value.
        let bytes = look(unsafe { &mut *boxed });
        (Self { words, kind: &Kinds::<T>::ON_HEAP }, bytes)
    }

    /// The same value once more, moved word by word: it may have been kept a moment ago.
    ///
    /// # Safety
    /// Only one of the two is used or dropped.
    #[inline(always)]
    pub unsafe fn duplicate(&self) -> Self {
        Self { words: core::array::from_fn(|at| fresh(&self.words[at])), kind: fresh(&self.kind) }
    }

    /// The value.
    ///
    /// # Panics
    /// If it is of another type; it is dropped then.
    #[inline(always)]
    pub fn take<T: 'static>(self) -> T {
        assert!(self.is::<T>(), "the value is of another type");
        let this = ManuallyDrop::new(self);
        // SAFETY: nothing drops it any more.
        unsafe { this.read() }
    }

    fn is<T: 'static>(&self) -> bool {
        self.kind.type_id == TypeId::of::<T>()
    }

    /// Whether values of a type are kept in place, unless they contain their bytes.
    pub const fn has_room_for<T>() -> bool {
        Kinds::<T>::FITS
    }

    /// The value, from where it lies.
    ///
    /// # Panics
    /// If it is of another type.
    ///
    /// # Safety
    /// From here on nothing uses or drops this.
    #[inline(always)]
    pub unsafe fn read<T: 'static>(&self) -> T {
        assert!(self.is::<T>(), "the value is of another type");
        if self.kind.is_on_heap {
            // SAFETY: the words hold the address of a box.
            let boxed = unsafe { self.words.as_ptr().cast::<*mut T>().read() };
            // SAFETY: it was leaked as a box of this type, and only this takes it back.
            return *unsafe { Box::from_raw(boxed) };
        }
        // Loaded one by one, because they may just have been stored in other widths.
        let words: Words = core::array::from_fn(|at| fresh(&self.words[at]));
        // SAFETY: the words hold a value of this type.
        unsafe { words.as_ptr().cast::<T>().read() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn of_vec(bytes: &mut Vec<u8>) -> (*mut u8, usize) {
        (bytes.as_mut_ptr(), bytes.len())
    }

    fn of_array<const N: usize>(bytes: &mut [u8; N]) -> (*mut u8, usize) {
        (bytes.as_mut_ptr(), N)
    }

    fn nothing<T>(_: &mut T) -> (*mut u8, usize) {
        (core::ptr::null_mut(), 0)
    }

    #[test]
    fn a_vector_stays_in_place_and_its_bytes_where_they_are() {
        let vec = vec![1u8, 2, 3];
        let at = vec.as_ptr();
        let (erased, (base, len)) = Erased::new(vec, of_vec);
        assert_eq!((base.cast_const(), len, erased.kind.is_on_heap), (at, 3, false));
        let moved = Box::new(erased);
        let back: Vec<u8> = moved.take();
        assert_eq!((back.as_ptr(), &back[..]), (at, &[1, 2, 3][..]));
    }

    #[test]
    fn a_value_whose_bytes_lie_within_it_goes_to_the_heap() {
        let (erased, (base, len)) = Erased::new([7u8; 8], of_array);
        assert!(erased.kind.is_on_heap);
        let moved = Box::new(erased);
        // SAFETY: the array is on the heap, where it stays until it is taken.
        assert_eq!(unsafe { core::slice::from_raw_parts(base, len) }, [7; 8]);
        assert_eq!(moved.take::<[u8; 8]>(), [7; 8]);
    }

    #[test]
    fn a_value_that_changes_when_it_is_looked_at_is_kept_as_it_is_then() {
        let grow = |bytes: &mut Vec<u8>| {
            bytes.resize(5000, 7);
            of_vec(bytes)
        };
        let (erased, (base, len)) = Erased::new(vec![1u8], grow);
        let back = erased.take::<Vec<u8>>();
        assert_eq!((back.as_ptr(), back.len(), back[4999]), (base.cast_const(), len, 7));
    }

    #[test]
    fn a_value_without_room_in_place_goes_to_the_heap() {
        let (erased, _) = Erased::new([3u64; 5], nothing);
        assert!(erased.kind.is_on_heap);
        assert_eq!(erased.take::<[u64; 5]>(), [3; 5]);
        #[repr(align(64))]
        struct Aligned;
        assert!(Erased::new(Aligned, nothing).0.kind.is_on_heap);
    }

    #[test]
    fn another_type_is_not_taken_and_a_value_is_dropped_once() {
        let shared = Arc::new(());
        for on_heap in [false, true] {
            let make = || match on_heap {
                false => Erased::new(shared.clone(), nothing).0,
                true => Erased::new((shared.clone(), [0u64; 4]), nothing).0,
            };
            assert_eq!(make().kind.is_on_heap, on_heap);
            let other = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| make().take::<u8>()));
            assert!(other.is_err());
            drop(make());
            assert_eq!(Arc::strong_count(&shared), 1);
        }
        drop(Erased::new(shared.clone(), nothing).0.take::<Arc<()>>());
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
