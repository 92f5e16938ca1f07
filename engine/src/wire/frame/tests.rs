//! Frames survive the wire, and any bytes give a frame or a violation.

use super::*;
use proptest::prelude::*;

fn info() -> impl Strategy<Value = MessageInfo> {
    let ack = prop_oneof![
        Just((AckMode::No, false)),
        Just((AckMode::Arrival, false)),
        (Just(AckMode::Match), any::<bool>()),
        (Just(AckMode::Delivery), any::<bool>())
    ];
    let parts = (any::<Option<u64>>(), any::<Option<u64>>(), ack, any::<bool>());
    parts.prop_map(|(tag, data, (ack, fenced), group)| {
        let group = group && tag.is_some() && data.is_some() && ack == AckMode::No;
        MessageInfo { tag, data, ack, fenced, group }
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (any::<u32>(), info()).prop_map(|(id, info)| Frame::Eager { id, info }),
        (any::<u32>(), any::<u64>(), info()).prop_map(|(id, len, info)| Frame::Rts { id, len, info }),
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(id, token, len)| Frame::Cts { id, token, len }),
        any::<u32>().prop_map(|token| Frame::Data { token }),
        any::<u64>().prop_map(|bytes| Frame::Credit { bytes }),
        any::<u32>().prop_map(|id| Frame::Ack { id }),
        Just(Frame::Bye),
        any::<u64>().prop_map(|bytes| Frame::Blocked { bytes }),
        any::<u32>().prop_map(|count| Frame::Arrived { count }),
        one_sided(),
    ]
}

fn place() -> impl Strategy<Value = RemoteAddr> {
    (any::<u64>(), any::<u64>()).prop_map(|(key, addr)| RemoteAddr { key, addr })
}

fn action() -> impl Strategy<Value = Action> {
    use ofi_core::atomic::{AtomicKind, AtomicOp, Datatype};
    let kinds = proptest::sample::select(vec![AtomicKind::Base, AtomicKind::Fetch, AtomicKind::Compare]);
    let all = (kinds, proptest::sample::select(&AtomicOp::ALL), proptest::sample::select(&Datatype::ALL));
    all.prop_map(|(kind, op, datatype)| Action { kind, op, datatype })
        .prop_filter("invalid", |action| action.op.is_valid(action.kind, action.datatype))
}

fn one_sided() -> impl Strategy<Value = Frame> {
    let data = |data: Option<u64>, last: bool| data.filter(|_| last);
    prop_oneof![
        (any::<u32>(), place(), any::<u64>(), any::<bool>(), any::<bool>(), any::<Option<u64>>(), any::<u16>())
            .prop_map(move |(id, place, more, last, commit, value, performed)| {
                let more = if last { 0 } else { more };
                Frame::Write { id, place, more, last, commit, data: data(value, last), performed }
            }),
        (any::<u32>(), place(), any::<u64>(), any::<bool>()).prop_map(|(id, place, len, last)| Frame::Read {
            id,
            place,
            len,
            last
        }),
        (any::<u32>(), place(), action(), any::<u64>(), any::<bool>(), any::<Option<u64>>()).prop_map(
            move |(id, place, action, len, last, value)| {
                let len = (action.values() == 0).then_some(len);
                Frame::Atomic { id, place, action, len, last, data: data(value, last) }
            }
        ),
        (any::<u32>(), any::<bool>()).prop_map(|(id, last)| Frame::Response { id, last }),
        any::<u32>().prop_map(|count| Frame::Performed { count }),
        (any::<u32>(), any::<bool>(), 1u16..=7).prop_map(|(id, last, why)| Frame::Refused {
            id,
            last,
            why: Refusal::decode(why).unwrap()
        }),
    ]
}

proptest! {
    #[test]
    fn frames_survive_the_wire(frame in frame()) {
        prop_assert_eq!(Frame::parse(&frame.encode()), Ok(frame));
    }

    #[test]
    fn only_whole_writes_with_nothing_else_are_plain(frame in frame(), at in 0usize..40, byte in any::<u8>()) {
        let plain = |frame| match frame {
            Frame::Write { place, more: 0, last: true, commit: false, data: None, performed, .. } => {
                Some((place, performed))
            }
            _ => None,
        };
        let mut bytes = frame.encode().to_vec();
        prop_assert_eq!(Frame::plain_write(&bytes), plain(frame));
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        prop_assert_eq!(Frame::plain_write(&bytes), Frame::parse(&bytes).ok().and_then(plain));
    }

    #[test]
    fn any_bytes_give_a_frame_or_a_violation(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(frame) = Frame::parse(&bytes) {
            prop_assert_eq!(frame.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn near_frames_give_a_frame_or_a_violation(
        frame in frame(), at in 0usize..40, byte in any::<u8>(), cut in 0usize..40,
    ) {
        let mut bytes = frame.encode().to_vec();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(cut);
        if let Ok(frame) = Frame::parse(&bytes) {
            prop_assert_eq!(frame.encode().to_vec(), bytes);
        }
    }
}

#[test]
fn only_plain_messages_are_plain() {
    let plain = MessageInfo { tag: Some(7), data: None, ack: AckMode::No, fenced: false, group: false };
    let plain_of = |info| Frame::plain(&Frame::Eager { id: 3, info }.encode());
    assert_eq!(plain_of(plain), Some((3, 7)));
    assert_eq!(plain_of(MessageInfo { tag: None, data: Some(7), ..plain }), None);
    assert_eq!(plain_of(MessageInfo { data: Some(7), ..plain }), None);
    assert_eq!(plain_of(MessageInfo { ack: AckMode::Match, ..plain }), None);
    assert_eq!(Frame::plain(&Frame::Rts { id: 0, len: 7, info: MessageInfo { tag: None, ..plain } }.encode()), None);
}

#[test]
fn a_small_tagged_message_has_a_header_of_sixteen_bytes() {
    let info = MessageInfo { tag: Some(1), data: None, ack: AckMode::No, fenced: false, group: false };
    assert_eq!(Frame::Eager { id: 0, info }.encode().len(), 16);
}
