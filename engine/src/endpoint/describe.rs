//! Describes the state of an endpoint, for people and for checks.

use super::core::Core;
use crate::measures::{Counts, Measures};
use crate::peer::Peers;
use crate::peer::agenda::Work;
use crate::peer::link::Link;
use crate::peer::table::{Peer, PeerState};
use crate::report::{self, Report};
use crate::statistics::Statistics;
use crate::transport::LinkId;
use ofi_core::{Addr, Errno};
use ofi_sync::lock::LockKind;

impl<K: LockKind> Core<K> {
    /// For tests: work that nothing would resume if this endpoint were left alone now, if any.
    pub(super) fn left_undone(&mut self) -> Option<String> {
        if self.has_group_work() {
            return Some("a group has work".to_owned());
        }
        let Self { peers, tx, rx, target, .. } = self;
        if peers.agenda.has(Work::PENDING) || peers.is_pending() {
            return Some(peers.agenda.describe());
        }
        if peers.agenda.has_deferred() {
            return Some("arrival acknowledgments are pending".to_owned());
        }
        if rx.lock().is_pending() && !peers.is_av_known() {
            return Some("a receive waits for a handle that has been inserted".to_owned());
        }
        let stuck = |peer: &Peer| {
            let PeerState::Open(id) = peer.state else { return None };
            let could_leave = tx.could_leave(*peer.waiting.front()?, peers.links.get(id)?);
            could_leave.then(|| format!("a send that could leave is still queued on {id:?}"))
        };
        if let Some((id, _)) = peers.links.iter().find(|(id, link)| !link.tx.full && target.could_leave(*id)) {
            return Some(format!("a response that could leave is still queued on {id:?}"));
        }
        peers.table.iter().find_map(|(_, peer)| stuck(peer))
    }

    /// What fi_profile(3) reports.
    pub(super) fn measures(&mut self, with_messages: bool) -> Result<Measures, Errno> {
        let Self { peers, rx, out, .. } = self;
        let rx = rx.lock();
        let is_open = |id: LinkId, link: &Link| peers.state_of(link.peer) != PeerState::Connecting(id);
        Ok(Measures {
            unexpected: rx.waiting_len(peers) as u64,
            messages: if with_messages { rx.describe_waiting(peers, out)? } else { Vec::new() },
            connections: peers.links.iter().filter(|(id, link)| is_open(*id, link)).count() as u64,
            peer_memory: peers.account().used() as u64,
            counts: Counts::of(&Statistics { failures: out.failures(), ..peers.statistics(0) }),
            queue_high_water: out.sinks.queue_high_water(),
        })
    }

    /// What it has done since it was opened, in all and with each of the first `most` peers.
    pub(super) fn statistics(&mut self, most: usize) -> Statistics {
        let Self { peers, rx, out, .. } = self;
        let unexpected = rx.lock().waiting_len(peers) as u64;
        let queue_high_water = out.sinks.queue_high_water();
        Statistics { failures: out.failures(), unexpected, queue_high_water, ..peers.statistics(most) }
    }

    /// Describes links and operations, and what they wait for: at most so many of each kind.
    pub(super) fn describe(&mut self, most: usize) -> String {
        let Self { peers, tx, rx, target, .. } = self;
        describe_peers(peers, most) + &tx.describe(most) + &rx.lock().describe(most) + &target.describe(most)
    }

    /// What other processes may know of it.
    pub(super) fn make_report(&mut self, addr: Option<Addr>) -> Report {
        let (statistics, details) = (self.statistics(report::MOST), self.describe(report::MOST));
        let pending = self.tx.pending() + self.rx.lock().pending();
        let known_peers = self.peers.table.len() as u64;
        Report { provider: self.provider, addr, statistics, known_peers, pending: pending as u64, details }
    }
}

fn describe_peers(peers: &Peers, most: usize) -> String {
    use core::fmt::Write;
    let mut out = String::new();
    let account = peers.account();
    // Writing to a String cannot fail.
    if account.used() > 0 {
        let _ = writeln!(out, "{} of {} bytes are held for peers", account.used(), account.limit());
    }
    for (_, peer) in peers.table.iter().take(most) {
        let _ = writeln!(out, "peer {:?}: {:?}, {} sends wait", peer.addr, peer.state, peer.waiting.len());
    }
    for (id, link) in peers.links.iter().take(most) {
        let (tx, rx) = (&link.tx, &link.rx);
        let _ = writeln!(
            out,
            "link {}: {:?}, may send {:?}, may receive {:?}, {:?}, {} control frames, coming {:?}, data to send {:?}",
            id.0,
            link.purpose,
            tx.credit,
            rx.credit,
            rx.blocked,
            tx.control.len(),
            rx.coming,
            tx.data_queue
        );
    }
    out
}
