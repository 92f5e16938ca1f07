//! Hints against an offer: a complete [`Info`], or the first field that keeps the two apart.
//! The rules are those of fi_getinfo(3) and its attribute pages. Where a hint is a permission (mode, mr_mode) the
//! result is the least that is required; where it is a demand (caps, sizes) it is at least what was asked.

use crate::addr::Addr;
use crate::caps::{Caps, Mode, MrMode};
use crate::info::{DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, TxAttr};
use crate::kinds::{AddrFormat, AvType, EndpointType, ProgressModel, ResourceMgmt, Threading, Version};
use core::fmt;

/// `FI_SHARED_CONTEXT` as a context count.
pub const SHARED_CONTEXT: usize = usize::MAX;

/// What a message stream keeps of early messages from every peer, in bytes (the credit of a link).
const EARLY_BYTES: usize = 2 << 20;

/// Why an offer does not meet the hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The attribute, as C spells it: `ep_attr->type`.
    pub field: &'static str,
    /// What was asked.
    pub wanted: String,
    /// What there is.
    pub offered: String,
}

impl Reason {
    /// The reason that `field` was to be `wanted` and is `offered`.
    #[cold]
    pub fn new(field: &'static str, wanted: impl fmt::Display, offered: impl fmt::Display) -> Self {
        Self { field, wanted: wanted.to_string(), offered: offered.to_string() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: asked for {}, offered {}", self.field, self.wanted, self.offered)
    }
}

type Check = Result<(), Reason>;

fn at_most(field: &'static str, wanted: usize, offered: usize) -> Check {
    if wanted <= offered { Ok(()) } else { Err(Reason::new(field, wanted, offered)) }
}

fn list<'a>(names: impl Iterator<Item = &'a str>, rest: u64) -> String {
    let mut out = names.collect::<Vec<_>>().join("|");
    if rest != 0 || out.is_empty() {
        if !out.is_empty() {
            out.push('|');
        }
        out.push_str(&format!("{rest:#x}"));
    }
    out
}

fn caps_text(caps: Caps) -> String {
    let known = Caps::PRIMARY | Caps::SECONDARY | Caps::XPU;
    list(caps.names(), (caps - known).bits())
}

fn subset_caps(field: &'static str, wanted: Caps, offered: Caps) -> Check {
    let missing = wanted - offered;
    if missing.is_empty() { Ok(()) } else { Err(Reason::new(field, caps_text(missing), caps_text(offered))) }
}

fn required_mode(field: &'static str, required: Mode, granted: Mode) -> Check {
    let missing = required - granted;
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Reason::new(field, list(granted.names(), 0), list(missing.names(), 0)))
    }
}

/// Whether an address format that was asked for covers one that is offered.
pub fn format_covers(wanted: AddrFormat, offered: AddrFormat) -> bool {
    use AddrFormat as F;
    wanted == F::FORMAT_UNSPEC
        || offered == F::FORMAT_UNSPEC
        || wanted == offered
        || match offered {
            F::SOCKADDR => matches!(wanted, F::SOCKADDR_IP | F::SOCKADDR_IN | F::SOCKADDR_IN6 | F::SOCKADDR_IB),
            F::SOCKADDR_IP => matches!(wanted, F::SOCKADDR | F::SOCKADDR_IN | F::SOCKADDR_IN6),
            F::SOCKADDR_IN | F::SOCKADDR_IN6 => matches!(wanted, F::SOCKADDR | F::SOCKADDR_IP),
            F::SOCKADDR_IB => wanted == F::SOCKADDR,
            _ => false,
        }
}

/// How freely calls may run at once; larger is stricter for the application, so cheaper for the provider.
const fn thread_level(threading: Threading) -> Option<u32> {
    match threading {
        Threading::SAFE => Some(1),
        Threading::FID => Some(2),
        Threading::ENDPOINT => Some(3),
        Threading::COMPLETION => Some(4),
        Threading::DOMAIN => Some(5),
        Threading::UNSPEC => Some(6),
        _ => None,
    }
}

/// The offer as the hints want it, or why not. `api` is the interface version of the caller.
pub fn negotiate(offer: &Info, hints: &Hints, api: Version) -> Result<Info, Reason> {
    let mut info = offer.clone();
    if let Some(ep) = &hints.ep
        && ep.kind != EndpointType::UNSPEC
        && ep.kind != offer.ep.kind
    {
        return Err(Reason::new("ep_attr->type", ep.kind, offer.ep.kind));
    }
    info.caps = caps(offer, hints)?;
    required_mode("mode", offer.mode, hints.mode)?;
    if !format_covers(hints.addr_format, offer.addr_format) {
        return Err(Reason::new("addr_format", hints.addr_format, offer.addr_format));
    }
    if let Some(want) = &hints.fabric {
        fabric(want, &offer.fabric)?;
    }
    if let Some(want) = &hints.domain {
        domain(&mut info, want, hints, offer, api)?;
    }
    domain_caps(&mut info, hints);
    mr_mode(&mut info, hints, offer, api)?;
    if let Some(want) = &hints.ep {
        endpoint(&mut info, want, hints, offer, api)?;
    }
    if let Some(want) = &hints.rx {
        receive(&mut info, want, offer, api)?;
    }
    if let Some(want) = &hints.tx {
        transmit(&mut info, want, offer)?;
    }
    info.tx.caps = info.caps & info.tx.caps;
    info.rx.caps = info.caps & info.rx.caps;
    addresses(&mut info, hints, offer)?;
    Ok(info)
}

fn addresses(info: &mut Info, hints: &Hints, offer: &Info) -> Check {
    let fits = |addr: &Addr| format_covers(offer.addr_format, addr.format());
    if let Some(dest) = hints.dest_addr {
        if !fits(&dest) {
            return Err(Reason::new("dest_addr", dest, offer.addr_format));
        }
        info.dest_addr = info.dest_addr.or(Some(dest));
    }
    if let Some(src) = hints.src_addr
        && !fits(&src)
    {
        return Err(Reason::new("src_addr", src, offer.addr_format));
    }
    Ok(())
}

fn caps(offer: &Info, hints: &Hints) -> Result<Caps, Reason> {
    subset_caps("caps", hints.caps, offer.caps)?;
    // What a receive context is to do is named too, although the manual wants it among the endpoint's.
    let named = hints.caps | hints.rx.as_ref().map_or(Caps::empty(), |rx| rx.caps);
    if named.contains(Caps::SOURCE_ERR) && !named.contains(Caps::SOURCE) {
        let field = if hints.caps.contains(Caps::SOURCE_ERR) { "caps" } else { "rx_attr->caps" };
        return Err(Reason::new(field, "FI_SOURCE_ERR", "only together with FI_SOURCE"));
    }
    let primary = offer.caps & Caps::PRIMARY;
    let secondary = offer.caps & Caps::SECONDARY;
    if hints.caps.is_empty() {
        return Ok((primary | secondary) - Caps::ONLY_IF_NAMED);
    }
    let mut out = hints.caps & Caps::PRIMARY;
    let directions = Caps::SEND | Caps::RECV;
    if out.intersects(Caps::MSG | Caps::TAGGED) && !out.intersects(directions) {
        out |= directions & primary;
    }
    let sides = Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
    if out.intersects(Caps::RMA | Caps::ATOMIC) && !out.intersects(sides) {
        out |= sides & primary;
    }
    let unnamed = (Caps::SOURCE | Caps::ONLY_IF_NAMED | Caps::KNOWN_BESIDES) - named;
    let besides = offer.caps & Caps::KNOWN_BESIDES;
    Ok(out | ((secondary | besides) - unnamed))
}

fn fabric(want: &FabricAttr, offer: &FabricAttr) -> Check {
    if want.prov_version > offer.prov_version {
        let show = |v| Version(v).to_string();
        return Err(Reason::new("fabric_attr->prov_version", show(want.prov_version), show(offer.prov_version)));
    }
    if let (Some(want), Some(offer)) = (&want.name, &offer.name)
        && !want.eq_ignore_ascii_case(offer)
    {
        return Err(Reason::new("fabric_attr->name", want, offer));
    }
    Ok(())
}

fn domain(info: &mut Info, want: &DomainAttr, hints: &Hints, offer: &Info, api: Version) -> Check {
    let offered = &offer.domain;
    if let (Some(want), Some(offer)) = (&want.name, &offered.name)
        && !want.eq_ignore_ascii_case(offer)
    {
        return Err(Reason::new("domain_attr->name", want, offer));
    }
    match (thread_level(want.threading), thread_level(offered.threading)) {
        (Some(wanted), Some(there)) if wanted >= there => {}
        _ => return Err(Reason::new("domain_attr->threading", want.threading, offered.threading)),
    }
    if want.threading != Threading::UNSPEC {
        info.domain.threading = want.threading;
    }
    // Who asks for AUTO gets a thread, who does not ask gets none.
    if want.progress.0 > ProgressModel::CONTROL_UNIFIED.0 {
        return Err(Reason::new("domain_attr->progress", want.progress, offered.progress));
    }
    if want.progress != ProgressModel::UNSPEC {
        info.domain.progress = want.progress;
        info.domain.control_progress = want.progress;
    }
    if want.resource_mgmt.0 > ResourceMgmt::ENABLED.0 {
        return Err(Reason::new("domain_attr->resource_mgmt", want.resource_mgmt, offered.resource_mgmt));
    }
    if want.av_type != AvType::UNSPEC && offered.av_type != AvType::UNSPEC && want.av_type != offered.av_type {
        return Err(Reason::new("domain_attr->av_type", want.av_type, offered.av_type));
    }
    if want.av_type.0 > AvType::TABLE.0 {
        return Err(Reason::new("domain_attr->av_type", want.av_type, offered.av_type));
    }
    if want.av_type != AvType::UNSPEC {
        info.domain.av_type = want.av_type;
    }
    at_most("domain_attr->cq_data_size", want.cq_data_size, offered.cq_data_size)?;
    if api >= Version::new(1, 5) {
        at_most("domain_attr->cntr_cnt", want.cntr_cnt, offered.cntr_cnt)?;
        at_most("domain_attr->mr_iov_limit", want.mr_iov_limit, offered.mr_iov_limit)?;
        at_most("domain_attr->max_err_data", want.max_err_data, offered.max_err_data)?;
        at_most("domain_attr->mr_cnt", want.mr_cnt, offered.mr_cnt)?;
        subset_caps("domain_attr->caps", want.caps, offered.caps)?;
        let granted = if want.mode.is_empty() { hints.mode } else { want.mode };
        required_mode("domain_attr->mode", offered.mode, granted)?;
        if want.av_auth_key || want.auth_key.len() != offered.auth_key.len() && !want.auth_key.is_empty() {
            return Err(Reason::new("domain_attr->auth_key_size", want.auth_key.len(), offered.auth_key.len()));
        }
    }
    if api >= Version::new(1, 20) {
        at_most("domain_attr->max_ep_auth_key", want.max_ep_auth_key, offered.max_ep_auth_key)?;
    }
    if api >= Version::new(2, 0) && want.max_group_id > offered.max_group_id {
        return Err(Reason::new("domain_attr->max_group_id", want.max_group_id, offered.max_group_id));
    }
    Ok(())
}

/// A domain has the primary capabilities that were asked for, and all of them if none were.
fn domain_caps(info: &mut Info, hints: &Hints) {
    let named = hints.domain.as_ref().map_or(Caps::empty(), |domain| domain.caps);
    if !(hints.caps | named).is_empty() {
        info.domain.caps -= Caps::PRIMARY - (hints.caps | named);
    }
}

/// The hint is a permission: every bit in it we may require, and of those we require the fewest.
fn mr_mode(info: &mut Info, hints: &Hints, offer: &Info, api: Version) -> Check {
    let modern = api >= Version::new(1, 5);
    let given = hints.domain.as_ref().map(|domain| domain.mr_mode);
    let required = offer.domain.mr_mode - (MrMode::BASIC | MrMode::SCALABLE);
    let wanted = given.unwrap_or(MrMode::empty());
    let old = wanted & (MrMode::BASIC | MrMode::SCALABLE);
    info.domain.mr_mode = if !old.is_empty() && old == wanted && wanted.bits().count_ones() == 1 {
        wanted
    } else if !old.is_empty() {
        // The two of before 1.5 stand alone.
        return Err(Reason::new(
            "domain_attr->mr_mode",
            list(wanted.names(), 0),
            "either one of the two old modes or none",
        ));
    } else if !modern {
        MrMode::BASIC
    } else if given.is_some() && !(required - wanted).is_empty() {
        let missing = list((required - wanted).names(), 0);
        return Err(Reason::new("domain_attr->mr_mode", list(wanted.names(), 0), missing));
    } else {
        required
    };
    Ok(())
}

fn contexts(field: &'static str, want: usize, max: usize, shared: usize) -> Check {
    if want == SHARED_CONTEXT {
        if shared > 0 { Ok(()) } else { Err(Reason::new(field, "FI_SHARED_CONTEXT", "none shared")) }
    } else {
        at_most(field, want, max.max(1))
    }
}

fn endpoint(info: &mut Info, want: &EpAttr, hints: &Hints, offer: &Info, _api: Version) -> Check {
    let offered = &offer.ep;
    if want.protocol.0 != 0 && want.protocol != offered.protocol {
        return Err(Reason::new("ep_attr->protocol", want.protocol, offered.protocol));
    }
    if want.protocol_version > offered.protocol_version {
        return Err(Reason::new("ep_attr->protocol_version", want.protocol_version, offered.protocol_version));
    }
    at_most("ep_attr->max_msg_size", want.max_msg_size, offered.max_msg_size)?;
    let domain = &offer.domain;
    contexts("ep_attr->tx_ctx_cnt", want.tx_ctx_cnt, domain.max_ep_tx_ctx, domain.max_ep_stx_ctx)?;
    contexts("ep_attr->rx_ctx_cnt", want.rx_ctx_cnt, domain.max_ep_rx_ctx, domain.max_ep_srx_ctx)?;
    if hints.caps.intersects(Caps::RMA | Caps::ATOMIC) {
        at_most("ep_attr->max_order_raw_size", want.max_order_raw_size, offered.max_order_raw_size)?;
        at_most("ep_attr->max_order_war_size", want.max_order_war_size, offered.max_order_war_size)?;
        at_most("ep_attr->max_order_waw_size", want.max_order_waw_size, offered.max_order_waw_size)?;
    }
    if !want.auth_key.is_empty() && want.auth_key.len() != offered.auth_key.len() {
        return Err(Reason::new("ep_attr->auth_key_size", want.auth_key.len(), offered.auth_key.len()));
    }
    if hints.caps.contains(Caps::TAGGED) && want.mem_tag_format != 0 {
        let bits = |format: u64| 64 - format.leading_zeros();
        if bits(want.mem_tag_format) > bits(offered.mem_tag_format) {
            let show = |format: u64| format!("{format:#018x}");
            return Err(Reason::new(
                "ep_attr->mem_tag_format",
                show(want.mem_tag_format),
                show(offered.mem_tag_format),
            ));
        }
    }
    if want.tx_ctx_cnt != 0 {
        info.ep.tx_ctx_cnt = want.tx_ctx_cnt;
    }
    if want.rx_ctx_cnt != 0 {
        info.ep.rx_ctx_cnt = want.rx_ctx_cnt;
    }
    Ok(())
}

fn receive(info: &mut Info, want: &RxAttr, offer: &Info, api: Version) -> Check {
    let offered = &offer.rx;
    subset_caps("rx_attr->caps", want.caps - Caps::IGNORED_FOR_RECEIVE, offered.caps)?;
    required_mode("rx_attr->mode", offered.mode, if want.mode.is_empty() { info.mode } else { want.mode })?;
    if !offered.op_flags.contains(want.op_flags) {
        let missing = want.op_flags - offered.op_flags;
        return Err(Reason::new("rx_attr->op_flags", list(missing.names(), 0), list(offered.op_flags.names(), 0)));
    }
    if !offered.msg_order.contains(want.msg_order) {
        let missing = want.msg_order - offered.msg_order;
        return Err(Reason::new("rx_attr->msg_order", list(missing.names(), 0), list(offered.msg_order.names(), 0)));
    }
    if want.comp_order != 0 {
        return Err(Reason::new("rx_attr->comp_order", format!("{:#x}", want.comp_order), 0));
    }
    // Removed in 2.0. A message-stream provider keeps this much of early messages for every peer anyway.
    let buffered = if api < Version::new(2, 0) && !offer.tx.msg_order.is_empty() { EARLY_BYTES } else { 0 };
    at_most("rx_attr->total_buffered_recv", want.total_buffered_recv, buffered)?;
    info.rx.total_buffered_recv = want.total_buffered_recv;
    at_most("rx_attr->size", want.size, offered.size)?;
    at_most("rx_attr->iov_limit", want.iov_limit, offered.iov_limit)?;
    info.rx.op_flags = want.op_flags;
    if want.size != 0 {
        info.rx.size = want.size;
    }
    if want.iov_limit != 0 {
        info.rx.iov_limit = want.iov_limit;
    }
    Ok(())
}

fn transmit(info: &mut Info, want: &TxAttr, offer: &Info) -> Check {
    let offered = &offer.tx;
    subset_caps("tx_attr->caps", want.caps - Caps::IGNORED_FOR_TRANSMIT, offered.caps)?;
    required_mode("tx_attr->mode", offered.mode, if want.mode.is_empty() { info.mode } else { want.mode })?;
    if !offered.op_flags.contains(want.op_flags) {
        let missing = want.op_flags - offered.op_flags;
        return Err(Reason::new("tx_attr->op_flags", list(missing.names(), 0), list(offered.op_flags.names(), 0)));
    }
    if !offered.msg_order.contains(want.msg_order) {
        let missing = want.msg_order - offered.msg_order;
        return Err(Reason::new("tx_attr->msg_order", list(missing.names(), 0), list(offered.msg_order.names(), 0)));
    }
    if want.comp_order != 0 {
        return Err(Reason::new("tx_attr->comp_order", format!("{:#x}", want.comp_order), 0));
    }
    at_most("tx_attr->inject_size", want.inject_size, offered.inject_size)?;
    at_most("tx_attr->size", want.size, offered.size)?;
    at_most("tx_attr->iov_limit", want.iov_limit, offered.iov_limit)?;
    at_most("tx_attr->rma_iov_limit", want.rma_iov_limit, offered.rma_iov_limit)?;
    info.tx.op_flags = want.op_flags;
    for (mine, wanted) in [
        (&mut info.tx.size, want.size),
        (&mut info.tx.iov_limit, want.iov_limit),
        (&mut info.tx.rma_iov_limit, want.rma_iov_limit),
    ] {
        if wanted != 0 {
            *mine = wanted;
        }
    }
    info.tx.inject_size = if want.inject_size != 0 { want.inject_size } else { offered.inject_size };
    info.tx.tclass = want.tclass;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::{MsgOrder, OpFlags};
    use crate::kinds::Protocol;

    fn offer() -> Info {
        let caps = Caps::MSG | Caps::TAGGED | Caps::SEND | Caps::RECV | Caps::SOURCE | Caps::LOCAL_COMM;
        let mut info = Info { caps, addr_format: AddrFormat::SOCKADDR_IN, ..Info::default() };
        info.ep.kind = EndpointType::RDM;
        info.ep.protocol = Protocol::XNET;
        info.ep.max_msg_size = 1 << 40;
        info.ep.mem_tag_format = u64::MAX;
        info.tx.caps = Caps::MSG | Caps::TAGGED | Caps::SEND;
        info.rx.caps = Caps::MSG | Caps::TAGGED | Caps::RECV | Caps::SOURCE;
        info.tx.op_flags = OpFlags::COMPLETION;
        info.tx.msg_order = MsgOrder::SAS;
        info.tx.inject_size = 128;
        info.tx.size = 1024;
        info.domain.threading = Threading::SAFE;
        info.domain.progress = ProgressModel::MANUAL;
        info.domain.control_progress = ProgressModel::MANUAL;
        info.domain.cq_data_size = 8;
        info
    }

    fn refused(change: impl FnOnce(&mut Hints)) -> &'static str {
        let mut hints = Hints { domain: Some(DomainAttr::default()), ..Hints::default() };
        hints.ep = Some(EpAttr::default());
        hints.tx = Some(TxAttr::default());
        hints.rx = Some(RxAttr::default());
        hints.fabric = Some(FabricAttr::default());
        negotiate(&offer(), &hints, Version::API).expect("plain hints match");
        change(&mut hints);
        negotiate(&offer(), &hints, Version::API).expect_err("the change is refused").field
    }

    #[test]
    fn each_refusal_names_its_field() {
        assert_eq!(refused(|h| h.caps = Caps::RMA), "caps");
        assert_eq!(refused(|h| h.addr_format = AddrFormat::SOCKADDR_IN6), "addr_format");
        assert_eq!(refused(|h| h.ep.as_mut().unwrap().kind = EndpointType::DGRAM), "ep_attr->type");
        assert_eq!(refused(|h| h.ep.as_mut().unwrap().protocol = Protocol::RXM), "ep_attr->protocol");
        assert_eq!(refused(|h| h.tx.as_mut().unwrap().inject_size = 129), "tx_attr->inject_size");
        assert_eq!(refused(|h| h.tx.as_mut().unwrap().msg_order = MsgOrder::WAR), "tx_attr->msg_order");
        assert_eq!(refused(|h| h.domain.as_mut().unwrap().progress = ProgressModel(9)), "domain_attr->progress");
        assert_eq!(refused(|h| h.domain.as_mut().unwrap().threading = Threading(9)), "domain_attr->threading");
        assert_eq!(refused(|h| h.domain.as_mut().unwrap().cq_data_size = 9), "domain_attr->cq_data_size");
        assert_eq!(refused(|h| h.ep.as_mut().unwrap().tx_ctx_cnt = SHARED_CONTEXT), "ep_attr->tx_ctx_cnt");
    }

    #[test]
    fn the_answer_is_a_hint_that_gives_itself() {
        let hints = Hints { caps: Caps::TAGGED, ..Hints::default() };
        let info = negotiate(&offer(), &hints, Version::API).unwrap();
        assert_eq!(info.caps, Caps::TAGGED | Caps::SEND | Caps::RECV | Caps::LOCAL_COMM);
        let again = negotiate(&offer(), &Hints::from(info.clone()), Version::API).unwrap();
        assert_eq!(again, info);
    }

    #[test]
    fn source_comes_only_when_asked_for() {
        let hints = Hints { caps: Caps::MSG | Caps::SOURCE, ..Hints::default() };
        assert!(negotiate(&offer(), &hints, Version::API).unwrap().caps.contains(Caps::SOURCE));
        assert!(negotiate(&offer(), &Hints::default(), Version::API).unwrap().caps.contains(Caps::SOURCE));
    }

    #[test]
    fn registration_modes_are_permissions() {
        let ask = |bits: u32, api| {
            let domain = DomainAttr { mr_mode: MrMode::from_bits_retain(bits), ..DomainAttr::default() };
            let hints = Hints { domain: Some(domain), ..Hints::default() };
            negotiate(&offer(), &hints, api).unwrap().domain.mr_mode.bits()
        };
        assert_eq!(ask(0, Version::API), 0);
        assert_eq!(ask(!3, Version::API), 0);
        assert_eq!(ask(1, Version::API), 1);
        assert_eq!(ask(2, Version::new(1, 20)), 2);
        assert_eq!(ask(0, Version::new(1, 4)), 1);
    }

    #[test]
    fn the_threading_that_was_asked_for_comes_back() {
        for level in [Threading::SAFE, Threading::DOMAIN, Threading::COMPLETION, Threading::ENDPOINT] {
            let domain = DomainAttr { threading: level, ..DomainAttr::default() };
            let hints = Hints { domain: Some(domain), ..Hints::default() };
            assert_eq!(negotiate(&offer(), &hints, Version::API).unwrap().domain.threading, level);
        }
    }
}
