//! What objects do off the data path, whatever their provider and locking: the traits behind which the objects of the C
//! interface hold the engine's generic types.

use core::any::Any;
use core::ffi::c_void;
use ofi_core::error::Result;
use ofi_core::wait::WaitObject;
use ofi_core::{Addr, BindFlags, Errno, FiAddr, Info};
use ofi_engine::completion::eq::{ConnectionRequest, Owner};
use ofi_engine::limits::SizeLimit;
use ofi_engine::{AddressVector, Auto, EventQueue, Waiting};
use ofi_sync::busy::Child;
use std::sync::Arc;
use std::time::Duration;

/// What a domain does whatever its provider and locking.
pub(crate) trait DomainControl: Send + Sync {
    fn endpoint(&self, info: &Info) -> Result<Opened>;
    fn cq(&self, size: usize, port: Arc<dyn WaitObject>, how: Waiting) -> OpenedCq;
    fn counter(&self, port: Arc<dyn WaitObject>, how: Waiting) -> Arc<dyn CntrControl>;
    /// The progress of a domain with FI_PROGRESS_AUTO.
    fn auto(&self) -> Option<&Arc<Auto>>;
}

/// An endpoint's parts: its engine, erased and as the message tables need it.
pub(crate) struct Opened {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn EpControl>,
    pub(crate) msg: &'static crate::abi::fi_ops_msg,
    pub(crate) tagged: &'static crate::abi::fi_ops_tagged,
}

/// A completion queue's parts.
pub(crate) struct OpenedCq {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn CqControl>,
    /// The table for a format.
    pub(crate) ops: fn(Format) -> &'static crate::abi::fi_ops_cq,
}

/// What an endpoint does off the data path, whatever its provider and locking.
pub(crate) trait EpControl: Send + Sync {
    fn bind_cq(&self, cq: &dyn Any, flags: BindFlags) -> Result<()>;
    fn bind_counter(&self, counter: &dyn Any, flags: BindFlags) -> Result<()>;
    fn bind_av(&self, av: &Arc<AddressVector>) -> Result<()>;
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    fn has_eq(&self) -> bool;
    fn enable(&self) -> Result<()>;
    fn cancel(&self, context: usize);
    fn min_multi_recv(&self) -> usize;
    fn set_min_multi_recv(&self, least: usize);
    fn limit(&self, which: SizeLimit) -> usize;
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()>;
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    fn peer_addr(&self) -> Result<Addr>;
    fn connect(&self, to: Addr, data: &[u8]) -> Result<()>;
    /// Accepts the request, which is taken once nothing but the connection itself can fail.
    fn accept(&self, request: &mut Option<ConnectionRequest>, data: &[u8]) -> Result<()>;
    fn shut_down(&self) -> core::result::Result<(), Errno>;
    /// Joins a group, to send to it, to receive from it, or both. `joined` is told the handle to send with before anybody
    /// can read of it.
    fn join(&self, group: Addr, ways: (bool, bool), owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()>;
    fn leave(&self, group: &Addr, receive: bool, handle: FiAddr, owner: Owner);
    fn close(&self);
}

/// What a passive endpoint does.
pub(crate) trait PepControl: Send + Sync {
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    fn listen(&self) -> Result<()>;
    fn refuse(&self, request: ConnectionRequest, data: &[u8]) -> Result<()>;
    fn set_backlog(&self, requests: usize);
    fn close(&self);
}

/// What can be waited on together with others.
pub(crate) trait Waits: Send + Sync {
    /// What becomes readable when there is news, if it sleeps.
    fn descriptor(&self) -> Option<i32>;
    /// Whether a caller may sleep now: `AGAIN` if there is something to read.
    fn try_wait(&self) -> core::result::Result<(), Errno>;
}

/// What a completion queue does off the data path.
pub(crate) trait CqControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn waiting(&self) -> Waiting;
    fn in_use(&self) -> bool;
    /// Keeps it in use.
    fn hold(&self) -> Child;
    /// Whether there is something to read.
    fn check(&self) -> bool;
    fn signal(&self) -> core::result::Result<(), Errno>;
}

/// What a counter does.
pub(crate) trait CntrControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn in_use(&self) -> bool;
    /// Keeps it in use.
    fn hold(&self) -> Child;
    fn read(&self) -> u64;
    fn read_errors(&self) -> u64;
    /// Successes and errors, of which the application is not told by this.
    fn check(&self) -> (u64, u64);
    fn add(&self, count: u64);
    fn add_errors(&self, count: u64);
    fn set(&self, value: u64);
    fn set_errors(&self, value: u64);
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> core::result::Result<(), Errno>;
}

/// The entries of a queue, by what C calls their format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}
