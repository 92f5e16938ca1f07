//! The list of providers. Concrete types reach an API layer through a visitor, so that no virtual
//! call separates a posted message from the transport.

use ofi_core::error::{Error, Result};
use ofi_core::info::Offer;
use ofi_core::param::Param;
use ofi_core::{Caps, EndpointType, Errno, Info, ProgressModel, Threading, TrafficClass};
use ofi_engine::provider::{DatagramProvider, LinkProvider};
use ofi_os::membarrier;
use ofi_sync::lock::{LockKind, Unlocked};
use std::sync::LazyLock;

/// The list, the parameters, the locks held across a fork, and the dispatch, all from one line for
/// each provider: its Cargo feature, its name here, its type, and whether its endpoints have links.
macro_rules! providers {
    ($($feature:literal $field:ident $name:ident: $provider:ty as $kind:ident;)*) => {
        /// The providers. [`open`] matches all, so offering one without opening it does not
        /// compile.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Known {
            $(#[cfg(feature = $feature)] $name,)*
        }

        /// All offers, each with the provider that makes it, by provider.
        #[allow(unused_mut, reason = "without features there is nothing to add")]
        fn all_offers() -> Vec<(Known, Offer)> {
            let mut all: Vec<(Known, Offer)> = Vec::new();
            $(
                #[cfg(feature = $feature)]
                all.extend(<$provider as ofi_engine::provider::Provider>::offers().into_iter().map(|offer| (Known::$name, offer)));
            )*
            all
        }

        /// The parameters of all providers.
        #[allow(unused_mut, reason = "without features there is nothing to add")]
        pub(crate) fn params() -> Vec<Param> {
            let mut all: Vec<Param> = Vec::new();
            $(
                #[cfg(feature = $feature)]
                all.extend(<$provider as ofi_engine::provider::Provider>::PARAMS.iter().cloned());
            )*
            all
        }

        /// The process-wide locks of the providers, held while the process forks.
        pub(crate) struct Held {
            $(#[cfg(feature = $feature)] #[expect(dead_code, reason = "it is held")] $field: <$provider as ofi_engine::provider::Provider>::Held,)*
        }

        impl core::fmt::Debug for Held {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("Held")
            }
        }

        /// Takes those locks.
        pub(crate) fn hold() -> Held {
            // A child could not wait for a thread of its parent that makes them.
            LazyLock::force(&OFFERS);
            Held { $(#[cfg(feature = $feature)] $field: <$provider as ofi_engine::provider::Provider>::hold(),)* }
        }

        #[allow(unused_variables, reason = "without features there is nothing to visit")]
        fn visit<V: DomainVisitor, K: LockKind>(known: Known, kind: K, visitor: V) -> V::Output {
            match known {
                $(#[cfg(feature = $feature)] Known::$name => visitor.$kind(<$provider>::default(), kind),)*
            }
        }
    };
}

providers! {
    "tcp" tcp Tcp: ofi_tcp::Provider as visit;
    "shm" shm Shm: ofi_shm::Provider as visit;
    "verbs" verbs Verbs: ofi_verbs::Provider as visit;
    "udp" udp Udp: ofi_udp::Provider as visit_datagrams;
    "verbs" verbs_datagrams VerbsDatagrams: ofi_verbs::DatagramsProvider as visit_datagrams;
}

/// All offers in order of preference, each with the provider that makes it: connectionless
/// endpoints, datagrams, connected endpoints, each in the order of the list. An application that
/// asks for a connection without naming a provider must not get one that ends at this host.
///
/// Made once: each endpoint that opens looks at them.
static OFFERS: LazyLock<Vec<(Known, Offer)>> = LazyLock::new(|| {
    let mut all = all_offers();
    all.sort_by_key(|(_, offer)| match offer.most.ep.kind {
        EndpointType::RDM => 0,
        EndpointType::DGRAM => 1,
        _ => 2,
    });
    all
});

/// The offers of all providers in order of preference.
pub fn providers() -> impl Iterator<Item = &'static Offer> {
    OFFERS.iter().map(|(_, offer)| offer)
}

/// The provider that offers that name, for that type of endpoint if it can; of another layered
/// name, the last layer decides.
fn known(name: &str, kind: EndpointType) -> Option<Known> {
    let last = name.rsplit(';').next().unwrap_or(name);
    let is_whole = |known: &str| known.eq_ignore_ascii_case(name);
    let is_part = |known: &str| known.split(';').any(|part| part.eq_ignore_ascii_case(last));
    let find = |fits: &dyn Fn(&str) -> bool| {
        let named = |offer: &Offer| fits(offer.most.fabric.prov_name.as_deref().unwrap_or_default());
        let is_exact = |offer: &Offer| named(offer) && offer.most.ep.kind == kind;
        let exact = OFFERS.iter().find(|(_, offer)| is_exact(offer));
        exact.or_else(|| OFFERS.iter().find(|(_, offer)| named(offer))).map(|(known, _)| *known)
    };
    find(&is_whole).or_else(|| find(&is_part))
}

/// The traffic class of an endpoint of the provider `core`: its own, or that of its domain.
///
/// # Errors
/// EINVAL for an unknown class, or one that the provider's traffic cannot have.
pub(crate) fn class_of(info: &Info, core: &str) -> Result<TrafficClass> {
    let class = info.tx.tclass.or(info.domain.tclass);
    let offer = providers().find(|offer| offer.most.fabric.prov_name.as_deref() == Some(core));
    if !class.is_known() || !offer.is_none_or(|offer| offer.can_carry(class)) {
        return Err(Error::new(Errno::EINVAL, format!("open an endpoint of {core} with the traffic class {class:?}")));
    }
    Ok(class)
}

/// Checks the sizes and limits of an info, as fi_getinfo does those of hints.
///
/// # Errors
/// EINVAL for more than the provider's endpoints can have.
pub(crate) fn check_limits(info: &Info, core: &str) -> Result<()> {
    let named = |offer: &&Offer| offer.most.fabric.prov_name.as_deref() == Some(core);
    let Some(Offer { most, .. }) = providers().find(|offer| named(offer) && offer.most.ep.kind == info.ep.kind) else {
        return Ok(());
    };
    let fields = |of: &Info| {
        let Info { tx, rx, .. } = of;
        [
            ("tx_attr->size", tx.size),
            ("tx_attr->inject_size", tx.inject_size),
            ("tx_attr->iov_limit", tx.iov_limit),
            ("tx_attr->rma_iov_limit", tx.rma_iov_limit),
            ("rx_attr->size", rx.size),
            ("rx_attr->iov_limit", rx.iov_limit),
        ]
    };
    for ((name, value), (_, most)) in fields(info).into_iter().zip(fields(most)) {
        if value > most {
            let text = format!("open an endpoint of {core} with {name} {value}: at most {most} is possible");
            return Err(Error::new(Errno::EINVAL, text));
        }
    }
    Ok(())
}

/// Checks the size of a shared receive context of the provider with that name, against what an
/// endpoint of any type can have.
///
/// # Errors
/// EINVAL for more receives than that.
pub fn check_shared_size(size: usize, name: &str) -> Result<()> {
    let Some(known) = known(name, EndpointType::UNSPEC) else { return Ok(()) };
    let offers = OFFERS.iter().filter(|(of, _)| *of == known);
    match offers.map(|(_, offer)| offer.most.rx.size).max() {
        Some(most) if size > most => {
            let text = format!("open a shared receive context of {name} with size {size}: at most {most} are possible");
            Err(Error::new(Errno::EINVAL, text))
        }
        _ => Ok(()),
    }
}

/// Whether a provider of that name exists; of a layered name, the last layer decides.
pub fn has_provider(name: &str) -> bool {
    known(name, EndpointType::UNSPEC).is_some()
}

/// Receives the concrete types of a domain.
pub trait DomainVisitor {
    /// The result of the visit.
    type Output;
    /// Visits a provider with the domain's kind of locking.
    fn visit<P: LinkProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
    /// The same for a provider of datagram endpoints.
    fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, provider: P, kind: K) -> Self::Output;
}

/// Opens the domain that `info` names, with the locking that its threading and progress require. An
/// API layer passes `unlocked` if it relies on its callers to keep FI_THREAD_DOMAIN.
pub fn open<V: DomainVisitor>(info: &Info, unlocked: Option<Unlocked>, visitor: V) -> Result<V::Output> {
    let name = info.fabric.prov_name.as_deref().unwrap_or("");
    let Some(known) = known(name, info.ep.kind) else {
        return Err(Error::new(Errno::ENODEV, format!("open a domain of provider \"{name}\"")));
    };
    let kind = unlocked.filter(|_| is_promised(info));
    Ok(match kind {
        Some(kind) => visit(known, kind, visitor),
        None => visit(known, membarrier::locks(), visitor),
    })
}

/// Whether the application promises that no two of its threads are in calls on objects of the
/// domain at once.
fn is_promised(info: &Info) -> bool {
    // Control calls are thread safe at every level (fi_domain(3)) unless this model of progress has
    // the application serialize them too.
    let all_calls = info.domain.progress == ProgressModel::CONTROL_UNIFIED;
    let is_automatic = info.domain.control_progress == ProgressModel::AUTO;
    // Reading an event queue, which belongs to no domain, also progresses connected endpoints, and
    // those that join groups.
    let follows_events = info.ep.kind != EndpointType::RDM || (info.caps | info.domain.caps).contains(Caps::COLLECTIVE);
    info.domain.threading == Threading::DOMAIN && all_calls && !is_automatic && !follows_events
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of the provider that it visits, and whether it is one of datagrams.
    struct Which;

    impl DomainVisitor for Which {
        type Output = (&'static str, bool);
        fn visit<P: LinkProvider, K: LockKind>(self, _: P, _: K) -> Self::Output {
            (P::NAME, false)
        }
        fn visit_datagrams<P: DatagramProvider, K: LockKind>(self, _: P, _: K) -> Self::Output {
            (P::NAME, true)
        }
    }

    fn opened(name: &str) -> Result<&'static str> {
        opened_for(name, EndpointType::UNSPEC).map(|(name, _)| name)
    }

    fn opened_for(name: &str, kind: EndpointType) -> Result<(&'static str, bool)> {
        let mut info = Info::default();
        info.fabric.prov_name = Some(name.to_owned());
        info.ep.kind = kind;
        open(&info, None, Which)
    }

    #[test]
    fn every_offer_opens_the_provider_that_made_it() {
        for (known, offer) in &*OFFERS {
            let name = offer.most.fabric.prov_name.clone().unwrap_or_default();
            let core = name.split(';').next().unwrap_or_default().to_owned();
            let kind = offer.most.ep.kind;
            assert!(format!("{known:?}").to_ascii_lowercase().starts_with(&core), "{name} is offered by {known:?}");
            assert_eq!(opened_for(&name, kind).unwrap(), (&*core, kind == EndpointType::DGRAM));
            assert!(has_provider(&name) && has_provider(&name.to_ascii_uppercase()));
        }
    }

    #[test]
    fn traffic_within_the_host_has_only_the_usual_class() {
        for (known, offer) in &*OFFERS {
            for class in [TrafficClass::UNSPEC, TrafficClass::BEST_EFFORT, TrafficClass::DSCP] {
                assert!(offer.can_carry(class), "{known:?}: {class:?}");
            }
            let urgent = TrafficClass(TrafficClass::DSCP.0 | 46);
            let sockets = offer.interfaces.is_some() && offer.devices.is_none();
            assert_eq!(offer.can_carry(urgent), sockets, "{known:?}");
        }
    }

    #[test]
    fn names_without_a_provider_open_nothing() {
        for name in ["", "psm3", "tcp;psm3", "tcp2"] {
            assert!(!has_provider(name), "{name}");
            assert_eq!(opened(name).unwrap_err().errno(), Errno::ENODEV);
        }
        assert_eq!(opened("off_hook;shm").unwrap(), "shm");
        assert_eq!(opened("ofi_rxm").unwrap(), "tcp");
    }

    #[test]
    fn locks_go_only_where_the_caller_serializes_control_calls_too() {
        let unlocked = |threading, progress, kind| {
            let mut info = Info::default();
            (info.domain.threading, info.domain.progress) = (threading, progress);
            info.ep.kind = kind;
            is_promised(&info)
        };
        let with = |change: fn(&mut Info)| {
            let mut info = Info::default();
            (info.domain.threading, info.domain.progress) = (Threading::DOMAIN, ProgressModel::CONTROL_UNIFIED);
            info.ep.kind = EndpointType::RDM;
            change(&mut info);
            is_promised(&info)
        };
        assert!(with(|_| ()));
        assert!(!with(|info| info.domain.control_progress = ProgressModel::AUTO));
        assert!(!with(|info| info.caps = Caps::COLLECTIVE));
        assert!(!with(|info| info.domain.caps = Caps::COLLECTIVE));
        let (manual, unified, auto) = (ProgressModel::MANUAL, ProgressModel::CONTROL_UNIFIED, ProgressModel::AUTO);
        assert!(unlocked(Threading::DOMAIN, unified, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, manual, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, auto, EndpointType::RDM));
        assert!(!unlocked(Threading::DOMAIN, unified, EndpointType::MSG));
        assert!(!unlocked(Threading::DOMAIN, unified, EndpointType::DGRAM));
        assert!(!unlocked(Threading::SAFE, unified, EndpointType::RDM));
        assert!(!unlocked(Threading::COMPLETION, unified, EndpointType::RDM));
    }
}
