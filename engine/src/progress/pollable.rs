//! What progress sets and backstops poll: endpoints of all kinds, and what hands them work.

use crate::report::Report;
use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::wait::Descriptor;
use ofi_sync::ready_list::ReadyFlag;

/// The result of polling a pollable, or several: flags in one byte, because most polls find nothing
/// and cost little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollOutcome(u8);

impl PollOutcome {
    const ACTIVE: u8 = 1;
    const BUSY: u8 = 2;
    const DEFERS: u8 = 4;

    /// `active`: something happened. `busy`: it must be polled again even without events on its
    /// descriptor.
    #[inline(always)]
    pub const fn new(active: bool, busy: bool) -> Self {
        Self((active as u8 * Self::ACTIVE) | (busy as u8 * Self::BUSY))
    }

    /// The same of a pollable that has, or has not, acknowledgments for peers that wait for the
    /// next call.
    #[inline(always)]
    pub const fn deferring(self, defers: bool) -> Self {
        Self(self.0 | (defers as u8 * Self::DEFERS))
    }

    /// Whether something happened.
    #[inline(always)]
    pub const fn is_active(self) -> bool {
        self.0 & Self::ACTIVE != 0
    }

    /// Whether something happened, or another poll is due.
    #[inline(always)]
    pub(crate) const fn is_active_or_busy(self) -> bool {
        self.0 & (Self::ACTIVE | Self::BUSY) != 0
    }

    /// Whether acknowledgments for peers wait for the next call.
    #[inline(always)]
    pub(crate) const fn defers(self) -> bool {
        self.0 & Self::DEFERS != 0
    }

    /// Adds the outcome of another poll.
    #[inline(always)]
    pub(crate) const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// An endpoint or passive endpoint in a progress set.
pub trait Pollable: Send + Sync {
    /// Makes progress.
    fn poll(&self) -> PollOutcome;
    /// Sends held-back frames.
    fn flush(&self, how: Flush);
    /// The same for a backstop, with all that must come before. True if something happened.
    fn send_held(&self) -> bool {
        false
    }
    /// The caller is about to sleep on the descriptor: masks events that would wake it but that the
    /// pollable could not handle. True if there is something to do first.
    fn before_sleep(&self) -> bool {
        false
    }
    /// True if it is always active, although it rarely has traffic: passes look for events as if it
    /// were idle.
    fn is_standby(&self) -> bool {
        false
    }
    /// True if a poll is no system call.
    fn is_polled(&self) -> bool {
        false
    }
    /// True if the descriptor reports all events only while armed.
    fn needs_arming(&self) -> bool {
        self.is_polled()
    }
    /// The first of three steps that make the descriptor report events, until there was a
    /// [`Pollable::disarm`] for each call with `first`. True if the second step is needed.
    fn announce(&self, _first: bool) -> bool {
        false
    }
    /// The second step, once for all pollables that need it.
    fn order(&self) {}
    /// The third step. True if some events are pending already.
    fn arm(&self) -> bool {
        false
    }
    /// The descriptor has reported events. Called if it [`Pollable::is_polled`].
    fn note_events(&self) {}
    /// This progress set no longer needs the descriptor to report events.
    fn disarm(&self) {}
    /// The next deadline, if any.
    fn next_deadline(&self) -> Option<Instant>;
    /// The descriptor that becomes readable on events.
    fn descriptor(&self) -> Option<Descriptor>;
    /// The flag by which it queues itself for progress.
    fn ready_flag(&self) -> &ReadyFlag;
    /// How often it has been polled, by all threads (wraps). `None` if it does not count that, so
    /// that a progress thread never leaves it to the application.
    fn polls(&self) -> Option<u32> {
        None
    }
    /// A progress thread leaves it to the application, which polls it, or takes it back.
    fn leave_to_application(&self, _left: bool) {}
    /// What it has done and what it waits for, if it is an endpoint.
    fn report(&self) -> Option<Report> {
        None
    }
    /// A number that identifies it, if it may join a set several times, for several endpoints: the
    /// set polls it once.
    fn shared_as(&self) -> Option<usize> {
        None
    }
}
