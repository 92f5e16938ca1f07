//! Handles control messages, and ends the links of peers that are gone.

use super::{ShmTransport, id, refuse};
use crate::conn::{Conn, Out, Peer, State, unreachable};
use crate::control::{About, CmaOffer, ConnectRequest, ControlMessage};
use crate::region::{Region, Side};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::{Down, LinkEvents, Verdict};
use ofi_sync::lines::LINES;
use std::io;
use std::os::fd::AsFd;

/// Most messages of a kind that are sent again in one poll.
const AGAIN: usize = 32;

impl ShmTransport {
    /// Reads and handles control messages. True if there were any.
    pub(super) fn read_messages(&mut self, events: &mut impl LinkEvents) -> bool {
        self.sleep.forget();
        let mut said = Vec::new();
        let any = self.control.read(|one| said.push(one));
        if any {
            self.pace.note_message();
        }
        for one in said {
            match one {
                ControlMessage::Wake => {}
                ControlMessage::Refuse(number, why) => self.handle_refusal(number, &why, events),
                ControlMessage::Ask(request) => self.handle_connect_request(&request, events),
                ControlMessage::Bitmap(offer) => self.handle_bitmap(&offer),
                ControlMessage::Offer(offer) => self.handle_offer(&offer),
                ControlMessage::BitmapLost(about) => self.handle_bitmap_lost(&about),
                ControlMessage::Process(about, pid) => self.handle_process(&about, pid),
            }
        }
        any
    }

    fn handle_refusal(&mut self, number: u64, why: &str, events: &mut impl LinkEvents) {
        let asked = |conn: &Conn| conn.peer.request.0 == number && matches!(conn.state, State::Asking(_));
        let slot = self.conns.iter().find(|(_, conn)| asked(conn)).map(|(slot, _)| slot);
        if let Some(slot) = slot {
            let text = format!("connect to {}: {why}", self.conns[slot].peer.addr);
            self.lose(slot, Down::new(Cause::Rejected, Errno::ECONNREFUSED, text), events);
        }
    }

    /// A peer asks whether this side can read its memory.
    fn handle_offer(&mut self, offer: &CmaOffer) {
        let CmaOffer { from, number, theirs, pid, at, secret } = offer;
        let slot = self.link_of(*number, *theirs, from);
        if let Some(slot) = slot.filter(|slot| matches!(self.conns[*slot].state, State::Open)) {
            let conn = &mut self.conns[slot];
            if let Some(classes) = conn.cma.try_process(*pid, *at, *secret) {
                conn.sender.queue(Out::Permission(classes, true));
                // To copy its payloads together, the peer must reach this side's memory too.
                if conn.cma.asks_back() && self.control.offer(&conn.peer.name, conn.peer.request).is_ok() {
                    conn.cma.asked();
                }
            }
            self.list(slot);
        }
    }

    /// A peer tells its process.
    fn handle_process(&mut self, about: &About, pid: i32) {
        if let Some(slot) = self.link_of(about.number, about.theirs, &about.from) {
            self.conns[slot].peer.life = self.lives.find(pid, self.conns.len());
        }
    }

    /// Tells the initiator of a link which process this is. False if its socket is full.
    fn tell_process(&mut self, slot: usize) -> bool {
        let Some(conn) = self.conns.get_mut(slot).filter(|conn| conn.peer.is_unaware) else { return true };
        let is_told = self.control.tell_process(&conn.peer.name, conn.peer.request).is_ok();
        conn.peer.is_unaware = !is_told;
        is_told
    }

    /// The same for some of the initiators whose socket was full. True if it was not for one.
    pub(super) fn tell_process_again(&mut self) -> bool {
        let before = self.retries.unaware.len();
        for _ in 0..before.min(AGAIN) {
            let Some(slot) = self.retries.unaware.pop_front() else { break };
            if !self.tell_process(slot) {
                self.retries.unaware.push_back(slot);
            }
        }
        self.retries.unaware.len() < before
    }

    pub(super) fn handle_connect_request(&mut self, request: &ConnectRequest, events: &mut impl LinkEvents) {
        let mut conn = match acceptor(request) {
            Ok(conn) => conn,
            Err(error) => return self.control.refuse_memory(request, &error),
        };
        conn.presence.set_order(self.sleep.orders(), request.orders);
        let link = id(self.conns.vacant_key());
        // The kernel authenticates the sender's name.
        match events.handle_connect_request(link, &request.hello, &request.from, |_| true) {
            Verdict::Accept(answer) => {
                conn.sender.queue(Out::Hello(answer, self.control.identity().0));
                self.take_in(conn, request.pid);
            }
            Verdict::Refuse(answer) => refuse(&mut conn, answer, &self.control, self.sleep.orders()),
        }
    }

    /// Adds a link that this side accepted.
    pub(super) fn take_in(&mut self, mut conn: Conn, pid: i32) -> usize {
        conn.peer.is_unaware = true;
        let slot = self.insert(conn);
        self.list(slot);
        // First: the peer waits for the answer.
        self.send_waiting(slot);
        self.conns[slot].peer.life = self.lives.find(pid, self.conns.len());
        // At once, although the peer's first message comes meanwhile: this process may end before
        // it polls again.
        if !self.tell_process(slot) {
            self.retries.unaware.push_back(slot);
        }
        slot
    }

    /// Probes the peers that are due, and ends the links of those that are gone.
    pub(super) fn probe(&mut self, now: Instant, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        for _ in 0..self.probes.due(now, self.sleep.is_armed()) {
            let Some((slot, serial)) = self.probes.take() else { break };
            let Some(conn) = self.conns.get_mut(slot).filter(|conn| conn.serial == serial) else { continue };
            if !conn.lost && !matches!(conn.state, State::Unasked { .. }) {
                let over = conn.peer.life.as_ref().is_some_and(|life| life.is_over());
                let gone = over || conn.presence.is_gone() || conn.is_lost_request();
                conn.lost = gone || !self.control.is_alive(&conn.peer.name);
            }
            if conn.lost {
                self.end_lost(slot, events);
                any = true;
            } else {
                self.probes.put_back(slot, serial, now);
            }
        }
        any
    }

    /// Ends the link of a peer that is gone, after reading everything that it wrote.
    fn end_lost(&mut self, slot: usize, events: &mut impl LinkEvents) {
        // A peer that is gone wrote at most a ring; the bound is for one that only claims to be.
        for _ in 0..LINES {
            if !self.conns.get(slot).is_some_and(Conn::is_ready) || !self.read(slot, events) {
                break;
            }
        }
        if let Some(conn) = self.conns.get(slot).filter(|conn| conn.lost) {
            let why = conn.ended();
            self.lose(slot, why, events);
        }
    }

    /// Sends some of the connect requests again that found a full socket. True if that is no longer
    /// necessary for one.
    pub(super) fn ask_again(&mut self, events: &mut impl LinkEvents) -> bool {
        let before = self.retries.unasked.len();
        for _ in 0..before.min(AGAIN) {
            let Some(slot) = self.retries.unasked.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            let State::Unasked { memory, hello, liveness } = &mut conn.state else { continue };
            let theirs = liveness.as_ref().map(|(_, theirs)| theirs.as_fd());
            let result = self.control.ask(
                &conn.peer.name,
                conn.peer.request.0,
                self.sleep.orders(),
                hello,
                memory.as_fd(),
                theirs,
            );
            match result {
                Ok(()) => conn.state = State::Asking(liveness.take().map(|(liveness, _)| liveness)),
                // The peer is alive and busy, however long that takes.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.retries.unasked.push_back(slot),
                Err(error) => {
                    let why = unreachable(&conn.peer.addr, &error);
                    self.lose(slot, why, events);
                }
            }
        }
        self.retries.unasked.len() < before
    }
}

/// The acceptor's side of the link that a request brings.
pub(crate) fn acceptor(request: &ConnectRequest) -> io::Result<Conn> {
    let region = Region::attach(request.memory.as_fd())?;
    if region.has_left(Side::Initiator) {
        // Among other reasons, because it lacks memory for the rest of the link.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let peer = Peer::new(request.from, request.identity.name(), (request.number, false));
    Ok(Conn::new(region, State::Open, peer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::ShmListener;
    use crate::transport::{Pending, Settings};
    use ofi_engine::transport::{Listener, Transport};

    #[test]
    fn the_request_of_an_initiator_that_has_left_is_not_accepted() {
        let mut listener = ShmListener::new(None, &Settings::default()).unwrap();
        let mut initiator = ShmTransport::new(None, Settings::default()).unwrap();
        initiator.connect(&listener.local_addr(), b"hello").unwrap();
        let mut asked = Vec::new();
        assert!(listener.poll(&mut asked));
        let Pending(request) = &asked[0].request;
        assert!(acceptor(request).is_ok());
        initiator.conns.iter().for_each(|(_, conn)| conn.presence.leave());
        assert!(acceptor(request).is_err());
    }
}
