//! The tables with their invariants: peers are found by address and by handle, operations complete once, credit is
//! given back. What arrives is in `arrive.rs`, what is posted in `post.rs`, how links begin and end in `links.rs`.

use super::state::{
    Body, Claim, Config, Link, MIN_MULTI_RECV, MSG, Multi, Outgoing, Peer, PeerId, PeerState, Receive, ReceiveStage,
    Role, Sender, TAGGED, Unexpected,
};
use crate::av::AddressVector;
use crate::eq::{Event, EventKind, EventQueue, Owner};
use crate::frame::Label;
use crate::hash::HashMap;
use crate::matching::Matcher;
use crate::outlets::Outlets;
use crate::table::Table;
use crate::transport::{Down, LinkId};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{Addr, Caps, Cause, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_sync::lock::LockKind;
use slab::Slab;
use std::sync::Arc;

/// What an endpoint may be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not enabled.
    New,
    /// Enabled.
    Enabled,
    /// A connection that has ended.
    Ended,
    /// Being closed.
    Closing,
}

#[derive(Debug)]
pub(super) struct Engine<K: LockKind> {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) links: Vec<Option<Box<Link>>>,
    pub(super) link_count: usize,
    pub(super) peers: Slab<Peer>,
    pub(super) by_addr: HashMap<Addr, PeerId>,
    /// Peers by handle; `usize::MAX` where none is known yet.
    pub(super) by_handle: Vec<PeerId>,
    pub(super) av: Option<Arc<AddressVector>>,
    pub(super) av_epoch: u64,
    pub(super) lanes: [Matcher; 2],
    pub(super) receives: Table<Receive>,
    /// Buffers for several messages.
    pub(super) multis: Slab<Multi>,
    pub(super) min_multi_recv: usize,
    pub(super) unexpected: Slab<Unexpected>,
    /// Messages that peeks reserved.
    pub(super) claims: Vec<Claim>,
    pub(super) sends: Slab<Outgoing>,
    pub(super) seq: u64,
    /// Operations that failed.
    pub(super) failures: u64,
    /// Fenced sends that wait or are under way.
    pub(super) fences: usize,
    /// A message was cut, which has been logged.
    pub(super) cut: bool,
    /// A peer may be in [`PeerState::Yielding`].
    pub(super) yielding: bool,
    /// Connections begun.
    pub(super) attempts: u64,
    pub(super) out: Outlets<K>,
    pub(super) eq: Option<(Arc<EventQueue>, Owner)>,
    /// Links with control frames, credit or streams to send.
    pub(super) todo: Vec<LinkId>,
    /// Links that the transport is to drop.
    pub(super) abandoned: Vec<(LinkId, Option<Down>)>,
    /// Empty buffers of small unexpected messages, to be used again.
    pub(super) spare: Vec<Vec<u8>>,
}

/// Spare buffers kept, and how large one may be.
const SPARE_COUNT: usize = 256;
const SPARE_SIZE: usize = 4096;
pub(super) const NO_PEER: PeerId = usize::MAX;

impl<K: LockKind> Engine<K> {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::New,
            links: Vec::new(),
            link_count: 0,
            peers: Slab::new(),
            by_addr: HashMap::default(),
            by_handle: Vec::new(),
            av: None,
            av_epoch: 0,
            lanes: [Matcher::default(), Matcher::default()],
            receives: Table::new(),
            multis: Slab::new(),
            min_multi_recv: MIN_MULTI_RECV,
            unexpected: Slab::new(),
            claims: Vec::new(),
            sends: Slab::new(),
            seq: 0,
            failures: 0,
            fences: 0,
            cut: false,
            yielding: false,
            attempts: 0,
            out: Outlets::default(),
            eq: None,
            todo: Vec::new(),
            abandoned: Vec::new(),
            spare: Vec::new(),
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
        link.src = self.peers.get(link.peer).map_or(FiAddr::UNSPEC, |peer| peer.handle);
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()] = Some(Box::new(link));
        self.link_count += 1;
    }

    pub(super) fn remove_link(&mut self, id: LinkId) -> Option<Box<Link>> {
        let link = self.links.get_mut(id.index())?.take()?;
        self.link_count -= 1;
        Some(link)
    }

    /// Puts a link on the list of those with something to send.
    #[inline]
    pub(super) fn list(&mut self, id: LinkId) {
        if let Some(Some(link)) = self.links.get_mut(id.index())
            && !link.listed
        {
            link.listed = true;
            self.todo.push(id);
        }
    }

    /// The peer of a handle if it is known, and the address vector is as it was.
    #[inline(always)]
    pub(super) fn known_peer(&self, handle: FiAddr) -> Option<PeerId> {
        if matches!(self.config.speaker, crate::hello::Speaker::Msg) {
            return Some(0);
        }
        // Handles of no peer, and those that are no index, are not in the table.
        let index = usize::try_from(handle.0).ok()?;
        self.by_handle.get(index).copied().filter(|peer| *peer != NO_PEER && self.av_is_known())
    }

    /// Whether nothing has changed in the address vector.
    #[inline(always)]
    pub(super) fn av_is_known(&self) -> bool {
        self.av.as_ref().is_none_or(|av| av.epoch() == self.av_epoch)
    }

    /// The peer of a handle, known or made.
    #[inline]
    pub(super) fn peer_of(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        match self.known_peer(handle) {
            Some(peer) => Ok(peer),
            None => self.find_peer(handle),
        }
    }

    #[cold]
    fn find_peer(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        self.check_av();
        if let Some(peer) = self.known_peer(handle) {
            return Ok(peer);
        }
        let index = handle.index().ok_or(Errno::EINVAL)?;
        let av = self.av.as_ref().ok_or(Errno::ENOAV)?;
        let addr = av.lookup(handle).ok_or(Errno::EINVAL)?.canonical();
        let peer = match self.by_addr.get(&addr) {
            Some(&peer) => peer,
            None => self.add_peer(Some(addr)),
        };
        self.peers[peer].handle = handle;
        self.name_links();
        if self.by_handle.len() <= index {
            self.by_handle.resize(index + 1, NO_PEER);
        }
        self.by_handle[index] = peer;
        Ok(peer)
    }

    /// A new peer, by its canonical address if it has one.
    pub(super) fn add_peer(&mut self, addr: Option<Addr>) -> PeerId {
        let handle = match (&addr, &self.av) {
            (Some(addr), Some(av)) => av.find(addr),
            _ => FiAddr::UNSPEC,
        };
        let peer = Peer { addr, handle, state: PeerState::Idle, waiting: std::collections::VecDeque::new() };
        let id = self.peers.insert(peer);
        if let Some(addr) = addr {
            self.by_addr.insert(addr, id);
        }
        id
    }

    /// Forgets a peer with which nothing is under way.
    pub(super) fn release_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(id) else { return };
        let connected = matches!(self.config.speaker, crate::hello::Speaker::Msg);
        if connected || peer.state != PeerState::Idle || !peer.waiting.is_empty() {
            return;
        }
        if self.links.iter().flatten().any(|link| link.peer == id) {
            return;
        }
        let peer = self.peers.remove(id);
        if let Some(addr) = peer.addr {
            self.by_addr.remove(&addr);
        }
        if let Some(slot) = peer.handle.index().and_then(|index| self.by_handle.get_mut(index))
            && *slot == id
        {
            *slot = NO_PEER;
        }
    }

    /// Peers are called by other handles than before: their links know it, too.
    fn name_links(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.src = self.peers.get(link.peer).map_or(FiAddr::UNSPEC, |peer| peer.handle);
        }
    }

    /// Learns what changed in the address vector.
    #[inline]
    pub(super) fn check_av(&mut self) {
        if let Some(av) = &self.av
            && av.epoch() != self.av_epoch
        {
            self.learn_av();
        }
    }

    #[cold]
    fn learn_av(&mut self) {
        let Some(av) = self.av.clone() else { return };
        self.av_epoch = av.epoch();
        self.by_handle.fill(NO_PEER);
        for (id, peer) in &mut self.peers {
            peer.handle = peer.addr.as_ref().map_or(FiAddr::UNSPEC, |addr| av.find(addr));
            if let Some(index) = peer.handle.index() {
                if self.by_handle.len() <= index {
                    self.by_handle.resize(index + 1, NO_PEER);
                }
                self.by_handle[index] = id;
            }
        }
        self.name_links();
        let Self { lanes, unexpected, .. } = self;
        let mut renamed = false;
        for lane in lanes.iter_mut() {
            lane.rename(|key, old| {
                let Some(message) = unexpected.get_mut(key as usize) else { return old };
                if old == FiAddr::UNSPEC
                    && let Some(addr) = &message.addr
                {
                    message.src = av.find(addr);
                    renamed |= message.src != old;
                }
                message.src
            });
        }
        if renamed {
            for lane in [MSG, TAGGED] {
                while let Some((message, receive)) = self.lanes[lane].take_pair() {
                    self.give_renamed(lane, message, receive);
                }
            }
        }
    }

    /// Ends a send that succeeded.
    pub(super) fn finish_send(&mut self, key: u32) {
        let Some(send) = self.sends.try_remove(key as usize) else { return };
        let silent = send.lent.ticket.is_silent();
        self.after_fence(send.peer, send.fenced);
        let completion = send.lent.finish();
        self.out.sent(completion, silent);
    }

    /// A send has ended: one behind a fence may be next.
    #[inline]
    fn after_fence(&mut self, peer: PeerId, fenced: bool) {
        let fences = self.fences;
        self.fences -= usize::from(fenced);
        if fences > 0
            && let Some(PeerState::Open(id)) = self.peers.get(peer).map(|peer| peer.state)
        {
            self.list(id);
        }
    }

    /// Ends a send that failed.
    #[cold]
    pub(super) fn fail_send(&mut self, key: u32, why: &Down) {
        let Some(send) = self.sends.try_remove(key as usize) else { return };
        let handle = self.peers.get(send.peer).map_or(FiAddr::UNSPEC, |peer| peer.handle);
        self.after_fence(send.peer, send.fenced);
        let mut completion = send.lent.finish();
        completion.tag = send.label.tag.unwrap_or(0);
        completion.data = send.label.data.unwrap_or(0);
        completion.len = send.len;
        completion.src = self.told(handle);
        self.failures += 1;
        self.out.send_failed(failure(completion, why, 0));
    }

    /// The sender as the application is told it: by the id that it chose, and only if it asked for that.
    #[inline]
    pub(super) fn told(&self, src: FiAddr) -> FiAddr {
        let caps = self.config.caps;
        if !caps.contains(Caps::SOURCE) {
            return FiAddr::UNSPEC;
        }
        match &self.av {
            Some(av) if caps.contains(Caps::AV_USER_ID) => av.user_id(src),
            _ => src,
        }
    }

    /// Ends a receive with a message of `total` bytes of which `placed` are in the buffer.
    #[inline]
    pub(super) fn finish_receive(&mut self, receive: Receive, label: Label, placed: usize, total: u64, who: Sender) {
        let silent = receive.ticket.is_silent();
        let mut completion = receive.ticket.finish();
        completion.len = placed;
        completion.src = self.told(who.src);
        let mut cut = usize::try_from(total - placed as u64).unwrap_or(usize::MAX);
        match receive.role {
            Role::Plain | Role::Multi(_) => {}
            Role::Part { parent, base } => {
                completion.buf = base;
                if self.part_is_done(parent, silent && cut == 0) {
                    completion.flags |= OpFlags::MULTI_RECV;
                }
            }
            Role::Discard => {
                completion.len = usize::try_from(total).unwrap_or(usize::MAX);
                cut = 0;
            }
        }
        completion.tag = label.tag.unwrap_or(0);
        if let Some(data) = label.data {
            completion.data = data;
            completion.flags |= OpFlags::REMOTE_CQ_DATA;
        }
        if cut > 0 {
            let text = format!("a message of {total} bytes came to a receive of {placed}");
            let level = if self.cut { Level::Warn } else { Level::Error };
            self.cut = true;
            log::log(self.config.provider, level, Subsystem::EpData, || format!("{text}: it was cut"));
            let why = Down::new(Cause::Truncated, Errno::ETRUNC, text);
            self.out.receive_failed(failure(completion, &why, cut));
        } else if let Some(sender) = who.addr {
            let why = Down::new(Cause::UnknownSender, Errno::EADDRNOTAVAIL, Cause::UnknownSender.text());
            self.out.receive_failed(Failure { sender: Some(*sender), ..failure(completion, &why, 0) });
        } else {
            self.out.received(completion, silent);
        }
    }

    /// Ends a receive that failed.
    #[cold]
    pub(super) fn fail_receive(&mut self, receive: Receive, why: &Down) {
        let mut completion = receive.ticket.finish();
        if let Role::Part { parent, base } = receive.role {
            completion.buf = base;
            if self.part_is_done(parent, false) {
                completion.flags |= OpFlags::MULTI_RECV;
            }
        }
        if let ReceiveStage::Pulling(pull) = &receive.stage {
            completion.tag = pull.label.tag.unwrap_or(0);
            completion.data = pull.label.data.unwrap_or(0);
            completion.len = pull.at;
            completion.src = self.told(pull.src);
        }
        self.failures += 1;
        self.out.receive_failed(failure(completion, why, 0));
    }

    /// A message of a link has been consumed: its credit goes back.
    #[inline]
    pub(super) fn give_back(&mut self, link: Option<LinkId>, cost: u64) {
        let Some(id) = link else { return };
        if let Some(link) = self.link(id)
            && link.consumed(cost)
        {
            self.grant(id);
        }
    }

    /// Grants the peer of a link again what was consumed.
    #[cold]
    pub(super) fn grant(&mut self, id: LinkId) {
        if let Some(link) = self.link(id) {
            link.grant();
            self.list(id);
        }
    }

    /// A buffer for an unexpected message.
    pub(super) fn spare(&mut self, len: usize) -> Vec<u8> {
        match self.spare.pop() {
            Some(spare) if len <= SPARE_SIZE => spare,
            Some(spare) => {
                self.spare.push(spare);
                Vec::with_capacity(len)
            }
            None => Vec::with_capacity(len.max(256)),
        }
    }

    /// Keeps an empty buffer for the next unexpected message.
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_COUNT && buffer.capacity() <= SPARE_SIZE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Tells the event queue.
    pub(super) fn event(&self, kind: EventKind) {
        if let Some((eq, owner)) = &self.eq {
            eq.push(Event { owner: *owner, kind });
        }
    }

    /// Ends the oldest operation with that context that can still be ended. False if there is none.
    pub(super) fn cancel(&mut self, context: usize) -> bool {
        let posted = self.lanes.iter().flat_map(Matcher::posted).filter_map(|key| {
            let receive = self.receives.get(key)?;
            (receive.ticket.context() == context).then_some((receive.seq, true, key))
        });
        let waiting = self.sends.iter().filter_map(|(key, send)| {
            let cancellable = matches!(send.stage, super::state::SendStage::Waiting);
            let key = u32::try_from(key).ok()?;
            (cancellable && send.lent.ticket.context() == context).then_some((send.seq, false, key))
        });
        let Some((_, is_receive, key)) = posted.chain(waiting).min() else { return false };
        let why = Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
        if is_receive {
            self.fail_posted(key, &why);
        } else {
            if let Some(peer) = self.sends.get(key as usize).and_then(|send| self.peers.get_mut(send.peer)) {
                peer.waiting.retain(|waiting| *waiting != key);
            }
            self.fail_send(key, &why);
        }
        true
    }

    /// What is under way and what it waits for.
    pub(super) fn describe(&self) -> String {
        use core::fmt::Write;
        let mut out = String::new();
        // Writing to a String cannot fail.
        for (_, peer) in &self.peers {
            let _ = writeln!(out, "peer {:?}: {:?}, {} sends wait", peer.addr, peer.state, peer.waiting.len());
        }
        for (id, link) in self.links.iter().enumerate().filter_map(|(id, link)| Some((id, link.as_ref()?))) {
            let _ = writeln!(
                out,
                "link {id}: may send {:?}, may receive {:?}, owes {} bytes, {} control frames, coming {:?}, streams {:?}",
                link.out,
                link.incoming,
                link.owed_bytes,
                link.control.len(),
                link.coming,
                link.streams
            );
        }
        for (key, send) in &self.sends {
            let _ = writeln!(out, "send {key} of {} bytes, {:?}: {:?}", send.len, send.label, send.stage);
        }
        for (key, receive) in self.receives.iter() {
            let _ = writeln!(out, "receive {key}: {:?}", receive.stage);
        }
        for (key, message) in &self.unexpected {
            let _ =
                writeln!(out, "unexpected {key} of {} bytes, {:?} from {:?}", message.len, message.label, message.src);
        }
        out
    }

    /// Ends everything without completions. Only for closing.
    pub(super) fn discard_all(&mut self) {
        self.discard_receives();
        for send in self.sends.drain() {
            send.lent.discard();
        }
        self.fences = 0;
        for (_, peer) in &mut self.peers {
            peer.waiting.clear();
        }
    }

    /// Ends receives and unexpected messages without completions. Only for closing.
    pub(super) fn discard_receives(&mut self) {
        self.lanes = [Matcher::default(), Matcher::default()];
        for receive in self.receives.take_all() {
            receive.ticket.discard();
        }
        self.multis.clear();
        self.claims.clear();
        for message in self.unexpected.drain() {
            if let Body::Here(buffer) = message.body {
                drop(buffer);
            }
        }
    }
}

impl<K: LockKind> Drop for Engine<K> {
    fn drop(&mut self) {
        self.discard_all();
    }
}

/// An error entry.
#[cold]
pub(super) fn failure(completion: Completion, why: &Down, olen: usize) -> Failure {
    Failure { completion, errno: why.errno, olen, cause: why.cause, text: why.text.clone(), sender: None }
}
