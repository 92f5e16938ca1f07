//! A peer that writes garbage all over the memory that it can reach: that costs it its link and
//! others nothing. `OFI_SCRIBBLES=n` runs n peers (default 60).

use ofi_core::addr::Name;
use ofi_core::{Addr, BindFlags, Caps, Errno, FiAddr};
use ofi_engine::provider::{LinkProvider, OpenArgs};
use ofi_engine::wire::hello::{Contexts, Credits, EndpointKind, Handshake, Hello};
use ofi_engine::{AddressVector, ScalableEndpoint};
use ofi_memory::Shared;
use ofi_os::clock;
use ofi_os::control_socket::{ControlSocket, Space};
use ofi_os::descriptor::PrivateFd;
use ofi_os::membarrier;
use ofi_os::process::seam;
use ofi_os::shm::{Mapping, create, sealed_len};
use ofi_os::wait_fd::FdWaitObject;
use ofi_rig::{Options, Receive};
use ofi_shm::{ShmListener, ShmTransport};
use ofi_sync::account::Account;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The layout of what is between the pools of a link, as in `region.rs`.
const RING: usize = 128 * 64;
/// The bytes of the acceptor's bounce buffer, which first has its hello.
const HELLO: usize = 2560 + 128;
const RINGS: usize = 4096;
const MIDDLE: usize = RINGS + 2 * RING;

/// Where the line of that number lies in the initiator's or the acceptor's ring: pages have 32
/// lines of each.
const fn line(of_acceptor: bool, number: usize) -> usize {
    RINGS + 64 * (number / 32 * 64 + number % 32 + 32 * of_acceptor as usize)
}

type Side = ofi_rig::Side<ShmTransport>;

fn open() -> Side {
    let options = Options {
        caps: Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV | Caps::DIRECTED_RECV,
        rx_size: 1024,
        provider: "shm",
        ..Options::default()
    };
    Side::open(options, Arc::new(FdWaitObject::new(true).unwrap()), |account| {
        let account = account.clone();
        Box::new(move |addr| ofi_shm::Provider.open_rdm(OpenArgs::new(addr, &account)))
    })
}

fn send(side: &mut Side, dest: FiAddr, len: usize) -> usize {
    side.send(dest, 1, vec![3; len])
}

fn receive(side: &mut Side, src: FiAddr, len: usize) -> usize {
    side.post_receive(Receive::new(len).matching(0, u64::MAX).from(src))
}

/// The peer: a control socket, and the memory of the link once a request has brought it.
struct Peer {
    socket: ControlSocket,
    identity: u128,
    memory: Option<(Mapping, Shared)>,
    /// The initiator's name, and the number of its request.
    asked: Option<(String, [u8; 8])>,
    /// The memory that it has offered to be read.
    secrets: Vec<Vec<u8>>,
    rng: fastrand::Rng,
}

impl Peer {
    fn read_letter(&mut self) {
        let mut bytes = [0; 1024];
        let Ok(message) = self.socket.receive(&mut bytes) else { return };
        let Some(fd) = message.descriptors.into_iter().next() else { return };
        let number = bytes[24..32].try_into().unwrap();
        self.asked = message.from.map(|from| (from, number));
        let mapping = Mapping::new(fd.as_fd(), sealed_len(fd.as_fd()).unwrap()).unwrap();
        // From behind the pool of the initiator on.
        let pool = (mapping.len() - MIDDLE) / 2;
        // SAFETY: the mapping is longer than that.
        let middle = unsafe { mapping.base().add(pool) };
        // SAFETY: the mapping is kept beside the value, and nothing forms references to it.
        let memory = unsafe { Shared::new(middle, mapping.len() - pool) };
        self.memory = Some((mapping, memory));
        if self.rng.u8(0..8) > 0 {
            self.answer();
        }
    }

    /// Accepts the link, so that frames flow.
    fn answer(&mut self) {
        let Some((_, memory)) = &self.memory else { return };
        let grant = Credits { bytes: 1 << 21, eager: 1 << 18, requests: 64, preview: 0 };
        let (handshake, kind, nonce) = (Handshake::Accept, EndpointKind::Rdm, [9; 16]);
        let (cookie, contexts, data) = ([3; 16], Contexts::default(), Vec::new());
        let hello = Hello { handshake, kind, nonce, attempt: 1, cookie, credits: grant, contexts, name: None, data };
        let hello = hello.encode();
        memory.write(HELLO, &hello);
        let mut words = [0u64; 8];
        words[0] = 1 << 48 | 4 << 40 | hello.len() as u64;
        let identity = self.identity.to_be_bytes();
        words[1] = u64::from_ne_bytes(identity[..8].try_into().unwrap());
        words[2] = u64::from_ne_bytes(identity[8..].try_into().unwrap());
        for (word, value) in words.into_iter().enumerate().rev() {
            memory.write(line(true, 0) + word * 8, &value.to_le_bytes());
        }
    }

    /// Sends a control message, often invalid: offers a false bitmap, or memory at any address.
    fn send_control_message(&mut self) {
        let Some((to, number)) = &self.asked else { return };
        let rng = &mut self.rng;
        let kind = rng.u8(2..7);
        let secret = rng.u128(..).to_le_bytes().to_vec();
        let at = if rng.u8(0..4) > 0 { secret.as_ptr().addr() as u64 } else { rng.u64(..) };
        let mut message =
            [&b"OFIshm\x09"[..], &[kind], &[7; 16], number, &[rng.u8(0..2)], &at.to_le_bytes(), &secret].concat();
        message.truncate(rng.usize(0..4 * message.len()));
        let memory = sealed(rng.usize(1..3) * 4096);
        // A full socket drops the message.
        drop(self.socket.send(to, &message, &[memory.as_fd()]));
        self.secrets.push(secret);
    }

    /// Writes a word somewhere: anything at all, or nearly a line.
    fn scribble(&mut self) {
        let Some((_, memory)) = &self.memory else { return };
        let rng = &mut self.rng;
        let at = match rng.u8(0..10) {
            // The words of both sides, and those of their bounce buffers.
            0 => rng.usize(0..512) * 8,
            1..=8 => RINGS + rng.usize(0..2 * RING / 8) * 8,
            _ => MIDDLE + rng.usize(0..4096) * 8,
        };
        let value = match rng.u8(0..4) {
            0 => rng.u64(..),
            1 => rng.u64(0..200),
            2 => rng.u64(1..3) << 48 | rng.u64(0..14) << 40 | rng.u64(0..41) << 32 | rng.u64(0..5000),
            _ => rng.u64(1..3) << 48 | rng.u64(5..14) << 40 | rng.u64(1..5) << 35 | rng.u64(0..32 << 20),
        };
        memory.write(at, &value.to_le_bytes());
    }
}

fn sealed(len: usize) -> PrivateFd {
    create(len, 0..0).unwrap()
}

#[test]
fn scribbling_costs_the_scribbler_its_link() {
    let count = std::env::var("OFI_SCRIBBLES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let (mut victim, mut friend) = (open(), open());
    let to_friend = victim.know(friend.addr());
    for seed in 0..count {
        let identity = u128::from_ne_bytes(ofi_os::random());
        let name = format!("fi_shm://{identity:032x}");
        let socket = ControlSocket::bind(&Space::Abstract, &name).unwrap();
        let mut peer = Peer {
            socket,
            identity,
            memory: None,
            asked: None,
            secrets: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
        };
        let addr = Addr::Name(Name::new(&name).unwrap());
        let to_peer = victim.know(addr);
        for len in [8, 90, 5000, 100_000, 1 << 20] {
            receive(&mut victim, to_peer, len);
            send(&mut victim, to_peer, len);
        }
        for step in 0..400 {
            victim.reap();
            peer.read_letter();
            // The peer lets some frames through first.
            if step > peer.rng.usize(0..60) {
                peer.scribble();
                if peer.rng.u8(0..16) == 0 {
                    peer.send_control_message();
                }
            }
        }
        // Other peers are served as before.
        receive(&mut friend, FiAddr::UNSPEC, 70_000);
        send(&mut victim, to_friend, 70_000);
        let end = clock::now() + Duration::from_secs(10);
        while !friend.pending().is_empty() {
            victim.reap();
            friend.reap();
            assert!(clock::now() < end, "seed {seed}: the friend waits\n{}", victim.ep.describe());
        }
        // When the peer is gone, every operation that waits for it completes.
        drop(peer);
        send(&mut victim, to_peer, 8);
        while !victim.pending().is_empty() {
            victim.reap();
            friend.reap();
            assert!(clock::now() < end, "seed {seed}: something never ends\n{}", victim.ep.describe());
        }
        assert!(victim.av.remove(to_peer));
    }
    // Some offers of cross-memory attach succeeded.
    assert!(count < 60 || seam::found() > 0, "no offer of a peer was ever accepted");
    victim.ep.close();
    friend.ep.close();
}

const INLINE: u64 = 1;
const DIRECT: u64 = 6;
const OUTCOME: u64 = 7;
const ABSENT: u64 = 9;
const LARGE: usize = 1 << 20;

impl Peer {
    /// Writes the line of that number of the first lap, its first word last.
    fn write_line(&self, number: usize, head: u64, body: &[u64]) {
        let (_, memory) = self.memory.as_ref().unwrap();
        let at = line(true, number);
        for (word, value) in body.iter().enumerate() {
            memory.write(at + 8 + word * 8, &value.to_le_bytes());
        }
        memory.write(at, &(1 << 48 | head).to_le_bytes());
    }

    /// Writes the RTS of a message of [`LARGE`] bytes.
    fn write_request(&self, line: usize) {
        self.write_line(line, INLINE << 40 | 24 << 32, &[2 | 1 << 8 | 5 << 32, LARGE as u64, 1]);
    }

    /// Writes the first data frame of a message for which the victim's receive has sent a CTS, with
    /// the address of its payload.
    fn write_part(&self, line: usize, kind: u64, place: u64, number: u64) {
        self.write_line(line, kind << 40 | 8 << 32 | LARGE as u64, &[4, 0, 0, 0, 0, place, number]);
    }

    /// The outcomes that the victim sent: number of the payload, and code.
    fn outcomes(&self) -> Vec<(u64, u64)> {
        let (_, memory) = self.memory.as_ref().unwrap();
        let word = |at: usize| {
            let mut bytes = [0; 8];
            memory.read(at, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        let lines = (0..128).map(|number| line(false, number)).filter(|at| word(*at) >> 40 == 1 << 8 | OUTCOME);
        lines.map(|at| (word(at + 8), word(at + 16))).collect()
    }
}

/// A peer whose memory the victim has found to be readable, and which has sent an RTS that the
/// victim has answered with a CTS.
fn lender(victim: &mut Side) -> Peer {
    let identity = u128::from_ne_bytes(ofi_os::random());
    let name = format!("fi_shm://{identity:032x}");
    let socket = ControlSocket::bind(&Space::Abstract, &name).unwrap();
    let rng = fastrand::Rng::with_seed(1);
    let mut peer = Peer { socket, identity, memory: None, asked: None, secrets: Vec::new(), rng };
    let to_peer = victim.know(Addr::Name(Name::new(&name).unwrap()));
    receive(victim, FiAddr::UNSPEC, LARGE);
    send(victim, to_peer, 8);
    peer.read_letter();
    peer.answer();
    peer.write_request(1);
    let (to, number) = peer.asked.clone().unwrap();
    peer.secrets.push(vec![7u8; 16]);
    let secret = &peer.secrets[0];
    let at = secret.as_ptr().addr() as u64;
    let message = [&b"OFIshm\x09"[..], &[5], &[0; 16], &number, &[0], &at.to_le_bytes(), secret].concat();
    peer.socket.send(&to, &message, &[]).unwrap();
    let end = clock::now() + Duration::from_secs(10);
    let before = seam::found();
    while seam::found() == before || victim.pending().len() > 1 {
        victim.reap();
        assert!(clock::now() < end, "the offer was not taken\n{}", victim.ep.describe());
    }
    peer
}

/// A peer gives right and wrong addresses of its messages.
#[test]
fn memory_that_is_not_there_costs_a_peer_its_message() {
    let mut victim = open();
    let peer = lender(&mut victim);
    let end = clock::now() + Duration::from_secs(10);
    // Nothing is mapped there: the payload may still come through the pool or be read elsewhere.
    peer.write_part(2, DIRECT, 8, 77);
    while peer.outcomes().is_empty() {
        victim.reap();
        assert!(clock::now() < end, "the payload that could not be read is not reported\n{}", victim.ep.describe());
    }
    assert_eq!((peer.outcomes(), victim.pending().len()), (vec![(77, 1)], 1));
    let bytes = vec![5u8; LARGE];
    peer.write_part(3, DIRECT, bytes.as_ptr().addr() as u64, 78);
    while !victim.pending().is_empty() {
        victim.reap();
        assert!(clock::now() < end, "the payload that could be read was not\n{}", victim.ep.describe());
    }
    assert_eq!(peer.outcomes(), [(77, 1), (78, 0)]);
    // The peer reports the next payload as absent. Its message fails, and the link goes on.
    receive(&mut victim, FiAddr::UNSPEC, LARGE);
    peer.write_request(4);
    peer.write_part(5, ABSENT, 0, 0);
    while !victim.pending().is_empty() {
        victim.reap();
        assert!(clock::now() < end, "the message whose payload is gone does not fail\n{}", victim.ep.describe());
    }
    assert!(victim.ep.describe().contains("Open"), "{}", victim.ep.describe());
    // A data frame without a message costs the link.
    peer.write_part(6, DIRECT, bytes.as_ptr().addr() as u64, 79);
    while victim.ep.describe().contains("Open") {
        victim.reap();
        assert!(clock::now() < end, "{}", victim.ep.describe());
    }
    assert_eq!(peer.outcomes(), [(77, 1), (78, 0)]);
    victim.ep.close();
}

/// A payload that the peer has taken back is not delivered, though it can be read; a message behind
/// it is.
#[test]
fn a_payload_that_was_taken_back_is_not_delivered() {
    let mut victim = open();
    let peer = lender(&mut victim);
    let end = clock::now() + Duration::from_secs(10);
    let pulled = victim.pending();
    let short = receive(&mut victim, FiAddr::UNSPEC, 8);
    let bytes = vec![5u8; LARGE];
    // A short message behind it, and the gone word of the peer, before the victim polls.
    peer.write_line(3, INLINE << 40 | 16 << 32 | 8, &[1 | 1 << 8, 1, 9]);
    let (_, memory) = peer.memory.as_ref().unwrap();
    memory.write(512 + 128, &1u64.to_le_bytes());
    peer.write_part(2, DIRECT, bytes.as_ptr().addr() as u64, 77);
    let (mut got, mut failed) = (Vec::new(), Vec::new());
    while got.len() + failed.len() < 2 {
        for one in victim.reap() {
            match one.outcome {
                Ok(done) => got.push(done.context),
                Err(failure) => {
                    assert_eq!(failure.errno, Errno::ECONNRESET);
                    failed.push(failure.completion.context);
                }
            }
        }
        assert!(clock::now() < end, "{got:?} {failed:?}\n{}", victim.ep.describe());
    }
    assert_eq!((got, failed), (vec![short], pulled));
    assert_eq!(peer.outcomes(), []);
    victim.ep.close();
}

/// Reads the identity of the endpoint that asks for a link.
fn asker(socket: &ControlSocket, side: &mut Side) -> String {
    let end = clock::now() + Duration::from_secs(10);
    let mut bytes = [0; 1024];
    while socket.receive(&mut bytes).is_err() {
        side.reap();
        assert!(clock::now() < end, "no request arrives");
    }
    format!("fi_shm://{:032x}", u128::from_be_bytes(bytes[8..24].try_into().unwrap()))
}

#[test]
fn a_transmit_context_takes_no_link() {
    let account = Arc::new(Account::new(1 << 20));
    let opener = {
        let account = account.clone();
        Box::new(move |addr| ofi_shm::Provider.open_scalable(OpenArgs::new(addr, &account)))
    };
    let context = Box::new(|listener: &ShmListener, account: &Arc<Account>| {
        ofi_shm::Provider.open_context(listener, OpenArgs::new(None, account))
    });
    let scalable = ScalableEndpoint::new(membarrier::locks(), (1, 1), None, opener, context, ofi_os::random(), None);
    let av = Arc::new(AddressVector::new(4, false));
    scalable.bind_av(&av).unwrap();
    let options = Options { provider: "shm", ..Options::default() };
    let object = Arc::new(FdWaitObject::new(true).unwrap());
    let mut tx = Side::open_context(options, av.clone(), object, BindFlags::TRANSMIT, |config| {
        scalable.open_transmit(0, config).unwrap()
    });
    // Its own socket's name is no secret: peers get it with each request.
    let name = format!("fi_shm://{:032x}", u128::from_ne_bytes(ofi_os::random()));
    let socket = ControlSocket::bind(&Space::Abstract, &name).unwrap();
    let to_socket = av.insert(Addr::Name(Name::new(&name).unwrap()));
    send(&mut tx, to_socket, 8);
    let own = asker(&socket, &mut tx);
    let mut other = open();
    let to_context = other.know(Addr::Name(Name::new(&own).unwrap()));
    let sent = send(&mut other, to_context, 8);
    let end = clock::now() + Duration::from_secs(10);
    while other.outcome(sent).is_none() {
        other.progress();
        tx.progress();
        assert!(clock::now() < end, "the request has no answer");
    }
    let Some(Err(failure)) = other.outcome(sent) else { panic!("{:?}", other.outcome(sent)) };
    assert_eq!(failure.errno, Errno::ECONNREFUSED);
    drop(socket);
    tx.ep.close();
    other.ep.close();
    scalable.close();
}
