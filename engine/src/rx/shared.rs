//! Receive contexts that several endpoints share (fi_endpoint(3), fi_srx_context). Each has its own
//! lock, below the endpoints' locks: an endpoint takes it to match an arriving message. A post
//! takes only this lock; if it matches another endpoint's message, it leaves the match to that
//! endpoint and notifies it. Lock order: endpoint, then shared receive context, then completion
//! queue.

use super::post::Match;
use super::receive::ReceiveStage;
use super::{RxContext, RxSettings};
use crate::av::AddressVector;
use crate::completion::reporter::Reporter;
use crate::hash::HashMap;
use crate::op::RecvOp;
use crate::peer::credit::cost_of;
use crate::peer::link::Coming;
use crate::peer::table::PeerId;
use crate::peer::{ParticipantId, Peers};
use crate::transport::Down;
use core::ops::{Deref, DerefMut};
use ofi_core::error::Result;
use ofi_core::{Addr, Caps, Cause, Errno, Error};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
use ofi_sync::primitive::{AtomicBool, Ordering, fence};
use slab::Slab;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

/// An endpoint that is notified of matches that others have left for it.
pub(crate) trait Notified: Send + Sync {
    /// Called without any lock of the context.
    fn notify(&self);
}

/// An endpoint of a shared context.
#[derive(Debug)]
struct Participant {
    /// Matches of its unexpected messages that others made, oldest first.
    matches: VecDeque<Match>,
    /// Canceled receives, which it reports; they have left their match queues.
    canceled: Vec<u32>,
    /// A blocked peer or a claim may depend on the next receive.
    watching: bool,
    news: Arc<News>,
}

/// Notifies an endpoint that others have left something for it in the context; a flag lets its next
/// poll see that too.
pub(crate) struct News {
    is_any: AtomicBool,
    endpoint: Weak<dyn Notified>,
}

impl core::fmt::Debug for News {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("News").field("is_any", &self.is_any).finish_non_exhaustive()
    }
}

impl News {
    /// Takes the news. The endpoint then looks into the context.
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the Release in `set`, though the context's lock orders its content.
        self.is_any.load(Ordering::Acquire) && self.is_any.swap(false, Ordering::Acquire)
    }

    fn is_set(&self) -> bool {
        // Pairs with the fence in `notify`: the caller has announced its sleep before, so either it
        // sees the news, or the other side sees the sleeper.
        fence(Ordering::SeqCst);
        self.is_any.load(Ordering::Acquire)
    }

    /// Notifies the endpoint of the news.
    pub(crate) fn notify(&self) {
        // Pairs with the fence in `is_set`.
        fence(Ordering::SeqCst);
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.notify();
        }
    }

    fn set(&self) {
        // Release: pairs with the Acquire in `take`.
        self.is_any.store(true, Ordering::Release);
    }
}

/// Numbers of senders that last as long as an endpoint knows their addresses. The same address has
/// the same number for all endpoints.
#[derive(Debug, Default)]
struct Numbers {
    senders: Slab<(Option<Addr>, u32)>,
    by_addr: HashMap<Addr, u32>,
    /// Those that a receive has named.
    named: HashSet<u32>,
}

impl Numbers {
    fn number(&mut self, addr: Option<&Addr>) -> u32 {
        if let Some(&number) = addr.and_then(|addr| self.by_addr.get(addr)) {
            if let Some((_, users)) = self.senders.get_mut(number as usize) {
                *users += 1;
            }
            return number;
        }
        let number = u32::try_from(self.senders.insert((addr.copied(), 1))).expect("tables are far smaller than 2^32");
        if let Some(addr) = addr {
            self.by_addr.insert(*addr, number);
        }
        number
    }

    /// The number of a sender that receives name. It stays, because a match queue keeps it: there
    /// are at most as many as addresses that the application has named.
    fn of_receives(&mut self, addr: Addr) -> u32 {
        match self.by_addr.get(&addr) {
            Some(&number) if !self.named.insert(number) => number,
            _ => {
                let number = self.number(Some(&addr));
                self.named.insert(number);
                number
            }
        }
    }

    fn release(&mut self, number: u32) {
        let Some((_, users)) = self.senders.get_mut(number as usize) else { return };
        *users -= 1;
        if *users == 0
            && let (Some(addr), _) = self.senders.remove(number as usize)
        {
            self.by_addr.remove(&addr);
        }
    }
}

/// The endpoints that share a context; an endpoint's own context has none.
#[derive(Debug, Default)]
pub(super) struct Participants(Option<Box<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    participants: Slab<Participant>,
    numbers: Numbers,
    /// Endpoints to tell once the lock is free.
    to_tell: Vec<Arc<News>>,
    av: Option<Arc<AddressVector>>,
    /// Sequence number of the latest receive.
    seq: u64,
}

impl Participants {
    pub(super) const fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    /// The number of a sender that is the endpoint's peer `peer`.
    pub(super) fn number(&mut self, peer: PeerId, addr: Option<&Addr>) -> u32 {
        self.0.as_mut().map_or(peer, |shared| shared.numbers.number(addr))
    }

    /// An endpoint does not know the sender any more.
    pub(super) fn release(&mut self, sender: u32) {
        if let Some(shared) = &mut self.0 {
            shared.numbers.release(sender);
        }
    }

    /// Leaves a match to the endpoint that has the message.
    pub(super) fn leave_to(&mut self, participant: ParticipantId, found: Match) {
        let Some(shared) = &mut self.0 else { return };
        let Some(entry) = shared.participants.get_mut(participant.0 as usize) else { return };
        entry.matches.push_back(found);
        shared.tell(participant);
    }
}

impl Participants {
    /// Takes back the match of a message that was left to an endpoint.
    pub(super) fn take_left(&mut self, participant: ParticipantId, message: u32) -> Option<Match> {
        let entry = self.0.as_mut()?.participants.get_mut(participant.0 as usize)?;
        let at = entry.matches.iter().position(|found| found.message == message)?;
        entry.matches.remove(at)
    }
}

impl RxContext {
    /// Notes the address vector of an endpoint, which all endpoints of a shared context must have.
    pub(crate) fn admit_av(&mut self, av: Option<&Arc<AddressVector>>) -> Result<()> {
        let (Some(shared), Some(av)) = (&mut self.participants.0, av) else { return Ok(()) };
        if !Arc::ptr_eq(shared.av.get_or_insert_with(|| av.clone()), av) {
            let what = "bind a receive context to endpoints with different address vectors";
            return Err(Error::new(Errno::EINVAL, what));
        }
        Ok(())
    }

    /// The endpoints to notify of matches that were left to them.
    pub(crate) fn take_to_tell(&mut self) -> Vec<Arc<News>> {
        self.participants.0.as_mut().map(|shared| core::mem::take(&mut shared.to_tell)).unwrap_or_default()
    }

    /// Delivers the matches that others have left to an endpoint of a shared context. Records
    /// whether a blocked peer or a claim of the endpoint may depend on the next receives.
    pub(crate) fn take_left<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>) {
        let participant = peers.participant().0 as usize;
        let shared = self.participants.0.as_mut();
        if let Some(entry) = shared.and_then(|shared| shared.participants.get_mut(participant)) {
            let canceled = core::mem::take(&mut entry.canceled);
            self.report_canceled(out, canceled);
        }
        loop {
            let Some(entry) = self.participants.0.as_mut().and_then(|shared| shared.participants.get_mut(participant))
            else {
                return;
            };
            entry.watching = peers.watches_receives();
            let Some(found) = entry.matches.pop_front() else { return };
            self.deliver(peers, out, found);
        }
    }

    /// An endpoint leaves a shared context, for good: its messages are dropped, and the receives
    /// that have one of them fail. Those whose buffer the transport still fills end without
    /// completions.
    pub(crate) fn leave<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>) {
        let participant = peers.participant();
        let Some(shared) = &mut self.participants.0 else { return };
        let (mut taken, mut canceled) = (Vec::new(), Vec::new());
        if shared.participants.contains(participant.0 as usize) {
            let left = shared.participants.remove(participant.0 as usize);
            taken.extend(left.matches.into_iter().map(|found| found.receive));
            canceled = left.canceled;
        }
        peers.table.iter().for_each(|(_, peer)| shared.numbers.release(peer.sender));
        let mine = self.unexpected.iter().filter(|(_, message)| message.participant == participant);
        let mine: Vec<u32> = mine.map(|(key, _)| key).collect();
        for key in mine {
            let Some(mut message) = self.unexpected.remove(key) else { continue };
            self.queues[message.queue()].drop_unexpected(key);
            if message.link().is_none() {
                peers.account().release(usize::try_from(cost_of(message.len as usize)).unwrap_or(0));
            }
            taken.extend(message.body.claimed());
        }
        for (_, link) in peers.links.iter() {
            let arriving = match link.rx.coming {
                Some(Coming::Receive { key, .. }) => Some(key),
                Some(Coming::Unexpected { .. } | Coming::Data { .. } | Coming::Dropped) | None => None,
                Some(Coming::Response { .. } | Coming::Access) => None,
            };
            taken.extend(link.rx.rendezvous.iter().chain(arriving));
        }
        peers.forget_receives();
        self.report_canceled(out, canceled);
        let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, Cause::LocalClosed.text());
        for receive in taken.into_iter().filter_map(|key| self.receives.remove(key)).collect::<Vec<_>>() {
            if receive.buffer.is_some() {
                self.fail(out, receive, &why);
            } else {
                receive.ticket.discard();
            }
        }
    }

    fn report_canceled<K: LockKind>(&mut self, out: &mut Reporter<K>, canceled: Vec<u32>) {
        let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
        canceled.into_iter().for_each(|key| self.fail_withdrawn(out, key, &why));
    }

    /// Records whether a blocked peer or a claim of an endpoint of a shared context may depend on
    /// the next receives.
    pub(crate) fn note_watching(&mut self, peers: &Peers) {
        let participant = peers.participant().0 as usize;
        let entry = self.participants.0.as_mut().and_then(|shared| shared.participants.get_mut(participant));
        if let Some(entry) = entry {
            entry.watching = peers.watches_receives();
        }
    }
}

impl Shared {
    fn tell(&mut self, participant: ParticipantId) {
        let Some(Participant { news, .. }) = self.participants.get(participant.0 as usize) else { return };
        news.set();
        if !self.to_tell.iter().any(|other| Arc::ptr_eq(other, news)) {
            self.to_tell.push(news.clone());
        }
    }
}

/// A receive context that several endpoints share.
pub struct SharedRx<K: LockKind> {
    context: K::Cell<RxContext>,
}

impl<K: LockKind> core::fmt::Debug for SharedRx<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SharedRx")
    }
}

impl<K: LockKind> SharedRx<K> {
    /// A context without endpoints. The account is charged for indexes of its unexpected messages.
    pub fn new(kind: K, settings: RxSettings, account: Arc<Account>) -> Arc<Self> {
        let mut context = RxContext::new(settings, account);
        context.participants = Participants(Some(Box::default()));
        Arc::new(Self { context: kind.cell(context) })
    }

    /// Adds an endpoint. Directed receives name senders by the handles of the first endpoint's
    /// address vector, which all endpoints must have.
    ///
    /// # Errors
    /// EINVAL if the endpoints' address vectors differ.
    pub(crate) fn join(
        self: &Arc<Self>,
        av: Option<&Arc<AddressVector>>,
        endpoint: Weak<dyn Notified>,
    ) -> Result<Membership<K>> {
        let mut context = K::lock(&self.context);
        context.admit_av(av)?;
        let Some(shared) = &mut context.participants.0 else {
            return Err(Error::new(Errno::EINVAL, "share a context"));
        };
        let news = Arc::new(News { is_any: AtomicBool::new(false), endpoint });
        let participant =
            Participant { matches: VecDeque::new(), canceled: Vec::new(), watching: false, news: news.clone() };
        let number = u32::try_from(shared.participants.insert(participant)).expect("tables are far smaller than 2^32");
        Ok(Membership { context: self.clone(), participant: ParticipantId(number), news })
    }

    /// Posts a receive for a message to any of the endpoints (fi_recv(3) on the context).
    ///
    /// # Errors
    /// AGAIN if too many receives are posted; ENOSYS for a peek, which has no queue to report to.
    pub fn receive(&self, op: RecvOp) -> core::result::Result<(), Errno> {
        let mut context = K::lock(&self.context);
        let Some(shared) = &mut context.participants.0 else { return Err(Errno::EOPBADSTATE) };
        shared.seq += 1;
        let (seq, av) = (shared.seq, shared.av.clone());
        // Success is always reported: selective completion belongs to an endpoint's queue.
        let posting = context.sort(op, (false, seq), |context, handle| {
            let addr = av?.lookup(handle)?.canonical();
            Some(context.participants.0.as_mut()?.numbers.of_receives(addr))
        })?;
        if posting.looks() {
            return Err(Errno::ENOSYS);
        }
        // Posting completes nothing: the endpoints that have the messages do.
        let mut out = Reporter::<K>::new(Caps::empty(), "");
        context.post(&mut out, posting, |context, _, found| {
            if let Some(message) = context.unexpected.get(found.message) {
                let participant = message.participant;
                context.participants.leave_to(participant, found);
            }
        })?;
        let is_pending = context.is_pending();
        let Some(shared) = &mut context.participants.0 else { return Ok(()) };
        let watching = shared.participants.iter().filter(|(_, participant)| participant.watching || is_pending);
        let watching: Vec<ParticipantId> =
            watching.filter_map(|(number, _)| u32::try_from(number).ok().map(ParticipantId)).collect();
        watching.into_iter().for_each(|participant| shared.tell(participant));
        let told = core::mem::take(&mut shared.to_tell);
        drop(context);
        told.iter().for_each(|news| news.notify());
        Ok(())
    }

    /// Cancels the oldest receive with this context that can be canceled (fi_cancel(3)). One of the
    /// endpoints reports that.
    ///
    /// # Errors
    /// ENOCQ if no endpoint is bound that could report it.
    pub fn cancel(&self, context: usize) -> core::result::Result<(), Errno> {
        let mut rx = K::lock(&self.context);
        let RxContext { participants: Participants(shared), .. } = &*rx;
        let participant = shared.as_ref().and_then(|shared| shared.participants.iter().next());
        let participant = participant.and_then(|(number, _)| u32::try_from(number).ok()).ok_or(Errno::ENOCQ)?;
        let Some((_, key)) = rx.oldest_cancelable(context) else { return Ok(()) };
        let RxContext { queues, receives, participants: Participants(shared), .. } = &mut *rx;
        let (Some(receive), Some(shared)) = (receives.get_mut(key), shared) else { return Ok(()) };
        queues[receive.queue].withdraw(key);
        receive.stage = ReceiveStage::Matched;
        if let Some(entry) = shared.participants.get_mut(participant as usize) {
            entry.canceled.push(key);
        }
        shared.tell(ParticipantId(participant));
        let told = core::mem::take(&mut shared.to_tell);
        drop(rx);
        told.iter().for_each(|news| news.notify());
        Ok(())
    }

    /// The free space, in bytes, below which a multi-receive buffer is released.
    pub fn min_multi_recv(&self) -> usize {
        K::lock(&self.context).min_multi_recv()
    }

    /// How many receives can be posted now without `AGAIN`.
    pub fn size_left(&self) -> usize {
        K::lock(&self.context).size_left()
    }

    /// Sets what [`Self::min_multi_recv`] answers, for buffers that are posted from now on.
    pub fn set_min_multi_recv(&self, least: usize) {
        K::lock(&self.context).set_min_multi_recv(least);
    }
}

/// An endpoint's part in a shared context.
#[derive(Debug)]
pub(crate) struct Membership<K: LockKind> {
    context: Arc<SharedRx<K>>,
    pub(crate) participant: ParticipantId,
    pub(crate) news: Arc<News>,
}

/// Where an endpoint's receives come from.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an endpoint has one, and every message goes through it")]
pub(crate) enum RxSource<K: LockKind> {
    /// Its own context, under the endpoint's lock.
    Own(RxContext),
    /// A shared one.
    Shared(Membership<K>),
}

/// Access to a receive context.
pub(crate) enum RxGuard<'a, K: LockKind> {
    Own(&'a mut RxContext),
    Shared(K::Guard<'a, RxContext>),
}

impl<K: LockKind> Deref for RxGuard<'_, K> {
    type Target = RxContext;
    #[inline(always)]
    fn deref(&self) -> &RxContext {
        match self {
            Self::Own(context) => context,
            Self::Shared(context) => context,
        }
    }
}

impl<K: LockKind> DerefMut for RxGuard<'_, K> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut RxContext {
        match self {
            Self::Own(context) => context,
            Self::Shared(context) => context,
        }
    }
}

impl<K: LockKind> RxSource<K> {
    /// The context, locked if it is shared.
    #[inline(always)]
    pub(crate) fn lock(&mut self) -> RxGuard<'_, K> {
        match self {
            Self::Own(context) => RxGuard::Own(context),
            Self::Shared(membership) => RxGuard::Shared(K::lock(&membership.context.context)),
        }
    }

    /// Leaves a shared context: the endpoint gets a context of its own, which stays empty.
    pub(crate) fn leave(&mut self, peers: &mut Peers, out: &mut Reporter<K>) {
        let settings = {
            let Self::Shared(membership) = self else { return };
            let mut context = K::lock(&membership.context.context);
            context.leave(peers, out);
            context.settings
        };
        *self = Self::Own(RxContext::new(settings, peers.account().clone()));
    }

    /// The endpoint's own context.
    #[inline(always)]
    pub(crate) const fn own(&mut self) -> Option<&mut RxContext> {
        match self {
            Self::Own(context) => Some(context),
            Self::Shared(_) => None,
        }
    }

    /// Whether it is a shared one.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Whether a shared context has something for the endpoint that it has not taken.
    pub(crate) fn is_news_waiting(&self) -> bool {
        matches!(self, Self::Shared(membership) if membership.news.is_set())
    }

    /// Takes the news that a shared context has something for the endpoint.
    #[inline(always)]
    pub(crate) fn has_news(&self) -> bool {
        matches!(self, Self::Shared(membership) if membership.news.take())
    }
}
