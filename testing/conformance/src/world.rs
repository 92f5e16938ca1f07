//! Several nodes on one medium. Scripts drive them; the world then lets time pass until everything
//! has arrived and ended, or fails.

use crate::frame::Planned;
use crate::ledger::{ACCEPTOR, Channel, ChannelId, End, Ledger, Plan, Side};
use crate::medium::{Medium, Need};
use crate::node::{Manner, Node};
use crate::observer::Link;
use fastrand::Rng;
use ofi_core::Instant;
use ofi_engine::transport::{ControlSubmitted, Flush, LinkId, Transport};
use ofi_os::clock;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// How long to wait for the medium when no node has work.
const PAUSE: Duration = Duration::from_micros(100);

/// Rounds without progress before the thread yields.
const MOST_IDLE: u32 = 100;

/// The index of a node.
pub(crate) type NodeId = usize;

/// The nodes of a script.
pub(crate) struct World<M: Medium> {
    pub(crate) medium: M,
    pub(crate) nodes: Vec<Node<M::Carrier>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) rng: Rng,
    /// Large data frames per thousand random frames.
    pub(crate) large: u16,
}

impl<M: Medium> World<M> {
    /// A medium without nodes.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let medium = M::new(&mut rng);
        Self { medium, nodes: Vec::new(), ledger: Rc::default(), rng, large: 5 }
    }

    /// Two nodes without links, on a medium without faults.
    pub(crate) fn calm_pair(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.medium.calm();
        world.open();
        world.open();
        world
    }

    /// Opens a node.
    pub(crate) fn open(&mut self) -> NodeId {
        let transport = self.medium.open(&mut self.rng);
        self.nodes.push(Node::new(transport, self.ledger.clone(), self.rng.fork()));
        self.nodes.len() - 1
    }

    /// Requests a link.
    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId, plan: Plan) -> ChannelId {
        let addr = self.nodes[to].transport.local_addr();
        let channel = self.ledger.borrow_mut().add(addr, plan, &mut self.rng);
        self.nodes[from].connect(&addr, channel);
        channel
    }

    /// Makes a link, and waits until it is open.
    pub(crate) fn link(&mut self, from: NodeId, to: NodeId) -> ChannelId {
        let channel = self.connect(from, to, Plan::Accept);
        self.until("a link opens", |world| world.ledger.borrow().channels[channel].sides == [Side::Open; 2]);
        channel
    }

    /// The node's end of a channel.
    pub(crate) fn end_of(&self, node: NodeId, channel: ChannelId) -> LinkId {
        let mut links = self.nodes[node].observer.links.iter();
        *links.find(|(_, link)| link.channel == channel).expect("the node has an end of the channel").0
    }

    /// The state of a side of a channel.
    pub(crate) fn side(&self, channel: ChannelId, side: usize) -> Side {
        self.ledger.borrow().channels[channel].sides[side]
    }

    /// Submits random frames on a link until it refuses one.
    pub(crate) fn submit_some(&mut self, node: NodeId, id: LinkId, count: usize) {
        for _ in 0..count {
            let Self { nodes, rng, large, .. } = self;
            let node = &mut nodes[node];
            if !node.has_room(id) {
                return;
            }
            let frame = Planned::random(node.next_number(id), M::MOST_PAYLOAD, *large, rng);
            if frame.is_unordered() && !node.may_send_unordered(id) {
                continue;
            }
            if node.submit(id, frame, Manner::random(rng), rng) != ControlSubmitted::Taken {
                return;
            }
        }
    }

    /// Submits a frame on a link between nodes that read.
    pub(crate) fn submit_surely(&mut self, node: NodeId, id: LinkId, frame: &Planned, manner: Manner) {
        loop {
            let Self { nodes, rng, .. } = self;
            match nodes[node].submit(id, frame.clone(), manner, rng) {
                ControlSubmitted::Taken => return,
                ControlSubmitted::Full => self.until("room", |world| world.nodes[node].has_room(id)),
                ControlSubmitted::Broken => panic!("link {} is broken", id.0),
            }
        }
    }

    /// A node's open links on which it may submit.
    pub(crate) fn writable_links(&self, node: NodeId) -> Vec<LinkId> {
        let node = &self.nodes[node];
        node.open_links().into_iter().filter(|id| !node.is_shut_down(*id)).collect()
    }

    /// Ends a node: its peers must notice.
    pub(crate) fn kill(&mut self, node: NodeId) {
        let Node { transport, observer, .. } = self.nodes.remove(node);
        for link in observer.links.values() {
            let channel = &mut self.ledger.borrow_mut().channels[link.channel];
            channel.end(End::Vanish(link.side));
            channel.sides[link.side] = Side::Over;
        }
        // The node has not seen these requests yet.
        let here = transport.local_addr();
        let unseen = |channel: &&mut Channel| channel.sides[ACCEPTOR] == Side::Unaware && channel.to == here;
        for channel in self.ledger.borrow_mut().channels.iter_mut().filter(unseen) {
            channel.end(End::Vanish(ACCEPTOR));
        }
        drop(transport);
    }

    /// Breaks the connections under all links.
    pub(crate) fn break_links(&mut self) {
        for channel in &mut self.ledger.borrow_mut().channels {
            if channel.sides != [Side::Over; 2] {
                channel.end(End::Broken);
            }
        }
        self.medium.break_links();
    }

    /// Polls a node unless it stays asleep. True if anything happened.
    pub(crate) fn step(&mut self, node: NodeId) -> bool {
        let Self { medium, nodes, rng, .. } = self;
        let node = &mut nodes[node];
        let mut is_busy = false;
        if node.observer.has_waiting() && rng.bool() {
            is_busy = node.take_offers();
            assert!(!is_busy || node.transport.is_busy(), "a transport that has taken offers is not busy");
        }
        if node.asleep {
            if !is_busy && !medium.is_readable(&node.transport) && !node.is_due() {
                return false;
            }
            node.wake(rng.bool());
        }
        node.poll()
    }

    /// Polls a node; the result must be true if there were events.
    pub(crate) fn expect_activity(&mut self, node: NodeId) {
        let Node { transport, observer, .. } = &mut self.nodes[node];
        let before = observer.events;
        let any = transport.poll(observer);
        assert!(any || observer.events == before, "a poll reported events and returned false");
    }

    /// A node falls asleep if there is nothing to do.
    pub(crate) fn fall_asleep(&mut self, node: NodeId) -> bool {
        let Self { medium, nodes, .. } = self;
        let node = &mut nodes[node];
        if !M::has(Need::Sleep) || node.asleep || !node.fall_asleep() {
            return false;
        }
        let left = node.transport.unfinished().filter(|_| !medium.is_readable(&node.transport) && !node.is_due());
        assert!(left.is_none(), "a transport fell asleep with unfinished work: {left:?}");
        true
    }

    /// Steps all nodes in random order. True if anything happened.
    fn step_all(&mut self) -> bool {
        let mut order: Vec<NodeId> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut order);
        order.into_iter().fold(false, |any, node| self.step(node) | any)
    }

    /// Steps all nodes until a condition holds.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = clock::now() + M::WATCHDOG;
        while !is_so(self) {
            if !self.step_all() {
                self.nodes.iter_mut().for_each(|node| node.transport.wait(PAUSE));
            }
            self.watch(end, what);
        }
    }

    /// Lets only one node make progress until a condition holds.
    pub(crate) fn until_alone(&mut self, node: NodeId, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = clock::now() + M::WATCHDOG;
        while !is_so(self) {
            if !self.step(node) {
                self.nodes[node].transport.wait(PAUSE);
            }
            self.watch(end, what);
        }
    }

    fn watch(&self, end: Instant, what: &str) {
        assert!(clock::now() < end, "{what}: did not happen in time\n{}", self.describe());
    }

    fn describe(&self) -> String {
        let nodes = self.nodes.iter().enumerate().map(|(number, node)| {
            let Node { transport, observer, asleep, .. } = node;
            let (busy, left, due) = (transport.is_busy(), transport.unfinished(), transport.next_deadline());
            let due = due.map(|due| due.since(transport.now()));
            let kept = observer.kept.len();
            format!("\nnode {number}: asleep {asleep}, busy {busy}, due in {due:?}, kept {kept}, left {left:?}")
        });
        self.ledger.borrow().describe() + &nodes.collect::<String>()
    }

    /// True if no further event is expected.
    fn is_settled(&self) -> bool {
        self.ledger.borrow().is_settled() && !self.nodes.iter().any(|node| node.observer.is_waiting(|_| true))
    }

    /// Lets the nodes make progress, and sleep if they can, until all frames have arrived and all
    /// links that must end have ended. Fails if all nodes sleep before that.
    pub(crate) fn settle(&mut self) {
        let end = clock::now() + M::WATCHDOG;
        let mut idle = 0;
        loop {
            let any = self.step_all();
            self.shut_down_again();
            if any {
                idle = 0;
                self.watch(end, "everything arrives and ends");
                continue;
            }
            if self.is_settled() {
                return;
            }
            let asleep =
                (0..self.nodes.len()).filter(|node| self.nodes[*node].asleep || self.fall_asleep(*node)).count();
            let waits = self.nodes.iter().any(|node| node.observer.has_waiting());
            if asleep == self.nodes.len() && !waits {
                self.pass_time();
            }
            idle += 1;
            if idle > MOST_IDLE {
                // A transport that does not sleep waits for real time to pass.
                std::thread::park_timeout(PAUSE);
            }
            self.watch(end, "everything arrives and ends");
        }
    }

    /// Handles the state in which all nodes sleep although events are expected.
    fn pass_time(&mut self) {
        let Self { medium, nodes, .. } = &*self;
        if nodes.iter().any(|node| medium.is_readable(&node.transport) || node.is_due()) {
            return;
        }
        if M::SYNCHRONOUS {
            assert!(!self.is_stuck(), "all transports sleep, and none will wake up\n{}", self.describe());
        }
        // Links that end may wait for a deadline.
        let next = self.nodes.iter_mut().filter_map(|node| {
            let due = node.transport.next_deadline()?;
            Some((due.since(node.transport.now()), node))
        });
        match next.min_by_key(|(due, _)| *due) {
            Some((due, node)) if M::SYNCHRONOUS => node.transport.wait(due.max(PAUSE)),
            _ => self.nodes.iter_mut().for_each(|node| node.transport.wait(PAUSE)),
        }
    }

    /// True if an expected event waits for no deadline: only ending links, and requests with
    /// [`Medium::RETRIES_REQUESTS`], may wait for one.
    fn is_stuck(&self) -> bool {
        let ledger = self.ledger.borrow();
        let stays_up = |link: &Link| !ledger.channels[link.channel].may_end();
        let is_retried = |channel: &Channel| M::RETRIES_REQUESTS && channel.sides == [Side::Connecting, Side::Unaware];
        ledger.channels.iter().any(|channel| channel.is_undelivered() && !is_retried(channel))
            || self.nodes.iter().any(|node| node.observer.is_waiting(stays_up))
            || self.nodes.iter().all(|node| node.transport.next_deadline().is_none())
    }

    /// Checks the shutdown of each link again, as close does.
    fn shut_down_again(&mut self) {
        for node in &mut self.nodes {
            for id in node.open_links().into_iter().filter(|id| node.is_shut_down(*id)).collect::<Vec<_>>() {
                let _ = node.shutdown(id);
            }
        }
    }

    /// Flushes all nodes.
    pub(crate) fn flush_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.flush(Flush::All));
    }
}
