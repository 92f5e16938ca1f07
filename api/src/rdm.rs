//! Reliable endpoints without connections.

use crate::atomic::Fetch;
use crate::av::{AddressVector, Peer};
use crate::buf::{IoBuf, IoBufMut};
use crate::counter::Counter;
use crate::element::Element;
use crate::fabric::Domain;
use crate::incoming::Incoming;
use crate::info::Info;
use crate::inner::Inner;
use crate::message::{ANY, Message};
use crate::operation::Operation;
use crate::region::RemoteKey;
use ofi_core::atomic::{AtomicKind, AtomicOp};
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, EndpointType, Errno, Error, OpFlags};
use ofi_engine::Statistics;

/// An endpoint that exchanges reliable messages with any number of peers, and accesses their
/// memory, without connecting (FI_EP_RDM, fi_endpoint(3)).
///
/// Dropping it sends what was accepted, and then closes it, which may take up to five seconds if a
/// peer does not answer. In a tokio runtime a thread for blocking work does that, and its address
/// stays in use meanwhile; elsewhere the drop waits. [`Self::close`] waits without blocking a
/// thread of an executor.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// let domain = Fabric::open(&info)?.domain(&info)?;
/// let ep = RdmEndpoint::open(&domain, &info)?;
/// println!("peers reach it at {}", ep.local_addr()?);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Debug)]
pub struct RdmEndpoint(Inner);

impl RdmEndpoint {
    /// Opens and enables an endpoint with an address vector of its own.
    ///
    /// # Errors
    /// EINVAL if the offer is of another type of endpoint or of another provider than the domain;
    /// the system's error if its source address is not available.
    pub fn open(domain: &Domain, info: &Info) -> Result<Self> {
        Self::open_with(domain, info, &AddressVector::open(domain))
    }

    /// Opens and enables an endpoint whose peers are those of an address vector.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(domain: &Domain, info: &Info, av: &AddressVector) -> Result<Self> {
        if info.ep.kind != EndpointType::RDM {
            return Err(Error::new(Errno::EINVAL, format!("open an RDM endpoint from an offer of {}", info.ep.kind)));
        }
        let inner = Inner::open(domain, info, av)?;
        inner.engine().control.clone().enable()?;
        Ok(Self(inner))
    }

    /// Has a counter count some kinds of operations from now on (fi_ep_bind): its sends
    /// ([`BindFlags::TRANSMIT`]), receives, reads and writes, and reads and writes of its memory by
    /// peers.
    ///
    /// # Errors
    /// EINVAL if the counter is of another domain, or the endpoint has another one for such a kind;
    /// EBADFLAGS for flags that are no kind.
    ///
    /// ```
    /// # use ofi::{BindFlags, Counter, EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// let (sent, received) = (Counter::open(&domain), Counter::open(&domain));
    /// ep.bind_counter(&sent, BindFlags::TRANSMIT)?;
    /// ep.bind_counter(&received, BindFlags::RECV)?;
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn bind_counter(&self, counter: &Counter, kinds: BindFlags) -> Result<()> {
        self.0.bind_counter(counter, kinds)
    }

    /// The endpoint's address vector.
    pub const fn av(&self) -> &AddressVector {
        &self.0.av
    }

    /// The handle of a peer's address: [`AddressVector::insert`].
    ///
    /// # Errors
    /// ENOMEM if there is no memory for it.
    pub fn peer(&self, addr: Addr) -> Result<Peer> {
        self.0.av.insert(addr)
    }

    /// Sends a message (fi_send). It completes when the buffer may be used again; the message then
    /// arrives unless the peer or the path to it fails.
    ///
    /// # Errors
    /// EMSGSIZE for a message longer than `ep.max_msg_size` bytes; the cause if the peer cannot be
    /// reached (fi_msg(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive(vec![0; 16]);
    /// let (sent, _buf) = ofi::block_on(ep.send(me, "hello"));
    /// sent?;
    /// let (received, _buf) = ofi::block_on(receive);
    /// assert_eq!(received?.len(), 5);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn send<B: IoBuf>(&self, peer: Peer, buf: B) -> Operation<'_, B> {
        self.0.send(self.0.to(peer), (None, None), OpFlags::empty(), buf)
    }

    /// Sends a tagged message (fi_tsend), which only tagged receives take.
    ///
    /// # Errors
    /// As for [`Self::send`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive_tagged(7, 0, vec![0; 16]);
    /// let (sent, _buf) = ofi::block_on(ep.send_tagged(me, 7, vec![1, 2, 3]));
    /// sent?;
    /// let (received, _buf) = ofi::block_on(receive);
    /// assert_eq!(received?.tag(), Some(7));
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn send_tagged<B: IoBuf>(&self, peer: Peer, tag: u64, buf: B) -> Operation<'_, B> {
        self.0.send(self.0.to(peer), (Some(tag), None), OpFlags::empty(), buf)
    }

    /// Sends a short message from a slice, which the call copies (fi_inject): at most
    /// `tx.inject_size` bytes. There is nothing to await; whether it arrives shows in what the peer
    /// answers.
    ///
    /// # Errors
    /// EMSGSIZE for a longer message; EAGAIN if there is no room now, neither among the endpoint's
    /// operations nor on the way to the peer, which makes some by reading; EINVAL for a handle that
    /// the endpoint refuses.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive([0; 5]);
    /// ep.inject(me, b"hello")?;
    /// assert_eq!(&ofi::block_on(receive).1, b"hello");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn inject(&self, peer: Peer, bytes: &[u8]) -> Result<()> {
        self.0.inject(self.0.to(peer), None, bytes)
    }

    /// The same with a tag (fi_tinject).
    ///
    /// # Errors
    /// As for [`Self::inject`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive_tagged(7, 0, [0; 5]);
    /// ep.inject_tagged(me, 7, b"hello")?;
    /// assert_eq!(&ofi::block_on(receive).1, b"hello");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn inject_tagged(&self, peer: Peer, tag: u64, bytes: &[u8]) -> Result<()> {
        self.0.inject(self.0.to(peer), Some(tag), bytes)
    }

    /// Writes a slice, which the call copies, to a peer's memory (fi_inject_write).
    ///
    /// # Errors
    /// As for [`Self::inject`]; EACCES if the range is shorter or may not be written; ENOSYS if the
    /// provider has no one-sided operations.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// ep.inject_write(me, region.remote_key().at(8), b"hello")?;
    /// # ofi::block_on(ep.fetch_add(me, region.remote_key(), 0u64))?;
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn inject_write(&self, peer: Peer, to: RemoteKey, bytes: &[u8]) -> Result<()> {
        self.0.inject_write(self.0.to(peer), to, bytes)
    }

    /// Prepares a message with more than a tag: completion data, or a level of completion.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive(vec![0; 16]);
    /// let (sent, _buf) = ofi::block_on(ep.message(me).data(42).send("with data"));
    /// sent?;
    /// assert_eq!(ofi::block_on(receive).0?.data(), Some(42));
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn message(&self, peer: Peer) -> Message<'_> {
        Message::new(&self.0, self.0.to(peer))
    }

    /// Receives a message without tag, from any peer (fi_recv). It completes with the length of the
    /// message, whose bytes are the first ones of the buffer.
    ///
    /// # Errors
    /// ETRUNC if the message is longer than the buffer; its first bytes are there (fi_msg(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive([0u8; 16]);
    /// drop(ofi::block_on(ep.send(me, "hello")));
    /// let (received, buf) = ofi::block_on(receive);
    /// assert_eq!(&buf[..received?.len()], b"hello");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn receive<B: IoBufMut>(&self, buf: B) -> Operation<'_, B> {
        self.0.receive(ANY, None, buf)
    }

    /// Receives a tagged message whose tag is `tag` in all bits that `ignore` has not set
    /// (fi_trecv).
    ///
    /// # Errors
    /// As for [`Self::receive`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive_tagged(0x100, 0xff, [0u8; 16]);
    /// drop(ofi::block_on(ep.send_tagged(me, 0x107, "matches")));
    /// assert_eq!(ofi::block_on(receive).0?.tag(), Some(0x107));
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn receive_tagged<B: IoBufMut>(&self, tag: u64, ignore: u64, buf: B) -> Operation<'_, B> {
        self.0.receive(ANY, Some((tag, ignore)), buf)
    }

    /// Writes the buffer to the beginning of a range of a peer's memory (fi_write). It completes
    /// when the peer's endpoint has carried it out; the peer's program only needs to make progress.
    /// Use [`RemoteKey::at`] for another place.
    ///
    /// # Errors
    /// EACCES if the range is shorter or may not be written; EINVAL if the peer has no region with
    /// the key; the cause if the peer cannot be reached (fi_rma(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// let (written, _buf) = ofi::block_on(ep.write(me, region.remote_key(), [1u8; 8]));
    /// written?;
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn write<B: IoBuf>(&self, peer: Peer, to: RemoteKey, buf: B) -> Operation<'_, B> {
        self.0.write(self.0.to(peer), to, buf)
    }

    /// Fills the buffer from the beginning of a range of a peer's memory (fi_read).
    ///
    /// # Errors
    /// As for [`Self::write`].
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// let (read, buf) = ofi::block_on(ep.read(me, region.remote_key().at(8), [1u8; 8]));
    /// read?;
    /// assert_eq!(buf, [0; 8]);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn read<B: IoBufMut>(&self, peer: Peer, from: RemoteKey, buf: B) -> Operation<'_, B> {
        self.0.read(self.0.to(peer), from, buf)
    }

    /// Adds to an element of a peer's memory, and returns its previous value (fi_fetch_atomic).
    /// Atomic with respect to other atomic operations on the element.
    ///
    /// # Errors
    /// As for [`Self::write`]; EINVAL for an element that is not aligned to its size.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// assert_eq!(ofi::block_on(ep.fetch_add(me, region.remote_key(), 5u64))?, 0);
    /// assert_eq!(ofi::block_on(ep.fetch_add(me, region.remote_key(), 1u64))?, 5);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn fetch_add<T: Element>(&self, peer: Peer, at: RemoteKey, value: T) -> Fetch<'_, T> {
        self.fetch(peer, at, AtomicOp::Sum, value)
    }

    /// Replaces an element of a peer's memory by `new` if it is `expected`, and returns its
    /// previous value (fi_compare_atomic).
    ///
    /// # Errors
    /// As for [`Self::fetch_add`].
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// let found = ofi::block_on(ep.compare_swap(me, region.remote_key(), 0u32, 9))?;
    /// assert_eq!(found, 0, "swapped");
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn compare_swap<T: Element>(&self, peer: Peer, at: RemoteKey, expected: T, new: T) -> Fetch<'_, T> {
        self.0.atomic(self.0.to(peer), at, (AtomicKind::Compare, AtomicOp::Cswap), (new, expected))
    }

    /// Changes an element of a peer's memory by any operation that fetches, and returns its
    /// previous value (fi_fetch_atomic); [`AtomicOp::Read`] changes nothing.
    ///
    /// # Errors
    /// As for [`Self::fetch_add`]; EOPNOTSUPP for an operation that the type has not
    /// (fi_atomic(3)).
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// # let region = domain.register(vec![0; 64], ofi::MrAccess::REMOTE)?;
    /// ofi::block_on(ep.fetch(me, region.remote_key(), ofi::AtomicOp::Max, 3i64))?;
    /// assert_eq!(ofi::block_on(ep.fetch(me, region.remote_key(), ofi::AtomicOp::Read, 0i64))?, 3);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn fetch<T: Element>(&self, peer: Peer, at: RemoteKey, op: AtomicOp, value: T) -> Fetch<'_, T> {
        self.0.atomic(self.0.to(peer), at, (AtomicKind::Fetch, op), (value, value))
    }

    /// A stream of the messages without tag that arrive, over `depth` buffers of `size` bytes.
    ///
    /// At most `depth` messages are received before the program takes them. The endpoint keeps the
    /// messages beyond them up to FI_OFI_PEER_MEMORY (256 MiB by default), as those for which there
    /// is no receive, and then holds up senders that are faster than the program.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let mut incoming = ep.incoming(4, 1024);
    /// drop(ofi::block_on(ep.send(me, "hello")));
    /// let message = ofi::block_on(incoming.next())?;
    /// assert_eq!(&*message, b"hello");
    /// incoming.recycle(message);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn incoming(&self, depth: usize, size: usize) -> Incoming<'_> {
        Incoming::new(&self.0, None, depth, size)
    }

    /// The same for the tagged messages that [`Self::receive_tagged`] takes.
    pub fn incoming_tagged(&self, tag: u64, ignore: u64, depth: usize, size: usize) -> Incoming<'_> {
        Incoming::new(&self.0, Some((tag, ignore)), depth, size)
    }

    /// The address at which peers reach it (fi_getname).
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.0.local_addr()
    }

    /// Closes it, as dropping does, and waits for the end without blocking the executor's thread: a
    /// thread that exists for that only waits for the peers, for five seconds at most (fi_close).
    /// Dropping the future does not stop it.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let ep = RdmEndpoint::open(&domain, &info)?;
    /// ofi::block_on(ep.close());
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub async fn close(self) {
        self.0.close().await;
    }

    /// What it has done since it was opened, in all and with each peer that it knows. The counts
    /// are always on; [`prometheus`](crate::prometheus) formats them.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = RdmEndpoint::open(&domain, &info)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// let receive = ep.receive([0u8; 16]);
    /// drop(ofi::block_on(ep.send(me, "hello")));
    /// drop(ofi::block_on(receive));
    /// let statistics = ep.statistics();
    /// assert_eq!(statistics.exchanged.received.message_bytes, 5);
    /// assert_eq!(statistics.peers[0].exchanged.received.messages, 1);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        self.0.engine().control.statistics()
    }

    /// Describes the pending operations and what they wait for, to find the cause of a hang.
    pub fn describe(&self) -> String {
        self.0.engine().control.describe()
    }
}
