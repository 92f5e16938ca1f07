//! The engine's tables and their invariants: peers are found by address and by handle, each
//! operation completes once, credit is returned. `dispatch.rs` handles arriving frames, `send.rs`
//! and `post_recv.rs` posted operations, `link.rs` and `handshake.rs` the life of links.

use super::credit::cost_of;
use super::state::{
    Cancelable, Claim, Config, Link, MIN_MULTI_RECV, MultiRecv, Outgoing, Peer, PeerId, PeerState, Receive,
    ReceiveStage, Role, Sender, Unexpected,
};
use crate::av::AddressVector;
use crate::completion::eq::{Event, EventKind, EventQueue, Owner};
use crate::completion::sinks::CompletionSinks;
use crate::hash::HashMap;
use crate::match_queue::MatchQueues;
use crate::table::Table;
use crate::transport::{Down, LinkId};
use crate::wire::frame::MessageInfo;
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Caps, Cause, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_sync::lock::LockKind;
use slab::Slab;
use std::sync::Arc;

/// Life cycle of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not enabled, or connection-oriented and not connected yet.
    New,
    /// Enabled, and connected if connection-oriented.
    Enabled,
    /// This side has shut the connection down and waits for the peer to do so.
    ShutDown,
    /// The connection has ended.
    Ended,
    /// Being closed.
    Closing,
}

/// Kinds of pending work, as flags in one byte that each poll tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work(u8);

impl Work {
    /// [`Engine::settle`] may have work: links are pending, or blocked ones may get credit.
    pub(super) const PENDING: Self = Self(1);
    /// [`Engine::tick`] has work, now or at a deadline.
    pub(super) const STIRRED: Self = Self(2);
    /// [`Engine::see_to_deferred`] has work, put off until an idle poll or for [`MOST_DEFERRALS`]
    /// polls.
    pub(super) const DEFERRED: Self = Self(4);

    #[inline(always)]
    pub(super) const fn add(&mut self, work: Self) {
        self.0 |= work.0;
    }

    pub(super) const fn remove(&mut self, work: Self) {
        self.0 &= !work.0;
    }

    #[inline(always)]
    pub(super) const fn is_any(self) -> bool {
        self.0 != 0
    }

    pub(super) const fn has(self, work: Self) -> bool {
        self.0 & work.0 != 0
    }
}

#[derive(Debug)]
pub(super) struct Engine<K: LockKind> {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) links: Vec<Option<Box<Link>>>,
    pub(super) link_count: usize,
    pub(super) peers: Table<Peer>,
    pub(super) by_addr: HashMap<Addr, PeerId>,
    /// Peers by handle; [`NO_PEER`] if unknown.
    pub(super) by_handle: Vec<PeerId>,
    /// Links whose peers claim a name without proof: for each name the latest of each host.
    pub(super) claimed: HashMap<Addr, Vec<LinkId>>,
    pub(super) av: Option<Arc<AddressVector>>,
    pub(super) av_epoch: u64,
    /// Number of unexpected messages whose link is gone.
    pub(super) orphans: usize,
    /// This endpoint's number in the address vector.
    pub(super) reader: usize,
    /// The address vector knows that receives wait for handles.
    pub(super) awaits: bool,
    pub(super) match_queues: MatchQueues,
    pub(super) receives: Table<Receive>,
    /// Multi-receive buffers.
    pub(super) multi_recvs: Slab<MultiRecv>,
    pub(super) min_multi_recv: usize,
    pub(super) unexpected: Table<Unexpected>,
    /// Messages that a peek has reserved (FI_CLAIM).
    pub(super) claims: Vec<Claim>,
    pub(super) sends: Slab<Outgoing>,
    pub(super) cancelable: Cancelable,
    pub(super) seq: u64,
    /// Number of failed operations.
    pub(super) failures: u64,
    /// Number of fenced sends that wait or are under way.
    pub(super) fences: usize,
    /// A truncated message has been logged as an error; later ones are warnings.
    pub(super) cut: bool,
    /// Links lost with operations on them, for the log.
    pub(super) losses: log::Repeated,
    /// Number of connection attempts.
    pub(super) attempts: u64,
    pub(super) out: CompletionSinks<K>,
    pub(super) eq: Option<(Arc<EventQueue>, Owner)>,
    /// Links with control frames, credit or data to send.
    pub(super) todo: Vec<LinkId>,
    /// Links for the transport to abort.
    pub(super) aborted: Vec<(LinkId, Option<Down>)>,
    /// Links with deferred arrival acknowledgments.
    pub(super) lazy: Vec<LinkId>,
    /// Links whose peers lack credit for their next message.
    pub(super) blocked: Vec<LinkId>,
    /// The account has room again, which blocked links may need.
    pub(super) freed: bool,
    /// Bytes charged to the account when it last had no room for a blocked link.
    pub(super) starved_at: Option<usize>,
    /// Polls since deferred work last ran.
    deferrals: u32,
    /// Pending work besides the transport's.
    pub(super) work: Work,
}

/// Polls after which deferred work runs even if they were busy.
const MOST_DEFERRALS: u32 = 8;
pub(super) const NO_PEER: PeerId = PeerId::MAX;

impl<K: LockKind> Engine<K> {
    pub(super) fn new(config: Config) -> Self {
        let match_queues = MatchQueues::new(&config.account);
        Self {
            config,
            phase: Phase::New,
            links: Vec::new(),
            link_count: 0,
            peers: Table::new(),
            by_addr: HashMap::default(),
            by_handle: Vec::new(),
            claimed: HashMap::default(),
            av: None,
            av_epoch: 0,
            orphans: 0,
            reader: 0,
            awaits: false,
            match_queues,
            receives: Table::new(),
            multi_recvs: Slab::new(),
            min_multi_recv: MIN_MULTI_RECV,
            unexpected: Table::new(),
            claims: Vec::new(),
            sends: Slab::new(),
            cancelable: Cancelable::default(),
            seq: 0,
            failures: 0,
            fences: 0,
            cut: false,
            losses: log::Repeated::default(),
            attempts: 0,
            out: CompletionSinks::default(),
            eq: None,
            todo: Vec::new(),
            aborted: Vec::new(),
            lazy: Vec::new(),
            blocked: Vec::new(),
            freed: false,
            starved_at: None,
            deferrals: 0,
            work: Work::default(),
        }
    }

    /// Whether [`Self::settle`] has work.
    pub(super) fn is_pending(&self) -> bool {
        !self.todo.is_empty() || !self.aborted.is_empty() || self.freed && !self.blocked.is_empty()
    }

    /// Sends deferred arrival acknowledgments, and checks the account for room. Runs after an idle
    /// poll, and after [`MOST_DEFERRALS`] busy ones, because a peer that always sends must not
    /// delay the others' completions.
    pub(super) fn see_to_deferred(&mut self, idle: bool) {
        if !self.work.has(Work::DEFERRED) {
            return;
        }
        self.deferrals += 1;
        if !idle && self.deferrals < MOST_DEFERRALS {
            return;
        }
        self.deferrals = 0;
        self.tell_arrivals();
        // The transport charges the same account and may have released memory.
        if self.starved_at.is_some_and(|used| self.config.account.used() < used) {
            self.note_freed();
        }
        if self.starved_at.is_none() {
            self.work.remove(Work::DEFERRED);
        }
    }

    /// Queues a link for the transport to abort. With a reason, its operations fail for that
    /// reason.
    pub(super) fn abort_link(&mut self, id: LinkId, why: Option<Down>) {
        self.aborted.push((id, why));
        self.work.add(Work::PENDING);
    }

    /// Has the next poll run [`Self::tick`].
    pub(super) const fn stir(&mut self) {
        self.work.add(Work::STIRRED);
    }

    /// The account has room again: blocked links may get credit.
    pub(super) const fn note_freed(&mut self) {
        self.freed = true;
        if !self.blocked.is_empty() {
            self.work.add(Work::PENDING);
        }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    #[inline]
    pub(super) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id.index())?.as_deref_mut()
    }

    pub(super) fn add_link(&mut self, id: LinkId, mut link: Link) {
        if let Some(peer) = self.peers.get_mut(link.peer) {
            peer.links += 1;
            link.src = peer.handle;
        }
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(Box::new(link));
        self.link_count += 1;
    }

    pub(super) fn remove_link(&mut self, id: LinkId) -> Option<Box<Link>> {
        let link = self.links.get_mut(id.index())?.take()?;
        self.link_count -= 1;
        if let Some(peer) = self.peers.get_mut(link.peer) {
            peer.links -= 1;
        }
        link.credit.close(&self.config.account);
        self.note_freed();
        self.lazy.retain(|lazy| *lazy != id);
        if link.blocked.is_some() {
            self.unblock(id);
        }
        if let super::state::Purpose::Unproven(name) = link.purpose {
            self.drop_claims(name, |claim, _| claim == id);
        }
        Some(link)
    }

    /// Takes a link off the blocked list.
    pub(super) fn unblock(&mut self, id: LinkId) {
        self.blocked.retain(|blocked| *blocked != id);
        self.watch_posts();
    }

    /// Posted receives take the slow path while a peer is blocked or a claim is open: either may depend on the receive.
    pub(super) fn watch_posts(&mut self) {
        let watched = !self.blocked.is_empty() || !self.claimed.is_empty();
        self.match_queues.iter_mut().for_each(|queue| queue.watched = watched);
    }

    /// Queues a link that has something to send.
    #[inline]
    pub(super) fn mark_pending(&mut self, id: LinkId) {
        if let Some(Some(link)) = self.links.get_mut(id.index())
            && !link.pending
        {
            link.pending = true;
            self.todo.push(id);
            self.work.add(Work::PENDING);
        }
    }

    /// Removes an unexpected message from its table, and its peer if nothing else is left of it.
    pub(super) fn take_unexpected(&mut self, key: u32) -> Option<Unexpected> {
        let message = self.unexpected.remove(key)?;
        self.orphans -= usize::from(message.link().is_none());
        if let Some(peer) = self.peers.get_mut(message.peer) {
            peer.unexpected -= 1;
            if peer.unexpected == 0 && peer.links == 0 {
                self.release_peer(message.peer);
            }
        }
        Some(message)
    }

    /// Completes a send successfully.
    pub(super) fn finish_send(&mut self, key: u32) {
        let Some(send) = self.sends.try_remove(key as usize) else { return };
        let suppress = send.lent.ticket.is_suppressed();
        self.after_fence(send.peer, send.fenced);
        let completion = send.lent.finish();
        self.out.sent(completion, suppress);
    }

    /// A send has ended: a fenced one that waits for it may leave.
    #[inline]
    fn after_fence(&mut self, peer: PeerId, fenced: bool) {
        let fences = self.fences;
        self.fences -= usize::from(fenced);
        if fences > 0
            && let Some(PeerState::Open(id)) = self.peers.get(peer).map(|peer| peer.state)
        {
            self.mark_pending(id);
        }
    }

    /// Completes a send with an error.
    #[cold]
    pub(super) fn fail_send(&mut self, key: u32, why: &Down) {
        let Some(send) = self.sends.try_remove(key as usize) else { return };
        let handle = self.handle_of(send.peer);
        self.after_fence(send.peer, send.fenced);
        let mut completion = send.lent.finish();
        completion.tag = send.info.tag.unwrap_or(0);
        completion.data = send.info.data.unwrap_or(0);
        completion.len = send.len;
        completion.src = self.reported_source(handle);
        self.failures += 1;
        self.out.send_failed(failure(completion, why, 0));
    }

    /// The source that a completion reports: none without FI_SOURCE, the user's id with
    /// FI_AV_USER_ID.
    #[inline]
    pub(super) fn reported_source(&self, src: FiAddr) -> FiAddr {
        let caps = self.config.caps;
        if !caps.contains(Caps::SOURCE) {
            return FiAddr::UNSPEC;
        }
        match &self.av {
            Some(av) if caps.contains(Caps::AV_USER_ID) => av.user_id(src),
            _ => src,
        }
    }

    /// Completes a receive with a message of `total` bytes, `placed` of them in the buffer.
    #[inline]
    pub(super) fn finish_receive(
        &mut self,
        receive: Receive,
        info: MessageInfo,
        placed: usize,
        total: u64,
        who: Sender,
    ) {
        let suppress = receive.ticket.is_suppressed();
        let mut completion = receive.ticket.finish();
        completion.len = placed;
        completion.src = self.reported_source(who.src);
        let mut cut = usize::try_from(total - placed as u64).unwrap_or(usize::MAX);
        match receive.role {
            Role::Plain | Role::MultiRecv(_) => {}
            Role::Part { parent, base } => {
                completion.buf = base;
                if self.part_is_done(parent, suppress && cut == 0) {
                    completion.flags |= OpFlags::MULTI_RECV;
                }
            }
            Role::Discard => {
                completion.len = usize::try_from(total).unwrap_or(usize::MAX);
                cut = 0;
            }
        }
        completion.tag = info.tag.unwrap_or(0);
        if let Some(data) = info.data {
            completion.data = data;
            completion.flags |= OpFlags::REMOTE_CQ_DATA;
        }
        if cut > 0 {
            let text = format!("a message of {total} bytes matched a receive of {placed} bytes");
            let level = if self.cut { Level::Warn } else { Level::Error };
            self.cut = true;
            log::log(self.config.provider, level, Subsystem::EpData, || format!("{text}: truncated"));
            let why = Down::new(Cause::Truncated, Errno::ETRUNC, text);
            self.out.receive_failed(failure(completion, &why, cut));
        } else if let Some(sender) = who.addr {
            let why = Down::new(Cause::UnknownSender, Errno::EADDRNOTAVAIL, Cause::UnknownSender.text());
            self.out.receive_failed(Failure { sender: Some(*sender), ..failure(completion, &why, 0) });
        } else {
            self.out.received(completion, suppress);
        }
    }

    /// Completes a receive with an error.
    #[cold]
    pub(super) fn fail_receive(&mut self, receive: Receive, why: &Down) {
        let mut completion = receive.ticket.finish();
        if let Role::Part { parent, base } = receive.role {
            completion.buf = base;
            if self.part_is_done(parent, false) {
                completion.flags |= OpFlags::MULTI_RECV;
            }
        }
        if let ReceiveStage::Rendezvous(rendezvous) = &receive.stage {
            completion.tag = rendezvous.info.tag.unwrap_or(0);
            completion.data = rendezvous.info.data.unwrap_or(0);
            completion.len = rendezvous.at;
            completion.src = self.reported_source(rendezvous.src);
        }
        self.failures += 1;
        self.out.receive_failed(failure(completion, why, 0));
    }

    /// A message has been consumed: returns its credit to its link, or to the account if the link
    /// is gone.
    #[inline]
    pub(super) fn return_credits(&mut self, link: Option<LinkId>, cost: u64) {
        match link {
            Some(id) => {
                if let Some(link) = self.link(id)
                    && link.credit.consumed(cost)
                {
                    let waits = link.blocked.is_some();
                    self.grant_credits(id);
                    if waits {
                        self.note_freed();
                    }
                }
            }
            None => {
                self.config.account.release(usize::try_from(cost).unwrap_or(usize::MAX));
                self.note_freed();
            }
        }
    }

    /// Returns consumed credit to the account and the link's peer.
    #[cold]
    pub(super) fn grant_credits(&mut self, id: LinkId) {
        if let Some(Some(link)) = self.links.get_mut(id.index()) {
            let freed = link.credit.settle(&self.config.account) > 0;
            if link.credit.is_due() {
                self.mark_pending(id);
            }
            if freed {
                self.note_freed();
            }
        }
    }

    /// Reports an event to the bound event queue, if any.
    pub(super) fn event(&self, kind: EventKind) {
        if let Some((eq, owner)) = &self.eq {
            eq.push(Event { owner: *owner, kind });
        }
    }

    /// Drops all operations without completions. Only for closing.
    pub(super) fn discard_all(&mut self) {
        self.discard_receives();
        for send in self.sends.drain() {
            send.lent.discard();
        }
        self.fences = 0;
        for (_, peer) in self.peers.iter_mut() {
            peer.waiting.clear();
        }
    }

    /// Drops receives and unexpected messages without completions. Only for closing.
    pub(super) fn discard_receives(&mut self) {
        self.match_queues = MatchQueues::new(&self.config.account);
        for receive in self.receives.take_all() {
            receive.ticket.discard();
        }
        self.multi_recvs.clear();
        self.claims.clear();
        for message in self.unexpected.take_all().filter(|message| message.link().is_none()) {
            self.config.account.release(usize::try_from(cost_of(message.len as usize)).unwrap_or(0));
        }
    }
}

impl<K: LockKind> Drop for Engine<K> {
    fn drop(&mut self) {
        self.discard_all();
    }
}

/// An error completion; `olen` bytes of the message did not fit.
#[cold]
pub(super) fn failure(completion: Completion, why: &Down, olen: usize) -> Failure {
    Failure { completion, errno: why.errno, olen, cause: why.cause, text: why.text.clone(), sender: None }
}
