//! Connected endpoints, and what listens for their peers.

use crate::atomic::Fetch;
use crate::av::AddressVector;
use crate::buf::{IoBuf, IoBufMut};
use crate::counter::Counter;
use crate::element::Element;
use crate::events::{Subscription, Wait};
use crate::fabric::{Domain, Fabric};
use crate::incoming::{ConnectionIncoming, Incoming};
use crate::info::Info;
use crate::inner::Inner;
use crate::message::{ANY, CONNECTED, Message};
use crate::operation::Operation;
use crate::region::RemoteKey;
use core::fmt;
use ofi_core::atomic::{AtomicKind, AtomicOp};
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, EndpointType, Errno, Error, OpFlags};
use ofi_engine::Statistics;
use ofi_engine::completion::eq::{ConnectionRequest as Request, EventKind};
use ofi_engine::erased::PassiveControl;
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_registry::DomainVisitor;
use ofi_sync::lock::LockKind;
use std::sync::Arc;
use std::time::Duration;

/// An endpoint that listens for connections (a passive endpoint, fi_endpoint(3), fi_cm(3)).
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, MsgEndpoint, MsgListener};
/// let query = Info::builder().provider("tcp").endpoint(EndpointType::MSG);
/// let info = query.node("127.0.0.1").source().query()?.remove(0);
/// let fabric = Fabric::open(&info)?;
/// let domain = fabric.domain(&info)?;
/// let listener = MsgListener::listen(&fabric, &info)?;
/// let to = listener.local_addr()?;
/// let client = async { MsgEndpoint::connect(&domain, &info, to).await };
/// let server = async { listener.request().await?.accept(&domain).await };
/// # let (client, server) = ofi::block_on(futures_lite::future::zip(client, server));
/// # let (client, server) = (client?, server?);
/// # let receive = server.receive([0u8; 5]);
/// # ofi::block_on(client.send("hello")).0?;
/// # assert_eq!(&ofi::block_on(receive).1, b"hello");
/// # Ok::<(), ofi::Error>(())
/// ```
pub struct MsgListener {
    engine: Arc<dyn PassiveControl>,
    events: Subscription,
}

impl fmt::Debug for MsgListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MsgListener").finish_non_exhaustive()
    }
}

struct Open(ofi_core::Info);

impl DomainVisitor for Open {
    type Output = Result<Arc<dyn PassiveControl>>;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        Ok(ofi_registry::open_passive_endpoint(provider, self.0)?)
    }
    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, _: P, _kind: K) -> Self::Output {
        Err(Error::new(Errno::EINVAL, format!("listen with provider {}, which has no connections", P::NAME)))
    }
}

impl MsgListener {
    /// Listens at the source address of an offer, or at any port (fi_passive_ep, fi_listen).
    ///
    /// # Errors
    /// ENODEV if there is no such provider, EINVAL if it has no connections, and the system's error
    /// if the address is in use or not one of this host.
    pub fn listen(fabric: &Fabric, info: &Info) -> Result<Self> {
        let engine = ofi_registry::open(info, None, Open((**info).clone()))??;
        let events = fabric.events.subscribe();
        engine.bind_eq(events.queue(), events.owner())?;
        engine.clone().listen()?;
        Ok(Self { engine, events })
    }

    /// The address at which it listens (fi_getname).
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.engine.local_addr()
    }

    /// The next connection request of a peer (FI_CONNREQ). Dropping the future loses none.
    ///
    /// # Errors
    /// The system's error if the listener fails.
    pub async fn request(&self) -> Result<ConnectionRequest> {
        self.request_within(None).await
    }

    /// The same; with a limit, it gives up after that time.
    ///
    /// # Errors
    /// ETIMEDOUT if no request comes in time; as for [`Self::request`].
    pub async fn request_within(&self, limit: impl Into<Option<Duration>>) -> Result<ConnectionRequest> {
        let limit = limit.into();
        loop {
            if let Some(request) = self.request_of(self.events.next(limit).await?) {
                return Ok(request);
            }
        }
    }
}

impl MsgListener {
    /// Begins a wait of an event queue.
    pub(crate) fn wait(&self) -> Wait<'_> {
        self.events.wait(None)
    }

    /// The connection request that this event is, if it is one.
    pub(crate) fn request_of(&self, event: EventKind) -> Option<ConnectionRequest> {
        let EventKind::ConnectionRequest(request) = event else { return None };
        Some(ConnectionRequest { request, listener: self.engine.clone() })
    }
}

impl Drop for MsgListener {
    fn drop(&mut self) {
        self.engine.close();
    }
}

/// A peer's connection request: to accept or to reject. Dropping it leaves the peer without an
/// answer until its deadline.
///
/// ```no_run
/// # use ofi::{Domain, Error, MsgListener};
/// # async fn example(listener: &MsgListener, domain: &Domain) -> Result<(), Error> {
/// let request = listener.request().await?;
/// if request.data() != b"secret" {
///     return request.reject(b"no");
/// }
/// let ep = request.accept(domain).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConnectionRequest {
    request: Box<Request>,
    listener: Arc<dyn PassiveControl>,
}

impl ConnectionRequest {
    /// What the peer has given to [`MsgEndpoint::connect_with`].
    pub fn data(&self) -> &[u8] {
        &self.request.data
    }

    /// The address of the peer's end.
    pub fn peer_addr(&self) -> Option<Addr> {
        self.request.info.dest_addr
    }

    /// Accepts the connection by a new endpoint of the domain (fi_accept).
    ///
    /// # Errors
    /// EINVAL if the domain is of another provider; ECONNABORTED if the peer has gone meanwhile.
    pub async fn accept(self, domain: &Domain) -> Result<MsgEndpoint> {
        self.accept_with(domain, &[]).await
    }

    /// The same, with data for the peer: at most 256 bytes.
    ///
    /// # Errors
    /// As for [`Self::accept`]; EINVAL for more data.
    pub async fn accept_with(self, domain: &Domain, data: &[u8]) -> Result<MsgEndpoint> {
        let mut info = self.request.info.clone();
        // The connection already has a source address.
        info.src_addr = None;
        let ep = MsgEndpoint::open(domain, &info.into())?;
        ep.inner.engine().control.clone().accept(&mut Some(*self.request), data)?;
        ep.established().await.map(|(ep, _)| ep)
    }

    /// Refuses the connection, with data for the peer (fi_reject).
    ///
    /// # Errors
    /// The system's error if the peer has gone already.
    pub fn reject(self, data: &[u8]) -> Result<()> {
        self.listener.refuse(*self.request, data)
    }
}

/// An endpoint that is connected to one peer: it exchanges reliable messages with it, and accesses
/// its memory (FI_EP_MSG, fi_endpoint(3)). [`MsgListener`] has both sides.
///
/// ```no_run
/// # use ofi::{Domain, Error, Info, MsgEndpoint};
/// # async fn example(domain: &Domain, info: &Info, to: ofi::Addr) -> Result<(), Error> {
/// let ep = MsgEndpoint::connect(domain, info, to).await?;
/// let answer = ep.receive(vec![0; 1024]);
/// ep.send("question").await.0?;
/// let (received, buf) = answer.await;
/// println!("{} bytes", received?.len());
/// # Ok(())
/// # }
/// ```
///
/// Dropping it sends what was accepted, and then closes it, which may take up to five seconds if a
/// peer does not answer. In a tokio runtime a thread for blocking work does that, and its address
/// stays in use meanwhile; elsewhere the drop waits. [`Self::close`] waits without blocking a
/// thread of an executor.
#[derive(Debug)]
pub struct MsgEndpoint {
    // First: it closes before its events end.
    inner: Inner,
    events: Subscription,
}

impl MsgEndpoint {
    fn open(domain: &Domain, info: &Info) -> Result<Self> {
        if info.ep.kind != EndpointType::MSG {
            return Err(Error::new(Errno::EINVAL, format!("open a MSG endpoint from an offer of {}", info.ep.kind)));
        }
        let inner = Inner::open(domain, info, &AddressVector::open(domain))?;
        let events = domain.0.fabric.events.subscribe();
        let control = &inner.engine().control;
        control.clone().bind_eq(events.queue(), events.owner())?;
        control.clone().enable()?;
        Ok(Self { inner, events })
    }

    /// Connects to a listener (fi_connect). The connection has a deadline of 10 s
    /// (FI_OFI_CONNECT_TIMEOUT, if the provider has it). Dropping the future gives up.
    ///
    /// # Errors
    /// ECONNREFUSED if nothing listens there or the peer rejects; ETIMEDOUT after the deadline;
    /// EINVAL if the offer is of another type of endpoint.
    pub async fn connect(domain: &Domain, info: &Info, to: Addr) -> Result<Self> {
        Self::connect_with(domain, info, to, &[]).await.map(|(ep, _)| ep)
    }

    /// The same with data for the listener's program, at most 256 bytes; also returns the data with
    /// which it accepts.
    ///
    /// # Errors
    /// As for [`Self::connect`]; EINVAL for more data.
    pub async fn connect_with(domain: &Domain, info: &Info, to: Addr, data: &[u8]) -> Result<(Self, Vec<u8>)> {
        let ep = Self::open(domain, info)?;
        ep.inner.engine().control.clone().connect(to, data)?;
        ep.established().await
    }

    /// Has a counter count some kinds of operations from now on (fi_ep_bind): its sends
    /// ([`BindFlags::TRANSMIT`]), receives, reads and writes, and reads and writes of its memory by
    /// the peer.
    ///
    /// # Errors
    /// EINVAL if the counter is of another domain, or the endpoint has another one for such a kind;
    /// EBADFLAGS for flags that are no kind.
    ///
    /// ```no_run
    /// # use ofi::{BindFlags, Counter, Domain, Error, MsgEndpoint};
    /// # async fn example(ep: &MsgEndpoint, domain: &Domain) -> Result<(), Error> {
    /// let received = Counter::open(domain);
    /// ep.bind_counter(&received, BindFlags::RECV)?;
    /// received.wait(10).await?; // of the receives that end from now on
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_counter(&self, counter: &Counter, kinds: BindFlags) -> Result<()> {
        self.inner.bind_counter(counter, kinds)
    }

    /// Begins a wait of an event queue.
    pub(crate) fn wait(&self) -> Wait<'_> {
        self.events.wait(None)
    }

    async fn established(self) -> Result<(Self, Vec<u8>)> {
        loop {
            match self.events.next(None).await? {
                EventKind::Connected(data) => return Ok((self, data)),
                EventKind::Shutdown => return Err(Error::new(Errno::ECONNABORTED, "establish a connection")),
                _ => {}
            }
        }
    }

    /// Waits for the end of the connection: the peer has closed its endpoint, or is gone. Returns
    /// at once, in any task, when it has ended.
    ///
    /// # Errors
    /// The cause if the connection failed.
    pub async fn closed(&self) -> Result<()> {
        loop {
            if let EventKind::Shutdown = self.events.next(None).await? {
                return Ok(());
            }
        }
    }

    /// The address of the peer's end (fi_getpeer).
    ///
    /// # Errors
    /// ENOTCONN if the connection has ended.
    pub fn peer_addr(&self) -> Result<Addr> {
        self.inner.engine().control.peer_addr()
    }

    /// Ends the connection: operations in progress fail, and the peer sees its end (fi_shutdown).
    ///
    /// # Errors
    /// ENOTCONN if it has ended already.
    pub fn shutdown(&self) -> Result<()> {
        Ok(self.inner.engine().control.shut_down()?)
    }

    /// Sends a message (fi_send). It completes when the buffer may be used again; the message then
    /// arrives unless the peer or the path to it fails.
    ///
    /// # Errors
    /// EMSGSIZE for a message longer than `ep.max_msg_size` bytes; the cause if the peer cannot be
    /// reached (fi_msg(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (sent, buf) = ep.send("hello").await;
    /// sent?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send<B: IoBuf>(&self, buf: B) -> Operation<'_, B> {
        self.inner.send(CONNECTED, (None, None), OpFlags::empty(), buf)
    }

    /// Sends a tagged message (fi_tsend), which only tagged receives take.
    ///
    /// # Errors
    /// As for [`Self::send`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (sent, buf) = ep.send_tagged(7, vec![1, 2, 3]).await;
    /// sent?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_tagged<B: IoBuf>(&self, tag: u64, buf: B) -> Operation<'_, B> {
        self.inner.send(CONNECTED, (Some(tag), None), OpFlags::empty(), buf)
    }

    /// Sends a short message from a slice, which the call copies (fi_inject): at most
    /// `tx.inject_size` bytes. There is nothing to await; whether it arrives shows in what the peer
    /// answers.
    ///
    /// # Errors
    /// EMSGSIZE for a longer message; EAGAIN if there is no room now, neither among the endpoint's
    /// operations nor on the way to the peer, which makes some by reading.
    ///
    /// ```no_run
    /// # fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// ep.inject(b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject(&self, bytes: &[u8]) -> Result<()> {
        self.inner.inject(CONNECTED, None, bytes)
    }

    /// The same with a tag (fi_tinject).
    ///
    /// # Errors
    /// As for [`Self::inject`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```no_run
    /// # fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// ep.inject_tagged(7, b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject_tagged(&self, tag: u64, bytes: &[u8]) -> Result<()> {
        self.inner.inject(CONNECTED, Some(tag), bytes)
    }

    /// Writes a slice, which the call copies, to the peer's memory (fi_inject_write).
    ///
    /// # Errors
    /// As for [`Self::inject`]; EACCES if the range is shorter or may not be written; ENOSYS if the
    /// provider has no one-sided operations.
    ///
    /// ```no_run
    /// # fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// ep.inject_write(key.at(8), b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject_write(&self, to: RemoteKey, bytes: &[u8]) -> Result<()> {
        self.inner.inject_write(CONNECTED, to, bytes)
    }

    /// Prepares a message with more than a tag: completion data, or a level of completion.
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (sent, buf) = ep.message().data(42).send("with data").await;
    /// sent?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn message(&self) -> Message<'_> {
        Message::new(&self.inner, CONNECTED)
    }

    /// Receives a message without tag, from any peer (fi_recv). It completes with the length of the
    /// message, whose bytes are the first ones of the buffer.
    ///
    /// # Errors
    /// ETRUNC if the message is longer than the buffer; its first bytes are there (fi_msg(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (received, buf) = ep.receive([0u8; 16]).await;
    /// let message = &buf[..received?.len()];
    /// # Ok(())
    /// # }
    /// ```
    pub fn receive<B: IoBufMut>(&self, buf: B) -> Operation<'_, B> {
        self.inner.receive(ANY, None, buf)
    }

    /// Receives a tagged message whose tag is `tag` in all bits that `ignore` has not set
    /// (fi_trecv).
    ///
    /// # Errors
    /// As for [`Self::receive`]; ENOSYS if the endpoint has no tags (fi_tagged(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (received, buf) = ep.receive_tagged(0x100, 0xff, [0u8; 16]).await;
    /// let tag = received?.tag();
    /// # Ok(())
    /// # }
    /// ```
    pub fn receive_tagged<B: IoBufMut>(&self, tag: u64, ignore: u64, buf: B) -> Operation<'_, B> {
        self.inner.receive(ANY, Some((tag, ignore)), buf)
    }

    /// Writes the buffer to the beginning of a range of the peer's memory (fi_write). It completes
    /// when the peer's endpoint has carried it out; the peer's program only needs to make progress.
    /// Use [`RemoteKey::at`] for another place.
    ///
    /// # Errors
    /// EACCES if the range is shorter or may not be written; EINVAL if the peer has no region with
    /// the key; the cause if the peer cannot be reached (fi_rma(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (written, _buf) = ep.write(key, [1u8; 8]).await;
    /// written?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<B: IoBuf>(&self, to: RemoteKey, buf: B) -> Operation<'_, B> {
        self.inner.write(CONNECTED, to, buf)
    }

    /// Fills the buffer from the beginning of a range of the peer's memory (fi_read).
    ///
    /// # Errors
    /// As for [`Self::write`].
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let (read, buf) = ep.read(key.at(8), [1u8; 8]).await;
    /// read?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<B: IoBufMut>(&self, from: RemoteKey, buf: B) -> Operation<'_, B> {
        self.inner.read(CONNECTED, from, buf)
    }

    /// Adds to an element of the peer's memory, and returns its previous value (fi_fetch_atomic).
    /// Atomic with respect to other atomic operations on the element.
    ///
    /// # Errors
    /// As for [`Self::write`]; EINVAL for an element that is not aligned to its size.
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let before: u64 = ep.fetch_add(key, 5u64).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_add<T: Element>(&self, at: RemoteKey, value: T) -> Fetch<'_, T> {
        self.fetch(at, AtomicOp::Sum, value)
    }

    /// Replaces an element of the peer's memory by `new` if it is `expected`, and returns its
    /// previous value (fi_compare_atomic).
    ///
    /// # Errors
    /// As for [`Self::fetch_add`].
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let found = ep.compare_swap(key, 0u32, 9).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_swap<T: Element>(&self, at: RemoteKey, expected: T, new: T) -> Fetch<'_, T> {
        self.inner.atomic(CONNECTED, at, (AtomicKind::Compare, AtomicOp::Cswap), (new, expected))
    }

    /// Changes an element of the peer's memory by any operation that fetches, and returns its
    /// previous value (fi_fetch_atomic); [`AtomicOp::Read`] changes nothing.
    ///
    /// # Errors
    /// As for [`Self::fetch_add`]; EOPNOTSUPP for an operation that the type has not
    /// (fi_atomic(3)).
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let before = ep.fetch(key, ofi::AtomicOp::Max, 3i64).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch<T: Element>(&self, at: RemoteKey, op: AtomicOp, value: T) -> Fetch<'_, T> {
        self.inner.atomic(CONNECTED, at, (AtomicKind::Fetch, op), (value, value))
    }

    /// A stream of the messages without tag that arrive until the connection ends, over `depth`
    /// buffers of `size` bytes.
    ///
    /// At most `depth` messages are received before the program takes them. The endpoint keeps the
    /// messages beyond them up to FI_OFI_PEER_MEMORY (256 MiB by default), as those for which there
    /// is no receive, and then holds up senders that are faster than the program.
    ///
    /// ```no_run
    /// # async fn example(ep: &ofi::MsgEndpoint, key: ofi::RemoteKey) -> Result<(), ofi::Error> {
    /// let mut incoming = ep.incoming(4, 1024);
    /// while let Some(Ok(message)) = incoming.next().await {
    ///     incoming.recycle(message);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn incoming(&self, depth: usize, size: usize) -> ConnectionIncoming<'_> {
        ConnectionIncoming::new(Incoming::new(&self.inner, None, depth, size))
    }

    /// The same for the tagged messages that [`Self::receive_tagged`] takes.
    pub fn incoming_tagged(&self, tag: u64, ignore: u64, depth: usize, size: usize) -> ConnectionIncoming<'_> {
        ConnectionIncoming::new(Incoming::new(&self.inner, Some((tag, ignore)), depth, size))
    }

    /// The address at which this end is (fi_getname).
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.inner.local_addr()
    }

    /// Closes it, as dropping does, and waits for the end without blocking the executor's thread: a
    /// thread that exists for that only waits for the peer, for five seconds at most (fi_close).
    /// Dropping the future does not stop it.
    ///
    /// ```no_run
    /// # async fn example(ep: ofi::MsgEndpoint) -> Result<(), ofi::OperationError> {
    /// ep.send("the last message").await.0?;
    /// ep.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        // The events end later.
        let Self { inner, events: _events } = self;
        inner.close().await;
    }

    /// What it has done since it was opened: [`RdmEndpoint::statistics`](crate::RdmEndpoint::statistics).
    pub fn statistics(&self) -> Statistics {
        self.inner.engine().control.statistics()
    }

    /// Describes the pending operations and what they wait for, to find the cause of a hang.
    pub fn describe(&self) -> String {
        self.inner.engine().control.describe()
    }
}
