//! Access to another process's memory: the initiator measures, the target only makes progress.

use crate::side::{PATIENCE, Side, fill, is_filled, now, trouble};
use ofi::{Error, MrAccess, RemoteAddr};
use std::time::Duration;

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

    fn post(self, side: &mut Side, to: RemoteAddr, size: usize) -> Result<(), Error> {
        match self {
            Self::Write => side.write(to, size),
            Self::Read => side.read(to, size),
            Self::FetchAdd => side.fetch_add(to, 1),
        }
    }
}

/// Time limit of an access, after which the target gives up.
fn slowest(size: usize) -> Duration {
    Duration::from_millis(1) + Duration::from_nanos(10 * size as u64)
}

/// The target's part: exposes `size` bytes until the initiator has made `count` accesses, and
/// verifies their effect.
pub(crate) fn expose(side: &mut Side, access: Access, size: usize, count: usize) -> Result<(), Error> {
    let mut memory = vec![0; size];
    if access == Access::Read {
        fill(&mut memory);
    }
    let region = side.domain().register(memory, MrAccess::REMOTE)?;
    side.receive(0)?;
    side.send_key(region.key())?;
    side.take_awake(PATIENCE + slowest(size).saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)))?;
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
        Err(trouble(format!("after {count} times {} the memory has wrong contents", access.name())))
    }
}

/// The initiator's part: `trips` accesses one after the other, and then `stream` in a row. It does
/// not measure the first `warm_up` trips. Returns the microseconds of each measured one, and the
/// seconds of the stream.
pub(crate) fn measure(
    side: &mut Side,
    access: Access,
    size: usize,
    (warm_up, trips, stream): (usize, usize, usize),
) -> Result<(Vec<f64>, f64), Error> {
    let to = RemoteAddr { offset: 0, key: side.receive_key()? };
    side.fill_buffers(size);
    let mut times = Vec::with_capacity(trips);
    for trip in 0..trips {
        let start = now();
        access.post(side, to, size)?;
        side.settle()?;
        if trip >= warm_up {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let start = now();
    for _ in 0..stream {
        access.post(side, to, size)?;
    }
    side.settle()?;
    let seconds = start.elapsed().as_secs_f64();
    let right = match access {
        Access::Write => true,
        Access::Read => is_filled(side.latest()),
        Access::FetchAdd => side.latest() == ((trips + stream).saturating_sub(1) as u64).to_ne_bytes(),
    };
    if !right {
        return Err(trouble(format!("a {} returned wrong bytes", access.name())));
    }
    side.send(0)?;
    side.settle()?;
    Ok((times, seconds))
}
