//! The other end of a link.

use crate::region::Side;
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::transport::Down;
use ofi_engine::wire::frame::Violation;
use ofi_os::process::Life;
use std::io;
use std::sync::Arc;

/// The peer at the other end of a link.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: Addr,
    /// The name by which it is woken and probed.
    pub(crate) name: String,
    /// The number of the link's connect request, and whether this side sent it.
    pub(crate) request: (u64, bool),
    /// Its process, where the system reports its end.
    pub(crate) life: Option<Arc<Life>>,
    /// It does not know this side's process yet.
    pub(crate) is_unaware: bool,
}

impl Peer {
    pub(crate) const fn new(addr: Addr, name: String, request: (u64, bool)) -> Self {
        Self { addr, name, request, life: None, is_unaware: false }
    }

    /// This side of the link.
    pub(super) const fn our_side(&self) -> Side {
        if self.request.1 { Side::Initiator } else { Side::Acceptor }
    }

    /// The reason for a link that the peer has damaged.
    pub(crate) fn violated(&self, Violation(what): Violation) -> Down {
        Down::new(Cause::Violation, Errno::EPROTO, format!("link to {}: {what}", self.addr))
    }
}

/// The reason for a connect request that cannot be sent.
pub(crate) fn unreachable(to: &Addr, error: &io::Error) -> Down {
    let absent = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
    let errno = if absent { Errno::ECONNREFUSED } else { Errno::from(error) };
    let why = if absent { "no endpoint on this host has this name".to_owned() } else { error.to_string() };
    Down::new(Cause::Connect, errno, format!("connect to {to}: {why}"))
}
