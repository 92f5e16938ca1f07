//! Which sockets epoll watches. While epoll watches a socket, each packet that arrives costs its
//! sender 5 to 10 % of a small message more over loopback: the system queues the event before the
//! call that sends returns. So the transport takes a socket that each poll reads out of epoll,
//! until a thread is about to sleep.

use super::{MOST_ACTIVE, TcpTransport};
use crate::conn::State;
use crate::net::Net;
use ofi_os::poller::Interest;
use std::io;

/// Reads of active connections with input, since a thread last slept, after which the sockets that
/// each poll reads are no longer watched: to end and to resume watching costs as much as a few
/// events.
const TRUST: u32 = 64;

/// Which sockets epoll watches.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// A thread sleeps on the descriptor, or is about to: it reports all events.
    armed: bool,
    /// Reads with input since the descriptor was last disarmed.
    inputs: u32,
    /// Number of connections that are not watched. Each is active, and read by trying.
    unwatched: usize,
}

impl<N: Net> TcpTransport<N> {
    /// A connection was read because it is active, and there was input.
    #[inline(always)]
    pub(super) fn note_input(&mut self) {
        self.watching.inputs = self.watching.inputs.wrapping_add(1);
        if self.watching.inputs.is_multiple_of(TRUST) {
            self.unwatch_active();
        }
    }

    /// Ends watching the connections that each poll reads.
    #[cold]
    #[inline(never)]
    fn unwatch_active(&mut self) {
        if self.watching.armed || self.active.len() > MOST_ACTIVE {
            return;
        }
        let Self { conns, net, active, watching, .. } = self;
        for slot in active {
            let Some(conn) = conns.get_mut(*slot) else { continue };
            if conn.watched && !conn.blocked && conn.broken.is_none() && matches!(conn.state, State::Open) {
                net.unwatch(&conn.socket);
                conn.watched = false;
                watching.unwatched += 1;
            }
        }
    }

    /// Watches a connection again.
    ///
    /// # Errors
    /// Those of epoll_ctl(2), such as ENOMEM, or ENOSPC if the user watches too many descriptors.
    /// The connection stays as it is.
    pub(super) fn watch(&mut self, slot: usize, interest: Interest) -> io::Result<()> {
        let Self { conns, net, watching, .. } = self;
        let Some(conn) = conns.get_mut(slot) else { return Ok(()) };
        if conn.watched {
            return net.rewatch(&conn.socket, interest, slot as u64);
        }
        net.watch(&conn.socket, interest, slot as u64)?;
        conn.watched = true;
        watching.unwatched -= 1;
        Ok(())
    }

    /// Watches all connections again. False if the system has refused that for some, which only
    /// polls find then.
    pub(super) fn watch_all(&mut self) -> bool {
        if self.watching.unwatched == 0 {
            return true;
        }
        for at in 0..self.active.len() {
            let slot = self.active[at];
            if self.conns.get(slot).is_some_and(|conn| !conn.watched) && self.watch(slot, Interest::Read).is_err() {
                return false;
            }
        }
        true
    }

    /// An unwatched connection has left the table.
    pub(super) const fn forget_unwatched(&mut self) {
        self.watching.unwatched -= 1;
    }

    /// The descriptor reports all events from now on. True if some can only be found by polls.
    pub(super) fn arm_descriptor(&mut self) -> bool {
        self.watching.armed = true;
        !self.watch_all()
    }

    /// The descriptor need no longer report all events.
    pub(super) const fn disarm_descriptor(&mut self) {
        self.watching.armed = false;
        self.watching.inputs = 0;
    }
}
