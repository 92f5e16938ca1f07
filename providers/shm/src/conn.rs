//! One link: a ring and a pool in each direction, the sends that wait for room in them, and the
//! payloads that are arriving. This side reads each shared word once and checks it; a violation
//! costs this link alone.

use crate::cma::{Cma, CmaLoan};
use crate::region::Region;
pub(crate) use line::INLINE;
use ofi_core::{Cause, Errno};
use ofi_engine::transport::{Down, LinkEvents, LinkId};
use ofi_engine::wire::frame::Violation;
use ofi_os::control_socket::LivenessPipe;
use ofi_os::descriptor::PrivateFd;
use ofi_os::process::Process;
use ofi_sync::lines::{News, SleepState};
pub(crate) use peer::{Peer, unreachable};
use presence::Presence;
use read::Receiver;
pub(crate) use send::{Kept, Large, Out, Sender};
use std::sync::Arc;

mod bounce;
mod line;
mod peer;
mod presence;
mod read;
mod send;
#[cfg(test)]
mod tests;

/// How far the handshake of a link is.
#[derive(Debug)]
pub(crate) enum State {
    /// The request is not sent yet: the other side's socket was full.
    Unasked { memory: PrivateFd, hello: Vec<u8>, liveness: Option<(LivenessPipe, PrivateFd)> },
    /// Waits for the answer, with a liveness pipe if another endpoint may take the peer's name.
    Asking(Option<LivenessPipe>),
    /// Frames flow.
    Open,
}

/// Why a link ends.
#[derive(Debug)]
pub(crate) enum ReadError {
    Violation(Violation),
    /// The engine did not take the answer.
    Down(Down),
    /// The other side shut the link down in order.
    Ended,
}

impl From<Violation> for ReadError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// One side of a link.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) state: State,
    /// The other side's process or endpoint is gone.
    pub(crate) lost: bool,
    /// This side has written into a window, or a line, since it last notified the other side.
    must_notify: bool,
    /// The lines read, as the other side knew when it was last notified of room.
    notified: u64,
    /// Distinguishes the links that have the same slot one after the other.
    pub(crate) serial: u64,
    /// It carries the messages of a connectionless endpoint. Only then may eager messages wait at
    /// their sender, and offers for a receive: fi_shutdown ends what has not been taken, and with
    /// it the link before what comes behind.
    pub(crate) is_connectionless: bool,
    pub(crate) sender: Sender,
    receiver: Receiver,
    pub(crate) presence: Presence,
    pub(crate) cma: Cma,
    pub(crate) peer: Peer,
}

impl Conn {
    pub(crate) fn new(region: Arc<Region>, state: State, peer: Peer) -> Self {
        let side = peer.our_side();
        Self {
            state,
            lost: false,
            must_notify: false,
            notified: 0,
            serial: 0,
            is_connectionless: false,
            sender: Sender::new(&region, side),
            receiver: Receiver::new(&region, side.other()),
            presence: Presence::new(region, side),
            cma: Cma::default(),
            peer,
        }
    }

    /// What a read has changed that the other side may wait for: a payload of its own, or room for
    /// its lines.
    #[inline(always)]
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let told = self.told();
        let has_room = core::mem::replace(&mut self.notified, told) != told;
        match core::mem::take(&mut self.must_notify) {
            true => Some(News::Line),
            false => has_room.then_some(News::Room),
        }
    }

    /// Announces that this side sleeps; `idle`: the link is not polled in every pass. The caller
    /// orders its accesses and then checks [`Self::has_news`] once more.
    pub(crate) fn announce_sleep(&self, idle: bool) {
        self.presence.announce(SleepState::asleep(idle, self.sender.has_more()));
    }

    /// Announces that this side polls.
    pub(crate) fn announce_waking(&self, idle: bool) {
        self.presence.announce(SleepState::awake(idle));
    }

    /// Whether there is something to read or new room for a waiting send, or the other side has
    /// left.
    pub(crate) fn has_news(&mut self) -> bool {
        self.is_ready() || self.presence.is_gone() || self.sender.has_new_room()
    }

    /// Whether the request will never be answered: the endpoint that received it has ended.
    pub(crate) fn is_lost_request(&self) -> bool {
        // In this order: the peer writes its answer before it drops the request.
        matches!(&self.state, State::Asking(Some(liveness)) if liveness.is_closed()) && !self.is_ready()
    }

    /// Returns to the engine every buffer that the link kept. The link is at its end. True if the
    /// sender of a payload was late with its part of the copy.
    pub(crate) fn abandon(&mut self, link: LinkId, events: &mut impl LinkEvents) -> bool {
        let is_dead = || {
            let is_over = self.peer.life.as_ref().is_some_and(|life| life.is_over());
            is_over || self.cma.peer().is_none_or(Process::has_ended)
        };
        let words = |number| self.presence.own_window(number);
        let (borrowed, was_late) = self.receiver.take_borrowed(words, is_dead);
        for target in borrowed.into_iter().chain(self.receiver.take_target()) {
            events.handle_recv_retry(link, target);
        }
        for CmaLoan { token, buffer, .. } in self.cma.take_all_back() {
            events.handle_send_returned(link, token, buffer);
        }
        for kept in self.sender.take_back() {
            match kept {
                Kept::Payload(token, buffer) => events.handle_send_returned(link, token, buffer),
                // The link ends anyway.
                Kept::Target(target) => drop(events.handle_recv_done(link, target)),
            }
        }
        was_late
    }

    /// The reason for a link whose peer is gone.
    pub(crate) fn ended(&self) -> Down {
        let (cause, errno) = match self.state {
            State::Open => (Cause::Broken, Errno::ECONNRESET),
            State::Unasked { .. } | State::Asking(_) => (Cause::Connect, Errno::ECONNREFUSED),
        };
        Down::new(cause, errno, format!("link to {}: the peer's endpoint is gone", self.peer.addr))
    }
}
