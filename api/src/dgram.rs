//! Datagram endpoints.

use crate::av::{AddressVector, Peer};
use crate::buf::{IoBuf, IoBufMut};
use crate::counter::Counter;
use crate::events::Subscription;
use crate::fabric::Domain;
use crate::incoming::Incoming;
use crate::info::Info;
use crate::inner::Inner;
use crate::message::ANY;
use crate::operation::Operation;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, EndpointType, Errno, Error, OpFlags};
use ofi_engine::Statistics;
use ofi_engine::erased::EndpointControl;
use std::sync::Arc;

/// An endpoint that sends and receives datagrams, which may be lost, repeated or overtaken
/// (FI_EP_DGRAM, fi_endpoint(3)).
///
/// ```
/// # use ofi::{DatagramEndpoint, EndpointType, Fabric, Info};
/// let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM);
/// let info = query.node("127.0.0.1").source().query()?.remove(0);
/// let domain = Fabric::open(&info)?.domain(&info)?;
/// let ep = DatagramEndpoint::open(&domain, &info)?;
/// let me = ep.peer(ep.local_addr()?)?;
/// let receive = ep.receive(vec![0; 1472]);
/// ofi::block_on(ep.send(me, "hello")).0?;
/// let (received, buf) = ofi::block_on(receive);
/// assert_eq!(&buf[..received?.len()], b"hello");
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Debug)]
pub struct DatagramEndpoint(Inner);

impl DatagramEndpoint {
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
        if info.ep.kind != EndpointType::DGRAM {
            let what = format!("open a datagram endpoint from an offer of {}", info.ep.kind);
            return Err(Error::new(Errno::EINVAL, what));
        }
        let inner = Inner::open(domain, info, av)?;
        inner.engine().control.clone().enable()?;
        Ok(Self(inner))
    }

    /// Has a counter count its sends ([`BindFlags::TRANSMIT`]) or receives from now on
    /// (fi_ep_bind).
    ///
    /// # Errors
    /// EINVAL if the counter is of another domain, or the endpoint has another one for such a kind;
    /// EBADFLAGS for flags that are no kind.
    ///
    /// ```
    /// # use ofi::{BindFlags, Counter, DatagramEndpoint, EndpointType, Fabric, Info};
    /// # let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM);
    /// # let info = query.node("127.0.0.1").source().query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// # let ep = DatagramEndpoint::open(&domain, &info)?;
    /// let sent = Counter::open(&domain);
    /// ep.bind_counter(&sent, BindFlags::TRANSMIT)?;
    /// # let me = ep.peer(ep.local_addr()?)?;
    /// ofi::block_on(ep.send(me, "hello")).0?;
    /// assert_eq!(sent.read(), 1);
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

    /// Sends a datagram (fi_send). It completes when the system has taken it.
    ///
    /// # Errors
    /// EMSGSIZE for more than `ep.max_msg_size` bytes; the system's error if it does not take it.
    pub fn send<B: IoBuf>(&self, peer: Peer, buf: B) -> Operation<'_, B> {
        self.0.send(self.0.to(peer), (None, None), OpFlags::empty(), buf)
    }

    /// Receives a datagram of any peer (fi_recv).
    ///
    /// # Errors
    /// ETRUNC if the datagram is longer than the buffer; the first bytes are there.
    pub fn receive<B: IoBufMut>(&self, buf: B) -> Operation<'_, B> {
        self.0.receive(ANY, None, buf)
    }

    /// A stream of the datagrams that arrive, over `depth` buffers of `size` bytes. The system
    /// drops datagrams if the program is too slow.
    pub fn incoming(&self, depth: usize, size: usize) -> Incoming<'_> {
        Incoming::new(&self.0, None, depth, size)
    }

    /// What takes part in joining a group: the endpoint, whose events go to the fabric's queue from
    /// now on, and the right to take those of one membership.
    pub(crate) fn for_groups(&self) -> Result<(Arc<dyn EndpointControl>, Subscription)> {
        let control = self.0.engine().control.clone();
        let events = self.0.parts().domain.0.fabric.events.subscribe();
        control.clone().bind_eq(events.queue(), events.owner())?;
        Ok((control, events))
    }

    /// What it has done since it was opened, with all peers together. Datagrams that the system or
    /// the network dropped are not known.
    pub fn statistics(&self) -> Statistics {
        self.0.engine().control.statistics()
    }

    /// The address at which peers reach it (fi_getname).
    ///
    /// # Errors
    /// The system's error if the address is not available.
    pub fn local_addr(&self) -> Result<Addr> {
        self.0.local_addr()
    }
}
