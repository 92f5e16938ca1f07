//! The contract of `engine/src/transport.rs`: in each direction of a link a channel of the standard
//! library. Dropping an end of a channel is how a link ends: the other side finds it disconnected
//! once it has read everything, and its bell rings last.

use core::time::Duration;
use ofi_core::addr::Name;
use ofi_core::error::{Error, Result};
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{
    ConnectRequest, Down, Incoming, LinkEvents, LinkId, Listener, Payload, ShutdownState, Submitted, Transport,
    Urgency, Verdict,
};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_os::wait_fd::FdWaitObject;
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Unread frames of a link from which on the sender should stop; also what a poll reads of a link.
const MOST: usize = 64;

/// The endpoints of this process: where their connect requests go.
pub(crate) type Table = BTreeMap<Addr, (Sender<Request>, Bell)>;

/// Locks the table.
pub(crate) fn table() -> MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(Table::new());
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an endpoint's descriptor readable, at the latest when it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<FdWaitObject>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.signal();
    }
}

#[derive(Debug)]
enum Item {
    /// The acceptor's hello.
    Answer(Vec<u8>),
    /// A header and a copy of its payload, with a clone of the sender's [`Link::unread`].
    Frame(Header, Vec<u8>, Arc<()>),
    /// The other direction is no longer full.
    Room,
}

/// One side of a link. The bell comes last, so that it rings when the channels are dropped.
#[derive(Debug)]
struct Link {
    /// None after the shutdown.
    outgoing: Option<Sender<Item>>,
    incoming: Receiver<Item>,
    remote: Addr,
    /// Its clones are frames that the peer has not read.
    unread: Arc<()>,
    is_answered: bool,
    is_backed_up: bool,
    bell: Bell,
}

/// A connect request. Dropping it refuses it.
#[derive(Debug)]
pub struct Request {
    hello: Vec<u8>,
    link: Link,
}

impl Link {
    fn send(&self, item: Item) -> bool {
        let is_sent = self.outgoing.as_ref().is_some_and(|outgoing| outgoing.send(item).is_ok());
        self.bell.0.signal();
        is_sent
    }

    /// Reports what has arrived. False if nothing has. An error is the reason for which the link
    /// ends.
    fn read(&mut self, id: LinkId, own: &Bell, events: &mut impl LinkEvents) -> core::result::Result<bool, Down> {
        for count in 0..MOST {
            match self.incoming.try_recv() {
                Ok(Item::Answer(hello)) => {
                    self.is_answered = true;
                    events.handle_connected(id, &hello)?;
                }
                Ok(Item::Frame(header, payload, unread)) => {
                    let result = events.handle_frame(id, &header, Incoming::Complete(&payload));
                    result.map_err(|Violation(what)| Down::violation(what))?;
                    // A sender that is backed up adds nothing, so the count passes the half.
                    if Arc::strong_count(&unread) == MOST / 2 {
                        self.send(Item::Room);
                    }
                }
                Ok(Item::Room) if core::mem::take(&mut self.is_backed_up) => events.handle_send_room(id),
                // The sender found room before it was told.
                Ok(Item::Room) => {}
                Err(TryRecvError::Empty) => return Ok(count > 0),
                Err(TryRecvError::Disconnected) if self.is_answered => {
                    return Err(Down::new(Cause::Broken, Errno::ECONNRESET, "the peer has ended the link"));
                }
                Err(TryRecvError::Disconnected) => {
                    return Err(Down::new(Cause::Connect, Errno::ECONNREFUSED, "no endpoint accepts the link"));
                }
            }
        }
        // The next poll reads on, after the other links.
        own.0.signal();
        Ok(true)
    }
}

/// An endpoint at an address of its own, with its links.
#[derive(Debug)]
pub struct LoopbackTransport {
    addr: Addr,
    requests: Receiver<Request>,
    links: Slab<Link>,
    bell: Bell,
}

impl LoopbackTransport {
    /// Opens an endpoint at an address, or at a fresh one.
    pub(crate) fn open(addr: Option<Addr>) -> Result<Self> {
        let fresh = || Name::new(&format!("fi_ns://loopback-{:032x}", u128::from_ne_bytes(ofi_os::random())));
        let addr = addr.or_else(|| fresh().map(Addr::Name)).ok_or_else(|| Error::new(Errno::EINVAL, "make a name"))?;
        let (bell, (sender, requests)) = (Bell(Arc::new(FdWaitObject::new(true)?)), channel());
        let mut table = table();
        if table.contains_key(&addr) {
            return Err(Error::new(Errno::EADDRINUSE, format!("open an endpoint at {addr}")));
        }
        table.insert(addr, (sender, bell.clone()));
        Ok(Self { addr, requests, links: Slab::new(), bell })
    }

    /// The number of the next link.
    fn next_id(&self) -> LinkId {
        LinkId(u32::try_from(self.links.vacant_key()).expect("memory holds fewer links"))
    }
}

impl Transport for LoopbackTransport {
    type Request = Request;

    fn local_addr(&self) -> Addr {
        self.addr
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let (id, hello, bell) = (self.next_id(), hello.to_vec(), self.bell.clone());
        let ((there, from_here), (back, from_there)) = (channel(), channel());
        let link = |outgoing, incoming, remote, is_answered, bell| {
            let (outgoing, unread) = (Some(outgoing), Arc::default());
            Link { outgoing, incoming, remote, unread, is_answered, is_backed_up: false, bell }
        };
        let request = Request { hello, link: link(back, from_here, self.addr, true, bell.clone()) };
        let peer = table().get(to).cloned();
        let peer_bell = peer.as_ref().map_or(bell, |(_, bell)| bell.clone());
        self.links.insert(link(there, from_there, *to, false, peer_bell));
        if let Some((requests, _)) = peer {
            // An endpoint that is gone drops the request: the next poll finds its channels
            // disconnected.
            drop(requests.send(request));
        }
        Ok(id)
    }

    fn accept(&mut self, request: Request, hello: &[u8]) -> Result<LinkId> {
        let id = self.next_id();
        request.link.send(Item::Answer(hello.to_vec()));
        self.links.insert(request.link);
        // Frames may have been waiting for the request to be accepted.
        self.bell.0.signal();
        Ok(id)
    }

    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, _: Urgency) -> Submitted {
        let Some(link) = self.links.get_mut(link.index()) else { return Submitted::Broken };
        link.is_backed_up |= Arc::strong_count(&link.unread) > MOST;
        if link.is_backed_up {
            return Submitted::Full;
        }
        let mut bytes = Vec::new();
        payload.append_to(&mut bytes);
        // The buffer stays where it is: it is the engine's again.
        if link.send(Item::Frame(*header, bytes, link.unread.clone())) { Submitted::Done } else { Submitted::Broken }
    }

    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        // Before everything is looked at: what arrives afterwards makes the descriptor readable
        // again.
        self.bell.0.drain();
        let mut any = false;
        while let Ok(Request { hello, link }) = self.requests.try_recv() {
            let (id, from) = (self.next_id(), link.remote);
            match events.handle_connect_request(id, &hello, &from, |name| *name == from) {
                Verdict::Accept(answer) => drop(self.accept(Request { hello, link }, &answer)),
                Verdict::Refuse(answer) => drop(link.send(Item::Answer(answer))),
            }
            any = true;
        }
        for slot in self.links.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            let id = LinkId(u32::try_from(slot).unwrap_or(u32::MAX));
            match self.links[slot].read(id, &self.bell, events) {
                Ok(some) => any |= some,
                Err(why) => {
                    drop(self.links.remove(slot));
                    events.handle_link_down(id, why);
                    any = true;
                }
            }
        }
        any
    }

    fn wait(&mut self, timeout: Duration) {
        self.bell.0.ready(Some(timeout), &mut Vec::new());
    }

    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        let Some(link) = self.links.get_mut(link.index()) else { return ShutdownState::Done };
        if let Some(last) = last {
            link.send(Item::Frame(*last, Vec::new(), link.unread.clone()));
        }
        drop(link.outgoing.take());
        link.bell.0.signal();
        if Arc::strong_count(&link.unread) == 1 { ShutdownState::Done } else { ShutdownState::Pending }
    }

    /// Every payload was copied, so there is none to give back.
    fn abort(&mut self, link: LinkId, _: &mut impl LinkEvents) {
        drop(self.links.try_remove(link.index()));
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.bell.0.descriptor())
    }

    fn now(&self) -> Instant {
        ofi_os::clock::now()
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        table().remove(&self.addr);
    }
}

/// A listener: an endpoint that hands its requests over.
#[derive(Debug)]
pub struct LoopbackListener(pub(crate) LoopbackTransport);

impl Listener for LoopbackListener {
    type Request = Request;

    fn local_addr(&self) -> Addr {
        self.0.addr
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Request>>) -> bool {
        self.0.bell.0.drain();
        let before = asked.len();
        asked.extend(self.0.requests.try_iter().map(|request| {
            let (hello, from, to) = (request.hello.clone(), request.link.remote, self.0.addr);
            ConnectRequest { request, hello, from, to }
        }));
        asked.len() > before
    }

    fn refuse(&mut self, request: Request, hello: &[u8]) {
        request.link.send(Item::Answer(hello.to_vec()));
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.0.descriptor()
    }
}
