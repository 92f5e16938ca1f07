//! One connection: its state, its reader and writer, and the I/O between them and the socket.

use crate::deadlines::Deadlines;
use crate::net::Net;
use crate::reader::{Reader, Record};
use crate::writer::{COPY, Writer};
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{Disposition, Down, Incoming, LinkEvents, LinkId, RecvTarget, Verdict};
use ofi_engine::wire::frame::Violation;
use ofi_memory::{Buffer, Chunk, ChunkMut};
use std::io;
use std::time::Duration;

/// Most bytes to read ahead of a payload that is expected, and behind one: what is read with them
/// is copied once more.
const AHEAD: usize = 1 << 10;
/// Most pieces of a target that one call receives into.
const MOST_CHUNKS: usize = 16;
/// How long after a send its connection is checked for unacknowledged bytes, and between checks.
pub(crate) const AUDIT: Duration = Duration::from_secs(1);
/// Copied bytes that may be queued for a peer that does not read, if the account has room for them.
pub(crate) const BACKLOG: usize = 64 << 10;
/// The same if it has not.
pub(crate) const LEAST_BACKLOG: usize = 4 << 10;
/// How long a refused peer may take to close its connection.
pub(crate) const REFUSED: Duration = Duration::from_secs(5);

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// The kernel is connecting; `hello` is sent afterwards.
    Connecting { hello: Vec<u8>, deadline: Instant },
    /// We sent our hello and wait for the peer's.
    Asking,
    /// Half-open: accepted, but no hello yet. `serial` identifies it in `HalfOpen`.
    Silent { serial: u64 },
    /// The handshake is done.
    Open,
    /// We refused the connection and wait for the peer to close it.
    Refused { deadline: Instant },
}

impl State {
    /// When the connection ends if it is still in this state.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Connecting { deadline, .. } | Self::Refused { deadline } => Some(*deadline),
            Self::Asking | Self::Silent { .. } | Self::Open => None,
        }
    }
}

pub(crate) struct Conn<S> {
    pub(crate) socket: S,
    pub(crate) remote: Addr,
    pub(crate) state: State,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// The number of the poll with its latest input, or in which it became active.
    pub(crate) heard: u32,
    /// Its place in `active`.
    pub(crate) active: Option<usize>,
    /// Its place in `busy_writers`: the writer has a burst or queued bytes.
    pub(crate) listed: Option<usize>,
    /// The socket takes no more output for now; epoll watches it for room.
    pub(crate) blocked: bool,
    /// It counts among the connections that hold back output for which the application need not
    /// call again: the socket would take it, or its end reports nothing.
    pub(crate) holding: bool,
    /// Epoll watches the socket.
    pub(crate) watched: bool,
    /// [`BACKLOG`] bytes are charged to the account for output that the peer does not read.
    pub(crate) charged: bool,
    /// The engine submits nothing more until `handle_send_room`.
    pub(crate) stalled: bool,
    /// When it is audited: bytes were sent since the last audit found all acknowledged.
    pub(crate) audit: Option<Instant>,
    /// The link is shutting down; `true` once the socket's write side is shut down.
    pub(crate) finishing: Option<bool>,
    /// Sending failed; bytes that the peer sent before are still read.
    pub(crate) broken: Option<io::Error>,
}

impl<S> Conn<S> {
    /// Most copied bytes that may be queued while the peer does not read.
    pub(crate) const fn backlog(&self) -> usize {
        if self.charged { BACKLOG } else { LEAST_BACKLOG }
    }

    /// The socket takes no more: counts the connection among those that hold back output if the
    /// application does not learn when the last of it has been sent.
    #[cold]
    pub(crate) fn note_blocked(&mut self, count: &mut usize) {
        let holds = self.writer.ends_untold();
        let held = core::mem::replace(&mut self.holding, holds);
        *count = *count - usize::from(held) + usize::from(holds);
    }
}

/// An accepted connection whose hello was read, but which no transport has taken over.
#[derive(Debug)]
pub struct Pending<S> {
    pub(crate) socket: S,
    pub(crate) remote: Addr,
    pub(crate) reader: Reader,
}

/// Receives into a payload's target, if there is one, and then into `staging`: at most [`AHEAD`]
/// bytes of it while a large payload is expected. Returns what [`receive_direct`] does.
#[inline(never)]
pub(crate) fn receive_large<N: Net>(
    net: &N,
    conn: &mut Conn<N::Socket>,
    staging: &mut [u8],
) -> (io::Result<usize>, usize, usize) {
    let most = if conn.reader.expects_large() { AHEAD.min(staging.len()) } else { staging.len() };
    let staging = &mut staging[..most];
    match conn.reader.direct() {
        Some((target, done, room)) if room >= COPY => receive_direct(net, &conn.socket, target, (done, room), staging),
        _ => {
            let outcome = net.recv_slice(&conn.socket, staging);
            if outcome.is_ok() {
                conn.reader.note_input();
            }
            (outcome, most, 0)
        }
    }
}

/// Receives up to `room` bytes of a payload into its target, and what follows into `behind`. Also
/// returns how many bytes were asked for, and how many of them go into the target.
fn receive_direct<N: Net>(
    net: &N,
    socket: &N::Socket,
    target: &mut RecvTarget,
    (done, room): (usize, usize),
    behind: &mut [u8],
) -> (io::Result<usize>, usize, usize) {
    let mut chunks: [ChunkMut<'_>; MOST_CHUNKS + 1] = core::array::from_fn(|_| ChunkMut::of(&mut []));
    let (mut count, mut placed) = (0, 0);
    target.buffer.for_each_mut(target.at + done, room, |chunk| {
        if count < MOST_CHUNKS {
            placed += chunk.len();
            chunks[count] = chunk;
            count += 1;
        }
    });
    let mut asked = placed;
    if placed == room {
        asked += behind.len();
        chunks[count] = ChunkMut::of(behind);
        count += 1;
    }
    (net.recv(socket, &mut chunks[..count]), asked, placed)
}

#[inline(always)]
pub(crate) fn note_sent<N: Net>(conn: &mut Conn<N::Socket>, slot: usize, net: &N, audits: &mut Deadlines) {
    let now = net.now();
    conn.writer.sent_at(now);
    if conn.audit.is_none() {
        conn.audit = Some(begin_audit(now, slot, audits));
    }
}

#[cold]
#[inline(never)]
fn begin_audit(now: Instant, slot: usize, audits: &mut Deadlines) -> Instant {
    audits.add(now + AUDIT, slot);
    now + AUDIT
}

/// Why reading a connection stops.
pub(crate) enum ReadError {
    Violation(Violation),
    Down(Down),
    Refused,
}

/// Reports a payload that is complete in its target.
#[inline(never)]
pub(crate) fn report_placed(reader: &mut Reader, link: LinkId, events: &mut impl LinkEvents) -> Result<(), ReadError> {
    let Some(target) = reader.take_placed() else { return Ok(()) };
    events.handle_recv_done(link, target).map_err(ReadError::Violation)
}

/// Up to `placed` of `count` bytes that were received are in their target: reports its payload if
/// it is complete. Returns how many bytes are behind it.
#[inline(never)]
pub(crate) fn note_placed<S>(
    conn: &mut Conn<S>,
    slot: usize,
    (count, placed): (usize, usize),
    events: &mut impl LinkEvents,
) -> Result<usize, ReadError> {
    if let Record::Placed = conn.reader.direct_done(count.min(placed)) {
        report_placed(&mut conn.reader, LinkId(u32::try_from(slot).unwrap_or(u32::MAX)), events)?;
    }
    Ok(count.saturating_sub(placed))
}

/// Parses `input` and reports its records to `events`.
pub(crate) fn parse<S>(
    conn: &mut Conn<S>,
    slot: usize,
    input: &[u8],
    events: &mut impl LinkEvents,
    now: impl Fn() -> Instant,
    vouches: impl Fn(&Addr, &Addr) -> bool,
) -> Result<(), ReadError> {
    let link = LinkId(u32::try_from(slot).unwrap_or(u32::MAX));
    let mut at = 0;
    loop {
        let mut coming = None;
        let (record, used) = conn.reader.next(&input[at..]).map_err(ReadError::Violation)?;
        at += used;
        match record {
            Record::Nothing if at == input.len() => return Ok(()),
            // A dropped payload has ended; more input follows.
            Record::Nothing => {}
            Record::Placed => report_placed(&mut conn.reader, link, events)?,
            Record::Frame(header, payload) => {
                if !matches!(conn.state, State::Open) {
                    return Err(ReadError::Violation(Violation("frame received before the hello")));
                }
                let len = payload.len();
                let is_coming = matches!(payload, Incoming::Streaming(_));
                let place = events.handle_frame(link, header, payload).map_err(ReadError::Violation)?;
                if is_coming {
                    coming = Some((place, len));
                }
            }
            Record::Hello(hello) => match conn.state {
                State::Silent { .. } => {
                    match events.handle_connect_request(link, hello, &conn.remote, |name| vouches(name, &conn.remote)) {
                        Verdict::Accept(answer) => {
                            conn.writer.push_hello(&answer);
                            conn.state = State::Open;
                        }
                        Verdict::Refuse(answer) => {
                            conn.writer.push_hello(&answer);
                            conn.state = State::Refused { deadline: now() + REFUSED };
                            conn.finishing = Some(false);
                            return Err(ReadError::Refused);
                        }
                    }
                }
                State::Asking => {
                    events.handle_connected(link, hello).map_err(ReadError::Down)?;
                    conn.state = State::Open;
                }
                // Ignore a refused peer's input.
                State::Refused { .. } => return Ok(()),
                State::Open | State::Connecting { .. } => {
                    return Err(ReadError::Violation(Violation("unexpected second hello")));
                }
            },
        }
        if let Some((place, len)) = coming {
            let target = match place {
                Disposition::Into(target) => Some(target),
                Disposition::Done => None,
            };
            conn.reader.place(target, len);
        }
    }
}

pub(crate) fn send_from<N: Net>(
    net: &N,
    socket: &N::Socket,
    head: &[u8],
    buffer: &Buffer,
    from: usize,
    len: usize,
) -> io::Result<usize> {
    let empty = Chunk::of(&[]);
    let mut chunks = [empty; 32];
    chunks[0] = Chunk::of(head);
    let mut count = 1;
    buffer.for_each(from, len, |chunk| {
        if let Some(slot) = chunks.get_mut(count) {
            *slot = chunk;
            count += 1;
        }
    });
    net.send(socket, &chunks[..count])
}
