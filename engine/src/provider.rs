//! What a provider's crate exports: one type that implements [`Provider`], and [`LinkProvider`] or
//! [`DatagramProvider`] for the endpoints that it opens.

use crate::datagram::Datagrams;
use crate::transport::{Listener, Transport};
use ofi_core::error::Result;
use ofi_core::info::Offer;
use ofi_core::param::Param;
use ofi_core::{Addr, AddrFormat, TrafficClass};
use ofi_sync::account::Account;
use std::sync::Arc;

/// A provider.
pub trait Provider: Copy + Send + Sync + 'static {
    /// The name of its core, as in `prov_name`.
    const NAME: &'static str;
    /// Its parameters.
    const PARAMS: &'static [Param];
    /// Guards of its process-wide locks, which are held while the process forks; `()` if it has
    /// none.
    type Held;

    /// Its offers in order of preference.
    fn offers() -> Vec<Offer>;
    /// Takes its process-wide locks, so that no other thread holds them during a fork.
    fn hold() -> Self::Held;
}

/// A provider whose endpoints have links.
pub trait LinkProvider: Provider {
    /// The transport of its endpoints.
    type Transport: Transport<Request = <Self::Listener as Listener>::Request>;
    /// The listener of its passive endpoints.
    type Listener: Listener;

    /// Opens the transport of a connectionless endpoint at `addr`, or at an address of the format
    /// that the system chooses. Its traffic has the class; `account` is charged for memory that it
    /// holds for peers.
    ///
    /// # Errors
    /// The system's: the address is in use, or not one of this host.
    fn open_rdm(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<Self::Transport>;

    /// Opens the transport of a connected endpoint, bound to `addr` if given.
    ///
    /// # Errors
    /// As for [`Self::open_rdm`].
    fn open_msg(self, addr: Option<Addr>, class: TrafficClass, account: &Arc<Account>) -> Result<Self::Transport>;

    /// Opens a listener at `addr`.
    ///
    /// # Errors
    /// As for [`Self::open_rdm`].
    fn open_listener(
        self,
        addr: Option<Addr>,
        format: AddrFormat,
        class: TrafficClass,
        account: &Arc<Account>,
    ) -> Result<Self::Listener>;
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
