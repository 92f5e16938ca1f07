//! Arming: pollables whose descriptors report events only while armed are armed before a thread
//! sleeps, and while they are idle.

use super::{Active, Entry, FEW, ProgressSet, State};
use ofi_sync::lock::LockKind;

/// Polls without traffic after which a thread that goes to sleep leaves a pollable armed when it
/// wakes up, unless only [`FEW`] are active: to disarm and arm many that have no events would cost
/// more than to handle the event.
const PATIENCE_ASLEEP: u16 = 2;

impl<K: LockKind> ProgressSet<K> {
    /// Prepares the active pollables for a sleep of the caller, which holds a [`super::Sleeper`].
    /// True if one has events already.
    pub fn before_sleep(&self) -> bool {
        let mut state = K::lock(&self.state);
        debug_assert!(state.is_slept_on(), "the caller has said that it sleeps");
        self.collect(&mut state);
        let mut news = false;
        let mut orders = None;
        for at in 0..state.active.len() {
            news |= state.active[at].pollable.before_sleep();
            let key = state.active[at].key;
            if state.announce(key) {
                orders = Some(at);
            }
        }
        if let Some(at) = orders {
            state.active[at].pollable.order();
        }
        let mut at = 0;
        while let Some(active) = state.active.get(at) {
            let has_events = active.pollable.needs_arming() && active.pollable.arm();
            let tries = active.idle >= PATIENCE_ASLEEP && state.active.len() > FEW;
            let (stays, active) = if tries { state.try_idle(at, has_events) } else { (true, false) };
            news |= has_events || active;
            at += usize::from(stays);
        }
        news
    }
}

impl State {
    /// Makes a pollable's descriptor report events. True if some are pending already.
    pub(super) fn arm(&mut self, key: usize) -> bool {
        let orders = self.announce(key);
        let Some(Entry { pollable, .. }) = self.pollables.get(key) else { return false };
        if orders {
            pollable.order();
        }
        pollable.needs_arming() && pollable.arm()
    }

    /// The first step of [`Self::arm`]. True if the second is needed.
    fn announce(&mut self, key: usize) -> bool {
        let Some(entry) = self.pollables.get_mut(key).filter(|entry| entry.pollable.needs_arming()) else {
            return false;
        };
        let first = !core::mem::replace(&mut entry.armed, true);
        entry.pollable.announce(first)
    }

    pub(super) fn disarm(&mut self, key: usize) {
        if let Some(entry) = self.pollables.get_mut(key)
            && core::mem::take(&mut entry.armed)
        {
            entry.pollable.disarm();
        }
    }

    /// Active pollables are polled again, so their descriptors need not report.
    pub(super) fn disarm_active(&mut self) {
        for at in 0..self.active.len() {
            self.disarm(self.active[at].key);
        }
    }

    /// Leaves a pollable without recent traffic to its descriptor. Returns whether it stays active,
    /// and whether a last poll found something.
    #[cold]
    pub(super) fn make_idle(&mut self, at: usize) -> (bool, bool) {
        let Active { key, pollable, .. } = &self.active[at];
        if pollable.is_polled() && self.active.len() <= FEW {
            self.active[at].idle = 0;
            return (true, false);
        }
        let key = *key;
        let has_events = self.arm(key);
        self.try_idle(at, has_events)
    }

    /// [`Self::make_idle`] for a pollable that is armed, and that had events if `has_events`.
    fn try_idle(&mut self, at: usize, has_events: bool) -> (bool, bool) {
        let Active { key, pollable, .. } = &self.active[at];
        let (key, pollable) = (*key, pollable.clone());
        pollable.ready_flag().clear();
        // One more poll finds work that was marked ready before the flag was cleared.
        let last = pollable.poll();
        if let Some(entry) = self.pollables.get_mut(key) {
            entry.polled.count_own(self.counts.polled);
            entry.polled.count_one();
            entry.patience.leave(self.counts.polled);
        }
        if has_events || last.is_active_or_busy() {
            self.active[at].idle = 0;
            pollable.ready_flag().mark_ready();
            if !self.is_slept_on() {
                self.disarm(key);
            }
            return (true, last.is_active());
        }
        if let Some(when) = pollable.next_deadline() {
            self.due.push((when, key));
        }
        self.active.swap_remove(at);
        (false, false)
    }
}
