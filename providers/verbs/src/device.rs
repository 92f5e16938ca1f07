//! What the transport needs of a device: connections between queue pairs whose buffers are divided
//! into slots. [`crate::ffi::System`] is the system's; the conformance suite brings one of its own,
//! so that the transport is tested where no device is.
//! Invariant: the device and the program never use a slot at the same time. A slot for receiving
//! is the device's from [`Pair::post_receive`] to its completion; those for sending are a ring.
//! Connections may share their slots: credits bound how many a peer can fill.
//! Memory of the application is the device's while a [`Exposed`] or an unfinished [`Pair::read`]
//! holds the buffer.

use core::fmt::Debug;
use core::ops::Range;
use core::time::Duration;
use ofi_core::Instant;
use ofi_core::wait::Descriptor;
use ofi_engine::transport::{Down, RecvTarget};
use ofi_memory::Buffer;
use std::io;
use std::net::SocketAddr;

/// Bytes of a slot.
pub const SLOT: usize = 8 << 10;
/// Slots of a connection in which its peer's segments arrive.
pub const RECEIVES: u16 = 32;
/// Slots of a connection that hold segments until the peer's device has them.
pub const SENDS: u16 = 16;
/// Every so many sends one reports its completion, which stands for those before it too.
pub const REPORT_EVERY: u16 = SENDS / 4;
/// Payloads of the peer that a connection reads at a time.
pub const READS: u16 = 32;
/// Registered bytes of a connection that does not share its slots.
pub const REGISTERED: usize = (RECEIVES as usize + SENDS as usize) * SLOT;
/// Bytes of memory of a connection that shares its slots with many: one slot, and its queue pair.
pub const SHARING: usize = 3 * SLOT;

/// What the connection manager reports. Keys are those of [`Pair::key`].
#[derive(Debug)]
pub enum Event<P> {
    /// A peer requests a connection, with private data.
    Requested {
        /// This side of the connection, for [`Device::accept`] or [`Pair::reject`].
        pair: P,
        /// The peer's address.
        from: SocketAddr,
        /// The private data.
        data: Vec<u8>,
    },
    /// The peer's address or the route is known: [`Device::advance`] continues.
    Resolved(u64),
    /// The peer has accepted, with private data.
    Connected(u64, Vec<u8>),
    /// The peer has refused, with private data.
    Rejected(u64, Vec<u8>),
    /// The connection has ended, or cannot be made.
    Ended(u64, Down),
}

/// A completed piece of work.
#[derive(Debug)]
pub enum Work {
    /// A segment has arrived in this slot.
    Received {
        /// The slot.
        slot: u16,
        /// Bytes of the segment.
        len: usize,
    },
    /// The peer's device has this segment and all before it.
    Sent,
    /// The payload that [`Pair::read`] or [`Pair::read_copied`] reads is in place, unless the
    /// target's memory cannot be written.
    Read {
        /// Its number.
        number: u16,
        /// All of it is.
        is_whole: bool,
    },
    /// The connection is unusable.
    Failed(Down),
}

/// A device at one address, with its completion queues and the connection manager.
pub trait Device: Sized + Send + Debug + 'static {
    /// One side of a connection.
    type Pair: Pair<Done = Self::Done>;
    /// A completion.
    type Done: Debug + Send;

    /// The address.
    fn local_addr(&self) -> SocketAddr;
    /// Starts to connect. `slot` (24 bits) becomes the lower part of the key; the peer gets `data`
    /// (at most 56 bytes) with the request.
    ///
    /// # Errors
    /// The system's: no memory, no descriptors.
    fn connect(&mut self, slot: u32, to: SocketAddr, data: &[u8]) -> io::Result<Self::Pair>;
    /// Continues to connect after [`Event::Resolved`].
    ///
    /// # Errors
    /// Why that is impossible.
    fn advance(&mut self, pair: &mut Self::Pair) -> Result<(), Down>;
    /// Accepts a connection; the peer gets `data`. All slots for receiving are posted before.
    ///
    /// # Errors
    /// Why that is impossible: no memory, or more of it would be locked than the limit allows.
    fn accept(&mut self, slot: u32, pair: &mut Self::Pair, data: &[u8]) -> Result<(), Down>;
    /// Takes over a connection that another device object has accepted. From now on its events and
    /// completions come from here.
    ///
    /// # Errors
    /// The system's.
    fn attach(&mut self, slot: u32, pair: &mut Self::Pair) -> io::Result<()>;
    /// Reports nothing more of a connection, which another device object may take over.
    fn release(&mut self, pair: &mut Self::Pair);
    /// Appends what the connection manager has to report.
    fn poll_events(&mut self, out: &mut Vec<Event<Self::Pair>>);
    /// Appends completions: a batch of each queue, and those that ends of connections have found.
    /// In order for each connection. True if there may be more.
    fn poll_completions(&mut self, out: &mut Vec<Self::Done>) -> bool;
    /// The key of a completion's connection.
    fn key_of(done: &Self::Done) -> u64;
    /// Sleeps until an event, a completion or the timeout.
    fn wait(&mut self, timeout: Duration);
    /// Makes the descriptor report completions too, until [`Self::disarm`], even if another thread
    /// polls meanwhile. True if there are some, or events.
    fn arm(&mut self) -> bool;
    /// The descriptor need not report completions any longer.
    fn disarm(&mut self);
    /// Makes the descriptor readable until the next [`Self::poll_events`].
    fn wake(&mut self);
    /// The descriptor that becomes readable on events and, once armed, on completions.
    fn descriptor(&self) -> Descriptor;
    /// The current time.
    fn now(&self) -> Instant;
    /// The same as of the last tick of a coarse clock, which is cheaper.
    fn tick(&self) -> Instant;
    /// An unpredictable random number.
    fn random(&mut self) -> [u8; 16];
    /// Bytes of memory that one more connection takes.
    fn cost(&self) -> usize;
}

/// Where a peer's payload lies for this side's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its first byte in the peer's address space.
    pub address: u64,
    /// The key of its window.
    pub key: u32,
}

/// A payload that the peer's device may read.
pub trait Exposed: Send + Debug + 'static {
    /// Where it lies for the peer's device.
    fn place(&self) -> Place;
    /// The buffer, which nothing reads any longer, because the connection is stopped.
    fn withdraw(self) -> Buffer;
}

/// One side of a connection. Dropping it ends the connection.
pub trait Pair: Send + Debug + 'static {
    /// A completion.
    type Done;
    /// A payload that the peer may read.
    type Exposed: Exposed;

    /// Its key: the slot, and a generation above it.
    fn key(&self) -> u64;
    /// Takes a completion of this connection; `None` if it is of an earlier one.
    fn claim(&mut self, done: Self::Done) -> Option<Work>;
    /// The bytes of a slot for receiving; empty while the device has it.
    fn received(&self, slot: u16) -> &[u8];
    /// Gives a slot for receiving to the device.
    ///
    /// # Errors
    /// The connection is unusable.
    fn post_receive(&mut self, slot: u16) -> io::Result<()>;
    /// The next slot for sending, unless all are in use.
    fn send_slot(&mut self) -> Option<&mut [u8]>;
    /// The device gets the first `len` bytes of that slot, to send them from the next
    /// [`Self::flush`] on.
    ///
    /// # Errors
    /// The connection is unusable.
    fn send(&mut self, len: usize) -> io::Result<()>;
    /// As [`Self::send`]; reports the completion.
    ///
    /// # Errors
    /// The connection is unusable.
    fn send_last(&mut self, len: usize) -> io::Result<()>;
    /// As [`Self::send`]; when the segment arrives, the peer's device ends the peer's window with
    /// this key ([`Place::key`]).
    ///
    /// # Errors
    /// The connection is unusable.
    fn send_ending(&mut self, len: usize, key: u32) -> io::Result<()>;
    /// Makes the device send, in one call for all segments.
    ///
    /// # Errors
    /// The connection is unusable.
    fn flush(&mut self) -> io::Result<()>;
    /// Whether the peer's device has every segment whose completion is reported.
    fn is_sent(&self) -> bool;
    /// Lets the peer's device read `len` bytes of a buffer from `from` on, through a window.
    ///
    /// # Errors
    /// Why the device cannot reach them: the memory is absent or in pieces; of the kind
    /// [`io::ErrorKind::OutOfMemory`] if more would be locked than the limit allows.
    fn expose(&mut self, buffer: Buffer, from: usize, len: usize) -> Result<Self::Exposed, (Buffer, io::Error)>;
    /// Whether this memory was used before, so that exposing it is likely to cost little.
    fn knows(&self, buffer: &Buffer, from: usize, len: usize) -> bool;
    /// This memory is used: the next time, the device is to reach it.
    fn note(&mut self, buffer: &Buffer, from: usize, len: usize);
    /// Takes an exposed payload back, once a segment of the peer has ended its window.
    ///
    /// # Errors
    /// It has not: the peer may still read the payload.
    fn take_back(&mut self, exposed: Self::Exposed) -> Result<Buffer, Self::Exposed>;
    /// Starts to read the peer's memory into a target; [`Work::Read`] reports that all of it is in
    /// place. The number is below [`READS`], and no other unfinished read has it.
    ///
    /// # Errors
    /// Why the device cannot reach the target, as for [`Self::expose`].
    fn read(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)>;
    /// As [`Self::read`], into a target that the device cannot reach: it reads into memory of the
    /// connection, 8 KiB at a time, from which the payload is copied. One at a time.
    ///
    /// # Errors
    /// The connection is unusable, or may not lock that memory.
    fn read_copied(&mut self, number: u16, from: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)>;
    /// The target of a read that has ended; `None` if there is none with this number.
    fn take_read(&mut self, number: u16) -> Option<RecvTarget>;
    /// Refuses a requested connection; the peer gets `data`.
    fn reject(self, data: &[u8]);
    /// Ends the connection: from now on nothing is sent, received or read, but what has arrived can
    /// be looked at. Returns the targets of unfinished reads, which the device no longer touches.
    fn stop(&mut self) -> Vec<RecvTarget>;
}

/// The ring of slots for sending: numbers of segments, modulo 2^15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    next: u16,
    done: u16,
    reported: u16,
}

/// Numbers of segments are below this.
const NUMBERS: u16 = 1 << 15;

impl Ring {
    const fn between(from: u16, to: u16) -> u16 {
        to.wrapping_sub(from) % NUMBERS
    }

    /// The slot of the next segment, unless all are in use.
    pub const fn slot(&self) -> Option<u16> {
        if Self::between(self.done, self.next) < SENDS { Some(self.next % SENDS) } else { None }
    }

    /// Makes the last segment report its completion, before the device has it; false if it does.
    pub fn report_last(&mut self) -> bool {
        core::mem::replace(&mut self.reported, self.next) != self.next
    }

    /// Whether all segments are sent.
    pub const fn is_empty(&self) -> bool {
        self.done == self.next
    }

    /// Whether only one more segment has a slot.
    pub const fn is_last(&self) -> bool {
        Self::between(self.done, self.next) == SENDS - 1
    }

    /// Takes the next slot: the segment's number, and whether it must report its completion.
    pub fn take(&mut self, last: bool) -> (u16, bool) {
        let number = self.next;
        self.next = (number + 1) % NUMBERS;
        let reports = last || number % REPORT_EVERY == REPORT_EVERY - 1;
        if reports {
            self.reported = self.next;
        }
        (number, reports)
    }

    /// The segments up to `number` are sent. Returns the numbers of those that were not before;
    /// divided by [`SENDS`], they leave the numbers of their slots.
    pub const fn complete(&mut self, number: u16) -> Range<u16> {
        let (from, sent) = (self.done, Self::between(self.done, number % NUMBERS));
        if sent < Self::between(self.done, self.next) {
            self.done = (number + 1) % NUMBERS;
            from..from + sent + 1
        } else {
            from..from
        }
    }

    /// Whether all segments that report are sent.
    pub const fn is_done(&self) -> bool {
        // `done` is at or behind `reported` unless it has passed it, which only reports do.
        self.done == self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn a_ring_never_hands_out_a_slot_in_use(steps in prop::collection::vec((any::<bool>(), any::<bool>()), 0..400)) {
            let mut ring = Ring { next: NUMBERS - 30, done: NUMBERS - 30, reported: NUMBERS - 30 };
            let (mut in_use, mut reports): (VecDeque<u16>, VecDeque<u16>) = Default::default();
            for (sends, last) in steps {
                if sends {
                    let Some(slot) = ring.slot() else {
                        prop_assert_eq!(in_use.len(), usize::from(SENDS));
                        prop_assert!(!reports.is_empty(), "a full ring has a report to wait for");
                        continue;
                    };
                    prop_assert!(in_use.iter().all(|number| number % SENDS != slot));
                    let (number, reported) = ring.take(last);
                    in_use.push_back(number);
                    prop_assert!(reported || !last);
                    reports.extend(reported.then_some(number));
                } else if let Some(number) = reports.pop_front() {
                    ring.complete(number);
                    while in_use.front().is_some_and(|_| in_use[0] != number) {
                        in_use.pop_front();
                    }
                    in_use.pop_front();
                }
                prop_assert_eq!(ring.is_done(), reports.is_empty());
                prop_assert_eq!(ring.is_empty(), in_use.is_empty());
                prop_assert_eq!(ring.is_last(), in_use.len() == usize::from(SENDS) - 1);
                // All of them are sent once the last one reports.
                let mut all = ring;
                prop_assert_eq!(all.report_last(), in_use.back().is_some_and(|last| reports.back() != Some(last)));
                if let Some(last) = in_use.back() {
                    all.complete(*last);
                }
                prop_assert!(all.is_empty() && all.is_done());
            }
        }
    }

    #[test]
    fn a_number_that_is_not_in_use_completes_nothing() {
        let mut ring = Ring::default();
        ring.take(true);
        let before = ring;
        for number in [1, 7, NUMBERS - 1] {
            ring.complete(number);
            assert_eq!(ring, before);
        }
        ring.complete(0);
        assert!(ring.is_done());
    }
}
