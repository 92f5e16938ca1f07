//! Fabrics and domains.

use crate::engine::{Open, OpenEndpoint, Opened};
use crate::events::Events;
use crate::info::Info;
use crate::operations::Operations;
use crate::parker;
use crate::pump::Pump;
use crate::reactor;
use crate::region::MemoryRegion;
use core::fmt;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use ofi_core::caps::MrAccess;
use ofi_core::error::Result;
use ofi_core::{Errno, Error, ProgressModel};
use ofi_engine::target::mr::Regions;
use ofi_os::thread;
use std::sync::{Arc, Mutex, PoisonError};

/// A fabric: what the endpoints that can reach each other share (fi_fabric(3)). Clones are handles
/// of the same fabric.
///
/// ```
/// # use ofi::{Fabric, Info};
/// let info = Info::builder().provider("tcp").query()?.remove(0);
/// let fabric = Fabric::open(&info)?;
/// let domain = fabric.domain(&info)?;
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fabric {
    pub(crate) events: Arc<Events>,
}

impl Fabric {
    /// Opens the fabric of an offer (fi_fabric).
    ///
    /// # Errors
    /// ENODEV if the library has no such provider; EMFILE or ENFILE if there is no descriptor left.
    pub fn open(info: &Info) -> Result<Self> {
        #[cfg(feature = "tracing")]
        crate::trace::install();
        let name = info.fabric.prov_name.as_deref().unwrap_or_default();
        if !ofi_registry::has_provider(name) {
            return Err(Error::new(Errno::ENODEV, format!("open a fabric of provider \"{name}\"")));
        }
        Ok(Self { events: Arc::new(Events::new()?) })
    }

    /// Opens the domain of an offer (fi_domain(3)).
    ///
    /// # Errors
    /// ENODEV if the library has no such provider; EMFILE or ENFILE if there is no descriptor left;
    /// EAGAIN if the system has no room for the thread of [`ProgressModel::AUTO`].
    ///
    /// ```
    /// # use ofi::{Fabric, Info, ProgressModel};
    /// let info = Info::builder().provider("tcp").progress(ProgressModel::AUTO).query()?.remove(0);
    /// let domain = Fabric::open(&info)?.domain(&info)?; // with a thread that makes progress
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn domain(&self, info: &Info) -> Result<Domain> {
        ofi_registry::publish();
        let Opened { open, regions } = ofi_registry::open(info, None, Open)?;
        let automatic = info.domain.progress == ProgressModel::AUTO;
        let pump = Arc::new(Operations::new(automatic)?);
        let thread = automatic.then(|| Automatic::start(pump.clone(), self.events.clone())).transpose()?;
        Ok(Domain(Arc::new(Inner { open, regions, pump, fabric: self.clone(), _thread: thread })))
    }
}

impl Domain {
    /// A domain of these parts.
    #[cfg(feature = "sim")]
    pub(crate) fn of_parts(Opened { open, regions }: Opened, pump: Operations) -> Result<Self> {
        let fabric = Fabric { events: Arc::new(Events::new()?) };
        Ok(Self(Arc::new(Inner { open, regions, pump: Arc::new(pump), fabric, _thread: None })))
    }
}

/// A domain: a connection to one provider, which opens endpoints and registers memory
/// (fi_domain(3)). Clones are handles of the same domain.
///
/// Endpoints of a domain make progress together: a task that awaits an operation on one of them
/// drives all of them, and serves the peers that access the domain's memory. A program whose
/// threads shall not meet opens a domain for each.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
/// let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// let domain = Fabric::open(&info)?.domain(&info)?;
/// let (one, two) = (RdmEndpoint::open(&domain, &info)?, RdmEndpoint::open(&domain, &info)?);
/// let receive = two.receive([0; 4]);
/// assert_eq!(domain.pending_operations(), 1);
/// # drop(receive);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone)]
pub struct Domain(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) open: OpenEndpoint,
    pub(crate) regions: Option<Arc<Regions>>,
    pub(crate) pump: Arc<Operations>,
    pub(crate) fabric: Fabric,
    /// Makes progress, with FI_PROGRESS_AUTO.
    _thread: Option<Automatic>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("operations", &self.0.pump).finish_non_exhaustive()
    }
}

impl Domain {
    /// Registers memory for the peers of the domain's endpoints (fi_mr(3)). Each peer that has the
    /// region's key may read it and use fetching atomics if `access` has
    /// [`MrAccess::REMOTE_READ`], and write it and use atomics if `access` has
    /// [`MrAccess::REMOTE_WRITE`].
    ///
    /// # Errors
    /// EINVAL for an empty buffer or without either right; ENOSYS if the provider has no one-sided
    /// operations.
    ///
    /// ```
    /// # use ofi::{EndpointType, Fabric, Info, MrAccess};
    /// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
    /// # let domain = Fabric::open(&info)?.domain(&info)?;
    /// let region = domain.register(vec![0; 4096], MrAccess::REMOTE_READ)?;
    /// assert_eq!(region.remote_key().len(), 4096);
    /// # Ok::<(), ofi::Error>(())
    /// ```
    pub fn register(&self, memory: Vec<u8>, access: MrAccess) -> Result<MemoryRegion> {
        let all = self.0.regions.as_ref();
        let all = all.ok_or_else(|| Error::new(Errno::ENOSYS, "register memory of a datagram domain"))?;
        MemoryRegion::register(all, memory, access)
    }

    /// Makes progress for ever: for a task that serves peers' accesses to the domain's memory, and
    /// has nothing else to await. Dropping the future ends it.
    ///
    /// ```no_run
    /// # async fn example(domain: &ofi::Domain, ep: &ofi::RdmEndpoint) {
    /// // Serves accesses until a message arrives.
    /// let message = async { Some(ep.receive([0; 8]).await) };
    /// let serving = async {
    ///     domain.serve().await;
    ///     None
    /// };
    /// # futures_lite::future::or(message, serving).await;
    /// # }
    /// ```
    pub async fn serve(&self) -> core::convert::Infallible {
        let pump = &self.0.pump;
        poll_fn(|context| {
            pump.turn();
            reactor::watch(pump, context.waker());
            Poll::Pending
        })
        .await
    }

    /// How many operations of the domain have not ended, or have ended and wait for their future to
    /// be polled.
    pub fn pending_operations(&self) -> usize {
        self.0.pump.pending()
    }
}

/// The thread of a domain with automatic progress; it ends after this is dropped.
struct Automatic(Arc<Stop>);

#[derive(Default)]
struct Stop(Mutex<Life>);

#[derive(Default)]
struct Life {
    stopped: bool,
    waker: Option<Waker>,
}

impl Automatic {
    fn start(pump: Arc<Operations>, events: Arc<Events>) -> Result<Self> {
        // Until the thread ends; at once if there is none.
        let turned = events.turned();
        let stop = Arc::new(Stop::default());
        let seen = stop.clone();
        let life = move || {
            let _turned = turned;
            parker::block_on(poll_fn(|context| {
                parker::join(&pump);
                parker::join(&events);
                let mut life = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
                life.waker = Some(context.waker().clone());
                if life.stopped { Poll::Ready(()) } else { Poll::Pending }
            }));
        };
        // Not joined: the thread may be the one that drops the domain, in a waker.
        thread::spawn(c"ofi-progress", life)?;
        Ok(Self(stop))
    }
}

impl Drop for Automatic {
    fn drop(&mut self) {
        let waker = {
            let mut life = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            life.stopped = true;
            life.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}
