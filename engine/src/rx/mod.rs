//! Receiving: a receive context has the posted receives and the unexpected messages of an endpoint,
//! or of all endpoints that share it.
//! Neighbours: [`Peers`] has the links and their credit, [`Reporter`] takes completions. Knows
//! nothing of sends.
//! Invariants: a receive is in its match queue, or the link of its message knows it; a message that
//! holds credit of a link is listed with the link.

pub(crate) mod arrive;
pub(crate) mod blocked;
mod buffered;
mod deliver;
pub(crate) mod group;
mod match_queue;
mod multi_recv;
mod peek;
mod post;
mod receive;
pub(crate) mod shared;
mod unexpected;

use crate::cancel::Cancelable;
use crate::completion::reporter::{Reporter, Sender};
use crate::peer::Peers;
use crate::peer::agenda::Work;
use crate::peer::credit::cost_of;
use crate::peer::link::{Coming, Link};
use crate::peer::table::{Peer, PeerId, Senders};
use crate::table::Table;
use crate::transport::{Down, LinkId};
use crate::wire::frame::MessageInfo;
use buffered::Legacy;
use group::Ended;
use match_queue::{MatchQueue, MatchQueues, QueueKind};
use multi_recv::Release;
use ofi_core::{Addr, Caps, Completion, FiAddr, OpFlags};
use ofi_memory::{Buffer, Ticket};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
pub(crate) use peek::Peek;
pub(crate) use post::Posting;
use receive::{Claim, MultiRecv, Receive, ReceiveStage, RendezvousRecv, Role};
use shared::Participants;
use slab::Slab;
use std::sync::Arc;
use unexpected::{Body, Origin, Unexpected};

/// Free space, in bytes, below which a multi-receive buffer is released, unless set
/// (FI_OPT_MIN_MULTI_RECV).
const MIN_MULTI_RECV: usize = 16 << 10;
/// Unexpected messages that [`RxContext::describe`] lists one by one.
const MOST_SHOWN: usize = 64;

/// Settings of a receive context.
#[derive(Clone, Copy, Debug)]
pub struct RxSettings {
    /// Maximum number of posted receives.
    pub size: usize,
    /// Capabilities.
    pub caps: Caps,
}

/// A message that has arrived in a receive: `placed` of its `total` bytes are in the buffer.
#[derive(Debug)]
struct Arrival {
    info: MessageInfo,
    placed: usize,
    total: u64,
    sender: Sender,
}

/// Adds the tag and the data of a message to its completion.
#[inline(always)]
fn add_info(completion: &mut Completion, info: &MessageInfo) {
    completion.tag = info.tag.unwrap_or(0);
    if let Some(data) = info.data {
        completion.data = data;
        completion.flags |= OpFlags::REMOTE_CQ_DATA;
    }
}

/// A receive context.
#[derive(Debug)]
pub(crate) struct RxContext {
    queues: MatchQueues,
    receives: Table<Receive>,
    /// Multi-receive buffers.
    multi_recvs: Slab<MultiRecv>,
    min_multi_recv: usize,
    unexpected: Table<Unexpected>,
    /// Messages that a peek has reserved (FI_CLAIM).
    claims: Vec<Claim>,
    cancelable: Cancelable,
    settings: RxSettings,
    legacy: Legacy,
    /// Charged for the indexes of unexpected messages.
    account: Arc<Account>,
    /// The endpoints that share it.
    participants: Participants,
    /// Receives of collective operations that have ended.
    group_ended: Vec<Ended>,
}

impl RxContext {
    /// A context of one endpoint, which may become a shared one.
    pub(crate) fn new(settings: RxSettings, account: Arc<Account>) -> Self {
        Self {
            queues: MatchQueues::new(&account),
            receives: Table::new(),
            multi_recvs: Slab::new(),
            min_multi_recv: MIN_MULTI_RECV,
            unexpected: Table::new(),
            claims: Vec::new(),
            cancelable: Cancelable::default(),
            settings,
            legacy: Legacy::new(settings.size),
            account,
            participants: Participants::default(),
            group_ended: Vec::new(),
        }
    }

    /// Sets the free space, in bytes, below which a multi-receive buffer is released.
    pub(crate) const fn set_min_multi_recv(&mut self, least: usize) {
        self.min_multi_recv = least;
    }

    /// The value that [`Self::set_min_multi_recv`] sets, in bytes.
    pub(crate) const fn min_multi_recv(&self) -> usize {
        self.min_multi_recv
    }

    /// How many more receives can be posted now.
    pub(crate) fn size_left(&self) -> usize {
        self.settings.size.saturating_sub(self.receives.len())
    }

    #[inline(always)]
    fn add(&mut self, ticket: Ticket, buffer: Option<Buffer>, role: Role, (queue, seq): (QueueKind, u64)) -> u32 {
        self.receives.insert(Receive { ticket, buffer, stage: ReceiveStage::Posted, role, queue, seq })
    }

    /// Removes a receive from its table and, if it is in a rendezvous, from the list of its link.
    fn remove(&mut self, peers: &mut Peers, key: u32) -> Option<Receive> {
        let receive = self.receives.remove(key)?;
        if let ReceiveStage::Rendezvous(rendezvous) = &receive.stage {
            self.unlist_rendezvous(peers, key, rendezvous);
        }
        Some(receive)
    }

    /// Removes a receive in a rendezvous from the list of its link.
    fn unlist_rendezvous(&mut self, peers: &mut Peers, key: u32, rendezvous: &RendezvousRecv) {
        if let Some(link) = peers.link(rendezvous.link)
            && let Some(moved) = link.rx.rendezvous.remove(key, rendezvous.place)
            && let Some(Receive { stage: ReceiveStage::Rendezvous(moved), .. }) = self.receives.get_mut(moved)
        {
            moved.place = rendezvous.place;
        }
    }

    /// Removes an unexpected message from its table, and its peer if nothing else is left of it.
    fn take_unexpected(&mut self, peers: &mut Peers, key: u32) -> Option<Unexpected> {
        self.unlist_unexpected(peers, key);
        self.unexpected.remove(key)
    }

    /// The same in place.
    fn remove_unexpected(&mut self, peers: &mut Peers, key: u32) {
        self.unlist_unexpected(peers, key);
        self.unexpected.drop_entry(key);
    }

    /// An unexpected message leaves its table: removes it from the list of its link, or its peer if
    /// nothing else is left of it.
    fn unlist_unexpected(&mut self, peers: &mut Peers, key: u32) {
        let Some(message) = self.unexpected.get(key) else { return };
        match message.origin {
            Origin::Link { id, place } => {
                if let Some(link) = peers.link(id)
                    && let Some(moved) = link.rx.unexpected.remove(key, place)
                    && let Some(moved) = self.unexpected.get_mut(moved)
                {
                    moved.origin = Origin::Link { id, place };
                }
            }
            Origin::Orphan => peers.remove_orphan(message.peer, self),
        }
    }

    /// Completes a receive with a message.
    #[inline]
    fn finish<K: LockKind>(&mut self, out: &mut Reporter<K>, key: u32, arrival: Arrival) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        if receive.role == Role::Group {
            return self.finish_group(key, arrival.info.data, arrival.total);
        }
        let Arrival { info, placed, total, sender } = arrival;
        let (role, suppress) = (receive.role, receive.ticket.is_suppressed());
        let mut completion = receive.ticket.finish_here();
        self.receives.drop_entry(key);
        completion.len = placed;
        completion.src = out.source(sender.src);
        let mut cut = usize::try_from(total - placed as u64).unwrap_or(usize::MAX);
        match role {
            Role::Plain | Role::MultiRecv(_) | Role::Group | Role::Notice { .. } => {}
            Role::Part { parent, base } => {
                completion.buf = base;
                let release = self.part_is_done(parent, suppress && cut == 0);
                if release == Release::Joined {
                    completion.flags |= OpFlags::MULTI_RECV;
                }
                add_info(&mut completion, &info);
                out.received(completion, suppress, cut, sender.addr);
                if let Release::Behind { parent, multi } = release {
                    self.release_multi_recv(out, parent, multi);
                }
                return;
            }
            Role::Discard => {
                completion.len = usize::try_from(total).unwrap_or(usize::MAX);
                cut = 0;
            }
        }
        add_info(&mut completion, &info);
        out.received(completion, suppress, cut, sender.addr);
    }

    /// Completes a receive with an error.
    #[cold]
    fn fail<K: LockKind>(&mut self, out: &mut Reporter<K>, receive: Receive, why: &Down) {
        if receive.role == Role::Group {
            return self.fail_group_receive(receive, why);
        }
        if receive.role == (Role::Notice { posted: false }) {
            // The application has not been notified of the message.
            return receive.ticket.discard();
        }
        let mut completion = receive.ticket.finish();
        let mut release = Release::No;
        if let Role::Part { parent, base } = receive.role {
            completion.buf = base;
            release = self.part_is_done(parent, false);
            if release == Release::Joined {
                completion.flags |= OpFlags::MULTI_RECV;
            }
        }
        if let ReceiveStage::Rendezvous(rendezvous) = &receive.stage {
            completion.tag = rendezvous.info.tag.unwrap_or(0);
            completion.data = rendezvous.info.data.unwrap_or(0);
            completion.len = rendezvous.at;
            completion.src = out.source(rendezvous.src);
        }
        out.receive_failed(completion, why);
        if let Release::Behind { parent, multi } = release {
            self.release_multi_recv(out, parent, multi);
        }
    }

    /// Fails a posted receive: it was canceled, or no peer can fill it any more.
    #[cold]
    fn fail_posted<K: LockKind>(&mut self, out: &mut Reporter<K>, key: u32, why: &Down) {
        let Some(receive) = self.receives.get(key) else { return };
        self.queues[receive.queue].withdraw(key);
        self.fail_withdrawn(out, key, why);
    }

    /// Fails a posted receive that has left its match queue.
    fn fail_withdrawn<K: LockKind>(&mut self, out: &mut Reporter<K>, key: u32, why: &Down) {
        if let Some(Role::MultiRecv(multi)) = self.receives.get(key).map(|receive| receive.role) {
            self.fail_multi_recv(out, key, multi, why);
        } else if let Some(receive) = self.receives.remove(key) {
            self.fail(out, receive, why);
        }
    }

    /// Fails all posted receives. Those of a shared context may be filled by another endpoint.
    pub(crate) fn fail_all_posted<K: LockKind>(&mut self, out: &mut Reporter<K>, why: &Down) {
        if self.participants.is_shared() {
            return;
        }
        for kind in QueueKind::ALL {
            let keys: Vec<u32> = self.queues[kind].posted().collect();
            keys.into_iter().for_each(|key| self.fail_posted(out, key, why));
        }
    }

    /// Fails the receives that only this sender could have filled. The sender may still reach
    /// another endpoint of a shared context.
    pub(crate) fn fail_directed<K: LockKind>(&mut self, out: &mut Reporter<K>, sender: u32, why: &Down) {
        if self.participants.is_shared() {
            return;
        }
        for kind in QueueKind::ALL {
            let keys: Vec<u32> = self.queues[kind].posted_from(sender).collect();
            keys.into_iter().for_each(|key| self.fail_posted(out, key, why));
        }
    }

    /// Fails receives in a rendezvous: frames about them are ignored from now on. One whose payload
    /// is just arriving ends with its link.
    pub(crate) fn fail_rendezvous<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        id: LinkId,
        why: &Down,
    ) {
        let Some(link) = peers.link(id) else { return };
        let keys: Vec<u32> = link.rx.rendezvous.iter().collect();
        for key in keys {
            if self.receives.get(key).is_some_and(|receive| receive.buffer.is_some())
                && let Some(receive) = self.remove(peers, key)
            {
                self.fail(out, receive, why);
            }
        }
    }

    /// The oldest posted receive with this context, as sequence number and key.
    pub(crate) fn oldest_cancelable(&mut self, context: usize) -> Option<(u64, u32)> {
        let Self { queues, receives, multi_recvs, cancelable, .. } = self;
        let up_to = cancelable.known_up_to(receives.len());
        let mut fresh = Vec::new();
        for queue in queues.of_application() {
            // The latest are at the end.
            let posted = queue.posted().rev().filter_map(|key| Some((key, receives.get(key)?)));
            let posted = posted.take_while(|(_, receive)| receive.seq > up_to);
            fresh.extend(posted.map(|(key, receive)| (receive.seq, receive.ticket.context(), key)));
        }
        cancelable.add(fresh);
        cancelable.oldest(context, |seq, key| {
            receives.get(key).is_some_and(|receive| {
                let takes = match receive.role {
                    Role::MultiRecv(multi) => multi_recv::is_open(multi_recvs, multi),
                    Role::Plain | Role::Part { .. } | Role::Discard | Role::Notice { .. } => true,
                    Role::Group => false,
                };
                receive.seq == seq && takes && matches!(receive.stage, ReceiveStage::Posted)
            })
        })
    }

    /// Cancels a posted receive.
    pub(crate) fn cancel<K: LockKind>(&mut self, out: &mut Reporter<K>, key: u32, why: &Down) {
        self.fail_posted(out, key, why);
    }

    /// Gives receives for handles without a peer their peer, which `known` finds where the address
    /// vector has the handle now. True if there were such receives.
    pub(crate) fn resolve(&mut self, mut known: impl FnMut(&mut Self, FiAddr) -> Option<u32>) -> bool {
        let mut any = false;
        for kind in QueueKind::ALL {
            let mut senders = crate::hash::HashMap::default();
            for handle in self.queues[kind].pending_handles() {
                if let Some(sender) = known(self, handle) {
                    senders.insert(handle, sender);
                }
            }
            any |= self.queues[kind].resolve(|handle| senders.get(&handle).copied());
        }
        any
    }

    /// Whether receives wait for handles that the address vector does not have.
    pub(crate) fn is_pending(&self) -> bool {
        self.queues.iter().any(MatchQueue::is_pending)
    }

    /// Settles the messages and receives of a link that has been removed: complete messages stay,
    /// charged to the account, unless the account is full and the peer did not close in order. The
    /// others are lost.
    pub(crate) fn end_link<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, link: &Link, why: &Down) {
        let age = |message: &Unexpected| core::cmp::Reverse(link.rx.seq.wrapping_sub(message.seq));
        let of_link = link.rx.unexpected.iter().filter_map(|key| Some((age(self.unexpected.get(key)?), key)));
        let mut of_link: Vec<_> = of_link.collect();
        of_link.sort_unstable();
        let (mut lost, mut kept) = (Vec::new(), Vec::new());
        for (_, key) in of_link {
            let Some(message) = self.unexpected.get_mut(key) else { continue };
            message.origin = Origin::Orphan;
            peers.add_orphan(message.peer);
            match message.body {
                Body::Here(_) => {
                    peers.account().charge(usize::try_from(cost_of(message.len as usize)).unwrap_or(0));
                    kept.push(key);
                }
                Body::Coming { .. } | Body::Rts { .. } => lost.push(key),
            }
        }
        if !kept.is_empty() {
            peers.charge_peer(link.peer);
        }
        if !link.rx.ended {
            kept.retain(|key| !self.is_read_in_place(*key));
            self.make_room(peers, out, kept, why);
        }
        for key in lost {
            self.lose_unexpected(peers, out, key, why);
        }
        let arriving = match link.rx.coming {
            Some(Coming::Receive { key, .. }) => Some(key),
            Some(Coming::Unexpected { .. } | Coming::Data { .. } | Coming::Dropped) | None => None,
            Some(Coming::Response { .. } | Coming::Access) => None,
        };
        for key in link.rx.rendezvous.iter().chain(arriving) {
            if let Some(receive) = self.remove(peers, key) {
                self.fail(out, receive, why);
            }
        }
    }

    /// While the account is over its limit, drops orphans, the latest first: earlier messages are
    /// likely to be received earlier.
    fn make_room<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, mut orphans: Vec<u32>, why: &Down) {
        let account = peers.account().clone();
        if account.used() > account.limit() {
            self.drop_indexes();
        }
        let mut dropped = 0;
        while account.used() > account.limit()
            && let Some(key) = orphans.pop()
        {
            let Some(message) = self.drop_unexpected(peers, out, key, why) else { continue };
            peers.return_credits(None, cost_of(message.len as usize));
            dropped += 1;
        }
        if dropped > 0 {
            out.lose(|| {
                format!("{}; dropped {dropped} unexpected messages: the memory limit for peers is reached", why.text)
            });
            peers.agenda.add(Work::STIRRED);
        }
    }

    /// Drops the indexes, which only save time: messages need the memory.
    fn drop_indexes(&mut self) {
        self.queues.iter_mut().for_each(MatchQueue::drop_index);
    }

    /// An unexpected message is lost: records the reason in its claim, if it has one.
    fn drop_unexpected<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        key: u32,
        why: &Down,
    ) -> Option<Unexpected> {
        let message = self.take_unexpected(peers, key)?;
        self.queues[message.queue()].drop_unexpected(key);
        // A receive of a shared context has it, and waits for this endpoint to deliver it.
        if let Some(found) = self.participants.take_left(message.participant, key)
            && let Some(receive) = self.receives.remove(found.receive)
        {
            self.fail(out, receive, why);
        }
        for claim in self.claims.iter_mut().filter(|claim| claim.message.as_ref().is_ok_and(|of| *of == key)) {
            claim.message = Err(why.clone());
        }
        self.lose_noticed(key, why);
        Some(message)
    }

    /// The same of a message that will not arrive; the receive that has claimed it fails.
    fn lose_unexpected<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, key: u32, why: &Down) {
        let Some(mut message) = self.drop_unexpected(peers, out, key, why) else { return };
        if let Some(receive) = message.body.claimed()
            && let Some(receive) = self.remove(peers, receive)
        {
            self.fail(out, receive, why);
        }
    }

    /// An unproven link turned out to be another peer's: its messages become that peer's.
    pub(crate) fn merge(&mut self, peers: &mut Peers, id: LinkId, (before, after): (PeerId, PeerId)) {
        let Some(link) = peers.links.get(id) else { return };
        for key in link.rx.unexpected.iter() {
            if let Some(message) = self.unexpected.get_mut(key) {
                message.peer = after;
            }
        }
        let sender = |peer| peers.table.get(peer).map_or(0, |peer: &Peer| peer.sender);
        let (from, to) = (sender(before), sender(after));
        self.queues.iter_mut().for_each(|queue| queue.merge(from, to));
        peers.drop_peer(before, self);
    }

    /// Drops receives and unexpected messages without completions. Only for closing.
    pub(crate) fn discard_all(&mut self, peers: &mut Peers) {
        self.queues = MatchQueues::new(&self.account);
        for receive in self.receives.take_all() {
            receive.ticket.discard();
        }
        self.multi_recvs.clear();
        self.claims.clear();
        self.drop_notices(peers.account());
        for message in self.unexpected.take_all().filter(|message| message.link().is_none()) {
            peers.account().release(usize::try_from(cost_of(message.len as usize)).unwrap_or(0));
        }
        peers.forget_receives();
    }

    /// How many receives have not ended.
    pub(crate) fn pending(&self) -> usize {
        self.receives.len()
    }

    /// Describes receives and unexpected messages.
    pub(crate) fn describe(&self, most: usize) -> String {
        use core::fmt::Write;
        let mut out = String::new();
        // Writing to a String cannot fail.
        for (key, receive) in self.receives.iter().take(most) {
            let _ = writeln!(out, "receive {key}: {:?}", receive.stage);
        }
        if self.unexpected.len() > 0 {
            let _ = writeln!(out, "{} unexpected messages", self.unexpected.len());
        }
        for (key, message) in self.unexpected.iter().take(MOST_SHOWN) {
            let (total, info, peer) = (message.total(), message.info(), message.peer);
            let _ = writeln!(out, "unexpected {key} of {total} bytes, {info:?} from peer {peer}");
        }
        out
    }
}

impl Drop for RxContext {
    fn drop(&mut self) {
        // A shared context is closed by dropping it: its receives end without completions.
        self.receives.take_all().for_each(|receive| receive.ticket.discard());
    }
}

impl Senders for RxContext {
    fn number(&mut self, peer: PeerId, addr: Option<&Addr>) -> u32 {
        self.participants.number(peer, addr)
    }

    fn is_awaited(&self, sender: u32) -> bool {
        self.queues.iter().any(|queue| queue.is_awaited(sender))
    }

    fn release(&mut self, sender: u32) {
        self.participants.release(sender);
    }
}
