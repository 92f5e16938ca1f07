//! A datagram endpoint in progress sets.

use super::{DatagramEndpoint, Datagrams, Inner, Receives};
use crate::progress::set::{PollOutcome, Pollable, ReadyFlag};
use crate::report::Report;
use crate::transport::Flush;
use ofi_core::Instant;
use ofi_core::wait::Descriptor;
use ofi_sync::lock::LockKind;

impl<D: Datagrams, K: LockKind> Pollable for DatagramEndpoint<D, K> {
    fn poll(&self) -> PollOutcome {
        let mut inner = K::lock(&self.inner);
        if self.auto.is_some() {
            self.polls.add();
        }
        let active = inner.poll();
        PollOutcome::new(active, inner.socket.as_ref().is_some_and(Datagrams::is_busy))
    }

    fn polls(&self) -> Option<u32> {
        Some(self.polls.get())
    }

    fn report(&self) -> Option<Report> {
        let inner = K::lock(&self.inner);
        let posted = inner.rx.posted.len();
        Some(Report {
            provider: inner.config.provider,
            addr: inner.socket.as_ref().map(Datagrams::local_addr),
            statistics: inner.statistics(),
            known_peers: 0,
            pending: posted as u64,
            details: format!("{posted} receives are posted\n"),
        })
    }

    fn flush(&self, _how: Flush) {}

    fn before_sleep(&self) -> bool {
        let mut inner = K::lock(&self.inner);
        let Inner { socket: Some(socket), rx, .. } = &mut *inner else { return false };
        if rx.posted.is_empty() && !rx.deaf {
            rx.deaf = true;
            socket.listen(false);
        }
        socket.is_busy()
    }

    fn is_polled(&self) -> bool {
        D::POLLED
    }

    fn needs_arming(&self) -> bool {
        D::ARMED
    }

    fn announce(&self, first: bool) -> bool {
        K::lock(&self.inner).rx.armed += usize::from(first);
        false
    }

    fn arm(&self) -> bool {
        let mut inner = K::lock(&self.inner);
        let Inner { socket: Some(socket), rx, .. } = &mut *inner else { return false };
        rx.listens::<D>() && socket.listen(true)
    }

    fn note_events(&self) {
        if let Some(socket) = &mut K::lock(&self.inner).socket {
            socket.note_events();
        }
    }

    fn disarm(&self) {
        let mut inner = K::lock(&self.inner);
        inner.rx.armed -= 1;
        if let Inner { socket: Some(socket), rx: Receives { armed: 0, .. }, .. } = &mut *inner {
            socket.disarm();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn descriptor(&self) -> Option<Descriptor> {
        K::lock(&self.inner).socket.as_ref().and_then(Datagrams::descriptor)
    }

    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready_flag
    }
}
