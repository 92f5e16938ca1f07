//! Opens a provider's endpoints as an info describes them, for the interfaces above.

use crate::provider::class_of;
use ofi_core::error::{Error, Result};
use ofi_core::{EndpointType, Errno, Info};
use ofi_engine::datagram;
use ofi_engine::endpoint::{Config, Opener, peer_account};
use ofi_engine::limits::Limits;
use ofi_engine::provider::{DatagramProvider, LinkProvider, OpenArgs, Provider};
use ofi_engine::target::mr::Regions;
use ofi_engine::wire::hello::EndpointKind;
use ofi_engine::{Auto, DatagramEndpoint, Endpoint, PassiveEndpoint};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// Opens an endpoint with links: MSG or RDM. Its peers may access the domain's `regions`.
///
/// # Errors
/// EINVAL for another type, or for a traffic class that the provider's traffic cannot have.
pub fn open_endpoint<P: LinkProvider, K: LockKind>(
    provider: P,
    kind: K,
    info: &Info,
    auto: Option<Arc<Auto>>,
    regions: Arc<Regions>,
) -> Result<Arc<Endpoint<P::Transport, K>>> {
    let endpoint_kind = match info.ep.kind {
        EndpointType::MSG => EndpointKind::Msg,
        EndpointType::RDM => EndpointKind::Rdm,
        _ => return Err(wrong_type::<P>(info)),
    };
    let config = Config {
        kind: endpoint_kind,
        caps: info.caps | (info.tx.caps | info.rx.caps),
        tx_size: info.tx.size.max(1),
        rx_size: info.rx.size.max(1),
        limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
        nonce: ofi_os::random(),
        provider: P::NAME,
        account: peer_account(),
        regions,
    };
    let class = class_of(info, P::NAME)?;
    let (format, charged) = (info.addr_format, config.account.clone());
    let opener: Opener<P::Transport> = Box::new(move |addr| {
        let args = OpenArgs { addr, format, class, account: &charged };
        match endpoint_kind {
            EndpointKind::Rdm => provider.open_rdm(args),
            EndpointKind::Msg => provider.open_msg(args),
        }
    });
    Ok(Endpoint::new(kind, config, info.src_addr, opener, auto))
}

/// Opens a datagram endpoint.
///
/// # Errors
/// As for [`open_endpoint`].
pub fn open_datagram_endpoint<P: DatagramProvider, K: LockKind>(
    provider: P,
    kind: K,
    info: &Info,
    auto: Option<Arc<Auto>>,
) -> Result<Arc<DatagramEndpoint<P::Datagrams, K>>> {
    if info.ep.kind != EndpointType::DGRAM {
        return Err(wrong_type::<P>(info));
    }
    let class = class_of(info, P::NAME)?;
    let format = info.addr_format;
    let config = datagram::Config {
        caps: info.caps | (info.tx.caps | info.rx.caps),
        limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
        rx_size: info.rx.size.max(1),
    };
    let opener: datagram::Opener<P::Datagrams> = Box::new(move |addr| provider.open(addr, format, class));
    Ok(DatagramEndpoint::new(kind, config, info.src_addr, opener, auto))
}

/// Opens a passive endpoint.
///
/// # Errors
/// EINVAL for a traffic class that the provider's traffic cannot have.
pub fn open_passive_endpoint<P: LinkProvider>(provider: P, info: Info) -> Result<Arc<PassiveEndpoint<P::Listener>>> {
    let class = class_of(&info, P::NAME)?;
    let (format, account) = (info.addr_format, peer_account());
    let opener = Box::new(move |addr| provider.open_listener(OpenArgs { addr, format, class, account: &account }));
    Ok(PassiveEndpoint::new(info, ofi_os::random(), opener))
}

fn wrong_type<P: Provider>(info: &Info) -> Error {
    let what = format!("open an endpoint of type {} in a domain of provider {}", info.ep.kind, P::NAME);
    Error::new(Errno::EINVAL, what)
}
