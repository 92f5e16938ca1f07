//! One connection: frames become segments in the slots of the peer, and segments become frames.
//! Invariant: the segments of a frame follow each other, and a kept payload is in the queue or
//! among the offers until the caller of [`Conn::push`], [`Conn::handle_outcome`] or [`Conn::end`]
//! gets it back.

mod reads;

use crate::device::{Pair, RECEIVES, SLOT};
use crate::offers::Offers;
use crate::wire::{Credits, Grant, Kind, PREFIX, Segment};
use ofi_core::{Addr, Cause, Errno};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, Payload, RecvTarget, Submitted, Token};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use std::collections::VecDeque;
use std::io;

/// Frames that wait for room until the link refuses more.
const MOST_QUEUED: usize = 64;
/// Copied bytes that wait for room until the link refuses more.
const MOST_COPIED: usize = 128 << 10;

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Conn<P: Pair> {
    pub(crate) pair: P,
    pub(crate) remote: Addr,
    pub(crate) credits: Credits,
    /// Bytes of the peer's slots.
    peer_slot: usize,
    queue: VecDeque<Item>,
    copied: usize,
    offers: Offers<P>,
    /// The engine submits nothing more until it hears of room.
    stalled: bool,
    arriving: Option<PartialPayload>,
    /// Sending failed: the next poll ends the link.
    broken: Option<Down>,
}

/// A frame or a hello that waits for room.
#[derive(Debug)]
struct Item {
    header: Option<Header>,
    source: Source,
    progress: Progress,
}

/// How far sending a frame has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    kind: Kind,
    /// The key of the peer's window that its first segment ends.
    ends: Option<u32>,
    /// Bytes of the payload, and how many are sent.
    len: usize,
    at: usize,
    stage: Stage,
}

impl Progress {
    const fn new(kind: Kind, len: usize) -> Self {
        Self { kind, ends: None, len, at: 0, stage: Stage::New }
    }

    const fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Started) && self.at == self.len
    }
}

#[derive(Debug)]
enum Source {
    Copied(Vec<u8>),
    Kept { buffer: Buffer, from: usize, token: Token },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Started,
    /// The rest of the payload cannot be read.
    Unreadable,
}

/// A payload of several segments that is arriving.
#[derive(Debug)]
struct PartialPayload {
    target: Option<RecvTarget>,
    len: usize,
    at: usize,
    /// The receive buffer cannot be written.
    unwritable: bool,
}

/// What [`Conn::push`] has to report.
#[derive(Debug)]
pub(crate) enum Report {
    Sent(Token, Buffer),
    Failed(Token, Buffer, Down),
    Room,
}

/// What became of an attempt to send a segment.
enum Attempt {
    Blocked,
    /// Sent with so many bytes of the payload.
    Sent(usize),
    /// Sent, but the payload cannot be read.
    Unreadable,
    Broken,
}

fn violation(Violation(what): Violation) -> Down {
    Down::violation(what)
}

fn unwritable() -> Down {
    Down::new(Cause::Absent, Errno::EFAULT, "the receive buffer cannot be written")
}

fn unreadable() -> Down {
    Down::new(Cause::Absent, Errno::EFAULT, "the memory of the message cannot be read")
}

impl<P: Pair> Conn<P> {
    pub(crate) const fn new(pair: P, remote: Addr) -> Self {
        Self {
            pair,
            remote,
            credits: Credits::new(RECEIVES),
            peer_slot: 0,
            queue: VecDeque::new(),
            copied: 0,
            offers: Offers::new(),
            stalled: false,
            arriving: None,
            broken: None,
        }
    }

    /// The peer's first grant.
    pub(crate) const fn grant(&mut self, grant: Grant) {
        self.credits.grant(grant.slots);
        self.peer_slot = if grant.slot < SLOT { grant.slot } else { SLOT };
    }

    pub(crate) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(crate) const fn take_broken(&mut self) -> Option<Down> {
        self.broken.take()
    }

    /// Whether the peer's device has everything that was submitted, but perhaps what is offered.
    pub(crate) fn is_sent(&self) -> bool {
        self.queue.is_empty() && self.pair.is_sent() && self.offers.is_read()
    }

    /// Whether frames wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    fn unusable(&self, error: &io::Error) -> Down {
        let errno = Errno::from(error);
        Down::new(Cause::Broken, errno, format!("connection to {}: {error}", self.remote.socket()))
    }

    fn fail(&mut self, error: &io::Error) {
        if self.broken.is_none() {
            self.broken = Some(self.unusable(error));
        }
    }

    /// Sends a frame with the first `len` bytes of a buffer, if it fits into a segment that can
    /// leave at once. On false nothing has happened, or the connection is broken.
    pub(crate) fn try_submit_fast(&mut self, header: &Header, buffer: &Buffer, len: usize) -> bool {
        let start = PREFIX + header.len();
        let may = self.queue.is_empty() && self.broken.is_none() && !self.stalled;
        if !may || !self.credits.can_send() || start + len > self.peer_slot {
            return false;
        }
        let Some(slot) = self.pair.send_slot() else { return false };
        if buffer.read_at(0, &mut slot[start..start + len]) != len {
            return false;
        }
        Segment::write_prefix(Kind::Frame, header, self.credits.take(), len, slot);
        if let Err(error) = self.pair.send(start + len).and_then(|()| self.pair.flush()) {
            self.fail(&error);
        }
        self.broken.is_none()
    }

    /// Submits a frame.
    pub(crate) fn submit(&mut self, header: &Header, payload: Payload<'_>) -> Submitted {
        if self.broken.is_some() {
            return Submitted::Broken;
        }
        self.stalled |= self.queue.len() >= MOST_QUEUED || self.copied >= MOST_COPIED;
        if self.stalled {
            return Submitted::Full;
        }
        let Payload { from, len, token, inject, .. } = payload;
        let mut progress = Progress::new(Kind::Frame, len);
        while self.queue.is_empty() && progress.stage != Stage::Unreadable && !progress.is_done() {
            let (buffer, at) = (payload.buffer.as_ref(), progress.at);
            let read = |out: &mut [u8]| buffer.map_or(0, |buffer| buffer.read_at(from + at, out));
            match self.attempt(&progress, Some(header), read) {
                Attempt::Blocked => break,
                Attempt::Sent(count) => (progress.at, progress.stage) = (at + count, Stage::Started),
                Attempt::Unreadable => progress.stage = Stage::Unreadable,
                Attempt::Broken => return Submitted::Broken,
            }
        }
        self.flush();
        if self.broken.is_some() {
            return Submitted::Broken;
        }
        if progress.is_done() {
            return Submitted::Done;
        }
        let mut kept = false;
        let source = match payload.buffer.take_if(|_| !inject && len > 0) {
            Some(buffer) => {
                kept = true;
                Source::Kept { buffer, from, token }
            }
            None => {
                let mut bytes = Vec::with_capacity(len);
                payload.append_to(&mut bytes);
                self.copied += bytes.len();
                Source::Copied(bytes)
            }
        };
        self.queue.push_back(Item { header: Some(*header), source, progress });
        if kept { Submitted::Kept } else { Submitted::Done }
    }

    /// Sends a hello or the end behind everything else, whatever waits.
    pub(crate) fn enqueue(&mut self, kind: Kind, header: Option<Header>, bytes: Vec<u8>) {
        let progress = Progress::new(kind, bytes.len());
        self.copied += bytes.len();
        self.queue.push_back(Item { header, source: Source::Copied(bytes), progress });
    }

    /// Sends what has room, then credits if it is time for it.
    pub(crate) fn push(&mut self, mut report: impl FnMut(Report)) {
        while let Some(mut item) = self.queue.pop_front() {
            let Item { header, progress, .. } = item;
            let read = |out: &mut [u8]| item.source.read(progress.at, out);
            match self.attempt(&progress, header.as_ref(), read) {
                Attempt::Blocked | Attempt::Broken => {
                    self.queue.push_front(item);
                    break;
                }
                Attempt::Sent(count) => {
                    item.progress.at += count;
                    item.progress.stage = Stage::Started;
                }
                Attempt::Unreadable if progress.stage != Stage::New => {
                    self.give_back(item.source, Some(unreadable()), &mut report);
                    continue;
                }
                Attempt::Unreadable => item.progress.stage = Stage::Unreadable,
            }
            if item.progress.is_done() {
                self.give_back(item.source, None, &mut report);
            } else {
                self.queue.push_front(item);
            }
        }
        if self.stalled && self.queue.len() < MOST_QUEUED / 2 && self.copied < MOST_COPIED / 2 {
            self.stalled = false;
            report(Report::Room);
        }
        if self.broken.is_none() && self.credits.is_return_due() {
            self.return_credits();
        }
        self.flush();
    }

    fn flush(&mut self) {
        if let Err(error) = self.pair.flush() {
            self.fail(&error);
        }
    }

    fn give_back(&mut self, source: Source, failed: Option<Down>, report: &mut impl FnMut(Report)) {
        match (source, failed) {
            (Source::Copied(bytes), _) => self.copied -= bytes.len(),
            (Source::Kept { buffer, token, .. }, None) => report(Report::Sent(token, buffer)),
            (Source::Kept { buffer, token, .. }, Some(why)) => report(Report::Failed(token, buffer, why)),
        }
    }

    /// Sends the next segment of a frame, if there are a slot and a credit for it. `read` copies
    /// the payload from where it is.
    fn attempt(
        &mut self,
        &Progress { kind, ends, len, at, stage }: &Progress,
        header: Option<&Header>,
        read: impl FnOnce(&mut [u8]) -> usize,
    ) -> Attempt {
        if self.broken.is_some() {
            return Attempt::Broken;
        }
        if !self.credits.can_send() {
            return Attempt::Blocked;
        }
        let most = self.peer_slot;
        let Some(slot) = self.pair.send_slot() else { return Attempt::Blocked };
        let credits = self.credits.take();
        let (mut attempt, end);
        if stage == Stage::Unreadable {
            (attempt, end) = (Attempt::Unreadable, Segment::write_prefix(Kind::Failed, &[], credits, 0, slot));
        } else {
            let (kind, header, total) = match stage {
                Stage::New => (kind, header.map_or(&[][..], |header| header), len),
                _ => (Kind::More, &[][..], 0),
            };
            let start = Segment::write_prefix(kind, header, credits, total, slot);
            let want = (len - at).min(most - start);
            if read(&mut slot[start..start + want]) == want {
                (attempt, end) = (Attempt::Sent(want), start + want);
            } else if stage == Stage::New {
                // The peer gets the frame, and then that its payload failed.
                (attempt, end) = (Attempt::Unreadable, start);
            } else {
                (attempt, end) = (Attempt::Unreadable, Segment::write_prefix(Kind::Failed, &[], credits, 0, slot));
            }
        }
        let sent = match (kind, ends) {
            (Kind::Bye, _) => self.pair.send_last(end),
            (_, Some(key)) if stage == Stage::New => self.pair.send_ending(end, key),
            _ => self.pair.send(end),
        };
        if let Err(error) = sent {
            self.fail(&error);
            attempt = Attempt::Broken;
        }
        attempt
    }

    fn return_credits(&mut self) {
        let Some(slot) = self.pair.send_slot() else { return };
        let credits = self.credits.take();
        let end = Segment::write_prefix(Kind::Credits, &[], credits, 0, slot);
        if let Err(error) = self.pair.send(end) {
            self.fail(&error);
        }
    }

    /// A frame, or a part of one, has arrived.
    pub(crate) fn handle_frame(
        arriving: &mut ArrivingFrame,
        link: LinkId,
        segment: &Segment<'_>,
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        match (segment.kind, arriving.0.take()) {
            (Kind::Frame, None) if segment.bytes.len() == segment.len => {
                let result = events.handle_frame(link, segment.header, Incoming::Complete(segment.bytes));
                result.map(drop).map_err(violation)
            }
            (Kind::Frame, None) => {
                let result = events.handle_frame(link, segment.header, Incoming::Streaming(segment.len));
                let target = match result.map_err(violation)? {
                    Disposition::Done => None,
                    Disposition::Into(target) => Some(target),
                };
                let now = PartialPayload { target, len: segment.len, at: 0, unwritable: false };
                arriving.take_part(now, link, segment.bytes, events)
            }
            (Kind::More, Some(now)) => arriving.take_part(now, link, segment.bytes, events),
            (Kind::Failed, Some(now)) => {
                if let Some(target) = now.target {
                    let why = Down::new(Cause::Absent, Errno::EFAULT, "the sender cannot read the message's memory");
                    events.handle_recv_failed(link, target, why);
                }
                Ok(())
            }
            (_, now) => {
                arriving.0 = now;
                Err(Down::violation("a part of a frame out of turn"))
            }
        }
    }

    /// Takes a segment, which `handle` gets, and gives its slot to the device again.
    pub(crate) fn receive(
        &mut self,
        arrival: &Arrival,
        handle: impl FnOnce(&mut ArrivingFrame, &Segment<'_>) -> Result<(), Down>,
    ) -> Result<(), Down> {
        let mut arriving = ArrivingFrame(self.arriving.take());
        let bytes = match arrival {
            Arrival::InSlot { slot, len } => self.pair.received(*slot).get(..*len).unwrap_or_default(),
            Arrival::Held(bytes) => bytes,
        };
        let credits = &mut self.credits;
        let handled = Segment::parse(bytes)
            .and_then(|segment| match arrival {
                Arrival::InSlot { .. } => credits.arrived(segment.credits).map(|()| segment),
                Arrival::Held(_) => Ok(segment),
            })
            .map_err(Down::violation)
            .and_then(|segment| handle(&mut arriving, &segment));
        self.arriving = arriving.0;
        handled?;
        if let Arrival::InSlot { slot, .. } = arrival {
            self.give_slot_back(*slot);
        }
        self.credits.handled();
        Ok(())
    }

    fn give_slot_back(&mut self, slot: u16) {
        if let Err(error) = self.pair.post_receive(slot) {
            self.fail(&error);
        }
    }

    /// Gives back everything that the link holds of the engine: it ends.
    pub(crate) fn end(self, link: LinkId, events: &mut impl LinkEvents) {
        let Self { mut pair, queue, offers, arriving, .. } = self;
        let mut targets = pair.stop();
        for item in queue {
            if let Source::Kept { buffer, token, .. } = item.source {
                events.handle_send_returned(link, token, buffer);
            }
        }
        for (token, buffer) in offers.end() {
            events.handle_send_returned(link, token, buffer);
        }
        targets.extend(arriving.and_then(|arriving| arriving.target));
        for target in targets {
            events.handle_recv_retry(link, target);
        }
    }
}

/// A segment that has arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    InSlot {
        slot: u16,
        len: usize,
    },
    /// It was held behind a payload that was being read, and its credits have counted.
    Held(Vec<u8>),
}

/// The frame that is arriving, while a segment of its connection is handled.
#[derive(Debug)]
pub(crate) struct ArrivingFrame(Option<PartialPayload>);

impl ArrivingFrame {
    /// Whether the last frame is complete.
    pub(crate) const fn is_complete(&self) -> bool {
        self.0.is_none()
    }

    /// Places the next part of a payload; reports the frame when it is complete.
    fn take_part(
        &mut self,
        mut now: PartialPayload,
        link: LinkId,
        bytes: &[u8],
        events: &mut impl LinkEvents,
    ) -> Result<(), Down> {
        if bytes.len() > now.len - now.at {
            self.0 = Some(now);
            return Err(Down::violation("a payload is longer than its frame says"));
        }
        if let Some(RecvTarget { buffer, at, take, .. }) = &mut now.target {
            let wanted = &bytes[..bytes.len().min(take.saturating_sub(now.at))];
            now.unwritable |= buffer.write_at(*at + now.at, wanted) != wanted.len();
        }
        now.at += bytes.len();
        if now.at < now.len {
            self.0 = Some(now);
            return Ok(());
        }
        match now.target {
            None => Ok(()),
            Some(target) if now.unwritable => {
                events.handle_recv_failed(link, target, unwritable());
                Ok(())
            }
            Some(target) => events.handle_recv_done(link, target).map_err(violation),
        }
    }
}

impl Source {
    fn read(&self, at: usize, out: &mut [u8]) -> usize {
        match self {
            Self::Copied(bytes) => {
                let bytes = bytes.get(at..).unwrap_or_default();
                let count = bytes.len().min(out.len());
                out[..count].copy_from_slice(&bytes[..count]);
                count
            }
            Self::Kept { buffer, from, .. } => buffer.read_at(from + at, out),
        }
    }
}

#[cfg(test)]
mod tests;
