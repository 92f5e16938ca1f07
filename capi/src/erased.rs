//! Object-safe traits over the engine's types, which are generic over provider and lock kind. The
//! objects of the C interface reach the engine through these in all calls off the data path.

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

/// A domain of any provider and lock kind.
pub(crate) trait DomainControl: Send + Sync {
    fn endpoint(&self, info: &Info) -> Result<Opened>;
    fn cq(&self, size: usize, port: Arc<dyn WaitObject>, how: Waiting) -> OpenedCq;
    fn counter(&self, port: Arc<dyn WaitObject>, how: Waiting) -> Arc<dyn CntrControl>;
    /// The progress thread of a domain with FI_PROGRESS_AUTO.
    fn auto(&self) -> Option<&Arc<Auto>>;
}

/// A new endpoint: the engine's endpoint as a raw pointer for the message tables, and as a trait
/// object.
pub(crate) struct Opened {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn EpControl>,
    pub(crate) msg: &'static ofi_abi::fi_ops_msg,
    pub(crate) tagged: &'static ofi_abi::fi_ops_tagged,
}

/// A new completion queue, in the same two forms.
pub(crate) struct OpenedCq {
    pub(crate) engine_ptr: *const c_void,
    pub(crate) control: Arc<dyn CqControl>,
    /// The function table for an entry format.
    pub(crate) ops: fn(Format) -> &'static ofi_abi::fi_ops_cq,
}

/// Control calls of an endpoint of any provider and lock kind.
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
    /// Accepts the request. Takes it out of `request` once only the connection itself can still
    /// fail.
    fn accept(&self, request: &mut Option<ConnectionRequest>, data: &[u8]) -> Result<()>;
    fn shut_down(&self) -> core::result::Result<(), Errno>;
    /// Joins a multicast group; `ways` is (send, receive). Calls `joined` with the handle to send
    /// with before the join event can be read.
    fn join(&self, group: Addr, ways: (bool, bool), owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()>;
    fn leave(&self, group: &Addr, receive: bool, handle: FiAddr, owner: Owner);
    fn close(&self);
}

/// Control calls of a passive endpoint of any provider.
pub(crate) trait PepControl: Send + Sync {
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    fn local_addr(&self) -> Result<Addr>;
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    fn listen(&self) -> Result<()>;
    fn refuse(&self, request: ConnectionRequest, data: &[u8]) -> Result<()>;
    fn set_backlog(&self, requests: usize);
    fn close(&self);
}

/// A queue or counter that can be a member of a wait set.
pub(crate) trait Waits: Send + Sync {
    /// The descriptor that becomes readable when there is something to read; `None` if waiting does
    /// not sleep.
    fn descriptor(&self) -> Option<i32>;
    /// Whether a caller may sleep on the descriptor now (fi_trywait(3)): `AGAIN` if there is
    /// something to read.
    fn try_wait(&self) -> core::result::Result<(), Errno>;
}

/// Control calls of a completion queue of any lock kind.
pub(crate) trait CqControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn waiting(&self) -> Waiting;
    fn in_use(&self) -> bool;
    /// Keeps it from being closed.
    fn hold(&self) -> Child;
    /// Makes progress; true if there is something to read.
    fn check(&self) -> bool;
    fn signal(&self) -> core::result::Result<(), Errno>;
}

/// Calls of a counter of any lock kind.
pub(crate) trait CntrControl: Waits {
    fn as_any(&self) -> &dyn Any;
    fn in_use(&self) -> bool;
    /// Keeps it from being closed.
    fn hold(&self) -> Child;
    fn read(&self) -> u64;
    fn read_errors(&self) -> u64;
    /// Makes progress; successes and errors, without recording that the application has read them.
    fn check(&self) -> (u64, u64);
    fn add(&self, count: u64);
    fn add_errors(&self, count: u64);
    fn set(&self, value: u64);
    fn set_errors(&self, value: u64);
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> core::result::Result<(), Errno>;
}

/// Entry format of a completion queue (`enum fi_cq_format`).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Context,
    Msg,
    Data,
    Tagged,
}
