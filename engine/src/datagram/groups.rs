//! Multicast groups of a datagram endpoint (fi_cm(3), fi_join).

use super::{DatagramEndpoint, Datagrams, Inner, Joined, Membership};
use crate::completion::eq::{BoundEq, Event, EventKind, EventQueue, Owner};
use crate::op::Ways;
use crate::progress::set::Pollable;
use crate::transport::Down;
use ofi_core::error::{Error, Result};
use ofi_core::{Addr, Errno, FiAddr};
use ofi_sync::lock::LockKind;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A membership of the endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupMember {
    owner: Owner,
    group: Addr,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Awaited,
    Begun,
    Failed,
}

fn event_of(owner: Owner, failed: Option<Down>) -> Event {
    let kind = match failed {
        None => EventKind::Joined,
        Some(Down { errno, cause, text, .. }) => EventKind::Failed { errno, cause, text, data: Vec::new() },
    };
    Event { owner, kind }
}

impl<D: Datagrams, K: LockKind> Inner<D, K> {
    /// Reports how awaited memberships have turned out.
    pub(super) fn report_joined(&mut self) {
        let Self { socket: Some(socket), eq: Some(eq), members, .. } = self else { return };
        while let Some(Joined { group, failed }) = socket.next_joined() {
            let is_meant = |member: &&mut GroupMember| member.stage == Stage::Awaited && member.group == group;
            for member in members.iter_mut().filter(is_meant) {
                member.stage = if failed.is_none() { Stage::Begun } else { Stage::Failed };
                eq.push(event_of(member.owner, failed.clone()));
            }
        }
    }
}

impl<D: Datagrams, K: LockKind> DatagramEndpoint<D, K> {
    pub(super) fn events(&self) -> MutexGuard<'_, Option<BoundEq>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds an event queue for joined groups. A second one replaces the first and takes over its
    /// unread events; the first is no longer in use.
    ///
    /// # Errors
    /// If reading the queue is to poll the endpoint, those of watching its descriptor. An error
    /// changes nothing.
    pub fn bind_eq(self: &Arc<Self>, eq: &Arc<EventQueue>) -> Result<()> {
        let mut events = self.events();
        let follows = events.as_ref().is_some_and(BoundEq::is_followed);
        BoundEq::rebind(&mut events, eq, follows.then(|| self.clone() as Arc<dyn Pollable>), |old| {
            // Under the endpoint's lock, so that no newer event overtakes those handed over.
            let mut inner = K::lock(&self.inner);
            if let Some(old) = old {
                inner.members.iter().for_each(|member| old.hand_over(member.owner, eq));
            }
            inner.eq = Some(eq.clone());
        })
    }

    /// Whether an event queue is bound.
    pub fn has_eq(&self) -> bool {
        self.events().is_some()
    }

    /// Joins a multicast group (fi_join(3)). Calls `joined` with the handle to send to; the event
    /// for `owner` comes later, or at once.
    ///
    /// # Errors
    /// ENOEQ and ENOAV without such a binding, and the medium's.
    pub fn join(self: &Arc<Self>, group: Addr, ways: Ways, owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()> {
        let mut events = self.events();
        let Some(bound) = events.as_mut() else {
            return Err(Error::new(Errno::ENOEQ, "join a group without an event queue"));
        };
        let mut inner = K::lock(&self.inner);
        let Some(av) = inner.av.as_ref().map(|bound| bound.av.clone()) else {
            return Err(Error::new(Errno::ENOAV, "join a group without an address vector"));
        };
        if D::AWAITS {
            // The queue watches the descriptor, which the endpoint has once it is open. Following
            // takes the lock of the queue's progress set, which comes before the endpoint's.
            inner.open()?;
            drop(inner);
            bound.follow(self.clone())?;
            inner = K::lock(&self.inner);
        }
        let membership = inner.open()?.join(&group, ways)?;
        let handle = match av.try_insert(group) {
            Ok(handle) => handle,
            Err(errno) => {
                inner.open()?.leave(&group, ways);
                return Err(Error::new(errno, "insert a multicast group into the address vector"));
            }
        };
        joined(handle);
        let stage = match membership {
            Membership::Begun => Stage::Begun,
            Membership::Awaited => Stage::Awaited,
        };
        inner.members.push(GroupMember { owner, group, stage });
        drop(inner);
        if stage == Stage::Begun {
            bound.eq.push(event_of(owner, None));
        }
        Ok(())
    }

    /// Leaves a multicast group; `ways` are as for [`Self::join`], which returned the handle.
    pub fn leave(&self, group: &Addr, ways: Ways, handle: FiAddr, owner: Owner) {
        let mut inner = K::lock(&self.inner);
        let has_failed = |member: &GroupMember| member.owner == owner && member.stage == Stage::Failed;
        let is_over = inner.members.iter().any(has_failed);
        if let Some(socket) = inner.socket.as_mut().filter(|_| !is_over) {
            socket.leave(group, ways);
        }
        inner.members.retain(|member| member.owner != owner);
        let (av, eq) = (inner.av.as_ref().map(|bound| bound.av.clone()), inner.eq.clone());
        drop(inner);
        if let Some(av) = av {
            av.remove(handle);
        }
        if let Some(eq) = eq {
            eq.discard_events_of(owner);
        }
    }
}
