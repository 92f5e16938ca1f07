//! Groups and collective operations: carries out the orders of [`Groups`] by messages that the
//! endpoint posts itself.
//!
//! [`Groups`]: crate::collective::Groups

use super::Endpoint;
use super::core::Core;
use super::inner::Inner;
use super::life::Life;
use crate::av_set::AvSet;
use crate::collective::{Groups, JoinCall, Order, Outcome};
use crate::completion::eq::{Event, EventKind, Owner};
use crate::op::{CollectiveCall, Ways};
use crate::peer::agenda::Work;
use crate::peer::table::{PeerId, PeerState};
use crate::transport::{Down, LinkId, Transport};
use crate::tx::group::{MemberMessage, UNTRACKED};
use crate::wire::frame::Violation;
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno, Error, FiAddr};
use ofi_memory::Buffer;
use ofi_sync::lock::LockKind;
use std::sync::Arc;

impl<K: LockKind> Core<K> {
    /// Begins to join a group of these members; the endpoint must be one of them.
    fn join_group<T: Transport>(
        &mut self,
        transport: &T,
        set: &AvSet,
        (parent, ways, owner): (Option<FiAddr>, Ways, Owner),
    ) -> Result<FiAddr> {
        let refuse = |errno, what: &str| Error::new(errno, format!("join a group {what}"));
        self.life.accepts().map_err(|errno| refuse(errno, "with an endpoint that is not enabled"))?;
        if self.rx.is_shared() || matches!(self.life, Life::Connected(_)) {
            return Err(refuse(Errno::ENOSYS, "with a connected endpoint or a shared receive context: not supported"));
        }
        if self.eq.is_none() {
            return Err(refuse(Errno::ENOEQ, "with an endpoint that has no event queue"));
        }
        let av = self.peers.av().ok_or_else(|| refuse(Errno::ENOAV, "without an address vector"))?;
        if !set.is_of(av) {
            return Err(refuse(Errno::EINVAL, "of a set of another address vector"));
        }
        let addrs: Option<Vec<_>> =
            set.members().iter().map(|member| Some((*member, av.lookup(*member)?.canonical()))).collect();
        let members = addrs.ok_or_else(|| refuse(Errno::EINVAL, "of addresses that the vector does not have"))?;
        let own = transport.local_addr().canonical();
        let rank = members.iter().position(|(_, addr)| *addr == own);
        let rank =
            rank.ok_or_else(|| refuse(Errno::EINVAL, &format!("that lacks the endpoint's own address {own}")))?;
        let call = JoinCall { members, rank, parent, owner, ways };
        self.groups.join(call).map_err(|errno| refuse(errno, "of members that the other group lacks"))
    }

    fn collective(&mut self, call: CollectiveCall) -> Result<(), Errno> {
        self.life.accepts()?;
        // Without a queue, a counter may report the operation.
        let selective = self.out.sinks.tx.as_ref().is_some_and(|tx| tx.selective);
        self.groups.post(call, selective)
    }

    /// Carries out the groups' orders and reports their outcomes. True if there were any.
    pub(super) fn run_groups<T: Transport>(&mut self, transport: &mut T) -> bool {
        let mut any = false;
        while self.has_group_work() {
            any = true;
            let left = self.tx.take_group_left();
            self.groups.handle_left(left);
            let ended = self.rx.lock().take_ended();
            self.groups.handle_ended(ended);
            while let Some(order) = self.groups.next_order() {
                self.carry_out(transport, order);
            }
            let outcomes = self.groups.take_outcomes();
            outcomes.into_iter().for_each(|outcome| self.report(outcome));
        }
        if self.groups.is_busy() {
            self.peers.agenda.add(Work::GROUPS);
        } else {
            self.peers.agenda.remove(Work::GROUPS);
        }
        any
    }

    /// Whether the groups have work that waits for no event.
    pub(super) fn has_group_work(&mut self) -> bool {
        self.groups.has_work() || self.tx.has_group_left() || self.rx.own().is_some_and(|rx| rx.has_ended())
    }

    fn carry_out<T: Transport>(&mut self, transport: &mut T, order: Order) {
        match order {
            Order::Send { to, tag, word, buffer, number, fenced } => {
                let peer = self.member(to);
                self.send_to_member(transport, peer, MemberMessage { tag, word, buffer, number, fenced });
            }
            Order::Receive { from, tag, buffer, number, asks, gone } => {
                let peer = self.member(from);
                self.receive_from_member(transport, (peer, tag), (number, buffer), (asks, gone));
            }
            Order::Notify { to, tag, word, connects, number } => {
                if connects || self.peers.table.at(&to).is_some_and(|peer| self.has_link(peer)) {
                    let peer = self.member(to);
                    self.send_to_member(transport, peer, MemberMessage::notice(tag, word, number));
                }
            }
            Order::Answer { to, tag, word, number } => {
                if self.has_link(to) || self.peers.handle_of(to) != FiAddr::UNSPEC {
                    self.send_to_member(transport, to, MemberMessage::notice(tag, word, number));
                } else {
                    self.groups.end_answer(number);
                }
            }
            Order::Drop { tag, sends, receives } => {
                self.seq += 1;
                let Self { peers, tx, rx, out, seq, .. } = self;
                let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, "the group has ended");
                tx.withdraw_group(peers, out, &sends, &why);
                let withdrawn = rx.lock().drop_group(peers, out, tag, &receives, *seq);
                self.groups.handle_withdrawn(&withdrawn);
            }
        }
    }

    fn member(&mut self, addr: Addr) -> PeerId {
        self.check_av();
        self.peers.peer_at(addr, &mut *self.rx.lock())
    }

    /// Whether the peer has a link for sends, or one is being set up.
    fn has_link(&self, peer: PeerId) -> bool {
        self.peers.state_of(peer) != PeerState::Idle
    }

    fn send_to_member<T: Transport>(&mut self, transport: &mut T, peer: PeerId, message: MemberMessage) {
        self.seq += 1;
        let Self { peers, tx, out, seq, .. } = self;
        tx.send_group(peers, out, transport, (peer, message), *seq);
    }

    fn receive_from_member<T: Transport>(
        &mut self,
        transport: &mut T,
        (peer, tag): (PeerId, u64),
        (number, buffer): (usize, Buffer),
        (asks, gone): (bool, Option<Down>),
    ) {
        let Some(sender) = self.peers.table.get(peer).map(|peer| peer.sender) else { return };
        self.seq += 1;
        let Self { peers, rx, out, seq, .. } = self;
        let mut rx = rx.lock();
        let is_here = rx.has_group_message(sender, tag);
        if let Some(why) = gone.filter(|_| !is_here) {
            drop(rx);
            return self.groups.handle_failed(number, &why);
        }
        rx.post_group(peers, out, (sender, tag), (number, buffer), *seq);
        drop(rx);
        if !is_here && (asks || !matches!(self.peers.state_of(peer), PeerState::Open(_))) {
            // Connect, so that the end of a dead member breaks a link, and a member whose group
            // has failed answers with a notice.
            self.send_to_member(transport, peer, MemberMessage::notice(tag, Groups::WAITS, UNTRACKED));
        }
    }

    fn report(&mut self, outcome: Outcome) {
        let event = match outcome {
            Outcome::Done(ticket) => {
                let suppress = ticket.is_suppressed();
                return self.out.sinks.accessed(ticket.finish(), suppress, 0);
            }
            Outcome::Failed(ticket, why) => return self.out.send_failed(ticket.finish(), &why),
            Outcome::Joined(owner) => Event { owner, kind: EventKind::Joined },
            Outcome::JoinFailed(owner, Down { cause, errno, text }) => {
                Event { owner, kind: EventKind::Failed { errno, cause, text, data: Vec::new() } }
            }
        };
        if let Some((eq, _)) = &self.eq {
            eq.push(event);
        }
    }

    /// Whether a group expects a message that arrives with this tag and data word. Notifies the
    /// sender if there is no such group.
    ///
    /// # Errors
    /// A violation if the peer sends messages of too many unknown groups, or over a connection,
    /// whose ends join no groups.
    #[cold]
    #[inline(never)]
    pub(super) fn admit_message(
        &mut self,
        id: LinkId,
        (tag, word): (Option<u64>, Option<u64>),
    ) -> Result<bool, Violation> {
        if let Life::Connected(_) = self.life {
            return Err(Violation("a message of a group on a connection"));
        }
        // The frame's parser has made sure of both.
        let (Some(tag), Some(word)) = (tag, word) else { return Ok(true) };
        if self.groups.knows(tag) {
            return Ok(word != Groups::WAITS);
        }
        if let Some(link) = self.peers.links.get(id) {
            self.groups.answer_unknown(link.peer, tag, word)?;
            self.peers.agenda.add(Work::GROUPS);
        }
        Ok(false)
    }
}

impl<T: Transport, K: LockKind> Endpoint<T, K> {
    /// Joins a group (fi_join_collective, fi_collective(3)) with the members of a set, and returns
    /// its address. The endpoint must be in the set. `parent` is a group that all members have
    /// joined; `ways` are what this member does. The event queue reports the result for `owner`.
    ///
    /// # Errors
    /// ENOEQ without an event queue, EINVAL if the endpoint is no member or a member is unknown,
    /// ENOSYS for a connected endpoint and one with a shared receive context.
    pub fn join_group(
        self: &Arc<Self>,
        members: &AvSet,
        parent: Option<FiAddr>,
        ways: Ways,
        owner: Owner,
    ) -> Result<FiAddr> {
        self.follow_events()?;
        let mut inner = K::lock(&self.inner);
        let (transport, core) = inner.opened()?;
        let joined = core.join_group(transport, members, (parent, ways, owner));
        core.run_groups(transport);
        self.hand_on(inner);
        joined
    }

    /// Leaves a group: fails its operations, and drops unread events for `owner`.
    pub fn leave_group(&self, group: FiAddr, owner: Owner) {
        let mut inner = K::lock(&self.inner);
        let Ok((transport, core)) = inner.opened() else { return };
        core.groups.leave(group);
        core.run_groups(transport);
        let eq = core.eq.as_ref().map(|(eq, _)| eq.clone());
        self.hand_on(inner);
        if let Some(eq) = eq {
            eq.discard_events_of(owner);
        }
    }

    /// Posts a collective operation on a group (fi_collective(3)).
    ///
    /// # Errors
    /// As fi_collective(3) lists them; EINVAL for an unknown group or root, EOPBADSTATE before the
    /// group is joined.
    pub fn collective(&self, call: CollectiveCall) -> Result<(), Errno> {
        let mut inner = K::lock(&self.inner);
        let Inner { transport: Some(transport), core, .. } = &mut *inner else { return Err(Errno::EOPBADSTATE) };
        let posted = core.collective(call);
        if posted.is_ok() {
            core.run_groups(transport);
        }
        self.hand_on(inner);
        posted
    }
}
