//! Completion queues with their channels.
#![allow(unsafe_code)]

use super::domain::{Domain, not_null};
use super::done::Done;
use super::layout::{CompChannel, Cq, WorkCompletion};
use super::pool::{Pool, RECEIVE};
use super::window::WINDOWS;
use crate::device::{READS, RECEIVES, SENDS};
use core::ptr::{self, NonNull};
use ofi_core::wait::Descriptor;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections that share a completion queue.
const SHARERS: usize = 64;
/// Completions of a connection at most: of its segments, of its reads, and, if it fails, of windows
/// that were to open.
const WORKS: u16 = RECEIVES + SENDS + WINDOWS + READS;
/// Completions that are polled at once.
const BATCH: usize = 32;

/// Where a queue puts what is polled. Kept from poll to poll, because clearing it takes longer than
/// an empty poll.
pub(crate) type Completions = [WorkCompletion; BATCH];

/// No completions.
pub(crate) const NO_COMPLETIONS: Completions = [WorkCompletion::EMPTY; BATCH];

/// A completion queue with its channel.
#[derive(Debug)]
pub(crate) struct Queue {
    cq: NonNull<Cq>,
    channel: NonNull<CompChannel>,
    pub(crate) domain: Arc<Domain>,
    connections: Mutex<Connections>,
}

/// The connections whose completions a queue reports.
#[derive(Debug, Default)]
struct Connections {
    /// By the numbers of their queue pairs, in order.
    members: Vec<(u32, Member)>,
    /// Completions that were found when a connection ended.
    found: Vec<Done>,
}

#[derive(Debug)]
struct Member {
    key: u64,
    pool: Arc<Pool>,
}

impl Connections {
    fn find(&self, number: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&number, |(number, _)| *number)
    }

    /// A completion with what it belongs to. One of an unknown queue pair is of none.
    fn translate(&self, done: &WorkCompletion, domain: &Domain) -> Option<Done> {
        let (_, member) = self.members.get(self.find(done.qp_num).ok()?)?;
        // A queue pair that has failed gives all slots of its own back; nothing takes them again.
        let is_slot = done.wr_id >= RECEIVE && (done.status == 0 || member.pool.is_shared());
        let arrived = if is_slot { member.pool.arrived(done.wr_id) } else { None };
        Some(Done::new(done, member.key, arrived.map(|slot| (slot, domain.ended_window(done)))))
    }
}

// SAFETY: libibverbs may be called from any thread for the same objects.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue for [`SHARERS`] connections, or for one.
    pub(crate) fn new(domain: &Arc<Domain>, shared: bool) -> io::Result<Arc<Self>> {
        let sharers = if shared { SHARERS } else { 1 };
        // Those of a connection that ends are found before.
        Self::with_room(domain, sharers * usize::from(WORKS))
    }

    /// A queue with room for so many completions.
    pub(crate) fn with_room(domain: &Arc<Domain>, entries: usize) -> io::Result<Arc<Self>> {
        let verbs = &domain.libraries.verbs;
        // SAFETY: the device is open.
        let channel = not_null(unsafe { (verbs.ibv_create_comp_channel)(domain.context.as_ptr()) })?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: the device is open, and the channel is its own.
        let cq =
            unsafe { (verbs.ibv_create_cq)(domain.context.as_ptr(), entries, ptr::null_mut(), channel.as_ptr(), 0) };
        match not_null(cq) {
            Ok(cq) => Ok(Arc::new(Self { cq, channel, domain: domain.clone(), connections: Mutex::default() })),
            Err(error) => {
                // SAFETY: created above, and no queue uses it.
                unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    pub(crate) const fn cq(&self) -> *mut Cq {
        self.cq.as_ptr()
    }

    /// Whether one more connection may use it. `queue` is also in the list of its device object.
    pub(crate) fn has_room(queue: &Arc<Self>) -> bool {
        Arc::strong_count(queue) <= SHARERS
    }

    /// Readable when there is an event.
    pub(crate) const fn descriptor(&self) -> Descriptor {
        // SAFETY: the channel lasts as long as this value.
        unsafe { (*self.channel.as_ptr()).fd }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue pair reports its completions here from now on, under a key.
    pub(super) fn add(&self, number: u32, key: u64, pool: &Arc<Pool>) {
        let mut connections = self.lock();
        let member = Member { key, pool: pool.clone() };
        match connections.find(number) {
            Ok(at) => connections.members[at].1 = member,
            Err(at) => connections.members.insert(at, (number, member)),
        }
    }

    /// Its key is another one from now on.
    pub(super) fn set_key(&self, number: u32, key: u64) {
        let mut connections = self.lock();
        if let Ok(at) = connections.find(number) {
            connections.members[at].1.key = key;
        }
    }

    /// Finds the completions so far, before a queue pair is destroyed: some devices drop them then,
    /// and its number may soon be another's.
    pub(super) fn find_completions(&self) {
        let mut found = NO_COMPLETIONS;
        let mut connections = self.lock();
        let mut late = core::mem::take(&mut connections.found);
        while self.poll(&mut found, |done| late.extend(connections.translate(done, &self.domain))) {}
        connections.found = late;
    }

    /// A queue pair is destroyed, and all its completions are found.
    pub(super) fn remove(&self, number: u32) {
        let mut connections = self.lock();
        if let Ok(at) = connections.find(number) {
            connections.members.remove(at);
        }
    }

    /// Appends completions, as [`Self::poll`] passes them on.
    pub(super) fn poll_done(&self, batch: &mut Completions, out: &mut Vec<Done>) -> bool {
        let mut connections = self.lock();
        out.append(&mut connections.found);
        self.poll(batch, |done| out.extend(connections.translate(done, &self.domain)))
    }

    /// Passes completions on, as many as `found` has room for; true if there may be more. What is
    /// in `found` before and after does not matter.
    pub(crate) fn poll(&self, found: &mut Completions, take: impl FnMut(&WorkCompletion)) -> bool {
        // SAFETY: the device is open, so its table is complete.
        let poll_cq = unsafe { (*self.domain.context.as_ptr()).ops.poll_cq };
        let most = i32::try_from(found.len()).unwrap_or(1);
        // SAFETY: the queue is open, and the array has the room that is named.
        let count = unsafe { poll_cq(self.cq(), most, found.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or(0);
        found.iter().take(count).for_each(take);
        count >= BATCH
    }

    /// Makes the next completion an event.
    pub(crate) fn request_event(&self) {
        // SAFETY: the device is open, so its table is complete.
        let notify = unsafe { (*self.domain.context.as_ptr()).ops.req_notify_cq };
        // SAFETY: the queue is open.
        unsafe { notify(self.cq(), 0) };
    }

    /// Takes an event. Only when the descriptor is readable, because it would wait.
    pub(crate) fn take_event(&self) {
        let verbs = &self.domain.libraries.verbs;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is open, and both places are ours.
        let failed = unsafe { (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) };
        if failed == 0 {
            // SAFETY: the event is of the channel's only queue, and is acknowledged once.
            unsafe { (verbs.ibv_ack_cq_events)(cq, 1) };
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let verbs = &self.domain.libraries.verbs;
        // SAFETY: created once; the connections that used it kept this value alive.
        unsafe { (verbs.ibv_destroy_cq)(self.cq.as_ptr()) };
        // SAFETY: its only queue is gone.
        unsafe { (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}
