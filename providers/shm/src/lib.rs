//! The shm provider: connectionless and connected endpoints between processes of one machine. See `README.md` for its
//! limits and for what lies in the memory.
#![deny(unsafe_code)]

mod conn;
pub mod listener;
pub mod offer;
mod post;
mod region;
pub mod transport;
mod window;

pub use listener::ShmListener;
use ofi_core::Addr;
use ofi_core::error::Result;
use ofi_core::param::{Param, ParamKind};
use ofi_os::mailbox::Space;
use transport::Settings;
pub use transport::ShmTransport;

/// Where names live.
pub const SOCKET_DIR: Param = Param {
    name: "FI_SHM_SOCKET_DIR",
    kind: ParamKind::String,
    help: "A folder for the names of endpoints, where peers in other network namespaces find them; the same for all of \
           them (default: names without files, within a network namespace)",
};

/// Every parameter of this provider.
pub const PARAMS: [Param; 1] = [SOCKET_DIR];

fn settings() -> Settings {
    let space = SOCKET_DIR.text().map_or(Space::Abstract, |folder| Space::Folder(folder.into()));
    Settings { space, ..Settings::default() }
}

/// Opens the transport of a connectionless endpoint, called by `addr` if given.
pub fn open_rdm(addr: Option<Addr>) -> Result<ShmTransport> {
    ShmTransport::new(addr.as_ref().and_then(Addr::name), settings())
}

/// Opens the transport of a connected endpoint. It has no name of its own: nobody asks it.
pub fn open_msg() -> Result<ShmTransport> {
    ShmTransport::new(None, settings())
}

/// Opens a listener, called by `addr` if given.
pub fn open_listener(addr: Option<Addr>) -> Result<ShmListener> {
    ShmListener::new(addr.as_ref().and_then(Addr::name), &settings())
}
