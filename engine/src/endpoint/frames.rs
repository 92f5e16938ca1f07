//! Dispatches the frames that arrive on links to the parts of the core that handle them.

use super::core::Core;
use crate::peer::link::OneSidedPayload;
use crate::rx::arrive::OfferEnd;
use crate::rx::shared::RxSource;
use crate::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, OfferAnswer, RecvTarget, Token, Verdict};
use crate::wire::frame::{Frame, MessageInfo, Violation};
use ofi_core::Addr;
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;

const UNKNOWN_LINK: Violation = Violation("a frame on a link that is not open");

impl<K: LockKind> Core<K> {
    /// Handles the acknowledgments that a write has brought along.
    #[inline(never)]
    fn handle_performed_along(&mut self, id: LinkId, count: u16) -> Result<Disposition, Violation> {
        self.tx.handle_performed(&mut self.peers, &mut self.out, id, u32::from(count))?;
        Ok(Disposition::Done)
    }

    #[inline(always)]
    fn dispatch_message(
        &mut self,
        id: LinkId,
        (number, info): (u32, MessageInfo),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        if !self.admits() {
            return Ok(Disposition::Done);
        }
        if info.group && !self.admit_message(id, (info.tag, info.data))? {
            self.rx.lock().drop_message(&mut self.peers, (id, number, info), payload.len())?;
            return Ok(Disposition::Done);
        }
        let Self { peers, rx, out, .. } = self;
        rx.lock().handle_message(peers, out, (id, number, info), payload)
    }

    #[inline(always)]
    fn dispatch_rts(
        &mut self,
        id: LinkId,
        (number, info): (u32, MessageInfo),
        (len, preview): (u64, Incoming<'_>),
    ) -> Result<Disposition, Violation> {
        if !self.admits() {
            return Ok(Disposition::Done);
        }
        if info.group && !self.admit_message(id, (info.tag, info.data))? {
            self.rx.lock().drop_rts(&mut self.peers, (id, number, info), (len, preview.len()))?;
            return Ok(Disposition::Done);
        }
        let Self { peers, rx, out, .. } = self;
        rx.lock().handle_rts(peers, out, (id, number, info), (len, preview))
    }

    #[inline(never)]
    fn dispatch_offer(&mut self, id: LinkId, header: &[u8], len: u64) -> Result<OfferAnswer, Violation> {
        let Frame::Rts { id: number, len: total, info } = Frame::parse(header)? else {
            return Err(Violation("an offer of something other than a message"));
        };
        if total != len {
            return Err(Violation("an offer of another length than the message's"));
        }
        if !self.admits() {
            return Ok(OfferAnswer::Decline);
        }
        if info.group && !self.admit_message(id, (info.tag, info.data))? {
            self.rx.lock().drop_rts(&mut self.peers, (id, number, info), (len, 0))?;
            return Ok(OfferAnswer::Decline);
        }
        let Self { peers, rx, out, .. } = self;
        rx.lock().handle_offer(peers, out, (id, number, info), len)
    }

    /// Whether messages are received.
    #[inline(always)]
    fn admits(&mut self) -> bool {
        // No receive of a closing endpoint can take one; reading on lets the peer's Bye through.
        if self.life.is_closing() {
            return false;
        }
        self.check_av();
        true
    }

    #[inline(never)]
    fn dispatch_frame(&mut self, id: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        let frame = Frame::parse_any(header)?;
        if let Frame::Eager { id: number, info } = frame {
            return self.dispatch_message(id, (number, info), payload);
        }
        if !frame.has_payload() && !payload.is_empty() {
            return Err(Violation("a control frame has a payload"));
        }
        if let Frame::Rts { id: number, len, info } = frame {
            return self.dispatch_rts(id, (number, info), (len, payload));
        }
        let (is_closing, is_ending) = (self.life.is_closing(), self.life.is_ending());
        let Self { peers, tx, rx, target, out, .. } = self;
        if let Frame::Write { performed: performed @ 1.., .. } = frame
            && !is_ending
        {
            tx.handle_performed(peers, out, id, u32::from(performed))?;
        }
        match frame {
            Frame::Data { .. } | Frame::Cts { .. } | Frame::Ack { .. } | Frame::Arrived { .. } if is_ending => {}
            Frame::Response { .. } | Frame::Performed { .. } | Frame::Refused { .. } if is_ending => {}
            Frame::Write { .. } | Frame::Read { .. } | Frame::Atomic { .. } if is_closing => {}
            Frame::Write { id: number, place, more, last, commit, data, .. } => {
                let what = (place, more, commit);
                return target.handle_write(peers, out, (id, number), what, (last, data), payload);
            }
            Frame::Atomic { id: number, place, action, len, last, data } => {
                let what = (place, action, len);
                return target.handle_atomic(peers, out, (id, number), what, (last, data), payload);
            }
            Frame::Read { id: number, place, len, last } => {
                target.handle_read(peers, out, (id, number), (place, len, last))?;
            }
            Frame::Response { id: number, last } => {
                return tx.handle_response(peers, out, (id, number, last), payload);
            }
            Frame::Performed { count } => tx.handle_performed(peers, out, id, count)?,
            Frame::Refused { id: number, last, why } => tx.handle_refused(peers, out, id, (number, last, why))?,
            Frame::Data { token } => return rx.lock().handle_data(peers, out, (id, token), payload),
            Frame::Cts { id: number, token, len } => tx.handle_cts(peers, out, id, (number, token, len))?,
            Frame::Credit { bytes } => {
                peers.link(id).ok_or(UNKNOWN_LINK)?.tx.credit.add(bytes);
                peers.mark_pending(id);
            }
            Frame::Ack { id: number } => tx.handle_ack(peers, out, id, number)?,
            Frame::Bye => peers.link(id).ok_or(UNKNOWN_LINK)?.rx.ended = true,
            Frame::Blocked { bytes } => rx.lock().handle_blocked(peers, out, id, bytes),
            Frame::Arrived { count } => tx.handle_arrived(peers, out, id, count)?,
            // Handled above.
            Frame::Eager { .. } | Frame::Rts { .. } => {}
        }
        Ok(Disposition::Done)
    }
}

impl<K: LockKind> LinkEvents for Core<K> {
    fn handle_connect_request(
        &mut self,
        link: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        self.answer_connect_request(link, hello, from, vouches)
    }

    fn handle_connected(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down> {
        self.finish_connect(link, hello)
    }

    #[inline(always)]
    fn handle_frame(&mut self, id: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        if let (Some((_, tag)), Incoming::Complete(bytes)) = (Frame::plain(header), payload)
            && let Self { peers, rx: RxSource::Own(rx), out, .. } = self
            && rx.try_recv_fast(peers, out, (id, tag, bytes))
        {
            return Ok(Disposition::Done);
        }
        if let (Some((place, performed)), Incoming::Complete(bytes)) = (Frame::plain_write(header), payload)
            && self.life.is_open()
            && self.target.try_write_fast(&mut self.peers, &self.out, (id, place), bytes)
        {
            return if performed == 0 { Ok(Disposition::Done) } else { self.handle_performed_along(id, performed) };
        }
        self.dispatch_frame(id, header, payload)
    }

    fn handle_offer(&mut self, id: LinkId, header: &[u8], len: usize) -> Result<OfferAnswer, Violation> {
        self.dispatch_offer(id, header, len as u64)
    }

    fn handle_recv_done(&mut self, id: LinkId, target: RecvTarget) -> Result<(), Violation> {
        let Self { peers, tx, rx, target: access, out, .. } = self;
        if let Some(offer) = target.offer {
            rx.lock().handle_offer_end(peers, out, (id, offer), (target.buffer, OfferEnd::Placed));
            return Ok(());
        }
        match peers.take_one_sided(id) {
            None => rx.lock().handle_recv_done(peers, out, id, target),
            Some(OneSidedPayload::Access) => access.handle_access_done(peers, out, id, target),
            Some(OneSidedPayload::Response { number, last }) => {
                tx.handle_response_done(peers, out, (id, number, last), target)
            }
        }
    }

    fn handle_send_done(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        let Self { peers, tx, target, out, .. } = self;
        if token == Token::RESPONSE {
            target.handle_send_done(peers, link, buffer, true);
        } else {
            tx.handle_send_done(peers, out, link, token, buffer);
        }
    }

    fn handle_offer_declined(&mut self, _link: LinkId, token: Token, buffer: Buffer) {
        self.tx.handle_offer_declined(token, buffer);
    }

    fn handle_send_returned(&mut self, _link: LinkId, token: Token, buffer: Buffer) {
        // The end of a link drops its responses.
        if token != Token::RESPONSE {
            self.tx.handle_send_returned(token, buffer);
        }
    }

    fn handle_recv_retry(&mut self, id: LinkId, target: RecvTarget) {
        let Self { peers, tx, rx, target: access, out, .. } = self;
        if let Some(offer) = target.offer {
            return rx.lock().handle_offer_end(peers, out, (id, offer), (target.buffer, OfferEnd::Declined));
        }
        match peers.take_one_sided(id) {
            None => rx.lock().handle_recv_retry(peers, id, target),
            Some(OneSidedPayload::Access) => access.handle_access_lost(peers, id, false),
            Some(OneSidedPayload::Response { number, .. }) => tx.give_result_back(id, number, target.buffer),
        }
    }

    fn handle_recv_failed(&mut self, id: LinkId, target: RecvTarget, why: Down) {
        let Self { peers, tx, rx, target: access, out, .. } = self;
        if let Some(offer) = target.offer {
            return rx.lock().handle_offer_end(peers, out, (id, offer), (target.buffer, OfferEnd::Failed(why)));
        }
        match peers.take_one_sided(id) {
            None => rx.lock().handle_recv_failed(peers, out, (id, target), &why),
            Some(OneSidedPayload::Access) => {
                drop(target);
                access.handle_access_lost(peers, id, true);
            }
            Some(OneSidedPayload::Response { number, last }) => {
                tx.handle_response_failed(peers, out, (id, number, last), (target, why));
            }
        }
    }

    fn handle_send_failed(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down) {
        let Self { peers, tx, target, out, .. } = self;
        if token == Token::RESPONSE {
            return target.handle_send_done(peers, link, buffer, false);
        }
        tx.handle_send_failed(peers, out, (link, token), buffer, why);
        // Send the next data frame, of another message.
        peers.mark_pending(link);
    }

    fn handle_send_room(&mut self, link: LinkId) {
        if let Some(link) = self.peers.link(link) {
            link.tx.full = false;
        }
        self.peers.mark_pending(link);
    }

    fn handle_link_down(&mut self, link: LinkId, reason: Down) {
        self.lose_link(link, reason);
    }
}
