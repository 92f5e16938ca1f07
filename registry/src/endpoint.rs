//! Opens a provider's endpoints as an info describes them, for the interfaces above.

use crate::provider::{check_limits, class_of};
use ofi_core::error::{Error, Result};
use ofi_core::negotiate::SHARED_CONTEXT;
use ofi_core::{EndpointType, Errno, Info};
use ofi_engine::datagram;
use ofi_engine::endpoint::{Config, Opener, peer_account};
use ofi_engine::limits::Limits;
use ofi_engine::provider::{DatagramProvider, LinkProvider, OpenArgs, Provider};
use ofi_engine::scalable::ScalableEndpoint;
use ofi_engine::target::mr::Regions;
use ofi_engine::wire::hello::{Contexts, EndpointKind};
use ofi_engine::{Auto, DatagramEndpoint, Endpoint, PassiveEndpoint};
use ofi_sync::account::Account;
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// Opens an endpoint with links: MSG or RDM. Its peers may access the domain's `regions`.
///
/// # Errors
/// EINVAL for another type, for larger queues than the provider has, or for a traffic class that
/// its traffic cannot have.
pub fn open_endpoint<P: LinkProvider, K: LockKind>(
    provider: P,
    kind: K,
    info: &Info,
    auto: Option<Arc<Auto>>,
    regions: Arc<Regions>,
) -> Result<Arc<Endpoint<P::Transport, K>>> {
    let config = config_of::<P>(info, regions)?;
    let endpoint_kind = config.kind;
    check_limits(info, P::NAME)?;
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

/// The configuration of an endpoint with links, or of a context of a scalable endpoint.
///
/// # Errors
/// EINVAL for another type of endpoint.
fn config_of<P: Provider>(info: &Info, regions: Arc<Regions>) -> Result<Config> {
    let kind = match info.ep.kind {
        EndpointType::MSG => EndpointKind::Msg,
        EndpointType::RDM => EndpointKind::Rdm,
        _ => return Err(wrong_type::<P>(info)),
    };
    Ok(Config {
        kind,
        caps: info.caps | (info.tx.caps | info.rx.caps),
        tx_size: info.tx.size.max(1),
        rx_size: info.rx.size.max(1),
        limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
        nonce: ofi_os::random(),
        provider: P::NAME,
        account: peer_account(),
        regions,
        contexts: Contexts::default(),
    })
}

/// The scalable endpoints of a provider.
pub type ScalableOf<P, K> = ScalableEndpoint<<P as LinkProvider>::Listener, <P as LinkProvider>::Transport, K>;

/// Opens a scalable endpoint with as many contexts as the info says.
///
/// # Errors
/// EINVAL for a traffic class that the provider's traffic cannot have.
pub fn open_scalable_endpoint<P: LinkProvider, K: LockKind>(
    provider: P,
    kind: K,
    info: &Info,
    auto: Option<Arc<Auto>>,
) -> Result<Arc<ScalableOf<P, K>>> {
    if info.ep.kind != EndpointType::RDM {
        return Err(wrong_type::<P>(info));
    }
    check_limits(info, P::NAME)?;
    let class = class_of(info, P::NAME)?;
    let (format, account) = (info.addr_format, peer_account());
    let open = Box::new(move |addr| provider.open_scalable(OpenArgs { addr, format, class, account: &account }));
    let open_context = Box::new(move |listener: &P::Listener, account: &Arc<Account>| {
        provider.open_context(listener, OpenArgs { addr: None, format, class, account })
    });
    // A shared context stands for one of its kind.
    let count = |count: usize| if count == SHARED_CONTEXT { 1 } else { count.max(1) };
    let counts = (count(info.ep.tx_ctx_cnt), count(info.ep.rx_ctx_cnt));
    Ok(ScalableEndpoint::new(kind, counts, info.src_addr, open, open_context, ofi_os::random(), auto))
}

/// The configuration of a context of a scalable endpoint. Its peers may access the domain's
/// `regions`. The info's capabilities are the context's.
///
/// # Errors
/// EINVAL for another type of endpoint than that of scalable endpoints, and for larger sizes than
/// the provider's endpoints can have.
pub fn context_config<P: LinkProvider>(_provider: P, info: &Info, regions: Arc<Regions>) -> Result<Config> {
    check_limits(info, P::NAME)?;
    config_of::<P>(info, regions)
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
    check_limits(info, P::NAME)?;
    let class = class_of(info, P::NAME)?;
    let format = info.addr_format;
    let config = datagram::Config {
        caps: info.caps | (info.tx.caps | info.rx.caps),
        limits: Limits::new(info.ep.max_msg_size, info.tx.inject_size),
        rx_size: info.rx.size.max(1),
        provider: P::NAME,
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
