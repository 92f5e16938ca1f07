//! An endpoint with its queues and its address vector, and the outcomes of its operations.

use crate::op::{Memory, Message, Receive};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, BindFlags, Caps, Completion, Errno, Failure, FiAddr, OpFlags};
use ofi_engine::completion::eq::Owner;
use ofi_engine::endpoint::{Config, Endpoint, Opener};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::target::mr::Regions;
use ofi_engine::transport::Transport;
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_engine::{AddressVector, Backstop, CompletionQueue, EventQueue, Waiting};
use ofi_memory::{Buffer, Loan};
use ofi_os::membarrier;
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use std::collections::HashMap;
use std::sync::Arc;

/// How to open an endpoint.
#[derive(Clone, Debug)]
pub struct Options {
    /// The requested address.
    pub addr: Option<Addr>,
    /// Capabilities.
    pub caps: Caps,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Maximum number of posted receives.
    pub rx_size: usize,
    /// Message size limits.
    pub limits: Limits,
    /// Random number that identifies the endpoint.
    pub nonce: [u8; 16],
    /// The provider's name, for logs.
    pub provider: &'static str,
    /// Maximum memory held for peers, in bytes.
    pub memory: usize,
    /// Size of the completion queues, in entries, and of the address vector, in addresses.
    pub sizes: (usize, usize),
    /// Whether and how the completion queues are waited on.
    pub waiting: Waiting,
    /// Flags of the queues' bindings besides the direction.
    pub bind: BindFlags,
    /// With buffered receives (FI_BUFFERED_RECV): what stands for the C object, and
    /// FI_OPT_BUFFERED_MIN in bytes.
    pub buffered: Option<(usize, usize)>,
}

impl Default for Options {
    fn default() -> Self {
        let several = Caps::MULTI_RECV | Caps::TAGGED_MULTI_RECV;
        let ways = Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        let one_sided = Caps::RMA | Caps::ATOMIC | Caps::RMA_EVENT | ways;
        let sources = Caps::DIRECTED_RECV | Caps::SOURCE;
        Self {
            addr: None,
            caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV | sources | several | one_sided,
            tx_size: 1024,
            rx_size: 1 << 20,
            limits: Limits::new(usize::MAX, 4096),
            nonce: ofi_os::random(),
            provider: "rig",
            memory: 256 << 20,
            sizes: (64, 4),
            waiting: Waiting::Sleeping,
            bind: BindFlags::empty(),
            buffered: None,
        }
    }
}

/// How an operation ended.
pub type Outcome = Result<Completion, Box<Failure>>;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// A receive of one message.
    Receive,
    /// A multi-receive buffer.
    MultiRecv,
    /// A call that acts on an unexpected message: FI_PEEK, FI_CLAIM, FI_DISCARD.
    Peek,
    /// A one-sided operation.
    Access,
    /// A peer's one-sided operation with a completion at this side.
    Notice,
}

/// A completion that was read.
#[derive(Debug)]
pub struct Finished {
    /// The kind of the operation.
    pub kind: Kind,
    /// The outcome.
    pub outcome: Outcome,
    /// Offset of the message in a multi-receive buffer.
    pub at: usize,
    /// The operation's memory; for a multi-receive buffer the part with the message, or all of it
    /// if there is no message.
    pub bytes: Vec<u8>,
}

impl Finished {
    /// The entry of a success or of an error.
    pub fn completion(&self) -> &Completion {
        self.outcome.as_ref().unwrap_or_else(|failure| &failure.completion)
    }
}

/// An accepted operation.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) kind: Kind,
    /// Its success is not reported.
    pub(crate) suppressed: bool,
    pub(crate) loan: Option<Loan>,
}

/// The context of inject calls, which have none.
pub(crate) const INJECTED: usize = 0;
/// Entries per read: few, so that reads leave some behind.
const READ: usize = 8;

/// An endpoint with its queues and its address vector.
#[derive(Debug)]
pub struct Side<T: Transport> {
    /// The endpoint.
    pub ep: Arc<Endpoint<T, Park>>,
    /// Receives complete here, and sends too unless `sent` exists.
    pub cq: Arc<CompletionQueue<Park>>,
    /// The queue of sends, if it is a separate one.
    pub sent: Option<Arc<CompletionQueue<Park>>>,
    /// Its address vector.
    pub av: Arc<AddressVector>,
    /// The account of the memory held for its peers.
    pub account: Arc<Account>,
    /// Its registered memory.
    pub regions: Arc<Regions>,
    pub(crate) selective: bool,
    next: usize,
    pub(crate) pending: HashMap<usize, Pending>,
    finished: HashMap<usize, Vec<Finished>>,
}

impl<T: Transport> Side<T> {
    /// Opens an endpoint whose queue sleeps on `wait_object`. `opener` gets the endpoint's account.
    pub fn open(
        options: Options,
        wait_object: Arc<dyn WaitObject>,
        opener: impl FnOnce(&Arc<Account>) -> Opener<T>,
    ) -> Self {
        let av = Arc::new(AddressVector::new(options.sizes.1, false));
        Self::open_with(options, av, wait_object, None, opener)
    }

    /// The same with an address vector that other endpoints may share.
    pub fn open_sharing(
        options: Options,
        av: Arc<AddressVector>,
        wait_object: Arc<dyn WaitObject>,
        opener: impl FnOnce(&Arc<Account>) -> Opener<T>,
    ) -> Self {
        Self::open_with(options, av, wait_object, None, opener)
    }

    /// The same as [`Self::open`] with a queue of its own for sends.
    pub fn open_split(
        options: Options,
        received: Arc<dyn WaitObject>,
        sent: Arc<dyn WaitObject>,
        opener: impl FnOnce(&Arc<Account>) -> Opener<T>,
    ) -> Self {
        let av = Arc::new(AddressVector::new(options.sizes.1, false));
        Self::open_with(options, av, received, Some(sent), opener)
    }

    /// A context of a scalable endpoint, whose address vector is `av`, that transmits or receives.
    /// `open` makes it with that configuration.
    pub fn open_context(
        options: Options,
        av: Arc<AddressVector>,
        wait_object: Arc<dyn WaitObject>,
        way: BindFlags,
        open: impl FnOnce(Config) -> Arc<Endpoint<T, Park>>,
    ) -> Self {
        let transmits = Caps::SEND | Caps::READ | Caps::WRITE;
        let (mut options, other) = (options, way == BindFlags::TRANSMIT);
        options.caps -= if other { Caps::RECEIVE - Caps::TRANSMIT } else { transmits };
        Self::open_with_endpoint(options, av, (wait_object, None), Some(way), |config, _| open(config))
    }

    /// A connected endpoint (FI_EP_MSG), which ignores addresses in operations. `eq` gets its
    /// events.
    pub fn open_connected(
        options: Options,
        wait_object: Arc<dyn WaitObject>,
        eq: &Arc<EventQueue>,
        opener: impl FnOnce(&Arc<Account>) -> Opener<T>,
    ) -> Self {
        let av = Arc::new(AddressVector::new(1, false));
        Self::open_with_endpoint(options, av, (wait_object, None), None, |config, addr| {
            let opener = opener(&config.account);
            let config = Config { kind: EndpointKind::Msg, ..config };
            let ep = Endpoint::new(membarrier::locks(), config, addr, opener, None);
            ep.bind_eq(eq, Owner(1)).expect("the first event queue");
            ep
        })
    }

    fn open_with(
        options: Options,
        av: Arc<AddressVector>,
        received: Arc<dyn WaitObject>,
        sent: Option<Arc<dyn WaitObject>>,
        opener: impl FnOnce(&Arc<Account>) -> Opener<T>,
    ) -> Self {
        Self::open_with_endpoint(options, av.clone(), (received, sent), None, |config, addr| {
            let opener = opener(&config.account);
            let ep = Endpoint::new(membarrier::locks(), config, addr, opener, None);
            ep.bind_av(&av).expect("the first address vector");
            ep
        })
    }

    fn open_with_endpoint(
        options: Options,
        av: Arc<AddressVector>,
        (received, sent): (Arc<dyn WaitObject>, Option<Arc<dyn WaitObject>>),
        only: Option<BindFlags>,
        open: impl FnOnce(Config, Option<Addr>) -> Arc<Endpoint<T, Park>>,
    ) -> Self {
        let Options {
            addr,
            caps,
            tx_size,
            rx_size,
            limits,
            nonce,
            provider,
            memory,
            sizes: (cq_size, _),
            waiting,
            bind,
            buffered,
            ..
        } = options;
        let (kind, contexts, account) = (EndpointKind::Rdm, Contexts::default(), Arc::new(Account::new(memory)));
        let regions = Arc::new(Regions::default());
        let config = Config {
            kind,
            caps,
            tx_size,
            rx_size,
            limits,
            nonce,
            provider,
            regions: regions.clone(),
            account: account.clone(),
            contexts,
        };
        let ep = open(config, addr);
        // Tests make the calls that send what is held.
        ep.set_backstop(&Backstop::new(Box::new(|_| true)));
        if let Some((object, least)) = buffered {
            ep.serve_legacy(Some(object));
            ep.set_buffered_min(least).expect("it is not too long");
        }
        let queue = |wait_object| Arc::new(CompletionQueue::new(membarrier::locks(), cq_size, wait_object, waiting));
        let (cq, sent) = (queue(received), sent.map(queue));
        let transmit = if sent.is_some() { BindFlags::empty() } else { BindFlags::TRANSMIT };
        ep.bind_cq(&cq, only.unwrap_or(BindFlags::RECV | transmit) | bind).expect("the first queue");
        if let Some(sent) = &sent {
            ep.bind_cq(sent, BindFlags::TRANSMIT | bind).expect("the first queue of sends");
        }
        ep.enable().expect("everything is bound");
        let selective = bind.contains(BindFlags::SELECTIVE_COMPLETION);
        let (pending, finished) = (HashMap::new(), HashMap::new());
        Self { ep, cq, sent, av, account, regions, selective, next: INJECTED + 1, pending, finished }
    }

    /// The address of the endpoint.
    pub fn addr(&self) -> Addr {
        self.ep.local_addr().expect("it is open")
    }

    /// Inserts a peer into the address vector.
    pub fn know(&self, peer: impl Into<Addr>) -> FiAddr {
        self.av.insert(peer.into())
    }

    /// The context of the next operation; contexts count up from 1.
    pub const fn next_context(&self) -> usize {
        self.next
    }

    pub(crate) fn context(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    /// Sends a message; returns its context.
    ///
    /// # Errors
    /// Those of [`MessageOps::send`].
    pub fn try_post(&mut self, message: Message) -> Result<usize, Errno> {
        let Message { dest, memory, tag, data, flags, inject } = message;
        let context = if inject { INJECTED } else { self.context() };
        let (loan, buffer) = lend(memory);
        let posted = self.ep.send(SendOp { dest, buffer, context, tag, data, flags, inject });
        let given_back = inject || flags.contains(OpFlags::INJECT) || posted.is_err();
        let kept = if given_back {
            // The peer must not see later writes.
            loan.map(Loan::end).iter_mut().for_each(|bytes| bytes.fill(0xee));
            None
        } else {
            loan
        };
        posted?;
        let suppressed = self.selective && !flags.contains(OpFlags::COMPLETION);
        if !inject {
            self.pending.insert(context, Pending { kind: Kind::Send, suppressed, loan: kept });
        }
        Ok(context)
    }

    /// Sends a message when the queue is not full; returns its context.
    pub fn post(&mut self, message: Message) -> usize {
        self.try_post(message).expect("few are outstanding")
    }

    /// Posts a receive; returns its context.
    ///
    /// # Errors
    /// Those of [`MessageOps::receive`].
    pub fn try_post_receive(&mut self, receive: Receive) -> Result<usize, Errno> {
        let context = self.context();
        self.try_post_receive_as(context, receive)
    }

    /// The same with the context of an earlier operation, as FI_CLAIM requires.
    ///
    /// # Errors
    /// Those of [`MessageOps::receive`].
    pub fn try_post_receive_as(&mut self, context: usize, receive: Receive) -> Result<usize, Errno> {
        let Receive { src, memory, tag, flags } = receive;
        let (loan, buffer) = lend(memory);
        if let Err(errno) = self.ep.receive(RecvOp { src, buffer, context, tag, flags }) {
            drop(loan.map(Loan::end));
            return Err(errno);
        }
        let kind = if flags.intersects(OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD) {
            Kind::Peek
        } else if flags.contains(OpFlags::MULTI_RECV) {
            Kind::MultiRecv
        } else {
            Kind::Receive
        };
        // The outcome of a peek is always reported.
        let peek = flags.contains(OpFlags::PEEK);
        let suppressed = self.selective && !flags.contains(OpFlags::COMPLETION) && !peek;
        let before = self.pending.insert(context, Pending { kind, suppressed, loan });
        assert!(before.is_none(), "context {context} is in use");
        Ok(context)
    }

    /// Posts a receive when the queue is not full; returns its context.
    pub fn post_receive(&mut self, receive: Receive) -> usize {
        self.try_post_receive(receive).expect("few are posted")
    }

    /// Sends a tagged message; returns its context.
    pub fn send(&mut self, to: FiAddr, tag: u64, bytes: Vec<u8>) -> usize {
        self.post(Message::new(to, bytes).tagged(tag))
    }

    /// Posts a receive for a tag from `src`; returns its context.
    pub fn receive(&mut self, src: FiAddr, tag: u64, len: usize) -> usize {
        self.post_receive(Receive::new(len).tagged(tag).from(src))
    }

    /// Makes progress and records the outcomes of completed operations. True if there were any.
    pub fn progress(&mut self) -> bool {
        let finished = self.reap();
        let any = !finished.is_empty();
        for one in finished {
            self.finished.entry(one.completion().context).or_default().push(one);
        }
        any
    }

    /// Makes progress and returns the completions instead of recording them.
    pub fn reap(&mut self) -> Vec<Finished> {
        let mut finished = self.reap_from(&self.cq.clone());
        finished.extend(self.reap_sent());
        finished
    }

    /// The same for the queue of sends alone, if there is one.
    pub fn reap_sent(&mut self) -> Vec<Finished> {
        self.sent.clone().map_or_else(Vec::new, |sent| self.reap_from(&sent))
    }

    fn reap_from(&mut self, cq: &CompletionQueue<Park>) -> Vec<Finished> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        loop {
            match cq.read(READ, |completion| outcomes.push(Ok(*completion))) {
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    assert_eq!(errno, Errno::EAVAIL);
                    let failure = cq.read_error().expect("EAVAIL means that there is an error");
                    assert!(!failure.text.is_empty(), "an error has a cause: {failure:?}");
                    outcomes.push(Err(Box::new(failure)));
                }
            }
        }
        outcomes.into_iter().map(|outcome| self.settle(outcome)).collect()
    }

    /// Records the completion of an operation, or of a part of it.
    fn settle(&mut self, outcome: Outcome) -> Finished {
        let completion = *outcome.as_ref().unwrap_or_else(|failure| &failure.completion);
        if completion.context == INJECTED {
            let from_peer = completion.flags.contains(OpFlags::REMOTE_WRITE);
            assert!(outcome.is_err() || from_peer, "an inject call reports no success: {outcome:?}");
            let kind = if from_peer { Kind::Notice } else { Kind::Send };
            return Finished { kind, outcome, at: 0, bytes: Vec::new() };
        }
        let Some(pending) = self.pending.get(&completion.context) else {
            panic!("every operation completes once: {outcome:?}");
        };
        let kind = pending.kind;
        let released = completion.flags.contains(OpFlags::MULTI_RECV);
        assert!(!pending.suppressed || released || outcome.is_err(), "a suppressed success is reported: {outcome:?}");
        let (mut at, mut bytes) = (0, None);
        if let (Kind::MultiRecv, Some(loan), 1..) = (kind, &pending.loan, completion.buf) {
            at = completion.buf - loan.address();
            let message = loan.copy(at, completion.len);
            assert_eq!(message.len(), completion.len, "a message lies in its buffer: {outcome:?}");
            bytes = Some(message);
        }
        if kind != Kind::MultiRecv || released {
            let loan = self.pending.remove(&completion.context).and_then(|pending| pending.loan);
            let whole = loan.map(Loan::end);
            bytes = bytes.or(whole);
        }
        Finished { kind, outcome, at, bytes: bytes.unwrap_or_default() }
    }

    /// The recorded completions of an operation; a multi-receive buffer has several.
    pub fn finished(&self, context: usize) -> &[Finished] {
        self.finished.get(&context).map_or(&[], Vec::as_slice)
    }

    /// Takes the recorded completions of an operation.
    pub fn take(&mut self, context: usize) -> Vec<Finished> {
        self.finished.remove(&context).unwrap_or_default()
    }

    /// The outcome of an operation, if it has ended.
    pub fn outcome(&self, context: usize) -> Option<&Outcome> {
        self.finished(context).last().map(|one| &one.outcome)
    }

    /// Whether an operation has succeeded.
    pub fn is_done(&self, context: usize) -> bool {
        matches!(self.outcome(context), Some(Ok(_)))
    }

    /// The errors of inject calls.
    pub fn inject_errors(&self) -> &[Finished] {
        self.finished(INJECTED)
    }

    /// The contexts of the operations of some kinds that have not completed, in order. Operations
    /// whose success is not reported do not count.
    pub fn unfinished(&self, kinds: &[Kind]) -> Vec<usize> {
        let open = |pending: &Pending| kinds.contains(&pending.kind) && !pending.suppressed;
        let open = self.pending.iter().filter(|(_, pending)| open(pending));
        let mut contexts: Vec<usize> = open.map(|(context, _)| *context).collect();
        contexts.sort_unstable();
        contexts
    }

    /// The contexts of all operations that have not completed, in order.
    pub fn pending(&self) -> Vec<usize> {
        self.unfinished(&[Kind::Send, Kind::Receive, Kind::MultiRecv, Kind::Peek, Kind::Access])
    }

    /// Closes the endpoint if it is open, and forgets the operations that have not completed.
    pub fn close(&mut self) {
        self.ep.close();
        // A closed endpoint touches no buffer.
        self.pending.drain().filter_map(|(_, pending)| pending.loan).for_each(|loan| drop(loan.end()));
    }
}

pub(crate) fn lend(memory: Memory) -> (Option<Loan>, Buffer) {
    match memory {
        Memory::Ours(bytes) => {
            let (loan, buffer) = Loan::new(bytes);
            (Some(loan), buffer)
        }
        Memory::Theirs(buffer) => (None, buffer),
    }
}
