//! Responses to reads and atomic operations of peers, sent in the order of the requests.

use super::{LEAST_COPY, Target, try_charge_copy};
use crate::peer::Peers;
use crate::transport::{ControlSubmitted, LinkId, Payload, Submitted, Token, Transport, Urgency};
use crate::wire::frame::{Frame, MAX_PAYLOAD};
use crate::wire::one_sided::Refusal;
use ofi_memory::{Buffer, Region, RegionUse};
use ofi_sync::account::Account;

/// What a request returns.
#[derive(Debug)]
enum Source {
    /// Bytes that were copied when the request arrived.
    Copied(Option<Buffer>),
    /// Bytes of a region, sent from where they are. `None` while the transport keeps it.
    Direct(Option<Buffer>),
    /// Bytes of a region that may be unmapped in parts: copied piece by piece. The piece that is
    /// leaving has `copied` bytes.
    Probed { range: RegionUse<Region>, copied: usize },
    /// Nothing: the request was refused.
    Refused(Refusal),
}

/// The response to a request: `at` of its `len` bytes have left.
#[derive(Debug)]
pub(super) struct Response {
    /// The initiator's number.
    id: u32,
    source: Source,
    at: usize,
    len: usize,
}

impl Response {
    pub(super) const fn refused(id: u32, why: Refusal) -> Self {
        Self { id, source: Source::Refused(why), at: 0, len: 0 }
    }

    pub(super) const fn copied(id: u32, bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { id, source: Source::Copied(Some(Buffer::Owned(bytes))), at: 0, len }
    }

    pub(super) fn of_region(id: u32, range: RegionUse<Region>) -> Self {
        let len = range.len();
        let source = match Buffer::registered(range) {
            Ok(buffer) => Source::Direct(Some(buffer)),
            Err(range) => Source::Probed { range, copied: 0 },
        };
        Self { id, source, at: 0, len }
    }

    /// Bytes that it returns.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the account is charged for it.
    pub(super) const fn charged(&self) -> usize {
        match self.source {
            Source::Copied(_) => self.len,
            Source::Probed { copied, .. } => copied,
            Source::Direct(_) | Source::Refused(_) => 0,
        }
    }

    /// Charges the account for the next piece, if that has to be copied: without room, the piece is
    /// short. Returns its length.
    #[inline]
    fn begin_piece(&mut self, account: &Account) -> usize {
        let len = (self.len - self.at).min(MAX_PAYLOAD);
        let Source::Probed { copied, .. } = &mut self.source else { return len };
        *copied = if try_charge_copy(account, len) {
            len
        } else {
            account.charge(LEAST_COPY);
            LEAST_COPY
        };
        *copied
    }

    /// The piece has left.
    #[inline]
    fn end_piece(&mut self, account: &Account) {
        self.at += match self.source {
            Source::Probed { copied, .. } => copied,
            Source::Copied(_) | Source::Direct(_) | Source::Refused(_) => (self.len - self.at).min(MAX_PAYLOAD),
        };
        self.drop_piece(account);
    }

    /// The copy of the piece is gone.
    fn drop_piece(&mut self, account: &Account) {
        if let Source::Probed { copied, .. } = &mut self.source {
            account.release(core::mem::take(copied));
        }
    }
}

/// The outcome of sending a piece of a response.
enum Sent {
    /// It has left.
    Piece,
    /// The transport keeps it.
    Kept,
    /// Back-pressure, or the link is broken.
    Stuck { full: bool },
    /// The memory is not there.
    Fault,
}

impl Target {
    /// Queues a response.
    pub(super) fn respond(&mut self, peers: &mut Peers, link: LinkId, response: Response) {
        peers.account().charge(response.charged());
        self.state(link).responses.push_back(response);
        peers.mark_pending(link);
    }

    /// Whether responses can leave on a link now.
    pub(crate) fn could_leave(&self, id: LinkId) -> bool {
        let state = self.links.get(id.index()).and_then(Option::as_deref);
        state.is_some_and(|state| !state.flies && !state.responses.is_empty())
    }

    /// Sends responses, as far as the link takes them. False if it takes nothing more.
    pub(crate) fn pump<T: Transport>(&mut self, peers: &mut Peers, transport: &mut T, id: LinkId) -> bool {
        loop {
            let Some(state) = self.known(id) else { return true };
            if state.flies {
                return true;
            }
            let Some(response) = state.responses.front_mut() else { return true };
            if peers.links.get(id).is_none_or(|link| link.tx.full) {
                return false;
            }
            let len = response.begin_piece(peers.account());
            match send(transport, id, response, len) {
                Sent::Piece => {
                    response.end_piece(peers.account());
                    if response.at == response.len {
                        self.end_response(peers, id);
                    }
                }
                Sent::Kept => state.flies = true,
                Sent::Stuck { full } => {
                    response.drop_piece(peers.account());
                    if let Some(link) = peers.link(id) {
                        link.tx.full |= full;
                    }
                    return false;
                }
                Sent::Fault => self.cut_short(peers, id),
            }
        }
    }

    /// The first response of a link has left.
    fn end_response(&mut self, peers: &Peers, id: LinkId) {
        let Some(response) = self.known(id).and_then(|state| state.responses.pop_front()) else { return };
        peers.account().release(response.charged());
        if let Source::Copied(Some(Buffer::Owned(bytes))) = response.source {
            self.give_spare(bytes);
        }
    }

    /// The rest of the first response cannot be read: a refusal takes its place.
    fn cut_short(&mut self, peers: &Peers, id: LinkId) {
        let Some(response) = self.known(id).and_then(|state| state.responses.front_mut()) else { return };
        peers.account().release(response.charged());
        *response = Response::refused(response.id, Refusal::Fault);
    }

    /// The transport gives back the payload of the response that it kept: sent, or not readable.
    pub(crate) fn handle_send_done(&mut self, peers: &mut Peers, id: LinkId, buffer: Buffer, readable: bool) {
        let Some(state) = self.known(id) else { return };
        if !core::mem::replace(&mut state.flies, false) {
            return;
        }
        let Some(response) = state.responses.front_mut() else { return };
        match &mut response.source {
            Source::Copied(place) | Source::Direct(place) => *place = Some(buffer),
            Source::Probed { .. } | Source::Refused(_) => drop(buffer),
        }
        response.end_piece(peers.account());
        let whole = response.at == response.len;
        if whole {
            // The peer has got all frames of the response, if not all of its bytes.
            self.end_response(peers, id);
        } else if !readable {
            self.cut_short(peers, id);
        }
        peers.mark_pending(id);
    }
}

/// Sends the next piece of a response, which has `len` bytes.
fn send<T: Transport>(transport: &mut T, id: LinkId, response: &mut Response, len: usize) -> Sent {
    let last = response.at + len == response.len;
    let header = Frame::Response { id: response.id, last }.encode();
    let mut copy;
    let (buffer, from, inject) = match &mut response.source {
        Source::Refused(why) => {
            let frame = Frame::Refused { id: response.id, last: true, why: *why };
            return match transport.submit_control(id, &frame.encode(), Urgency::Control) {
                ControlSubmitted::Taken => Sent::Piece,
                ControlSubmitted::Full => Sent::Stuck { full: true },
                ControlSubmitted::Broken => Sent::Stuck { full: false },
            };
        }
        Source::Copied(buffer) => (buffer, response.at, true),
        Source::Direct(buffer) => (buffer, response.at, false),
        Source::Probed { range, .. } => {
            let mut bytes = vec![0; len];
            if range.read(response.at, &mut bytes).is_err() {
                return Sent::Fault;
            }
            copy = Some(Buffer::Owned(bytes));
            (&mut copy, 0, false)
        }
    };
    if from == 0
        && len <= T::INLINE_MAX
        && let Some(bytes) = &*buffer
        && transport.try_submit_fast(id, &header, bytes, len)
    {
        return Sent::Piece;
    }
    let urgency = if inject { Urgency::Control } else { Urgency::Posted };
    match transport.submit(id, &header, Payload { buffer, from, len, token: Token::RESPONSE, inject }, urgency) {
        Submitted::Done => Sent::Piece,
        Submitted::Kept => Sent::Kept,
        Submitted::Full => Sent::Stuck { full: true },
        Submitted::Broken => Sent::Stuck { full: false },
    }
}
