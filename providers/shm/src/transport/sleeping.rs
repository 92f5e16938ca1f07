//! Announces in the links' memory that this side sleeps, and checks for what peers wrote before
//! they could know.

use super::ShmTransport;
use ofi_engine::transport::{LinkEvents, Transport};
use ofi_os::membarrier;
use ofi_sync::lines::order_own;

/// Whether this side may sleep, and what that takes.
#[derive(Debug)]
pub(super) struct Sleep {
    armed: bool,
    /// It was not armed before, and has not checked for news yet.
    begins: bool,
    /// The control socket is known to be readable: the next poll reads it.
    noted: bool,
    /// This process takes part in ordering memory accesses across processes.
    orders: bool,
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self { armed: false, begins: false, noted: false, orders: membarrier::share_ordering() }
    }

    #[inline(always)]
    pub(super) const fn is_armed(&self) -> bool {
        self.armed
    }

    /// Whether this process takes part in ordering memory accesses across processes.
    #[inline(always)]
    pub(super) const fn orders(&self) -> bool {
        self.orders
    }

    /// From now on this side may sleep at any time. True if it was not armed before.
    pub(super) const fn arm(&mut self) -> bool {
        let first = !core::mem::replace(&mut self.armed, true);
        self.begins |= first;
        first
    }

    /// The control socket has been read.
    pub(super) const fn forget(&mut self) {
        self.noted = false;
    }

    /// True once after this side was armed anew.
    pub(super) const fn begins(&mut self) -> bool {
        core::mem::replace(&mut self.begins, false)
    }

    /// The control socket is readable.
    pub(super) const fn note(&mut self) {
        self.noted = true;
    }

    /// Whether polls leave the control socket to a thread that may sleep on it.
    pub(super) const fn leaves_messages(&self) -> bool {
        self.armed && !self.noted
    }

    /// This side polls again.
    pub(super) const fn disarm(&mut self) {
        self.armed = false;
    }

    /// Orders memory accesses between an announcement of sleep and the last check.
    pub(super) fn order(&self) {
        if self.orders {
            membarrier::order_all();
        } else {
            order_own();
        }
    }
}

impl ShmTransport {
    /// A send began to wait while this side sleeps: announces that room must wake it as well.
    #[cold]
    pub(super) fn announce_waiting(&mut self, slot: usize) {
        self.conns[slot].announce_sleep(self.schedule.is_idle(slot));
        self.sleep.order();
        // Use the room that was made before the announcement.
        self.send_waiting(slot);
    }

    /// Polls while armed. After an event it reads everything, and announces sleep again if a peer's
    /// wakeup ended it. Otherwise the poll is that of a thread that does not sleep: it reads the
    /// links, and leaves the waking messages to the one that may.
    pub(super) fn poll_armed(&mut self, events: &mut impl LinkEvents) -> bool {
        let noted = self.sleep.noted;
        let mut any = self.pace.count() && self.look_around(events);
        for _ in 0..4 {
            any |= self.read_all(events);
            any |= self.send_all();
            self.undelivered.deliver(events);
            if !noted || !self.was_woken() || !self.arm_alone() {
                break;
            }
            any = true;
        }
        any
    }

    /// Reads the control socket for a thread that may sleep on it, and that may be busy elsewhere.
    /// If that took the waking message of a peer, which sends no other, the thread still gets one.
    pub(super) fn read_for_sleeper(&mut self, events: &mut impl LinkEvents) -> bool {
        let any = self.read_messages(events);
        if any && self.was_woken() {
            self.wake_itself();
        }
        any
    }

    /// Whether a peer has ended the announced sleep.
    fn was_woken(&self) -> bool {
        self.conns.iter().any(|(_, conn)| conn.presence.was_woken())
    }

    /// The control socket is readable: the next poll reads it.
    pub(super) fn note_messages(&mut self) {
        self.pace.hurry_messages();
        self.sleep.note();
    }

    fn wake_itself(&self) {
        // A socket too full for that is readable anyway.
        drop(self.control.wake(&self.control.identity().name()));
    }

    /// Announces to the peer of a new link that this side sleeps, and checks for what the peer
    /// wrote before it could know.
    #[cold]
    pub(super) fn announce_new(&mut self, slot: usize) {
        self.conns[slot].announce_sleep(self.schedule.is_idle(slot));
        self.sleep.order();
        if self.conns[slot].has_news() {
            self.wake_itself();
        }
    }

    /// Sets the bits of idle links that became ready during sleep, for the next poll to find.
    pub(super) fn note_own(&self) {
        for (slot, _) in self.conns.iter().filter(|(slot, conn)| self.schedule.is_idle(*slot) && conn.is_ready()) {
            self.schedule.note(slot);
        }
    }
}
