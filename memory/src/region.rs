//! Registered memory (fi_mr(3)): the application's ranges as one space of addresses, with rights.
//! A [`Region`] resolves what a peer asks for, which is not trusted, to a [`RegionUse`], the only
//! way to the bytes. After [`Region::close`] no use begins; once [`Region::is_idle`], nothing
//! touches the memory any more, however late a payload arrives.
//!
//! For applications that poll memory, [`RegionUse::write`] makes one store of a write of up to 8
//! bytes that lies in one aligned word and is itself aligned; of a longer one, it stores the last
//! aligned word, or the part of it that is written, after everything else. The kernel writes
//! payloads that a system call places ([`Buffer::registered`](crate::Buffer::registered)), and
//! copies upwards.
#![allow(unsafe_code)]

mod access;
mod direct;
mod kernel;
#[cfg(test)]
mod tests;

use crate::Buffer;
use core::borrow::Borrow;
use core::fmt;
use ofi_core::{Errno, MrAccess};
use ofi_sync::primitive::Arc;
use ofi_sync::uses::Uses;

/// How the memory of a region may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of it is mapped: it is accessed directly.
    Mapped,
    /// Parts may be unmapped or protected, such as in the whole address space. The kernel copies
    /// for us, and answers EFAULT there. Accesses that must be one load, one store or atomic are
    /// made directly after the page has been tried; a page that the application unmaps between the
    /// two is the one case that raises a signal.
    Probed,
}

/// Up to how many bytes of memory [`Reach::of`] populates. Populating more takes longer than
/// reading the list of mappings, and needs memory that the application may never touch.
const POPULATE_MAX: usize = 256 << 10;

impl Reach {
    /// How memory registered with these rights can be reached: only peers with a remote right
    /// reach it at all, the pages of a short region are populated, and `is_mapped` answers for
    /// other regions whether all of their memory is mapped, and writable if its argument is true.
    ///
    /// # Safety
    /// The application has lent the memory of `ranges`, each an address and a length; they may
    /// have holes.
    pub unsafe fn of(ranges: &[(*mut u8, usize)], access: MrAccess, is_mapped: impl FnOnce(bool) -> bool) -> Self {
        if !access.intersects(MrAccess::REMOTE) {
            return Self::Probed;
        }
        let write = access.contains(MrAccess::REMOTE_WRITE);
        let len = ranges.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len));
        let mut all = Some(len <= POPULATE_MAX).filter(|short| *short);
        for (at, len) in ranges.iter().filter(|(_, len)| *len > 0) {
            if all == Some(true) {
                // SAFETY: this function's contract.
                all = unsafe { kernel::populate_all(*at, *len, write) };
            }
        }
        if all.unwrap_or_else(|| is_mapped(write)) { Self::Mapped } else { Self::Probed }
    }
}

/// Why memory of a region cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The region does not have all of the bytes.
    OutOfRange,
    /// The region does not have the right.
    NoRight,
    /// The region is closed.
    Closed,
    /// The bytes could not be reached: EFAULT if some are not mapped, or not writable.
    Unreachable(Errno),
}

impl RegionError {
    /// The error that the initiator reports. The key of a closed region names no region any more.
    pub const fn errno(self) -> Errno {
        match self {
            Self::OutOfRange | Self::NoRight => Errno::EACCES,
            Self::Closed => Errno::EINVAL,
            Self::Unreachable(errno) => errno,
        }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("beyond the end of the memory region"),
            Self::NoRight => f.write_str("the memory region was registered without this access"),
            Self::Closed => f.write_str("the memory region is closed"),
            Self::Unreachable(errno) => write!(f, "the registered memory cannot be accessed: {errno}"),
        }
    }
}

/// A contiguous range of a region.
#[derive(Debug)]
struct Range {
    base: *mut u8,
    len: usize,
    /// Bytes of the region before it.
    before: u64,
}

/// Rights with which the registrant lets its memory be changed.
const WRITING: MrAccess =
    MrAccess::RECV.union(MrAccess::READ).union(MrAccess::REMOTE_WRITE).union(MrAccess::COLLECTIVE);

#[derive(Debug)]
struct Inner {
    ranges: Box<[Range]>,
    /// The address by which peers name the first byte.
    first: u64,
    len: u64,
    access: MrAccess,
    reach: Reach,
    uses: Uses,
    /// The buffer that the memory belongs to, unless the application vouches for it. A trait
    /// object, because the compiler does not inline the drop of a type that contains itself.
    _source: Option<Box<dyn fmt::Debug + Send>>,
}

/// A registered memory region. Clones are handles of the same region.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

// SAFETY: a range is an address and a length; `Region::new` obliges its caller to keep the memory
// valid for every thread.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing but the atomic `uses` changes.
unsafe impl Sync for Inner {}

impl Region {
    /// A region of these ranges, one behind the other, each with its first address and length;
    /// `first` is the address by which peers name the first byte: 0, or its virtual address with
    /// FI_MR_VIRT_ADDR.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`] if a range, or the region's addresses, exceed 64 bits.
    ///
    /// # Safety
    /// Until the region is dropped, or closed and idle: mapped ranges stay readable and, with a
    /// right to change the memory (FI_RECV, FI_READ, FI_REMOTE_WRITE, FI_COLLECTIVE), writable. The
    /// application has lent all of the memory to the users of the region: they change it at any
    /// time, and no other code relies on its content meanwhile. If ranges may have holes, `reach`
    /// is [`Reach::Probed`], and the application does not unmap or protect memory that is just
    /// being accessed.
    pub unsafe fn new(
        ranges: &[(*mut u8, usize)],
        first: u64,
        access: MrAccess,
        reach: Reach,
    ) -> Result<Self, RegionError> {
        let mut len = 0u64;
        let mut placed = Vec::with_capacity(ranges.len());
        for (base, size) in ranges {
            base.addr().checked_add(*size).ok_or(RegionError::OutOfRange)?;
            placed.push(Range { base: *base, len: *size, before: len });
            len = len.checked_add(*size as u64).ok_or(RegionError::OutOfRange)?;
        }
        first.checked_add(len).ok_or(RegionError::OutOfRange)?;
        let uses = Uses::new();
        Ok(Self(Arc::new(Inner { ranges: placed.into(), first, len, access, reach, uses, _source: None })))
    }

    /// A region that owns its memory; peers name the first byte by address 0.
    pub fn owned(bytes: Vec<u8>, access: MrAccess) -> Self {
        Self::owned_with(bytes, access, Reach::Mapped)
    }

    /// The same, reached in either way: all of the memory is there, so both are right.
    pub fn owned_with(bytes: Vec<u8>, access: MrAccess, reach: Reach) -> Self {
        Self::over(Buffer::Owned(bytes), access, reach)
    }

    /// A region over a buffer that the application lent for an operation, so that several
    /// transfers use parts of it. The buffer is handed back when the region and all uses are
    /// dropped.
    pub fn lent(buffer: Buffer, access: MrAccess) -> Self {
        Self::over(buffer, access, Reach::Mapped)
    }

    fn over(mut buffer: Buffer, access: MrAccess, reach: Reach) -> Self {
        let (mut ranges, mut len) = (Vec::with_capacity(1), 0);
        buffer.for_each_mut(0, buffer.len(), |chunk| {
            ranges.push(Range { base: chunk.base, len: chunk.len, before: len });
            len += chunk.len as u64;
        });
        // Spans do not move, nor do the bytes of a vector, which are on the heap; nothing else
        // reaches them.
        let _source: Option<Box<dyn fmt::Debug + Send>> = Some(Box::new(buffer));
        Self(Arc::new(Inner { ranges: ranges.into(), first: 0, len, access, reach, uses: Uses::new(), _source }))
    }

    /// The address by which peers name the first byte.
    pub fn first(&self) -> u64 {
        self.0.first
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The rights.
    pub fn access(&self) -> MrAccess {
        self.0.access
    }

    /// How its memory may be reached.
    pub fn reach(&self) -> Reach {
        self.0.reach
    }

    /// Begins a use of the `len` bytes at `address`, as peers name it, which needs all rights of
    /// `access`. Nothing is trusted. No bytes may be anywhere from the region's start to its end.
    ///
    /// # Errors
    /// All but [`RegionError::Unreachable`].
    #[inline(always)]
    pub fn resolve(&self, address: u64, len: usize, access: MrAccess) -> Result<RegionUse<&Self>, RegionError> {
        let inner = &*self.0;
        if !inner.access.contains(access) {
            return Err(RegionError::NoRight);
        }
        let from = address.checked_sub(inner.first).filter(|from| *from <= inner.len).ok_or(RegionError::OutOfRange)?;
        if len as u64 > inner.len - from {
            return Err(RegionError::OutOfRange);
        }
        if !inner.uses.begin() {
            return Err(RegionError::Closed);
        }
        Ok(RegionUse { region: self, from, len })
    }

    /// Writes bytes to `address`, in one use of the region. Not inlined: it returns in a register,
    /// where [`Self::resolve`] returns in memory what its caller loads a moment later
    /// ([`fresh()`](crate::fresh())).
    ///
    /// # Errors
    /// As for [`Self::resolve`]; [`RegionError::Unreachable`] when some of the bytes may have been
    /// written.
    #[inline(never)]
    pub fn write(&self, address: u64, bytes: &[u8], access: MrAccess) -> Result<(), RegionError> {
        self.resolve(address, bytes.len(), access)?.write(0, bytes)
    }

    /// Lets no use begin any more. Uses in progress go on: the memory is free when
    /// [`Self::is_idle`].
    pub fn close(&self) {
        self.0.uses.close();
    }

    /// Lets uses begin again, after a close that did not wait for the last use.
    pub fn reopen(&self) {
        self.0.uses.reopen();
    }

    /// True if no use is in progress.
    pub fn is_idle(&self) -> bool {
        self.0.uses.is_idle()
    }
}

/// A range of a region that is in use: as long as this exists, the region is not idle. Borrows the
/// region, or with [`Self::into_owned`] owns a handle of it. The caller
/// asks [`Region::resolve`] for the rights that it needs; here, memory without any right to change
/// it is not written.
pub struct RegionUse<H: Borrow<Region>> {
    region: H,
    /// Bytes of the region before the range.
    from: u64,
    len: usize,
}

impl<H: Borrow<Region>> fmt::Debug for RegionUse<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionUse").field("from", &self.from).field("len", &self.len).finish_non_exhaustive()
    }
}

impl<H: Borrow<Region>> Drop for RegionUse<H> {
    fn drop(&mut self) {
        self.inner().uses.end();
    }
}

impl RegionUse<&Region> {
    /// The same use with a handle of its own, to be kept.
    pub fn into_owned(self) -> RegionUse<Region> {
        let owned = RegionUse { region: self.region.clone(), from: self.from, len: self.len };
        core::mem::forget(self);
        owned
    }
}

impl<H: Borrow<Region>> RegionUse<H> {
    #[inline]
    fn inner(&self) -> &Inner {
        &self.region.borrow().0
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the region has any right to change its memory.
    ///
    /// # Errors
    /// [`RegionError::NoRight`].
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), RegionError> {
        if self.inner().access.intersects(WRITING) { Ok(()) } else { Err(RegionError::NoRight) }
    }

    /// The region.
    pub fn region(&self) -> &Region {
        self.region.borrow()
    }

    /// Calls `take` with address and length of the parts of the `len` bytes from offset `at` on, in
    /// order, each of which lies in one range of the region. None are empty, and they end with the
    /// first error.
    #[inline]
    fn try_for_each<E>(
        &self,
        at: usize,
        len: usize,
        mut take: impl FnMut(*mut u8, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let inner = self.inner();
        let len = len.min(self.len.saturating_sub(at));
        // Does not overflow: both lie within the region.
        let (mut from, mut left) = (self.from + at.min(self.len) as u64, len);
        for range in &inner.ranges {
            if left == 0 {
                break;
            }
            // Does not overflow: `from` lies in this range or behind it. Offsets in it fit.
            let Some(skip) = usize::try_from(from - range.before).ok().filter(|skip| *skip < range.len) else {
                continue;
            };
            let count = left.min(range.len - skip);
            take(range.base.wrapping_add(skip), count)?;
            from += count as u64;
            left -= count;
        }
        Ok(())
    }
}
