//! The parts of an endpoint put together: peers and links, sends, receives, completions. Passes
//! each event to the part that it is about.

use super::config::Config;
use super::connected::{Connected, PEER};
use super::connectionless::Connectionless;
use super::life::Life;
use super::stalled::Stalled;
use crate::av::AddressVector;
use crate::collective::Groups;
use crate::completion::eq::{Event, EventKind, EventQueue, Owner};
use crate::completion::reporter::Reporter;
use crate::limits::Limits;
use crate::op::{RecvOp, SendOp};
use crate::peer::Peers;
use crate::peer::agenda::Work;
use crate::peer::table::{PeerId, PeerState, Senders};
use crate::peer::yields::Due;
use crate::rx::arrive::OfferEnd;
use crate::rx::shared::{Notified, RxSource, SharedRx};
use crate::rx::{Peek, Posting, RxContext, RxSettings};
use crate::target::Target;
use crate::transport::{Down, LinkId, RecvTarget, Transport};
use crate::tx::{Admitted, Tx};
use crate::wire::hello::EndpointKind;
use ofi_core::{Cause, Errno, Error, FiAddr, Instant};
use ofi_sync::lock::LockKind;
use std::sync::{Arc, Weak};

/// The parts of an endpoint.
#[derive(Debug)]
pub(super) struct Core<K: LockKind> {
    pub(super) life: Life,
    pub(super) limits: Limits,
    pub(super) provider: &'static str,
    pub(super) peers: Peers,
    pub(super) tx: Tx,
    pub(super) rx: RxSource<K>,
    pub(super) target: Target,
    pub(super) out: Reporter<K>,
    pub(super) eq: Option<(Arc<EventQueue>, Owner)>,
    pub(super) groups: Groups,
    pub(super) stalled: Stalled,
    /// Sequence number of the latest operation.
    pub(super) seq: u64,
}

impl<K: LockKind> Core<K> {
    pub(super) fn new(config: Config) -> Self {
        let Config { kind, caps, tx_size, rx_size, limits, nonce, provider, regions, account, contexts } = config;
        let life = match kind {
            EndpointKind::Rdm => Life::Connectionless(Connectionless::New),
            EndpointKind::Msg => Life::Connected(Connected::New),
        };
        let rx = RxContext::new(RxSettings { size: rx_size, caps }, account.clone());
        Self {
            life,
            limits,
            provider,
            peers: Peers::new(kind, nonce, contexts, account),
            tx: Tx::new(tx_size),
            rx: RxSource::Own(rx),
            target: Target::new(regions, caps),
            out: Reporter::new(caps, provider),
            eq: None,
            groups: Groups::new(nonce),
            stalled: Stalled::default(),
            seq: 0,
        }
    }

    /// Whether the address vector may be bound: it must be that of a shared receive context.
    ///
    /// # Errors
    /// EINVAL for a second one, or another than the context has.
    pub(super) fn admit_av(&mut self, av: &Arc<AddressVector>) -> Result<(), Error> {
        if self.peers.has_av() {
            return Err(Error::new(Errno::EINVAL, "bind a second address vector"));
        }
        self.rx.lock().admit_av(Some(av))
    }

    /// Binds the address vector, in which the endpoint has the number `reader`.
    pub(super) fn bind_av(&mut self, av: &Arc<AddressVector>, epoch: u64, reader: usize) {
        self.peers.bind_av(av.clone(), epoch, reader);
        self.out.set_av(av);
    }

    /// Takes receives from a shared context from now on.
    pub(super) fn share_rx(&mut self, context: &Arc<SharedRx<K>>, me: Weak<dyn Notified>) -> Result<(), Error> {
        if self.rx.is_shared() {
            return Err(Error::new(Errno::EINVAL, "bind a second receive context"));
        }
        if self.rx.lock().buffered_limit().is_some() {
            let what = "bind a shared receive context to an endpoint with buffered receives (FI_BUFFERED_RECV)";
            return Err(Error::new(Errno::EINVAL, what));
        }
        let membership = context.join(self.peers.av(), me)?;
        self.peers.set_participant(membership.participant);
        self.rx = RxSource::Shared(membership);
        Ok(())
    }

    /// Checks a send.
    #[inline(always)]
    pub(super) fn admit(&self, op: &SendOp) -> Result<Admitted, Errno> {
        if !self.life.is_open() {
            self.life.accepts()?;
        }
        self.tx.admit(&self.out, &self.limits, op)
    }

    /// Fast path: a short message to a peer with an open link and credit, for which nothing must be
    /// remembered. On false nothing has changed, and [`Self::send`] handles the operation.
    #[inline(always)]
    pub(super) fn try_send_fast<T: Transport>(&mut self, transport: &mut T, op: &SendOp, admitted: Admitted) -> bool {
        if T::COMBINES_FRAMES && self.peers.agenda.watches_replies() {
            return false;
        }
        let Some(peer) = self.known_peer(op.dest) else { return false };
        self.tx.try_send_fast(&mut self.peers, &self.out, transport, (peer, op, admitted))
    }

    pub(super) fn send<T: Transport>(
        &mut self,
        transport: &mut T,
        op: SendOp,
        admitted: Admitted,
    ) -> Result<(), Errno> {
        self.take_acks_along(transport, op.dest);
        let peer = match self.known_peer(op.dest) {
            Some(peer) => peer,
            None => self.find_peer(op.dest)?,
        };
        if let Life::Connected(_) = self.life {
            self.check_connection(peer)?;
        }
        self.seq += 1;
        let Self { peers, tx, out, seq, .. } = self;
        tx.send(peers, out, transport, (peer, op, admitted), *seq)
    }

    /// Checks that a connected endpoint has its connection. It has a peer from fi_connect or
    /// fi_accept on.
    pub(super) fn check_connection(&self, peer: PeerId) -> Result<(), Errno> {
        match self.peers.state_of(peer) {
            PeerState::Open(_) => Ok(()),
            PeerState::Idle => Err(Errno::ENOTCONN),
            PeerState::Connecting(_) | PeerState::Yielding(_) => Err(Errno::EOPBADSTATE),
        }
    }

    /// The peer of a handle, if it is cached and the address vector has not changed.
    #[inline(always)]
    pub(super) fn known_peer(&self, handle: FiAddr) -> Option<PeerId> {
        match self.life {
            Life::Connected(_) => Some(PEER),
            Life::Connectionless(_) => self.peers.known_peer(handle),
        }
    }

    /// The peer of a handle that is not cached, created if needed.
    #[cold]
    pub(super) fn find_peer(&mut self, handle: FiAddr) -> Result<PeerId, Errno> {
        self.check_av();
        match self.known_peer(handle) {
            Some(peer) => Ok(peer),
            None => self.peers.peer_in_av(handle, &mut *self.rx.lock()),
        }
    }

    /// Fast path: a receive of one message while no unexpected message waits. Otherwise nothing has
    /// changed, and the operation is returned.
    #[inline(always)]
    pub(super) fn try_post_fast(&mut self, op: RecvOp) -> Result<(), RecvOp> {
        let Self { life, peers, rx: RxSource::Own(rx), out, seq, .. } = self else { return Err(op) };
        let (true, Some(target)) = (life.is_open(), &out.sinks.rx) else { return Err(op) };
        rx.try_post_fast(peers, target.selective, op, seq, |handle| match life {
            Life::Connected(_) => Some(PEER),
            Life::Connectionless(_) => peers.known_sender(handle),
        })
    }

    pub(super) fn receive<T: Transport>(&mut self, transport: &mut T, op: RecvOp, deferred: bool) -> Result<(), Errno> {
        match self.life {
            Life::Connected(life) => life.accepts_receives()?,
            Life::Connectionless(life) => life.accepts()?,
        }
        let selective = self.out.sinks.rx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        self.check_av();
        self.seq += 1;
        let connected = matches!(self.life, Life::Connected(_));
        let Self { peers, rx, out, seq, .. } = self;
        // Receives of a shared context are posted to the context.
        let rx = rx.own().ok_or(Errno::ENOSYS)?;
        let posting = rx.sort(op, (selective, *seq), |rx, handle| {
            if connected {
                // Its peer has this number from fi_connect or fi_accept on.
                return Some(PEER);
            }
            peers.sender_in_av(handle, rx)
        })?;
        if posting.looks() {
            return self.look(transport, posting);
        }
        let posting = if deferred { posting.deferred() } else { posting };
        let source = posting.source();
        let result = rx.post(out, posting, |rx, out, found| rx.deliver(peers, out, found));
        if matches!(result, Ok(true)) {
            rx.tell_wanted(peers, out, source);
        }
        if rx.is_pending() {
            peers.note_awaited(true);
            // The address may have been inserted meanwhile.
            self.check_av();
        }
        self.settle(transport);
        result.map(drop)
    }

    /// Whether the connection has ended, so that only what had arrived before can be received.
    #[inline(always)]
    pub(super) fn has_ended(&self) -> bool {
        self.life == Life::Connected(Connected::Ended)
    }

    /// Receives what had arrived before the connection ended.
    pub(super) fn receive_the_rest<T: Transport>(&mut self, transport: &mut T, op: RecvOp) -> Result<(), Errno> {
        let selective = self.out.sinks.rx.as_ref().ok_or(Errno::ENOCQ)?.selective;
        self.seq += 1;
        let Self { peers, rx, out, seq, .. } = self;
        let rx = rx.own().ok_or(Errno::ENOSYS)?;
        let posting = rx.sort(op, (selective, *seq), |_, _| Some(PEER))?;
        if !rx.has_message_for(&posting) {
            return Err(Errno::ENOTCONN);
        }
        if posting.looks() {
            return self.look(transport, posting);
        }
        let result = rx.take_kept(peers, out, posting);
        // A buffer for several messages gets no more.
        rx.fail_all_posted(out, &Down::new(Cause::PeerClosed, Errno::ENOTCONN, "the connection has ended"));
        self.settle(transport);
        result
    }

    /// FI_PEEK, FI_CLAIM, FI_DISCARD: acts on an unexpected message.
    #[cold]
    fn look<T: Transport>(&mut self, transport: &mut T, mut posting: Posting) -> Result<(), Errno> {
        let mut found = self.rx.lock().begin_look(&posting)?;
        if matches!(found, Some(Peek::Nothing)) && transport.poll(self) {
            // The message may not have been read yet.
            found = self.rx.lock().begin_look(&posting)?;
        }
        let source = posting.source();
        let Self { peers, rx, out, .. } = self;
        let mut rx = rx.lock();
        let result = match found {
            Some(found) => {
                let misses = matches!(found, Peek::Nothing);
                rx.peek(peers, out, &mut posting, found);
                if misses {
                    // A blocked peer may have the message: with credit it sends it, and a later
                    // peek finds it.
                    rx.tell_wanted(peers, out, source);
                }
                Ok(())
            }
            None => rx.claim(peers, out, posting),
        };
        drop(rx);
        self.settle(transport);
        result
    }

    /// Applies changes of the address vector.
    #[inline]
    pub(super) fn check_av(&mut self) {
        if !self.peers.is_av_known() {
            self.learn_av();
        }
    }

    #[cold]
    fn learn_av(&mut self) {
        let Self { peers, rx, out, .. } = self;
        let mut rx = rx.lock();
        // Until nothing has changed meanwhile: an insertion calls only endpoints that have said
        // that they wait for one.
        while let Some(unnamed) = peers.next_changes() {
            // The application cannot address them any more.
            unnamed.into_iter().for_each(|peer| peers.release_peer(peer, &mut *rx));
            if rx.resolve(|rx: &mut RxContext, handle| peers.sender_in_av(handle, rx)) {
                rx.rematch(peers, out);
                // A blocked peer may hold a message for one of these receives.
                peers.note_freed();
            }
            peers.note_awaited(rx.is_pending());
        }
        drop(rx);
        self.tell_others();
    }

    /// Tells the address vector whether receives wait for handles.
    #[cold]
    pub(super) fn note_awaited(&mut self) {
        self.peers.note_awaited(self.rx.lock().is_pending());
    }

    /// Notifies the other endpoints of a shared receive context for which this one has left
    /// matches.
    pub(super) fn tell_others(&mut self) {
        if self.rx.is_shared() {
            let told = self.rx.lock().take_to_tell();
            told.iter().for_each(|news| news.notify());
        }
    }

    /// Cancels the oldest cancelable operation with this context; a deferred one if there is no
    /// other.
    pub(super) fn cancel(&mut self, context: usize) {
        if !self.cancel_one(context) {
            let started = self.out.sinks.started.find(context);
            started.into_iter().any(|context| self.cancel_one(context));
        }
    }

    /// Cancels the oldest cancelable operation whose ticket has this context. False if there is
    /// none.
    fn cancel_one(&mut self, context: usize) -> bool {
        let Self { peers, tx, rx, out, .. } = self;
        let send = tx.oldest_cancelable(peers, context);
        let receive = rx.own().and_then(|rx| rx.oldest_cancelable(context));
        let why = || Down::new(Cause::Cancelled, Errno::ECANCELED, Cause::Cancelled.text());
        match (send, receive) {
            (Some((sent, _)), Some((received, key))) if received < sent => rx.lock().cancel(out, key, &why()),
            (Some((_, number)), _) => tx.cancel(peers, out, number, &why()),
            (None, Some((_, key))) => rx.lock().cancel(out, key, &why()),
            (None, None) => return false,
        }
        true
    }

    /// Delivers the matches that others have left for this endpoint in a shared receive context.
    #[cold]
    pub(super) fn take_left(&mut self) {
        let Self { peers, rx, out, .. } = self;
        let mut rx = rx.lock();
        rx.take_left(peers, out);
        rx.relieve_all(peers, out);
        peers.await_claimed(|sender| rx.is_awaited(sender));
        peers.note_awaited(rx.is_pending());
        drop(rx);
        // The address may have been inserted meanwhile.
        self.check_av();
    }

    /// Sends deferred arrival acknowledgments, and checks the account for room.
    pub(super) fn run_deferred(&mut self, idle: bool) {
        self.peers.agenda.note_poll();
        if !self.peers.agenda.is_deferral_over(idle) {
            return;
        }
        self.peers.end_deferral();
        self.peers.check_account();
    }

    /// Does the work that is due at `now`, a time that is read only if there may be some: logs
    /// losses, connects to peers and asks them about claims. Resets the agenda's work.
    pub(super) fn tick<T: Transport>(&mut self, transport: &mut T, now: impl FnOnce(&T) -> Instant) {
        if !self.peers.agenda.begin_tick() {
            return;
        }
        let now = now(transport);
        self.out.log_losses(now);
        for (peer, asked) in self.peers.end_yields(now) {
            // The peer's own connection did not arrive: connect, with a deadline of our own.
            let Some(entry) = self.peers.table.get(peer) else { continue };
            let (name, idle) = (entry.addr, entry.waiting.is_empty());
            let Self { peers, tx, rx, out, .. } = self;
            if !idle {
                tx.begin_connect(peers, out, transport, (peer, asked));
            } else if let Some(name) = name.filter(|_| asked == 0 && peers.is_claimed(peer)) {
                // Only receives wait. Failing to ask is no error: the peer may connect later.
                drop(peers.verify(transport, peer, name, asked));
            } else {
                peers.release_peer(peer, &mut *rx.lock());
            }
        }
    }

    /// Whether work waits for the next poll, so that no thread may sleep.
    pub(super) fn leaves_work(&mut self) -> bool {
        let agenda = &self.peers.agenda;
        // A call of another thread may have completed messages of a group since the last poll.
        let groups = agenda.has(Work::GROUPS);
        agenda.has(Work::PENDING) || agenda.leaves_to_reply() || groups && self.has_group_work()
    }

    /// When [`Self::tick`] next has work.
    pub(super) fn next_due(&self) -> Option<Due> {
        if self.peers.agenda.has(Work::STIRRED) { self.peers.next_due() } else { None }
    }

    /// Carries out pending work: credit for blocked peers, aborts, and sends on pending links.
    pub(super) fn settle<T: Transport>(&mut self, transport: &mut T) {
        if self.peers.can_relieve() {
            let Self { peers, rx, out, .. } = self;
            rx.lock().relieve_all(peers, out);
        }
        while let Some((id, why)) = self.peers.agenda.pop_aborted() {
            transport.abort(id, self);
            if let Some(why) = why {
                self.end_link(id, &why);
            }
        }
        while let Some((id, has_offers)) = self.peers.next_pending() {
            if has_offers {
                self.take_offers(transport, id);
            }
            let Self { peers, tx, target, out, .. } = self;
            target.pump(peers, transport, id);
            tx.pump(peers, out, transport, id);
        }
    }

    /// Asks the transport for the payloads of offers that have waited for a receive.
    #[inline(never)]
    fn take_offers<T: Transport>(&mut self, transport: &mut T, id: LinkId) {
        let Self { peers, rx, out, .. } = self;
        while let Some(target) = peers.link(id).and_then(|link| link.rx.offers.pop_front()) {
            if let Err(RecvTarget { buffer, offer: Some(offer), .. }) = transport.take_offer(id, target) {
                rx.lock().handle_offer_end(peers, out, (id, offer), (buffer, OfferEnd::Declined));
            }
        }
    }

    /// Reports an event to the bound event queue, if any.
    pub(super) fn event(&self, kind: EventKind) {
        if let Some((eq, owner)) = &self.eq {
            eq.push(Event { owner: *owner, kind });
        }
    }

    /// Begins to close: completions and events are no longer reported, because other endpoints may
    /// still use the queues.
    pub(super) fn begin_close(&mut self) {
        self.life = self.life.closing();
        let Self { peers, tx, rx, out, .. } = self;
        // A receive posted to a shared context completes here or on another endpoint.
        rx.leave(peers, out);
        out.silence();
        self.eq = None;
        self.groups.discard_all();
        rx.lock().discard_all(peers);
        tx.begin_close(peers);
        peers.end_deferral();
    }

    /// Drops all operations without completions. Only for closing.
    pub(super) fn discard_all(&mut self) {
        self.groups.discard_all();
        let Self { peers, tx, rx, target, out, .. } = self;
        rx.leave(peers, out);
        rx.lock().discard_all(peers);
        tx.discard_all(peers);
        target.discard_all(peers);
        peers.discard_all();
    }
}

impl<K: LockKind> Drop for Core<K> {
    fn drop(&mut self) {
        self.discard_all();
    }
}
