//! An endpoint in progress sets: polled while active, otherwise found by its descriptor.

use super::Endpoint;
use super::inner::Inner;
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::report::Report;
use crate::transport::{Flush, Transport};
use ofi_core::Instant;
use ofi_core::wait::Descriptor;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::Ordering;

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// Makes progress for a call of the application, or for a poll.
    #[inline]
    pub(super) fn poll_once(&self) -> PollOutcome {
        let mut inner = K::lock(&self.inner);
        let outcome = inner.poll();
        if outcome.is_active() {
            // Relaxed: the lock orders it before the flush that clears it.
            self.unflushed.store(true, Ordering::Relaxed);
        }
        if inner.is_marked || inner.holds_posted() {
            inner = self.note_polled(inner);
        }
        if outcome.is_active() && self.ready_flag.is_slept_on() {
            self.hand_on_poll(inner);
        }
        outcome
    }

    /// Called after an operation while a thread sleeps on this endpoint: sends now, and wakes the
    /// thread if that leaves work, or the deadline moved earlier.
    #[cold]
    pub(super) fn wake_progress_thread(&self) {
        let mut inner = K::lock(&self.inner);
        inner.flush_all();
        let leaves_work = inner.core.leaves_work() || inner.transport.as_ref().is_some_and(Transport::is_busy);
        self.tell_sleepers(inner, leaves_work);
    }

    /// Called after a poll of a thread while another one sleeps on this endpoint. With automatic
    /// progress what the poll has left for the next call is sent now: no call need follow.
    #[cold]
    fn hand_on_poll(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        if inner.prompt {
            inner.flush_all();
        }
        let is_busy = || inner.transport.as_ref().is_some_and(|transport| T::POLLED && transport.is_busy());
        let leaves_work = inner.prompt && (is_busy() || inner.core.leaves_work());
        self.tell_sleepers(inner, leaves_work);
    }

    /// Wakes sleeping threads if there is work for them, or the deadline is earlier than they know.
    fn tell_sleepers(&self, mut inner: K::Guard<'_, Inner<T, K>>, leaves_work: bool) {
        let earlier = inner.note_deadline();
        drop(inner);
        if earlier || leaves_work {
            // In this order: a thread that wakes takes up what is queued, and its deadline.
            self.ready_flag.mark_ready();
            self.ready_flag.wake();
        }
    }
}

impl<T: Transport, K: LockKind> Pollable for Endpoint<T, K> {
    fn poll(&self) -> PollOutcome {
        let outcome = self.poll_once();
        if self.auto.is_some() {
            self.polls.add();
        }
        outcome
    }

    fn polls(&self) -> Option<u32> {
        Some(self.polls.get())
    }

    fn leave_to_application(&self, left: bool) {
        K::lock(&self.inner).prompt = !left;
    }

    fn report(&self) -> Option<Report> {
        let mut inner = K::lock(&self.inner);
        let addr = inner.transport.as_ref().map(Transport::local_addr);
        Some(inner.core.make_report(addr))
    }

    fn flush(&self, how: Flush) {
        // A reader flushes all endpoints of its queue for each completion. Relaxed: what another
        // thread leaves just now waits for the next flush.
        if !self.unflushed.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = K::lock(&self.inner);
        match how {
            // The application need not call again.
            Flush::All if inner.prompt => inner.flush_all(),
            Flush::All => inner.flush_for_reader(),
            Flush::ByRule => {
                if let Inner { transport: Some(transport), core, .. } = &mut *inner {
                    transport.flush(how, core);
                }
                if inner.core.peers.agenda.puts_off() {
                    self.note_put_off(inner);
                }
                return;
            }
        }
        // What the transport has no room for, the next polls send.
        let leaves_work = inner.core.peers.agenda.is_any();
        self.unflushed.store(leaves_work, Ordering::Relaxed);
        if (leaves_work || inner.is_marked || inner.holds_posted()) && inner.holds() != inner.is_marked {
            self.note_held(inner);
        }
    }

    fn send_held(&self) -> bool {
        self.send_held()
    }

    fn before_sleep(&self) -> bool {
        let mut inner = K::lock(&self.inner);
        inner.core.leaves_work() || inner.core.rx.is_news_waiting()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut inner = K::lock(&self.inner);
        let earlier = inner.note_deadline();
        let due = if inner.has_work_for_sleepers() { inner.due_now() } else { inner.announced };
        drop(inner);
        // Other sleeping threads know only a later deadline.
        if earlier && self.ready_flag.sleepers() > 1 {
            self.ready_flag.mark_ready();
            self.ready_flag.wake();
        }
        due
    }

    fn descriptor(&self) -> Option<Descriptor> {
        K::lock(&self.inner).transport.as_ref().and_then(Transport::descriptor)
    }

    fn is_polled(&self) -> bool {
        T::POLLED
    }

    fn needs_arming(&self) -> bool {
        T::ARMED
    }

    fn announce(&self, first: bool) -> bool {
        let mut inner = K::lock(&self.inner);
        inner.armed += usize::from(first);
        inner.transport.as_mut().is_some_and(Transport::announce)
    }

    fn order(&self) {
        if let Some(transport) = &K::lock(&self.inner).transport {
            transport.order();
        }
    }

    fn arm(&self) -> bool {
        let mut inner = K::lock(&self.inner);
        let has_work = inner.core.leaves_work();
        inner.transport.as_mut().is_some_and(Transport::arm) | has_work
    }

    fn note_events(&self) {
        if let Some(transport) = &mut K::lock(&self.inner).transport {
            transport.note_events();
        }
    }

    fn disarm(&self) {
        let mut inner = K::lock(&self.inner);
        inner.armed -= 1;
        if let (0, Some(transport)) = (inner.armed, &mut inner.transport) {
            transport.disarm();
        }
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready_flag
    }

    fn shared_as(&self) -> Option<usize> {
        // A context joins the queues of its partners too, which may be the same.
        self.portal.as_ref().map(|_| core::ptr::from_ref(self).addr())
    }
}
