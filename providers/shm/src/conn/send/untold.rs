//! Frames of whose end the application does not learn: it may not call again, so the engine refuses
//! what cannot leave at once, or a backstop sends it.

use super::super::line::{DAMAGED, INLINE};
use super::{Large, Out, Sender};
use ofi_engine::transport::Token;
use ofi_engine::wire::frame::{MAX_HEADER, Violation};

impl Sender {
    /// Whether a frame with a payload of `len` bytes that is to be injected would leave now.
    pub(crate) fn takes_at_once(&mut self, len: usize, budget: &mut usize) -> Result<bool, Violation> {
        if self.has_more() || !self.writer.has_room(2).map_err(|_| DAMAGED)? {
            return Ok(false);
        }
        // What the pool is too small for waits here, as all that is longer.
        if len + MAX_HEADER <= INLINE || len > self.allocator.limit() {
            return Ok(true);
        }
        self.writer.look().map_err(|_| DAMAGED)?;
        self.allocator.free(self.writer.consumed());
        if let Some(wanted) = self.allocator.wanted(len) {
            self.grow(wanted, budget);
        }
        if self.allocator.is_cramped(len) {
            return Ok(false);
        }
        if self.allocator.next(len).is_none()
            && let Some(wide) = self.allocator.wider()
            && self.pool.provide(wide).is_ok()
        {
            self.allocator.widen(wide, self.pool.place_of(wide));
        }
        Ok(self.allocator.next(len).is_some() || self.takes_pieces(len)?)
    }

    /// Whether there is room for all pieces of a payload.
    fn takes_pieces(&mut self, len: usize) -> Result<bool, Violation> {
        let pieces = len.div_ceil(self.allocator.piece(len)) as u64;
        Ok(self.allocator.fits_in_pieces(len) && self.writer.has_room(pieces).map_err(|_| DAMAGED)?)
    }

    /// [`Self::send_large`], but all or nothing of a payload that the pool is large enough for: in
    /// one piece if there is no room for all of several.
    pub(crate) fn send_whole(&mut self, large: &mut Large, budget: &mut usize) -> Result<bool, Violation> {
        let least = if self.takes_pieces(large.len)? { 0 } else { large.len };
        self.send_pieces(large, least, budget)
    }

    /// Whether the application does not learn when the last frame that waits has been sent.
    pub(crate) fn ends_untold(&self) -> bool {
        match self.out.back() {
            None => false,
            Some(Out::Small(_, _, Some((token, _))) | Out::Large(Large { token: Some(token), .. })) => {
                *token == Token::RESPONSE
            }
            Some(_) => true,
        }
    }
}
