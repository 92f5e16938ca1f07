//! Buffered receives (FI_BUFFERED_RECV, FI_VARIABLE_MSG, fi_msg(3) of 1.17): the application gets
//! an entry for a message that the library holds, reads it in place, then claims or discards it.
//! Untagged messages need no receive; tagged ones match tags that are posted without a buffer.
//! Invariant: a noticed message has left its match queue, and has a context until it is claimed,
//! discarded or lost; then the context outlives it until the application's next call.

use super::match_queue::QueueKind;
use super::post::{Match, Posting};
use super::receive::Role;
use super::unexpected::{Body, Preview};
use super::{RxContext, peek};
use crate::completion::reporter::Reporter;
use crate::hash::HashMap;
use crate::peer::Peers;
use crate::peer::credit::LEAST_EAGER;
use crate::transport::Down;
use ofi_core::error::Result;
use ofi_core::{Errno, Error, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The longest message that is held whole at the receiver, in bytes: every link sends messages of
/// this length eagerly.
const MOST: usize = 32 << 10;
const _: () = assert!(MOST as u64 <= LEAST_EAGER);

/// Bytes that a noticed message holds besides what its credit covers: its context, its entries in
/// two tables, and an allocation for its payload.
const BESIDE: usize = 256;

/// What callers of 1.x get from a receive context.
#[derive(Debug)]
pub(super) struct Legacy {
    /// The number of receives up to which the fast path may post another: 0 with buffered receives,
    /// which are tags that only the general path knows.
    pub(super) fast_until: usize,
    /// A peek copies the beginning of its message into its buffer (fi_tagged(3) of 1.17).
    pub(super) peek_copies: bool,
    buffered: Option<Box<Buffered>>,
}

impl Legacy {
    /// What other callers get, in a context for at most `size` receives.
    pub(super) const fn new(size: usize) -> Self {
        Self { fast_until: size, peek_copies: false, buffered: None }
    }

    #[inline(always)]
    pub(super) const fn is_buffered(&self) -> bool {
        self.buffered.is_some()
    }
}

/// A context with buffered receives.
#[derive(Debug)]
struct Buffered {
    /// The C object of the endpoint.
    ep: usize,
    /// FI_OPT_BUFFERED_LIMIT, in bytes.
    limit: usize,
    /// The receive of the message that is just arriving.
    arriving: Option<u32>,
    /// The contexts of noticed messages.
    contexts: HashMap<u32, Context>,
    /// What a context stands for, by the address that the application has.
    notices: HashMap<usize, Notice>,
}

/// `struct fi_recv_context`: the application may write its second word before it claims the
/// message.
#[derive(Debug)]
#[repr(C)]
struct RecvContext {
    ep: AtomicUsize,
    context: AtomicUsize,
}

/// The context of a noticed message. Shared ownership: the application has its address.
#[derive(Debug)]
struct Context {
    words: Arc<RecvContext>,
    queue: QueueKind,
    tag: u64,
}

impl Context {
    fn new(ep: usize, context: usize, queue: QueueKind, tag: u64) -> Self {
        let words = RecvContext { ep: AtomicUsize::new(ep), context: AtomicUsize::new(context) };
        Self { words: Arc::new(words), queue, tag }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.words).expose_provenance()
    }

    /// The right to complete the claim of its message.
    fn ticket(&self, kind: OpFlags, suppress: bool) -> Ticket {
        // Relaxed: the application writes it before the call that claims the message.
        Ticket::new(self.words.context.load(Ordering::Relaxed), kind | OpFlags::CLAIM, suppress)
    }
}

/// What became of a message that the application has been notified of.
#[derive(Debug)]
enum Notice {
    /// It waits for a claim.
    Waiting(u32),
    /// It was lost with its link.
    Lost(Context, Down),
}

impl Buffered {
    /// The queue of the message that a context stands for.
    fn queue_of(&self, context: usize) -> Option<QueueKind> {
        match self.notices.get(&context)? {
            Notice::Waiting(message) => self.contexts.get(message).map(|context| context.queue),
            Notice::Lost(context, _) => Some(context.queue),
        }
    }

    /// Takes a context back from the application.
    fn take(&mut self, context: usize, account: &Account) -> Option<(Context, Result<u32, Down>)> {
        let taken = match self.notices.remove(&context)? {
            Notice::Waiting(message) => (self.contexts.remove(&message)?, Ok(message)),
            Notice::Lost(context, why) => (context, Err(why)),
        };
        account.release(BESIDE);
        Some(taken)
    }
}

impl RxContext {
    /// Serves a caller of 1.x: peeks copy; `buffered` is the C object of an endpoint with buffered
    /// receives.
    pub(crate) fn serve_legacy(&mut self, buffered: Option<usize>) {
        let new = |ep| {
            let (contexts, notices) = (HashMap::default(), HashMap::default());
            Box::new(Buffered { ep, limit: MOST, arriving: None, contexts, notices })
        };
        let fast_until = if buffered.is_some() { 0 } else { self.settings.size };
        self.legacy = Legacy { fast_until, peek_copies: true, buffered: buffered.map(new) };
    }

    /// The longest message, in bytes, that is reported without FI_MORE (FI_OPT_BUFFERED_LIMIT);
    /// `None` without buffered receives.
    pub(crate) fn buffered_limit(&self) -> Option<usize> {
        self.legacy.buffered.as_ref().map(|buffered| buffered.limit)
    }

    /// Sets what [`Self::buffered_limit`] answers; `usize::MAX` sets the largest.
    ///
    /// # Errors
    /// EMSGSIZE above the largest.
    pub(crate) fn set_buffered_limit(&mut self, limit: usize) -> Result<()> {
        let limit = if limit == usize::MAX { MOST } else { limit };
        if limit > MOST {
            let text = format!("set FI_OPT_BUFFERED_LIMIT to {limit} bytes: the largest is {MOST}");
            return Err(Error::new(Errno::EMSGSIZE, text));
        }
        if let Some(buffered) = &mut self.legacy.buffered {
            buffered.limit = limit;
        }
        Ok(())
    }

    /// No receive matches an arriving message: a buffered untagged one needs none.
    #[cold]
    pub(super) fn note_unposted(&mut self, queue: QueueKind) {
        if self.legacy.is_buffered() && queue == QueueKind::Untagged {
            let ticket = Ticket::new(0, OpFlags::MSG | OpFlags::RECV, false);
            let receive = self.add(ticket, Some(Buffer::empty()), Role::Notice { posted: false }, (queue, 0));
            self.note_notice(receive);
        }
    }

    /// A posted tag matches the arriving message.
    #[cold]
    pub(super) fn note_notice(&mut self, receive: u32) {
        if let Some(buffered) = &mut self.legacy.buffered {
            buffered.arriving = Some(receive);
        }
    }

    /// The receive that [`Self::note_notice`] has noted for the arriving message.
    pub(super) fn take_noted(&mut self) -> Option<u32> {
        self.legacy.buffered.as_mut().and_then(|buffered| buffered.arriving.take())
    }

    /// A message has arrived that no buffer takes: reports it if it is a buffered one.
    #[inline]
    pub(super) fn notice_arrival<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, message: u32) {
        if self.legacy.is_buffered() {
            self.notice_buffered(peers, out, message);
        }
    }

    #[cold]
    fn notice_buffered<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, message: u32) {
        let Some(receive) = self.take_noted() else { return };
        if let Some(queue) = self.unexpected.get(message).map(super::Unexpected::queue) {
            self.queues[queue].drop_unexpected(message);
        }
        self.deliver(peers, out, Match { receive, message });
    }

    /// Whether a receive takes a notice rather than a message.
    #[inline]
    pub(super) fn is_notice(&self, receive: u32) -> bool {
        self.legacy.is_buffered()
            && self.receives.get(receive).is_some_and(|receive| matches!(receive.role, Role::Notice { .. }))
    }

    /// Reports a buffered message, which is here or announced by its RTS, and keeps it for the
    /// application's claim. It has left its match queue.
    #[cold]
    pub(super) fn notify<K: LockKind>(&mut self, peers: &Peers, out: &Reporter<K>, found: Match) {
        let Match { receive, message } = found;
        let (Some(buffered), Some(receive)) = (&mut self.legacy.buffered, self.receives.remove(receive)) else {
            return;
        };
        let mut entry = receive.ticket.finish();
        let Some(held) = self.unexpected.get_mut(message) else { return };
        let (ep, posted) = match receive.role {
            Role::Notice { posted: true } => (0, entry.context),
            _ => (buffered.ep, 0),
        };
        match &mut held.body {
            Body::Here(kept) => {
                entry.buf = kept.pin().expose_provenance();
                if held.len as usize > buffered.limit {
                    entry.flags |= OpFlags::MORE;
                }
            }
            Body::Rts { preview, .. } => {
                if let Some(Preview::Here(bytes)) = preview.as_deref() {
                    entry.buf = bytes.as_ptr().expose_provenance();
                }
                entry.flags |= OpFlags::MORE;
            }
            Body::Coming { .. } => entry.flags |= OpFlags::MORE,
        }
        peek::describe(held, peers, out, &mut entry);
        let context = Context::new(ep, posted, held.queue(), entry.tag);
        entry.context = context.address();
        buffered.notices.insert(entry.context, Notice::Waiting(message));
        buffered.contexts.insert(message, context);
        peers.account().charge(BESIDE);
        // A notice is always reported, even with selective completion.
        out.sinks.report(entry);
    }

    /// Whether a receive call names a message that the application has been notified of.
    ///
    /// # Errors
    /// EINVAL for a tagged message and a call without a tag, or the other way round.
    pub(super) fn names_notice(&self, posting: &Posting) -> core::result::Result<bool, Errno> {
        let buffered = self.legacy.buffered.as_ref();
        match buffered.and_then(|buffered| buffered.queue_of(posting.op.context)) {
            None => Ok(false),
            Some(queue) if queue == posting.queue => Ok(true),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// Receives or discards a message that the application has been notified of. There may be more
    /// such receives than the context's size: the senders' credit bounds them.
    pub(super) fn end_notice<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, posting: Posting) {
        let Some(buffered) = &mut self.legacy.buffered else { return };
        let Some((context, message)) = buffered.take(posting.op.context, peers.account()) else { return };
        let discard = posting.op.flags.contains(OpFlags::DISCARD);
        // The application is done with a message that it discards: it expects no entry.
        let ticket = context.ticket(posting.kind, discard || posting.suppress);
        let Posting { op, queue, seq, .. } = posting;
        match message {
            Ok(message) if discard => self.throw_away(peers, out, ticket, message, (queue, seq)),
            Ok(message) => {
                let receive = self.add(ticket, Some(op.buffer), Role::Plain, (queue, seq));
                self.deliver(peers, out, Match { receive, message });
            }
            Err(_) if discard => ticket.discard(),
            Err(why) => {
                let mut lost = ticket.finish();
                lost.tag = context.tag;
                out.missed(lost, &why);
            }
        }
    }

    /// A message is lost: its claim will fail.
    #[cold]
    pub(super) fn lose_noticed(&mut self, message: u32, why: &Down) {
        if let Some(buffered) = &mut self.legacy.buffered
            && let Some(context) = buffered.contexts.remove(&message)
        {
            buffered.notices.insert(context.address(), Notice::Lost(context, why.clone()));
        }
    }

    /// Whether the application has yet to claim messages that were lost.
    pub(crate) fn has_lost_notices(&self) -> bool {
        // Each message that waits has a context.
        self.legacy.buffered.as_ref().is_some_and(|buffered| buffered.notices.len() > buffered.contexts.len())
    }

    /// Whether the application may be reading a message where it is.
    pub(super) fn is_read_in_place(&self, message: u32) -> bool {
        self.legacy.buffered.as_ref().is_some_and(|buffered| buffered.contexts.contains_key(&message))
    }

    /// Takes all contexts back. Only for closing.
    pub(super) fn drop_notices(&mut self, account: &Account) {
        if let Some(buffered) = &mut self.legacy.buffered {
            account.release(buffered.notices.len() * BESIDE);
            buffered.notices.clear();
            buffered.contexts.clear();
        }
    }
}
