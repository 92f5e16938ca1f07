//! What all kinds of endpoints share: opening, closing, and what their operations need.

use crate::av::{AddressVector, Peer};
use crate::closing;
use crate::counter::Counter;
use crate::engine::Engine;
use crate::fabric::{self, Domain};
use crate::info::Info;
use crate::operations::Operations;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, Errno, Error, FiAddr};
use std::sync::Arc;

/// An endpoint of any kind.
#[derive(Debug)]
pub(crate) struct Inner {
    /// `None` once it closes.
    open: Option<Open>,
    pub(crate) av: AddressVector,
}

/// What is closed when it is dropped; that may take seconds.
#[derive(Debug)]
pub(crate) struct Open {
    engine: Arc<Engine>,
    /// Its number among the domain's endpoints.
    pub(crate) number: usize,
    pub(crate) domain: Domain,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.domain.0.pump.close_endpoint(self.number, &self.engine);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let blocks = !open.domain.0.pump.is_simulated();
            if blocks { closing::drop_apart(open) } else { drop(open) }
        }
    }
}

pub(crate) const NO_PEER: &str =
    "the handle is of another address vector than the endpoint's, or its address was removed";

/// A peer as an endpoint names it: `Err` if its handle is of another address vector.
pub(crate) type To = Result<FiAddr, ()>;

impl Inner {
    /// Opens an endpoint; it is not enabled yet.
    pub(crate) fn open(domain: &Domain, info: &Info, av: &AddressVector) -> Result<Self> {
        let parts: &fabric::Inner = &domain.0;
        let engine = Arc::new((parts.open)(info)?);
        let control = &engine.control;
        control.bind_cq(parts.pump.queue().clone(), BindFlags::TRANSMIT | BindFlags::RECV)?;
        control.clone().bind_av(&av.engine)?;
        let number = parts.pump.add_endpoint(engine.clone());
        Ok(Self { open: Some(Open { engine, number, domain: domain.clone() }), av: av.clone() })
    }

    pub(crate) fn parts(&self) -> &Open {
        self.open.as_ref().expect("only `close` and `drop` take it, and end the endpoint")
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.parts().engine
    }

    pub(crate) fn pump(&self) -> &Arc<Operations> {
        &self.parts().domain.0.pump
    }

    /// Has a counter count some kinds of operations from now on.
    pub(crate) fn bind_counter(&self, counter: &Counter, kinds: BindFlags) -> Result<()> {
        if !Arc::ptr_eq(&counter.pump, self.pump()) {
            return Err(Error::new(Errno::EINVAL, "bind a counter of another domain"));
        }
        if kinds.is_empty() {
            return Err(Error::new(Errno::EBADFLAGS, "bind a counter for no kind of operations"));
        }
        self.engine().control.clone().bind_counter(counter.engine.clone(), kinds)
    }

    /// Closes it in a thread of its own.
    pub(crate) async fn close(mut self) {
        let Some(open) = self.open.take() else { return };
        if open.domain.0.pump.is_simulated() {
            drop(open);
        } else {
            closing::dropped(open).await;
        }
    }

    pub(crate) fn to(&self, peer: Peer) -> To {
        peer.of(&self.av).ok_or(())
    }

    pub(crate) fn local_addr(&self) -> Result<Addr> {
        self.engine().control.local_addr()
    }
}
