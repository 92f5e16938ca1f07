//! The shm transport, both sides in one process.

use crate::tcp::readable;
use fastrand::Rng;
use ofi_conformance::{Medium, Need, Nowhere};
use ofi_core::Cause;
use ofi_shm::cma::CmaMode;
use ofi_shm::transport::Settings;
use ofi_shm::{ShmListener, ShmTransport};
use ofi_sync::account::Account;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the liveness probes. With the default, scripts would mostly wait for them.
const PROBE_EVERY: Duration = Duration::from_micros(200);

/// Shared memory.
#[derive(Debug)]
pub(crate) struct SharedMemory;

impl Medium for SharedMemory {
    type Carrier = ShmTransport;
    type Listener = ShmListener;

    const NAME: &'static str = "shm";
    // Scripts sometimes wait for liveness probes; others run meanwhile.
    const WORKERS: usize = 4;
    // Where the system allows few datagrams in a socket's queue (net.unix.max_dgram_qlen).
    const RETRIES_REQUESTS: bool = true;
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Breaks, "shared memory does not break")];

    fn new(_: &mut Rng) -> Self {
        Self
    }

    fn open(&mut self, rng: &mut Rng) -> ShmTransport {
        let cma = rng.choice(CmaMode::ALL).unwrap_or_default();
        let account = Arc::new(Account::new(if rng.bool() { 64 << 20 } else { 0 }));
        let name = rng.bool().then(|| format!("fi_shm://conformance-{:032x}", u128::from_ne_bytes(ofi_os::random())));
        // The whole pool of 3 caches is what a transport has by default, but its pages take most of
        // a script's time.
        let whole = Settings::default().pool;
        let pool = rng.choice([64 << 10, 64 << 10, 64 << 10, 100 << 10, 256 << 10, whole]).unwrap_or(whole);
        let settings = Settings { cma, account, pool, probe_every: PROBE_EVERY, ..Settings::default() };
        ShmTransport::new(name.as_deref(), settings).expect("the name is free")
    }

    fn listen(&mut self) -> Option<ShmListener> {
        Some(ShmListener::new(None, &Settings::default()).expect("a random name is free"))
    }

    fn open_connected(&mut self) -> ShmTransport {
        let settings = Settings { to_passive: true, probe_every: PROBE_EVERY, ..Settings::default() };
        ShmTransport::new(None, settings).expect("a random name is free")
    }

    fn is_readable(&self, transport: &ShmTransport) -> bool {
        readable(transport)
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        let name = format!("fi_shm://nobody-{:032x}", u128::from_ne_bytes(ofi_os::random()));
        let addr = name.parse().expect("it is a name");
        Some(Nowhere { addr, cause: Cause::Connect, by_deadline: false })
    }
}
