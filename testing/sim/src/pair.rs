//! Two endpoints that exchange one message after the other, for programs that count the cost.

use crate::raw::connect_hello;
use crate::wire::{MOST, Wire};
use crate::{Faults, World};
use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, Caps, FiAddr, OpFlags};
use ofi_engine::Waiting;
use ofi_engine::endpoint::Opener;
use ofi_engine::limits::Limits;
use ofi_engine::op::{AtomicCall, MessageOps, OneSidedOps, RecvOp, Remote, RmaKind, RmaOp, SendOp};
use ofi_engine::transport::Transport;
use ofi_memory::Buffer;
use ofi_os::socket::Socket;
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Options, Side};
use ofi_shm::ShmTransport;
use ofi_shm::transport as shm;
use ofi_tcp::net::{Net, System};
use ofi_tcp::transport::{Settings, TcpTransport};
use ofi_tcp::writer::Writer;
use std::net::SocketAddr;
use std::sync::Arc;

/// One of the two endpoints, with the capabilities that most programs ask for.
fn side<T: Transport>(opener: Opener<T>, nonce: u8, port: Arc<dyn WaitObject>) -> Side<T> {
    let options = Options {
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV | Caps::RMA | Caps::ATOMIC,
        tx_size: 64,
        rx_size: 1 << 16,
        limits: Limits::new(usize::MAX, MOST),
        nonce: [nonce; 16],
        provider: "pair",
        sizes: (64, 1),
        waiting: Waiting::Never,
        ..Options::default()
    };
    Side::open(options, port, |_| opener)
}

/// Both sides with memory between them, to measure the cost of the engine alone.
pub fn in_memory() -> (Side<Wire>, Side<Wire>) {
    let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
    let world = World::new(0, Faults { stall: 0, split: false });
    let (left, right) = Wire::pair(addr(1), addr(2));
    let open = |wire: Wire, nonce| {
        let mut wire = Some(wire);
        side(Box::new(move |_| Ok(wire.take().expect("opened once"))), nonce, world.port())
    };
    let (a, b) = (open(left, 1), open(right, 2));
    a.know(addr(2));
    b.know(addr(1));
    (a, b)
}

/// Both sides with the system's sockets between them.
///
/// # Panics
/// If the system provides no sockets.
pub fn over_tcp() -> (Side<TcpTransport<System>>, Side<TcpTransport<System>>) {
    let open = |nonce| {
        let here = Addr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let system = || System::new().expect("descriptors are free");
        let opener = Box::new(move |_| TcpTransport::listening(system(), here, Settings::default()));
        side(opener, nonce, Arc::new(FdWaitObject::new(false).expect("descriptors are free")))
    };
    let (a, b) = (open(1), open(2));
    a.know(b.addr());
    b.know(a.addr());
    (a, b)
}

/// Both sides with shared memory between them, in one process.
///
/// # Panics
/// If the system provides no shared memory.
pub fn over_shm() -> (Side<ShmTransport>, Side<ShmTransport>) {
    let open = |nonce| {
        let opener = Box::new(|_| ShmTransport::new(None, shm::Settings::default()));
        side(opener, nonce, Arc::new(FdWaitObject::new(false).expect("descriptors are free")))
    };
    let (a, b) = (open(1), open(2));
    a.know(b.addr());
    b.know(a.addr());
    (a, b)
}

/// Fills the queues of `b` with receives that no message matches, and with messages from `a` that
/// match no receive.
///
/// # Panics
/// If a queue has no room for them.
pub fn fill_queues<T: Transport>(a: &Side<T>, b: &Side<T>, count: u64) {
    let flags = OpFlags::empty();
    for number in 0..count {
        let (buffer, tag) = (Buffer::Owned(vec![0; 8]), Some((1 << 32 | number, 0)));
        let receive = RecvOp { src: FiAddr::UNSPEC, buffer, context: 2, tag, flags };
        b.ep.receive(receive).expect("there is room");
        let (dest, buffer, tag) = (FiAddr(0), Buffer::Owned(vec![0; 8]), Some(2 << 32 | number));
        let send = SendOp { dest, buffer, context: 1, tag, data: None, flags, inject: false };
        a.ep.send(send).expect("there is room");
        let mut sent = 0;
        while sent == 0 {
            sent = a.cq.read(1, |done| assert_eq!(done.context, 1)).unwrap_or(0);
            assert!(b.cq.read(1, |_| ()).is_err(), "no receive fits");
        }
    }
}

/// Connections from peers that send nothing.
#[derive(Debug)]
pub struct IdlePeers {
    _net: System,
    _sockets: Vec<Socket>,
}

/// Connects idle peers to `side`.
///
/// # Panics
/// If the system has no descriptors for them.
pub fn idle_peers(side: &Side<TcpTransport<System>>, count: u64) -> IdlePeers {
    let to = side.ep.local_addr().expect("it is open").socket();
    let (mut net, mut sockets) = (System::new().expect("descriptors are free"), Vec::new());
    for number in 0..count {
        let socket = net.connect(to, None).expect("descriptors are free");
        while net.connected(&socket).is_none() {}
        let mut nonce = [0xff; 16];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let mut writer = Writer::default();
        writer.push_hello(&connect_hello(Addr::from(net.local_addr(&socket).expect("it is bound")), nonce).encode());
        let sent = writer.with_chunks(|chunks| net.send(&socket, chunks)).expect("a fresh connection has room");
        writer.advance(sent, |_, _| ());
        assert!(writer.is_empty(), "a fresh connection has room");
        assert!(side.cq.read(1, |_| ()).is_err(), "idle peers send no messages");
        sockets.push(socket);
    }
    IdlePeers { _net: net, _sockets: sockets }
}

/// Sends, matches, completes and reads one tagged message from `a` to `b`.
///
/// # Panics
/// If a queue is full.
#[inline]
pub fn message<T: Transport>(a: &Side<T>, b: &Side<T>, from: Buffer, to: Buffer) {
    let receive = RecvOp { src: FiAddr::UNSPEC, buffer: to, context: 2, tag: Some((7, 0)), flags: OpFlags::empty() };
    b.ep.receive(receive).expect("there is room");
    let (dest, flags) = (FiAddr(0), OpFlags::empty());
    let send = SendOp { dest, buffer: from, context: 1, tag: Some(7), data: None, flags, inject: false };
    a.ep.send(send).expect("there is room");
    let (mut sent, mut got) = (0, 0);
    while sent + got < 2 {
        sent += a.cq.read(1, |done| assert_eq!(done.context, 1)).unwrap_or(0);
        got += b.cq.read(1, |done| assert_eq!((done.context, done.len), (2, 8))).unwrap_or(0);
    }
}

/// Writes 8 bytes from `a` to the start of the region of `b` with this key, and reads the
/// completion.
///
/// # Panics
/// If the queue is full.
#[inline]
pub fn write<T: Transport>(a: &Side<T>, b: &Side<T>, key: u64, from: Buffer) {
    a.ep.rma(write_op(key, from)).expect("there is room");
    complete(a, b);
}

/// Adds to the word at the start of the region of `b` with this key, and reads the completion, with
/// which `result` has the previous value.
///
/// # Panics
/// If the queue is full.
#[inline]
pub fn fetch_add<T: Transport>(a: &Side<T>, b: &Side<T>, key: u64, operand: Buffer, result: Buffer) {
    a.ep.atomic(fetch_add_call(key, operand, result)).expect("there is room");
    complete(a, b);
}

/// An 8-byte write to the first peer, with context 1.
pub fn write_op(key: u64, buffer: Buffer) -> RmaOp {
    let (kind, peer, remote) = (RmaKind::Write, FiAddr(0), Remote::one(0, 8, key));
    RmaOp { kind, peer, buffer, remote, context: 1, data: None, flags: OpFlags::empty(), inject: false }
}

/// A fetch-add on a word of the first peer, with context 1.
pub fn fetch_add_call(key: u64, operand: Buffer, result: Buffer) -> AtomicCall {
    AtomicCall {
        kind: AtomicKind::Fetch,
        op: AtomicOp::Sum,
        datatype: Datatype::Uint64,
        peer: FiAddr(0),
        operands: operand,
        compare: Buffer::empty(),
        result,
        remote: Remote::one(0, 8, key),
        context: 1,
        data: None,
        flags: OpFlags::empty(),
        inject: false,
    }
}

/// Makes progress on both sides until `a` has a completion.
#[inline]
fn complete<T: Transport>(a: &Side<T>, b: &Side<T>) {
    while a.cq.read(1, |done| assert_eq!(done.context, 1)).unwrap_or(0) == 0 {
        assert!(b.cq.read(1, |_| ()).is_err(), "the target has no completion");
    }
}

/// Sends, matches, completes and reads tagged messages from `a` to `b`, all of which arrive before
/// the first receive is posted.
///
/// # Panics
/// If a queue is full.
pub fn unexpected_messages<T: Transport>(
    a: &Side<T>,
    b: &Side<T>,
    from: impl Iterator<Item = Buffer>,
    to: impl Iterator<Item = Buffer>,
) {
    let (dest, flags) = (FiAddr(0), OpFlags::empty());
    let mut count = 0;
    for buffer in from {
        let send = SendOp { dest, buffer, context: 1, tag: Some(7), data: None, flags, inject: false };
        a.ep.send(send).expect("there is room");
        count += 1;
    }
    let mut sent = 0;
    while sent < count {
        sent += a.cq.read(count, |done| assert_eq!(done.context, 1)).unwrap_or(0);
        assert!(b.cq.read(1, |_| ()).is_err(), "no receive is posted");
    }
    for buffer in to {
        let receive = RecvOp { src: FiAddr::UNSPEC, buffer, context: 2, tag: Some((7, 0)), flags };
        b.ep.receive(receive).expect("there is room");
    }
    let mut got = 0;
    while got < count {
        got += b.cq.read(count, |done| assert_eq!((done.context, done.len), (2, 8))).unwrap_or(0);
    }
}
