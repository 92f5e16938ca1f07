//! A member's view of a group: the members, the queue of operations in the order of the calls, and
//! the messages that the active operation, the first in the queue, waits for.

use super::join::Join;
use super::plan::{Plan, Shape};
use super::rounds::{Outbound, Rank};
use super::word::{Notice, Word};
use super::workspace::Workspace;
use super::{Flight, Order, Outcome, Work};
use crate::completion::eq::Owner;
use crate::op::{CollectiveKind, Ways};
use crate::rx::group::Received;
use crate::transport::Down;
use crate::tx::group::UNTRACKED;
use ofi_core::{Addr, Cause, Errno, FiAddr};
use ofi_memory::{Buffer, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;

/// A posted collective operation: active, or queued behind others of its group.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: CollectiveKind,
    pub(super) ticket: Ticket,
    pub(super) plan: Arc<Plan>,
    pub(super) workspace: Workspace,
    /// FI_FENCE: each of its messages leaves when everything sent to its receiver before is done.
    pub(super) fenced: bool,
}

/// The state of a group.
#[derive(Debug)]
pub(super) enum Stage {
    /// The join has not completed.
    Joining(Join),
    /// The application may post operations.
    Joined,
    /// The group has failed: each operation fails for this reason.
    Failed(Down),
}

/// The messages that the active operation, or the join, waits for.
#[derive(Debug, Default)]
struct Awaited {
    /// The current round, if one has begun.
    round: Option<usize>,
    /// Number of messages that the round still has to send or receive.
    left: usize,
    /// Arrived messages, by the index of their receive in the round.
    arrived: Vec<(usize, Vec<u8>)>,
}

/// A member of a group.
#[derive(Debug)]
pub(super) struct GroupMember {
    pub(super) handle: FiAddr,
    /// The address by which the group reaches it, whatever becomes of the handle.
    addr: Addr,
    /// The group has sent to it or waits for it, so that the two have a link. The member reports a
    /// failure over its links.
    is_linked: bool,
    /// Why its link has ended.
    gone: Option<Down>,
}

/// A group that the endpoint is a member of.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) addr: FiAddr,
    pub(super) members: Vec<GroupMember>,
    pub(super) rank: Rank,
    /// The object that the event of the join names.
    pub(super) owner: Owner,
    pub(super) ways: Ways,
    pub(super) stage: Stage,
    /// The tag of its messages; before it has joined, the first tag of the join.
    pub(super) tag: u64,
    pub(super) operations: VecDeque<Operation>,
    /// Sequence number of the active operation.
    number: u32,
    awaited: Awaited,
    /// The plan of the latest operation, for a next one of the same shape.
    latest: Option<(Shape, Arc<Plan>)>,
}

impl Group {
    pub(super) fn new(
        addr: FiAddr,
        (members, rank): (Vec<(FiAddr, Addr)>, Rank),
        owner: Owner,
        ways: Ways,
        join: Join,
    ) -> Self {
        let member = |(handle, addr)| GroupMember { handle, addr, is_linked: false, gone: None };
        let (tag, members) = (join.tag, members.into_iter().map(member).collect());
        let (operations, awaited, stage) = (VecDeque::new(), Awaited::default(), Stage::Joining(join));
        Self { addr, members, rank, owner, ways, stage, tag, operations, number: 0, awaited, latest: None }
    }

    /// Whether it has a member with that handle.
    pub(super) fn has(&self, handle: FiAddr) -> bool {
        self.members.iter().any(|member| member.handle == handle)
    }

    /// Whether the join or an operation is pending.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.stage, Stage::Joining(_)) || !self.operations.is_empty()
    }

    /// Whether its join has begun and has not completed.
    pub(super) fn is_being_joined(&self) -> bool {
        self.awaited.round.is_some() && matches!(self.stage, Stage::Joining(_))
    }

    /// The plan of an operation. Programs repeat operations, so that the latest plan often serves.
    pub(super) fn plan_of(&mut self, shape: Shape) -> Arc<Plan> {
        match &self.latest {
            Some((latest, plan)) if *latest == shape => plan.clone(),
            _ => {
                let plan = Arc::new(shape.plan(self.rank));
                self.latest = Some((shape, plan.clone()));
                plan
            }
        }
    }

    /// The plan of the join or the active operation.
    fn plan(&self) -> Option<Arc<Plan>> {
        match &self.stage {
            Stage::Joining(join) => Some(join.plan.clone()),
            Stage::Joined => Some(self.operations.front()?.plan.clone()),
            Stage::Failed(_) => None,
        }
    }

    /// The tag and the word of a round's messages.
    fn sign(&self, round: usize) -> (u64, Word) {
        match &self.stage {
            Stage::Joining(join) => (join.tag_of(round), join.word_of(round)),
            Stage::Joined | Stage::Failed(_) => {
                let kind = self.operations.front().map_or(CollectiveKind::Barrier, |operation| operation.kind);
                (self.tag, Word::of_operation(kind, self.number))
            }
        }
    }

    fn size(&self) -> usize {
        self.operations.front().map_or(1, |operation| operation.workspace.element_size())
    }

    /// Ends rounds and begins the next ones until a round has to wait for messages.
    pub(super) fn advance(&mut self, work: &mut Work) {
        while self.awaited.left == 0 && self.is_busy() {
            if let Some(round) = self.awaited.round {
                self.end_round(work, round);
            }
            let next = self.awaited.round.map_or(0, |round| round + 1);
            match self.plan() {
                Some(plan) if next < plan.rounds.len() => self.begin_round(work, next, &plan),
                _ => self.finish(work),
            }
        }
    }

    fn begin_round(&mut self, work: &mut Work, at: usize, plan: &Plan) {
        let Some(round) = plan.rounds.get(at) else { return };
        (self.awaited.round, self.awaited.left) = (Some(at), round.sends.len() + round.receives.len());
        if let Stage::Joining(join) = &mut self.stage {
            join.begin(at, work);
        }
        let (tag, word) = self.sign(at);
        let fenced = self.operations.front().is_some_and(|operation| operation.fenced);
        // Sends first: the other members may be waiting for them.
        for Outbound { to, part } in &round.sends {
            let buffer = match self.operations.front() {
                Some(operation) => operation.workspace.outbound(part, &mut work.spares),
                None => Ok(Buffer::empty()),
            };
            let Ok(buffer) = buffer else { return self.lack_memory(work) };
            let number = work.add(Flight { group: self.addr, place: None });
            let Some(to) = self.members.get_mut(*to) else { continue };
            to.is_linked = true;
            work.orders.push_back(Order::Send { to: to.addr, tag, word: word.0, buffer, number, fenced });
        }
        for (place, receive) in round.receives.iter().enumerate() {
            let buffer = match self.operations.front() {
                Some(operation) => operation.workspace.inbound(receive, &mut work.spares),
                None => Ok(Buffer::empty()),
            };
            let Ok(buffer) = buffer else { return self.lack_memory(work) };
            self.receive(work, (receive.from, place), tag, buffer);
        }
    }

    fn receive(&mut self, work: &mut Work, (from, place): (Rank, usize), tag: u64, buffer: Buffer) {
        let number = work.add(Flight { group: self.addr, place: Some(place) });
        let Some(member) = self.members.get_mut(from) else { return };
        let was_linked = core::mem::replace(&mut member.is_linked, true);
        let asks = !was_linked && matches!(self.stage, Stage::Joined);
        let (from, gone) = (member.addr, member.gone.clone());
        work.orders.push_back(Order::Receive { from, tag, buffer, number, asks, gone });
    }

    #[cold]
    fn lack_memory(&mut self, work: &mut Work) {
        let text = "no memory for a message of a collective operation";
        self.fail(work, &Down::new(Cause::NoMemory, Errno::ENOMEM, text));
    }

    fn end_round(&mut self, work: &mut Work, at: usize) {
        let Some(plan) = self.plan() else { return };
        let Some(round) = plan.rounds.get(at) else { return };
        self.awaited.arrived.sort_unstable_by_key(|(place, _)| *place);
        for (place, mut bytes) in self.awaited.arrived.drain(..) {
            if let (Stage::Joined, Some(operation), Some(inbound)) =
                (&self.stage, self.operations.front_mut(), round.receives.get(place))
            {
                operation.workspace.take(inbound, &mut bytes);
            }
            work.spares.put(bytes);
        }
    }

    /// Completes the join or the active operation.
    fn finish(&mut self, work: &mut Work) {
        self.awaited = Awaited::default();
        if let Stage::Joining(join) = &mut self.stage {
            if join.id == 0 {
                // A group of one chooses its tag without a message.
                join.id = work.choose_tag();
            }
            self.tag = join.id;
            self.stage = Stage::Joined;
            work.outcomes.push(Outcome::Joined(self.owner));
            return;
        }
        self.number = self.number.wrapping_add(1);
        if let Some(operation) = self.operations.pop_front() {
            operation.workspace.deliver(&operation.plan, &mut work.spares);
            work.outcomes.push(Outcome::Done(operation.ticket));
        }
    }

    /// A message of this member has left, or has failed.
    pub(super) fn left(&mut self, work: &mut Work, result: Result<(), Down>) {
        match result {
            Ok(()) => {
                self.awaited.left = self.awaited.left.saturating_sub(1);
                self.advance(work);
            }
            Err(why) => self.fail(work, &why),
        }
    }

    /// A receive has ended.
    pub(super) fn received(&mut self, work: &mut Work, place: usize, result: Result<Received, Down>) {
        let received = match result {
            Ok(received) => received,
            Err(why) => return self.fail(work, &why),
        };
        let Some(at) = self.awaited.round else { return };
        let Some(plan) = self.plan() else { return };
        let Some(inbound) = plan.rounds.get(at).and_then(|round| round.receives.get(place)) else { return };
        let ((_, expected), len) = (self.sign(at), inbound.part.len() * self.size());
        let word = Word(received.word);
        if let Some(notice) = word.notice() {
            return self.fail(work, &why(inbound.from, &notice));
        }
        let agreed = match &mut self.stage {
            Stage::Joining(join) => join.take(at, received.word, work),
            Stage::Joined | Stage::Failed(_) if word != expected => Err("the members call different operations"),
            Stage::Joined | Stage::Failed(_) => Ok(()),
        };
        let fits = received.len == len as u64;
        if let Err(text) = agreed.and(if fits { Ok(()) } else { Err("the members' elements differ in size") }) {
            let text = format!("member {} of the group: {text}", inbound.from);
            return self.fail(work, &Down::new(Cause::Violation, Errno::EPROTO, text));
        }
        self.awaited.arrived.push((place, received.bytes));
        self.awaited.left = self.awaited.left.saturating_sub(1);
        self.advance(work);
    }

    /// The link to a peer has broken. Its messages that have arrived still count.
    pub(super) fn lose(&mut self, peer: &Addr, why: &Down) {
        if let Some(member) = self.members.iter_mut().find(|member| member.addr == *peer) {
            member.gone.get_or_insert_with(|| why.clone());
        }
    }

    /// Fails the group and its operations, and notifies the other members.
    pub(super) fn fail(&mut self, work: &mut Work, why: &Down) {
        if matches!(self.stage, Stage::Failed(_)) {
            return;
        }
        self.end(work, &Notice::failed(why), why);
        let joining = matches!(self.stage, Stage::Joining(_));
        self.stage = Stage::Failed(why.clone());
        if joining {
            work.outcomes.push(Outcome::JoinFailed(self.owner, why.clone()));
        }
    }

    /// Leaves the group.
    pub(super) fn leave(mut self, work: &mut Work) {
        if !matches!(self.stage, Stage::Failed(_)) {
            let why = Down::new(Cause::LocalClosed, Errno::ECANCELED, "the group was closed");
            self.end(work, &Notice::Left, &why);
        }
    }

    /// Fails all operations, and sends the notice to the other members.
    fn end(&mut self, work: &mut Work, notice: &Notice, why: &Down) {
        let word = Word::of_notice(notice).0;
        let addr_of = |rank: Rank| self.members.get(rank).map(|member| member.addr);
        let mut tag = self.tag;
        if let Stage::Joining(join) = &self.stage {
            tag = join.id;
            let is_gone = |rank: Rank| self.members.get(rank).is_some_and(|member| member.gone.is_some());
            for (rank, tag) in join.neighbors_that_wait(self.awaited.round, is_gone) {
                addr_of(rank).into_iter().for_each(|to| work.bid_farewell(to, tag, word));
            }
        }
        // Members that this one has confirmed the tag to may have joined.
        let others = (0..self.members.len()).filter(|rank| tag != 0 && *rank != self.rank).filter_map(addr_of);
        for to in others {
            work.orders.push_back(Order::Notify { to, tag, word, connects: false, number: UNTRACKED });
        }
        let (mut sends, receives) = work.forget(self.addr);
        if !self.operations.front().is_some_and(|operation| operation.workspace.is_lent()) {
            sends.clear();
        }
        work.by_tag.remove(&tag);
        work.orders.push_back(Order::Drop { tag, sends, receives });
        self.awaited = Awaited::default();
        work.failing.extend(self.operations.drain(..).map(|operation| (operation, why.clone())));
        work.end_failing();
    }

    /// Drops all operations without completions. Only fi_close may.
    pub(super) fn discard(self) {
        self.operations.into_iter().for_each(|operation| operation.ticket.discard());
    }
}

/// The reason for failure that a notice from a member gives.
fn why(from: Rank, notice: &Notice) -> Down {
    match notice {
        Notice::Failed(cause, errno) => {
            Down::new(*cause, *errno, format!("member {from} of the group failed: {}", cause.text()))
        }
        Notice::Left | Notice::Waits => {
            Down::new(Cause::PeerClosed, Errno::ECONNRESET, format!("member {from} has left the group"))
        }
    }
}
