//! The shm provider: connectionless and connected endpoints between processes of one machine. See
//! `README.md` for its limits and `region.rs` for the layout of the shared memory.
#![deny(unsafe_code)]

mod chooser;
pub mod cma;
mod conn;
mod control;
mod fifo_allocator;
pub mod listener;
mod names;
mod offer;
mod region;
pub mod transport;
mod window;

use cma::CmaMode;
pub use listener::ShmListener;
pub use names::Held;
use ofi_core::error::Result;
use ofi_core::info::Offer;
use ofi_core::param::{Param, ParamKind};
use ofi_core::{Addr, EndpointType};
use ofi_engine::provider::{self, LinkProvider, OpenArgs};
use ofi_os::control_socket::Space;
use ofi_sync::account::Account;
use std::sync::Arc;
use transport::Settings;
pub use transport::ShmTransport;

/// Counters for tests.
#[doc(hidden)]
pub mod seam {
    use core::cell::Cell;

    thread_local! {
        static BOUNCED: Cell<usize> = const { Cell::new(0) };
        static BITMAPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Pieces that this thread has passed through bounce buffers.
    pub fn bounced() -> usize {
        BOUNCED.get()
    }

    pub(crate) fn note() {
        BOUNCED.set(BOUNCED.get() + 1);
    }

    /// Bitmaps of peers that this thread has mapped.
    pub fn bitmaps() -> usize {
        BITMAPS.get()
    }

    pub(crate) fn note_bitmap() {
        BITMAPS.set(BITMAPS.get() + 1);
    }
}

/// Where names live.
pub const SOCKET_DIR: Param = Param {
    name: "FI_SHM_SOCKET_DIR",
    kind: ParamKind::String,
    help: "A folder for the names of endpoints, where peers in other network namespaces find them; the same for all of \
           them (default: names without files, within a network namespace)",
};

/// Whether large messages may be read out of the sender's memory.
pub const DIRECT: Param = Param {
    name: "FI_SHM_DIRECT",
    kind: ParamKind::String,
    help: "When large messages use cross-memory attach (the receiver reads the sender's memory, or both sides copy at \
           once): auto, where the system allows it and it measures faster than shared memory; on, where the system \
           allows it; read or both, the same by one side or by both sides; off, never; close, vector or behind, the same, \
           and the receiver of a large message through shared memory copies at once what is there, does so with \
           vector instructions, or stays up to half of that memory behind the sender while more follows (default: \
           auto)",
};

fn settings(account: &Arc<Account>) -> Settings {
    let space = SOCKET_DIR.text().map_or(Space::Abstract, |folder| Space::Folder(folder.into()));
    let cma = match DIRECT.text().as_deref() {
        Some("on") => CmaMode::IfAllowed,
        Some("read") => CmaMode::Read,
        Some("both") => CmaMode::Both,
        Some("off") => CmaMode::Never,
        Some("close") => CmaMode::Close,
        Some("behind") => CmaMode::Behind,
        Some("vector") => CmaMode::Vector,
        _ => CmaMode::IfFaster,
    };
    Settings { space, cma, account: account.clone(), ..Settings::default() }
}

/// The provider.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider;

impl provider::Provider for Provider {
    const NAME: &'static str = "shm";
    const PARAMS: &'static [Param] = &[SOCKET_DIR, DIRECT];
    type Held = Held;

    fn offers() -> Vec<Offer> {
        [EndpointType::RDM, EndpointType::MSG].map(offer::of).into()
    }

    fn hold() -> Held {
        names::hold()
    }
}

impl LinkProvider for Provider {
    type Transport = ShmTransport;
    type Listener = ShmListener;

    fn open_rdm(self, args: OpenArgs<'_>) -> Result<ShmTransport> {
        ShmTransport::new(args.addr.as_ref().and_then(Addr::name), settings(args.account))
    }

    /// Peers see the name of the endpoint, but the engine refuses connect requests to it.
    fn open_msg(self, args: OpenArgs<'_>) -> Result<ShmTransport> {
        let settings = Settings { to_passive: true, ..settings(args.account) };
        ShmTransport::new(args.addr.as_ref().and_then(Addr::name), settings)
    }

    fn open_listener(self, args: OpenArgs<'_>) -> Result<ShmListener> {
        ShmListener::new(args.addr.as_ref().and_then(Addr::name), &settings(args.account))
    }

    fn open_scalable(self, args: OpenArgs<'_>) -> Result<ShmListener> {
        ShmListener::scalable(args.addr.as_ref().and_then(Addr::name), &settings(args.account))
    }

    fn open_context(self, listener: &ShmListener, args: OpenArgs<'_>) -> Result<ShmTransport> {
        ShmTransport::context(listener.control(), settings(args.account))
    }
}

/// Proposes a name for an endpoint that is yet to be opened. The first endpoint opened with it gets
/// it; others get names of their own.
pub fn fresh_name() -> Addr {
    let name = names::propose().name();
    Addr::Name(ofi_core::addr::Name::new(&name).expect("a scheme and 32 digits are a name"))
}
