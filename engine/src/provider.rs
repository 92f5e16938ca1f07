//! What a provider's crate exports: one type that implements [`Provider`], and [`LinkProvider`] or
//! [`DatagramProvider`] for the endpoints that it opens.

use crate::datagram::Datagrams;
use crate::transport::{Listener, Transport};
use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::param::Param;
use ofi_core::{Addr, AddrFormat, Errno, TrafficClass};
use ofi_sync::account::Account;
use std::sync::Arc;

/// A provider.
pub trait Provider: Copy + Send + Sync + 'static {
    /// The name of its core, as in `prov_name`.
    const NAME: &'static str;
    /// Its parameters. By default none.
    const PARAMS: &'static [Param] = &[];
    /// Guards of its process-wide locks, which are held while the process forks; `()` if it has
    /// none.
    type Held;

    /// Its offers in order of preference.
    fn offers() -> Vec<Offer>;
    /// Takes its process-wide locks, so that no other thread holds them during a fork.
    fn hold() -> Self::Held;
}

/// Arguments for opening a transport or a listener.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs<'a> {
    /// Its address; `None` for one that the system chooses.
    pub addr: Option<Addr>,
    /// The format of the address that the system chooses.
    pub format: AddrFormat,
    /// The traffic class of its packets.
    pub class: TrafficClass,
    /// Charged for the memory that it holds for peers.
    pub account: &'a Arc<Account>,
}

impl<'a> OpenArgs<'a> {
    /// An address, or any of the provider's usual format, without a traffic class.
    pub const fn new(addr: Option<Addr>, account: &'a Arc<Account>) -> Self {
        Self { addr, format: AddrFormat::FORMAT_UNSPEC, class: TrafficClass::UNSPEC, account }
    }
}

/// A provider whose endpoints have links.
pub trait LinkProvider: Provider {
    /// The transport of its endpoints.
    type Transport: Transport<Request = <Self::Listener as Listener>::Request>;
    /// The listener of its passive endpoints.
    type Listener: Listener;

    /// Opens the transport of a connectionless endpoint.
    ///
    /// # Errors
    /// The system's: the address is in use, or not one of this host.
    fn open_rdm(self, args: OpenArgs<'_>) -> Result<Self::Transport>;

    /// Opens the transport of a connected endpoint, bound to the address if one is given. By
    /// default as for a connectionless endpoint, whose connect requests the engine refuses; a
    /// provider overrides it if connected endpoints need less than that, such as no listening
    /// socket.
    ///
    /// # Errors
    /// As for [`Self::open_rdm`].
    fn open_msg(self, args: OpenArgs<'_>) -> Result<Self::Transport> {
        self.open_rdm(args)
    }

    /// Opens a listener.
    ///
    /// # Errors
    /// As for [`Self::open_rdm`].
    fn open_listener(self, args: OpenArgs<'_>) -> Result<Self::Listener>;

    /// Opens the listener of a scalable endpoint. By default as for a passive endpoint; a provider
    /// overrides it if the address of a passive endpoint may pass on to another endpoint.
    ///
    /// # Errors
    /// As for [`Self::open_rdm`].
    fn open_scalable(self, args: OpenArgs<'_>) -> Result<Self::Listener> {
        self.open_listener(args)
    }

    /// Opens the transport of a context of a scalable endpoint. Its address is that of the
    /// listener, which accepts its connections; its own connections come from that address. `args`
    /// has no address.
    ///
    /// # Errors
    /// By default ENOSYS: such a provider offers one context of each kind. Otherwise the system's.
    fn open_context(self, _listener: &Self::Listener, _args: OpenArgs<'_>) -> Result<Self::Transport> {
        Err(Error::new(Errno::ENOSYS, "open a context of a scalable endpoint"))
    }
}

/// A provider of datagram endpoints.
pub trait DatagramProvider: Provider {
    /// The socket of its endpoints.
    type Datagrams: Datagrams;

    /// Opens the socket of an endpoint at `addr`, or at an address of the format that the system
    /// chooses; its packets have the class.
    ///
    /// # Errors
    /// The system's: the address is in use, or not one of this host.
    fn open(self, addr: Option<Addr>, format: AddrFormat, class: TrafficClass) -> Result<Self::Datagrams>;
}
