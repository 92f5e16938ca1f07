//! The wire format of an open link, version 6, the same over any transport.
//! Little-endian. A frame is a header and a payload; the transport keeps them apart and knows
//! their lengths. [`Frame::parse`] is total: any bytes give a frame or a [`Violation`], nothing is
//! indexed unchecked.
//!
//! ```text
//! all       kind u8 · flags u8 · code u16 · id u32
//! Eager     … [tag u64] [data u64]            payload: the message
//! Rts       … len u64 [tag u64] [data u64]    request to send: the message waits at the sender for a Cts; payload: as
//!                                             many of its first bytes as the receiver's hello asks for
//! Cts       … token u32 · 0 u32 · len u64     clear to send; id: sender's, token: receiver's
//! Data      …                                 id: the receiver's token; payload: the next bytes
//! Credit    … bytes u64                       the peer may send this many more bytes
//! Ack       …                                 id: the sender's
//! Bye       …
//! Blocked   … bytes u64                       the credit that the next message needs
//! Arrived   …                                 id: how many more AckMode::Arrival messages arrived
//! Write     … key u64 · addr u64 [more u64] [data u64]    code: a count as of Performed; payload: the bytes; more:
//!                                             bytes of the range that follow
//! Read      … key u64 · addr u64 · len u64    answered by Response
//! Atomic    … key u64 · addr u64 [len u64] [data u64]     code: operation, datatype; payload: operands, then the
//!                                             values to compare with; len: bytes, if there are no operands
//! Response  …                                 id: of the Read or Atomic; payload: the next bytes
//! Performed …                                 id: how many more operations without a Response were carried out
//! Refused   …                                 id: of the operation; code: why it was not carried out
//! ```
//! An Eager or Rts may be flagged as one of a group: it belongs to a collective operation, has a
//! tag and data, and never meets the application's receives. One-sided operations are carried out
//! in order. The last frame of one is flagged; Performed and Refused count operations by their last
//! frames, in order.

use super::one_sided::{ACTION, Action, COMMIT, LAST, MORE, Refusal, RemoteAddr, WITH_DATA as ATTACHED};
pub use super::violation::Violation;
use core::ops::Deref;
use ofi_memory::fresh_word;

/// Version of this format, exchanged in the hello.
pub const VERSION: u16 = 6;
/// The longest header, in bytes.
pub const MAX_HEADER: usize = 40;
/// The longest payload of a frame, in bytes; longer messages go in several data frames.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The longest eager message, in bytes.
pub const MOST_EAGER: usize = 256 << 10;
/// The least payload, in bytes, of a data frame that [is unordered](Frame::is_unordered).
const LEAST_UNORDERED: usize = 16 << 10;

/// Words of the longest header.
pub const HEADER_WORDS: usize = MAX_HEADER / 8;

/// An encoded header, as bytes or as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; MAX_HEADER],
    len: usize,
}

impl Header {
    #[inline(always)]
    const fn new<const N: usize>(words: [u64; N]) -> Self {
        const { assert!(N <= HEADER_WORDS) };
        let mut bytes = [0; MAX_HEADER];
        let (chunks, _) = bytes.as_chunks_mut::<8>();
        let mut at = 0;
        while at < N {
            chunks[at] = words[at].to_le_bytes();
            at += 1;
        }
        Self { bytes, len: N * 8 }
    }

    /// All words in memory order; those past the end are 0. Loaded one by one, because most headers
    /// were encoded a moment ago ([`ofi_memory::fresh()`]).
    #[inline(always)]
    pub fn words(&self) -> [u64; HEADER_WORDS] {
        let (chunks, _) = self.bytes.as_chunks::<8>();
        core::array::from_fn(|at| fresh_word(&chunks[at]))
    }
}

impl Deref for Header {
    type Target = [u8];
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// When the receiver acknowledges a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// Never.
    No,
    /// When it has reached the peer's endpoint: by counts, in order.
    Arrival,
    /// When a receive has matched it.
    Match,
    /// When it is in the receive buffer.
    Delivery,
}

/// The tag, completion data and acknowledgement of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Completion data.
    pub data: Option<u64>,
    /// Which acknowledgement the sender waits for.
    pub ack: AckMode,
    /// The acknowledgement also confirms that everything sent before has got as far (FI_FENCE).
    pub fenced: bool,
    /// It belongs to a collective operation. It has a tag and data.
    pub group: bool,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message with its payload.
    Eager {
        /// The sender's number for it, if it wants an acknowledgement.
        id: u32,
        /// Tag, data and acknowledgement.
        info: MessageInfo,
    },
    /// Request to send: the message waits at the sender.
    Rts {
        /// The sender's number for it.
        id: u32,
        /// Its length in bytes.
        len: u64,
        /// Tag, data and acknowledgement.
        info: MessageInfo,
    },
    /// Clear to send: the sender sends `len` bytes of the message.
    Cts {
        /// The sender's number.
        id: u32,
        /// The receiver's number.
        token: u32,
        /// How many bytes the receiver takes.
        len: u64,
    },
    /// The next bytes of a message that is clear to send.
    Data {
        /// The receiver's number.
        token: u32,
    },
    /// Returns credit: the peer may send more.
    Credit {
        /// Bytes.
        bytes: u64,
    },
    /// Acknowledges a message.
    Ack {
        /// The sender's number.
        id: u32,
    },
    /// The endpoint closes; nothing follows.
    Bye,
    /// The credit does not suffice for the sender's next message.
    Blocked {
        /// The credit that the message needs.
        bytes: u64,
    },
    /// Acknowledges messages with [`AckMode::Arrival`].
    Arrived {
        /// How many more have arrived.
        count: u32,
    },
    /// Writes the payload to the receiver's memory.
    Write {
        /// The initiator's number for the operation.
        id: u32,
        /// Where the payload goes.
        place: RemoteAddr,
        /// How many bytes of the same range follow in other frames.
        more: u64,
        /// The operation's last frame.
        last: bool,
        /// The bytes are to be durable when the write counts as performed.
        commit: bool,
        /// Completion data, in the last frame.
        data: Option<u64>,
        /// How many more of the receiver's own operations have been carried out, as in
        /// [`Self::Performed`].
        performed: u16,
    },
    /// Reads the receiver's memory.
    Read {
        /// The initiator's number for the operation.
        id: u32,
        /// The first byte.
        place: RemoteAddr,
        /// Length in bytes.
        len: u64,
        /// The operation's last frame.
        last: bool,
    },
    /// Carries out an atomic operation on the receiver's memory.
    Atomic {
        /// The initiator's number for the operation.
        id: u32,
        /// The first element.
        place: RemoteAddr,
        /// What is done with each element.
        action: Action,
        /// Length of the elements in bytes, where no operands tell it.
        len: Option<u64>,
        /// The operation's last frame.
        last: bool,
        /// Completion data, in the last frame.
        data: Option<u64>,
    },
    /// The next bytes that a read or an atomic operation returns.
    Response {
        /// The initiator's number for the operation.
        id: u32,
        /// The last bytes for one request frame.
        last: bool,
    },
    /// Acknowledges writes and atomic operations without a result.
    Performed {
        /// How many more have been carried out.
        count: u32,
    },
    /// A frame of a one-sided operation was not carried out.
    Refused {
        /// The initiator's number for the operation.
        id: u32,
        /// It was the operation's last frame.
        last: bool,
        /// Why.
        why: Refusal,
    },
}

const EAGER: u8 = 1;
const RTS: u8 = 2;
const CTS: u8 = 3;
const DATA: u8 = 4;
const CREDIT: u8 = 5;
const ACK: u8 = 6;
const BYE: u8 = 7;
const BLOCKED: u8 = 8;
const ARRIVED: u8 = 9;
const WRITE: u8 = 10;
const READ: u8 = 11;
const ATOMIC: u8 = 12;
const RESPONSE: u8 = 13;
const PERFORMED: u8 = 14;
const REFUSED: u8 = 15;

const TAGGED: u8 = 1;
const WITH_DATA: u8 = 2;
const WITH_BOTH: u8 = TAGGED | WITH_DATA;
const ACK_DELIVERY: u8 = 4;
const ACK_MATCH: u8 = 8;
const ACK_ARRIVAL: u8 = 16;
const FENCED: u8 = 32;
const GROUP: u8 = 64;
const ACKS: u8 = ACK_DELIVERY | ACK_MATCH | ACK_ARRIVAL;
const INFO_FLAGS: u8 = TAGGED | WITH_DATA | ACKS | FENCED | GROUP;

impl MessageInfo {
    #[inline(always)]
    const fn flags(self) -> u8 {
        let tagged = if self.tag.is_some() { TAGGED } else { 0 };
        let with_data = if self.data.is_some() { WITH_DATA } else { 0 };
        let ack = match self.ack {
            AckMode::No => 0,
            AckMode::Arrival => ACK_ARRIVAL,
            AckMode::Match if self.fenced => ACK_MATCH | FENCED,
            AckMode::Match => ACK_MATCH,
            AckMode::Delivery if self.fenced => ACK_DELIVERY | FENCED,
            AckMode::Delivery => ACK_DELIVERY,
        };
        let group = if self.group { GROUP } else { 0 };
        tagged | with_data | ack | group
    }
}

/// The unparsed rest of a header.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Violation("a frame's header is too short"))?;
        self.0 = tail;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Violation> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Violation> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn place(&mut self) -> Result<RemoteAddr, Violation> {
        Ok(RemoteAddr { key: self.u64()?, addr: self.u64()? })
    }

    /// A word that is there if the flag is.
    fn flagged(&mut self, flags: u8, flag: u8) -> Result<Option<u64>, Violation> {
        if flags & flag != 0 { self.u64().map(Some) } else { Ok(None) }
    }

    /// The completion data of a one-sided operation, which only its last frame has.
    fn data(&mut self, flags: u8, last: bool) -> Result<Option<u64>, Violation> {
        if flags & ATTACHED != 0 && !last {
            return Err(Violation("completion data before the end of an operation"));
        }
        self.flagged(flags, ATTACHED)
    }

    #[inline(always)]
    fn info(&mut self, flags: u8) -> Result<MessageInfo, Violation> {
        let ack = match flags & (ACKS | GROUP) {
            0 => AckMode::No,
            GROUP if flags & WITH_BOTH == WITH_BOTH => AckMode::No,
            GROUP => return Err(Violation("a message of a group without a tag or data")),
            ACK_ARRIVAL => AckMode::Arrival,
            ACK_DELIVERY => AckMode::Delivery,
            ACK_MATCH => AckMode::Match,
            _ => return Err(Violation("a message with conflicting acknowledgment flags")),
        };
        let tag = if flags & TAGGED != 0 { Some(self.u64()?) } else { None };
        let data = if flags & WITH_DATA != 0 { Some(self.u64()?) } else { None };
        let fenced = flags & FENCED != 0;
        if fenced && !matches!(ack, AckMode::Delivery | AckMode::Match) {
            return Err(Violation("a fence without an acknowledgement"));
        }
        Ok(MessageInfo { tag, data, ack, fenced, group: flags & GROUP != 0 })
    }
}

impl Frame {
    /// Whether frames of this kind may have a payload.
    pub const fn has_payload(&self) -> bool {
        matches!(
            self,
            Self::Eager { .. }
                | Self::Rts { .. }
                | Self::Data { .. }
                | Self::Write { .. }
                | Self::Atomic { .. }
                | Self::Response { .. }
        )
    }

    /// Encodes the header.
    #[inline(always)]
    pub fn encode(&self) -> Header {
        match *self {
            Self::Eager { id, info } => {
                let start = first(EAGER, info.flags(), id);
                match (info.tag, info.data) {
                    (Some(tag), None) => Header::new([start, tag]),
                    (None, None) => Header::new([start]),
                    (None, Some(data)) => Header::new([start, data]),
                    (Some(tag), Some(data)) => Header::new([start, tag, data]),
                }
            }
            Self::Write { id, place, more, last, commit, data, performed } => {
                let durable = if commit { COMMIT } else { 0 };
                let flags = last_flag(last) | durable | if more > 0 { MORE } else { 0 } | attached(data);
                let start = first(WRITE, flags, id) | (performed as u64) << 16;
                match (more, data) {
                    (0, None) => Header::new([start, place.key, place.addr]),
                    (0, Some(word)) | (word, None) => Header::new([start, place.key, place.addr, word]),
                    (more, Some(data)) => Header::new([start, place.key, place.addr, more, data]),
                }
            }
            _ => self.encode_other(),
        }
    }

    fn encode_other(&self) -> Header {
        match *self {
            Self::Eager { .. } | Self::Write { .. } => self.encode(),
            Self::Rts { id, len, info } => {
                let start = first(RTS, info.flags(), id);
                match (info.tag, info.data) {
                    (Some(word), None) | (None, Some(word)) => Header::new([start, len, word]),
                    (None, None) => Header::new([start, len]),
                    (Some(tag), Some(data)) => Header::new([start, len, tag, data]),
                }
            }
            Self::Cts { id, token, len } => Header::new([first(CTS, 0, id), u64::from(token), len]),
            Self::Data { token } => Header::new([first(DATA, 0, token)]),
            Self::Credit { bytes } => Header::new([first(CREDIT, 0, 0), bytes]),
            Self::Ack { id } => Header::new([first(ACK, 0, id)]),
            Self::Bye => Header::new([first(BYE, 0, 0)]),
            Self::Blocked { bytes } => Header::new([first(BLOCKED, 0, 0), bytes]),
            Self::Arrived { count } => Header::new([first(ARRIVED, 0, count)]),
            Self::Read { id, place, len, last } => {
                Header::new([first(READ, last_flag(last), id), place.key, place.addr, len])
            }
            Self::Atomic { id, place, action, len, last, data } => {
                let (flags, code) = action.encode();
                let start = first(ATOMIC, flags | last_flag(last) | attached(data), id) | u64::from(code) << 16;
                match (len, data) {
                    (None, None) => Header::new([start, place.key, place.addr]),
                    (None, Some(word)) | (Some(word), None) => Header::new([start, place.key, place.addr, word]),
                    (Some(len), Some(data)) => Header::new([start, place.key, place.addr, len, data]),
                }
            }
            Self::Response { id, last } => Header::new([first(RESPONSE, last_flag(last), id)]),
            Self::Performed { count } => Header::new([first(PERFORMED, 0, count)]),
            Self::Refused { id, last, why } => {
                Header::new([first(REFUSED, last_flag(last), id) | u64::from(why.code()) << 16])
            }
        }
    }

    /// The number and the tag, if the header is that of an eager message with only a tag.
    #[inline(always)]
    pub fn plain(header: &[u8]) -> Option<(u32, u64)> {
        let ([start, tag], []) = header.as_chunks::<8>() else { return None };
        let (start, tag) = (u64::from_le_bytes(*start), u64::from_le_bytes(*tag));
        let id = start >> 32;
        (start == first(EAGER, TAGGED, 0) | id << 32).then_some((u32::try_from(id).ok()?, tag))
    }

    /// Whether a frame with a payload of `len` bytes need not keep its order with others, because
    /// the engine submits the next one of its message or operation when the transport is done with
    /// it: data frames but for short ones, and responses that are longer than an eager message. A
    /// write's frames keep their order, as the next operation may leave before they have left.
    #[inline]
    pub fn is_unordered(header: &[u8], len: usize) -> bool {
        match header.first() {
            Some(&DATA) => len >= LEAST_UNORDERED,
            Some(&WRITE) => false,
            _ => len > MOST_EAGER,
        }
    }

    /// Whether the frame carries the whole of a message.
    #[inline]
    pub fn is_eager(header: &[u8]) -> bool {
        header.first() == Some(&EAGER)
    }

    /// Whether the frame carries bytes of a one-sided operation: those of a write, or what a read
    /// or an atomic operation returns.
    #[inline]
    pub fn is_access(header: &[u8]) -> bool {
        matches!(header.first(), Some(&(WRITE | RESPONSE)))
    }

    /// Where the payload goes and how many operations the frame acknowledges, if the header is that
    /// of a whole write with nothing else.
    #[inline(always)]
    pub fn plain_write(header: &[u8]) -> Option<(RemoteAddr, u16)> {
        let ([start, key, addr], []) = header.as_chunks::<8>() else { return None };
        let [kind, flags, code_low, code_high, ..] = *start;
        let place = RemoteAddr { key: u64::from_le_bytes(*key), addr: u64::from_le_bytes(*addr) };
        (kind == WRITE && flags == LAST).then_some((place, u16::from_le_bytes([code_low, code_high])))
    }

    /// Parses a header.
    #[inline]
    pub fn parse(header: &[u8]) -> Result<Self, Violation> {
        // The most common frame first.
        match Self::plain(header) {
            Some((id, tag)) => {
                let info = MessageInfo { tag: Some(tag), data: None, ack: AckMode::No, fenced: false, group: false };
                Ok(Self::Eager { id, info })
            }
            None => Self::parse_any(header),
        }
    }

    /// The same, for a header that is not [`Self::plain`] as far as the caller has looked. Part of
    /// each caller: a call of its own would cost a message fifty instructions.
    #[inline(always)]
    pub(crate) fn parse_any(header: &[u8]) -> Result<Self, Violation> {
        let mut rest = Rest(header);
        let [kind, flags, code_low, code_high] = rest.take()?;
        let code = u16::from_le_bytes([code_low, code_high]);
        if code != 0 && !matches!(kind, WRITE | ATOMIC | REFUSED) {
            return Err(Violation("a frame's reserved bytes are set"));
        }
        let id = rest.u32()?;
        let known = match kind {
            EAGER | RTS => INFO_FLAGS,
            WRITE => LAST | MORE | ATTACHED | COMMIT,
            ATOMIC => LAST | ACTION | ATTACHED,
            READ | RESPONSE | REFUSED => LAST,
            _ => 0,
        };
        if flags & !known != 0 {
            return Err(Violation("a frame has unknown flags"));
        }
        let last = flags & LAST != 0;
        let frame = match kind {
            EAGER => Self::Eager { id, info: rest.info(flags)? },
            RTS => {
                let len = rest.u64()?;
                Self::Rts { id, len, info: rest.info(flags)? }
            }
            CTS => {
                let token = rest.u32()?;
                if rest.u32()? != 0 {
                    return Err(Violation("a frame's reserved bytes are set"));
                }
                Self::Cts { id, token, len: rest.u64()? }
            }
            DATA => Self::Data { token: id },
            CREDIT | BYE | BLOCKED if id != 0 => return Err(Violation("a frame's reserved bytes are set")),
            CREDIT => Self::Credit { bytes: rest.u64()? },
            ACK => Self::Ack { id },
            BYE => Self::Bye,
            BLOCKED => Self::Blocked { bytes: rest.u64()? },
            ARRIVED => Self::Arrived { count: id },
            WRITE => {
                let place = rest.place()?;
                let more = rest.flagged(flags, MORE)?;
                if more == Some(0) || last && more.is_some() {
                    return Err(Violation("a write tells of more bytes that do not follow"));
                }
                let (more, commit) = (more.unwrap_or(0), flags & COMMIT != 0);
                Self::Write { id, place, more, last, commit, data: rest.data(flags, last)?, performed: code }
            }
            READ => Self::Read { id, place: rest.place()?, len: rest.u64()?, last },
            ATOMIC => {
                let (action, place) = (Action::decode(flags, code)?, rest.place()?);
                let len = if action.values() == 0 { Some(rest.u64()?) } else { None };
                Self::Atomic { id, place, action, len, last, data: rest.data(flags, last)? }
            }
            RESPONSE => Self::Response { id, last },
            PERFORMED => Self::Performed { count: id },
            REFUSED => Self::Refused { id, last, why: Refusal::decode(code)? },
            _ => return Err(Violation("a frame with an unknown kind")),
        };
        if rest.0.is_empty() { Ok(frame) } else { Err(Violation("a frame's header is too long")) }
    }
}

const fn last_flag(last: bool) -> u8 {
    if last { LAST } else { 0 }
}

const fn attached(data: Option<u64>) -> u8 {
    if data.is_some() { ATTACHED } else { 0 }
}

#[inline(always)]
const fn first(kind: u8, flags: u8, id: u32) -> u64 {
    kind as u64 | (flags as u64) << 8 | (id as u64) << 32
}

#[cfg(test)]
mod tests;
