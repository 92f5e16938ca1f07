//! The queue in memory over which the engine's cost is measured: a minimal transport.

use fastrand::Rng;
use ofi_conformance::{Medium, Need, Nowhere};
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{ConnectRequest, Listener};
use ofi_sim::wire::Wire;
use std::net::SocketAddr;

/// A wire. Each end is opened once.
#[derive(Debug)]
pub(crate) struct InMemory(Vec<Wire<Vec<u8>>>);

impl Medium for InMemory {
    type Carrier = Wire<Vec<u8>>;
    type Listener = NoListener;

    const NAME: &'static str = "wire";
    const MOST_LINKS: usize = 1;
    const LACKS: &'static [(Need, &'static str)] = &[
        (Need::Ends, "a wire has one link, which never ends"),
        (Need::Breaks, "a wire does not break"),
        (Need::Sleep, "a wire has no descriptor: its endpoints poll all the time"),
        (Need::BackPressure, "the queue of a wire grows without bound"),
        (Need::Nowhere, "a wire leads to its other end only"),
        (Need::Listener, "a wire has no listener"),
    ];

    fn new(_: &mut Rng) -> Self {
        let addr = |port: u16| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
        let (left, right) = Wire::pair(addr(1), addr(2));
        Self(vec![left, right])
    }

    fn open(&mut self, _: &mut Rng) -> Self::Carrier {
        self.0.pop().expect("a wire has two ends")
    }

    fn listen(&mut self) -> Option<NoListener> {
        None
    }

    fn open_connected(&mut self) -> Self::Carrier {
        unreachable!("it has no listener to connect to")
    }

    fn is_readable(&self, _: &Self::Carrier) -> bool {
        true
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        None
    }
}

/// Never opened: a wire has no listener.
#[derive(Debug)]
pub(crate) enum NoListener {}

impl Listener for NoListener {
    type Request = ();

    fn local_addr(&self) -> Addr {
        match *self {}
    }
    fn poll(&mut self, _: &mut Vec<ConnectRequest<()>>) -> bool {
        match *self {}
    }
    fn vouches(&self, _: &Addr, _: &Addr) -> bool {
        match *self {}
    }
    fn refuse(&mut self, (): (), _: &[u8]) {
        match *self {}
    }
    fn next_deadline(&self) -> Option<Instant> {
        match *self {}
    }
    fn descriptor(&self) -> Option<Descriptor> {
        match *self {}
    }
}
