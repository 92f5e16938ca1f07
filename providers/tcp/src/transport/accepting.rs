//! Accepts connections from peers, and pauses when memory or descriptors run out.

use super::{LISTENER, TcpTransport};
use crate::conn::State;
use crate::half_open::{FULL, no_descriptor};
use crate::net::Net;
use crate::reader::Reader;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::LinkEvents;
use ofi_os::poller::Interest;

impl<N: Net> TcpTransport<N> {
    pub(super) fn accept_all(&mut self, events: &mut impl LinkEvents) -> bool {
        let mut any = false;
        while self.listener.is_some() {
            let now = || self.net.now();
            if self.half_open.is_full(now) {
                self.pause_accepting(self.net.now(), || FULL.to_owned());
                break;
            }
            let Some(listener) = &self.listener else { break };
            match self.net.accept(listener) {
                Ok(Some((socket, from))) => {
                    any = true;
                    self.take_in(socket, Addr::from(from), events);
                }
                Ok(None) => break,
                Err(error) => {
                    // Out of descriptors: the connection stays in the kernel's backlog for now.
                    let now = self.net.now();
                    if !self.make_room(now, true, events) {
                        self.pause_accepting(now, || no_descriptor(&error));
                        break;
                    }
                }
            }
        }
        any
    }

    /// Adds an accepted connection and reads it, since the hello may have arrived already.
    pub(super) fn take_in(&mut self, socket: N::Socket, from: Addr, events: &mut impl LinkEvents) {
        let now = self.net.now();
        self.make_room(now, false, events);
        let serial = self.half_open.add(self.conns.vacant_key(), now);
        match self.insert(socket, from, State::Silent { serial }, Reader::default()) {
            Ok(slot) => {
                self.activate(slot);
                self.read(slot, events);
            }
            // No memory to watch the socket: closing it informs the peer.
            Err(_) => self.half_open.remove(serial),
        }
    }

    /// Drops the connection that must give way, if any, after reading it: it may have sent a hello.
    fn make_room(&mut self, now: Instant, pressed: bool, events: &mut impl LinkEvents) -> bool {
        let Some(slot) = self.half_open.victim(now, pressed) else { return false };
        self.read(slot, events);
        if self.conns.get(slot).is_some_and(|conn| matches!(conn.state, State::Silent { .. })) {
            self.drop_link(slot, events);
        }
        true
    }

    /// Pauses accepting: there is no room, so new connections wait in the kernel's backlog.
    fn pause_accepting(&mut self, now: Instant, why: impl FnOnce() -> String) {
        let Self { half_open, net, listener, .. } = self;
        if let Some(listener) = listener {
            net.unwatch(listener);
        }
        half_open.pause(now, why);
        self.attention = true;
    }

    /// Resumes accepting if a pause is over.
    pub(super) fn resume_accepting(&mut self, events: &mut impl LinkEvents) -> bool {
        let Self { half_open, net, listener, .. } = self;
        if !half_open.resumes(|| net.now()) {
            return false;
        }
        if let Some(listener) = listener {
            // The descriptor is ours: this fails only without memory, and the next pause retries.
            drop(net.watch(listener, Interest::Read, LISTENER));
        }
        self.accept_all(events)
    }
}
