//! One of two communicating processes: its endpoint, with at most a window of operations in flight.

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;
use ofi::{
    Completion, DatagramEndpoint, Domain, Errno, Error, Fetch, MsgEndpoint, Operation, OperationError, Peer,
    RdmEndpoint, RemoteKey, block_on,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long either side waits for the other before it gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Operations in flight while bandwidth is measured.
pub(crate) const WINDOW: usize = 32;

/// Empty polls of the queue before a side sleeps or checks the clock.
const SPINS: u32 = 20_000;

/// An endpoint and its peer.
#[derive(Debug)]
pub(crate) enum End {
    Rdm(RdmEndpoint, Peer),
    Msg(MsgEndpoint),
    Datagram(DatagramEndpoint, Peer),
}

/// An endpoint in its domain.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) domain: Domain,
    pub(crate) end: End,
}

/// An operation that completes at this side.
#[derive(Debug)]
enum Pending<'a> {
    Bytes(Operation<'a, Vec<u8>>),
    /// Its bytes are wanted.
    Read(Operation<'a, Vec<u8>>),
    Word(Fetch<'a, u64>),
}

/// How one of them ended: its bytes, and whether they are wanted.
type Finished = Result<(Vec<u8>, bool), OperationError>;

impl Pending<'_> {
    fn finished(wanted: bool, (result, buf): (Result<Completion, OperationError>, Vec<u8>)) -> Finished {
        result.map(|_| (buf, wanted))
    }

    fn of_word(result: Result<u64, OperationError>) -> Finished {
        result.map(|word| (word.to_ne_bytes().to_vec(), true))
    }

    fn try_finish(&mut self) -> Option<Finished> {
        match self {
            Self::Bytes(operation) => operation.try_finish().map(|ended| Self::finished(false, ended)),
            Self::Read(operation) => operation.try_finish().map(|ended| Self::finished(true, ended)),
            Self::Word(fetch) => fetch.try_finish().map(Self::of_word),
        }
    }

    fn timeout(self, limit: Duration) -> Self {
        match self {
            Self::Bytes(operation) => Self::Bytes(operation.timeout(limit)),
            Self::Read(operation) => Self::Read(operation.timeout(limit)),
            Self::Word(fetch) => Self::Word(fetch.timeout(limit)),
        }
    }
}

impl Future for Pending<'_> {
    type Output = Finished;
    fn poll(self: Pin<&mut Self>, context: &mut core::task::Context<'_>) -> Poll<Finished> {
        match self.get_mut() {
            Self::Bytes(operation) => Pin::new(operation).poll(context).map(|ended| Self::finished(false, ended)),
            Self::Read(operation) => Pin::new(operation).poll(context).map(|ended| Self::finished(true, ended)),
            Self::Word(fetch) => Pin::new(fetch).poll(context).map(Self::of_word),
        }
    }
}

/// One side of a pair.
pub(crate) struct Side<'a> {
    link: &'a Link,
    /// Receives that have been posted.
    posted: VecDeque<Operation<'a, Vec<u8>>>,
    /// Sends and accesses that have not completed.
    sending: VecDeque<Pending<'a>>,
    latest: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Messages are tagged.
    tagged: bool,
    /// Every received byte is verified.
    checked: bool,
}

/// The test pattern's byte at this offset.
const fn pattern(at: usize) -> u8 {
    at.to_le_bytes()[0].wrapping_mul(31).wrapping_add(0x5a)
}

/// Fills a buffer with the test pattern.
pub(crate) fn fill(bytes: &mut [u8]) {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
}

/// Whether a buffer has the test pattern.
pub(crate) fn is_filled(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| *byte == pattern(at))
}

pub(crate) fn failure(text: impl Into<String>) -> Error {
    Error::new(Errno::EOTHER, text.into())
}

#[allow(clippy::disallowed_methods, reason = "a tool reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The percentile of sorted values; 0 if there are none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0.0)
}

impl<'a> Side<'a> {
    /// Messages are tagged if `tagged` is true and the endpoint has tags.
    pub(crate) const fn new(link: &'a Link, tagged: bool) -> Self {
        let tagged = tagged && !matches!(link.end, End::Datagram(..));
        Self {
            link,
            posted: VecDeque::new(),
            sending: VecDeque::new(),
            latest: Vec::new(),
            spare: Vec::new(),
            tagged,
            checked: false,
        }
    }

    pub(crate) const fn domain(&self) -> &Domain {
        &self.link.domain
    }

    /// The bytes that arrived last: a message, or what a read or an atomic operation returned.
    pub(crate) fn latest(&self) -> &[u8] {
        &self.latest
    }

    /// Zeroes them: the next read into their buffer must replace them.
    pub(crate) fn clear_latest(&mut self) {
        self.latest.fill(0);
    }

    /// Sets whether every received byte is verified.
    pub(crate) const fn check(&mut self, on: bool) {
        self.checked = on;
    }

    /// Makes the buffers of `in_flight` operations at once, at most [`WINDOW`], from this one.
    /// Operations of its size use only these.
    pub(crate) fn set_buffers(&mut self, one: Vec<u8>, in_flight: usize) {
        // One more is taken before a window that is full, or is the latest.
        self.spare = vec![one; in_flight.min(WINDOW) + 1];
    }

    fn buffer(&mut self, size: usize) -> Vec<u8> {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.resize(size, 0x5a);
        buf
    }

    /// Posts a receive; 0-byte messages fit as well.
    pub(crate) fn receive(&mut self, size: usize) -> Result<(), Error> {
        let buf = self.buffer(size);
        self.posted.push_back(match (&self.link.end, self.tagged) {
            (End::Rdm(ep, _), true) => ep.receive_tagged(0, u64::MAX, buf),
            (End::Rdm(ep, _), false) => ep.receive(buf),
            (End::Msg(ep), true) => ep.receive_tagged(0, u64::MAX, buf),
            (End::Msg(ep), false) => ep.receive(buf),
            (End::Datagram(ep, _), _) => ep.receive(buf),
        });
        Ok(())
    }

    /// Sends a message of this size.
    pub(crate) fn send(&mut self, size: usize) -> Result<(), Error> {
        let mut buf = self.buffer(size);
        if self.checked {
            fill(&mut buf);
        }
        self.send_bytes(buf)
    }

    fn send_bytes(&mut self, buf: Vec<u8>) -> Result<(), Error> {
        self.make_room()?;
        self.sending.push_back(Pending::Bytes(match (&self.link.end, self.tagged) {
            (End::Rdm(ep, peer), true) => ep.send_tagged(*peer, 1, buf),
            (End::Rdm(ep, peer), false) => ep.send(*peer, buf),
            (End::Msg(ep), true) => ep.send_tagged(1, buf),
            (End::Msg(ep), false) => ep.send(buf),
            (End::Datagram(ep, peer), _) => ep.send(*peer, buf),
        }));
        Ok(())
    }

    /// Sends a message of a few bytes, for which it takes none of the buffers.
    pub(crate) fn send_note(&mut self, note: &[u8]) -> Result<(), Error> {
        self.send_bytes(note.to_vec())
    }

    /// Sends the key of a region to the peer.
    pub(crate) fn send_key(&mut self, key: RemoteKey) -> Result<(), Error> {
        self.send_bytes(key.to_bytes().to_vec())
    }

    /// Waits for the peer's key.
    pub(crate) fn receive_key(&mut self) -> Result<RemoteKey, Error> {
        self.receive(RemoteKey::BYTES)?;
        let checked = std::mem::replace(&mut self.checked, false);
        self.take()?;
        self.checked = checked;
        RemoteKey::from_bytes(&self.latest).ok_or_else(|| failure("the peer sent no key"))
    }

    pub(crate) fn write(&mut self, to: RemoteKey, size: usize) -> Result<(), Error> {
        let mut buf = self.spare.pop().unwrap_or_default();
        // The buffer of a note, for example.
        if buf.len() != size {
            buf.resize(size, 0);
            fill(&mut buf);
        }
        self.make_room()?;
        self.sending.push_back(Pending::Bytes(match &self.link.end {
            End::Rdm(ep, peer) => ep.write(*peer, to, buf),
            End::Msg(ep) => ep.write(to, buf),
            End::Datagram(..) => return Err(no_accesses()),
        }));
        Ok(())
    }

    pub(crate) fn read(&mut self, from: RemoteKey, size: usize) -> Result<(), Error> {
        let buf = self.buffer(size);
        self.make_room()?;
        self.sending.push_back(Pending::Read(match &self.link.end {
            End::Rdm(ep, peer) => ep.read(*peer, from, buf),
            End::Msg(ep) => ep.read(from, buf),
            End::Datagram(..) => return Err(no_accesses()),
        }));
        Ok(())
    }

    pub(crate) fn fetch_add(&mut self, at: RemoteKey, value: u64) -> Result<(), Error> {
        self.make_room()?;
        self.sending.push_back(Pending::Word(match &self.link.end {
            End::Rdm(ep, peer) => ep.fetch_add(*peer, at, value),
            End::Msg(ep) => ep.fetch_add(at, value),
            End::Datagram(..) => return Err(no_accesses()),
        }));
        Ok(())
    }

    /// Waits until the window has room for another operation.
    fn make_room(&mut self) -> Result<(), Error> {
        while self.sending.len() >= WINDOW {
            self.finish_oldest()?;
        }
        Ok(())
    }

    /// Waits for a message.
    pub(crate) fn take(&mut self) -> Result<(), Error> {
        let Some(mut oldest) = self.posted.pop_front() else { return Err(failure("no receive is posted")) };
        for spin in 1..=SPINS {
            if let Some((result, buf)) = oldest.try_finish() {
                return self.taken(result, buf);
            }
            if spin % 64 == 0 {
                self.reap()?;
            }
        }
        let mut oldest = oldest.timeout(PATIENCE);
        let sending = &mut self.sending;
        // A send that fails says why no message comes.
        let (received, sent) = block_on(poll_fn(|context| {
            if let Poll::Ready(received) = Pin::new(&mut oldest).poll(context) {
                return Poll::Ready((Some(received), None));
            }
            match sending.front_mut().map(|sent| Pin::new(sent).poll(context)) {
                Some(Poll::Ready(sent)) => Poll::Ready((None, Some(sent))),
                _ => Poll::Pending,
            }
        }));
        if let Some(sent) = sent {
            self.sending.pop_front();
            self.posted.push_front(oldest);
            self.finished(sent)?;
            return self.take();
        }
        let Some((result, buf)) = received else { return Err(self.timed_out()) };
        self.taken(result, buf)
    }

    fn taken(&mut self, result: Result<Completion, OperationError>, mut buf: Vec<u8>) -> Result<(), Error> {
        let completion = result.map_err(|error| self.explain(error))?;
        buf.truncate(completion.len());
        if self.checked && !is_filled(&buf) {
            return Err(failure("a message arrived changed"));
        }
        std::mem::swap(&mut self.latest, &mut buf);
        self.keep(buf);
        Ok(())
    }

    fn keep(&mut self, buf: Vec<u8>) {
        // Atomic operations return buffers that are not from this pool.
        if self.spare.len() <= 2 * WINDOW {
            self.spare.push(buf);
        }
    }

    /// Waits for a note of the peer, at most `limit`, and does not sleep: the peer's accesses to
    /// this side's memory need progress, but complete nothing here.
    pub(crate) fn take_note(&mut self, limit: Duration) -> Result<&[u8], Error> {
        let checked = std::mem::replace(&mut self.checked, false);
        let begin = now();
        let Some(mut oldest) = self.posted.pop_front() else { return Err(failure("no receive is posted")) };
        'note: loop {
            for _ in 0..SPINS {
                if let Some((result, buf)) = oldest.try_finish() {
                    self.taken(result, buf)?;
                    break 'note;
                }
            }
            self.reap()?;
            if begin.elapsed() > limit {
                return Err(self.timed_out());
            }
            std::thread::yield_now();
        }
        self.checked = checked;
        Ok(&self.latest)
    }

    /// A timeout that describes the endpoint's state.
    fn timed_out(&self) -> Error {
        let state = match &self.link.end {
            End::Rdm(ep, _) => ep.describe(),
            End::Msg(ep) => ep.describe(),
            End::Datagram(ep, _) => format!("{ep:?}"),
        };
        Error::new(Errno::ETIMEDOUT, format!("wait for the peer while:\n{state}"))
    }

    fn explain(&self, error: OperationError) -> Error {
        if error.errno() == Errno::ETIMEDOUT { self.timed_out() } else { error.into() }
    }

    /// Waits for a message in each posted receive.
    pub(crate) fn take_all(&mut self) -> Result<(), Error> {
        (0..self.posted.len()).try_for_each(|_| self.take())
    }

    /// Waits until every send and access has completed.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while !self.sending.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    /// Takes what has completed.
    fn reap(&mut self) -> Result<(), Error> {
        while let Some(finished) = self.sending.front_mut().and_then(Pending::try_finish) {
            self.sending.pop_front();
            self.finished(finished)?;
        }
        Ok(())
    }

    /// Waits for the oldest send or access: spins for a while, then sleeps.
    fn finish_oldest(&mut self) -> Result<(), Error> {
        let Some(mut oldest) = self.sending.pop_front() else { return Ok(()) };
        let spun = (0..SPINS).find_map(|_| oldest.try_finish());
        let finished = spun.unwrap_or_else(|| block_on(oldest.timeout(PATIENCE)));
        self.finished(finished)
    }

    fn finished(&mut self, finished: Finished) -> Result<(), Error> {
        let (mut buf, wanted) = finished.map_err(|error| self.explain(error))?;
        if wanted {
            std::mem::swap(&mut self.latest, &mut buf);
        }
        self.keep(buf);
        Ok(())
    }
}

fn no_accesses() -> Error {
    failure("datagram endpoints have no one-sided operations")
}
