//! The properties of the medium under a transport that the suite needs.

use fastrand::Rng;
use ofi_core::{Addr, Cause};
use ofi_engine::transport::{Listener, Transport};
use ofi_engine::wire::frame::MAX_PAYLOAD;
use std::time::Duration;

/// A property that some cases need. A medium without it lists it in [`Medium::LACKS`], and
/// those cases are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Links end: by shutdown, abort, refusal, a violation, or a peer that vanishes.
    Ends,
    /// A descriptor wakes a sleeping transport.
    Sleep,
    /// A peer that does not read causes back-pressure.
    BackPressure,
    /// The test can break the medium under the links.
    Breaks,
    /// Connecting to [`Medium::nowhere`] fails.
    Nowhere,
    /// There is a [`Listener`], whose requests [`Transport::accept`] takes.
    Listener,
    /// More than two endpoints can reach each other.
    Third,
}

/// A destination at which nothing answers, and how connecting to it fails.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere {
    /// The destination.
    pub addr: Addr,
    /// The cause that [`LinkEvents::handle_link_down`](ofi_engine::transport::LinkEvents::handle_link_down) reports.
    pub cause: Cause,
    /// Whether it fails only at the transport's deadline.
    pub by_deadline: bool,
}

/// Makes connected transports, and lets a test cause faults. Time passes by [`Transport::wait`].
pub trait Medium: Sized {
    /// The transport under test.
    type Carrier: Transport;
    /// Its listener. Without one: any type, and [`Need::Listener`] in [`Self::LACKS`].
    type Listener: Listener<Request = <Self::Carrier as Transport>::Request>;

    /// The first part of the names of its tests.
    const NAME: &'static str;
    /// Random scripts that `cargo test` runs. The directed cases run a tenth of them each.
    const SCRIPTS: u64 = 1000;
    /// Scripts that run at the same time, each in a world of its own. More for transports that wait
    /// in real time.
    const WORKERS: usize = 2;
    /// The needs that it does not meet, with the reasons.
    const LACKS: &'static [(Need, &'static str)] = &[];
    /// The longest payload, in bytes.
    const MOST_PAYLOAD: usize = MAX_PAYLOAD;
    /// Maximum number of links at a time.
    const MOST_LINKS: usize = 12;
    /// Frames arrive when they are sent, without the help of another thread or the kernel: if all
    /// transports sleep, none will wake up.
    const SYNCHRONOUS: bool = true;
    /// A connect request that finds no room is sent again at a deadline, and wakes the peer only
    /// then.
    const RETRIES_REQUESTS: bool = false;
    /// Maximum payload bytes that a transport accepts, in frames of 1 KiB, while the peer does not
    /// read.
    const MOST_UNREAD: usize = 1 << 20;
    /// Real time after which nothing more is expected to happen.
    const WATCHDOG: Duration = Duration::from_secs(20);

    /// A medium; `rng` determines its faults.
    fn new(rng: &mut Rng) -> Self;
    /// Opens a transport that others can connect to.
    fn open(&mut self, rng: &mut Rng) -> Self::Carrier;
    /// Opens a listener.
    fn listen(&mut self) -> Option<Self::Listener>;
    /// Opens a transport to connect to a listener from, or to accept a request with.
    fn open_connected(&mut self) -> Self::Carrier;
    /// Whether the transport's descriptor is readable.
    fn is_readable(&self, transport: &Self::Carrier) -> bool;
    /// A destination at which nothing answers.
    fn nowhere(&mut self) -> Option<Nowhere>;
    /// Breaks the connections under all links.
    fn break_links(&self) {}
    /// Changes faults that do not break links.
    fn disturb(&self, _rng: &mut Rng) {}
    /// Ends faults that do not break links.
    fn calm(&self) {}

    /// Whether it has a property.
    fn has(need: Need) -> bool {
        Self::LACKS.iter().all(|(lacks, _)| *lacks != need)
    }
}
