//! The example of `docs/add-a-provider.md`.

use crate::tcp::readable;
use fastrand::Rng;
use ofi_conformance::{Medium, Need, Nowhere};
use ofi_core::Cause;
use ofi_engine::provider::{LinkProvider, OpenArgs};
use ofi_loopback::{LoopbackTransport, Provider};
use ofi_sync::account::Account;
use std::sync::Arc;

/// Endpoints of this process.
#[derive(Debug)]
pub(crate) struct SameProcess(Arc<Account>);

impl Medium for SameProcess {
    type Carrier = LoopbackTransport;
    type Listener = LoopbackTransport;

    const NAME: &'static str = "same_process";
    const LACKS: &'static [(Need, &'static str)] =
        &[(Need::Breaks, "endpoints of one process have no connection that could break")];

    fn new(_: &mut Rng) -> Self {
        Self(Arc::new(Account::new(0)))
    }

    fn open(&mut self, _: &mut Rng) -> LoopbackTransport {
        Provider.open_rdm(OpenArgs::new(None, &self.0)).expect("a random name is free")
    }

    fn listen(&mut self) -> Option<LoopbackTransport> {
        Some(Provider.open_listener(OpenArgs::new(None, &self.0)).expect("a random name is free"))
    }

    fn open_connected(&mut self) -> LoopbackTransport {
        Provider.open_msg(OpenArgs::new(None, &self.0)).expect("a random name is free")
    }

    fn is_readable(&self, transport: &LoopbackTransport) -> bool {
        readable(transport)
    }

    fn nowhere(&mut self) -> Option<Nowhere> {
        let addr = "fi_ns://nobody".parse().expect("it is a name");
        Some(Nowhere { addr, cause: Cause::Connect, by_deadline: false })
    }
}
