//! One of two communicating processes: its endpoint, with at most a window of operations in flight.

use ofi::{CompletionQueue, Domain, Done, Endpoint, Errno, Error, FiAddr, OpFlags, RemoteAddr};
use std::time::{Duration, Instant};

/// How long either side waits for the other before it gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Operations in flight while bandwidth is measured.
pub(crate) const WINDOW: usize = 32;

/// Empty polls of the queue before a side sleeps or checks the clock.
const SPINS: u32 = 20_000;

/// One side of a pair.
pub(crate) struct Side {
    ep: Endpoint,
    domain: Domain,
    cq: CompletionQueue,
    peer: FiAddr,
    /// Receives that have been posted.
    posted: usize,
    /// Sends and accesses that have not completed.
    sending: usize,
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

impl Side {
    pub(crate) const fn new(domain: Domain, ep: Endpoint, cq: CompletionQueue, peer: FiAddr, tagged: bool) -> Self {
        Self {
            ep,
            domain,
            cq,
            peer,
            posted: 0,
            sending: 0,
            latest: Vec::new(),
            spare: Vec::new(),
            tagged,
            checked: false,
        }
    }

    pub(crate) const fn domain(&self) -> &Domain {
        &self.domain
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
        self.ep
            .receive(self.tagged.then_some((0, u64::MAX)), buf)
            .map_err(|(errno, _)| Error::new(errno, "post a receive"))?;
        self.posted += 1;
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
        let (peer, tag) = (self.peer, self.tagged.then_some(1));
        self.post("send", buf, |ep, buf| ep.send(peer, tag, buf))
    }

    /// Sends a message of a few bytes, for which it takes none of the buffers.
    pub(crate) fn send_note(&mut self, note: &[u8]) -> Result<(), Error> {
        self.send_bytes(note.to_vec())
    }

    /// Sends the key of a region to the peer.
    pub(crate) fn send_key(&mut self, key: u64) -> Result<(), Error> {
        self.send_bytes(key.to_le_bytes().to_vec())
    }

    /// Waits for the peer's key.
    pub(crate) fn receive_key(&mut self) -> Result<u64, Error> {
        self.receive(size_of::<u64>())?;
        let checked = std::mem::replace(&mut self.checked, false);
        self.take()?;
        self.checked = checked;
        let key = self.latest.first_chunk().ok_or_else(|| failure("the peer sent no key"))?;
        Ok(u64::from_le_bytes(*key))
    }

    pub(crate) fn write(&mut self, to: RemoteAddr, size: usize) -> Result<(), Error> {
        let (peer, mut buf) = (self.peer, self.spare.pop().unwrap_or_default());
        // The buffer of a note, for example.
        if buf.len() != size {
            buf.resize(size, 0);
            fill(&mut buf);
        }
        self.post("write", buf, |ep, buf| ep.write(peer, to, buf))
    }

    pub(crate) fn read(&mut self, from: RemoteAddr, size: usize) -> Result<(), Error> {
        let (peer, buf) = (self.peer, self.buffer(size));
        self.post("read", buf, |ep, buf| ep.read(peer, from, buf))
    }

    pub(crate) fn fetch_add(&mut self, at: RemoteAddr, value: u64) -> Result<(), Error> {
        let peer = self.peer;
        self.post("fetch-add", Vec::new(), |ep, buf| ep.fetch_add(peer, at, value).map_err(|errno| (errno, buf)))
    }

    /// Posts an operation as soon as the window has room.
    fn post(
        &mut self,
        what: &str,
        mut buf: Vec<u8>,
        call: impl Fn(&Endpoint, Vec<u8>) -> Result<(), (Errno, Vec<u8>)>,
    ) -> Result<(), Error> {
        while self.sending >= WINDOW {
            self.step(false)?;
        }
        loop {
            match call(&self.ep, buf) {
                Ok(()) => {
                    self.sending += 1;
                    return Ok(());
                }
                Err((Errno::AGAIN, back)) => {
                    buf = back;
                    self.step(false)?;
                }
                Err((errno, _)) => return Err(Error::new(errno, what)),
            }
        }
    }

    /// Waits for a message.
    pub(crate) fn take(&mut self) -> Result<(), Error> {
        let before = self.posted;
        while self.posted == before {
            self.step(true)?;
        }
        Ok(())
    }

    /// Waits for a note of the peer, at most `limit`, and does not sleep: the peer's accesses to
    /// this side's memory need progress, but complete nothing here.
    pub(crate) fn take_note(&mut self, limit: Duration) -> Result<&[u8], Error> {
        let checked = std::mem::replace(&mut self.checked, false);
        let (before, begin) = (self.posted, now());
        while self.posted == before {
            for _ in 0..SPINS {
                self.step(false)?;
                if self.posted < before {
                    break;
                }
            }
            if self.posted == before && begin.elapsed() > limit {
                return Err(self.timed_out());
            }
            std::thread::yield_now();
        }
        self.checked = checked;
        Ok(&self.latest)
    }

    /// A timeout that describes the endpoint's state.
    fn timed_out(&self) -> Error {
        Error::new(Errno::ETIMEDOUT, format!("wait for the peer while:\n{}", self.ep.describe()))
    }

    /// Waits for a message in each posted receive.
    pub(crate) fn take_all(&mut self) -> Result<(), Error> {
        (0..self.posted).try_for_each(|_| self.take())
    }

    /// Waits until every send and access has completed.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while self.sending > 0 {
            self.step(true)?;
        }
        Ok(())
    }

    /// Handles one completion. With `must`, waits for it: spins for a while, then sleeps.
    fn step(&mut self, must: bool) -> Result<(), Error> {
        let mut empty = 0u32;
        loop {
            match self.cq.poll() {
                Some(Ok(done)) => return self.handle(done),
                Some(Err(failed)) => {
                    return Err(Error::new(failed.failure.errno, failed.failure.text.to_string()));
                }
                None if !must => return Ok(()),
                None => empty += 1,
            }
            if empty > SPINS {
                self.cq.wait(Some(PATIENCE)).map_err(|errno| Error::new(errno, "wait for the peer"))?;
                if empty > SPINS + 2 {
                    return Err(self.timed_out());
                }
            }
        }
    }

    fn handle(&mut self, Done { mut buf, completion }: Done) -> Result<(), Error> {
        let received = completion.flags.contains(OpFlags::RECV);
        if received {
            self.posted -= 1;
            buf.truncate(completion.len);
            if self.checked && !is_filled(&buf) {
                return Err(failure("a message arrived changed"));
            }
        } else {
            self.sending -= 1;
        }
        if received || completion.flags.contains(OpFlags::READ) {
            std::mem::swap(&mut self.latest, &mut buf);
        }
        // Atomic operations return buffers that are not from this pool.
        if self.spare.len() <= 2 * WINDOW {
            self.spare.push(buf);
        }
        Ok(())
    }
}
