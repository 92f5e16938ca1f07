//! Sends frames on connections, and what they hold.

use super::{Done, TcpTransport, blocked, id, index};
use crate::conn::{BACKLOG, State, note_sent, send_from};
use crate::net::Net;
use crate::slots;
use crate::writer::{COPY, Writer};
use ofi_engine::transport::{Flush, LinkId, Payload, Submitted, Urgency};
use ofi_engine::wire::frame::Header;
use ofi_os::poller::Interest;

impl<N: Net> TcpTransport<N> {
    /// Adds a connection to `busy_writers`.
    #[inline]
    pub(super) fn list(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && conn.listed.is_none()
        {
            conn.listed = Some(self.busy_writers.len());
            self.busy_writers.push(slot);
        }
    }

    /// Sends a connection's queued bytes until the socket takes no more.
    pub(super) fn send_waiting(&mut self, slot: usize) {
        let Self { conns, net, done, audits, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return };
        if conn.broken.is_some() || matches!(conn.state, State::Connecting { .. }) {
            return;
        }
        let mut waits = false;
        while !conn.writer.is_empty() {
            match conn.writer.with_chunks(|chunks| net.send(&conn.socket, chunks)) {
                Ok(count) => {
                    conn.writer.advance(count, |token, buffer| done.push(Done::Sent(id(slot), token, buffer)));
                    note_sent(conn, slot, net, audits);
                }
                Err(error) if blocked(&error) => {
                    waits = true;
                    break;
                }
                Err(error) => {
                    conn.broken = Some(error);
                    self.note_broken(slot);
                    break;
                }
            }
        }
        if self.conns.get(slot).is_some_and(|conn| conn.blocked != waits) {
            self.set_blocked(slot, waits);
        }
        let Self { conns, net, done, holding, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return };
        if core::mem::take(&mut conn.holding) {
            *holding -= 1;
        }
        if waits {
            conn.note_blocked(holding);
        }
        if conn.stalled && conn.writer.copied() < conn.backlog() / 2 {
            conn.stalled = false;
            done.push(Done::Room(id(slot)));
        }
        if conn.writer.is_empty() && conn.finishing == Some(false) && conn.broken.is_none() {
            conn.finishing = Some(true);
            // Fails only on a connection that is gone, as the next read reports.
            drop(net.shutdown_write(&conn.socket));
        }
    }

    /// Sends what connections hold, as the rule says.
    pub(super) fn flush_writers(&mut self, how: Flush) {
        let mut at = 0;
        while let Some(&slot) = self.busy_writers.get(at) {
            let Self { conns, net, busy_writers, .. } = self;
            let Some(conn) = conns.get_mut(slot) else { return };
            let due = conn.writer.pass(how, || net.now());
            // Epoll reports room for a blocked one, and it joins the list again.
            if conn.writer.is_idle() || conn.blocked {
                conn.listed = None;
                slots::remove(busy_writers, at, conns, |conn| &mut conn.listed);
                continue;
            }
            if due {
                self.send_waiting(slot);
            }
            at += 1;
        }
    }

    /// Whether a connection takes more output, perhaps after another try: the application may do
    /// nothing but inject.
    #[cold]
    pub(super) fn tries_again(&mut self, slot: usize) -> bool {
        if self.conns.get(slot).is_some_and(|conn| conn.blocked) {
            self.send_waiting(slot);
        }
        !self.conns.get(slot).is_some_and(|conn| conn.blocked)
    }

    /// Sets whether a connection waits for room to send, with its epoll interest and account.
    pub(super) fn set_blocked(&mut self, slot: usize, waits: bool) {
        let Self { conns, blocked, settings, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return };
        conn.blocked = waits;
        if waits {
            *blocked += 1;
            conn.charged = settings.account.try_charge(BACKLOG);
        } else {
            *blocked -= 1;
            if core::mem::take(&mut conn.charged) {
                settings.account.release(BACKLOG);
            }
        }
        let interest = if waits { Interest::ReadWrite } else { Interest::Read };
        if let Err(error) = self.watch(slot, interest)
            && let Some(conn) = self.conns.get_mut(slot)
        {
            // Epoll would not tell when there is room.
            conn.broken = Some(error);
            self.note_broken(slot);
        }
    }

    #[cold]
    pub(super) fn note_broken(&mut self, slot: usize) {
        self.broken.push(slot);
        self.attention = true;
    }

    /// Sends a frame, or queues what the socket does not take.
    #[inline]
    pub(super) fn send_frame(
        &mut self,
        link: LinkId,
        header: &Header,
        payload: Option<Payload<'_>>,
        urgency: Urgency,
    ) -> Submitted {
        if self.is_backed_up(link) {
            return Submitted::Full;
        }
        self.send_frame_anyway(link, header, payload, urgency)
    }

    /// The same, also under back-pressure.
    #[inline]
    pub(super) fn send_frame_anyway(
        &mut self,
        link: LinkId,
        header: &Header,
        mut payload: Option<Payload<'_>>,
        urgency: Urgency,
    ) -> Submitted {
        let slot = index(link);
        let Self { conns, net, scratch, audits, settings, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Submitted::Broken };
        if conn.broken.is_some() || conn.finishing.is_some() {
            return Submitted::Broken;
        }
        let (from, len, address) = match &payload {
            Some(Payload { buffer: Some(buffer), from, len, .. }) => {
                (*from, *len, if N::ALIGNS { buffer.address() + from } else { *from })
            }
            _ => (0, 0, 0),
        };
        let head = conn.writer.head(header, len, address);
        let mut sent = 0;
        let leaves = match urgency {
            Urgency::Control => {
                conn.writer.urgent = true;
                false
            }
            Urgency::MoreFollows => false,
            Urgency::Posted => conn.writer.may_send(|| net.now()) || !settings.hold && conn.writer.is_empty(),
            Urgency::Unreported => conn.writer.is_empty(),
        };
        if leaves {
            let outcome = match &payload {
                Some(Payload { buffer: Some(buffer), .. }) if len > COPY => {
                    let first = conn.writer.count_large(len, conn.reader.expects_large());
                    let outcome = send_from(net, &conn.socket, head.bytes(), buffer, from, first);
                    match outcome {
                        Ok(count) if first < len && count == head.bytes().len() + first => {
                            match send_from(net, &conn.socket, &[], buffer, from + first, len - first) {
                                Ok(rest) => Ok(count + rest),
                                Err(error) if blocked(&error) => Ok(count),
                                Err(error) => Err(error),
                            }
                        }
                        outcome => outcome,
                    }
                }
                Some(Payload { buffer: Some(buffer), .. }) => {
                    scratch.clear();
                    scratch.extend_from_slice(head.bytes());
                    buffer.append_to(from, len, scratch);
                    net.send_slice(&conn.socket, scratch)
                }
                _ => net.send_slice(&conn.socket, head.bytes()),
            };
            match outcome {
                Ok(count) => {
                    note_sent(conn, slot, net, audits);
                    sent = count;
                }
                Err(error) if blocked(&error) => {}
                Err(error) => {
                    conn.broken = Some(error);
                    self.note_broken(slot);
                    return Submitted::Broken;
                }
            }
        }
        let total = head.bytes().len() + len;
        if conn.listed.is_none() {
            conn.listed = Some(self.busy_writers.len());
            self.busy_writers.push(slot);
        }
        if sent == total {
            return Submitted::Done;
        }
        let is_due = |writer: &mut Writer| !settings.hold || writer.is_due(total - sent, || net.now());
        let now_due = leaves
            || match urgency {
                Urgency::Posted => is_due(&mut conn.writer),
                Urgency::Unreported => !conn.blocked,
                Urgency::MoreFollows | Urgency::Control => false,
            };
        // Queue the rest: small and injected payloads as a copy, others in place. While the socket
        // takes no more, a payload that is not injected completes only when sent: a caller that
        // sees the completion may not call again for a long time.
        let full = leaves || conn.blocked || now_due;
        let mut kept = Submitted::Done;
        let head_sent = sent.min(head.bytes().len());
        conn.writer.push_bytes(&head.bytes()[head_sent..]);
        let gone = sent - head_sent;
        if let Some(Payload { buffer, inject, token, .. }) = &mut payload {
            if *inject || len - gone <= COPY {
                if let Some(buffer) = buffer {
                    conn.writer.push_copy(buffer, from + gone, len - gone);
                }
                if full
                    && !*inject
                    && let Some(buffer) = buffer.take()
                {
                    conn.writer.push_end(buffer, *token);
                    kept = Submitted::Kept;
                }
            } else if let Some(buffer) = buffer.take() {
                conn.writer.push_lent(buffer, from + gone, len - gone, *token);
                kept = Submitted::Kept;
            }
        }
        if now_due {
            self.send_waiting(slot);
        } else if conn.blocked {
            conn.note_blocked(&mut self.holding);
        } else if urgency != Urgency::MoreFollows && !core::mem::replace(&mut conn.holding, true) {
            self.holding += 1;
        }
        kept
    }

    /// Whether the peer does not read and the link's backlog is full. Room will be reported.
    #[inline]
    pub(super) fn is_backed_up(&mut self, link: LinkId) -> bool {
        if self.blocked == 0 {
            return false;
        }
        let Some(conn) = self.conns.get_mut(index(link)) else { return false };
        let stalled = conn.blocked && conn.writer.copied() >= conn.backlog();
        conn.stalled |= stalled;
        stalled
    }
}
