//! The model: every requested link, the frames in flight on it, and the reasons why it may end.

use crate::frame::Planned;
use fastrand::Rng;
use ofi_core::Addr;
use ofi_engine::wire::frame::Header;
use ofi_engine::wire::hello::MAX_LEN;
use std::collections::VecDeque;

/// The index of a channel in the ledger.
pub(crate) type ChannelId = usize;
/// An end of a channel: the initiator or the acceptor.
pub(crate) const INITIATOR: usize = 0;
pub(crate) const ACCEPTOR: usize = 1;

/// The planned outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Both sides accept.
    Accept,
    /// The acceptor refuses.
    Refuse,
    /// The acceptor accepts, and the initiator declines its answer.
    Decline,
}

/// Why a link may go down; with the side that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Shutdown(usize),
    Abort(usize),
    Vanish(usize),
    Violation(usize),
    Refused,
    Broken,
    /// Nothing answers at the destination.
    Nowhere,
}

/// The state of a link on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Nothing yet.
    Unaware,
    /// The initiator waits for the answer.
    Connecting,
    Open,
    /// It is down, or was aborted, or the node is gone.
    Over,
}

/// The frames from one side to the other.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Frames that have not arrived.
    pub(crate) queue: VecDeque<Planned>,
    /// The data frame in flight that need not keep its order with others.
    pub(crate) unordered: Option<Planned>,
    /// Frames sent.
    pub(crate) sent: u32,
    /// Frames that have arrived.
    pub(crate) arrived: u32,
    /// The headers of offers whose payloads have arrived, until the sender learns of it.
    pub(crate) taken: Vec<Header>,
    /// The receiver answers this frame with a violation.
    pub(crate) violation_at: Option<u32>,
    /// The sender's shutdown is done.
    pub(crate) finished: bool,
}

impl Flow {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.unordered.is_none()
    }
}

/// A link between two nodes.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The address that was connected to.
    pub(crate) to: Addr,
    pub(crate) plan: Plan,
    pub(crate) hello: Vec<u8>,
    pub(crate) answer: Vec<u8>,
    pub(crate) ends: Vec<End>,
    pub(crate) sides: [Side; 2],
    /// By sending side.
    pub(crate) flows: [Flow; 2],
}

impl Channel {
    /// Adds a reason for the link to go down.
    pub(crate) fn end(&mut self, end: End) {
        if !self.ends.contains(&end) {
            self.ends.push(end);
        }
    }

    pub(crate) const fn may_end(&self) -> bool {
        !self.ends.is_empty()
    }

    /// True while the frames of `side` must arrive, unless the link breaks.
    pub(crate) fn delivers_from(&self, side: usize) -> bool {
        self.ends.iter().all(|end| match end {
            End::Shutdown(by) => *by == side || self.flows[side].finished,
            End::Abort(_) | End::Vanish(_) | End::Violation(_) | End::Refused | End::Broken | End::Nowhere => false,
        })
    }

    /// True if no further event is expected.
    fn is_settled(&self) -> bool {
        if self.may_end() {
            return self.sides.iter().all(|side| matches!(side, Side::Over | Side::Unaware));
        }
        self.sides == [Side::Open; 2] && self.flows.iter().all(Flow::is_empty)
    }

    /// True if frames are in flight on a link that stays up.
    pub(crate) fn is_undelivered(&self) -> bool {
        !self.may_end() && !self.is_settled()
    }
}

/// All channels of a script.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) channels: Vec<Channel>,
}

/// The bytes of a hello that hold the channel's number.
const NUMBER: usize = 8;

impl Ledger {
    /// Adds a channel, with hellos of random length.
    pub(crate) fn add(&mut self, to: Addr, plan: Plan, rng: &mut Rng) -> ChannelId {
        let id = self.channels.len();
        let mut hello = |kind: u8| {
            let mut bytes = vec![kind; NUMBER + rng.usize(1..=MAX_LEN - NUMBER)];
            bytes[..NUMBER].copy_from_slice(&(id as u64).to_le_bytes());
            bytes
        };
        let (hello, answer) = (hello(1), hello(2));
        let ends = if plan == Plan::Accept { Vec::new() } else { vec![End::Refused] };
        let (sides, flows) = ([Side::Unaware; 2], [Flow::default(), Flow::default()]);
        self.channels.push(Channel { to, plan, hello, answer, ends, sides, flows });
        id
    }

    /// The channel that a hello belongs to.
    pub(crate) fn channel_of(&self, hello: &[u8]) -> ChannelId {
        let number = hello.first_chunk::<NUMBER>().expect("a hello arrives whole");
        let id = usize::try_from(u64::from_le_bytes(*number)).expect("a channel's number");
        assert_eq!(self.channels[id].hello, hello, "the hello of channel {id} was changed on the way");
        id
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.channels.iter().all(Channel::is_settled)
    }

    /// Describes the channels on which further events are expected.
    pub(crate) fn describe(&self) -> String {
        let open = self.channels.iter().enumerate().filter(|(_, channel)| !channel.is_settled());
        let lines = open.map(|(id, Channel { plan, ends, sides, flows, .. })| {
            let [out, back] = flows.each_ref().map(|flow| {
                let Flow { queue, unordered, sent, arrived, .. } = flow;
                let waits = queue.len() + usize::from(unordered.is_some());
                format!("{arrived} of {sent} arrived, {waits} in flight")
            });
            format!("channel {id} ({plan:?}): ends {ends:?}, sides {sides:?}; there: {out}; back: {back}")
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
