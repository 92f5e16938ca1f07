//! Reads connections and enforces their deadlines.

use super::{AUDITS, FIRST_STAGING, LISTENER, PATIENCE, READS, STAGING, TcpTransport, blocked, broken, deliver_all};
use crate::conn::{AUDIT, ReadError, State, note_placed, parse, receive_large};
use crate::net::{Net, vouches};
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{Down, LinkEvents};
use ofi_engine::wire::frame::Violation;
use ofi_os::poller::Event;

impl<N: Net> TcpTransport<N> {
    /// Reads a connection. True if anything arrived.
    pub(super) fn read(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        if self.staging.is_empty() {
            self.staging.resize(FIRST_STAGING, 0);
        }
        for _ in 0..READS {
            let Self { conns, staging, net, done, .. } = self;
            let Some(conn) = conns.get_mut(slot) else { return any };
            if matches!(conn.state, State::Connecting { .. }) {
                return any;
            }
            let (outcome, asked, placed) = if conn.reader.expects_small() {
                (net.recv_slice(&conn.socket, staging), staging.len(), 0)
            } else {
                receive_large(net, conn, staging)
            };
            let count = match outcome {
                Ok(0) => {
                    self.ended(slot, events);
                    return true;
                }
                Ok(count) => count,
                Err(error) if blocked(&error) => {
                    if let Some(error) = conn.broken.take() {
                        let why = broken(&conn.remote, &error);
                        self.lose(slot, why, events);
                        return true;
                    }
                    return any;
                }
                Err(error) => {
                    let why = broken(&conn.remote, conn.broken.as_ref().unwrap_or(&error));
                    self.lose(slot, why, events);
                    return true;
                }
            };
            any = true;
            // Report finished sends first: this input may answer them.
            if !done.is_empty() {
                deliver_all(done, events);
            }
            let silent = if let State::Silent { serial } = conn.state { Some(serial) } else { None };
            let behind = if placed > 0 { note_placed(conn, slot, (count, placed), events) } else { Ok(count) };
            let result = behind.and_then(|behind| {
                let now = || net.now();
                let vouches = |name: &Addr, from: &Addr| vouches(net, name, from);
                parse(conn, slot, &staging[..behind], events, now, vouches)
            });
            if let Some(serial) = silent.filter(|_| !matches!(conn.state, State::Silent { .. })) {
                self.half_open.remove(serial);
            }
            match result {
                Ok(()) => {}
                Err(ReadError::Violation(Violation(what))) => {
                    let text = format!("connection to {}: {what}", conn.remote.socket());
                    self.lose(slot, Down::new(Cause::Violation, Errno::EPROTO, text), events);
                    return true;
                }
                Err(ReadError::Down(why)) => {
                    self.lose(slot, why, events);
                    return true;
                }
                Err(ReadError::Refused) => {
                    if let Some(deadline) = self.conns[slot].state.deadline() {
                        self.deadlines.add(deadline, slot);
                    }
                }
            }
            if !self.conns[slot].writer.is_empty() {
                self.list(slot);
            }
            if count < asked {
                return true;
            }
            if asked - placed == self.staging.len() && self.staging.len() < STAGING {
                // There is more than it holds.
                self.staging.resize((4 * self.staging.len()).min(STAGING), 0);
            }
        }
        any
    }

    /// Handles the end of the peer's stream.
    fn ended(&mut self, slot: usize, events: &mut impl LinkEvents) {
        let Some(conn) = self.conns.get(slot) else { return };
        let who = conn.remote.socket();
        let why = match &conn.state {
            State::Asking => {
                let text = format!("connect to {who}: the peer closed the connection during the handshake");
                Down::new(Cause::Rejected, Errno::ECONNREFUSED, text)
            }
            _ if conn.reader.is_mid_record() => Down::new(
                Cause::Broken,
                Errno::ECONNRESET,
                format!("connection to {who}: closed by the peer in the middle of a message"),
            ),
            _ => Down::new(Cause::Broken, Errno::ECONNRESET, format!("connection to {who}: closed by the peer")),
        };
        self.lose(slot, why, events);
    }

    pub(super) fn check_deadlines(&mut self, events: &mut impl LinkEvents) -> bool {
        let due = match (self.deadlines.next(), self.audits.next()) {
            (Some(deadline), Some(audit)) => deadline.min(audit),
            (one, other) => match one.or(other) {
                Some(due) => due,
                None => return false,
            },
        };
        let now = self.net.now();
        now >= due && self.end_late(now, events)
    }

    /// Ends the connections whose deadline is over, and audits those that are due.
    #[cold]
    fn end_late(&mut self, now: Instant, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        while let Some((deadline, slot)) = self.deadlines.first_due(now) {
            let Some(conn) = self.conns.get(slot) else {
                self.deadlines.remove(deadline, slot);
                continue;
            };
            let (who, limit) = (conn.remote.socket(), self.settings.connect_deadline);
            let text = format!("connect to {who}: no answer within {limit:?}");
            self.lose(slot, Down::new(Cause::ConnectDeadline, Errno::ETIMEDOUT, text), events);
            any = true;
        }
        for _ in 0..AUDITS {
            let Some((audit, slot)) = self.audits.first_due(now) else { break };
            self.audits.remove(audit, slot);
            any |= self.audit(slot, now, events);
        }
        any
    }

    /// Drops a link to a host that no longer acknowledges.
    fn audit(&mut self, slot: usize, now: Instant, events: &mut impl LinkEvents) -> bool {
        let Self { conns, net, audits, settings, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return false };
        conn.audit = None;
        if net.unacknowledged(&conn.socket).unwrap_or(0) == 0 && conn.writer.is_empty() {
            return false;
        }
        let health = net.health(&conn.socket).unwrap_or_default();
        // One probe may be in flight. If the peer merely does not read, its host answers each.
        if health.unanswered >= 2 && health.since_ack >= settings.silence_deadline {
            let (who, since) = (conn.remote.socket(), health.since_ack);
            let text = format!("connection to {who}: the peer's host has not acknowledged data for {since:?}");
            self.lose(slot, Down::new(Cause::Silent, Errno::EHOSTUNREACH, text), events);
            return true;
        }
        conn.audit = Some(now + AUDIT);
        audits.add(now + AUDIT, slot);
        false
    }

    /// Rare work, for which `attention` is set: resuming to accept, and broken connections.
    #[cold]
    pub(super) fn attend(&mut self, events: &mut impl LinkEvents) -> bool {
        let any = self.resume_accepting(events) | self.read_broken(events);
        self.attention = self.half_open.is_paused() || !self.broken.is_empty();
        any
    }

    /// Reads connections on which sending failed until their end, since epoll may not report it.
    fn read_broken(&mut self, events: &mut impl LinkEvents) -> bool {
        if self.broken.is_empty() {
            return false;
        }
        for slot in core::mem::take(&mut self.broken) {
            if self.conns.get(slot).is_some_and(|conn| conn.broken.is_some()) {
                self.read(slot, events);
            }
            // One `read` did not reach the end.
            if self.conns.get(slot).is_some_and(|conn| conn.broken.is_some()) {
                self.broken.push(slot);
            }
        }
        true
    }

    pub(super) fn handle_event(&mut self, event: Event, by_trying: bool, events: &mut impl LinkEvents) -> bool {
        if event.key == LISTENER {
            return self.accept_all(events);
        }
        let Ok(slot) = usize::try_from(event.key) else { return false };
        let Some(conn) = self.conns.get(slot) else { return false };
        let connecting = matches!(conn.state, State::Connecting { .. });
        if connecting && (event.writable || event.readable) {
            self.finish_connect(slot, events);
            return true;
        }
        if event.writable {
            self.send_waiting(slot);
            // Its burst may not be over.
            if self.conns.get(slot).is_some_and(|conn| !conn.writer.is_idle()) {
                self.list(slot);
            }
        }
        let mut any = event.writable;
        if event.readable {
            self.activate(slot);
            if !by_trying {
                any |= self.read(slot, events);
            }
            if let Some(conn) = self.conns.get_mut(slot) {
                conn.heard = self.polls;
            }
        }
        any
    }

    /// Reads an active connection; makes it idle after [`PATIENCE`] polls without input.
    pub(super) fn visit(&mut self, slot: usize, events: &mut impl LinkEvents) -> bool {
        let Some(conn) = self.conns.get(slot) else { return false };
        if matches!(conn.state, State::Connecting { .. }) {
            self.finish_connect(slot, events);
            return !self.conns.get(slot).is_some_and(|conn| matches!(conn.state, State::Connecting { .. }));
        }
        let got = self.read(slot, events);
        if let Some(conn) = self.conns.get_mut(slot) {
            if got {
                conn.heard = self.polls;
                self.note_input();
            } else if self.polls.wrapping_sub(conn.heard) >= PATIENCE && conn.broken.is_none() {
                // A broken connection stays active: it is read until its end.
                self.deactivate(slot);
            }
        }
        got
    }
}
