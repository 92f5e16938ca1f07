//! What serves an endpoint besides the application's calls: its domain's progress thread, or a
//! backstop, which sends what the endpoint holds back for the next call.

use super::Endpoint;
use super::inner::Inner;
use crate::progress::auto::Auto;
use crate::progress::backstop::Backstop;
use crate::progress::set::{PollCount, Pollable};
use crate::transport::{Flush, Transport};
use ofi_sync::held::HeldMark;
use ofi_sync::lock::LockKind;
use std::sync::{Arc, OnceLock, Weak};

/// What serves an endpoint.
pub(super) struct Helpers {
    /// The domain's progress thread (FI_PROGRESS_AUTO); `None` under manual progress.
    pub(super) auto: Option<Arc<Auto>>,
    /// How often the endpoint was polled, if there is a progress thread, which leaves it to the
    /// application while that polls it.
    pub(super) polls: PollCount,
    /// Its backstop, if it has one.
    backed: OnceLock<Told>,
}

impl Helpers {
    pub(super) fn new(auto: Option<Arc<Auto>>) -> Self {
        Self { auto, polls: PollCount::default(), backed: OnceLock::new() }
    }
}

/// How a backstop hears of an endpoint.
struct Told {
    backstop: Arc<Backstop>,
    mark: Arc<HeldMark>,
    endpoint: Weak<dyn Pollable>,
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// From now on the endpoint may hold back what a later call sends, because this backstop does
    /// if there is none. Without one, or with a progress thread, it holds back nothing that the
    /// application need not call for.
    pub fn set_backstop(self: &Arc<Self>, backstop: &Arc<Backstop>) {
        if !K::IS_SHARED || self.helpers.auto.is_some() {
            return;
        }
        let me: Weak<Self> = Arc::downgrade(self);
        let told = Told { backstop: backstop.clone(), mark: Arc::default(), endpoint: me };
        if self.helpers.backed.set(told).is_ok() {
            K::lock(&self.inner).core.tx.set_backed();
        }
    }

    /// After a call that may leave work: marks whether something is held back. True if the backstop
    /// is to be told.
    #[inline(always)]
    pub(super) fn note_held(&self, inner: &Inner<T, K>) -> bool {
        self.helpers.backed.get().is_some_and(|told| told.mark.set(inner.holds()))
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
        let Some(told) = self.helpers.backed.get() else { return };
        let mut inner = K::lock(&self.inner);
        inner.core.tx.look_for_unreported();
        told.mark.set(inner.holds());
    }

    /// Tells the backstop to look at the endpoint.
    #[cold]
    pub(super) fn tell_backstop(&self) {
        let Some(told) = self.helpers.backed.get() else { return };
        if !told.backstop.watch(told.endpoint.clone(), told.mark.clone()) {
            // There is no thread to do it.
            let mut inner = K::lock(&self.inner);
            inner.flush_all();
            told.mark.set(inner.holds());
            told.mark.reject();
        }
    }
}
