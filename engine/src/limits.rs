//! Size limits: an endpoint's maxima, and the lower limits that the application may set for a kind
//! of operations (FI_OPT_MAX_MSG_SIZE, FI_OPT_INJECT_MSG_SIZE and their kin, fi_endpoint(3)).

use crate::op::MOST_ATOMIC;
use ofi_core::Errno;
use ofi_core::error::{Error, Result};

/// What a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeLimit {
    /// Messages without a tag.
    Message,
    /// Messages with a tag.
    TaggedMessage,
    /// Reads and writes of a peer's memory.
    Access,
    /// Atomic operations.
    Atomic,
    /// Injected messages without a tag.
    Inject,
    /// Injected messages with a tag.
    TaggedInject,
    /// Injected writes.
    InjectWrite,
    /// Injected atomic operations.
    InjectAtomic,
}

/// The kinds of operations, each with a limit, and another one for what it injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Tagged,
    Access,
    Atomic,
}

impl Kind {
    #[inline(always)]
    pub(crate) const fn of_message(tagged: bool) -> Self {
        if tagged { Self::Tagged } else { Self::Message }
    }

    const fn limits(self) -> (SizeLimit, SizeLimit) {
        match self {
            Self::Message => (SizeLimit::Message, SizeLimit::Inject),
            Self::Tagged => (SizeLimit::TaggedMessage, SizeLimit::TaggedInject),
            Self::Access => (SizeLimit::Access, SizeLimit::InjectWrite),
            Self::Atomic => (SizeLimit::Atomic, SizeLimit::InjectAtomic),
        }
    }
}

/// The size limits of an endpoint, in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The endpoint's maxima: of any operation, and of an injected one.
    most: [usize; 2],
    /// The limits in force, by [`SizeLimit`].
    set: [usize; 8],
    /// The smallest limit in force: an operation of up to this size needs no further check.
    least: usize,
}

impl Limits {
    /// The limits of an endpoint before its application lowers them.
    pub fn new(max_msg_size: usize, inject_size: usize) -> Self {
        let most = [max_msg_size, inject_size];
        let set = core::array::from_fn(|which| most_of(most, which));
        Self { most, set, least: least_of(&set) }
    }

    /// The limit in force.
    pub const fn get(&self, which: SizeLimit) -> usize {
        self.set[which as usize]
    }

    /// Changes a limit.
    ///
    /// # Errors
    /// EINVAL above the endpoint's maximum.
    pub fn set(&mut self, which: SizeLimit, size: usize) -> Result<()> {
        let most = most_of(self.most, which as usize);
        if size > most {
            return Err(Error::new(
                Errno::EINVAL,
                format!("set a size limit of {size} bytes above the maximum of {most}"),
            ));
        }
        self.set[which as usize] = size;
        self.least = least_of(&self.set);
        Ok(())
    }

    /// The size up to which any operation is allowed.
    #[inline(always)]
    pub(crate) const fn least(&self) -> usize {
        self.least
    }

    /// True if an operation of `len` bytes is within its limits.
    #[inline(always)]
    pub(crate) const fn allow(&self, len: usize, kind: Kind, inject: bool) -> bool {
        len <= self.least || self.allow_long(len, kind, inject)
    }

    #[cold]
    const fn allow_long(&self, len: usize, kind: Kind, inject: bool) -> bool {
        let (any, injected) = kind.limits();
        len <= self.get(any) && (!inject || len <= self.get(injected))
    }
}

/// The maximum of a [`SizeLimit`]: the first half of them is of any operations, of four kinds.
fn most_of(most: [usize; 2], which: usize) -> usize {
    let of_all = most[which / 4];
    if which % 4 == SizeLimit::Atomic as usize { of_all.min(MOST_ATOMIC) } else { of_all }
}

fn least_of(limits: &[usize; 8]) -> usize {
    limits.iter().copied().min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_for_its_own_messages() {
        let mut limits = Limits::new(1000, 100);
        assert_eq!(limits.least(), 100);
        limits.set(SizeLimit::Message, 50).unwrap();
        limits.set(SizeLimit::TaggedInject, 70).unwrap();
        assert_eq!(limits.least(), 50);
        let allows = |limits: &Limits, len, kind| [false, true].map(|inject| limits.allow(len, kind, inject));
        assert_eq!(allows(&limits, 50, Kind::Message), [true, true]);
        assert_eq!(allows(&limits, 51, Kind::Message), [false, false]);
        assert_eq!(allows(&limits, 70, Kind::Tagged), [true, true]);
        assert_eq!(allows(&limits, 1000, Kind::Tagged), [true, false]);
        for kind in [Kind::Access, Kind::Atomic] {
            assert_eq!((allows(&limits, 100, kind), allows(&limits, 1000, kind)), ([true, true], [true, false]));
        }
        limits.set(SizeLimit::InjectWrite, 90).unwrap();
        limits.set(SizeLimit::Atomic, 80).unwrap();
        assert_eq!(
            (allows(&limits, 91, Kind::Access), allows(&limits, 81, Kind::Atomic)),
            ([true, false], [false, false])
        );
        limits.set(SizeLimit::Message, 1000).unwrap();
        assert!(limits.allow(1000, Kind::Message, false) && limits.least() == 70);
        assert_eq!(Limits::new(1 << 20, 1 << 20).get(SizeLimit::InjectAtomic), MOST_ATOMIC);
        assert!(limits.set(SizeLimit::Message, 1001).is_err());
        assert_eq!(limits.get(SizeLimit::Message), 1000);
    }
}
