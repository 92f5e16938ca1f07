//! Writes the completions of an endpoint's operations, with the fields that its capabilities add,
//! and counts and logs failures.

use crate::av::AddressVector;
use crate::completion::sinks::CompletionSinks;
use crate::transport::Down;
use ofi_core::error::Result;
use ofi_core::log::{self, Level, Repeated, Subsystem};
use ofi_core::{Addr, BindFlags, Caps, Cause, Completion, Errno, Failure, FiAddr, Instant, OpFlags};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// The sender of a message.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Its handle in the address vector.
    pub(crate) src: FiAddr,
    /// Its address, if it has no handle and the application wants the address (FI_SOURCE_ERR).
    pub(crate) addr: Option<Box<Addr>>,
}

/// Reports the outcome of operations to the queues and counters that are bound.
#[derive(Debug)]
pub(crate) struct Reporter<K: LockKind> {
    pub(crate) sinks: CompletionSinks<K>,
    caps: Caps,
    provider: &'static str,
    /// The address vector that has the application's ids, with FI_AV_USER_ID.
    user_ids: Option<Arc<AddressVector>>,
    /// A truncated message has been logged as an error; later ones are warnings.
    truncated: bool,
    /// Number of failed operations.
    failures: u64,
    /// Links lost with operations on them, for the log.
    losses: Repeated,
}

impl<K: LockKind> Reporter<K> {
    pub(crate) fn new(caps: Caps, provider: &'static str) -> Self {
        let (sinks, losses) = (CompletionSinks::default(), Repeated::default());
        Self { sinks, caps, provider, user_ids: None, truncated: false, failures: 0, losses }
    }

    /// The address vector in which handles are looked up.
    pub(crate) fn set_av(&mut self, av: &Arc<AddressVector>) {
        self.user_ids = self.caps.contains(Caps::AV_USER_ID).then(|| av.clone());
    }

    /// Checks that the completion queues which the endpoint's capabilities need are bound.
    pub(crate) fn check_bindings(&self) -> Result<()> {
        self.sinks.check(self.caps)
    }

    /// Reports nothing from now on: the endpoint is being closed.
    pub(crate) fn silence(&mut self) {
        self.sinks = CompletionSinks::default();
        if let Some(text) = self.losses.take_rest() {
            self.log_loss(text);
        }
    }

    /// The source that a completion reports: none without FI_SOURCE, the user's id with
    /// FI_AV_USER_ID.
    #[inline]
    pub(crate) fn source(&self, src: FiAddr) -> FiAddr {
        if !self.caps.contains(Caps::SOURCE) {
            return FiAddr::UNSPEC;
        }
        self.user_ids.as_ref().map_or(src, |av| av.user_id(src))
    }

    /// Whether operations may ask for durable results (FI_RMA_PMEM).
    pub(crate) const fn commits(&self) -> bool {
        self.caps.contains(Caps::RMA_PMEM)
    }

    /// Whether to report a sender's address: it has no handle and the application wants it
    /// (FI_SOURCE_ERR).
    #[inline]
    pub(crate) fn tells_addr(&self, src: FiAddr) -> bool {
        src == FiAddr::UNSPEC && self.caps.contains(Caps::SOURCE_ERR)
    }

    /// Whether senders' addresses are ever reported.
    #[inline(always)]
    pub(crate) const fn tells_addrs(&self) -> bool {
        self.caps.contains(Caps::SOURCE_ERR)
    }

    /// A message has been received; `cut` bytes of it did not fit into the receive.
    #[inline]
    pub(crate) fn received(&mut self, completion: Completion, suppress: bool, cut: usize, sender: Option<Box<Addr>>) {
        if cut > 0 {
            self.truncated(completion, cut);
        } else if let Some(sender) = sender {
            let why = Down::new(Cause::UnknownSender, Errno::EADDRNOTAVAIL, Cause::UnknownSender.text());
            self.sinks.receive_failed(Failure { sender: Some(*sender), ..failure(completion, &why, 0) });
        } else {
            self.sinks.received(completion, suppress);
        }
    }

    #[cold]
    fn truncated(&mut self, completion: Completion, cut: usize) {
        let (total, placed) = (completion.len.saturating_add(cut), completion.len);
        let text = format!("a message of {total} bytes matched a receive of {placed} bytes");
        let level = if self.truncated { Level::Warn } else { Level::Error };
        self.truncated = true;
        log::log(self.provider, level, Subsystem::EpData, || format!("{text}: truncated"));
        let why = Down::new(Cause::Truncated, Errno::ETRUNC, text);
        self.sinks.receive_failed(failure(completion, &why, cut));
    }

    /// A peer has read or written `len` bytes of our memory: counts that if the application asked
    /// for it (FI_RMA_EVENT). Says whether it did.
    #[inline]
    pub(crate) fn accessed_by_peer(&self, kind: BindFlags, len: usize) -> bool {
        let counts = self.caps.contains(Caps::RMA_EVENT);
        if counts {
            self.sinks.accessed_by_peer(kind, len);
        }
        counts
    }

    /// A peer has written `len` bytes of our memory, with completion data.
    pub(crate) fn notified(&self, class: OpFlags, len: usize, data: u64, src: FiAddr) {
        let flags = class | OpFlags::REMOTE_WRITE | OpFlags::REMOTE_CQ_DATA;
        let src = self.source(src);
        self.sinks.report(Completion { context: 0, flags, len, buf: 0, data, tag: 0, src });
    }

    /// A receive has failed.
    #[cold]
    pub(crate) fn receive_failed(&mut self, completion: Completion, why: &Down) {
        self.failures += 1;
        self.sinks.receive_failed(failure(completion, why, 0));
    }

    /// A peek has found nothing, or a claimed message is lost. That is no failed operation.
    pub(crate) fn missed(&self, completion: Completion, why: &Down) {
        self.sinks.receive_failed(failure(completion, why, 0));
    }

    /// A send has failed.
    #[cold]
    pub(crate) fn send_failed(&mut self, completion: Completion, why: &Down) {
        self.failures += 1;
        self.sinks.send_failed(failure(completion, why, 0));
    }

    /// Number of failed operations so far.
    pub(crate) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Records something that was lost, to be logged by [`Self::log_losses`].
    pub(crate) fn lose(&mut self, text: impl FnOnce() -> String) {
        self.losses.add(text);
    }

    /// Logs what was lost, once in a while. True if something is still to be logged.
    pub(crate) fn log_losses(&mut self, now: Instant) {
        if let Some(text) = self.losses.take(now) {
            self.log_loss(text);
        }
    }

    fn log_loss(&self, text: String) {
        log::log(self.provider, Level::Error, Subsystem::EpCtrl, || text);
    }
}

/// An error completion; `olen` bytes of the message did not fit.
#[cold]
fn failure(completion: Completion, why: &Down, olen: usize) -> Failure {
    Failure { completion, errno: why.errno, olen, cause: why.cause, text: why.text.clone(), sender: None }
}
