//! Sends frames on links, and what waited for room on them.

use super::ShmTransport;
use crate::cma::{Kind, is_large};
use crate::conn::{Conn, INLINE, Large, Out, State};
use crate::control::ControlChannel;
use arrayvec::ArrayVec;
use ofi_engine::transport::{LinkId, Payload, Submitted};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use ofi_sync::lines::News;
use std::io;

impl ShmTransport {
    /// Notifies the other side of a link, and wakes it if it sleeps.
    #[inline(always)]
    pub(super) fn wake(conn: &mut Conn, news: News, control: &ControlChannel) {
        if conn.presence.must_wake(news) {
            Self::send_wake(conn, control);
        }
    }

    #[cold]
    fn send_wake(conn: &mut Conn, control: &ControlChannel) {
        match control.wake(&conn.peer.name) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => conn.lost = true,
            // A full socket wakes the peer as well; the next probe finds any other failure.
            _ => {}
        }
    }

    pub(super) fn list(&mut self, slot: usize) {
        if self.conns.get_mut(slot).is_some_and(|conn| conn.sender.enlist()) {
            self.senders.push(slot);
            if self.sleep.is_armed() {
                self.announce_waiting(slot);
            }
        }
    }

    /// Sends what waits on a link.
    pub(super) fn send_waiting(&mut self, slot: usize) -> bool {
        let Self { conns, undelivered, budget, sleep, control, settings, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return false };
        if !matches!(conn.state, State::Open) || !conn.sender.has_more() {
            return false;
        }
        let ended = |kept| undelivered.add_ended(slot, kept);
        let terms = (sleep.orders(), conn.may_keep_eager());
        match conn.sender.send_waiting(&mut conn.cma, terms, budget, ended) {
            Ok(any) => {
                if any {
                    Self::wake(conn, News::Line, control);
                }
                if conn.sender.relax(&settings.account) {
                    undelivered.add_room(slot);
                }
                any
            }
            Err(violation) => {
                self.undelivered.add_lost(slot, conn.serial, conn.peer.violated(violation));
                true
            }
        }
    }

    pub(super) fn send_all(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(&slot) = self.senders.get(at) {
            any |= self.send_waiting(slot);
            match self.conns.get_mut(slot) {
                Some(conn) if conn.sender.has_more() => at += 1,
                other => {
                    if let Some(conn) = other {
                        conn.sender.delist();
                    }
                    self.senders.swap_remove(at);
                }
            }
        }
        any
    }

    /// Whether the application does not learn when the last frame that waits on some link has been
    /// sent.
    #[cold]
    pub(super) fn has_untold(&self) -> bool {
        self.senders.iter().any(|slot| self.conns.get(*slot).is_some_and(|conn| conn.sender.ends_untold()))
    }

    /// Whether an injected payload of `len` bytes would leave at once.
    pub(super) fn would_leave(&mut self, slot: usize, len: usize) -> bool {
        // The application may do nothing but try again.
        self.send_waiting(slot);
        let Self { conns, budget, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return true };
        // What is wrong with the link, submitting finds.
        conn.sender.is_closing() || conn.lost || conn.sender.takes_at_once(len, budget).unwrap_or(true)
    }

    /// Sends a frame, or queues what the ring does not take.
    pub(super) fn send_frame(&mut self, link: LinkId, header: &Header, mut payload: Option<Payload<'_>>) -> Submitted {
        let slot = link.index();
        let Self { conns, control, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        if conn.sender.is_closing() || conn.lost {
            return Submitted::Broken;
        }
        let (from, len) = payload.as_ref().map_or((0, 0), |payload| (payload.from, payload.len));
        let waits = conn.sender.has_more();
        if header.len() + len <= INLINE {
            let mut bytes = ArrayVec::<u8, INLINE>::from([0; INLINE]);
            bytes.truncate(header.len() + len);
            let (front, back) = bytes.split_at_mut(header.len());
            front.copy_from_slice(header);
            if let Some(Payload { buffer: Some(buffer), .. }) = &payload {
                buffer.read_at(from, back);
            }
            let sent = if waits { Ok(false) } else { conn.sender.send_small(&bytes, header.len()) };
            return match sent {
                Ok(true) => {
                    Self::wake(conn, News::Line, control);
                    Submitted::Done
                }
                Ok(false) => {
                    // Don't complete yet: a caller that sees the completion may stop polling and
                    // leave this queued.
                    let kept = payload.filter(|payload| !payload.inject);
                    let kept = kept.and_then(|payload| Some((payload.token, payload.buffer.take()?)));
                    let outcome = if kept.is_some() { Submitted::Kept } else { Submitted::Done };
                    conn.sender.queue(Out::Small(bytes, header.len(), kept));
                    self.list(slot);
                    outcome
                }
                Err(violation) => self.break_link(slot, violation),
            };
        }
        let Some(payload) = &mut payload else { return Submitted::Done };
        if is_large(len) && self.submit_cma(slot, header, payload) {
            return Submitted::Kept;
        }
        let Self { conns, control, budget, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        let Some(buffer) = payload.buffer.take() else { return Submitted::Done };
        let may_lend = is_large(len) && !payload.inject && !conn.cma.is_for_pool(len);
        let token = Some(payload.token);
        let mut large = Large { header: *header, buffer, from, len, done: 0, token, may_lend };
        let sent = match waits {
            true => Ok(false),
            // As a whole or not at all: see `would_leave`.
            false if payload.inject => conn.sender.send_whole(&mut large, budget),
            false => conn.sender.send_large(&mut large, budget),
        };
        match sent {
            Ok(true) => {
                *payload.buffer = Some(large.buffer);
                Self::wake(conn, News::Line, control);
                Submitted::Done
            }
            Ok(false) => {
                if large.done > 0 {
                    Self::wake(conn, News::Line, control);
                }
                let mut kept = Submitted::Kept;
                if payload.inject {
                    // The application may reuse its buffer when this returns.
                    let mut copy = Vec::with_capacity(len);
                    large.buffer.append_to(from, len, &mut copy);
                    *payload.buffer = Some(core::mem::replace(&mut large.buffer, Buffer::Owned(copy)));
                    (large.from, large.token) = (0, None);
                    kept = Submitted::Done;
                }
                conn.sender.queue(Out::Large(large));
                self.list(slot);
                kept
            }
            Err(violation) => {
                *payload.buffer = Some(large.buffer);
                self.break_link(slot, violation)
            }
        }
    }

    /// Sends what waits on a link if the peer has made room for it: a program may submit much
    /// before it polls again, and the peer would run out of lines meanwhile.
    pub(super) fn send_earlier(&mut self, link: LinkId) {
        let slot = link.index();
        if self.conns.get_mut(slot).is_some_and(|conn| conn.sender.has_new_room()) {
            self.send_waiting(slot);
        }
    }

    /// Whether the peer does not read and the link's backlog is full. Room will be reported.
    pub(super) fn is_backed_up(&mut self, link: LinkId) -> bool {
        let Some(conn) = self.conns.get_mut(link.index()) else { return false };
        conn.sender.is_backed_up(&self.settings.account)
    }

    /// Lends a large payload to the other side, if it may read our memory. Asks it when it is time.
    pub(super) fn submit_cma(&mut self, slot: usize, header: &Header, payload: &mut Payload<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if payload.inject {
            return false;
        }
        Self::ask_for_cma(conn, &self.control, payload.len);
        if conn.sender.has_more() {
            // It may be lent when its turn comes.
            return false;
        }
        let kind = Kind::to_lend(header, payload.len, conn.may_keep_eager());
        if !kind.is_some_and(|kind| conn.sender.send_cma(&mut conn.cma, header, payload, kind)) {
            return false;
        }
        Self::wake(conn, News::Line, &self.control);
        true
    }

    /// Counts a large payload, and asks the other side to read our memory when it is time.
    fn ask_for_cma(conn: &mut Conn, control: &ControlChannel, len: usize) {
        // If the socket is full, the next payload asks.
        if conn.cma.is_time_to_ask(len) && control.offer(&conn.peer.name, conn.peer.request).is_ok() {
            conn.cma.asked();
        }
    }

    /// Sends an RTS together with the loan of its message, if the other side may read our memory.
    pub(super) fn submit_offer(&mut self, slot: usize, header: &Header, payload: &mut Payload<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        if !is_large(payload.len) || conn.sender.has_more() || conn.sender.is_closing() || conn.lost {
            return false;
        }
        if !conn.sender.send_cma(&mut conn.cma, header, payload, Kind::Offer) {
            // Its data frames count, and ask for permission.
            return false;
        }
        Self::ask_for_cma(conn, &self.control, payload.len);
        Self::wake(conn, News::Line, &self.control);
        true
    }

    #[cold]
    pub(super) fn break_link(&mut self, slot: usize, violation: Violation) -> Submitted {
        let conn = &self.conns[slot];
        self.undelivered.add_lost(slot, conn.serial, conn.peer.violated(violation));
        Submitted::Broken
    }
}
