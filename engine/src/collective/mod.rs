//! Collective operations (fi_collective(3)) over messages between the members' endpoints: groups,
//! joins, and operations.
//! Knows no transport and no links: it emits orders ([`Order`]) to send and to receive; the
//! endpoint carries them out and reports the results.
//! Invariant: an operation completes once all its rounds are over, or fails with its group.

mod group;
mod join;
mod plan;
mod rounds;
mod spares;
mod word;
mod workspace;

use crate::completion::eq::Owner;
use crate::hash::HashMap;
use crate::op::{CollectiveCall, Elements, MOST_COLLECTIVE, Ways};
use crate::peer::table::PeerId;
use crate::rx::group::Ended;
use crate::transport::Down;
use crate::tx::group::{Left, UNTRACKED};
use crate::wire::frame::Violation;
use group::{Group, Operation, Stage};
use join::Join;
use ofi_core::{Addr, Errno, FiAddr, OpFlags};
use ofi_memory::{Buffer, Ticket};
use plan::Shape;
use rounds::Rank;
use spares::Spares;
use std::collections::VecDeque;
use word::{Notice, Word};
use workspace::Workspace;

/// The addresses of groups begin here, far above those of an address vector.
const GROUPS: u64 = 1 << 62;
/// Maximum number of outstanding operations of all groups of an endpoint.
const MOST_OUTSTANDING: usize = 4096;
/// Maximum number of unknown groups that an endpoint answers a peer about at once.
const MOST_ANSWERS: usize = 256;
/// Maximum number of notices about failed joins that an endpoint remembers.
const MOST_FAREWELLS: usize = 256;
/// How often a notice about a failed join is sent anew.
const MOST_TRIES: u8 = 3;
/// The flags that a call accepts.
const ALLOWED: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::MORE)
    .union(OpFlags::FENCE)
    .union(OpFlags::INJECT_COMPLETE)
    .union(OpFlags::TRANSMIT_COMPLETE)
    .union(OpFlags::DELIVERY_COMPLETE)
    .union(OpFlags::MATCH_COMPLETE);

/// A request to the endpoint.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message to a member; `fenced`: when everything sent to it before is done.
    Send { to: Addr, tag: u64, word: u64, buffer: Buffer, number: usize, fenced: bool },
    /// Receive a message from a member, as long as `buffer`, into it. If the link to the member has
    /// broken, only a message that has already arrived matches. `asks`: notify the member that this
    /// one waits, even over an open link; it answers if it has left.
    Receive { from: Addr, tag: u64, buffer: Buffer, number: usize, asks: bool, gone: Option<Down> },
    /// Send a notice to a member; `connects`: connect to it if there is no link.
    Notify { to: Addr, tag: u64, word: u64, connects: bool, number: usize },
    /// Send a notice to a peer that need not be a member of any group.
    Answer { to: PeerId, tag: u64, word: u64, number: usize },
    /// Withdraw receives and sends that have not begun, and drop a group's unexpected messages.
    Drop { tag: u64, sends: Vec<usize>, receives: Vec<usize> },
}

/// A result for the application.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An operation is done.
    Done(Ticket),
    /// An operation has failed.
    Failed(Ticket, Down),
    /// A join is complete.
    Joined(Owner),
    /// A join has failed.
    JoinFailed(Owner, Down),
}

/// A message in flight, or a posted receive.
#[derive(Clone, Copy, Debug)]
struct Flight {
    group: FiAddr,
    /// The receive's index in its round; `None` for a message that this member sends.
    place: Option<usize>,
}

/// A notice that a join has failed. It may be lost with its link, and the neighbor then waits over
/// another one: the endpoint sends it anew when a link to the neighbor ends.
#[derive(Debug)]
struct Farewell {
    to: Addr,
    tag: u64,
    word: u64,
    tries: u8,
}

/// State that the groups of an endpoint share.
#[derive(Debug, Default)]
struct Work {
    orders: VecDeque<Order>,
    outcomes: Vec<Outcome>,
    flights: HashMap<usize, Flight>,
    next_flight: usize,
    /// The tags of groups that have not failed.
    by_tag: HashMap<u64, ()>,
    /// Notices about failed joins, the latest at the end.
    farewells: VecDeque<Farewell>,
    /// A random part of the tags that this endpoint chooses.
    seed: u64,
    chosen: u32,
    spares: Spares,
    /// Operations that fail as soon as no message in flight uses the application's memory.
    failing: Vec<(Operation, Down)>,
}

impl Work {
    fn add(&mut self, flight: Flight) -> usize {
        let number = self.number();
        self.flights.insert(number, flight);
        number
    }

    /// A number for a message.
    const fn number(&mut self) -> usize {
        self.next_flight += 1;
        UNTRACKED + self.next_flight
    }

    /// Detaches the messages in flight from a group that has ended: their results no longer matter.
    /// Returns the numbers of its sends and of its receives, which the endpoint withdraws.
    fn forget(&mut self, group: FiAddr) -> (Vec<usize>, Vec<usize>) {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (number, flight) in self.flights.iter_mut().filter(|(_, flight)| flight.group == group) {
            let list = if flight.place.take().is_some() { &mut receives } else { &mut sends };
            list.push(*number);
        }
        (sends, receives)
    }

    /// Reports the failing operations whose memory no message uses any more.
    fn end_failing(&mut self) {
        for (operation, why) in self.failing.extract_if(.., |(operation, _)| operation.workspace.is_idle()) {
            self.outcomes.push(Outcome::Failed(operation.ticket, why));
        }
    }

    /// Chooses the tag of a group in which this endpoint is rank 0. Endpoints have different random
    /// seeds, so that they choose different tags.
    fn choose_tag(&mut self) -> u64 {
        loop {
            self.chosen = self.chosen.wrapping_add(1);
            let tag = self.seed << 32 & !(1 << 63) | u64::from(self.chosen);
            if tag != 0 && self.reserve_tag(tag) {
                return tag;
            }
        }
    }

    /// Notifies a neighbor that a join has failed.
    fn bid_farewell(&mut self, to: Addr, tag: u64, word: u64) {
        self.orders.push_back(Order::Notify { to, tag, word, connects: true, number: UNTRACKED });
        if self.farewells.len() >= MOST_FAREWELLS {
            self.farewells.pop_front();
        }
        self.farewells.push_back(Farewell { to, tag, word, tries: 0 });
    }

    /// Sends the notices to a neighbor anew.
    fn repeat_farewells(&mut self, peer: &Addr) {
        for Farewell { to, tag, word, tries } in &mut self.farewells {
            if to == peer && *tries < MOST_TRIES {
                *tries += 1;
                let (to, tag, word) = (*to, *tag, *word);
                self.orders.push_back(Order::Notify { to, tag, word, connects: true, number: UNTRACKED });
            }
        }
    }

    /// Records the tag of a group. False if another group has it.
    fn reserve_tag(&mut self, tag: u64) -> bool {
        self.by_tag.insert(tag, ()).is_none()
    }
}

/// A call of fi_join_collective.
#[derive(Debug)]
pub(crate) struct JoinCall {
    /// The members, in order, with their addresses.
    pub(crate) members: Vec<(FiAddr, Addr)>,
    /// The caller's rank among them.
    pub(crate) rank: Rank,
    /// The existing group that they form a part of, if the application names one.
    pub(crate) parent: Option<FiAddr>,
    pub(crate) owner: Owner,
    pub(crate) ways: Ways,
}

/// The groups of an endpoint.
#[derive(Debug)]
pub(crate) struct Groups {
    groups: HashMap<FiAddr, Group>,
    work: Work,
    next: u64,
    outstanding: usize,
    /// Joins that have not begun, in the order of the calls, and whether the application has closed
    /// them.
    waiting: VecDeque<(FiAddr, bool)>,
    /// Notices about unknown groups that have not left, by number.
    answers: HashMap<usize, (PeerId, u64)>,
    /// The tags of those groups by peer.
    unknown: HashMap<PeerId, Vec<u64>>,
}

impl Groups {
    /// The word of [`Notice::Waits`].
    pub(crate) const WAITS: u64 = Word::of_notice(&Notice::Waits).0;

    /// `nonce` is the endpoint's.
    pub(crate) fn new(nonce: [u8; 16]) -> Self {
        let seed = u64::from_le_bytes(*nonce.first_chunk().unwrap_or(&[0; 8]));
        let work = Work { seed, ..Work::default() };
        Self {
            groups: HashMap::default(),
            work,
            next: GROUPS,
            outstanding: 0,
            waiting: VecDeque::new(),
            answers: HashMap::default(),
            unknown: HashMap::default(),
        }
    }

    /// Begins to join a group; returns its address.
    ///
    /// # Errors
    /// EINVAL if a member does not belong to the named group.
    pub(crate) fn join(&mut self, call: JoinCall) -> Result<FiAddr, Errno> {
        let JoinCall { members, rank, parent, owner, ways } = call;
        let parent = match parent {
            None => 0,
            Some(parent) => {
                let parent = self.groups.get(&parent).ok_or(Errno::EINVAL)?;
                if !matches!(parent.stage, Stage::Joined) || !members.iter().all(|(one, _)| parent.has(*one)) {
                    return Err(Errno::EINVAL);
                }
                parent.tag
            }
        };
        let addr = FiAddr(self.next);
        self.next += 1;
        let fingerprint = join::fingerprint(parent, members.iter().map(|(_, addr)| addr));
        let join = Join::new(fingerprint, members.len(), rank);
        self.groups.insert(addr, Group::new(addr, (members, rank), owner, ways, join));
        self.waiting.push_back((addr, false));
        self.begin_joins();
        Ok(addr)
    }

    /// Begins the waiting joins, but not two of the same members at once: their tags are equal, so
    /// that they could take each other's messages.
    fn begin_joins(&mut self) {
        for (addr, is_closed) in core::mem::take(&mut self.waiting) {
            let Some(tag) = self.groups.get(&addr).map(|group| group.tag) else { continue };
            if self.groups.values().any(|other| other.tag == tag && other.is_being_joined()) {
                self.waiting.push_back((addr, is_closed));
            } else if is_closed {
                self.end(addr);
            } else if let Some(group) = self.groups.get_mut(&addr) {
                // The neighbors that have not begun this join have ended the earlier one.
                self.work.farewells.retain(|farewell| !join::is_of(farewell.tag, tag));
                group.advance(&mut self.work);
            }
        }
    }

    /// Leaves a group.
    pub(crate) fn leave(&mut self, addr: FiAddr) {
        // The messages of an earlier join of the same members have the same tags: the notices of
        // one that has not begun must come behind them.
        if let Some((_, is_closed)) = self.waiting.iter_mut().find(|(waiting, _)| *waiting == addr) {
            *is_closed = true;
        } else {
            self.end(addr);
            self.begin_joins();
        }
    }

    fn end(&mut self, addr: FiAddr) {
        if let Some(group) = self.groups.remove(&addr) {
            group.leave(&mut self.work);
            if self.groups.is_empty() {
                self.work.spares.clear();
            }
        }
    }

    /// Posts an operation.
    ///
    /// # Errors
    /// EINVAL for an unknown group or root and for a missing buffer, EOPBADSTATE before the group
    /// is joined, EBADFLAGS, EOPNOTSUPP for elements that the operation cannot have and for a
    /// direction that the member does not have, EMSGSIZE, ENOMEM, and AGAIN if too many are
    /// outstanding.
    pub(crate) fn post(&mut self, call: CollectiveCall, selective: bool) -> Result<(), Errno> {
        let CollectiveCall { kind, group, root, elements, buffer, result, context, flags } = call;
        let group = self.groups.get_mut(&group).ok_or(Errno::EINVAL)?;
        if matches!(group.stage, Stage::Joining(_)) {
            return Err(Errno::EOPBADSTATE);
        }
        if !ALLOWED.contains(flags) {
            return Err(Errno::EBADFLAGS);
        }
        if elements.is_some_and(|elements| !elements.suit(kind)) {
            return Err(Errno::EOPNOTSUPP);
        }
        let root = match kind.has_root() {
            true => group.members.iter().position(|member| member.handle == root).ok_or(Errno::EINVAL)?,
            false => 0,
        };
        let (count, size) = elements.map_or((0, 1), |elements| (elements.count, elements.datatype.size()));
        if count > MOST_COLLECTIVE / size {
            return Err(Errno::EMSGSIZE);
        }
        if self.outstanding >= MOST_OUTSTANDING {
            return Err(Errno::AGAIN);
        }
        let commutes = elements.is_some_and(|elements| elements.commute());
        let shape = Shape { kind, members: group.members.len(), root, count, size, commutes };
        let (input, output) = shape.lens(group.rank).ok_or(Errno::EMSGSIZE)?;
        if input > 0 && !group.ways.send || output > 0 && !group.ways.receive {
            return Err(Errno::EOPNOTSUPP);
        }
        let (input, output) = (input * size, output * size);
        let (contribution, result) = (buffer.of_len(input), result.of_len(output));
        if (contribution.len(), result.len()) != (input, output) {
            return Err(Errno::EINVAL);
        }
        let plan = group.plan_of(shape);
        let workspace = Workspace::new(&plan, elements, (contribution, result), &mut self.work.spares)?;
        let suppress = selective && !flags.contains(OpFlags::COMPLETION);
        let ticket = Ticket::new(context, OpFlags::COLLECTIVE, suppress);
        let fenced = flags.contains(OpFlags::FENCE);
        self.outstanding += 1;
        if let Stage::Failed(why) = &group.stage {
            self.work.outcomes.push(Outcome::Failed(ticket, why.clone()));
            return Ok(());
        }
        group.operations.push_back(Operation { kind, ticket, plan, workspace, fenced });
        if group.operations.len() == 1 {
            group.advance(&mut self.work);
        }
        Ok(())
    }

    /// Handles messages to members that have left or failed.
    pub(crate) fn handle_left(&mut self, all: Vec<Left>) {
        for Left { number, result, bytes } in all {
            self.work.spares.put(bytes);
            let Some(flight) = self.work.flights.remove(&number) else {
                self.end_answer(number);
                continue;
            };
            if let Some(group) = self.groups.get_mut(&flight.group) {
                group.left(&mut self.work, result);
            }
        }
        self.work.end_failing();
        self.begin_joins();
    }

    /// Handles receives that have their message or have failed.
    pub(crate) fn handle_ended(&mut self, all: Vec<Ended>) {
        for Ended { number, result } in all {
            if let Some(Flight { group, place: Some(place) }) = self.work.flights.remove(&number)
                && let Some(group) = self.groups.get_mut(&group)
            {
                group.received(&mut self.work, place, result);
            }
        }
        self.work.end_failing();
        self.begin_joins();
    }

    /// Handles an order that the endpoint could not carry out.
    pub(crate) fn handle_failed(&mut self, number: usize, why: &Down) {
        if let Some(flight) = self.work.flights.remove(&number)
            && let Some(group) = self.groups.get_mut(&flight.group)
        {
            group.fail(&mut self.work, why);
            self.begin_joins();
        }
    }

    /// A notice about an unknown group has left, or cannot be sent.
    pub(crate) fn end_answer(&mut self, number: usize) {
        let Some((peer, tag)) = self.answers.remove(&number) else { return };
        if let Some(tags) = self.unknown.get_mut(&peer) {
            tags.retain(|other| *other != tag);
            if tags.is_empty() {
                self.unknown.remove(&peer);
            }
        }
    }

    /// Forgets receives that the endpoint has withdrawn.
    pub(crate) fn handle_withdrawn(&mut self, all: &[usize]) {
        for number in all {
            self.work.flights.remove(number);
        }
        self.work.end_failing();
    }

    /// Handles the loss of the link to a peer.
    pub(crate) fn lose(&mut self, peer: &Addr, why: &Down) {
        self.groups.values_mut().for_each(|group| group.lose(peer, why));
        self.work.repeat_farewells(peer);
    }

    /// Whether a join or a group of this endpoint may receive messages with this tag.
    pub(crate) fn knows(&self, tag: u64) -> bool {
        join::is_join(tag) || self.work.by_tag.contains_key(&tag)
    }

    /// Answers a message of an unknown group: its sender may wait for this endpoint.
    ///
    /// # Errors
    /// A violation if the peer does not take the answers to so many groups.
    pub(crate) fn answer_unknown(&mut self, from: PeerId, tag: u64, word: u64) -> Result<(), Violation> {
        let asks = Word(word).notice().is_none_or(|notice| notice == Notice::Waits);
        if !asks {
            return Ok(());
        }
        let tags = self.unknown.entry(from).or_default();
        if tags.contains(&tag) {
            return Ok(());
        }
        if tags.len() >= MOST_ANSWERS {
            return Err(Violation("messages of too many groups that do not exist"));
        }
        tags.push(tag);
        let number = self.work.number();
        self.answers.insert(number, (from, tag));
        let word = Word::of_notice(&Notice::Left).0;
        self.work.orders.push_back(Order::Answer { to: from, tag, word, number });
        Ok(())
    }

    pub(crate) fn next_order(&mut self) -> Option<Order> {
        self.work.orders.pop_front()
    }

    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        let outcomes = core::mem::take(&mut self.work.outcomes);
        let ended = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done(_) | Outcome::Failed(..)));
        self.outstanding = self.outstanding.saturating_sub(ended.count());
        outcomes
    }

    /// Whether there are orders to carry out or outcomes to report.
    pub(crate) fn has_work(&self) -> bool {
        !self.work.orders.is_empty() || !self.work.outcomes.is_empty()
    }

    /// Whether a join, an operation or a message is pending.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_work()
            || !self.answers.is_empty()
            || !self.work.flights.is_empty()
            || self.groups.values().any(Group::is_busy)
    }

    /// Whether the end of a link to a peer matters to no group.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.work.farewells.is_empty()
    }

    /// Drops all operations without completions. Only fi_close may.
    pub(crate) fn discard_all(&mut self) {
        self.groups.drain().for_each(|(_, group)| group.discard());
        self.work.failing.drain(..).for_each(|(operation, _)| operation.ticket.discard());
        for outcome in self.work.outcomes.drain(..) {
            if let Outcome::Done(ticket) | Outcome::Failed(ticket, _) = outcome {
                ticket.discard();
            }
        }
        self.work.orders.clear();
        self.work.farewells.clear();
        self.work.flights.clear();
        self.answers.clear();
        self.unknown.clear();
        self.waiting.clear();
    }
}

impl Elements {
    /// Maximum number of elements of a call.
    pub const fn most(&self) -> usize {
        MOST_COLLECTIVE / self.datatype.size()
    }
}
