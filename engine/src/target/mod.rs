//! What peers ask for: access to registered memory. Everything in their frames is untrusted.
//! Neighbours: [`Peers`] has the links, [`Reporter`] takes completions. Knows nothing of sends and
//! receives; answers with frames.
//! Invariant: a range of memory is in use, which keeps its region from being closed, for as long as
//! a payload is arriving in it or leaving from it.

mod access;
mod atomic;
pub mod mr;
mod respond;

use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::credit::REQUESTS;
use crate::peer::link::Link;
use crate::transport::{Down, LinkId};
use crate::wire::frame::{Frame, Violation};
use crate::wire::one_sided::{Refusal, RemoteAddr};
use access::Placing;
use mr::{MemoryRegion, Regions};
use ofi_core::{BindFlags, Caps, MrAccess, OpFlags};
use ofi_memory::{Region, RegionError, RegionUse};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
use respond::Response;
use std::collections::VecDeque;
use std::sync::Arc;

/// Responses up to this length are what the memory held when the request arrived, in order with
/// writes that come later (max_order_war_size, fi_endpoint(3)).
pub const ORDERED: usize = 4096;
/// Payloads up to this length are copied even if the account is full: one on its way in and one on
/// its way out for each link.
const LEAST_COPY: usize = 64 << 10;
/// Refusals that may wait for a peer that does not read, if the account has room for them:
/// operations without a response need no credit, so nothing else bounds them.
const MOST_REFUSALS: usize = 1 << 14;
/// The same if it has not: 32 KiB.
const FEW_REFUSALS: usize = 512;
const _: () = assert!(FEW_REFUSALS * size_of::<Frame>() <= 32 << 10);
/// Number of empty buffers for short responses that are kept for later ones.
const SPARE: usize = 8;

/// What an endpoint does for its peers.
#[derive(Debug)]
pub(crate) struct Target {
    regions: Arc<Regions>,
    /// What peers may do.
    rights: MrAccess,
    /// By the transport's number; `None` for a link whose peer has asked for nothing.
    links: Vec<Option<Box<State>>>,
    /// The region that was accessed last, with the table's epoch at that time.
    latest: Option<(u64, Arc<MemoryRegion>)>,
    spare: Vec<Vec<u8>>,
}

/// The operations in progress for the peer of a link.
#[derive(Debug, Default)]
struct State {
    placing: Option<Placing>,
    /// In the order of the requests.
    responses: VecDeque<Response>,
    /// The transport keeps the payload of the first one.
    flies: bool,
    /// Bytes of the current operation that have been written or read.
    moved: usize,
    /// The current operation was refused.
    refused: bool,
}

/// A frame that accesses memory, as far as its outcome matters.
#[derive(Clone, Copy, Debug)]
struct Change {
    link: LinkId,
    /// The initiator's number.
    id: u32,
    last: bool,
    data: Option<u64>,
    class: OpFlags,
}

impl State {
    /// Whether earlier frames of the current operation count for its outcome.
    const fn has_begun(&self) -> bool {
        self.moved > 0 || self.refused
    }

    /// Bytes that the account is charged for it.
    fn charged(&self) -> usize {
        let placing = self.placing.as_ref().map_or(0, |placing| placing.charged);
        placing + self.responses.iter().map(Response::charged).sum::<usize>()
    }
}

impl Target {
    /// The target of an endpoint with these capabilities; without any that restricts the direction,
    /// it takes both.
    pub(crate) fn new(regions: Arc<Regions>, caps: Caps) -> Self {
        let mut rights = MrAccess::empty();
        if caps.intersects(Caps::RMA | Caps::ATOMIC) {
            let any = caps.intersects(Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE);
            rights.set(MrAccess::REMOTE_READ, !any || caps.contains(Caps::REMOTE_READ));
            rights.set(MrAccess::REMOTE_WRITE, !any || caps.contains(Caps::REMOTE_WRITE));
        }
        Self { regions, rights, links: Vec::new(), latest: None, spare: Vec::new() }
    }

    fn state(&mut self, id: LinkId) -> &mut State {
        if self.links.len() <= id.index() {
            self.links.resize_with(id.index() + 1, || None);
        }
        self.links[id.index()].get_or_insert_default()
    }

    fn known(&mut self, id: LinkId) -> Option<&mut State> {
        self.links.get_mut(id.index())?.as_deref_mut()
    }

    /// The region with this key, and the use of a range of it.
    #[inline]
    fn resolve(
        &mut self,
        place: RemoteAddr,
        len: u64,
        rights: MrAccess,
    ) -> Result<(&Arc<MemoryRegion>, RegionUse<&Region>), Refusal> {
        if !self.rights.contains(rights) {
            return Err(Refusal::Closed);
        }
        let epoch = self.regions.epoch();
        let known = matches!(&self.latest, Some((at, region)) if *at == epoch && region.key() == place.key);
        if !known {
            self.latest = self.regions.get(place.key).map(|region| (epoch, region));
        }
        let Some((_, region)) = &self.latest else { return Err(Refusal::Key) };
        let len = usize::try_from(len).map_err(|_| Refusal::Bounds)?;
        let range = region.region().resolve(place.addr, len, rights).map_err(refusal)?;
        Ok((region, range))
    }

    /// A frame that changes memory has been carried out: counts the operation if it was the last.
    #[inline]
    fn performed<K: LockKind>(&mut self, peers: &mut Peers, out: &mut Reporter<K>, change: Change, len: usize) {
        if change.last {
            acknowledge(peers, change.link, |_| ());
        }
        self.end_frame(peers, out, change, len, BindFlags::REMOTE_WRITE);
    }

    /// A frame has been carried out: counts the operation, and tells the application of its data,
    /// if it was the last and none was refused.
    #[inline]
    fn end_frame<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        change: Change,
        len: usize,
        kind: BindFlags,
    ) {
        let state = self.state(change.link);
        if !change.last {
            state.moved += len;
            return;
        }
        let (moved, refused) = (state.moved + len, state.refused);
        (state.moved, state.refused) = (0, false);
        if refused {
            return;
        }
        if let Some(link) = peers.link(change.link) {
            link.rx.counts.access(moved);
        }
        // The latest region is the one that has just been accessed.
        if out.accessed_by_peer(kind, moved)
            && let Some((_, region)) = &self.latest
        {
            region.count(kind, moved);
        }
        if let Some(data) = change.data {
            let src = peers.links.get(change.link).map_or(ofi_core::FiAddr::UNSPEC, |link| link.src);
            out.notified(change.class, moved, data, src);
        }
    }

    /// Notes that a frame was refused, which spoils its operation.
    fn spoil(&mut self, link: LinkId, last: bool) {
        let state = self.state(link);
        state.refused = !last;
        if last {
            state.moved = 0;
        }
    }

    /// Refuses a frame that changes memory.
    #[cold]
    fn refuse_change(&mut self, peers: &mut Peers, change: Change, why: Refusal) {
        self.spoil(change.link, change.last);
        refuse(peers, change.link, (change.id, change.last, why));
    }

    /// Refuses a request in its place among the responses.
    #[cold]
    fn refuse_request(&mut self, peers: &mut Peers, (link, id, last): (LinkId, u32, bool), why: Refusal) {
        self.spoil(link, last);
        self.state(link).responses.push_back(Response::refused(id, why));
        peers.mark_pending(link);
    }

    /// Checks that the peer has no more requests outstanding than it was granted.
    fn admit_request(&mut self, id: LinkId) -> Result<(), Violation> {
        if self.state(id).responses.len() >= REQUESTS as usize {
            return Err(Violation("the peer sent more requests than it was granted"));
        }
        Ok(())
    }

    /// An empty buffer for a short response.
    fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn give_spare(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// A link has ended.
    pub(crate) fn end_link(&mut self, peers: &Peers, id: LinkId) {
        if let Some(state) = self.links.get_mut(id.index()).and_then(Option::take) {
            peers.account().release(state.charged());
        }
    }

    /// Ends everything. Only for closing.
    pub(crate) fn discard_all(&mut self, peers: &Peers) {
        for state in self.links.drain(..).flatten() {
            peers.account().release(state.charged());
        }
        self.latest = None;
    }

    /// Describes the operations in progress for peers.
    pub(crate) fn describe(&self, most: usize) -> String {
        let links = self.links.iter().enumerate().filter_map(|(id, state)| Some((id, state.as_deref()?)));
        let line = |(id, state): (usize, &State)| {
            let placing = if state.placing.is_some() { ", a payload is arriving" } else { "" };
            format!("link {id} has {} responses to send{placing}\n", state.responses.len())
        };
        links.filter(|(_, state)| state.placing.is_some() || !state.responses.is_empty()).take(most).map(line).collect()
    }
}

/// Acknowledges an operation to the peer, soon, together with others.
fn acknowledge(peers: &mut Peers, id: LinkId, note: impl FnOnce(&mut Link)) {
    /// Number of operations that are acknowledged at once, although more may come.
    const PERFORMED: u32 = 64;
    let Some(link) = peers.link(id) else { return };
    note(link);
    let arrivals = &mut link.rx.arrivals;
    arrivals.performed += 1;
    if arrivals.performed >= PERFORMED {
        peers.mark_pending(id);
    } else if !core::mem::replace(&mut arrivals.listed, true) {
        peers.agenda.push_deferred(id);
    }
}

/// Refuses a frame of the peer, after the acknowledgments of earlier ones.
fn refuse(peers: &mut Peers, link: LinkId, (id, last, why): (u32, bool, Refusal)) {
    let account = peers.account().clone();
    let Some(entry) = peers.links.get_mut(link) else { return };
    let waiting = entry.tx.control.len();
    if waiting >= FEW_REFUSALS && entry.tx.charged == 0 {
        let cost = MOST_REFUSALS * size_of::<Frame>();
        entry.tx.charged = if account.try_charge(cost) { cost } else { 0 };
    }
    if waiting >= if entry.tx.charged > 0 { MOST_REFUSALS } else { FEW_REFUSALS } {
        let why = "the peer does not read why its operations are refused";
        return peers.abort_link(link, Some(Down::violation(why)));
    }
    let count = core::mem::take(&mut entry.rx.arrivals.performed);
    if count > 0 {
        entry.tx.control.push_back(Frame::Performed { count });
    }
    entry.tx.control.push_back(Frame::Refused { id, last, why });
    peers.mark_pending(link);
}

/// Charges the account for a copy of a payload. False if there is no room and the payload is not
/// short.
fn try_charge_copy(account: &Account, len: usize) -> bool {
    if account.try_charge(len) {
        return true;
    }
    let short = len <= LEAST_COPY;
    if short {
        account.charge(len);
    }
    short
}

const fn refusal(why: RegionError) -> Refusal {
    match why {
        RegionError::OutOfRange => Refusal::Bounds,
        RegionError::NoRight => Refusal::Rights,
        RegionError::Closed => Refusal::Key,
        RegionError::Unreachable(_) => Refusal::Fault,
    }
}
