//! A simulated network, to test programs with: its time is virtual, and a seed determines how bytes
//! are delayed and split, so that a test that fails fails again.
//!
//! It carries RDM endpoints over simulated byte streams, which delay and split what they carry, and
//! break; it does not lose or reorder bytes, as TCP does not.
//!
//! ```
//! use ofi::{Errno, RdmEndpoint, sim};
//! use std::time::Duration;
//! let net = sim::Net::new(7);
//! let (one, two) = (net.domain(1)?, net.domain(2)?);
//! let one = RdmEndpoint::open(&one, &net.info(1))?;
//! let two = RdmEndpoint::open(&two, &net.info(2))?;
//! let peer = one.peer(two.local_addr()?)?;
//! net.block_on(async {
//!     let receive = two.receive([0; 5]);
//!     one.send(peer, "hello").await.0?;
//!     assert_eq!(&receive.await.1, b"hello");
//!     // An hour takes no time.
//!     let late = two.receive([0; 5]).timeout(Duration::from_secs(3600)).await;
//!     assert_eq!(late.0.unwrap_err().errno(), Errno::ETIMEDOUT);
//!     // The other host dies.
//!     net.kill(2);
//!     let lost = one.message(peer).delivery_complete().send("not heard").await;
//!     assert!(lost.0.is_err());
//!     Ok::<(), ofi::Error>(())
//! })?;
//! # Ok::<(), ofi::Error>(())
//! ```

use crate::engine::{Engine, OpenEndpoint, Opened};
use crate::fabric::Domain;
use crate::info::{Attributes, Info};
use crate::operations::Operations;
use crate::parker;
use crate::pump::{Pump, Timed};
use core::future::Future;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use ofi_core::error::Result;
use ofi_core::{Addr, AddrFormat, Caps, EndpointType, Errno, Error};
use ofi_engine::Endpoint;
use ofi_engine::endpoint::{Config, Opener};
use ofi_engine::limits::Limits;
use ofi_engine::target::mr::Regions;
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_os::membarrier;
use ofi_sim::{Faults, SimNet, World};
use ofi_sync::account::Account;
use ofi_tcp::transport::{Settings, TcpTransport};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How far the time goes on when nothing happens, and when nothing has happened for a while.
const STEPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(10));
/// How many short steps come first.
const WHILE: u32 = 400;
/// Later steps take this part of the time since something happened: a deadline is missed by no
/// more, and a day is over soon.
const PART: u32 = 1000;
/// A future that has not ended after this long waits for something that does not happen.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Memory that an endpoint may hold for its peers, in bytes.
const MEMORY: usize = 256 << 20;

/// A simulated network of the hosts 10.0.0.1 to 10.0.0.255. Clones are handles of the same one.
///
/// ```
/// use std::time::Duration;
/// let net = ofi::sim::Net::with_faults(42, 30, true); // a slow one
/// let domain = net.domain(1)?;
/// net.advance(Duration::from_secs(60));
/// assert_eq!(net.elapsed(), Duration::from_secs(60));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Net {
    world: World,
    /// The addresses at which endpoints listen.
    listening: Arc<Mutex<Vec<SocketAddr>>>,
    /// Those of its domains.
    pumps: Arc<Mutex<Vec<Weak<Operations>>>>,
}

fn ip(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

impl Net {
    /// A network in which one call of ten would block, and bytes are split at random places, as
    /// `seed` says.
    pub fn new(seed: u64) -> Self {
        Self::with_faults(seed, 10, true)
    }

    /// A network in which `stall` percent of the calls of sockets would block, and bytes are split
    /// at random places, or never.
    pub fn with_faults(seed: u64, stall: u8, split: bool) -> Self {
        let world = World::new(seed, Faults { stall: stall.min(95), split });
        Self { world, listening: Arc::default(), pumps: Arc::default() }
    }

    /// What an endpoint of a host may have: the offer to open it with.
    pub fn info(&self, host: u8) -> Info {
        let mut info = Attributes {
            caps: Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC | Caps::TRANSFERS | Caps::SOURCE,
            addr_format: AddrFormat::SOCKADDR_IN,
            src_addr: Some(SocketAddr::new(ip(host), 0).into()),
            ..Attributes::default()
        };
        info.caps -= Caps::MULTICAST | Caps::COLLECTIVE;
        info.ep.kind = EndpointType::RDM;
        info.ep.max_msg_size = usize::MAX;
        (info.tx.size, info.rx.size, info.tx.inject_size) = (1024, 1024, 64);
        info.fabric.prov_name = Some("sim".to_owned());
        info.into()
    }

    /// A domain of a host. Its operations end in [`Self::block_on`], where it makes progress.
    ///
    /// # Errors
    /// EMFILE or ENFILE if there is no descriptor left.
    pub fn domain(&self, host: u8) -> Result<Domain> {
        #[cfg(feature = "tracing")]
        crate::trace::install();
        let regions = Arc::new(Regions::default());
        let (net, exposed) = (self.clone(), regions.clone());
        let open: OpenEndpoint = Arc::new(move |info| net.open(host, info, exposed.clone()));
        let pump = Operations::over(Timed::simulated(self.world.port()), false);
        let domain = Domain::of_parts(Opened { open, regions: Some(regions) }, pump)?;
        let mut pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner);
        pumps.retain(|pump| pump.strong_count() > 0);
        pumps.push(Arc::downgrade(&domain.0.pump));
        drop(pumps);
        Ok(domain)
    }

    fn open(&self, host: u8, info: &Attributes, regions: Arc<Regions>) -> Result<Engine> {
        if info.ep.kind != EndpointType::RDM {
            return Err(Error::new(Errno::EINVAL, "open an endpoint of a simulated network that is not RDM"));
        }
        let given = info.src_addr.map(|addr| addr.socket()).filter(|addr| addr.port() != 0);
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u16::try_from(listening.len()).map_err(|_| Error::new(Errno::EMFILE, "open an endpoint"))?;
        let at = given.unwrap_or_else(|| SocketAddr::new(ip(host), 1000 + number));
        listening.push(at);
        drop(listening);
        let account = Arc::new(Account::new(MEMORY));
        let (world, charged) = (self.world.clone(), account.clone());
        let opener: Opener<TcpTransport<SimNet>> = Box::new(move |_| {
            let settings = Settings { account: charged.clone(), ..Settings::default() };
            TcpTransport::listening(world.net_of(at.ip()), Addr::from(at), settings)
        });
        // Unlike a random one, it is the same in the next run.
        let mut nonce = [host; 16];
        nonce[..2].copy_from_slice(&number.to_le_bytes());
        let config = Config {
            kind: EndpointKind::Rdm,
            caps: info.caps,
            tx_size: info.tx.size.max(1),
            rx_size: info.rx.size.max(1),
            limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
            nonce,
            provider: "sim",
            regions,
            account,
            contexts: Contexts::default(),
        };
        let engine = Endpoint::new(membarrier::locks(), config, Some(at.into()), opener, None);
        Ok(Engine { control: engine.clone(), messages: engine.clone(), one_sided: Some(engine) })
    }

    /// Runs a future to its end. All domains of the network make progress, and the virtual time
    /// goes on whenever all tasks wait.
    ///
    /// # Panics
    /// If it has not ended after a day of virtual time: it waits for something that does not
    /// happen.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let (mut begun, end) = (self.world.now(), self.world.now() + LONGEST);
        parker::run(future, |idle| {
            let pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner).clone();
            pumps.iter().filter_map(Weak::upgrade).for_each(|pump| pump.turn());
            let now = self.world.now();
            if idle == 0 {
                begun = now;
            }
            self.world.advance(if idle < WHILE { STEPS.0 } else { STEPS.1.max(now.since(begun) / PART) });
            assert!(self.world.now() < end, "the future waits for something that does not happen");
        })
    }

    /// The virtual time since the network was made.
    pub fn elapsed(&self) -> Duration {
        // The clock of a world begins at one second.
        Duration::from_nanos(self.world.now().nanos()).saturating_sub(Duration::from_secs(1))
    }

    /// Lets the virtual time go on.
    pub fn advance(&self, by: Duration) {
        self.world.advance(by);
    }

    /// Breaks the connections of a host; those that its endpoints make later work.
    pub fn break_connections(&self, host: u8) {
        self.world.break_connections_of(ip(host));
    }

    /// A host dies: its connections break, and its addresses do not answer any more.
    pub fn kill(&self, host: u8) {
        for addr in self.listening.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if addr.ip() == ip(host) {
                self.world.black_hole(*addr);
            }
        }
        self.break_connections(host);
    }
}
