//! What an endpoint's lock protects: the core, and the transport that carries its frames. Reads the
//! clock, and only when something may be due.

use super::core::Core;
use super::{CLOSE_DEADLINE, Opener};
use crate::peer::agenda::Work;
use crate::peer::yields::Due;
use crate::progress::backstop::Backstop;
use crate::progress::set::{PollOutcome, Pollable};
use crate::transport::{Flush, Transport};
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Errno, Error, Instant};
use ofi_sync::held::HeldMark;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Rounds of sending that a call or poll makes: sending can make links pending again, and other
/// endpoints must not starve.
const MOST_ROUNDS: usize = 4;

/// How often a sleeping thread looks for handles that another process may insert.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Inner<T: Transport, K: LockKind> {
    pub(super) transport: Option<T>,
    pub(super) core: Core<K>,
    opener: Opener<T>,
    pub(super) source: Option<Addr>,
    /// Calls that post send at once: a progress thread serves the endpoint, so the application need
    /// not call again. False while the thread leaves the endpoint to the application, which then
    /// calls again soon.
    pub(super) prompt: bool,
    /// Number of progress sets that have the descriptor armed.
    pub(super) armed: usize,
    /// The deadline that sleeping threads know.
    pub(super) announced: Option<Instant>,
    /// Its backstop, if it has one.
    pub(super) told: Option<Told>,
    /// Something was held back when this was last found out; the backstop's mark says the same.
    pub(super) is_marked: bool,
}

/// How a backstop hears of an endpoint.
pub(super) struct Told {
    pub(super) backstop: Arc<Backstop>,
    pub(super) mark: Arc<HeldMark>,
    pub(super) endpoint: Weak<dyn Pollable>,
}

impl<T: Transport, K: LockKind> Inner<T, K> {
    pub(super) fn new(core: Core<K>, opener: Opener<T>, source: Option<Addr>, prompt: bool) -> Self {
        Self { transport: None, core, opener, source, prompt, armed: 0, announced: None, told: None, is_marked: false }
    }

    /// The transport, which is opened on first use.
    pub(super) fn open(&mut self) -> Result<&mut T> {
        if self.transport.is_none() {
            self.transport = Some((self.opener)(self.source)?);
        }
        self.opened().map(|(transport, _)| transport)
    }

    /// The transport and the core.
    pub(super) fn opened(&mut self) -> Result<(&mut T, &mut Core<K>)> {
        match &mut self.transport {
            Some(transport) => Ok((transport, &mut self.core)),
            None => Err(Error::new(Errno::EOPBADSTATE, "use an endpoint without a transport")),
        }
    }

    /// The next deadline.
    pub(super) fn due(&self) -> Option<Instant> {
        let transport = self.transport.as_ref()?;
        let ours = self.core.next_due().map(|due| match due {
            Due::Now => transport.now(),
            Due::At(when) => when,
        });
        let look = self.core.peers.agenda.has(Work::WATCHES).then(|| transport.now() + LOOK);
        [transport.next_deadline(), ours, look].into_iter().flatten().min()
    }

    #[inline(always)]
    pub(super) fn poll(&mut self) -> PollOutcome {
        let Self { transport: Some(transport), core, .. } = self else {
            return PollOutcome::default();
        };
        let active = transport.poll(core);
        let has_news = core.rx.has_news();
        if core.peers.agenda.is_any() || has_news {
            return Self::follow_up(transport, core, (active, has_news));
        }
        PollOutcome::new(active, transport.is_busy())
    }

    #[inline(never)]
    fn follow_up(transport: &mut T, core: &mut Core<K>, (mut active, has_news): (bool, bool)) -> PollOutcome {
        if has_news {
            core.take_left();
            active = true;
        }
        let watches = core.peers.agenda.has(Work::WATCHES);
        if watches {
            core.check_av();
            // The receives that waited may be cancelled by now.
            core.note_awaited();
        }
        core.run_deferred(!active);
        active |= Self::finish(transport, core);
        let busy = watches || transport.is_busy() || core.next_due().is_some();
        PollOutcome::new(active, busy).deferring(core.peers.agenda.has_deferred())
    }

    /// Carries out pending work and sends the frames that it produces, for a few rounds; the rest
    /// stays marked [`Work::PENDING`]. Returns true if there was pending work.
    #[inline(never)]
    fn finish(transport: &mut T, core: &mut Core<K>) -> bool {
        core.tick(transport, T::now);
        let mut any = false;
        for _ in 0..MOST_ROUNDS {
            let ran = core.peers.agenda.has(Work::GROUPS) && core.run_groups(transport);
            if !core.peers.is_pending() && !ran {
                break;
            }
            core.settle(transport);
            any = true;
            transport.flush(Flush::All, core);
        }
        if core.peers.agenda.has(Work::ROOM) {
            core.note_room();
        }
        let groups = core.peers.agenda.has(Work::GROUPS) && core.has_group_work();
        if core.peers.is_pending() || groups {
            core.peers.agenda.add(Work::PENDING);
        } else {
            // The loop has handled the links that became pending while it sent.
            core.peers.agenda.remove(Work::PENDING);
        }
        any
    }

    /// Whether there is work although a thread is about to sleep: a call of another thread has left
    /// it since this one looked, and its ring may have come before this one could hear it.
    pub(super) fn has_work_for_sleepers(&mut self) -> bool {
        // Transports that are not polled have events for what they wait for.
        let is_busy = T::POLLED && self.transport.as_ref().is_some_and(Transport::is_busy);
        is_busy || self.core.leaves_work() || self.core.rx.is_news_waiting()
    }

    /// The deadline of work that is to be done now.
    pub(super) fn due_now(&self) -> Option<Instant> {
        self.transport.as_ref().map(Transport::now)
    }

    /// Records the next deadline. True if it is earlier than sleeping threads know.
    pub(super) fn note_deadline(&mut self) -> bool {
        let due = self.due();
        let announced = core::mem::replace(&mut self.announced, due);
        due.is_some_and(|due| announced.is_none_or(|announced| due < announced))
    }

    /// Whether something is held back that a backstop sends if the next call does not come.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        self.core.peers.agenda.leaves_acknowledgments() || self.core.tx.has_unreported() || self.holds_posted()
    }

    /// The same of what the transport has.
    #[inline(always)]
    pub(super) fn holds_posted(&self) -> bool {
        self.transport.as_ref().is_some_and(Transport::holds_posted)
    }

    /// Sends what is held back for a caller that may not poll again soon, but leaves the
    /// acknowledgments that a reply is expected to take along, where that saves something.
    pub(super) fn flush_for_reader(&mut self) {
        if self.core.peers.agenda.may_leave_to_reply() {
            self.core.peers.forget_paid();
        }
        if !T::COMBINES_FRAMES {
            self.flush_all();
        } else if self.core.peers.agenda.flushes_deferred(self.core.tx.is_backed()) {
            self.flush_all();
            self.core.peers.agenda.note_flushed();
        } else {
            self.flush_frames();
        }
    }

    /// Sends everything held back: the caller may not poll again soon.
    pub(super) fn flush_all(&mut self) {
        if let Self { transport: Some(transport), core, .. } = self {
            core.send_deferred(transport);
        }
        self.flush_frames();
    }

    #[inline(never)]
    fn flush_frames(&mut self) {
        let Self { transport: Some(transport), core, .. } = self else { return };
        transport.flush(Flush::All, core);
        if core.peers.agenda.is_any() {
            Self::finish(transport, core);
        }
    }

    /// Sends what was accepted for inject or transmit, waits up to [`CLOSE_DEADLINE`] until the
    /// peers' hosts have acknowledged it, and discards the rest.
    pub(super) fn close(&mut self) {
        // The backstop does not wait for this endpoint's lock meanwhile.
        self.disown();
        if let Self { transport: Some(transport), core, .. } = self {
            Self::drain(transport, core);
            // The transport releases what the account is charged for output.
            core.abort_all(transport);
        } else {
            self.core.begin_close();
        }
        self.core.discard_all();
        self.transport = None;
    }

    fn drain(transport: &mut T, core: &mut Core<K>) {
        core.begin_close();
        let mut end = None;
        let mut pause = Duration::from_micros(50);
        loop {
            transport.poll(core);
            core.tick(transport, T::now);
            core.settle(transport);
            let over = core.step_close(transport);
            transport.flush(Flush::All, core);
            if over && core.step_close(transport) {
                return;
            }
            let now = transport.now();
            let end = *end.get_or_insert(now + CLOSE_DEADLINE);
            if now >= end {
                let left = core.unfinished();
                log::log(core.provider, Level::Warn, Subsystem::EpCtrl, || {
                    format!("close timed out after {CLOSE_DEADLINE:?}: {left} operations and links aborted")
                });
                return;
            }
            transport.wait(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}
