//! Memory that ended messages and operations leave to later ones: fresh memory costs a page fault
//! for every page, which takes longer than copying to it.

use ofi_core::Errno;

/// Pieces to keep.
const MOST_PIECES: usize = 16;
/// Bytes to keep, in all pieces.
const MOST_BYTES: usize = 16 << 20;
/// The allocator serves shorter requests fast enough, in bytes.
const LEAST: usize = 4096;
/// A request takes at least this part of a piece, so that few bytes do not occupy many.
const LEAST_PART: usize = 4;

/// Spare memory of an endpoint's groups.
#[derive(Debug, Default)]
pub(super) struct Spares {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// `len` bytes, whatever their values.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn take(&mut self, len: usize) -> Result<Vec<u8>, Errno> {
        let fits = |piece: &Vec<u8>| piece.capacity() >= len && piece.capacity() / LEAST_PART <= len;
        let found = if len < LEAST { None } else { self.pieces.iter().rposition(fits) };
        let mut bytes = found.map_or_else(Vec::new, |at| self.pieces.swap_remove(at));
        self.bytes -= bytes.capacity();
        bytes.truncate(len);
        bytes.try_reserve_exact(len - bytes.len()).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(len, 0);
        Ok(bytes)
    }

    /// A copy of these bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut copy = self.take(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// Keeps memory, unless there is enough.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        let size = bytes.capacity();
        if size >= LEAST && self.bytes + size <= MOST_BYTES {
            if self.pieces.len() == MOST_PIECES {
                self.bytes -= self.pieces.swap_remove(0).capacity();
            }
            self.bytes += size;
            self.pieces.push(bytes);
        }
    }

    /// Returns all memory to the system.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_serves_again() {
        let mut spares = Spares::default();
        let bytes = spares.take(1 << 20).unwrap();
        let address = bytes.as_ptr();
        spares.put(bytes);
        let again = spares.take(1 << 19).unwrap();
        assert_eq!((again.len(), again.as_ptr()), (1 << 19, address));
        assert_eq!(spares.bytes, 0);
        spares.put(again);
        let longer = spares.take(1 << 20).unwrap();
        assert_eq!((longer.len(), longer.as_ptr()), (1 << 20, address));
    }

    #[test]
    fn few_bytes_do_not_occupy_many() {
        let mut spares = Spares::default();
        spares.put(vec![0; 1 << 20]);
        for len in [0, 8, LEAST, (1 << 18) - 1] {
            let bytes = spares.take(len).unwrap();
            assert_eq!((bytes.len(), bytes.capacity()), (len, len));
        }
        assert_eq!(spares.bytes, 1 << 20);
        assert_eq!(spares.copy(&[7; 1 << 18]).unwrap().capacity(), 1 << 20);
        spares.put(vec![0; LEAST - 1]);
        assert_eq!(spares.bytes, 0);
    }

    #[test]
    fn no_more_is_kept_than_the_limits() {
        let mut spares = Spares::default();
        spares.put(vec![0; MOST_BYTES + 1]);
        assert_eq!(spares.bytes, 0);
        for _ in 0..100 {
            spares.put(vec![0; 1 << 19]);
        }
        assert_eq!((spares.pieces.len(), spares.bytes), (MOST_PIECES, MOST_PIECES << 19));
        spares.put(vec![0; LEAST]);
        assert_eq!((spares.pieces.len(), spares.bytes), (MOST_PIECES, ((MOST_PIECES - 1) << 19) + LEAST));
        spares.clear();
        assert_eq!(spares.bytes, 0);
        assert!(spares.take(usize::MAX / 2).is_err());
    }
}
