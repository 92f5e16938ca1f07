//! What comes in messages, and what is found out about the processes that send them: who asks for a link, who refuses one, and
//! whose process has ended.

use super::{PROBE_EVERY, ShmTransport, id, refuse};
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
    /// Reads messages: requests, refusals, and nothing but waking.
    pub(super) fn read_letters(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut said = Vec::new();
        let any = self.control.read(|one| said.push(one));
        for one in said {
            match one {
                ControlMessage::Wake => {}
                ControlMessage::Refuse(number, why) => self.handle_refusal(number, &why, events),
                ControlMessage::Ask(request) => self.handle_question(&request, events),
                ControlMessage::Bitmap(offer) => self.handle_bitmap(&offer),
                ControlMessage::Offer(offer) => self.handle_offer(&offer),
                ControlMessage::BoardLost(about) => self.handle_board_lost(&about),
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

    /// A peer asks whether its memory can be read.
    fn handle_offer(&mut self, offer: &CmaOffer) {
        let CmaOffer { from, number, theirs, pid, at, secret } = offer;
        let slot = self.link_of(*number, *theirs, from);
        if let Some(slot) = slot.filter(|slot| matches!(self.conns[*slot].state, State::Open)) {
            let conn = &mut self.conns[slot];
            if let Some(yes) = conn.cma.try_process(*pid, *at, *secret) {
                conn.queue(Out::Leave(yes));
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

    /// The life of a process, of which several links may want to know.
    pub(super) fn life_of(&mut self, pid: i32) -> Option<Arc<Life>> {
        self.lives.retain(|(_, life)| life.strong_count() > 0);
        let known = self.lives.iter().filter(|(id, _)| *id == pid).find_map(|(_, life)| life.upgrade());
        // The number may be another process's by now.
        if let Some(life) = known.filter(|life| !life.is_over()) {
            return Some(life);
        }
        let life = Arc::new(Life::of(pid)?);
        self.lives.push((pid, Arc::downgrade(&life)));
        Some(life)
    }

    /// Tells the other side of a link that it asked for which process this is.
    pub(super) fn tell_process(&mut self, slot: usize) {
        let Some(conn) = self.conns.get_mut(slot).filter(|conn| conn.unknown) else { return };
        if self.control.tell_process(&conn.peer, (conn.number, conn.side == Side::Initiator)).is_ok() {
            conn.unknown = false;
            self.unknown -= 1;
        }
    }

    /// The same for all that could not be told yet.
    pub(super) fn tell_process_again(&mut self) {
        if self.unknown == 0 {
            return;
        }
        let slots: Vec<usize> = self.conns.iter().filter(|(_, conn)| conn.unknown).map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.tell_process(slot));
    }

    pub(super) fn handle_question(&mut self, request: &ConnectRequest, events: &mut impl LinkEvents) {
        let mut conn = match acceptor(request) {
            Ok(conn) => conn,
            Err(error) => return self.control.refuse_memory(request, &error),
        };
        conn.set_order(self.orders, request.orders);
        let link = id(self.conns.vacant_key());
        // The system vouches for the name that a message comes from.
        match events.handle_connect_request(link, &request.hello, &request.from, |_| true) {
            Verdict::Accept(answer) => {
                conn.out.push_back(Out::Hello(answer, self.control.identity().0));
                self.take_in(conn, request.pid);
            }
            Verdict::Refuse(answer) => refuse(&mut conn, answer, &self.control, self.orders),
        }
    }

    /// A link that somebody asked for.
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

    /// Looks for peers that are no more: some of them each time, all of them every so often.
    pub(super) fn probe(&mut self, now: Instant, events: &mut impl LinkEvents) -> bool {
        if now < self.probe_at {
            return false;
        }
        self.probe_at = now + PROBE_EVERY;
        let slots: Vec<usize> = self.conns.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            if !conn.lost && !matches!(conn.state, State::Unasked { .. }) {
                let over = conn.life.as_ref().is_some_and(|life| life.is_over());
                conn.lost = over || conn.is_gone() || conn.is_lost_question() || !self.control.is_alive(&conn.peer);
            }
        }
        self.end_lost(events)
    }

    /// Ends links whose peers are no more, after everything that they had said has been read.
    pub(super) fn end_lost(&mut self, events: &mut impl LinkEvents) -> bool {
        let lost: Vec<usize> = self.conns.iter().filter(|(_, conn)| conn.lost).map(|(slot, _)| slot).collect();
        let any = !lost.is_empty();
        for slot in lost {
            // One that has left wrote no more than fits; one that only says so is not read for ever.
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

    /// Sends requests again that found a full socket.
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
                // Its owner is there and busy, however long that takes.
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

/// The link that a request brings.
pub(super) fn acceptor(request: &ConnectRequest) -> io::Result<Conn> {
    let region = Region::attach(request.memory.as_fd())?;
    let peer = request.identity.name();
    Conn::new(region, Side::Acceptor, State::Open, request.from, peer, request.number)
}
