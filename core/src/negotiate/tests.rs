use super::*;
use crate::caps::Mode;
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
fn a_refusal_says_what_is_missing_and_nothing_else() {
    let ask = |change: fn(&mut Hints)| {
        let mut hints = Hints { tx: Some(TxAttr::default()), domain: Some(DomainAttr::default()), ..Hints::default() };
        change(&mut hints);
        let required = Info { mode: Mode::CONTEXT | Mode::ASYNC_IOV, ..offer() };
        let offer = if hints.mode.is_empty() { offer() } else { required };
        negotiate(&offer, &hints, Version::API).expect_err("it is refused").to_string()
    };
    assert_eq!(
        ask(|h| h.caps = Caps::MSG | Caps::RMA | Caps::EXACT_DIRECTED_RECV),
        "caps: lacks FI_RMA|FI_EXACT_DIRECTED_RECV"
    );
    assert_eq!(ask(|h| h.mode = Mode::ASYNC_IOV), "mode: requires FI_CONTEXT, which the hints do not grant");
    let flags = |h: &mut Hints| h.tx.as_mut().unwrap().op_flags = OpFlags::COMPLETION | OpFlags::COMMIT_COMPLETE;
    assert_eq!(ask(flags), "tx_attr->op_flags: lacks FI_COMMIT_COMPLETE");
    assert_eq!(
        ask(|h| h.tx.as_mut().unwrap().msg_order = MsgOrder::SAS | MsgOrder::WAR),
        "tx_attr->msg_order: lacks FI_ORDER_WAR"
    );
    assert_eq!(ask(|h| h.domain.as_mut().unwrap().cq_cnt = 1), "domain_attr->cq_cnt: asked for 1, offered 0");
    let class = |h: &mut Hints| h.tx.as_mut().unwrap().tclass = TrafficClass(0x300);
    assert!(ask(class).starts_with("tx_attr->tclass: asked for the unknown class 0x300"));
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
fn an_endpoint_has_one_context_unless_several_are_wanted() {
    let mut offer = offer();
    (offer.domain.max_ep_tx_ctx, offer.domain.max_ep_rx_ctx) = (256, 256);
    offer.caps |= Caps::NAMED_RX_CTX;
    let most = |hints: &Hints| {
        let domain = negotiate(&offer, hints, Version::API).unwrap().domain;
        (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx)
    };
    // Without hints the offers are shown as they are.
    assert_eq!(most(&Hints::default()), (256, 256));
    let plain = Hints { ep: Some(EpAttr::default()), ..Hints::default() };
    assert_eq!(most(&plain), (1, 1));
    // MPICH asks for it, and has one context.
    assert_eq!(most(&Hints { caps: Caps::MSG | Caps::NAMED_RX_CTX, ..plain.clone() }), (1, 1));
    for wanted in [EpAttr { tx_ctx_cnt: 2, ..EpAttr::default() }, EpAttr { rx_ctx_cnt: 2, ..EpAttr::default() }] {
        assert_eq!(most(&Hints { ep: Some(wanted), ..Hints::default() }), (256, 256));
    }
    let domain = DomainAttr { max_ep_rx_ctx: 2, ..DomainAttr::default() };
    assert_eq!(most(&Hints { domain: Some(domain), ..plain }), (256, 256));
}

#[test]
fn source_comes_when_asked_for_or_when_nothing_is() {
    let hints = Hints { caps: Caps::MSG | Caps::SOURCE, ..Hints::default() };
    assert!(negotiate(&offer(), &hints, Version::API).unwrap().caps.contains(Caps::SOURCE));
    assert!(negotiate(&offer(), &Hints::default(), Version::API).unwrap().caps.contains(Caps::SOURCE));
    let other = Hints { caps: Caps::MSG, ..Hints::default() };
    assert!(!negotiate(&offer(), &other, Version::API).unwrap().caps.contains(Caps::SOURCE));
}

#[test]
fn registration_modes_are_permissions() {
    let ask = |bits: u32, api| {
        let domain = DomainAttr { mr_mode: MrMode::from_bits_retain(bits), ..DomainAttr::default() };
        let hints = Hints { domain: Some(domain), ..Hints::default() };
        negotiate(&offer(), &hints, api).ok().map(|info| info.domain.mr_mode.bits())
    };
    for version in [Version::API, Version::new(1, 18), Version::new(1, 5)] {
        assert_eq!(ask(0, version), Some(0));
        assert_eq!(ask(!3, version), Some(0));
        assert_eq!(ask(1, version), Some(1));
        assert_eq!(ask(2, version), Some(2));
        assert_eq!((ask(3, version), ask(5, version), ask(6, version)), (None, None, None));
    }
    // Before 1.5 there were two modes, and no permissions.
    let old = |bits| ask(bits, Version::new(1, 4));
    assert_eq!((old(0), old(1), old(2)), (Some(1), Some(1), Some(2)));
    assert_eq!((old(3), old(4)), (None, None));
    // What permits all that FI_MR_BASIC stands for gets that.
    assert_eq!(old(!3), Some(1));
}

#[test]
fn a_mode_that_a_domain_requires_must_be_in_the_hints() {
    let mut offer = offer();
    offer.domain.mode = Mode::CONTEXT;
    let ask = |mode, of_domain| {
        let domain = Some(DomainAttr { mode: of_domain, ..DomainAttr::default() });
        negotiate(&offer, &Hints { mode, domain, ..Hints::default() }, Version::API).map(|info| info.domain.mode)
    };
    let (none, context, other) = (Mode::empty(), Mode::CONTEXT, Mode::ASYNC_IOV);
    assert_eq!(ask(none, none).unwrap_err().field, "domain_attr->mode");
    // The domain's own hint counts; without one, that of the info.
    assert_eq!(ask(none, context | other), Ok(context));
    assert_eq!(ask(context | other, none), Ok(context));
    assert_eq!(ask(context, other).unwrap_err().field, "domain_attr->mode");
}

#[test]
fn the_threading_that_was_asked_for_comes_back() {
    for level in [Threading::SAFE, Threading::DOMAIN, Threading::COMPLETION, Threading::ENDPOINT] {
        let domain = DomainAttr { threading: level, ..DomainAttr::default() };
        let hints = Hints { domain: Some(domain), ..Hints::default() };
        assert_eq!(negotiate(&offer(), &hints, Version::API).unwrap().domain.threading, level);
    }
}

#[test]
fn fields_of_tags_are_at_least_as_wide_as_asked() {
    let bits = 0xaaaa_aaaa_aaaa_aaaa;
    let of = |want, api| tag_format(want, bits, api);
    // One-bit fields, any number of them.
    for want in [0, 1, bits, bits >> 1, bits >> 7, !bits] {
        assert_eq!(of(want, Version::API), bits, "{want:#x}");
    }
    assert_eq!(of(u64::MAX, Version::API), u64::MAX);
    assert_eq!(of(0xff00_ffff, Version::API), 0xffff_ffff_ff00_ffff);
    assert_eq!(of(0x30ff, Version::new(1, 18)), !0x0f00);
    // Since 2.0 this number names a format.
    assert_eq!(of(2, Version::API), bits);
    assert_eq!(tag_format(0x30ff, 0xaaaa, Version::new(1, 0)), 0xf0ff);
}

#[test]
fn requests_of_former_interfaces_are_granted_to_their_callers_alone() {
    let variable = Caps::EXACT_DIRECTED_RECV;
    let ask = |minor, caps, mode| {
        let hints = Hints { caps, mode, ..Hints::default() };
        negotiate(&offer(), &hints, Version::new(1, minor))
    };
    let info = ask(20, Caps::MSG | variable, Mode::empty()).expect("1.20 has FI_VARIABLE_MSG");
    assert!(info.caps.contains(Caps::MSG | variable) && info.rx.caps.contains(variable));
    assert!(info.is_buffered(Version::new(1, 20)) && !info.is_buffered(Version::new(2, 0)));
    assert_eq!(ask(21, Caps::MSG | variable, Mode::empty()).expect_err("1.21 has not").field, "caps");
    assert_eq!(ask(20, variable, Mode::empty()).expect_err("it has no messages").field, "caps");
    for (minor, mode, granted) in [
        (17, Mode::BUFFERED_RECV, true),
        (22, Mode::BUFFERED_RECV | Mode::CONTEXT, true),
        (6, Mode::BUFFERED_RECV, false),
        (17, Mode::CONTEXT, false),
        (17, Mode::all(), false),
    ] {
        let info = ask(minor, Caps::MSG, mode).expect("modes are permissions");
        assert_eq!(info.mode == Mode::BUFFERED_RECV, granted, "1.{minor}, {mode:?}");
        assert_eq!(info.is_buffered(Version::new(1, minor)), granted);
    }
}

#[test]
fn every_model_of_control_progress_matches_before_2_0() {
    for model in [ProgressModel::AUTO, ProgressModel::MANUAL, ProgressModel::CONTROL_UNIFIED] {
        let wanted = DomainAttr { control_progress: model, ..DomainAttr::default() };
        let hints = Hints { domain: Some(wanted), ..Hints::default() };
        let info = negotiate(&offer(), &hints, Version::new(1, 20)).expect("the model matches");
        assert_eq!(info.domain.control_progress, model);
    }
    let wanted = DomainAttr { control_progress: ProgressModel(4), ..DomainAttr::default() };
    let hints = Hints { domain: Some(wanted), ..Hints::default() };
    assert!(negotiate(&offer(), &hints, Version::new(1, 20)).is_err());
}
