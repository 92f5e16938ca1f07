//! Negotiates hints against an offer: a complete [`Info`], or the first field that does not match.
//! The rules are those of fi_getinfo(3) and its attribute pages. A permission (mode, mr_mode)
//! yields the minimum that the provider requires, a demand (caps, sizes) at least what was asked.

use crate::addr::Addr;
use crate::buffered::Legacy;
use crate::caps::{Caps, MrMode, MsgOrder, OpFlags};
pub use crate::info::SHARED_CONTEXT;
use crate::info::{DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, TxAttr};
use crate::kinds::{AddrFormat, AvType, EndpointType, ProgressModel, ResourceMgmt, Threading, TrafficClass, Version};
pub use crate::reason::{Problem, Reason};
use crate::reason::{granted, subset};

/// Bytes of unexpected messages that a message-stream provider buffers for every peer, whatever the
/// number of peers. Most peers may send more, depending on what the endpoint holds for others.
pub const EARLY_BYTES: usize = 64 << 10;

/// The smallest inject size that the 2014 capability FI_INJECT promises, in bytes.
const LEAST_INJECT: usize = 8;
/// The smallest completion data that the 2014 capability FI_REMOTE_CQ_DATA promises, in bytes.
const LEAST_CQ_DATA: usize = 4;

type Check = Result<(), Reason>;

fn at_most(field: &'static str, wanted: usize, offered: usize) -> Check {
    if wanted <= offered { Ok(()) } else { Err(Reason::new(field, wanted, offered)) }
}

/// Checks fields, each with the wanted and the offered value: wanted is at most offered.
fn each_at_most<const N: usize>(fields: [(&'static str, usize, usize); N]) -> Check {
    fields.into_iter().try_for_each(|(field, wanted, offered)| at_most(field, wanted, offered))
}

/// Whether a requested address format covers an offered one.
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

/// Rank of a threading model; a larger one restricts the application more and costs less.
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

/// Fits the offer to the hints, or says why it cannot. `api` is the caller's interface version.
pub fn negotiate(offer: &Info, hints: &Hints, api: Version) -> Result<Info, Reason> {
    let (legacy, hints) = Legacy::split(hints, api)?;
    let hints = &*hints;
    let mut info = offer.clone();
    if let Some(ep) = &hints.ep
        && ep.kind != EndpointType::UNSPEC
        && ep.kind != offer.ep.kind
    {
        return Err(Reason::differs("ep_attr->type", ep.kind, offer.ep.kind));
    }
    info.caps = caps(offer, hints, api)?;
    granted("mode", offer.mode, hints.mode)?;
    if !format_covers(hints.addr_format, offer.addr_format) {
        return Err(Reason::differs("addr_format", hints.addr_format, offer.addr_format));
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
    contexts_of_an_endpoint(&mut info, hints)?;
    info.tx.caps = info.caps & info.tx.caps;
    info.rx.caps = info.caps & info.rx.caps;
    legacy.grant(&mut info)?;
    addresses(&mut info, hints, offer)?;
    Ok(info)
}

/// The contexts that an endpoint may have: one, unless the hints want several. Some programs take a
/// larger maximum as advice: Open MPI's one-sided communication opens a scalable endpoint and polls
/// only one of its contexts, while its peers wait for the others; MPICH opens one for one context.
/// FI_NAMED_RX_CTX alone does not want several: it is for sending to the contexts of peers.
///
/// Only an endpoint that has one context of each kind, and a receive context of its own, can join
/// groups: an info with FI_COLLECTIVE promises no others. It promises no triggered operations
/// either, because collective operations cannot be triggered, and an endpoint with FI_TRIGGER has
/// only calls that can be (fi_trigger(3)).
fn contexts_of_an_endpoint(info: &mut Info, hints: &Hints) -> Check {
    let several = |count: usize| count > 1 && count != SHARED_CONTEXT;
    let (ep, domain) = (hints.ep.as_ref(), hints.domain.as_ref());
    let of_contexts = |caps: Caps| caps.contains(Caps::NAMED_RX_CTX);
    let wanted = ep.is_some_and(|ep| several(ep.tx_ctx_cnt) || several(ep.rx_ctx_cnt))
        || domain.is_some_and(|domain| several(domain.max_ep_tx_ctx) || several(domain.max_ep_rx_ctx));
    let shared =
        ep.is_some_and(|ep| ep.rx_ctx_cnt == SHARED_CONTEXT) || domain.is_some_and(|domain| domain.max_ep_srx_ctx > 0);
    let groups = info.caps.contains(Caps::COLLECTIVE);
    if groups {
        let named = of_contexts(hints.caps)
            || hints.tx.as_ref().is_some_and(|tx| of_contexts(tx.caps))
            || hints.rx.as_ref().is_some_and(|rx| of_contexts(rx.caps));
        let asked = match (wanted || named, shared, info.caps.contains(Caps::TRIGGER)) {
            (true, ..) => "several contexts of an endpoint",
            (_, true, _) => "shared receive contexts",
            (.., true) => "FI_TRIGGER",
            _ => "",
        };
        if !asked.is_empty() {
            let because = format_args!("the hints ask for {asked} too, and such endpoints cannot join groups");
            let in_tx = hints.tx.as_ref().is_some_and(|tx| tx.caps.contains(Caps::COLLECTIVE));
            let field = match hints.caps.contains(Caps::COLLECTIVE) {
                true => "caps",
                false if in_tx => "tx_attr->caps",
                false => "rx_attr->caps",
            };
            return Err(Reason::lacks_because(field, Caps::COLLECTIVE, because));
        }
        info.caps -= Caps::NAMED_RX_CTX;
        info.domain.max_ep_srx_ctx = 0;
    }
    if groups || (ep.is_some() || domain.is_some()) && !wanted {
        let most = &mut info.domain;
        (most.max_ep_tx_ctx, most.max_ep_rx_ctx) = (most.max_ep_tx_ctx.min(1), most.max_ep_rx_ctx.min(1));
    }
    Ok(())
}

fn addresses(info: &mut Info, hints: &Hints, offer: &Info) -> Check {
    let fits = |addr: &Addr| format_covers(offer.addr_format, addr.format());
    if let Some(dest) = hints.dest_addr {
        if !fits(&dest) {
            return Err(Reason::new("dest_addr", dest, format_args!("{:?}", offer.addr_format)));
        }
        info.dest_addr = info.dest_addr.or(Some(dest));
    }
    if let Some(src) = hints.src_addr
        && !fits(&src)
    {
        return Err(Reason::new("src_addr", src, format_args!("{:?}", offer.addr_format)));
    }
    Ok(())
}

fn caps(offer: &Info, hints: &Hints, api: Version) -> Result<Caps, Reason> {
    let once = if api < Version::new(2, 0) { hints.caps & Caps::ONCE } else { Caps::empty() };
    once_capabilities(once, offer)?;
    let wanted = hints.caps - once;
    subset("caps", wanted - offer.caps, Caps::text)?;
    if wanted.contains(Caps::MULTICAST) && !wanted.intersects(Caps::TRANSFERS - Caps::MULTICAST) {
        let beside = "together with another data transfer capability, such as FI_MSG";
        return Err(Reason::new("caps", "FI_MULTICAST alone", format_args!("it {beside}")));
    }
    // Capabilities of a context count as named, although the manual wants them in `caps`.
    let receiving = hints.rx.as_ref().map_or(Caps::empty(), |rx| rx.caps - Caps::IGNORED_FOR_RECEIVE);
    let transmitting = hints.tx.as_ref().map_or(Caps::empty(), |tx| tx.caps - Caps::IGNORED_FOR_TRANSMIT);
    let named = wanted | receiving | transmitting;
    if named.contains(Caps::SOURCE_ERR) && !named.contains(Caps::SOURCE) {
        let field = if wanted.contains(Caps::SOURCE_ERR) { "caps" } else { "rx_attr->caps" };
        return Err(Reason::new(field, "FI_SOURCE_ERR", "it together with FI_SOURCE"));
    }
    for (field, caps) in [("caps", wanted), ("tx_attr->caps", transmitting), ("rx_attr->caps", receiving)] {
        // Hints without capabilities get FI_RMA with all others.
        if caps.contains(Caps::RMA_PMEM) && !wanted.contains(Caps::RMA) && !wanted.is_empty() {
            return Err(Reason::new(field, "FI_RMA_PMEM", "it together with FI_RMA"));
        }
    }
    let sides = Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
    if wanted.intersects(sides) && !wanted.intersects(Caps::RMA | Caps::ATOMIC) {
        return Err(Reason::new("caps", (wanted & sides).text(), "it together with FI_RMA or FI_ATOMIC"));
    }
    let primary = offer.caps & Caps::PRIMARY;
    let secondary = offer.caps & Caps::SECONDARY;
    let besides = offer.caps & Caps::KNOWN_BESIDES;
    if wanted.is_empty() {
        return Ok(((primary | secondary | besides) - (Caps::ONLY_IF_NAMED - named)) | once);
    }
    let mut out = (wanted | named & Caps::ONLY_IF_NAMED) & primary;
    let directions = Caps::SEND | Caps::RECV;
    if out.intersects(Caps::MSG | Caps::TAGGED) && !out.intersects(directions) {
        out |= directions & primary;
    }
    if out.intersects(Caps::RMA | Caps::ATOMIC) && !out.intersects(sides) {
        out |= sides & primary;
    }
    let mut unnamed = (Caps::SOURCE | Caps::ONLY_IF_NAMED | Caps::KNOWN_BESIDES) - named;
    // FI_RMA_EVENT is about peers' accesses: it means nothing for an endpoint that is no target.
    if !out.intersects(Caps::REMOTE_READ | Caps::REMOTE_WRITE) {
        if wanted.contains(Caps::RMA_EVENT) {
            return Err(Reason::new("caps", "FI_RMA_EVENT", "it together with FI_REMOTE_READ or FI_REMOTE_WRITE"));
        }
        unnamed |= Caps::RMA_EVENT;
    }
    Ok(out | ((secondary | besides) - unnamed) | once)
}

/// Former capabilities need no request today; the provider's limits decide.
fn once_capabilities(asked: Caps, offer: &Info) -> Check {
    for (flag, least, offered, what) in [
        (Caps::INJECT, LEAST_INJECT, offer.tx.inject_size, "messages that are injected"),
        (Caps::REMOTE_CQ_DATA, LEAST_CQ_DATA, offer.domain.cq_data_size, "data of completions"),
    ] {
        if asked.contains(flag) && offered < least {
            let because = format_args!("{what} have at most {offered} bytes");
            return Err(Reason::lacks_because("caps", flag, because));
        }
    }
    Ok(())
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
        _ => return Err(Reason::differs("domain_attr->threading", want.threading, offered.threading)),
    }
    if want.threading != Threading::UNSPEC {
        info.domain.threading = want.threading;
    }
    // Only an explicit request for FI_PROGRESS_AUTO starts a progress thread.
    if want.progress.0 > ProgressModel::CONTROL_UNIFIED.0 {
        return Err(Reason::differs("domain_attr->progress", want.progress, offered.progress));
    }
    if want.progress != ProgressModel::UNSPEC {
        info.domain.progress = want.progress;
        info.domain.control_progress = want.progress;
    }
    // Since 2.0 there is one progress model for everything.
    if api < Version::new(2, 0) && want.control_progress != ProgressModel::UNSPEC {
        if want.control_progress.0 > ProgressModel::CONTROL_UNIFIED.0 {
            let field = "domain_attr->control_progress";
            return Err(Reason::differs(field, want.control_progress, offered.control_progress));
        }
        info.domain.control_progress = want.control_progress;
    }
    if want.resource_mgmt.0 > ResourceMgmt::ENABLED.0 {
        return Err(Reason::differs("domain_attr->resource_mgmt", want.resource_mgmt, offered.resource_mgmt));
    }
    if want.av_type != AvType::UNSPEC && offered.av_type != AvType::UNSPEC && want.av_type != offered.av_type {
        return Err(Reason::differs("domain_attr->av_type", want.av_type, offered.av_type));
    }
    if want.av_type.0 > AvType::TABLE.0 {
        return Err(Reason::differs("domain_attr->av_type", want.av_type, offered.av_type));
    }
    if want.av_type != AvType::UNSPEC {
        info.domain.av_type = want.av_type;
    }
    counts(want, offered, api)?;
    if api >= Version::new(1, 5) {
        subset("domain_attr->caps", want.caps - offered.caps, Caps::text)?;
        let modes = if want.mode.is_empty() { hints.mode } else { want.mode };
        granted("domain_attr->mode", offered.mode, modes)?;
        if want.av_auth_key || want.auth_key.len() != offered.auth_key.len() && !want.auth_key.is_empty() {
            return Err(Reason::new("domain_attr->auth_key_size", want.auth_key.len(), offered.auth_key.len()));
        }
    }
    traffic_class("domain_attr->tclass", want.tclass)?;
    info.domain.tclass = want.tclass;
    Ok(())
}

/// Checks the domain's counts and sizes. Fields newer than the caller's version are ignored.
fn counts(want: &DomainAttr, offered: &DomainAttr, api: Version) -> Check {
    each_at_most([
        ("domain_attr->cq_data_size", want.cq_data_size, offered.cq_data_size),
        ("domain_attr->mr_key_size", want.mr_key_size, offered.mr_key_size),
        ("domain_attr->cq_cnt", want.cq_cnt, offered.cq_cnt),
        ("domain_attr->ep_cnt", want.ep_cnt, offered.ep_cnt),
        ("domain_attr->tx_ctx_cnt", want.tx_ctx_cnt, offered.tx_ctx_cnt),
        ("domain_attr->rx_ctx_cnt", want.rx_ctx_cnt, offered.rx_ctx_cnt),
        ("domain_attr->max_ep_tx_ctx", want.max_ep_tx_ctx, offered.max_ep_tx_ctx),
        ("domain_attr->max_ep_rx_ctx", want.max_ep_rx_ctx, offered.max_ep_rx_ctx),
        ("domain_attr->max_ep_stx_ctx", want.max_ep_stx_ctx, offered.max_ep_stx_ctx),
        ("domain_attr->max_ep_srx_ctx", want.max_ep_srx_ctx, offered.max_ep_srx_ctx),
    ])?;
    if api >= Version::new(1, 5) {
        each_at_most([
            ("domain_attr->cntr_cnt", want.cntr_cnt, offered.cntr_cnt),
            ("domain_attr->mr_iov_limit", want.mr_iov_limit, offered.mr_iov_limit),
            ("domain_attr->max_err_data", want.max_err_data, offered.max_err_data),
            ("domain_attr->mr_cnt", want.mr_cnt, offered.mr_cnt),
        ])?;
    }
    if api >= Version::new(1, 20) {
        at_most("domain_attr->max_ep_auth_key", want.max_ep_auth_key, offered.max_ep_auth_key)?;
    }
    if api >= Version::new(2, 0) && want.max_group_id > offered.max_group_id {
        return Err(Reason::new("domain_attr->max_group_id", want.max_group_id, offered.max_group_id));
    }
    for (field, wanted, offered) in [
        ("domain_attr->max_cntr_value", want.max_cntr_value, offered.max_cntr_value),
        ("domain_attr->max_err_cntr_value", want.max_err_cntr_value, offered.max_err_cntr_value),
    ] {
        if api >= Version::new(2, 5) && wanted > offered {
            return Err(Reason::new(field, wanted, offered));
        }
    }
    Ok(())
}

/// Refuses an unknown traffic class.
fn traffic_class(field: &'static str, class: TrafficClass) -> Check {
    if class.is_known() {
        Ok(())
    } else {
        Err(Reason::new(field, format_args!("{class:?}"), "the labels FI_TC_* and code points from 0 to 63"))
    }
}

/// A domain has the primary capabilities that the hints name, or all if they name none.
fn domain_caps(info: &mut Info, hints: &Hints) {
    let named = hints.domain.as_ref().map_or(Caps::empty(), |domain| domain.caps);
    if !(hints.caps | named).is_empty() {
        info.domain.caps -= Caps::PRIMARY - (hints.caps | named);
    }
}

/// The hint is a permission: we may require any bit in it, and require as few as possible.
fn mr_mode(info: &mut Info, hints: &Hints, offer: &Info, api: Version) -> Check {
    const FIELD: &str = "domain_attr->mr_mode";
    let given = hints.domain.as_ref().map(|domain| domain.mr_mode);
    let required = offer.domain.mr_mode - (MrMode::BASIC | MrMode::SCALABLE);
    let wanted = given.unwrap_or(MrMode::empty());
    let alone = wanted == MrMode::BASIC || wanted == MrMode::SCALABLE;
    info.domain.mr_mode = if alone {
        wanted
    } else if wanted.intersects(MrMode::BASIC | MrMode::SCALABLE) {
        return Err(Reason::new(FIELD, wanted.text(), "FI_MR_BASIC alone, FI_MR_SCALABLE alone, or neither"));
    } else if api < Version::new(1, 5) {
        // Version 1.5 introduced the other modes. Some programs of that time ask for all of them,
        // whatever their version.
        let basic = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
        if !wanted.is_empty() && !wanted.contains(basic) {
            return Err(Reason::new(FIELD, wanted.text(), "FI_MR_BASIC or FI_MR_SCALABLE before version 1.5"));
        }
        MrMode::BASIC
    } else {
        let missing = required - wanted;
        if given.is_some() && !missing.is_empty() {
            return Err(Reason::requires(FIELD, missing.text()));
        }
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

fn endpoint(info: &mut Info, want: &EpAttr, hints: &Hints, offer: &Info, api: Version) -> Check {
    let offered = &offer.ep;
    if want.protocol.0 != 0 && want.protocol != offered.protocol {
        return Err(Reason::differs("ep_attr->protocol", want.protocol, offered.protocol));
    }
    if want.protocol_version > offered.protocol_version {
        return Err(Reason::new("ep_attr->protocol_version", want.protocol_version, offered.protocol_version));
    }
    at_most("ep_attr->max_msg_size", want.max_msg_size, offered.max_msg_size)?;
    let domain = &offer.domain;
    contexts("ep_attr->tx_ctx_cnt", want.tx_ctx_cnt, domain.max_ep_tx_ctx, domain.max_ep_stx_ctx)?;
    contexts("ep_attr->rx_ctx_cnt", want.rx_ctx_cnt, domain.max_ep_rx_ctx, domain.max_ep_srx_ctx)?;
    each_at_most([
        ("ep_attr->msg_prefix_size", want.msg_prefix_size, offered.msg_prefix_size),
        ("ep_attr->max_order_raw_size", want.max_order_raw_size, offered.max_order_raw_size),
        ("ep_attr->max_order_war_size", want.max_order_war_size, offered.max_order_war_size),
        ("ep_attr->max_order_waw_size", want.max_order_waw_size, offered.max_order_waw_size),
    ])?;
    if !want.auth_key.is_empty() && want.auth_key.len() != offered.auth_key.len() {
        return Err(Reason::new("ep_attr->auth_key_size", want.auth_key.len(), offered.auth_key.len()));
    }
    // Hints that name capabilities without FI_TAGGED may have any tag format.
    if hints.caps.is_empty() || hints.caps.contains(Caps::TAGGED) {
        if want.mem_tag_format.leading_zeros() < offered.mem_tag_format.leading_zeros() {
            let show = |format: u64| format!("{format:#018x}");
            return Err(Reason::new(
                "ep_attr->mem_tag_format",
                show(want.mem_tag_format),
                show(offered.mem_tag_format),
            ));
        }
        info.ep.mem_tag_format = tag_format(want.mem_tag_format, offered.mem_tag_format, api);
    }
    if want.tx_ctx_cnt != 0 {
        info.ep.tx_ctx_cnt = want.tx_ctx_cnt;
    }
    if want.rx_ctx_cnt != 0 {
        info.ep.rx_ctx_cnt = want.rx_ctx_cnt;
    }
    Ok(())
}

/// The tag format that satisfies the requested one: each field is at least as wide. A provider
/// offers one-bit fields; wider fields come from the hint, whose first field gets all bits above.
fn tag_format(want: u64, offered: u64, api: Version) -> u64 {
    /// Since 2.0, smaller numbers name formats and do not divide the tag.
    const FIELDS: u64 = 1 << 16;
    let above = !u64::MAX.checked_shr(want.leading_zeros()).unwrap_or(0);
    // A set bit marks two neighboring tag bits in one field.
    let wide = !(want ^ (want >> 1)) & (!above >> 1);
    if wide == 0 || (api >= Version::new(2, 0) && want < FIELDS) {
        return offered;
    }
    want | (above & (u64::MAX >> offered.leading_zeros()))
}

fn receive(info: &mut Info, want: &RxAttr, offer: &Info, api: Version) -> Check {
    let offered = &offer.rx;
    let beside = Caps::IGNORED_FOR_RECEIVE | (info.caps & Caps::ONCE);
    subset("rx_attr->caps", want.caps - beside - offered.caps, Caps::text)?;
    granted("rx_attr->mode", offered.mode, if want.mode.is_empty() { info.mode } else { want.mode })?;
    subset("rx_attr->op_flags", want.op_flags - offered.op_flags, OpFlags::text)?;
    subset("rx_attr->msg_order", want.msg_order - offered.msg_order, MsgOrder::text)?;
    if want.comp_order != 0 {
        return Err(Reason::new("rx_attr->comp_order", format!("{:#x}", want.comp_order), 0));
    }
    // Removed in 2.0. For callers of 1.x it is a hint that the provider may adjust: one of message
    // streams buffers this much for every peer anyway.
    let buffers = api < Version::new(2, 0) && !offer.tx.msg_order.is_empty();
    if !buffers {
        at_most("rx_attr->total_buffered_recv", want.total_buffered_recv, 0)?;
    }
    info.rx.total_buffered_recv = want.total_buffered_recv.min(EARLY_BYTES);
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
    let beside = Caps::IGNORED_FOR_TRANSMIT | (info.caps & Caps::ONCE);
    subset("tx_attr->caps", want.caps - beside - offered.caps, Caps::text)?;
    granted("tx_attr->mode", offered.mode, if want.mode.is_empty() { info.mode } else { want.mode })?;
    subset("tx_attr->op_flags", want.op_flags - offered.op_flags, OpFlags::text)?;
    subset("tx_attr->msg_order", want.msg_order - offered.msg_order, MsgOrder::text)?;
    if want.comp_order != 0 {
        return Err(Reason::new("tx_attr->comp_order", format!("{:#x}", want.comp_order), 0));
    }
    each_at_most([
        ("tx_attr->inject_size", want.inject_size, offered.inject_size),
        ("tx_attr->size", want.size, offered.size),
        ("tx_attr->iov_limit", want.iov_limit, offered.iov_limit),
        ("tx_attr->rma_iov_limit", want.rma_iov_limit, offered.rma_iov_limit),
    ])?;
    traffic_class("tx_attr->tclass", want.tclass)?;
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
mod tests;
