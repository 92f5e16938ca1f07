//! The medium: a connection is a channel of the standard library in each direction. Dropping an end
//! of a channel is how a connection ends: the other side finds it disconnected once it has read
//! everything, and its bell rings last.

use ofi_core::error::{Error, Result};
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::connections::{Connection, Connector, Message};
use ofi_engine::transport::{ConnectRequest, Down};
use ofi_os::wait_fd::FdWaitObject;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Its signal wakes an endpoint.
type Bell = Arc<FdWaitObject>;
/// The endpoints of this process: where connect requests to them go.
pub(crate) type Table = BTreeMap<Addr, (Sender<ConnectRequest<LoopbackConnection>>, Bell)>;

/// Locks the table.
pub(crate) fn table() -> MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(Table::new());
    lock(&TABLE)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One side of a connection. The bells come last, so that they ring when the channels are dropped.
#[derive(Debug)]
pub struct LoopbackConnection {
    outgoing: Sender<Message>,
    incoming: Receiver<Message>,
    bells: Bells,
}

/// The bells of both sides of a connection, and which of them is this side's.
#[derive(Debug)]
struct Bells {
    both: Arc<Mutex<[Bell; 2]>>,
    own: usize,
}

impl Bells {
    fn ring_peer(&self) {
        lock(&self.both)[1 - self.own].signal();
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.ring_peer();
    }
}

impl Connection for LoopbackConnection {
    fn send(&mut self, message: Message) {
        // A peer that is gone does not get it: the next receive finds the channel disconnected.
        drop(self.outgoing.send(message));
        self.bells.ring_peer();
    }

    fn receive(&mut self) -> core::result::Result<Option<Message>, Down> {
        match self.incoming.try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Down::new(Cause::Broken, Errno::ECONNRESET, "no endpoint is at the other end"))
            }
        }
    }
}

/// An endpoint's address, and the requests for connections to it.
#[derive(Debug)]
pub struct LoopbackConnector {
    addr: Addr,
    requests: Receiver<ConnectRequest<LoopbackConnection>>,
    bell: Bell,
}

impl LoopbackConnector {
    /// Takes an address, or a fresh one.
    pub(crate) fn open(addr: Option<Addr>) -> Result<Self> {
        let fresh = || format!("fi_ns://loopback-{:032x}", u128::from_ne_bytes(ofi_os::random()));
        let addr = addr.unwrap_or_else(|| fresh().parse().expect("a scheme and 32 digits are a name"));
        let (bell, (sender, requests)) = (Bell::new(FdWaitObject::new(true)?), channel());
        let mut table = table();
        if table.contains_key(&addr) {
            return Err(Error::new(Errno::EADDRINUSE, format!("open an endpoint at {addr}")));
        }
        table.insert(addr, (sender, bell.clone()));
        Ok(Self { addr, requests, bell })
    }
}

impl Connector for LoopbackConnector {
    type Connection = LoopbackConnection;

    fn local_addr(&self) -> Addr {
        self.addr
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LoopbackConnection> {
        let ((to_peer, from_here), (to_here, from_peer)) = (channel(), channel());
        let table = table();
        let peer = table.get(to);
        let both = Arc::new(Mutex::new([self.bell.clone(), peer.map_or(&self.bell, |(_, bell)| bell).clone()]));
        let [near, far] = [0, 1].map(|own| Bells { both: both.clone(), own });
        let far = LoopbackConnection { outgoing: to_here, incoming: from_here, bells: far };
        if let Some((requests, bell)) = peer {
            let ask = ConnectRequest { request: far, hello: hello.to_vec(), from: self.addr, to: *to };
            drop(requests.send(ask));
            bell.signal();
        }
        // Without a peer, the far side is dropped: the next receive finds the channel disconnected.
        Ok(LoopbackConnection { outgoing: to_peer, incoming: from_peer, bells: near })
    }

    fn accept(&mut self) -> Option<ConnectRequest<LoopbackConnection>> {
        self.requests.try_recv().ok()
    }

    fn take_over(&mut self, connection: &mut LoopbackConnection) -> Result<()> {
        lock(&connection.bells.both)[connection.bells.own] = self.bell.clone();
        self.bell.signal();
        Ok(())
    }

    fn wait_object(&self) -> &dyn WaitObject {
        &*self.bell
    }

    fn random(&mut self) -> [u8; 16] {
        ofi_os::random()
    }
}

impl Drop for LoopbackConnector {
    fn drop(&mut self) {
        table().remove(&self.addr);
    }
}
