//! Access to another process's memory: the initiator measures, the target only makes progress.

use crate::side::{PATIENCE, Side, failure, fill, is_filled, now};
use ofi::{Error, MrAccess, RemoteKey};
use std::time::{Duration, Instant};

/// An access of the initiator to the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    FetchAdd,
}

impl Access {
    pub(crate) const ALL: [Self; 3] = [Self::Write, Self::Read, Self::FetchAdd];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::FetchAdd => "fetch-add",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.name() == name)
    }

    fn post(self, side: &mut Side<'_>, to: RemoteKey, size: usize) -> Result<(), Error> {
        match self {
            Self::Write => side.write(to, size),
            Self::Read => side.read(to, size),
            Self::FetchAdd => side.fetch_add(to, 1),
        }
    }
}

/// How often the initiator shows the target, to which its accesses complete nothing, that it is
/// alive: with the next access then.
const SIGN: Duration = Duration::from_secs(5);
/// How long the target waits for a sign: an access may take as long as the initiator waits for it.
const LONGEST_SILENCE: Duration = PATIENCE.saturating_mul(4);
/// What the initiator sends to the target: a sign of life, and its end.
const ALIVE: &[u8] = b"alive";
const DONE: &[u8] = b"done";

/// The target's part: exposes `size` bytes until the initiator has made `count` accesses, and
/// verifies their effect.
pub(crate) fn expose(side: &mut Side<'_>, access: Access, size: usize, count: usize) -> Result<(), Error> {
    let mut memory = vec![0; size];
    if access == Access::Read {
        fill(&mut memory);
    }
    let region = side.domain().register(memory, MrAccess::REMOTE)?;
    side.receive(ALIVE.len())?;
    side.send_key(region.remote_key())?;
    while side.take_note(LONGEST_SILENCE)? == ALIVE {
        side.receive(ALIVE.len())?;
    }
    side.settle()?;
    let mut memory = vec![0; size];
    region.read(0, &mut memory).map_err(|errno| Error::new(errno, "read the exposed memory"))?;
    let right = match access {
        Access::Write | Access::Read => is_filled(&memory),
        Access::FetchAdd => memory == (count as u64).to_ne_bytes(),
    };
    if right {
        Ok(())
    } else {
        Err(failure(format!("after {count} times {} the memory has wrong contents", access.name())))
    }
}

/// The initiator's part: `trips` accesses one after the other, and then `stream` in a row. It does
/// not measure the first `warm_up` trips. Returns the microseconds of each measured one, and the
/// seconds of the stream.
pub(crate) fn measure(
    side: &mut Side<'_>,
    access: Access,
    size: usize,
    (warm_up, trips, stream): (usize, usize, usize),
) -> Result<(Vec<f64>, f64), Error> {
    let to = side.receive_key()?;
    let mut buffer = vec![0; size];
    if access == Access::Write {
        fill(&mut buffer);
    }
    side.set_buffers(buffer, stream.max(1));
    let mut times = Vec::with_capacity(trips);
    let mut sign = now();
    for trip in 0..trips {
        let start = now();
        access.post(side, to, size)?;
        side.settle()?;
        if trip >= warm_up {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        } else if access == Access::Read {
            check_read(side)?;
            side.clear_latest();
        }
        show_life(side, &mut sign)?;
    }
    let start = now();
    for number in 0..stream {
        access.post(side, to, size)?;
        // To look at the clock takes as long as some accesses.
        if number % 8 == 0 {
            show_life(side, &mut sign)?;
        }
    }
    side.settle()?;
    let seconds = start.elapsed().as_secs_f64();
    match access {
        Access::Write => {}
        Access::Read if trips + stream > 0 => check_read(side)?,
        Access::Read => {}
        Access::FetchAdd => {
            if side.latest() != ((trips + stream).saturating_sub(1) as u64).to_ne_bytes() {
                return Err(returned_wrong(access));
            }
        }
    }
    side.send_note(DONE)?;
    side.settle()?;
    Ok((times, seconds))
}

fn returned_wrong(access: Access) -> Error {
    failure(format!("a {} returned wrong bytes", access.name()))
}

/// Checks what a read has returned.
fn check_read(side: &Side<'_>) -> Result<(), Error> {
    if is_filled(side.latest()) { Ok(()) } else { Err(returned_wrong(Access::Read)) }
}

/// Sends a sign of life if the last one is old.
fn show_life(side: &mut Side<'_>, last: &mut Instant) -> Result<(), Error> {
    if last.elapsed() < SIGN {
        return Ok(());
    }
    *last = now();
    side.send_note(ALIVE)
}
