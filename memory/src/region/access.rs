//! Accesses to the memory of a region through a use of it.

use super::{Reach, Region, RegionError, RegionUse, direct, kernel};
use core::borrow::Borrow;

impl<H: Borrow<Region>> RegionUse<H> {
    /// Whether the range has `len` bytes from offset `at` on.
    #[inline]
    fn check(&self, at: usize, len: usize) -> Result<(), RegionError> {
        if at <= self.len && len <= self.len - at { Ok(()) } else { Err(RegionError::OutOfRange) }
    }

    /// Copies `bytes` to offset `at`. The last word is written last, as the module's head says.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`]; [`RegionError::NoRight`] if the region has no right to change
    /// its memory; [`RegionError::Unreachable`] with some of the bytes written.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), RegionError> {
        self.check(at, bytes.len())?;
        self.check_writable()?;
        let mut rest = bytes;
        self.try_for_each(at, bytes.len(), |to, len| {
            let (now, later) = rest.split_at(len);
            rest = later;
            match self.inner().reach {
                // SAFETY: the memory is writable by `Region::new`, as long as this use exists.
                Reach::Mapped => unsafe { direct::write(to, now) },
                // SAFETY: the memory is lent by `Region::new`, as long as this use exists.
                Reach::Probed => unsafe { kernel::write(to, now) }?,
            }
            Ok(())
        })
    }

    /// Copies the bytes from offset `at` on to `out`. Up to 8 bytes that lie in one aligned word
    /// and are themselves aligned are one load.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`], or [`RegionError::Unreachable`] with some of `out` written.
    #[inline]
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), RegionError> {
        self.check(at, out.len())?;
        let len = out.len();
        let mut rest = out;
        self.try_for_each(at, len, |from, len| {
            let (now, later) = core::mem::take(&mut rest).split_at_mut(len);
            rest = later;
            match self.inner().reach {
                // SAFETY: the memory is readable by `Region::new`, as long as this use exists.
                Reach::Mapped => unsafe { direct::read(from, now) },
                // SAFETY: the memory is lent by `Region::new`, as long as this use exists.
                Reach::Probed => unsafe { kernel::read(from, now) }?,
            }
            Ok(())
        })
    }

    /// Makes the range durable if it maps a file, with the rest of its pages (msync(2)).
    ///
    /// # Errors
    /// [`RegionError::Unreachable`].
    pub fn flush(&self) -> Result<(), RegionError> {
        self.try_for_each(0, self.len, kernel::sync)
    }

    /// Tries the pages of the range if they may be unmapped: whether they are readable or, if
    /// `write`, writable. Changes nothing.
    ///
    /// # Errors
    /// [`RegionError::Unreachable`].
    pub fn try_pages(&self, write: bool) -> Result<(), RegionError> {
        match self.inner().reach {
            Reach::Mapped => Ok(()),
            Reach::Probed => self.try_for_each(0, self.len, |at, len| {
                // SAFETY: the memory is lent by `Region::new`, as long as this use exists.
                unsafe { kernel::try_pages(at, len, write) }
            }),
        }
    }

    /// The address of the byte at offset `at`, and how many bytes follow it there in memory, with
    /// itself, up to the end of the range: 0 beyond it.
    #[inline]
    pub(crate) fn place(&self, at: usize) -> (*mut u8, usize) {
        let found = self.try_for_each(at, self.len.saturating_sub(at), |to, len| Err((to, len)));
        found.err().unwrap_or((core::ptr::null_mut(), 0))
    }

    /// Calls `take` with the parts of the `len` bytes from offset `at` on; fewer if the range ends.
    pub(crate) fn for_each_part(&self, at: usize, len: usize, mut take: impl FnMut(*mut u8, usize)) {
        let done = self.try_for_each(at, len, |to, len| {
            take(to, len);
            Ok::<(), core::convert::Infallible>(())
        });
        let Ok(()) = done;
    }
}
