//! Control channel: unix datagrams by which endpoints find each other by name. A control message
//! asks for a link and brings its memory, or refuses a link, wakes a sleeper, offers a ready bitmap
//! or cross-memory attach, or tells the sender's process. Everything else goes through the memory.

use crate::names::{Claim, Identity, claim, is_of_node, release};
use ofi_core::addr::Name;
use ofi_core::error::{Error, Result};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Errno};
use ofi_engine::wire::hello;
use ofi_os::control_socket::{ControlDatagram, ControlSocket, Probe, Space, user};
use ofi_os::descriptor::PrivateFd;
use ofi_os::poller::{Interest, Poller};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The beginning of every control message, with the version of the memory layout.
const MAGIC: [u8; 7] = *b"OFIshm\x09";
/// Bytes of magic, kind, identity and request number.
const HEAD: usize = MAGIC.len() + 1 + 16 + 8;
/// The longest control message, in bytes.
const MOST: usize = HEAD + 1 + hello::MAX_LEN;
/// Control messages read from a socket at once.
const BATCH: usize = 32;

const ASK: u8 = 1;
const WAKE: u8 = 2;
const REFUSE: u8 = 3;
const BITMAP: u8 = 4;
const OFFER: u8 = 5;
const BITMAP_LOST: u8 = 6;
const PROCESS: u8 = 7;

/// A control message.
#[derive(Debug)]
pub(crate) enum ControlMessage {
    /// A peer asks for a link.
    Ask(ConnectRequest),
    /// A peer refuses the request of that number, and says why.
    Refuse(u64, String),
    /// A peer wakes this side.
    Wake,
    /// A peer wants this side to set a bit in its bitmap when it writes to the link.
    Bitmap(BitmapOffer),
    /// A peer asks whether this side can read its memory.
    Offer(CmaOffer),
    /// A peer got this side's offer of a bitmap without its descriptor.
    BitmapLost(About),
    /// A peer tells its process; the id is from the kernel.
    Process(About, i32),
}

/// The link that a control message is about.
#[derive(Debug)]
pub(crate) struct About {
    /// The peer's name, from the kernel.
    pub(crate) from: String,
    /// The number of the link's connect request.
    pub(crate) number: u64,
    /// True if the peer sent that request.
    pub(crate) theirs: bool,
}

/// A peer asks whether this side can read its memory.
#[derive(Debug)]
pub(crate) struct CmaOffer {
    /// The peer's name, from the kernel.
    pub(crate) from: String,
    /// The number of the link's connect request.
    pub(crate) number: u64,
    /// True if the peer sent that request.
    pub(crate) theirs: bool,
    /// The peer's process id in this process's namespace, from the kernel.
    pub(crate) pid: i32,
    /// The address of its secret.
    pub(crate) at: usize,
    pub(crate) secret: [u8; 16],
}

/// A peer offers its ready bitmap.
#[derive(Debug)]
pub(crate) struct BitmapOffer {
    /// The peer's name, from the kernel.
    pub(crate) from: String,
    /// The number of the link's connect request.
    pub(crate) number: u64,
    /// True if the peer sent that request.
    pub(crate) theirs: bool,
    /// The link's bit in the bitmap.
    pub(crate) place: usize,
    pub(crate) memory: PrivateFd,
}

/// A peer asks for a link.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    /// The initiator's name, from the kernel.
    pub(crate) from: Addr,
    /// The identity under which the initiator is woken.
    pub(crate) identity: Identity,
    /// The initiator's number for the request.
    pub(crate) number: u64,
    /// The initiator's process id, from the kernel.
    pub(crate) pid: i32,
    /// The initiator takes part in ordering memory accesses across processes.
    pub(crate) orders: bool,
    pub(crate) hello: Vec<u8>,
    pub(crate) memory: PrivateFd,
    /// The initiator's liveness pipe: closed once the request is answered or dropped.
    _liveness: Option<PrivateFd>,
}

/// The control sockets of an endpoint.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    identity: Identity,
    /// The name for peers to use.
    addr: Addr,
    /// Bound to the identity's name.
    own: Arc<ControlSocket>,
    /// Bound to the name that the application chose.
    named: Option<Arc<ControlSocket>>,
    /// For a context of a scalable endpoint: the endpoint's socket. The context sends its connect
    /// requests from it; the endpoint reads it.
    endpoint: Option<Arc<ControlSocket>>,
    poller: Option<Poller>,
    probe: Probe,
    /// Peers test with it whether they can read our memory.
    secret: Box<Secret>,
}

/// In lines of its own, which no write of this process takes from the cache of a peer that reads it
/// with each payload.
#[derive(Debug)]
#[repr(align(128))]
struct Secret([u8; 16]);

impl ControlChannel {
    /// Opens the control sockets of an endpoint named `name`, or by its identity. A fresh identity
    /// replaces a proposed one that another endpoint has.
    pub(crate) fn open(space: &Space, name: Option<&str>) -> Result<Self> {
        let bind = |name: &str| ControlSocket::bind(space, name);
        let refuse = |name: &str, error| Error::os(error, format!("take the name {name}"));
        space.sweep();
        let proposed = name.and_then(Identity::of_name).map(|identity| (identity, claim(identity)));
        if let Some((identity, Claim::Granted)) = proposed {
            match bind(&identity.name()) {
                Ok(own) => return Self::new(space, identity, own, None),
                // A forked process remembers the same proposals, and may have bound this one.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    release(identity);
                    return Err(refuse(&identity.name(), error));
                }
            }
        }
        let identity = Identity::random();
        let own = bind(&identity.name()).map_err(|error| refuse(&identity.name(), error))?;
        let name = name.filter(|_| proposed.is_none_or(|(_, claim)| claim == Claim::Unknown));
        let bind = |name| Self::bind_chosen(space, name).map_err(|error| refuse(name, error));
        let named = name.map(bind).transpose()?;
        Self::new(space, identity, own, named)
    }

    /// Binds a name that the application chose. One of a node alone is not unique (fi_shm(7)): if
    /// it is taken, the user and a number are appended, if there is room for them.
    fn bind_chosen(space: &Space, name: &str) -> io::Result<ControlSocket> {
        /// Endpoints of a node, at least.
        const MOST: usize = 4096;
        let taken = match ControlSocket::bind(space, name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_of_node(name) => error,
            bound => return bound,
        };
        let user = ofi_os::control_socket::user();
        for number in 1..MOST {
            let longer = format!("{name}:{user}:{number}");
            if Name::new(&longer).is_none() {
                break;
            }
            match ControlSocket::bind(space, &longer) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(taken)
    }

    fn new(space: &Space, identity: Identity, own: ControlSocket, named: Option<ControlSocket>) -> Result<Self> {
        let name = named.as_ref().unwrap_or(&own).name();
        let name = Name::new(name).ok_or_else(|| Error::new(Errno::EINVAL, format!("use the name {name}")))?;
        let poller = match &named {
            None => None,
            Some(named) => {
                let make = || -> io::Result<Poller> {
                    let poller = Poller::new()?;
                    poller.add(own.as_raw_fd(), Interest::Read, 0)?;
                    poller.add(named.as_raw_fd(), Interest::Read, 1)?;
                    Ok(poller)
                };
                Some(make().map_err(|error| Error::os(error, "make an epoll descriptor"))?)
            }
        };
        let secret = Box::new(Secret(ofi_os::random()));
        let (own, named) = (Arc::new(own), named.map(Arc::new));
        let (addr, probe) = (Addr::Name(name), Probe::new(space));
        Ok(Self { identity, addr, own, named, endpoint: None, poller, probe, secret })
    }

    /// Opens the control socket of a context of the scalable endpoint that has this channel. Peers
    /// see the endpoint's name.
    pub(crate) fn open_context(&self, space: &Space) -> Result<Self> {
        let endpoint = Some(self.named.as_ref().unwrap_or(&self.own).clone());
        Ok(Self { addr: self.addr, endpoint, ..Self::open(space, None)? })
    }

    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    /// The name for peers to use.
    pub(crate) const fn addr(&self) -> Addr {
        self.addr
    }

    /// The descriptor that becomes readable when a control message arrives.
    pub(crate) fn descriptor(&self) -> Descriptor {
        self.poller.as_ref().map_or_else(|| self.own.as_raw_fd(), AsRawFd::as_raw_fd)
    }

    /// Whether a control message waits to be read.
    pub(crate) fn has_messages(&self) -> bool {
        let mut any = false;
        match &self.poller {
            Some(poller) => drop(poller.wait(Some(Duration::ZERO), |_| any = true)),
            None => any = self.own.has_datagram(),
        }
        any
    }

    /// Sleeps until a control message arrives or the timeout is over.
    pub(crate) fn wait(&self, timeout: Duration) {
        let once = || -> io::Result<()> {
            match &self.poller {
                Some(poller) => poller.wait(Some(timeout), |_| ()),
                None => {
                    let poller = Poller::new()?;
                    poller.add(self.own.as_raw_fd(), Interest::Read, 0)?;
                    poller.wait(Some(timeout), |_| ())
                }
            }
        };
        // Without a descriptor for epoll the caller polls again at once.
        drop(once());
    }

    /// Sends a connect request.
    pub(crate) fn ask(
        &self,
        to: &str,
        number: u64,
        orders: bool,
        hello: &[u8],
        memory: BorrowedFd<'_>,
        liveness: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let message =
            [&MAGIC[..], &[ASK], &self.identity.0, &number.to_le_bytes(), &[u8::from(orders)], hello].concat();
        let both = [memory, liveness.unwrap_or(memory)];
        let with = if liveness.is_some() { &both[..] } else { &both[..1] };
        // Sent from the socket whose name the peer is to see: the kernel authenticates it.
        self.endpoint.as_ref().or(self.named.as_ref()).unwrap_or(&self.own).send(to, &message, with)
    }

    /// Wakes a peer.
    pub(crate) fn wake(&self, to: &str) -> io::Result<()> {
        self.own.send(to, &[&MAGIC[..], &[WAKE]].concat(), &[])
    }

    /// Offers a peer the ready bitmap, in which it sets bit `place` when it writes to the link. The
    /// number is that of the link's connect request, `ours` or the peer's.
    pub(crate) fn give_bitmap(
        &self,
        to: &str,
        (number, ours): (u64, bool),
        place: usize,
        bitmap: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let head = [&MAGIC[..], &[BITMAP], &self.identity.0, &number.to_le_bytes()].concat();
        self.own.send(to, &[&head[..], &[u8::from(ours)], &(place as u64).to_le_bytes()].concat(), &[bitmap])
    }

    /// Asks a peer whether it can read our memory, by reading a secret. The number is that of the
    /// link's connect request, `ours` or the peer's.
    pub(crate) fn offer(&self, to: &str, (number, ours): (u64, bool)) -> io::Result<()> {
        let head = [&MAGIC[..], &[OFFER], &self.identity.0, &number.to_le_bytes(), &[u8::from(ours)]].concat();
        let at = self.secret.0.as_ptr().addr() as u64;
        self.own.send(to, &[&head[..], &at.to_le_bytes(), &self.secret.0[..]].concat(), &[])
    }

    /// Tells a peer our process, whose end it then notices; the kernel adds the process id to every
    /// message. `request` is the link's connect request: its number, and whether it was ours.
    pub(crate) fn tell_process(&self, to: &str, request: (u64, bool)) -> io::Result<()> {
        self.send_about(to, PROCESS, request)
    }

    fn send_about(&self, to: &str, kind: u8, (number, ours): (u64, bool)) -> io::Result<()> {
        let head = [&MAGIC[..], &[kind], &self.identity.0, &number.to_le_bytes(), &[u8::from(ours)]].concat();
        self.own.send(to, &head, &[])
    }

    /// Refuses a request whose memory must not be touched.
    fn refuse(&self, to: &str, number: u64, why: &str) {
        let message = [&MAGIC[..], &[REFUSE], &self.identity.0, &number.to_le_bytes(), why.as_bytes()].concat();
        // Best effort: a peer that cannot be reached does not hear of the refusal.
        drop(self.own.send(to, &message, &[]));
    }

    /// Whether an endpoint has that name.
    pub(crate) fn is_alive(&self, name: &str) -> bool {
        // A failed probe proves nothing.
        self.probe.finds(name).unwrap_or(true)
    }

    /// Reads control messages. True if there were any.
    pub(crate) fn read(&self, mut take: impl FnMut(ControlMessage)) -> bool {
        let mut any = false;
        for socket in [Some(&self.own), self.named.as_ref()].into_iter().flatten() {
            for _ in 0..BATCH {
                let mut bytes = [0; MOST + 1];
                // An error means an empty socket, or a lack of memory, which passes.
                let Ok(message) = socket.receive(&mut bytes) else { break };
                any = true;
                if let Some(said) = self.parse(&bytes[..message.len.min(MOST + 1)], message) {
                    take(said);
                }
            }
        }
        any
    }

    fn parse(&self, bytes: &[u8], message: ControlDatagram) -> Option<ControlMessage> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (kind, rest) = rest.split_first()?;
        if *kind == WAKE {
            return Some(ControlMessage::Wake);
        }
        let (identity, rest) = rest.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(*number);
        if *kind == REFUSE {
            return Some(ControlMessage::Refuse(number, String::from_utf8_lossy(rest).chars().take(200).collect()));
        }
        let (flag, rest) = rest.split_first()?;
        let from = message.from?;
        let (owner, pid) = message.credentials?;
        let foreign = owner != 0 && owner != user();
        let about = |from: String| About { from, number, theirs: *flag != 0 };
        if *kind == BITMAP {
            let place = usize::try_from(u64::from_le_bytes(*rest.first_chunk()?)).ok()?;
            let Some(memory) = message.descriptors.into_iter().next() else {
                // This process had no descriptor free for it. If the peer does not get this message
                // either, it still polls the link in turn.
                drop(self.send_about(&from, BITMAP_LOST, (number, *flag == 0)));
                return None;
            };
            if foreign {
                return None;
            }
            return Some(ControlMessage::Bitmap(BitmapOffer { from, number, theirs: *flag != 0, place, memory }));
        }
        if *kind == BITMAP_LOST {
            return (!foreign).then(|| ControlMessage::BitmapLost(about(from)));
        }
        if *kind == PROCESS {
            return (!foreign).then(|| ControlMessage::Process(about(from), pid));
        }
        if *kind == OFFER {
            let (at, secret) = rest.split_first_chunk()?;
            let (at, secret) = (usize::try_from(u64::from_le_bytes(*at)).ok()?, *secret.first_chunk()?);
            return (!foreign).then_some(ControlMessage::Offer(CmaOffer {
                from,
                number,
                theirs: *flag != 0,
                pid,
                at,
                secret,
            }));
        }
        if *kind != ASK || bytes.len() > MOST {
            return None;
        }
        // The initiator reads the socket of its identity; it may have sent from another one.
        let asker = Identity(*identity).name();
        if foreign {
            self.refuse(&asker, number, "the endpoint belongs to another user");
            return None;
        }
        let mut descriptors = message.descriptors.into_iter();
        let Some(memory) = descriptors.next() else {
            self.refuse(&asker, number, "the descriptor of the link's shared memory did not arrive");
            return None;
        };
        Some(ControlMessage::Ask(ConnectRequest {
            from: Addr::Name(Name::new(&from)?),
            identity: Identity(*identity),
            number,
            pid,
            orders: *flag != 0,
            hello: rest.to_vec(),
            memory,
            _liveness: descriptors.next(),
        }))
    }

    /// Refuses a request whose memory cannot be used.
    pub(crate) fn refuse_memory(&self, request: &ConnectRequest, error: &io::Error) {
        let why = format!("the memory of the link cannot be used: {error}");
        self.refuse(&request.identity.name(), request.number, &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    fn name_of(control: &ControlChannel) -> String {
        control.addr().to_string()
    }

    #[test]
    fn the_first_endpoint_gets_the_name_that_was_proposed_and_others_get_their_own() {
        let identity = names::propose();
        let open = || ControlChannel::open(&Space::Abstract, Some(&identity.name())).unwrap();
        let first = open();
        assert_eq!((name_of(&first), first.identity()), (identity.name(), identity));
        let second = open();
        assert_ne!(name_of(&second), identity.name());
        assert_eq!(name_of(&second).len(), identity.name().len());
        drop(first);
        // To peers the name is that of the first one.
        assert_ne!(name_of(&open()), identity.name());
        names::release(identity);
        assert_eq!(name_of(&open()), identity.name());
    }

    #[test]
    fn a_proposal_that_could_not_be_bound_is_as_good_as_before() {
        let identity = names::propose();
        let nowhere = Space::Folder("/nowhere/at/all".into());
        assert_eq!(ControlChannel::open(&nowhere, Some(&identity.name())).unwrap_err().errno(), Errno::ENOENT);
        assert_eq!(name_of(&ControlChannel::open(&Space::Abstract, Some(&identity.name())).unwrap()), identity.name());
    }

    #[test]
    fn a_name_that_was_chosen_is_taken_or_refused() {
        let identity = names::Identity::random().name();
        for chosen in [format!("fi_ns://chosen-{}", std::process::id()), identity] {
            let first = ControlChannel::open(&Space::Abstract, Some(&chosen)).unwrap();
            assert_eq!(name_of(&first), chosen);
            assert_eq!(ControlChannel::open(&Space::Abstract, Some(&chosen)).unwrap_err().errno(), Errno::EADDRINUSE);
        }
    }

    #[test]
    fn endpoints_of_a_node_have_a_number_behind_its_name() {
        let node = format!("fi_shm://node-{}", std::process::id());
        let open = || ControlChannel::open(&Space::Abstract, Some(&node)).unwrap();
        let (first, second) = (open(), open());
        let user = ofi_os::control_socket::user();
        let expected = [node.clone(), format!("{node}:{user}:1"), format!("{node}:{user}:2")];
        assert_eq!([name_of(&first), name_of(&second), name_of(&open())], expected);
        drop(second);
        assert_eq!(name_of(&open()), expected[1]);
    }
}
