//! Reads and writes of peers (fi_rma(3)).

use super::respond::Response;
use super::{Change, ORDERED, State, Target, acknowledge, refusal, try_charge_copy};
use crate::completion::reporter::Reporter;
use crate::peer::Peers;
use crate::peer::link::Coming;
use crate::target::mr::MemoryRegion;
use crate::transport::{Disposition, Incoming, LinkId, RecvTarget};
use crate::wire::frame::Violation;
use crate::wire::one_sided::{Action, Refusal, RemoteAddr};
use ofi_core::{BindFlags, MrAccess, OpFlags};
use ofi_memory::{Buffer, Region, RegionUse};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// A frame whose payload is arriving.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) change: Change,
    pub(super) kind: Payload,
    /// Bytes that the account is charged for a buffer of ours.
    pub(super) charged: usize,
}

/// Where an arriving payload goes.
#[derive(Debug)]
pub(super) enum Payload {
    /// Into the region: straight, or, where parts of it may be unmapped, into a buffer of ours,
    /// from which it is copied. `commit`: the bytes there are to be durable.
    Bytes { region: Arc<MemoryRegion>, copy: Option<RegionUse<Region>>, commit: Option<RemoteAddr> },
    /// Into a buffer of ours: the operands of an atomic operation.
    Operands { place: RemoteAddr, action: Action },
}

/// Makes a range durable that has just been written.
fn flush(region: &MemoryRegion, place: RemoteAddr, len: usize) -> Result<(), Refusal> {
    let range = region.region().resolve(place.addr, len, MrAccess::REMOTE_WRITE).map_err(refusal)?;
    range.flush().map_err(|_| Refusal::Flush)
}

/// A copied payload is gone: releases what the account is charged for it.
fn release(peers: &mut Peers, charged: usize) {
    if charged > 0 {
        peers.account().release(charged);
        peers.note_freed();
    }
}

impl Target {
    /// Fast path: a whole write to the region that was accessed last. On false
    /// [`Self::handle_write`] handles the frame; some of the bytes may have been written.
    #[inline(always)]
    pub(crate) fn try_write_fast<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &Reporter<K>,
        (link, place): (LinkId, RemoteAddr),
        bytes: &[u8],
    ) -> bool {
        let Some((epoch, region)) = &self.latest else { return false };
        if *epoch != self.regions.epoch()
            || region.key() != place.key
            || !self.rights.contains(MrAccess::REMOTE_WRITE)
            || self.links.get(link.index()).and_then(Option::as_deref).is_some_and(State::has_begun)
        {
            return false;
        }
        if region.region().write(place.addr, bytes, MrAccess::REMOTE_WRITE).is_err() {
            return false;
        }
        if out.accessed_by_peer(BindFlags::REMOTE_WRITE, bytes.len()) {
            region.count(BindFlags::REMOTE_WRITE, bytes.len());
        }
        acknowledge(peers, link, |link| link.rx.counts.access(bytes.len()));
        true
    }

    /// Handles a Write frame.
    #[inline]
    pub(crate) fn handle_write<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (link, id): (LinkId, u32),
        (place, more, commit): (RemoteAddr, u64, bool),
        (last, data): (bool, Option<u64>),
        payload: Incoming<'_>,
    ) -> Result<Disposition, Violation> {
        let change = Change { link, id, last, data, class: OpFlags::RMA };
        let len = payload.len();
        let whole = more.checked_add(len as u64).ok_or(Violation("a write is too long"))?;
        // The whole range is checked before its first byte is written.
        let found = self.resolve(place, whole, MrAccess::REMOTE_WRITE).and_then(|(region, range)| {
            if commit && !region.is_persistent() {
                return Err(Refusal::Rights);
            }
            let Incoming::Complete(bytes) = payload else { return Ok(Some((region.clone(), range.into_owned()))) };
            range.write(0, bytes).map_err(refusal)?;
            if commit {
                flush(region, place, len)?;
            }
            Ok(None)
        });
        let (region, range) = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.performed(peers, out, change, len);
                return Ok(Disposition::Done);
            }
            Err(why) => {
                self.refuse_change(peers, change, why);
                return Ok(Disposition::Done);
            }
        };
        let (buffer, copy, charged) = match Buffer::registered(range) {
            Ok(buffer) => (buffer, None, 0),
            Err(to) if try_charge_copy(peers.account(), len) => (Buffer::Owned(vec![0; len]), Some(to), len),
            Err(_) => {
                self.refuse_change(peers, change, Refusal::Memory);
                return Ok(Disposition::Done);
            }
        };
        let kind = Payload::Bytes { region, copy, commit: commit.then_some(place) };
        self.place(peers, Placing { change, kind, charged });
        Ok(Disposition::Into(RecvTarget { buffer, at: 0, take: len, offer: None }))
    }

    /// A payload is arriving.
    pub(super) fn place(&mut self, peers: &mut Peers, placing: Placing) {
        let id = placing.change.link;
        if let Some(link) = peers.link(id) {
            link.rx.coming = Some(Coming::Access);
        }
        self.state(id).placing = Some(placing);
    }

    /// A streaming payload has arrived.
    pub(crate) fn handle_access_done<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        link: LinkId,
        target: RecvTarget,
    ) -> Result<(), Violation> {
        let Some(Placing { change, kind, charged }) = self.known(link).and_then(|state| state.placing.take()) else {
            return Ok(());
        };
        let len = target.take;
        let Payload::Bytes { region, copy, commit } = kind else {
            let Payload::Operands { place, action } = kind else { return Ok(()) };
            let Buffer::Owned(bytes) = target.buffer else { return Ok(()) };
            let done = self.carry_out(peers, out, change, (place, action), &bytes);
            drop(bytes);
            release(peers, charged);
            return done;
        };
        let mut done = match (copy, &target.buffer) {
            (Some(to), Buffer::Owned(bytes)) => to.write(0, bytes).map_err(refusal),
            _ => Ok(()),
        };
        if let (Ok(()), Some(place)) = (done, commit) {
            done = flush(&region, place, len);
        }
        // The region is no longer in use when the peer or the application hears of this.
        drop(target);
        release(peers, charged);
        self.latest = Some((self.regions.epoch(), region));
        match done {
            Ok(()) => self.performed(peers, out, change, len),
            Err(why) => self.refuse_change(peers, change, why),
        }
        Ok(())
    }

    /// A streaming payload will not arrive: its link goes down, or its bytes cannot be read.
    /// `tell`: the link stays up, and the peer waits for an answer.
    pub(crate) fn handle_access_lost(&mut self, peers: &mut Peers, link: LinkId, tell: bool) {
        let Some(placing) = self.known(link).and_then(|state| state.placing.take()) else { return };
        release(peers, placing.charged);
        if tell {
            self.refuse_change(peers, placing.change, Refusal::Fault);
        }
    }

    /// Handles a Read frame.
    pub(crate) fn handle_read<K: LockKind>(
        &mut self,
        peers: &mut Peers,
        out: &mut Reporter<K>,
        (link, id): (LinkId, u32),
        (place, len, last): (RemoteAddr, u64, bool),
    ) -> Result<(), Violation> {
        self.admit_request(link)?;
        let mut spare = self.take_spare();
        let found = self.resolve(place, len, MrAccess::REMOTE_READ).and_then(|(_, range)| {
            if range.len() > ORDERED {
                return Ok(Response::of_region(id, range.into_owned()));
            }
            spare.resize(range.len(), 0);
            range.read(0, &mut spare).map_err(refusal)?;
            Ok(Response::copied(id, core::mem::take(&mut spare)))
        });
        match found {
            Ok(response) => {
                let change = Change { link, id, last, data: None, class: OpFlags::RMA };
                self.end_frame(peers, out, change, response.len(), BindFlags::REMOTE_READ);
                self.respond(peers, link, response);
            }
            Err(why) => self.refuse_request(peers, (link, id, last), why),
        }
        if spare.capacity() > 0 {
            self.give_spare(spare);
        }
        Ok(())
    }
}
