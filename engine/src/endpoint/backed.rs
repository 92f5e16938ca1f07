//! An endpoint with a backstop, which sends what it holds back for the application's next call.

use super::Endpoint;
use super::inner::{Inner, Told};
use crate::progress::backstop::Backstop;
use crate::progress::set::Pollable;
use crate::transport::{Flush, Transport};
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::Ordering;
use std::sync::{Arc, Weak};

impl<T: Transport, K: LockKind> Inner<T, K> {
    /// Marks that something is held back, or nothing any more. True if the backstop is to be told.
    #[inline(never)]
    fn mark(&mut self, holds: bool) -> bool {
        self.is_marked = holds;
        self.told.as_ref().is_some_and(|told| told.mark.set(holds))
    }

    /// From now on nothing is held for a backstop: the endpoint closes, and sends it itself.
    pub(super) fn disown(&mut self) {
        self.mark(false);
        self.told = None;
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// From now on the endpoint may hold back what a later call sends, because this backstop does
    /// if there is none. Without one, or with a progress thread, it holds back nothing that the
    /// application need not call for.
    pub fn set_backstop(self: &Arc<Self>, backstop: &Arc<Backstop>) {
        if !K::IS_SHARED || self.auto.is_some() {
            return;
        }
        let endpoint: Weak<Self> = Arc::downgrade(self);
        let told = Told { backstop: backstop.clone(), mark: Arc::default(), endpoint };
        let mut inner = K::lock(&self.inner);
        inner.told = Some(told);
        inner.core.tx.set_backed();
    }

    /// Something begins or ceases to be held back: tells the backstop.
    #[cold]
    #[inline(never)]
    pub(super) fn note_held(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        let holds = inner.holds();
        if !inner.mark(holds) {
            return;
        }
        let Some(Told { backstop, mark, endpoint }) = &inner.told else { return };
        let (backstop, mark, endpoint) = (backstop.clone(), mark.clone(), endpoint.clone());
        drop(inner);
        if !backstop.watch(endpoint, mark.clone()) {
            // There is no thread to do it: each call tries anew.
            let mut inner = K::lock(&self.inner);
            inner.flush_all();
            inner.mark(false);
            mark.reject();
        }
    }

    /// After a poll of an endpoint that held something, or does now.
    #[inline(never)]
    pub(super) fn note_polled<'a>(&'a self, mut inner: K::Guard<'a, Inner<T, K>>) -> K::Guard<'a, Inner<T, K>> {
        if !inner.is_marked {
            self.note_held(inner);
            return K::lock(&self.inner);
        }
        if !inner.holds() {
            inner.mark(false);
        } else if let Some(told) = &inner.told {
            told.mark.note_call();
        }
        inner
    }

    /// A read has put acknowledgments off.
    #[cold]
    #[inline(never)]
    pub(super) fn note_put_off(&self, mut inner: K::Guard<'_, Inner<T, K>>) {
        if inner.told.is_none() {
            inner.flush_all();
        } else if !inner.is_marked {
            self.note_held(inner);
        }
    }

    /// Sends what is held back, as far as it can leave: for the backstop. True if something
    /// happened.
    pub(super) fn send_held(&self) -> bool {
        if let Some(transport) = &mut K::lock(&self.inner).transport {
            transport.expect_events();
        }
        // The trait's: only there it is inlined.
        let outcome = Pollable::poll(self);
        self.flush(Flush::All);
        if outcome.is_active_or_busy() {
            // The application's next pass polls what this poll has begun. If a deadline has come
            // closer, `poll` has woken the threads that sleep.
            self.unflushed.store(true, Ordering::Relaxed);
            self.ready_flag.mark_ready();
        }
        outcome.is_active()
    }
}
