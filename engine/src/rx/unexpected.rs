//! Unexpected messages: those that arrived before a receive that matches them.

use super::match_queue::QueueKind;
use crate::peer::ParticipantId;
use crate::peer::credit::OVERHEAD;
use crate::peer::table::PeerId;
use crate::transport::LinkId;
use crate::wire::frame::{AckMode, MessageInfo};
use arrayvec::ArrayVec;

/// Payload of an unexpected message; short payloads are stored inline.
#[derive(Debug)]
pub(super) enum Kept {
    Short(ArrayVec<u8, 16>),
    Long(Box<[u8]>),
}

impl Kept {
    /// Gives the payload an address that does not change any more.
    pub(super) fn pin(&mut self) -> *const u8 {
        if let Self::Short(bytes) = self {
            *self = Self::Long(bytes.as_slice().into());
        }
        self.bytes().as_ptr()
    }

    #[inline(always)]
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut short = ArrayVec::new();
        if short.try_extend_from_slice(bytes).is_ok() { Self::Short(short) } else { Self::Long(bytes.into()) }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// How much of an unexpected message has arrived.
#[derive(Debug)]
pub(super) enum Body {
    /// All of it.
    Here(Kept),
    /// Its payload is arriving; a receive may have claimed it.
    Coming { claimed: Option<u32> },
    /// Its RTS: the payload waits at the sender.
    Rts { total: u64, preview: Option<Box<Preview>> },
}

/// The first bytes of a message that waits at its sender, if the endpoint has asked for them.
#[derive(Debug)]
pub(super) enum Preview {
    Here(Vec<u8>),
    /// They are arriving; a notice of the message waits for them.
    Coming {
        claimed: Option<u32>,
    },
}

impl Body {
    /// The place for the receive that takes the bytes which are arriving.
    fn claimed_mut(&mut self) -> Option<&mut Option<u32>> {
        match self {
            Self::Coming { claimed } => Some(claimed),
            Self::Rts { preview: Some(preview), .. } => match &mut **preview {
                Preview::Coming { claimed } => Some(claimed),
                Preview::Here(_) => None,
            },
            Self::Here(_) | Self::Rts { preview: None, .. } => None,
        }
    }

    /// A receive takes the message when the bytes that are arriving are here. False if all are.
    #[inline]
    pub(super) fn claim(&mut self, receive: u32) -> bool {
        let place = self.claimed_mut();
        let is_coming = place.is_some();
        if let Some(place) = place {
            *place = Some(receive);
        }
        is_coming
    }

    /// The receive that waits for bytes that are arriving.
    pub(super) fn claimed(&mut self) -> Option<u32> {
        self.claimed_mut().and_then(|claimed| *claimed)
    }
}

/// What holds an unexpected message's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Credit of the link on which it came. `place` is its place in the link's list.
    Link { id: LinkId, place: u32 },
    /// The account: the link is gone.
    Orphan,
}

/// An unexpected message. [`OVERHEAD`] covers what it costs besides its payload.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) body: Body,
    tag: u64,
    data: u64,
    /// The sender's number for it.
    pub(super) id: u32,
    /// Payload bytes that have arrived or are arriving; of an RTS, those of its preview.
    pub(super) len: u32,
    pub(super) peer: PeerId,
    /// Its sequence number on the link.
    pub(super) seq: u32,
    pub(super) origin: Origin,
    /// The endpoint that received it.
    pub(super) participant: ParticipantId,
    ack: AckMode,
    has: u8,
}

/// Bytes of a match queue entry, and bytes that the allocator adds to a payload.
const BESIDE: usize = 24 + 24;
const _: () = assert!((size_of::<Option<Unexpected>>() + BESIDE) as u64 <= OVERHEAD);

/// Where an unexpected message comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) peer: PeerId,
    pub(super) sender: u32,
    pub(super) seq: u32,
    pub(super) participant: ParticipantId,
}

impl Unexpected {
    const HAS_TAG: u8 = 1;
    const HAS_DATA: u8 = 2;
    const FENCED: u8 = 4;
    const GROUP: u8 = 8;
    const OFFERED: u8 = 16;

    pub(super) fn new(body: Body, info: MessageInfo, id: u32, len: u32, from: Source, origin: Origin) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let has = flag(info.tag.is_some(), Self::HAS_TAG)
            | flag(info.data.is_some(), Self::HAS_DATA)
            | flag(info.fenced, Self::FENCED)
            | flag(info.group, Self::GROUP);
        let (tag, data) = (info.tag.unwrap_or(0), info.data.unwrap_or(0));
        let Source { peer, seq, participant, .. } = from;
        Self { body, tag, data, id, len, peer, seq, origin, participant, ack: info.ack, has }
    }

    pub(super) fn info(&self) -> MessageInfo {
        MessageInfo {
            tag: (self.has & Self::HAS_TAG != 0).then_some(self.tag),
            data: (self.has & Self::HAS_DATA != 0).then_some(self.data),
            ack: self.ack,
            fenced: self.has & Self::FENCED != 0,
            group: self.has & Self::GROUP != 0,
        }
    }

    /// Takes note that its RTS came as an offer, which the transport may still have.
    pub(super) const fn note_offer(&mut self) {
        self.has |= Self::OFFERED;
    }

    /// Whether its RTS came as an offer.
    pub(super) const fn is_offered(&self) -> bool {
        self.has & Self::OFFERED != 0
    }

    /// The match queue that it is in.
    pub(super) const fn queue(&self) -> QueueKind {
        match self.has & (Self::GROUP | Self::HAS_TAG) {
            0 => QueueKind::Untagged,
            Self::HAS_TAG => QueueKind::Tagged,
            _ => QueueKind::Group,
        }
    }

    /// The link whose credit it holds; `None` if the account is charged instead.
    pub(super) const fn link(&self) -> Option<LinkId> {
        match self.origin {
            Origin::Link { id, .. } => Some(id),
            Origin::Orphan => None,
        }
    }

    /// Length of the message in bytes.
    pub(super) const fn total(&self) -> u64 {
        match self.body {
            Body::Rts { total, .. } => total,
            Body::Here(_) | Body::Coming { .. } => self.len as u64,
        }
    }
}

impl MessageInfo {
    /// The match queue that it goes to.
    pub(super) const fn queue_kind(&self) -> QueueKind {
        match (self.tag, self.group) {
            (None, _) => QueueKind::Untagged,
            (Some(_), false) => QueueKind::Tagged,
            (Some(_), true) => QueueKind::Group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_structures_keep_their_size() {
        assert!(size_of::<Unexpected>() <= 80, "{}", size_of::<Unexpected>());
    }

    #[test]
    fn an_unexpected_message_keeps_its_fields() {
        let cases = [
            (Some(1), None, true, false),
            (None, Some(0), false, false),
            (Some(0), Some(u64::MAX), true, false),
            (Some(7), Some(8), false, true),
        ];
        for (tag, data, fenced, group) in cases {
            let info = MessageInfo { tag, data, ack: AckMode::Match, fenced, group };
            let from = Source { peer: 5, sender: 5, seq: 6, participant: ParticipantId::default() };
            let origin = Origin::Link { id: LinkId(4), place: 0 };
            let message = Unexpected::new(Body::Rts { total: 9, preview: None }, info, 3, 0, from, origin);
            assert_eq!((message.info(), message.link(), message.total()), (info, Some(LinkId(4)), 9));
        }
        assert_eq!(Kept::new(&[7; 16]).bytes(), [7; 16]);
        assert_eq!(Kept::new(&[7; 17]).bytes(), [7; 17]);
    }
}
