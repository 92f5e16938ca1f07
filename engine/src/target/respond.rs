//! Responses to reads and atomic operations of peers, sent in the order of the requests.

use super::{RESPONSE, Target};
use crate::peer::Peers;
use crate::transport::{ControlSubmitted, LinkId, Payload, Submitted, Transport, Urgency};
use crate::wire::frame::{Frame, MAX_PAYLOAD};
use crate::wire::one_sided::Refusal;
use ofi_memory::{Buffer, Region, RegionUse};

/// What a request returns.
#[derive(Debug)]
enum Source {
    /// Bytes that were copied when the request arrived.
    Copied(Option<Buffer>),
    /// Bytes of a region, sent from where they are. `None` while the transport keeps it.
    Direct(Option<Buffer>),
    /// Bytes of a region that may be unmapped in parts: copied piece by piece.
    Probed(RegionUse<Region>),
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
            Err(range) => Source::Probed(range),
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
            Source::Direct(_) | Source::Probed(_) | Source::Refused(_) => 0,
        }
    }
}

/// The outcome of sending a piece of a response.
enum Sent {
    /// It has left, with this many bytes.
    Piece(usize),
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
            match send(transport, id, response) {
                Sent::Piece(len) => {
                    response.at += len;
                    if response.at == response.len {
                        self.end_response(peers, id);
                    }
                }
                Sent::Kept => state.flies = true,
                Sent::Stuck { full } => {
                    if let Some(link) = peers.link(id) {
                        link.tx.full |= full;
                    }
                    return false;
                }
                Sent::Fault => {
                    let id_of_peer = response.id;
                    self.drop_response(peers, id);
                    self.state(id).responses.push_front(Response::refused(id_of_peer, Refusal::Fault));
                }
            }
        }
    }

    /// The first response of a link has left.
    fn end_response(&mut self, peers: &Peers, id: LinkId) {
        if let Some(bytes) = self.drop_response(peers, id) {
            self.give_spare(bytes);
        }
    }

    fn drop_response(&mut self, peers: &Peers, id: LinkId) -> Option<Vec<u8>> {
        let response = self.known(id)?.responses.pop_front()?;
        peers.account().release(response.charged());
        if let Source::Copied(Some(Buffer::Owned(bytes))) = response.source { Some(bytes) } else { None }
    }

    /// The transport gives back the payload of the response that it kept: sent, or not readable.
    pub(crate) fn handle_send_done(&mut self, peers: &mut Peers, id: LinkId, buffer: Buffer, readable: bool) {
        let Some(state) = self.known(id) else { return };
        if !core::mem::replace(&mut state.flies, false) {
            return;
        }
        let Some(response) = state.responses.front_mut() else { return };
        if !readable {
            let refused = Response::refused(response.id, Refusal::Fault);
            self.drop_response(peers, id);
            self.state(id).responses.push_front(refused);
        } else {
            response.at += (response.len - response.at).min(MAX_PAYLOAD);
            let whole = response.at == response.len;
            match &mut response.source {
                Source::Copied(place) | Source::Direct(place) => *place = Some(buffer),
                Source::Probed(_) | Source::Refused(_) => {}
            }
            if whole {
                self.end_response(peers, id);
            }
        }
        peers.mark_pending(id);
    }
}

/// Sends the next piece of a response.
fn send<T: Transport>(transport: &mut T, id: LinkId, response: &mut Response) -> Sent {
    let len = (response.len - response.at).min(MAX_PAYLOAD);
    let last = response.at + len == response.len;
    let header = Frame::Response { id: response.id, last }.encode();
    let mut copy;
    let (buffer, from, inject) = match &mut response.source {
        Source::Refused(why) => {
            let frame = Frame::Refused { id: response.id, last: true, why: *why };
            return match transport.submit_control(id, &frame.encode(), Urgency::Control) {
                ControlSubmitted::Taken => Sent::Piece(0),
                ControlSubmitted::Full => Sent::Stuck { full: true },
                ControlSubmitted::Broken => Sent::Stuck { full: false },
            };
        }
        Source::Copied(buffer) => (buffer, response.at, true),
        Source::Direct(buffer) => (buffer, response.at, false),
        Source::Probed(range) => {
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
        return Sent::Piece(len);
    }
    let urgency = if inject { Urgency::Control } else { Urgency::Posted };
    match transport.submit(id, &header, Payload { buffer, from, len, token: RESPONSE, inject }, urgency) {
        Submitted::Done => Sent::Piece(len),
        Submitted::Kept => Sent::Kept,
        Submitted::Full => Sent::Stuck { full: true },
        Submitted::Broken => Sent::Stuck { full: false },
    }
}
