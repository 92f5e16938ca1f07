//! One side of a connection: an identifier of the connection manager with its queue pair.
#![allow(unsafe_code)]

use super::chain::Chain;
use super::channel::Channel;
use super::done::Done;
use super::identifier::{Identifier, result};
use super::layout::{
    CmId, ConnParam, QPT_RC, QpInitAttr, SEND_INLINE, SEND_SIGNALED, SendWr, Sge, WC_FLUSHED, WC_RETRY_EXCEEDED,
    WR_RDMA_READ,
};
use super::memory::{Memory, Registered, Slots, range_of};
use super::pool::{Arrived, Pool, SendSlot};
use super::queue::Queue;
use super::reads::{Destination, Read, Reads};
use super::window::{Lent, WINDOWS, Windows};
use crate::device::{Exposed, Pair, Place, READS, RECEIVES, Ring, SENDS, SLOT, Work};
use crate::kept::Access;
use core::ffi::c_void;
use core::ptr::NonNull;
use ofi_core::{Cause, Errno};
use ofi_engine::transport::{Down, RecvTarget};
use ofi_memory::Buffer;
use std::io;
use std::sync::Arc;

/// How often a device repeats a segment that is not acknowledged.
const RETRIES: u8 = 7;
/// With the number of a read, this makes that of its work request; those that send have smaller
/// ones.
const READ: u64 = 1 << 15;
/// How often a device tries again to send a segment for which the peer had no slot: without end,
/// since the peer's host acknowledges.
const ALWAYS: u8 = 7;
/// Reads of a connection that the devices carry out at a time: as many as both can
/// (RDMA_MAX_RESP_RES of rdma/rdma_cma.h).
const MOST_AT_ONCE: u8 = u8::MAX;

/// How far connecting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Address,
    Route,
    Later,
}

/// One side of a connection. Invariant: `joined` is the identifier's queue pair.
#[derive(Debug)]
pub struct QueuePair {
    pub(super) id: Identifier,
    pub(super) key: u64,
    pub(super) stage: Stage,
    /// The private data to connect with.
    pub(super) data: Vec<u8>,
    pub(super) joined: Option<Joined>,
}

/// A queue pair with the slots that it holds. They are in the pool again before it leaves that.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) queue: Arc<Queue>,
    pool: Arc<Pool>,
    pub(super) memory: Arc<Memory>,
    /// Segments up to this length go along with the work.
    inline: usize,
    /// Where segments have arrived that are not yet handled.
    arrived: Vec<Arrived>,
    ring: Ring,
    leaving: Leaving,
    chain: Chain,
    windows: Windows,
    reads: Reads,
    /// A slot for a read whose target the device cannot reach, once there was one.
    copies: Option<Slots>,
    /// The queue pair is destroyed.
    is_stopped: bool,
}

/// The slots of the segments in the ring, and of the next one; and how many there are.
#[derive(Debug, Default)]
struct Leaving {
    slots: [Option<SendSlot>; SENDS as usize],
    held: usize,
}

impl Leaving {
    fn get(&self, at: u16) -> Option<&SendSlot> {
        self.slots[usize::from(at)].as_ref()
    }

    /// The slot for a segment at this place of the ring, unless it has to wait for one.
    fn slot_at(&mut self, pool: &Pool, at: u16) -> Option<&mut SendSlot> {
        let slot = &mut self.slots[usize::from(at)];
        if slot.is_none() {
            *slot = pool.take(self.held);
            self.held += usize::from(slot.is_some());
        }
        slot.as_mut()
    }

    fn put_back(&mut self, pool: &Pool, at: u16) {
        if let Some(slot) = self.slots[usize::from(at)].take() {
            self.held -= 1;
            pool.put(slot, self.held);
        }
    }
}

impl Joined {
    fn take_arrived(&mut self, slot: u16) -> Option<Arrived> {
        let at = self.arrived.iter().position(|arrived| arrived.slot == slot)?;
        Some(self.arrived.swap_remove(at))
    }

    /// The device has sent the segments up to `number`.
    fn complete(&mut self, number: u16) {
        for number in self.ring.complete(number) {
            self.leaving.put_back(&self.pool, number % SENDS);
        }
        if self.pool.is_short()
            && self.ring.is_empty()
            && let Some(next) = self.ring.slot()
        {
            self.leaving.put_back(&self.pool, next);
        }
    }
}

// SAFETY: librdmacm and libibverbs may be called from any thread for the same objects.
unsafe impl Send for QueuePair {}

impl QueuePair {
    pub(super) const fn new(id: NonNull<CmId>, channel: Arc<Channel>, key: u64, stage: Stage, data: Vec<u8>) -> Self {
        Self { id: Identifier::new(id, channel), key, stage, data, joined: None }
    }

    /// Gives the identifier another key, which its events report.
    pub(super) fn set_key(&mut self, key: u64) {
        self.key = key;
        self.id.set_key(key);
        if let Some(joined) = &self.joined {
            joined.queue.set_key(self.id.number(), key);
        }
    }

    /// Starts to find the route.
    pub(super) fn resolve_route(&mut self, timeout: i32) -> io::Result<()> {
        self.stage = Stage::Route;
        self.id.resolve_route(timeout)
    }

    /// Creates the queue pair, which finds slots for receiving from the beginning.
    pub(super) fn join(&mut self, queue: Arc<Queue>, pool: Arc<Pool>, memory: Arc<Memory>) -> io::Result<()> {
        pool.join()?;
        let attributes = QpInitAttr::new(QPT_RC, (queue.cq(), SENDS + WINDOWS + READS), (queue.cq(), RECEIVES));
        let mut attributes = pool.attributes(attributes);
        let inline = self.id.create_pair(&queue.domain, &mut attributes).inspect_err(|_| pool.leave())?;
        let qp = self.id.pair();
        queue.add(self.id.number(), self.key, &pool);
        // SAFETY: `stop` destroys the queue pair, and leaves the pool.
        let posted = if pool.is_shared() { Ok(()) } else { unsafe { pool.own(qp) } };
        self.joined = Some(Joined {
            queue,
            pool,
            memory,
            inline,
            arrived: Vec::new(),
            ring: Ring::default(),
            leaving: Leaving::default(),
            chain: Chain::new(),
            windows: Windows::default(),
            reads: Reads::default(),
            copies: None,
            is_stopped: false,
        });
        posted
    }

    fn parameters(&self, data: &[u8]) -> ConnParam {
        ConnParam {
            private_data: data.as_ptr().cast(),
            private_data_len: u8::try_from(data.len()).unwrap_or(0),
            responder_resources: MOST_AT_ONCE,
            initiator_depth: MOST_AT_ONCE,
            flow_control: 1,
            retry_count: RETRIES,
            // In a pool of its own, credits guarantee it a slot.
            rnr_retry_count: if self.joined.as_ref().is_some_and(|joined| joined.pool.is_shared()) {
                ALWAYS
            } else {
                0
            },
            srq: 0,
            qp_num: 0,
        }
    }

    /// Requests the connection.
    pub(super) fn request(&mut self) -> io::Result<()> {
        self.stage = Stage::Later;
        let mut parameters = self.parameters(&self.data);
        // SAFETY: the identifier is open and has a queue pair; the data outlives the call.
        result(unsafe { (self.id.channel.libraries.cm.rdma_connect)(self.id.raw(), &mut parameters) })
    }

    /// Accepts the connection.
    pub(super) fn answer(&mut self, data: &[u8]) -> io::Result<()> {
        let mut parameters = self.parameters(data);
        // SAFETY: as for `request`.
        result(unsafe { (self.id.channel.libraries.cm.rdma_accept)(self.id.raw(), &mut parameters) })
    }

    fn failed(&self, status: i32) -> Down {
        let (errno, text) = match status {
            WC_FLUSHED => (Errno::ECONNRESET, "it has ended".to_owned()),
            WC_RETRY_EXCEEDED => (Errno::ETIMEDOUT, "the peer's host does not acknowledge".to_owned()),
            other => (Errno::EIO, format!("work failed with status {other} of ibv_wc_status_str(3)")),
        };
        self.broken(errno, &text)
    }

    fn unusable(&self, error: &io::Error) -> Down {
        let errno = Errno::from(error);
        self.broken(errno, &format!("read the peer's memory: {error}"))
    }

    fn broken(&self, errno: Errno, text: &str) -> Down {
        let peer = self.id.address(true).map_or_else(String::new, |peer| format!(" to {peer}"));
        Down::new(Cause::Broken, errno, format!("connection{peer}: {text}"))
    }

    /// Adds a segment to the chain. `ends` is the key of a window of the peer that it ends.
    fn add_send(&mut self, len: usize, last: bool, ends: Option<u32>) -> io::Result<()> {
        let Some(joined) = self.joined.as_mut().filter(|joined| !joined.is_stopped) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let Some(slot) = joined.ring.slot() else { return Err(io::ErrorKind::WouldBlock.into()) };
        let Some(place) = joined.leaving.get(slot) else { return Err(io::ErrorKind::WouldBlock.into()) };
        let (addr, lkey) = (place.address(), place.lkey);
        let piece = Sge { addr, length: u32::try_from(len.min(SLOT)).unwrap_or(0), lkey };
        // Without another slot, or room in the ring, the next segment waits for this one's
        // completion.
        let is_last = joined.leaving.slot_at(&joined.pool, (slot + 1) % SENDS).is_none() || joined.ring.is_last();
        let (number, reports) = joined.ring.take(last || is_last);
        let flags = if reports { SEND_SIGNALED } else { 0 } | if len <= joined.inline { SEND_INLINE } else { 0 };
        let is_added = joined.chain.add_segment(u64::from(number), piece, flags, ends);
        if is_added { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Has the device read what it can now.
    fn post_reads(&mut self) -> io::Result<()> {
        while let Some(number) = self.joined.as_mut().and_then(|joined| joined.reads.next()) {
            let posted = self.post_read(number);
            if posted.is_err() {
                // No completion will come.
                self.joined.iter_mut().for_each(|joined| joined.reads.part_done());
                return posted;
            }
        }
        Ok(())
    }

    /// Has the device read the next part of the peer's memory.
    fn post_read(&mut self, number: u16) -> io::Result<()> {
        let qp = self.id.pair();
        let missing = || io::Error::from(io::ErrorKind::NotConnected);
        let joined = self.joined.as_mut().filter(|joined| !joined.is_stopped).ok_or_else(missing)?;
        let read = joined.reads.get(number).ok_or_else(missing)?;
        let (offset, from) = (read.part.start as u64, read.from);
        let (addr, lkey) = match &read.into {
            Destination::Registered(memory) => (memory.address() + offset, memory.lkey()),
            Destination::Copied(_) => {
                let slots = joined.copies.as_ref().ok_or_else(missing)?;
                (slots.address(0), slots.lkey())
            }
        };
        let mut piece = Sge { addr, length: u32::try_from(read.part.len()).unwrap_or(0), lkey };
        let mut others = [0; 11];
        others[0] = from.address.wrapping_add(offset);
        let [a, b, c, d] = from.key.to_ne_bytes();
        others[1] = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
        let mut work = SendWr {
            wr_id: READ + u64::from(number),
            sg_list: &mut piece,
            num_sge: 1,
            opcode: WR_RDMA_READ,
            send_flags: SEND_SIGNALED,
            others,
            ..SendWr::EMPTY
        };
        // SAFETY: the queue pair is open. The piece is part of registered memory, which `reads`
        // keeps until the read has completed or the queue pair is destroyed, or the slot for
        // copies, which nothing else uses.
        unsafe { joined.queue.domain.post_send(qp, &mut work) }
    }

    /// The device has read a part. Copies it if it is in the slot, and goes on; what is to be
    /// reported.
    fn end_part(&mut self, number: u16) -> Work {
        let Some(joined) = &mut self.joined else { return Work::Sent };
        joined.reads.part_done();
        let Some(read) = joined.reads.get_mut(number) else { return Work::Sent };
        if let (Destination::Copied(buffer), Some(copies)) = (&mut read.into, &joined.copies) {
            // SAFETY: the device has read the part, and has the slot no more.
            let bytes = unsafe { copies.bytes(0) };
            let bytes = &bytes[..read.part.len()];
            read.is_unwritable |= buffer.write_at(read.at + read.part.start, bytes) != bytes.len();
        }
        let goes_on = read.advance();
        let work = if goes_on { Work::Sent } else { Work::Read { number, is_whole: !read.is_unwritable } };
        if goes_on {
            joined.reads.go_on(number);
        }
        match self.post_reads() {
            Ok(()) => work,
            Err(error) => Work::Failed(self.unusable(&error)),
        }
    }

    /// Starts a read; without success the target comes back.
    fn start_read(&mut self, number: u16, read: Read) -> Result<(), (RecvTarget, io::Error)> {
        let qp = self.id.pair();
        let Some(joined) = self.joined.as_mut().filter(|joined| !joined.is_stopped && number < READS) else {
            return Err((read.end(), io::ErrorKind::NotConnected.into()));
        };
        if !joined.reads.is_depth_known() {
            // SAFETY: the queue pair is open.
            joined.reads.set_depth(unsafe { joined.queue.domain.reads_at_once(qp) });
        }
        joined.reads.add(number, read);
        self.post_reads().or_else(|error| self.take_read(number).map_or(Ok(()), |target| Err((target, error))))
    }
}

impl Pair for QueuePair {
    type Done = Done;
    type Exposed = Lent;

    fn key(&self) -> u64 {
        self.key
    }

    fn claim(&mut self, done: Done) -> Option<Work> {
        if done.key != self.key {
            return None;
        }
        if done.status != 0 {
            return Some(Work::Failed(self.failed(done.status)));
        }
        let joined = self.joined.as_mut()?;
        let Some(arrived) = done.arrived else {
            if let Some(number) = done.number.checked_sub(READ) {
                return Some(self.end_part(u16::try_from(number).ok()?));
            }
            joined.complete(u16::try_from(done.number).ok()?);
            return Some(Work::Sent);
        };
        if let Some(key) = done.ended {
            joined.windows.note_ended(key);
        }
        let slot = arrived.slot;
        joined.arrived.push(arrived);
        Some(Work::Received { slot, len: done.len })
    }

    fn received(&self, slot: u16) -> &[u8] {
        let arrived =
            self.joined.as_ref().and_then(|joined| joined.arrived.iter().find(|arrived| arrived.slot == slot));
        arrived.map_or(&[], Arrived::bytes)
    }

    fn post_receive(&mut self, slot: u16) -> io::Result<()> {
        let joined = self.joined.as_mut().filter(|joined| !joined.is_stopped);
        joined.and_then(|joined| joined.take_arrived(slot)).ok_or(io::ErrorKind::InvalidInput)?.post()
    }

    fn send_slot(&mut self) -> Option<&mut [u8]> {
        let joined = self.joined.as_mut().filter(|joined| !joined.is_stopped)?;
        let slot = joined.leaving.slot_at(&joined.pool, joined.ring.slot()?)?;
        // SAFETY: the device has only slots that are in the ring, and this one is the next; the
        // pool exists.
        Some(unsafe { slot.bytes_mut() })
    }

    fn send(&mut self, len: usize) -> io::Result<()> {
        self.add_send(len, false, None)
    }

    fn send_last(&mut self, len: usize) -> io::Result<()> {
        self.add_send(len, true, None)
    }

    fn send_ending(&mut self, len: usize, key: u32) -> io::Result<()> {
        self.add_send(len, false, Some(key))
    }

    fn flush(&mut self) -> io::Result<()> {
        let qp = self.id.pair();
        let may = |joined: &&mut Joined| !joined.is_stopped && joined.chain.count > 0;
        let Some(joined) = self.joined.as_mut().filter(may) else { return Ok(()) };
        if joined.pool.is_short()
            && let Some(last) = joined.chain.last_segment()
            && joined.ring.report_last()
        {
            last.send_flags |= SEND_SIGNALED;
        }
        let Some(first) = joined.chain.link() else { return Ok(()) };
        // SAFETY: the queue pair is open. Each piece is a slot, which is the device's until its
        // number completes; a window's registration lasts until that is ended or freed.
        let posted = unsafe { joined.queue.domain.post_send(qp, first.as_ptr()) };
        joined.windows.note_posted();
        posted
    }

    fn is_sent(&self) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.ring.is_done())
    }

    fn expose(&mut self, buffer: Buffer, from: usize, len: usize) -> Result<Lent, (Buffer, io::Error)> {
        let Some(joined) = self.joined.as_mut().filter(|joined| !joined.is_stopped) else {
            return Err((buffer, io::ErrorKind::NotConnected.into()));
        };
        let memory = Registered::new(&joined.memory, buffer, (from, len), Access::Windows)?;
        let Joined { memory: shared, windows, chain, .. } = joined;
        windows.lend(&shared.domain, memory, |work| chain.add(work, Sge::EMPTY))
    }

    fn knows(&self, buffer: &Buffer, from: usize, len: usize) -> bool {
        let may = |joined: &&Joined| joined.memory.domain.may_expose() && !matches!(buffer, Buffer::Owned(_));
        let joined = self.joined.as_ref().filter(may);
        let range = range_of(buffer, (from, len));
        joined.zip(range).is_some_and(|(joined, range)| joined.memory.kept().knows(&range))
    }

    fn note(&mut self, buffer: &Buffer, from: usize, len: usize) {
        let joined = self.joined.as_ref().filter(|_| !matches!(buffer, Buffer::Owned(_)));
        if let Some((joined, range)) = joined.zip(range_of(buffer, (from, len))) {
            joined.memory.kept().note(&range);
        }
    }

    fn take_back(&mut self, exposed: Lent) -> Result<Buffer, Lent> {
        match &mut self.joined {
            // The windows are freed.
            Some(joined) if joined.is_stopped => Ok(exposed.withdraw()),
            Some(joined) => joined.windows.take_back(exposed),
            None => Err(exposed),
        }
    }

    fn read(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        let Some(joined) = &self.joined else { return Err((target, io::ErrorKind::NotConnected.into())) };
        let RecvTarget { buffer, at, take, offer } = target;
        match Registered::new(&joined.memory, buffer, (at, take), Access::Write) {
            Ok(memory) => self.start_read(number, Read::new(Destination::Registered(memory), from, (at, take), offer)),
            Err((buffer, error)) => Err((RecvTarget { buffer, at, take, offer }, error)),
        }
    }

    fn read_copied(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        if let Some(joined) = self.joined.as_mut().filter(|joined| joined.copies.is_none()) {
            match Slots::new(&joined.memory.domain, 1) {
                Ok(slots) => joined.copies = Some(slots),
                Err(error) => return Err((target, error)),
            }
        }
        let RecvTarget { buffer, at, take, offer } = target;
        self.start_read(number, Read::new(Destination::Copied(buffer), from, (at, take), offer))
    }

    fn take_read(&mut self, number: u16) -> Option<RecvTarget> {
        self.joined.as_mut()?.reads.take(number).map(Read::end)
    }

    fn stop(&mut self) -> Vec<RecvTarget> {
        let number = self.id.number();
        let Some(joined) = self.joined.as_mut().filter(|joined| !joined.is_stopped) else { return Vec::new() };
        joined.is_stopped = true;
        let cm = &self.id.channel.libraries.cm;
        // SAFETY: the identifier is open. Without a connection the call fails, which is fine.
        unsafe { (cm.rdma_disconnect)(self.id.raw()) };
        // Before the queue pair: rxe waits for its windows, for a second.
        joined.windows.end();
        joined.queue.find_completions();
        // SAFETY: the identifier has a queue pair; afterwards the device has none of its memory.
        unsafe { (cm.rdma_destroy_qp)(self.id.raw()) };
        joined.queue.find_completions();
        joined.queue.remove(number);
        (0..SENDS).for_each(|slot| joined.leaving.put_back(&joined.pool, slot));
        joined.pool.leave();
        joined.reads.end().map(Read::end).collect()
    }

    fn reject(self, data: &[u8]) {
        let len = u8::try_from(data.len()).unwrap_or(0);
        // SAFETY: the identifier is open and is a request; the data outlives the call.
        unsafe { (self.id.channel.libraries.cm.rdma_reject)(self.id.raw(), data.as_ptr().cast::<c_void>(), len) };
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        drop(self.stop());
    }
}
