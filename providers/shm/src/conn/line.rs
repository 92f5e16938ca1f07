//! The lines of a link: what they hold, and how it is packed into words.
//!
//! ```text
//! first word of a line   stamp 16 · kind 8 · header length 8 · length 32 (from the highest bits)
//! Inline   header and payload follow, up to the end of the next line
//! Pooled   header in 40 bytes · offset in the pool u32 · bytes there u32; length: of the payload
//! Piece    offset u32 · 0 u32; length: bytes there, of the payload that is arriving
//! Hello    identity [16] · flags u64 · offset u32 · 0 u32; length: bytes there
//! End      nothing follows
//! Direct   header in 40 bytes · address u64 · number u32 · when it was lent u32; length: of the payload (`cma.rs`)
//! Offer    the same, of a message that the peer may take at once
//! Absent   header; length: of the payload, whose memory is gone
//! Outcome  number u64 · outcome of the payload of that number u64
//! Window   number u64 · address u64 · time at which it opened, in nanoseconds of the clock, u64; length: of the
//!          payload, which the other side lent and writes there
//! Permission  the classes of payloads that this side reads in the other's memory, one bit each · whether the other
//!          side has asked u64
//! ```

use ofi_engine::wire::frame::{HEADER_WORDS, Header, Violation};
use ofi_sync::lines::BODY;

/// Bytes of header and payload that may travel in lines.
pub(crate) const INLINE: usize = 2 * BODY * 8;
/// Bytes of header and payload that fit into one line.
pub(super) const LINE: usize = BODY * 8;

/// The violation of a side that writes what no correct side writes.
pub(super) const DAMAGED: Violation = Violation("the link's shared memory is corrupt");

pub(super) const KIND_INLINE: u64 = 1;
pub(super) const KIND_POOLED: u64 = 2;
pub(super) const KIND_PIECE: u64 = 3;
pub(super) const KIND_HELLO: u64 = 4;
pub(super) const KIND_END: u64 = 5;
pub(super) const KIND_DIRECT: u64 = 6;
pub(super) const KIND_OUTCOME: u64 = 7;
pub(super) const KIND_PERMISSION: u64 = 8;
pub(super) const KIND_ABSENT: u64 = 9;
pub(super) const KIND_WINDOW: u64 = 10;
pub(super) const KIND_OFFER: u64 = 12;

/// Flag of a hello: the sender takes part in ordering memory accesses across processes.
pub(super) const ORDERS: u64 = 1;

/// Packs the first word of a line.
pub(super) const fn head(kind: u64, header: usize, len: usize) -> u64 {
    kind << 40 | (header as u64) << 32 | len as u64
}

/// The header length in the first word of a line.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "8 bits")]
pub(super) const fn header_of(word: u64) -> usize {
    (word >> 32 & 0xff) as usize
}

/// The upper half of a line's first word, for a message with a tag and nothing else.
pub(super) const PLAIN_HEAD: u64 = head(KIND_INLINE, 16, 0) >> 32;

/// The words of a line that holds a whole header, and what follows it.
pub(super) fn body_of(header: &Header, rest: [u64; BODY - HEADER_WORDS]) -> [u64; BODY] {
    let mut body = [0; BODY];
    let (front, back) = body.split_at_mut(HEADER_WORDS);
    front.copy_from_slice(&header.words());
    back.copy_from_slice(&rest);
    body
}

/// Packs an offset in the pool and a length.
pub(super) const fn place(at: usize, len: usize) -> u64 {
    (at as u64) << 32 | len as u64
}

/// The reverse of [`place`].
#[allow(clippy::cast_possible_truncation, reason = "32 bits each")]
pub(super) const fn unplace(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, (word & 0xffff_ffff) as usize)
}

/// Packs at most `8 * N` bytes into words, padded with zeros.
#[inline]
pub(super) fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut out = [0; N];
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in out.iter_mut().zip(chunks) {
        *word = u64::from_ne_bytes(*chunk);
    }
    if !rest.is_empty()
        && let Some(word) = out.get_mut(chunks.len())
    {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        *word = u64::from_ne_bytes(last);
    }
    out
}
