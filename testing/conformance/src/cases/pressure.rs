//! Back-pressure: a peer that does not read.

use crate::frame::Planned;
use crate::ledger::INITIATOR;
use crate::medium::Medium;
use crate::node::Manner;
use crate::world::World;
use ofi_engine::transport::{ControlSubmitted, Flush, Urgency};

/// Payload bytes of a frame.
const LEN: usize = 1024;

/// While the peer does not poll, a link accepts a bounded number of bytes and refuses the rest.
/// When the peer reads again, the transport reports room, and everything arrives.
pub(crate) fn back_pressure<M: Medium>(seed: u64) {
    let mut world = World::<M>::calm_pair(seed);
    let channel = world.link(0, 1);
    world.settle();
    let id = world.end_of(0, channel);
    let inject = world.rng.bool();
    let (mut taken, mut polls) = (0, world.rng.usize(1..5));
    loop {
        let World { nodes, rng, .. } = &mut world;
        let node = &mut nodes[0];
        let frame = Planned::with_payload(node.next_number(id), LEN, rng);
        let manner = Manner { urgency: Urgency::Posted, inject, fast: false };
        if node.submit(id, frame, manner, rng) != ControlSubmitted::Taken {
            // Room may come from the output that a poll sends.
            polls -= 1;
            node.poll();
            if polls == 0 && !node.has_room(id) {
                break;
            }
            polls = polls.max(1);
            continue;
        }
        if rng.u8(0..4) == 0 {
            node.flush(Flush::All);
        }
        taken += LEN;
        assert!(taken <= M::MOST_UNREAD, "the link accepted {taken} bytes while the peer did not read");
    }
    world.until("the peer reads everything", |world| {
        let ledger = world.ledger.borrow();
        let is_backed_up = world.nodes[0].observer.links[&id].backed_up;
        ledger.channels[channel].flows[INITIATOR].is_empty() && !is_backed_up
    });
    assert!(world.nodes[0].has_room(id), "the link is backed up although the peer has read everything");
    world.submit_some(0, id, 10);
    world.flush_all();
    world.settle();
}
