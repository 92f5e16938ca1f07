//! An endpoint with a backstop, which sends what it holds back for the application's next call.

use super::Endpoint;
use super::inner::Inner;
use crate::progress::backstop::Backstop;
use crate::progress::set::Pollable;
use crate::transport::{Flush, Transport};
use ofi_sync::held::HeldMark;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, OnceLock, Weak};

/// Its backstop, if it has one.
pub(super) type Backed = OnceLock<Told>;

/// How a backstop hears of an endpoint.
pub(super) struct Told {
    backstop: Arc<Backstop>,
    mark: Arc<HeldMark>,
    endpoint: Weak<dyn Pollable>,
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// From now on the endpoint may hold back what a later call sends, because this backstop does
    /// if there is none. Without one, or with a progress thread, it holds back nothing that the
    /// application need not call for.
    pub fn set_backstop(self: &Arc<Self>, backstop: &Arc<Backstop>) {
        if !K::IS_SHARED || self.auto.is_some() {
            return;
        }
        let me: Weak<Self> = Arc::downgrade(self);
        let told = Told { backstop: backstop.clone(), mark: Arc::default(), endpoint: me };
        if self.backed.set(told).is_ok() {
            K::lock(&self.inner).core.tx.set_backed();
        }
    }

    /// After a call that may leave work: marks whether something is held back. True if the backstop
    /// is to be told.
    #[inline(always)]
    pub(super) fn note_held(&self, inner: &Inner<T, K>) -> bool {
        self.backed.get().is_some_and(|told| told.mark.set(inner.holds()))
    }

    /// The same after a poll or a flush, for transports over which much is held for a short time.
    /// Over others the backstop finds out.
    #[inline(always)]
    pub(super) fn note_still_held(&self, inner: &Inner<T, K>) -> bool {
        T::COMBINES_FRAMES && self.note_held(inner)
    }

    /// Sends what is held back, as far as it can leave: for the backstop.
    pub(super) fn send_held(&self) {
        self.poll_once();
        self.flush(Flush::All);
        let Some(told) = self.backed.get() else { return };
        let mut inner = K::lock(&self.inner);
        inner.core.tx.look_for_unreported();
        told.mark.set(inner.holds());
    }

    /// Tells the backstop to look at the endpoint.
    #[cold]
    pub(super) fn tell_backstop(&self) {
        let Some(told) = self.backed.get() else { return };
        if !told.backstop.watch(told.endpoint.clone(), told.mark.clone()) {
            // There is no thread to do it.
            let mut inner = K::lock(&self.inner);
            inner.flush_all();
            told.mark.set(inner.holds());
            told.mark.reject();
        }
    }
}
