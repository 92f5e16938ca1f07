//! Handles control messages, and ends the links of peers that are gone.

use super::{ShmTransport, id, refuse};
use crate::conn::{Conn, Out, State, ended, unreachable};
use crate::control::{About, CmaOffer, ConnectRequest, ControlMessage};
use crate::region::{Region, Side};
use ofi_core::{Cause, Errno, Instant};
use ofi_engine::transport::{Down, LinkEvents, Verdict};
use ofi_os::process::Life;
use ofi_sync::lines::LINES;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

impl ShmTransport {
    /// Reads and handles control messages. True if there were any.
    pub(super) fn read_messages(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut said = Vec::new();
        let any = self.control.read(|one| said.push(one));
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
        let asked = |conn: &Conn| conn.number == number && matches!(conn.state, State::Asking(_));
        let slot = self.conns.iter().find(|(_, conn)| asked(conn)).map(|(slot, _)| slot);
        if let Some(slot) = slot {
            let text = format!("connect to {}: {why}", self.conns[slot].remote);
            self.lose(slot, Down::new(Cause::Rejected, Errno::ECONNREFUSED, text), events);
        }
    }

    /// A peer asks whether this side can read its memory.
    fn handle_offer(&mut self, offer: &CmaOffer) {
        let CmaOffer { from, number, theirs, pid, at, secret } = offer;
        let slot = self.link_of(*number, *theirs, from);
        if let Some(slot) = slot.filter(|slot| matches!(self.conns[*slot].state, State::Open)) {
            let conn = &mut self.conns[slot];
            if let Some(yes) = conn.cma.try_process(*pid, *at, *secret) {
                conn.queue(Out::Permission(yes));
            }
            self.list(slot);
        }
    }

    /// A peer tells its process.
    fn handle_process(&mut self, about: &About, pid: i32) {
        if let Some(slot) = self.link_of(about.number, about.theirs, &about.from) {
            self.conns[slot].life = self.life_of(pid);
        }
    }

    /// The [`Life`] of a process, which several links may share.
    pub(super) fn life_of(&mut self, pid: i32) -> Option<Arc<Life>> {
        self.lives.retain(|(_, life)| life.strong_count() > 0);
        let known = self.lives.iter().filter(|(id, _)| *id == pid).find_map(|(_, life)| life.upgrade());
        // Another process may have the id by now.
        if let Some(life) = known.filter(|life| !life.is_over()) {
            return Some(life);
        }
        let life = Arc::new(Life::of(pid)?);
        self.lives.push((pid, Arc::downgrade(&life)));
        Some(life)
    }

    /// Tells the initiator of a link which process this is.
    pub(super) fn tell_process(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot).filter(|conn| conn.unknown) else { return };
        if self.control.tell_process(&conn.peer, (conn.number, conn.side == Side::Initiator)).is_ok() {
            conn.unknown = false;
            self.unknown -= 1;
        }
    }

    /// The same for all initiators whose socket was full.
    pub(super) fn tell_process_again(&mut self) {
        if self.unknown == 0 {
            return;
        }
        let slots: Vec<usize> = self.conns.iter().filter(|(_, conn)| conn.unknown).map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.tell_process(slot));
    }

    pub(super) fn handle_connect_request(&mut self, request: &ConnectRequest, events: &mut impl LinkEvents) {
        let mut conn = match acceptor(request) {
            Ok(conn) => conn,
            Err(error) => return self.control.refuse_memory(request, &error),
        };
        conn.set_order(self.orders, request.orders);
        let link = id(self.conns.vacant_key());
        // The kernel authenticates the sender's name.
        match events.handle_connect_request(link, &request.hello, &request.from, |_| true) {
            Verdict::Accept(answer) => {
                conn.out.push_back(Out::Hello(answer, self.control.identity().0));
                self.take_in(conn, request.pid);
            }
            Verdict::Refuse(answer) => refuse(&mut conn, answer, &self.control, self.orders),
        }
    }

    /// Adds a link that this side accepted.
    pub(super) fn take_in(&mut self, mut conn: Conn, pid: i32) -> usize {
        conn.life = self.life_of(pid);
        conn.unknown = true;
        self.unknown += 1;
        let slot = self.insert(conn);
        self.list(slot);
        self.send_waiting(slot);
        self.tell_process(slot);
        slot
    }

    /// Probes all peers when it is time, and ends the links of those that are gone.
    pub(super) fn probe(&mut self, now: Instant, events: &mut impl LinkEvents) -> bool {
        if now < self.probe_at {
            return false;
        }
        self.probe_at = now + self.settings.probe_every;
        let slots: Vec<usize> = self.conns.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            if !conn.lost && !matches!(conn.state, State::Unasked { .. }) {
                let over = conn.life.as_ref().is_some_and(|life| life.is_over());
                conn.lost = over || conn.is_gone() || conn.is_lost_request() || !self.control.is_alive(&conn.peer);
            }
        }
        self.end_lost(events)
    }

    /// Ends the links of peers that are gone, after reading everything that they wrote.
    pub(super) fn end_lost(&mut self, events: &mut impl LinkEvents) -> bool {
        let lost: Vec<usize> = self.conns.iter().filter(|(_, conn)| conn.lost).map(|(slot, _)| slot).collect();
        let any = !lost.is_empty();
        for slot in lost {
            // A peer that is gone wrote at most a ring; the bound is for one that only claims to
            // be.
            for _ in 0..LINES {
                if !self.conns.get(slot).is_some_and(Conn::is_ready) || !self.read(slot, events) {
                    break;
                }
            }
            if let Some(conn) = self.conns.get(slot).filter(|conn| conn.lost) {
                let why = ended(conn);
                self.lose(slot, why, events);
            }
        }
        any
    }

    /// Sends again the connect requests that found a full socket.
    pub(super) fn ask_again(&mut self, events: &mut impl LinkEvents) -> bool {
        let before = self.conns.len();
        if self.unasked == 0 {
            return false;
        }
        let slots: Vec<usize> =
            self.conns.iter().filter(|(_, c)| matches!(c.state, State::Unasked { .. })).map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            let State::Unasked { memory, hello, liveness } = &mut conn.state else { continue };
            let theirs = liveness.as_ref().map(|(_, theirs)| theirs.as_fd());
            let result = self.control.ask(&conn.peer, conn.number, self.orders, hello, memory.as_fd(), theirs);
            match result {
                Ok(()) => {
                    conn.state = State::Asking(liveness.take().map(|(liveness, _)| liveness));
                    self.unasked -= 1;
                }
                // The peer is alive and busy, however long that takes.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    let why = unreachable(&conn.remote, &error);
                    self.lose(slot, why, events);
                }
            }
        }
        self.conns.len() != before
    }
}

/// The acceptor's side of the link that a request brings.
pub(super) fn acceptor(request: &ConnectRequest) -> io::Result<Conn> {
    let region = Region::attach(request.memory.as_fd())?;
    let peer = request.identity.name();
    Conn::new(region, Side::Acceptor, State::Open, request.from, peer, request.number)
}
