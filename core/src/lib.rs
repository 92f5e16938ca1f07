//! The types that every other crate shares: errors, bit sets, attributes, addresses, completions.
//! Values only: no I/O, no clock, no lock.
#![forbid(unsafe_code)]

pub mod addr;
pub mod addr_string;
pub mod atomic;
mod buffered;
pub mod caps;
pub mod completion;
pub mod errno;
pub mod error;
pub mod info;
pub mod kinds;
pub mod log;
pub mod log_params;
pub mod negotiate;
pub mod param;
pub mod reason;
pub mod show;
pub mod time;
pub mod wait;

pub use addr::Addr;
pub use atomic::{AtomicKind, AtomicOp, Datatype};
pub use caps::{BindFlags, Caps, Mode, MrAccess, MrMode, MsgOrder, OpFlags};
pub use completion::{Cause, Completion, Failure, FiAddr, RxBits};
pub use errno::Errno;
pub use error::Error;
pub use info::{Hints, Info};
pub use kinds::{
    AddrFormat, AvType, CqFormat, EndpointType, ProgressModel, Protocol, ResourceMgmt, Threading, TrafficClass,
    Version, WaitObjectKind,
};
pub use time::{Clock, Instant};
