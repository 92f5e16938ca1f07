//! One link: a ring and a pool in each direction, the sends that wait for room in them, and the
//! payload that is arriving. This side reads each shared word once and checks it; a violation costs
//! this link alone.

use crate::cma::{Cma, CmaLoan, Outcome};
use crate::fifo_allocator::{FifoAllocator, SMALLEST};
use crate::region::{Pool, ReadyBitmap, Region, Ring, Side};
use arrayvec::ArrayVec;
pub(crate) use line::INLINE;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{Down, LinkEvents, LinkId, RecvTarget, Token};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use ofi_os::control_socket::LivenessPipe;
use ofi_os::descriptor::PrivateFd;
use ofi_os::process::Life;
use ofi_sync::lines::{self, News, Order, Reader, SleepState, WakeAction, Writer, order_own, wake_action};
use ofi_sync::primitive::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

mod cma_link;
mod line;
mod read;
mod send;

/// Lines read from a link before others have their turn.
const READS: usize = 64;
/// Lines to prefetch ahead when there are several.
const AHEAD: u64 = 4;
/// Bytes read from a link before others have their turn.
const BYTES: usize = 1 << 20;

/// Frames that may wait for a peer that does not read, if the account has room for them, and if
/// not.
const BACKLOG: usize = 256;
pub(crate) const LEAST_BACKLOG: usize = 16;
/// Bytes that [`BACKLOG`] frames take.
pub(crate) const BACKLOG_COST: usize = BACKLOG * size_of::<Out>();

/// How far the handshake of a link is.
#[derive(Debug)]
pub(crate) enum State {
    /// The request is not sent yet: the other side's socket was full.
    Unasked { memory: PrivateFd, hello: Vec<u8>, liveness: Option<(LivenessPipe, PrivateFd)> },
    /// Waits for the answer, with a liveness pipe if another endpoint may take the peer's name.
    Asking(Option<LivenessPipe>),
    /// Frames flow.
    Open,
}

/// Something to send that waits for room.
#[derive(Debug)]
pub(crate) enum Out {
    /// Header and payload that fit into lines, the header's length, and the send to report as done.
    Small(ArrayVec<u8, INLINE>, usize, Option<(Token, Buffer)>),
    /// A payload that goes through the pool.
    Large(Large),
    /// A payload whose memory is gone: its header, and its length.
    Absent(Header, usize),
    /// The answer to a connect request.
    Hello(Vec<u8>, [u8; 16]),
    /// The number of a payload that the other side lent, and its outcome.
    Outcome(u64, Outcome),
    /// Whether this side reads the other side's memory.
    Permission(bool),
    /// Nothing follows.
    End,
}

/// A payload that goes through the pool; `done` bytes of it are sent.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
    pub(crate) from: usize,
    pub(crate) len: usize,
    pub(crate) done: usize,
    /// The engine's token for it; none for our own copy.
    pub(crate) token: Option<Token>,
}

/// A payload that is arriving through the pool.
#[derive(Debug)]
struct Coming {
    target: Option<RecvTarget>,
    done: usize,
    total: usize,
    /// When it began, if it is large enough to be timed.
    began: Option<Instant>,
}

/// Why a link ends.
#[derive(Debug)]
pub(crate) enum Trouble {
    Violation(Violation),
    /// The engine did not take the answer.
    Down(Down),
    /// The other side shut the link down in order.
    Ended,
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

#[derive(Debug)]
pub(crate) struct Conn {
    region: Arc<Region>,
    pub(crate) side: Side,
    writer: Writer<Ring>,
    reader: Reader<Ring>,
    pool: Pool,
    theirs: Pool,
    allocator: FifoAllocator,
    pub(crate) state: State,
    pub(crate) remote: Addr,
    /// The name by which the other side is woken and probed.
    pub(crate) peer: String,
    /// The initiator's number for the connect request.
    pub(crate) number: u64,
    order: Order,
    coming: Option<Coming>,
    pub(crate) cma: Cma,
    pub(crate) out: VecDeque<Out>,
    /// The engine has asked for the end.
    pub(crate) finishing: bool,
    /// The end has been sent.
    pub(crate) ended: bool,
    /// The other side's process or endpoint is gone.
    pub(crate) lost: bool,
    /// Distinguishes the links that have the same slot one after the other.
    pub(crate) serial: u64,
    /// In the list of links with something to send.
    pub(crate) listed: bool,
    /// Position in the poll schedule.
    pub(crate) rank: usize,
    /// Not polled in every pass.
    pub(crate) idle: bool,
    /// Reads that found something since it became idle.
    pub(crate) calls: u32,
    /// The other side has been offered our bitmap.
    pub(crate) told: bool,
    /// The other side's bitmap, and this link's bit in it.
    pub(crate) bitmap: Option<(ReadyBitmap, usize)>,
    /// Bytes by which the pool was grown, to return to the budget.
    pub(crate) grown: usize,
    /// The other side's process, where the system reports its end.
    pub(crate) life: Option<Arc<Life>>,
    /// The other side does not know this side's process yet.
    pub(crate) unknown: bool,
    /// The account is charged for a long backlog.
    pub(crate) charged: bool,
    /// The engine submits nothing more until the transport reports room.
    pub(crate) stalled: bool,
}

impl Conn {
    pub(crate) fn new(
        region: Arc<Region>,
        side: Side,
        state: State,
        remote: Addr,
        peer: String,
        number: u64,
    ) -> io::Result<Self> {
        let (pool, theirs) = (region.pool(side), region.pool(side.other()));
        let mut allocator = FifoAllocator::new(pool.bytes.len());
        pool.provide(SMALLEST)?;
        allocator.grow(SMALLEST);
        Ok(Self {
            writer: Writer::new(region.ring(side)),
            reader: Reader::new(region.ring(side.other())),
            allocator,
            pool,
            theirs,
            region,
            side,
            state,
            remote,
            peer,
            number,
            order: Order::ByBoth,
            coming: None,
            cma: Cma::default(),
            out: VecDeque::new(),
            finishing: false,
            ended: false,
            lost: false,
            serial: 0,
            listed: false,
            rank: 0,
            idle: false,
            calls: 0,
            told: false,
            bitmap: None,
            grown: 0,
            life: None,
            unknown: false,
            charged: false,
            stalled: false,
        })
    }

    /// Sets who orders memory accesses: the sleeper alone, if both processes take part.
    pub(crate) const fn set_order(&mut self, ours: bool, theirs: bool) {
        self.order = if ours && theirs { Order::ByReader } else { Order::ByBoth };
    }

    /// Whether there is something to read.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.reader.is_ready()
    }

    /// Notifies the other side of `news`, unless it polls the link anyway. True if it must be
    /// woken.
    #[inline(always)]
    pub(crate) fn must_wake(&self, news: News) -> bool {
        match wake_action(self.region.asleep(self.side.other()), news, self.order) {
            WakeAction::Nothing => false,
            WakeAction::Wake => true,
            WakeAction::Note => {
                if let Some((bitmap, place)) = &self.bitmap {
                    bitmap.set(*place);
                }
                false
            }
        }
    }

    /// Announces that this side sleeps. The caller orders its accesses and then checks
    /// [`Self::has_news`] once more.
    pub(crate) fn announce_sleep(&self) {
        SleepState::asleep(self.idle, self.has_more()).announce(self.region.asleep(self.side));
    }

    /// Announces that this side polls.
    pub(crate) fn announce_waking(&self) {
        SleepState::awake(self.idle).announce(self.region.asleep(self.side));
    }

    /// Whether the other side has woken this one since it fell asleep.
    pub(crate) fn was_rung(&self) -> bool {
        lines::was_woken(self.region.asleep(self.side))
    }

    /// Whether there is something to read or new room for a waiting send, or the other side has
    /// left.
    pub(crate) fn has_news(&mut self) -> bool {
        if self.is_ready() || self.is_gone() {
            return true;
        }
        let before = self.writer.consumed();
        self.has_more() && self.writer.look().is_ok_and(|now| now != before)
    }

    /// Whether the request will never be answered: the endpoint that received it has ended.
    pub(crate) fn is_lost_request(&self) -> bool {
        // In this order: the peer writes its answer before it drops the request.
        matches!(&self.state, State::Asking(Some(liveness)) if liveness.is_closed()) && !self.is_ready()
    }

    fn word(&self, side: Side) -> &AtomicU64 {
        self.region.gone(side)
    }

    /// Marks this side as gone, in the shared memory.
    pub(crate) fn leave(&self) {
        // Release pairs with the Acquire in `is_gone`: the other side sees lines written before.
        self.word(self.side).store(1, Ordering::Release);
        // Before the application reuses the memory that the other side was reading.
        order_own();
    }

    /// Whether the other side has marked itself as gone.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire pairs with the Release in `leave`.
        self.word(self.side.other()).load(Ordering::Acquire) != 0
    }

    /// Returns to the engine every buffer that the link kept. The link is at its end.
    pub(crate) fn abandon(&mut self, link: LinkId, events: &mut impl LinkEvents) {
        if let Some(Coming { target: Some(target), .. }) = self.coming.take() {
            events.handle_recv_retry(link, target);
        }
        for CmaLoan { token, buffer, .. } in self.cma.take_all_back() {
            events.handle_send_returned(link, token, buffer);
        }
        for out in self.out.drain(..) {
            if let Out::Large(Large { buffer, token: Some(token), .. }) | Out::Small(.., Some((token, buffer))) = out {
                events.handle_send_returned(link, token, buffer);
            }
        }
    }
}

/// The reason for a link whose peer is gone.
pub(crate) fn ended(conn: &Conn) -> Down {
    let (cause, errno) = match conn.state {
        State::Open => (Cause::Broken, Errno::ECONNRESET),
        State::Unasked { .. } | State::Asking(_) => (Cause::Connect, Errno::ECONNREFUSED),
    };
    Down::new(cause, errno, format!("link to {}: the peer's endpoint is gone", conn.remote))
}

/// The reason for a connect request that cannot be sent.
pub(crate) fn unreachable(to: &Addr, error: &io::Error) -> Down {
    let absent = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
    let errno =
        if absent { Errno::ECONNREFUSED } else { Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO.raw())) };
    let why = if absent { "no endpoint on this host has this name".to_owned() } else { error.to_string() };
    Down::new(Cause::Connect, errno, format!("connect to {to}: {why}"))
}
