//! Slots of a device object, which its connections share: those in which segments arrive, by a
//! shared receive queue, and those from which they leave. A device without such queues has a pool
//! for each connection, as has a connection that another device object may take over.
//! Invariant: a slot is the device's, or in the list of free ones, or belongs to one [`Arrived`] or
//! [`SendSlot`]. The memory of slots lasts as long as the pool.
#![allow(unsafe_code)]

use super::domain::{Domain, not_null};
use super::layout::{Qp, QpInitAttr, RecvWr, Sge, Srq, SrqInitAttr};
use super::memory::Slots;
use crate::device::{RECEIVES, SENDS, SLOT};
use crate::shares::{SHARED_RECEIVES, Shares, receives};
use core::ptr::{self, NonNull};
use ofi_sync::primitive::real::{AtomicBool, Ordering};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A work request's number that is at least this one receives; the rest is the number of the slot.
pub(super) const RECEIVE: u64 = u64::MAX << 16;

/// The slots of a device object's connections, or of one connection.
#[derive(Debug)]
pub(super) struct Pool {
    domain: Arc<Domain>,
    /// `None` for the receive queue of a connection's own.
    shared: Option<NonNull<Srq>>,
    state: Mutex<State>,
    /// As [`Shares::is_short`] says.
    is_short: AtomicBool,
}

// SAFETY: libibverbs may be called from any thread for the same objects; the memory is used as the
// module's invariant says.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

#[derive(Debug, Default)]
struct State {
    /// Each has [`RECEIVES`] slots.
    arriving: Vec<Slots>,
    leaving: Vec<Slots>,
    free: Vec<SendSlot>,
    shares: Shares,
    /// Connections that are gone.
    gone: usize,
    /// The only connection, while it has its queue pair.
    own: Option<NonNull<Qp>>,
}

/// A slot from which a segment leaves.
#[derive(Debug)]
pub(super) struct SendSlot {
    start: NonNull<u8>,
    pub(super) lkey: u32,
}

// SAFETY: it is the only name of its memory.
unsafe impl Send for SendSlot {}

impl SendSlot {
    /// The address of the first byte, for the device.
    pub(super) fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    /// The bytes.
    ///
    /// # Safety
    /// The device does not have the slot, and its pool exists.
    pub(super) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a slot is `SLOT` initialized bytes, and this value is its only name.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), SLOT) }
    }
}

/// A slot in which a segment has arrived. Dropping it gives it to the device again.
#[derive(Debug)]
pub(super) struct Arrived {
    pool: Arc<Pool>,
    pub(super) slot: u16,
    start: NonNull<u8>,
}

// SAFETY: it is the only name of its memory.
unsafe impl Send for Arrived {}

impl Arrived {
    /// The bytes.
    pub(super) const fn bytes(&self) -> &[u8] {
        // SAFETY: a slot is `SLOT` initialized bytes, which only this value names, and the pool
        // keeps.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), SLOT) }
    }

    /// Gives it to the device again.
    pub(super) fn post(self) -> io::Result<()> {
        let arrived = core::mem::ManuallyDrop::new(self);
        // SAFETY: the value is not used again, and not dropped.
        let pool = unsafe { ptr::read(&arrived.pool) };
        let state = pool.lock();
        pool.post(&state, arrived.slot)
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        let state = self.pool.lock();
        // A queue that takes no slots is unusable, and its connections end by themselves.
        drop(self.pool.post(&state, self.slot));
    }
}

impl Pool {
    /// Slots for any number of connections, or for one.
    pub(super) fn new(domain: &Arc<Domain>, shared: bool) -> io::Result<Arc<Self>> {
        let shared = if shared && domain.has_shared_queues() {
            let mut attributes = SrqInitAttr::new(u32::try_from(SHARED_RECEIVES).unwrap_or(u32::MAX));
            // SAFETY: the protection domain is open.
            Some(not_null(unsafe { (domain.libraries.verbs.ibv_create_srq)(domain.pd.as_ptr(), &mut attributes) })?)
        } else {
            None
        };
        Ok(Arc::new(Self { domain: domain.clone(), shared, state: Mutex::default(), is_short: AtomicBool::new(false) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next connection in that domain may use it.
    pub(super) fn is_for(&self, domain: &Arc<Domain>) -> bool {
        let state = self.lock();
        // A device can lose the slot in which a segment of a connection arrives that ends.
        let is_whole = state.gone < state.arriving.len() * usize::from(RECEIVES) / 2 || state.arriving.is_empty();
        self.is_shared() && is_whole && Arc::ptr_eq(&self.domain, domain)
    }

    pub(super) const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The receive queue of a queue pair that is to be made.
    pub(super) fn attributes(&self, attributes: QpInitAttr) -> QpInitAttr {
        match self.shared {
            Some(shared) => attributes.with_shared(shared.as_ptr()),
            None => attributes,
        }
    }

    /// Makes room for one more connection, which counts from now on.
    pub(super) fn join(&self) -> io::Result<()> {
        let mut state = self.lock();
        let lacking = state.shares.lacking();
        if lacking > 0 {
            let count = SENDS * u16::try_from(lacking.div_ceil(usize::from(SENDS))).unwrap_or(1);
            let slots = Slots::new(&self.domain, count)?;
            state.free.extend((0..count).map(|slot| SendSlot { start: slots.start(slot), lkey: slots.lkey() }));
            state.leaving.push(slots);
            state.shares.add(usize::from(count));
        }
        while state.arriving.len() * usize::from(RECEIVES) < receives(state.shares.connections() + 1) {
            let slots = Slots::new(&self.domain, RECEIVES)?;
            state.arriving.push(slots);
            if self.is_shared() {
                self.post_newest(&state)?;
            }
        }
        state.shares.join();
        self.note_short(&state);
        Ok(())
    }

    /// The only connection has its queue pair.
    ///
    /// # Safety
    /// The queue pair is of the pool's device. Once it is destroyed, [`Self::leave`] is called
    /// before anything else.
    pub(super) unsafe fn own(&self, qp: *mut Qp) -> io::Result<()> {
        let mut state = self.lock();
        state.own = NonNull::new(qp);
        self.post_newest(&state)
    }

    fn post_newest(&self, state: &State) -> io::Result<()> {
        let first = u16::try_from(state.arriving.len() - 1).unwrap_or(u16::MAX) * RECEIVES;
        (first..first + RECEIVES).try_for_each(|slot| self.post(state, slot))
    }

    /// A connection has no queue pair any longer. It has put back what it had taken to send.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.shares.leave();
        state.gone += 1;
        state.own = None;
        self.note_short(&state);
    }

    /// A slot for a connection that holds so many; `None` if it has to wait for its own.
    pub(super) fn take(&self, held: usize) -> Option<SendSlot> {
        let mut state = self.lock();
        let slot = if state.shares.take(held) { state.free.pop() } else { None };
        self.note_short(&state);
        slot
    }

    /// A slot comes back, which the device does not have, from a connection that still holds so
    /// many.
    pub(super) fn put(&self, slot: SendSlot, held: usize) {
        let mut state = self.lock();
        state.shares.put(held);
        state.free.push(slot);
        self.note_short(&state);
    }

    fn note_short(&self, state: &State) {
        // Relaxed: a hint.
        self.is_short.store(state.shares.is_short(), Ordering::Relaxed);
    }

    /// Whether connections should give slots back as soon as they can.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// The slot of a completion, which the device has given back.
    pub(super) fn arrived(self: &Arc<Self>, number: u64) -> Option<Arrived> {
        let slot = u16::try_from(number & !RECEIVE).ok()?;
        let state = self.lock();
        let slots = state.arriving.get(usize::from(slot / RECEIVES))?;
        Some(Arrived { pool: self.clone(), slot, start: slots.start(slot % RECEIVES) })
    }

    /// Gives a slot for receiving to the device. Its caller has the slot.
    #[inline(never)]
    fn post(&self, state: &State, slot: u16) -> io::Result<()> {
        let Some(slots) = state.arriving.get(usize::from(slot / RECEIVES)) else { return Ok(()) };
        let mut piece = Sge {
            addr: slots.start(slot % RECEIVES).addr().get() as u64,
            length: u32::try_from(SLOT).unwrap_or(0),
            lkey: slots.lkey(),
        };
        let wr_id = RECEIVE | u64::from(slot);
        let mut work = RecvWr { wr_id, next: ptr::null_mut(), sg_list: &mut piece, num_sge: 1 };
        match (self.shared, state.own) {
            // SAFETY: the queue lasts as long as this value, and the slot's memory too.
            (Some(shared), _) => unsafe { self.domain.post_shared_receive(shared.as_ptr(), &mut work) },
            // SAFETY: the queue pair exists, by the contract of `own`.
            (None, Some(qp)) => unsafe { self.domain.post_receive(qp.as_ptr(), &mut work) },
            (None, None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            // SAFETY: created once; queue pairs that used it kept this value alive.
            unsafe { (self.domain.libraries.verbs.ibv_destroy_srq)(shared.as_ptr()) };
        }
    }
}
