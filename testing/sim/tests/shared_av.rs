//! Endpoints whose address vector is in memory that other processes have too: nothing tells them of
//! insertions there.

use core::ops::Range;
use ofi_core::{Addr, Errno, FiAddr};
use ofi_engine::AddressVector;
use ofi_engine::av::shared::{SharedMemory, initialize, words_for};
use ofi_rig::Side;
use ofi_sim::node::{Node, addr};
use ofi_sim::{Faults, World};
use ofi_sync::primitive::AtomicU64;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::sync::Arc;

const CAPACITY: usize = 64;

/// Memory of this process, as if other processes had it too.
#[derive(Debug)]
struct Heap(Vec<AtomicU64>);

impl SharedMemory for Heap {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn with_write_lock(&self, change: &mut dyn FnMut()) -> Result<(), Errno> {
        change();
        Ok(())
    }

    fn allocate(&self, _words: Range<usize>) -> Result<(), Errno> {
        Ok(())
    }
}

fn open(world: &World) -> Node {
    let memory = Heap((0..words_for(CAPACITY)).map(|_| AtomicU64::new(0)).collect());
    initialize(memory.words(), 1);
    let av = Arc::new(AddressVector::shared(Box::new(memory), CAPACITY).unwrap());
    let network = world.clone();
    Side::open_sharing(ofi_rig::Options::default(), av, world.port(), |account| {
        let account = account.clone();
        Box::new(move |_| {
            let at = addr(1, 1);
            let settings = Settings { account: account.clone(), ..Settings::default() };
            TcpTransport::listening(network.net_of(at.ip()), Addr::from(at), settings)
        })
    })
}

#[test]
fn a_thread_looks_for_insertions_only_while_receives_wait_for_them() {
    let world = World::new(1, Faults { stall: 0, split: false });
    let mut side = open(&world);
    side.progress();
    assert_eq!(side.ep.next_due(), None);
    let receive = side.receive(FiAddr(3), 0, 8);
    assert!(side.ep.next_due().is_some(), "handle 3 may be inserted by another process");
    side.progress();
    assert!(side.ep.next_due().is_some());
    side.ep.cancel(receive);
    side.progress();
    assert_eq!(side.ep.next_due(), None, "nothing waits for a handle any more");
    assert_eq!(side.take(receive).len(), 1);
}
