//! The verbs transport over a device of this machine.

use crate::tcp::readable;
use crate::verbs::READ_FROM;
use fastrand::Rng;
use ofi_conformance::{Medium, Need, Nowhere};
use ofi_core::{Addr, Cause};
use ofi_sync::account::Account;
use ofi_verbs::ffi::{Role, System};
use ofi_verbs::transport::{Settings, VerbsTransport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The device of this machine at the address that `OFI_VERBS_ADDR` names.
#[derive(Debug)]
pub(crate) struct Hardware(SocketAddr);

impl Hardware {
    /// Whether the variable names an address.
    pub(crate) fn is_named() -> bool {
        std::env::var_os("OFI_VERBS_ADDR").is_some()
    }

    fn system(&self, role: Role) -> VerbsTransport<System> {
        let addr = (role != Role::Initiator).then_some(self.0);
        let device = System::open(addr, role).expect("OFI_VERBS_ADDR names the address of an RDMA device");
        let account = Arc::new(Account::new(usize::MAX));
        let connect_deadline = Duration::from_secs(10);
        VerbsTransport::new(
            device,
            Settings { connect_deadline, account, read_from: READ_FROM, read_known_from: READ_FROM },
        )
    }
}

impl Medium for Hardware {
    type Carrier = VerbsTransport<System>;
    type Listener = VerbsTransport<System>;

    const NAME: &'static str = "verbs";
    const SCRIPTS: u64 = 50;
    const LACKS: &'static [(Need, &'static str)] = &[(Need::Breaks, "the test cannot break the device")];
    const SYNCHRONOUS: bool = false;
    // An emulated processor is slow, and other work may slow it down.
    const WATCHDOG: Duration = Duration::from_secs(60);

    fn new(_: &mut Rng) -> Self {
        let text = std::env::var("OFI_VERBS_ADDR").expect("the rows exist only with the variable");
        Self(format!("{text}:0").parse().expect("OFI_VERBS_ADDR is an IPv4 address"))
    }

    fn open(&mut self, _: &mut Rng) -> Self::Carrier {
        self.system(Role::Peer)
    }

    fn listen(&mut self) -> Option<Self::Listener> {
        Some(self.system(Role::Listener))
    }

    fn open_connected(&mut self) -> Self::Carrier {
        self.system(Role::Initiator)
    }

    fn is_readable(&self, transport: &Self::Carrier) -> bool {
        readable(transport)
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        let addr = Addr::from(SocketAddr::new(self.0.ip(), 1));
        Some(Nowhere { addr, cause: Cause::Connect, by_deadline: false })
    }
}
