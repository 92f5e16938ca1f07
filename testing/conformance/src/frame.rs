//! Frames to send: random headers and payloads that are cheap to make and to compare.

use core::ops::Range;
use fastrand::Rng;
use ofi_engine::wire::frame::{AckMode, Frame, Header, MAX_PAYLOAD, MOST_EAGER, MessageInfo};
use ofi_engine::wire::one_sided::RemoteAddr;
use std::sync::LazyLock;

/// Payloads begin at any of this many offsets in [`BLOCK`].
const PLACES: usize = 1 << 16;

/// Random bytes. Every payload is a part of this block.
static BLOCK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut block = vec![0; MAX_PAYLOAD + PLACES];
    Rng::with_seed(0xb10c).fill(&mut block);
    block
});

/// A frame that a script sends.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) header: Header,
    /// The payload as a part of [`BLOCK`], if the frame is submitted with one.
    payload: Option<Range<usize>>,
}

impl Planned {
    /// A frame with a payload of `len` bytes. `number` makes the header unique on its link.
    pub(crate) fn with_payload(number: u32, len: usize, rng: &mut Rng) -> Self {
        let info = MessageInfo {
            tag: rng.bool().then(|| rng.u64(..)),
            data: rng.bool().then(|| rng.u64(..)),
            ack: AckMode::No,
            fenced: false,
            group: false,
        };
        let place = RemoteAddr { key: rng.u64(..), addr: rng.u64(..) };
        let write = Frame::Write { id: number, place, more: 0, last: true, commit: false, data: None, performed: 0 };
        let frame = match rng.u8(0..8) {
            // Longer frames need not keep their order on every transport.
            1 if len <= MOST_EAGER => Frame::Rts { id: number, len: len as u64, info },
            2 if len <= MOST_EAGER => write,
            3 if len <= MOST_EAGER => Frame::Response { id: number, last: true },
            4.. if len <= MOST_EAGER => Frame::Eager { id: number, info },
            _ => Frame::Data { token: number },
        };
        let at = rng.usize(..PLACES);
        Self { header: frame.encode(), payload: Some(at..at + len) }
    }

    /// A frame without a payload.
    pub(crate) fn control(number: u32, rng: &mut Rng) -> Self {
        let data = rng.bool().then_some(7);
        let info = MessageInfo { tag: Some(rng.u64(..)), data, ack: AckMode::Match, fenced: true, group: false };
        let frame = match rng.u8(0..6) {
            0 => Frame::Ack { id: number },
            1 => Frame::Credit { bytes: u64::from(number) },
            2 => Frame::Cts { id: number, token: rng.u32(..), len: rng.u64(..) },
            3 => Frame::Rts { id: number, len: rng.u64(..), info },
            4 => Frame::Blocked { bytes: u64::from(number) },
            _ => Frame::Arrived { count: number },
        };
        Self { header: frame.encode(), payload: None }
    }

    /// A frame of random size, with at most `most` bytes of payload. `large` of a thousand are data
    /// frames of up to [`MAX_PAYLOAD`].
    pub(crate) fn random(number: u32, most: usize, large: u16, rng: &mut Rng) -> Self {
        let len = match rng.u16(0..1000) {
            least if least < large && rng.bool() => MAX_PAYLOAD,
            least if least < large => rng.usize(MOST_EAGER..MAX_PAYLOAD),
            0..250 => return Self::control(number, rng),
            250..700 => rng.usize(0..200),
            700..900 => rng.usize(0..5000),
            900..990 => rng.usize(0..60_000),
            _ => rng.usize(0..=MOST_EAGER),
        };
        let len = if len > most { rng.usize(0..=most) } else { len };
        Self::with_payload(number, len, rng)
    }

    pub(crate) fn payload(&self) -> Option<&'static [u8]> {
        let range = self.payload.clone()?;
        Some(&BLOCK[range])
    }

    /// The payload's bytes; none without a payload.
    pub(crate) fn bytes(&self) -> &'static [u8] {
        self.payload().unwrap_or_default()
    }

    /// Whether [`Transport::offer`] may take it.
    ///
    /// [`Transport::offer`]: ofi_engine::transport::Transport::offer
    pub(crate) fn may_be_offered(&self) -> bool {
        !self.bytes().is_empty() && matches!(Frame::parse(&self.header), Ok(Frame::Rts { .. }))
    }

    /// Whether it need not keep its order with others.
    pub(crate) fn is_unordered(&self) -> bool {
        Frame::is_unordered(&self.header, self.bytes().len())
    }
}
