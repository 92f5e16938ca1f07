//! The monotonic clock.

use ofi_core::{Clock, Instant};

/// CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    #[inline]
    fn now(&self) -> Instant {
        now()
    }
}

/// The current time on CLOCK_MONOTONIC.
#[inline]
pub fn now() -> Instant {
    read(libc::CLOCK_MONOTONIC)
}

/// The same as of the system's last tick, at most 10 ms ago. Cheap on every machine,
/// where the exact time may take a system call.
#[inline]
pub fn tick() -> Instant {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// The processor time that the calling thread has used.
pub fn thread_time() -> Instant {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
#[allow(unsafe_code)]
fn read(clock: libc::clockid_t) -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Instant::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_does_not_run_backwards() {
        let first = super::now();
        assert!(super::now() >= first);
        assert!(super::tick() <= super::now());
    }
}
