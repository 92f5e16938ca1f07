//! Splits a byte stream into records: the receiving half of a connection, without its socket.
//! Small records are collected until complete; the payload of a large one is placed piece by piece.
//! Invariant: the collected bytes never exceed [`SMALL`] or a hello.
//!
//! ```text
//! record   header length u8 · padding u8 · number u16 · payload length u32 · header · padding · payload
//! hello 255 · 0 · number u16 · length u32 · hello
//! ```

use ofi_engine::transport::{Incoming, RecvTarget};
use ofi_engine::wire::frame::{MAX_HEADER, MAX_PAYLOAD, Violation};
use ofi_engine::wire::hello;

/// Bytes in front of a record's header.
pub const PREFIX: usize = 8;
/// The header length that marks a hello.
pub const HELLO: u8 = 255;
/// Most padding, in bytes.
pub const MAX_PAD: usize = 63;
/// Records up to this size are collected; payloads of larger ones are placed as they arrive.
const SMALL: usize = 2048;
/// From this size on a payload should reach its target without a copy in between.
const LARGE: usize = 16 << 10;
/// Reads that look for a payload after a large one, the last of them no longer for a large one:
/// small records, such as acknowledgments, arrive between large payloads.
const LOOKS: u8 = 5;

/// The result of parsing a piece of the stream.
#[derive(Debug)]
pub enum Record<'a> {
    /// Nothing to report.
    Nothing,
    /// A hello.
    Hello(&'a [u8]),
    /// A frame. If its payload is [`Incoming::Streaming`], call [`Reader::place`] next.
    Frame(&'a [u8], Incoming<'a>),
    /// A streamed payload is complete in its target: [`Reader::take_placed`]. Without the target,
    /// which is large, the records of short messages move fast.
    Placed,
}

/// A parsed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    hello: bool,
    header: usize,
    pad: usize,
    number: u16,
    payload: usize,
}

impl Prefix {
    fn parse(bytes: [u8; PREFIX]) -> Result<Self, Violation> {
        let [header, pad, n0, n1, p0, p1, p2, p3] = bytes;
        let hello = header == HELLO;
        let number = u16::from_le_bytes([n0, n1]);
        let payload = usize::try_from(u32::from_le_bytes([p0, p1, p2, p3])).unwrap_or(usize::MAX);
        let header = if hello { 0 } else { usize::from(header) };
        let pad = usize::from(pad);
        if header > MAX_HEADER || pad > MAX_PAD || hello && pad != 0 || !hello && header == 0 {
            return Err(Violation("invalid record header size"));
        }
        if payload > if hello { hello::MAX_LEN } else { MAX_PAYLOAD } {
            return Err(Violation("record exceeds the maximum size"));
        }
        Ok(Self { hello, header, pad, number, payload })
    }

    /// Bytes before the payload.
    const fn head(&self) -> usize {
        PREFIX + self.header + self.pad
    }

    const fn total(&self) -> usize {
        self.head() + self.payload
    }

    /// Bytes that must have arrived before the record is parsed.
    const fn needed(&self) -> usize {
        if self.hello || self.total() <= SMALL { self.total() } else { self.head() }
    }
}

/// A streamed payload.
#[derive(Debug)]
struct Body {
    target: Option<RecvTarget>,
    /// Bytes placed so far.
    done: usize,
    /// Bytes still to arrive, including those to be dropped.
    left: usize,
}

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub struct Reader {
    partial: Vec<u8>,
    /// `partial` was returned as a record; the next call clears it.
    spent: bool,
    body: Option<Body>,
    number: u16,
    /// How many more reads look for a payload to place; all but the last expect a large one.
    looks: u8,
}

impl Reader {
    /// Parses the next record of `input`; also returns the number of bytes used.
    #[inline]
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<(Record<'a>, usize), Violation> {
        if self.spent {
            self.partial.clear();
            self.spent = false;
        }
        if self.body.is_some() {
            return Ok(self.fill_body(input));
        }
        if !self.partial.is_empty() {
            return self.next_collected(input);
        }
        let Some(prefix) = input.first_chunk::<PREFIX>() else {
            return Ok((Record::Nothing, self.collect(input, PREFIX)));
        };
        let prefix = Prefix::parse(*prefix)?;
        if input.len() < prefix.needed() {
            return Ok((Record::Nothing, self.collect(input, prefix.needed())));
        }
        self.count(prefix)?;
        let (record, rest) = Self::split(prefix, input)?;
        Ok((record, input.len() - rest.len()))
    }

    /// Continues a record that began in earlier input.
    #[cold]
    fn next_collected<'a>(&'a mut self, input: &'a [u8]) -> Result<(Record<'a>, usize), Violation> {
        let mut used = self.collect(input, PREFIX);
        let Some(prefix) = self.partial.first_chunk::<PREFIX>() else { return Ok((Record::Nothing, used)) };
        let prefix = Prefix::parse(*prefix)?;
        used += self.collect(&input[used..], prefix.needed());
        if self.partial.len() < prefix.needed() {
            return Ok((Record::Nothing, used));
        }
        self.count(prefix)?;
        self.spent = true;
        Self::split(prefix, &self.partial).map(|(record, _)| (record, used))
    }

    /// Collects bytes until there are `target` in all; returns the number taken.
    fn collect(&mut self, input: &[u8], target: usize) -> usize {
        let missing = target.saturating_sub(self.partial.len()).min(input.len());
        self.partial.extend_from_slice(&input[..missing]);
        missing
    }

    fn count(&mut self, prefix: Prefix) -> Result<(), Violation> {
        if prefix.number != self.number {
            return Err(Violation("record out of sequence"));
        }
        self.number = self.number.wrapping_add(1);
        Ok(())
    }

    /// Splits the record off the front of `bytes`, which hold at least [`Prefix::needed`] bytes;
    /// also returns the rest.
    fn split(prefix: Prefix, bytes: &[u8]) -> Result<(Record<'_>, &[u8]), Violation> {
        const SHORT: Violation = Violation("record shorter than its header declares");
        let header = bytes.get(PREFIX..PREFIX + prefix.header).ok_or(SHORT)?;
        let rest = bytes.get(prefix.head()..).ok_or(SHORT)?;
        Ok(match rest.split_at_checked(prefix.payload) {
            Some((payload, rest)) if prefix.hello => (Record::Hello(payload), rest),
            Some((payload, rest)) => (Record::Frame(header, Incoming::Complete(payload)), rest),
            None => (Record::Frame(header, Incoming::Streaming(prefix.payload)), rest),
        })
    }

    /// Sets the target of a streamed payload of `len` bytes; `None` drops it.
    pub fn place(&mut self, target: Option<RecvTarget>, len: usize) {
        self.body = Some(Body { target, done: 0, left: len });
        self.looks = if len >= LARGE { LOOKS } else { 1 };
    }

    /// Whether the next bytes are probably those of small records.
    #[inline]
    pub const fn expects_small(&self) -> bool {
        self.looks == 0
    }

    /// Whether a large payload is expected, as there was one lately: reads should be short, so that
    /// little of it is copied on its way.
    pub const fn expects_large(&self) -> bool {
        self.looks > 1
    }

    /// Something has arrived that is not received into a target. If it does not begin a payload,
    /// fewer reads look for one.
    pub const fn note_input(&mut self) {
        self.looks = self.looks.saturating_sub(1);
    }

    fn fill_body(&mut self, input: &[u8]) -> (Record<'static>, usize) {
        let Some(body) = &mut self.body else { return (Record::Nothing, 0) };
        let count = body.left.min(input.len());
        let bytes = &input[..count];
        if let Some(target) = &mut body.target {
            let placed = bytes.len().min(target.take - body.done);
            target.buffer.write_at(target.at + body.done, &bytes[..placed]);
            body.done += placed;
        }
        body.left -= count;
        (self.end_body(), count)
    }

    fn end_body(&mut self) -> Record<'static> {
        match &self.body {
            Some(Body { left: 0, target: Some(_), .. }) => Record::Placed,
            Some(Body { left: 1.., .. }) | None => Record::Nothing,
            // A dropped payload ends without a record; the caller continues.
            Some(Body { left: 0, target: None, .. }) => {
                self.body = None;
                Record::Nothing
            }
        }
    }

    /// Takes the target of a payload that is complete.
    pub fn take_placed(&mut self) -> Option<RecvTarget> {
        self.body.take()?.target
    }

    /// The target for receiving the rest of a payload without a copy, the bytes placed so far, and
    /// those still to place.
    pub fn direct(&mut self) -> Option<(&mut RecvTarget, usize, usize)> {
        let body = self.body.as_mut()?;
        let target = body.target.as_mut()?;
        let room = target.take - body.done;
        (room > 0).then_some((target, body.done, room))
    }

    /// Records that `count` bytes were received into the target from [`Self::direct`].
    pub fn direct_done(&mut self, count: usize) -> Record<'static> {
        if let Some(body) = &mut self.body {
            body.done += count;
            body.left -= count;
        }
        self.end_body()
    }

    /// True if part of a record has arrived.
    pub fn is_mid_record(&self) -> bool {
        self.body.is_some() || !self.partial.is_empty() && !self.spent
    }

    /// Abandons a streamed payload that will not arrive; returns its target.
    pub fn abort(&mut self) -> Option<RecvTarget> {
        self.body.take().and_then(|body| body.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_memory::Buffer;
    use proptest::prelude::*;

    fn record(number: u16, header: &[u8], pad: usize, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![u8::try_from(header.len()).unwrap(), u8::try_from(pad).unwrap()];
        out.extend(number.to_le_bytes());
        out.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        out.extend(header);
        out.extend(std::iter::repeat_n(0, pad));
        out.extend(payload);
        out
    }

    /// Header and payload.
    type Frame = (Vec<u8>, Vec<u8>);

    /// Reads a stream cut into pieces, placing every streamed payload; returns the frames.
    fn read(stream: &[u8], cuts: &[usize]) -> Result<Vec<Frame>, Violation> {
        let mut reader = Reader::default();
        let mut out: Vec<Frame> = Vec::new();
        let mut rest = stream;
        let mut cuts = cuts.iter().copied().cycle();
        while !rest.is_empty() {
            let (mut piece, tail) = rest.split_at(cuts.next().unwrap_or(1).clamp(1, rest.len()));
            rest = tail;
            loop {
                let mut coming = None;
                let (record, used) = reader.next(piece)?;
                match record {
                    Record::Nothing if piece.len() == used => break,
                    Record::Nothing => assert!(used > 0, "no headway"),
                    Record::Hello(bytes) => out.push((vec![], bytes.to_vec())),
                    Record::Frame(header, Incoming::Complete(bytes)) => out.push((header.to_vec(), bytes.to_vec())),
                    Record::Frame(header, Incoming::Streaming(len)) => coming = Some((header.to_vec(), len)),
                    Record::Placed => {
                        let target = reader.take_placed().expect("its payload is in place");
                        let Buffer::Owned(bytes) = target.buffer else { unreachable!() };
                        out.last_mut().unwrap().1 = bytes;
                    }
                }
                piece = &piece[used..];
                if let Some((header, len)) = coming {
                    out.push((header, vec![]));
                    reader.place(
                        Some(RecvTarget { buffer: Buffer::Owned(vec![0; len]), at: 0, take: len, offer: None }),
                        len,
                    );
                }
            }
            assert!(reader.partial.len() <= SMALL.max(hello::MAX_LEN + PREFIX));
        }
        Ok(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn records_survive_any_cut(
            records in proptest::collection::vec((1usize..=MAX_HEADER, 0usize..=MAX_PAD, 0usize..5000), 1..12),
            cuts in proptest::collection::vec(1usize..4000, 1..8),
        ) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (number, (header, pad, payload)) in (0u16..).zip(records) {
                let byte = number.to_le_bytes()[0];
                let (header, payload) = (vec![byte; header], vec![byte ^ 0x55; payload]);
                stream.extend(record(number, &header, pad, &payload));
                expected.push((header, payload));
            }
            prop_assert_eq!(read(&stream, &cuts), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000), cuts in proptest::collection::vec(1usize..300, 1..8),
        ) {
            drop(read(&bytes, &cuts));
        }
    }

    #[test]
    fn a_large_payload_is_expected_after_one_until_several_reads_have_found_none() {
        let read = |reader: &mut Reader, number, payload: usize| {
            let stream = record(number, b"a", 0, &vec![0; payload]);
            let (record, used) = reader.next(&stream[..stream.len().min(64)]).unwrap();
            if let Record::Frame(_, Incoming::Streaming(len)) = record {
                reader.place(None, len);
                assert!(matches!(reader.next(&stream[used..]), Ok((Record::Nothing, _))));
            }
        };
        let mut reader = Reader::default();
        assert!(reader.expects_small());
        read(&mut reader, 0, SMALL);
        assert!(!reader.expects_small() && !reader.expects_large(), "its rest is placed, the next may be small");
        read(&mut reader, 1, LARGE);
        for number in 2..5 {
            assert!(reader.expects_large());
            reader.note_input();
            read(&mut reader, number, 0);
        }
        read(&mut reader, 5, LARGE);
        for _ in 1..LOOKS {
            assert!(reader.expects_large());
            reader.note_input();
        }
        assert!(!reader.expects_large());
        reader.note_input();
        assert!(reader.expects_small());
    }

    #[test]
    fn a_gap_is_noticed() {
        let mut stream = record(0, b"a", 0, b"");
        stream.extend(record(2, b"b", 0, b""));
        assert_eq!(read(&stream, &[1000]), Err(Violation("record out of sequence")));
    }

    #[test]
    fn a_huge_length_is_refused_before_anything_is_kept() {
        let mut stream = record(0, b"a", 0, b"");
        stream[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&stream, &[3]), Err(Violation("record exceeds the maximum size")));
    }
}
