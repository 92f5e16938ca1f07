//! The multicast groups that an endpoint has joined. A group is an IP address: devices know no
//! ports of groups, and it is joined once for all memberships.

use ofi_core::Addr;
use ofi_engine::datagram::Joined;
use ofi_engine::op::Ways;
use ofi_engine::transport::Down;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The groups, by addresses without ports.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: Vec<Group>,
    /// How joins have ended that were not reported yet.
    outcomes: VecDeque<Joined>,
}

#[derive(Debug)]
struct Group {
    addr: SocketAddr,
    is_joined: bool,
    members: usize,
    /// Those that receive.
    receivers: usize,
    /// The addresses by which it is being joined.
    awaited: Vec<Addr>,
}

/// What the device is to do for a change of memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Join the group.
    Join,
    /// Receive from it.
    Receive,
    /// Receive from it no longer.
    Ignore,
    /// Leave it.
    Quit,
    Nothing,
}

/// The address by which a group is known.
pub(crate) fn key(addr: &Addr) -> SocketAddr {
    SocketAddr::new(addr.socket().ip(), 0)
}

impl Groups {
    pub(crate) fn contain(&self, key: &SocketAddr) -> bool {
        self.all.iter().any(|group| group.addr == *key)
    }

    /// What a new membership takes.
    pub(crate) fn task_of_member(&self, key: &SocketAddr, ways: Ways) -> Task {
        match self.all.iter().find(|group| group.addr == *key) {
            None => Task::Join,
            Some(Group { is_joined: true, receivers: 0, .. }) if ways.receive => Task::Receive,
            Some(_) => Task::Nothing,
        }
    }

    /// Adds a membership, for which the device has done its task. Returns whether it has begun.
    pub(crate) fn add(&mut self, addr: &Addr, ways: Ways) -> bool {
        let key = key(addr);
        let at = self.all.iter().position(|group| group.addr == key).unwrap_or_else(|| {
            let (members, receivers, awaited) = Default::default();
            self.all.push(Group { addr: key, is_joined: false, members, receivers, awaited });
            self.all.len() - 1
        });
        let group = &mut self.all[at];
        group.members += 1;
        group.receivers += usize::from(ways.receive);
        if !group.is_joined && !group.awaited.contains(addr) {
            group.awaited.push(*addr);
        }
        group.is_joined
    }

    /// Ends a membership. Returns what that takes.
    pub(crate) fn remove(&mut self, key: &SocketAddr, ways: Ways) -> Task {
        let Some(at) = self.all.iter().position(|group| group.addr == *key) else { return Task::Nothing };
        let group = &mut self.all[at];
        group.members -= 1;
        group.receivers -= usize::from(ways.receive);
        match *group {
            Group { members: 0, .. } => {
                self.all.swap_remove(at);
                Task::Quit
            }
            Group { receivers: 0, is_joined: true, .. } if ways.receive => Task::Ignore,
            Group { .. } => Task::Nothing,
        }
    }

    /// Whether a member receives from the group.
    pub(crate) fn has_receiver(&self, key: &SocketAddr) -> bool {
        self.all.iter().any(|group| group.addr == *key && group.receivers > 0)
    }

    /// The device has joined a group, or not: then the memberships are over. Returns false if none
    /// waits for that.
    pub(crate) fn finish(&mut self, key: &SocketAddr, failed: Option<&Down>) -> bool {
        let is_it = |group: &Group| group.addr == *key && !group.is_joined;
        let Some(at) = self.all.iter().position(is_it) else { return false };
        let group = &mut self.all[at];
        group.is_joined = true;
        let awaited = core::mem::take(&mut group.awaited);
        if failed.is_some() {
            self.all.swap_remove(at);
        }
        self.outcomes.extend(awaited.into_iter().map(|group| Joined { group, failed: failed.cloned() }));
        true
    }

    /// A group that is being joined.
    pub(crate) fn joining(&self) -> Option<SocketAddr> {
        self.all.iter().find(|group| !group.is_joined).map(|group| group.addr)
    }

    /// The next outcome of a join.
    pub(crate) fn next_outcome(&mut self) -> Option<Joined> {
        self.outcomes.pop_front()
    }

    /// Whether there is one.
    pub(crate) fn has_outcome(&self) -> bool {
        !self.outcomes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::{Cause, Errno};

    fn group(port: u16) -> Addr {
        Addr::from(SocketAddr::from(([239, 1, 2, 3], port)))
    }

    #[test]
    fn a_group_is_joined_once_and_left_with_its_last_member() {
        let (mut groups, key) = (Groups::default(), key(&group(7)));
        assert_eq!(groups.task_of_member(&key, Ways::SEND), Task::Join);
        assert!(!groups.add(&group(7), Ways::SEND));
        assert_eq!(groups.task_of_member(&key, Ways::RECEIVE), Task::Nothing, "it is being joined");
        assert!(!groups.has_receiver(&key));
        assert!(!groups.add(&group(8), Ways::RECEIVE));
        assert!(groups.has_receiver(&key));
        assert!(groups.finish(&key, None));
        assert_eq!(groups.next_outcome().map(|joined| joined.group), Some(group(7)));
        assert_eq!(groups.next_outcome().map(|joined| joined.group), Some(group(8)));
        assert!(!groups.has_outcome());
        assert_eq!(groups.task_of_member(&key, Ways::RECEIVE), Task::Nothing);
        assert!(groups.add(&group(7), Ways::RECEIVE));
        assert_eq!(groups.remove(&key, Ways::RECEIVE), Task::Nothing);
        assert_eq!(groups.remove(&key, Ways::RECEIVE), Task::Ignore);
        assert_eq!(groups.task_of_member(&key, Ways::RECEIVE), Task::Receive);
        assert_eq!(groups.remove(&key, Ways::SEND), Task::Quit);
        assert!(!groups.contain(&key));
        assert_eq!(groups.remove(&key, Ways::SEND), Task::Nothing);
    }

    #[test]
    fn a_join_that_has_failed_is_reported_and_may_be_repeated() {
        let (mut groups, key) = (Groups::default(), key(&group(7)));
        groups.add(&group(7), Ways::BOTH);
        let why = Down::new(Cause::Connect, Errno::ENETUNREACH, "no route");
        assert!(groups.finish(&key, Some(&why)));
        assert!(!groups.finish(&key, Some(&why)), "once");
        let failed = groups.next_outcome().and_then(|joined| joined.failed);
        assert_eq!(failed.map(|why| why.errno), Some(Errno::ENETUNREACH));
        assert_eq!(groups.task_of_member(&key, Ways::SEND), Task::Join);
        assert!(!groups.add(&group(7), Ways::SEND));
        assert!(!groups.has_receiver(&key), "the membership that failed is over");
        assert!(groups.finish(&key, None));
        assert_eq!(groups.remove(&key, Ways::SEND), Task::Quit);
    }

    #[test]
    fn a_group_that_was_left_while_it_was_joined_is_not_reported() {
        let (mut groups, key) = (Groups::default(), key(&group(7)));
        groups.add(&group(7), Ways::BOTH);
        assert_eq!(groups.remove(&key, Ways::BOTH), Task::Quit);
        assert!(!groups.finish(&key, None));
        assert!(!groups.has_outcome());
    }
}
