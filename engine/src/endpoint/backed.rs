//! An endpoint with a backstop, which sends what it holds back for the application's next call.

use super::Endpoint;
use super::inner::Inner;
use crate::progress::backstop::Backstop;
use crate::progress::set::Pollable;
use crate::transport::{Flush, Transport};
use ofi_sync::held::HeldMark;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Weak};

/// How a backstop hears of an endpoint.
pub(super) struct Told {
    backstop: Arc<Backstop>,
    mark: Arc<HeldMark>,
    endpoint: Weak<dyn Pollable>,
}

impl<T: Transport, K: LockKind> Inner<T, K> {
    /// Marks that something is held back, or nothing any more. True if the backstop is to be told.
    #[inline(never)]
    fn mark(&mut self, holds: bool) -> bool {
        let Some(told) = &self.told else { return false };
        self.is_marked = holds;
        told.mark.set(holds)
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
            // There is no thread to do it.
            let mut inner = K::lock(&self.inner);
            inner.flush_all();
            let holds = inner.holds();
            inner.mark(holds);
            mark.reject();
        }
    }

    /// After a poll: it has sent what was held back, or found that something cannot leave yet.
    #[cold]
    #[inline(never)]
    pub(super) fn note_polled<'a>(&'a self, inner: K::Guard<'a, Inner<T, K>>) -> K::Guard<'a, Inner<T, K>> {
        self.note_held(inner);
        K::lock(&self.inner)
    }

    /// Sends what is held back, as far as it can leave: for the backstop.
    pub(super) fn send_held(&self) {
        // The trait's: only there it is inlined.
        Pollable::poll(self);
        self.flush(Flush::All);
        let mut inner = K::lock(&self.inner);
        inner.core.tx.look_for_unreported();
        let holds = inner.holds();
        inner.mark(holds);
    }
}
