//! The protocol between two transports: what a segment is, and who may send one.
//! Little-endian, version 4. A segment lies in one slot of the receiver:
//!
//! ```text
//! kind u8 · header length u8 · returned credits u16 · length u32 · bytes
//! Credits   length 0
//! Hello, Answer   length: of the hello
//! Frame     length: of the payload; bytes: the header, and as much of the payload as fits
//! More      length 0; bytes: the next part of the payload
//! Failed    length 0: the rest of the payload cannot be read
//! Bye       length 0: nothing follows
//! Offer     length 24; bytes: the header of a message's request, then what the receiver's device
//!           may read: number u32 · key u32 · address u64 · length u64
//! Remote    as an offer, with the header of any other frame, whose payload the receiver's device
//!           reads
//! Outcome   length 5; bytes: the number of either u32 · 1 if the payload was read, 0 if not u8;
//!           sent so that the device ends the window of that key
//!
//! private data of a request and its answer: "OFIV" · version u16 · slots u16 · bytes of a slot u32
//! private data of a refusal: "OFIV" · version u16
//! ```

use crate::device::{Place, RECEIVES};
use ofi_engine::wire::frame::{MAX_HEADER, MAX_PAYLOAD};
use ofi_engine::wire::hello;

/// Bytes before those of the kind.
pub(crate) const PREFIX: usize = 8;
/// The version of the protocol.
const VERSION: u16 = 4;
const MAGIC: [u8; 4] = *b"OFIV";
/// The fewest slots of a peer: with half of them unreported, a segment that returns credits must
/// not call for another one.
const LEAST_SLOTS: u16 = 4;
/// The smallest slot of a peer: a hello must fit.
const LEAST_SLOT: usize = 1024;
const _: () = assert!(RECEIVES >= LEAST_SLOTS);
const _: () = assert!(PREFIX + hello::MAX_LEN <= LEAST_SLOT && PREFIX + MAX_HEADER + Offer::LEN <= LEAST_SLOT);

/// The longest payload of an offer.
pub(crate) const MAX_OFFER: usize = 1 << 30;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Credits,
    Hello,
    Answer,
    Frame,
    More,
    Failed,
    Bye,
    Offer,
    Outcome,
    Remote,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Credits,
        Self::Hello,
        Self::Answer,
        Self::Frame,
        Self::More,
        Self::Failed,
        Self::Bye,
        Self::Offer,
        Self::Outcome,
        Self::Remote,
    ];

    fn parse(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A segment that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) kind: Kind,
    pub(crate) credits: u16,
    /// Of a frame.
    pub(crate) header: &'a [u8],
    /// Of the whole payload of a frame.
    pub(crate) len: usize,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses any bytes; an error is what is wrong with them.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let Some((&[kind, header, c0, c1, l0, l1, l2, l3], rest)) = bytes.split_first_chunk::<PREFIX>() else {
            return Err("a segment is shorter than its prefix");
        };
        let kind = Kind::parse(kind).ok_or("a segment of an unknown kind")?;
        let credits = u16::from_le_bytes([c0, c1]);
        let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        let header = usize::from(header);
        if header != 0 && !matches!(kind, Kind::Frame | Kind::Offer | Kind::Remote) || header > MAX_HEADER {
            return Err("a header that is too long");
        }
        let Some((header, bytes)) = rest.split_at_checked(header) else {
            return Err("a segment is shorter than its header");
        };
        let fits = match kind {
            Kind::Credits | Kind::Failed | Kind::Bye => len == 0 && bytes.is_empty(),
            Kind::Hello | Kind::Answer => len == bytes.len() && len <= hello::MAX_LEN,
            Kind::Frame => bytes.len() <= len && len <= MAX_PAYLOAD,
            Kind::More => len == 0 && !bytes.is_empty(),
            Kind::Offer | Kind::Remote => len == bytes.len() && len == Offer::LEN,
            Kind::Outcome => len == bytes.len() && len == Outcome::LEN,
        };
        if fits { Ok(Self { kind, credits, header, len, bytes }) } else { Err("a segment of the wrong length") }
    }

    /// Writes everything but the bytes behind the header; returns the length. `out` is a slot.
    pub(crate) fn write_prefix(kind: Kind, header: &[u8], credits: u16, len: usize, out: &mut [u8]) -> usize {
        out[0] = kind as u8;
        out[1] = u8::try_from(header.len()).unwrap_or(u8::MAX);
        out[2..4].copy_from_slice(&credits.to_le_bytes());
        out[4..PREFIX].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        out[PREFIX..PREFIX + header.len()].copy_from_slice(header);
        PREFIX + header.len()
    }
}

/// A payload that the receiver's device may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The sender's number for it.
    pub(crate) number: u32,
    pub(crate) place: Place,
    /// Of the payload, in bytes.
    pub(crate) len: usize,
}

impl Offer {
    const LEN: usize = 24;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let Self { number, place: Place { address, key }, len } = self;
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&number.to_le_bytes());
        out[4..8].copy_from_slice(&key.to_le_bytes());
        out[8..16].copy_from_slice(&address.to_le_bytes());
        out[16..].copy_from_slice(&(len as u64).to_le_bytes());
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        const SHORT: &str = "an offer of the wrong length";
        let (number, rest) = bytes.split_first_chunk().ok_or(SHORT)?;
        let (key, rest) = rest.split_first_chunk().ok_or(SHORT)?;
        let (address, rest) = rest.split_first_chunk().ok_or(SHORT)?;
        let len = u64::from_le_bytes(*rest.first_chunk().ok_or(SHORT)?);
        let len = usize::try_from(len).ok().filter(|len| (1..=MAX_OFFER).contains(len));
        Ok(Self {
            number: u32::from_le_bytes(*number),
            place: Place { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key) },
            len: len.ok_or("an offer of no bytes, or of too many")?,
        })
    }
}

/// What became of an offer, or of a frame whose payload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The number of the payload.
    pub(crate) number: u32,
    /// The payload was read; otherwise, for an offer alone, the receiver asks for it as for any
    /// other.
    pub(crate) was_read: bool,
}

impl Outcome {
    const LEN: usize = 5;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [a, b, c, d, u8::from(self.was_read)]
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        match *bytes {
            [a, b, c, d, was_read @ (0 | 1)] => {
                Ok(Self { number: u32::from_le_bytes([a, b, c, d]), was_read: was_read == 1 })
            }
            _ => Err("an outcome that says neither yes nor no"),
        }
    }
}

/// What a peer grants at the start: its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) slots: u16,
    pub(crate) slot: usize,
}

impl Grant {
    pub(crate) fn encode(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&self.slots.to_le_bytes());
        out[8..].copy_from_slice(&u32::try_from(self.slot).unwrap_or(u32::MAX).to_le_bytes());
        out
    }

    /// Parses private data, behind which the connection manager may put zeros.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, &'static str> {
        version(data)?;
        let Some(&[s0, s1, b0, b1, b2, b3]) = data.get(6..12).and_then(|data| data.first_chunk()) else {
            return Err("the peer grants no slots");
        };
        let slots = u16::from_le_bytes([s0, s1]);
        let slot = usize::try_from(u32::from_le_bytes([b0, b1, b2, b3])).unwrap_or(usize::MAX);
        if slots < LEAST_SLOTS || slot < LEAST_SLOT {
            Err("the peer grants too little")
        } else {
            Ok(Self { slots, slot })
        }
    }
}

/// Checks that a peer speaks this protocol.
pub(crate) fn version(data: &[u8]) -> Result<(), &'static str> {
    match data.first_chunk() {
        Some(&[a, b, c, d, v0, v1]) if [a, b, c, d] == MAGIC => {
            let ours = u16::from_le_bytes([v0, v1]) == VERSION;
            if ours { Ok(()) } else { Err("the peer speaks another version of the protocol") }
        }
        _ => Err("the peer speaks another protocol"),
    }
}

/// Who may send: each segment takes a posted slot of its receiver. Invariant: a side never uses its
/// last credit for anything but credits, so both sides together never run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    /// The peer's slots that this side may fill.
    may_send: u16,
    /// All of them.
    granted: u16,
    /// The peer's segments that are handled, which the peer does not know.
    unreturned: u16,
    /// How many segments the peer may send.
    peer_may_send: u16,
    /// This side's slots.
    own: u16,
}

impl Credits {
    pub(crate) const fn new(own: u16) -> Self {
        Self { may_send: 0, granted: 0, unreturned: 0, peer_may_send: own, own }
    }

    /// The peer's first grant.
    pub(crate) const fn grant(&mut self, slots: u16) {
        (self.may_send, self.granted) = (slots, slots);
    }

    pub(crate) const fn can_send(&self) -> bool {
        self.may_send >= 2
    }

    /// Whether it is time for a segment that carries credits alone.
    pub(crate) const fn is_return_due(&self) -> bool {
        self.unreturned >= self.own.div_ceil(2) && self.may_send >= 1
    }

    /// A segment leaves: how many credits it returns.
    pub(crate) const fn take(&mut self) -> u16 {
        self.may_send = self.may_send.saturating_sub(1);
        let returned = self.unreturned;
        self.unreturned = 0;
        self.peer_may_send += returned;
        returned
    }

    /// A segment of the peer has arrived, which returns credits.
    ///
    /// # Errors
    /// The peer had no credit for it, or returns more than it owes.
    pub(crate) fn arrived(&mut self, credits: u16) -> Result<(), &'static str> {
        self.peer_may_send = self.peer_may_send.checked_sub(1).ok_or("the peer sends without credit")?;
        let total = self.may_send.checked_add(credits).filter(|total| *total <= self.granted);
        self.may_send = total.ok_or("the peer returns more credits than it was owed")?;
        Ok(())
    }

    /// A segment that has arrived is handled, so the peer may send another one.
    pub(crate) const fn handled(&mut self) {
        self.unreturned += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(segment) = Segment::parse(&bytes) {
                prop_assert!(segment.bytes.len() <= segment.len || segment.kind == Kind::More);
                prop_assert!(segment.len <= MAX_PAYLOAD && segment.header.len() <= MAX_HEADER);
            }
            let _ = Grant::parse(&bytes);
            if let Ok(offer) = Offer::parse(&bytes) {
                prop_assert!(bytes.len() >= Offer::LEN && (1..=MAX_OFFER).contains(&offer.len));
            }
            if let Ok(outcome) = Outcome::parse(&bytes) {
                prop_assert_eq!(&outcome.encode()[..], &bytes[..]);
            }
        }

        #[test]
        fn an_offer_is_read_as_it_was_written(number: u32, key: u32, address: u64, len in 1..=MAX_OFFER, was_read: bool) {
            let offer = Offer { number, place: Place { address, key }, len };
            prop_assert_eq!(Offer::parse(&offer.encode()), Ok(offer));
            let outcome = Outcome { number, was_read };
            prop_assert_eq!(Outcome::parse(&outcome.encode()), Ok(outcome));
        }

        #[test]
        fn a_segment_is_read_as_it_was_written(
            header in prop::collection::vec(any::<u8>(), 0..MAX_HEADER),
            payload in prop::collection::vec(any::<u8>(), 0..200),
            credits: u16,
            more in 0..1000usize,
        ) {
            let mut slot = [0xff; 512];
            let len = payload.len() + more;
            let at = Segment::write_prefix(Kind::Frame, &header, credits, len, &mut slot);
            slot[at..at + payload.len()].copy_from_slice(&payload);
            let expected = Segment { kind: Kind::Frame, credits, header: &header, len, bytes: &payload };
            prop_assert_eq!(Segment::parse(&slot[..at + payload.len()]), Ok(expected));
        }

        /// Two sides that send whenever they may, over wires that delay: no slot is ever missing,
        /// and neither side is blocked for good.
        #[test]
        fn credits_never_run_out(steps in prop::collection::vec(0..4u8, 0..600), slots in LEAST_SLOTS..9, others in LEAST_SLOTS..9) {
            let mut sides = [Credits::new(slots), Credits::new(others)];
            sides[0].grant(others);
            sides[1].grant(slots);
            let own = [slots, others];
            let mut wires: [VecDeque<u16>; 2] = Default::default();
            let send = |sides: &mut [Credits; 2], wires: &mut [VecDeque<u16>; 2], side: usize, data: bool| {
                let may = if data { sides[side].can_send() } else { sides[side].is_return_due() };
                if may {
                    let credits = sides[side].take();
                    wires[side].push_back(credits);
                    assert!(wires[side].len() <= usize::from(own[1 - side]), "a segment without a slot");
                }
                may
            };
            let receive = |sides: &mut [Credits; 2], wires: &mut [VecDeque<u16>; 2], side: usize| {
                if let Some(credits) = wires[1 - side].pop_front() {
                    sides[side].arrived(credits).unwrap();
                    sides[side].handled();
                }
            };
            for step in steps {
                let side = usize::from(step & 1);
                if step & 2 == 0 {
                    send(&mut sides, &mut wires, side, true);
                } else {
                    receive(&mut sides, &mut wires, side);
                    send(&mut sides, &mut wires, side, false);
                }
            }
            for side in [0, 1] {
                let mut sent = 0;
                for _ in 0..100 {
                    sent += u32::from(send(&mut sides, &mut wires, side, true));
                    for reader in [1 - side, side] {
                        while !wires[1 - reader].is_empty() {
                            receive(&mut sides, &mut wires, reader);
                            send(&mut sides, &mut wires, reader, false);
                        }
                    }
                }
                prop_assert!(sent > 20, "side {} is blocked: {:?}", side, sides);
            }
        }
    }

    #[test]
    fn a_peer_that_sends_without_credit_is_refused() {
        let mut credits = Credits::new(4);
        credits.grant(4);
        for _ in 0..4 {
            assert_eq!(credits.arrived(0), Ok(()));
        }
        assert!(credits.arrived(0).is_err());
        credits.handled();
        assert!(credits.arrived(0).is_err(), "it does not know of the credit");
        assert_eq!(credits.take(), 1);
        assert_eq!(credits.arrived(0), Ok(()), "it has the credit back");
        assert!(credits.arrived(0).is_err());
    }

    #[test]
    fn peers_of_other_protocols_are_refused() {
        let grant = Grant { slots: 32, slot: 8192 };
        let data = grant.encode();
        assert_eq!(Grant::parse(&data), Ok(grant));
        assert_eq!(Grant::parse(&[&data[..], &[0; 44]].concat()), Ok(grant));
        for (change, at) in [(b'x', 0), (9, 4), (0, 6)] {
            let mut data = data;
            data[at] = change;
            assert!(Grant::parse(&data).is_err(), "{at}");
        }
        assert!(Grant::parse(&data[..11]).is_err() && Grant::parse(&[]).is_err());
    }

    #[test]
    fn offers_of_nothing_and_of_too_much_are_refused() {
        for len in [0, MAX_OFFER + 1, usize::MAX] {
            let offer = Offer { number: 1, place: Place { address: 4096, key: 7 }, len };
            assert!(Offer::parse(&offer.encode()).is_err(), "{len}");
        }
        assert!(Outcome::parse(&[0, 0, 0, 0, 2]).is_err());
    }

    #[test]
    fn more_credits_than_slots_are_refused() {
        let mut credits = Credits::new(4);
        credits.grant(4);
        assert_eq!(credits.take(), 0);
        credits.arrived(1).unwrap();
        assert!(credits.arrived(1).is_err());
        assert!(credits.arrived(u16::MAX).is_err());
    }
}
