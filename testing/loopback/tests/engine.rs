//! Two endpoints of the engine over the example.

use ofi_core::{BindFlags, Caps, Errno, FiAddr, OpFlags};
use ofi_engine::endpoint::{Config, Endpoint};
use ofi_engine::limits::Limits;
use ofi_engine::op::{MessageOps, RecvOp, SendOp};
use ofi_engine::provider::{LinkProvider, OpenArgs, Provider as _};
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_engine::{AddressVector, CompletionQueue, Waiting};
use ofi_loopback::{LoopbackTransport, Provider};
use ofi_memory::{Buffer, Loan};
use ofi_os::wait_fd::FdWaitObject;
use ofi_sync::account::Account;
use ofi_sync::lock::Park;
use std::sync::Arc;

/// The address vector's entry for the other side.
const PEER: FiAddr = FiAddr(0);
const SENT: usize = 1;
const RECEIVED: usize = 2;

struct Side {
    ep: Arc<Endpoint<LoopbackTransport, Park>>,
    cq: Arc<CompletionQueue<Park>>,
    av: Arc<AddressVector>,
    /// The completions that were read: context and length.
    done: Vec<(usize, usize)>,
}

impl Side {
    fn open(nonce: u8) -> Self {
        let account = Arc::new(Account::new(1 << 20));
        let config = Config {
            kind: EndpointKind::Rdm,
            caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV,
            tx_size: 64,
            rx_size: 64,
            limits: Limits::new(usize::MAX, 4096),
            nonce: [nonce; 16],
            provider: Provider::NAME,
            regions: Arc::default(),
            account: account.clone(),
            contexts: Contexts::default(),
        };
        let opener = Box::new(move |addr| Provider.open_rdm(OpenArgs::new(addr, &account)));
        let ep = Endpoint::new(Park::default(), config, None, opener, None);
        let wait_object = Arc::new(FdWaitObject::new(false).unwrap());
        let cq = Arc::new(CompletionQueue::new(Park::default(), 64, wait_object, Waiting::Never));
        let av = Arc::new(AddressVector::new(1, false));
        ep.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
        ep.bind_av(&av).unwrap();
        ep.enable().unwrap();
        Self { ep, cq, av, done: Vec::new() }
    }

    fn pair() -> (Self, Self) {
        let (a, b) = (Self::open(1), Self::open(2));
        a.av.insert(b.ep.local_addr().unwrap());
        b.av.insert(a.ep.local_addr().unwrap());
        (a, b)
    }

    fn send(&self, tag: Option<u64>, bytes: &[u8]) {
        let buffer = Buffer::Owned(bytes.to_vec());
        let flags = OpFlags::empty();
        self.ep.send(SendOp { dest: PEER, buffer, context: SENT, tag, data: None, flags, inject: false }).unwrap();
    }

    /// Posts a receive of up to `len` bytes; returns its memory.
    fn receive(&self, tag: Option<(u64, u64)>, len: usize) -> Loan {
        let (loan, buffer) = Loan::new(vec![0; len]);
        self.ep.receive(RecvOp { src: PEER, buffer, context: RECEIVED, tag, flags: OpFlags::empty() }).unwrap();
        loan
    }

    fn progress(&mut self) {
        let done = &mut self.done;
        let result = self.cq.read(16, |completion| done.push((completion.context, completion.len)));
        assert!(matches!(result, Ok(_) | Err(Errno::AGAIN)), "{result:?}: {:?}", self.cq.read_error());
    }
}

/// Polls both until each has as many completions.
fn until(a: &mut Side, b: &mut Side, done: [usize; 2]) {
    for _ in 0..1000 {
        a.progress();
        b.progress();
        if [a.done.len(), b.done.len()] == done {
            return;
        }
    }
    panic!("an operation does not complete:\n{}\n{}", a.ep.describe(), b.ep.describe());
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

#[test]
fn a_message_arrives_in_each_direction() {
    let (mut a, mut b) = Side::pair();
    let (there, back) = (b.receive(None, 8), a.receive(None, 8));
    a.send(None, b"ping");
    b.send(None, b"pong!");
    until(&mut a, &mut b, [2, 2]);
    assert!(a.done.contains(&(RECEIVED, 5)) && b.done.contains(&(RECEIVED, 4)));
    assert_eq!((there.end(), back.end()), (b"ping\0\0\0\0".to_vec(), b"pong!\0\0\0".to_vec()));
}

#[test]
fn tags_select_among_messages_that_wait() {
    let (mut a, mut b) = Side::pair();
    for (tag, text) in [(1, "one"), (2, "two"), (1, "uno")] {
        a.send(Some(tag), text.as_bytes());
    }
    until(&mut a, &mut b, [3, 0]);
    let loans = [(2, 0), (1, 0), (0, u64::MAX)].map(|tag| b.receive(Some(tag), 3));
    until(&mut a, &mut b, [3, 3]);
    assert_eq!(loans.map(Loan::end), [b"two", b"one", b"uno"]);
}

#[test]
fn a_long_message_travels_by_rendezvous() {
    let bytes = pattern((4 << 20) + 5);
    assert!(bytes.len() > MOST_EAGER, "it is not sent at once");
    let (mut a, mut b) = Side::pair();
    a.send(Some(7), &bytes);
    for _ in 0..10 {
        a.progress();
        b.progress();
    }
    assert_eq!((&a.done, &b.done), (&vec![], &vec![]), "it waits at the sender for a receive");
    let loan = b.receive(Some((7, 0)), bytes.len());
    until(&mut a, &mut b, [1, 1]);
    assert_eq!((&a.done[0].0, &b.done[0]), (&SENT, &(RECEIVED, bytes.len())));
    assert!(loan.end() == bytes, "the bytes arrive unchanged");
}

#[test]
fn a_closed_peer_fails_operations_that_wait_for_it() {
    let (mut a, b) = Side::pair();
    a.send(Some(7), &pattern(MOST_EAGER + 1));
    a.progress();
    b.ep.close();
    drop(b);
    for _ in 0..1000 {
        match a.cq.read(1, |_| ()) {
            Err(Errno::EAVAIL) => {
                let failure = a.cq.read_error().expect("there is one");
                assert_eq!(failure.completion.context, SENT);
                return;
            }
            other => assert_eq!(other, Err(Errno::AGAIN)),
        }
    }
    panic!("the send does not fail:\n{}", a.ep.describe());
}
