//! Endpoints of any provider, behind the engine's object-safe traits, and the operations on them.

use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
use ofi_core::error::Result;
use ofi_core::{Errno, FiAddr, OpFlags};
use ofi_engine::erased::EndpointControl;
use ofi_engine::op::{AtomicCall, MessageOps, OneSidedOps, RecvOp, Remote, RmaKind, RmaOp, SendOp};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_engine::target::mr::Regions;
use ofi_memory::{Buffer, Span};
use ofi_os::membarrier;
use ofi_registry::DomainVisitor;
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// An endpoint of any provider.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) control: Arc<dyn EndpointControl>,
    pub(crate) messages: Arc<dyn MessageOps>,
    /// `None` for a provider that has no one-sided operations.
    pub(crate) one_sided: Option<Arc<dyn OneSidedOps>>,
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.control.fmt(f)
    }
}

/// Opens endpoints of one provider.
pub(crate) type OpenEndpoint = Arc<dyn Fn(&ofi_core::Info) -> Result<Engine> + Send + Sync>;

/// A provider's part of a domain.
pub(crate) struct Opened {
    pub(crate) open: OpenEndpoint,
    /// The memory that its endpoints expose; `None` for a provider that has no one-sided
    /// operations.
    pub(crate) regions: Option<Arc<Regions>>,
}

/// Visits a domain's provider.
pub(crate) struct Open;

impl DomainVisitor for Open {
    type Output = Opened;
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let regions = Arc::new(Regions::default());
        let exposed = regions.clone();
        let open: OpenEndpoint = Arc::new(move |info| {
            let engine = ofi_registry::open_endpoint(provider, membarrier::locks(), info, None, exposed.clone())?;
            Ok(Engine { control: engine.clone(), messages: engine.clone(), one_sided: Some(engine) })
        });
        Opened { open, regions: Some(regions) }
    }

    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, _kind: K) -> Self::Output {
        let open: OpenEndpoint = Arc::new(move |info| {
            let engine = ofi_registry::open_datagram_endpoint(provider, membarrier::locks(), info, None)?;
            Ok(Engine { control: engine.clone(), messages: engine, one_sided: None })
        });
        Opened { open, regions: None }
    }
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) key: u64,
    /// Offset in the region.
    pub(crate) at: u64,
}

/// An operation without its buffer, to be posted as often as the engine has no room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) what: What,
    pub(crate) peer: FiAddr,
    pub(crate) flags: OpFlags,
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Send { tag: Option<u64>, data: Option<u64> },
    Receive { tag: Option<(u64, u64)> },
    Access { kind: RmaKind, place: Place, data: Option<u64> },
    Atomic { kind: AtomicKind, op: AtomicOp, datatype: Datatype, place: Place, operand: u64, compare: u64 },
}

impl Post {
    /// Posts it. `AGAIN`: there is no room yet.
    pub(crate) fn issue(&self, engine: &Engine, context: usize, span: Span) -> Result<(), Errno> {
        let Self { what, peer, flags } = *self;
        let buffer = Buffer::One(span);
        match what {
            What::Send { tag, data } => {
                engine.messages.send(SendOp { dest: peer, buffer, context, tag, data, flags, inject: false })
            }
            What::Receive { tag } => engine.messages.receive(RecvOp { src: peer, buffer, context, tag, flags }),
            What::Access { kind, place, data } => {
                let one_sided = engine.one_sided.as_ref().ok_or(Errno::ENOSYS)?;
                let remote = Remote::one(place.at, buffer.len() as u64, place.key);
                one_sided.rma(RmaOp { kind, peer, buffer, remote, context, data, flags, inject: false })
            }
            What::Atomic { kind, op, datatype, place, operand, compare } => {
                let one_sided = engine.one_sided.as_ref().ok_or(Errno::ENOSYS)?;
                // The low bytes of the operands are the elements, in the order of this machine.
                let element = |value: u64| {
                    let bytes = value.to_ne_bytes();
                    let from = if cfg!(target_endian = "big") { bytes.len() - datatype.size() } else { 0 };
                    Buffer::Owned(bytes[from..from + datatype.size()].to_vec())
                };
                let with_compare = matches!(kind, AtomicKind::Compare);
                one_sided.atomic(AtomicCall {
                    kind,
                    op,
                    datatype,
                    peer,
                    operands: if op.has_operand() { element(operand) } else { Buffer::empty() },
                    compare: if with_compare { element(compare) } else { Buffer::empty() },
                    result: buffer,
                    remote: Remote::one(place.at, datatype.size() as u64, place.key),
                    context,
                    data: None,
                    flags,
                    inject: false,
                })
            }
        }
    }
}
