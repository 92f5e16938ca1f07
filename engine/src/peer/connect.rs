//! Connecting: this side's hello, and the table entries of a link that is being set up.

use super::Peers;
use super::agenda::Work;
use super::credit::RxCredits;
use super::handshake::MOST_QUESTIONS;
use super::link::{Link, Purpose};
use super::table::{PeerId, PeerState, Senders, Yielding};
use super::yields::Due;
use crate::transport::{ConnectRequest, Down, LinkId, ShutdownState, Transport};
use crate::wire::frame::Frame;
use crate::wire::hello::{Contexts, Credits, Handshake, Hello};
use ofi_core::error::Result;
use ofi_core::{Addr, Cause, Errno, Error, Instant};

impl Peers {
    pub(crate) fn hello(&self, handshake: Handshake, cookie: [u8; 16], credits: Credits, data: Vec<u8>) -> Hello {
        let (kind, nonce, attempt) = (self.myself.kind, self.myself.nonce, self.myself.attempts);
        let contexts = Contexts::default();
        let credits = Credits { preview: self.myself.preview, ..credits };
        Hello { handshake, kind, nonce, attempt, cookie, credits, contexts, name: None, data }
    }

    /// Connects to a peer for its waiting sends. If a link claims the peer's name, asks the peer
    /// about it first, unless the peer was `asked` often enough: a flood of claims must not delay
    /// sends.
    ///
    /// # Errors
    /// The reason why the connect cannot start, with which the waiting sends fail.
    pub(crate) fn begin_connect<T: Transport>(
        &mut self,
        transport: &mut T,
        peer: PeerId,
        asked: u8,
    ) -> core::result::Result<(), Down> {
        // Claims are about names, which all receive contexts share: the first one answers.
        let first = self.table.get(peer).is_some_and(|peer| peer.rx_index == 0);
        let claimed = self.addr_of(peer).filter(|addr| first && asked < MOST_QUESTIONS && self.claims.has(addr));
        let result = match claimed {
            Some(name) => self.verify(transport, peer, name, asked),
            None => self.connect(transport, peer, Vec::new()),
        };
        result.map_err(|error| Down::new(Cause::Connect, error.errno(), error.to_string()))
    }

    /// Starts connecting to a peer, with the application's connection data.
    pub(crate) fn connect<T: Transport>(&mut self, transport: &mut T, peer: PeerId, data: Vec<u8>) -> Result<()> {
        let credit = RxCredits::open(&self.account);
        let grant = credit.grant();
        let cookie = transport.random();
        let link = Link::new(peer, credit, cookie, true);
        let hello = self.hello(Handshake::Connect, cookie, grant, data);
        self.begin_link(transport, link, hello)
    }

    /// Has the transport connect with this hello, and adds the link.
    pub(crate) fn begin_link<T: Transport>(&mut self, transport: &mut T, mut link: Link, hello: Hello) -> Result<()> {
        let (addr, receive) = self.table.get(link.peer).map_or((None, 0), |peer| (peer.addr, peer.rx_index));
        self.myself.attempts += 1;
        let contexts = Contexts { transmit: self.myself.contexts.transmit, receive };
        let hello = Hello { attempt: self.myself.attempts, contexts, name: Some(transport.local_addr()), ..hello };
        let begun = addr
            .ok_or_else(|| Error::new(Errno::EINVAL, "connect without an address"))
            .and_then(|addr| transport.connect(&addr, &hello.encode()));
        match begun {
            Ok(id) => {
                link.identity.remote = addr;
                let peer = link.peer;
                self.add_link(id, link);
                self.set_state(peer, PeerState::Connecting(id));
                Ok(())
            }
            Err(error) => {
                link.rx.credit.close(&self.account);
                Err(error)
            }
        }
    }

    /// Accepts a connection request of a passive endpoint, which may be the only peer. An error
    /// changes nothing.
    pub(crate) fn accept<T: Transport>(
        &mut self,
        transport: &mut T,
        asked: ConnectRequest<T::Request>,
        data: Vec<u8>,
        senders: &mut impl Senders,
    ) -> Result<()> {
        let hello = Hello::parse(&asked.hello).map_err(|violation| Error::new(Errno::EPROTO, violation.0))?;
        let credit = RxCredits::open(&self.account);
        let answer = self.hello(Handshake::Accept, hello.cookie, credit.grant(), data);
        let id = match transport.accept(asked.request, &answer.encode()) {
            Ok(id) => id,
            Err(error) => {
                credit.close(&self.account);
                return Err(error);
            }
        };
        let peer = self.add_only_peer(asked.from, senders);
        let mut link = Link::new(peer, credit, hello.cookie, false);
        link.take_hello(&hello);
        link.identity.remote = Some(asked.from);
        self.add_link(id, link);
        self.set_state(peer, PeerState::Open(id));
        self.note_connected(peer);
        self.mark_pending(id);
        Ok(())
    }

    /// Adds the peer of a connected endpoint, which stays until the endpoint is closed.
    pub(crate) fn add_only_peer(&mut self, addr: Addr, senders: &mut impl Senders) -> PeerId {
        let id = self.add_peer(Some(addr), senders);
        if let Some(peer) = self.table.get_mut(id) {
            peer.kept = true;
        }
        id
    }

    /// Adds a link that the peer has initiated, with the credit that its answer grants.
    pub(crate) fn add_accepted(
        &mut self,
        id: LinkId,
        peer: PeerId,
        hello: &Hello,
        from: &Addr,
        purpose: Purpose,
    ) -> Vec<u8> {
        let credit = RxCredits::open(&self.account);
        let grant = credit.grant();
        let mut link = Link::new(peer, credit, hello.cookie, false);
        link.purpose = purpose;
        link.take_hello(hello);
        link.identity.remote = Some(*from);
        self.add_link(id, link);
        self.note_connected(peer);
        self.hello(Handshake::Accept, hello.cookie, grant, Vec::new()).encode()
    }

    /// A link that this side initiated is open.
    pub(crate) fn open_link(&mut self, id: LinkId, hello: &Hello) {
        let Some(link) = self.link(id) else { return };
        link.take_hello(hello);
        let peer = link.peer;
        self.set_state(peer, PeerState::Open(id));
        self.note_connected(peer);
        self.mark_pending(id);
    }

    /// This side waits for the peer to connect.
    pub(crate) fn yield_to(&mut self, peer: PeerId, until: Yielding) {
        self.set_state(peer, PeerState::Yielding(until));
        self.yields.add(peer);
        self.agenda.add(Work::STIRRED);
    }

    /// Ends the waits for peers' own connections that are over at `now`. Returns these peers, with
    /// the number of times that each was asked about claims; their state is idle.
    pub(crate) fn end_yields(&mut self, now: Instant) -> Vec<(PeerId, u8)> {
        let over = self.yields.tick(&mut self.table, now);
        if !self.yields.is_empty() {
            self.agenda.add(Work::STIRRED);
        }
        over.iter().for_each(|(peer, _)| self.set_state(*peer, PeerState::Idle));
        over
    }

    /// When [`Self::end_yields`] next has work.
    pub(crate) fn next_due(&self) -> Option<Due> {
        self.yields.next_due(&self.table)
    }

    /// Ends a link in order: submitted frames leave first, then Bye.
    pub(crate) fn shut_down<T: Transport>(&mut self, transport: &mut T, id: LinkId) -> ShutdownState {
        let says = self.link(id).is_some_and(|link| !core::mem::replace(&mut link.tx.ended, true));
        transport.shutdown(id, says.then(|| Frame::Bye.encode()).as_ref())
    }
}
