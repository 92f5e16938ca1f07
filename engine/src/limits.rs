//! Message size limits: an endpoint's maxima, and the lower limits that the application may set
//! (FI_OPT_MAX_MSG_SIZE, FI_OPT_INJECT_MSG_SIZE and their tagged variants, fi_endpoint(3)).

use ofi_core::Errno;
use ofi_core::error::{Error, Result};

/// The messages that a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeLimit {
    /// Messages without a tag.
    Message,
    /// Messages with a tag.
    TaggedMessage,
    /// Injected messages without a tag.
    Inject,
    /// Injected messages with a tag.
    TaggedInject,
}

/// The size limits of an endpoint, in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The endpoint's maxima, by [`SizeLimit`].
    most: [usize; 4],
    /// The limits in force.
    set: [usize; 4],
    /// The smallest limit in force: a message up to this size needs no further check.
    least: usize,
}

impl Limits {
    /// The limits of an endpoint before its application lowers them.
    pub fn new(max_msg_size: usize, inject_size: usize) -> Self {
        let most = [max_msg_size, max_msg_size, inject_size, inject_size];
        Self { most, set: most, least: max_msg_size.min(inject_size) }
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
        let most = self.most[which as usize];
        if size > most {
            return Err(Error::new(
                Errno::EINVAL,
                format!("set a size limit of {size} bytes above the maximum of {most}"),
            ));
        }
        self.set[which as usize] = size;
        self.least = self.set.into_iter().min().unwrap_or(0);
        Ok(())
    }

    /// The size up to which any message is allowed.
    #[inline(always)]
    pub(crate) const fn least(&self) -> usize {
        self.least
    }

    /// True if a message of `len` bytes is within its limits.
    #[inline(always)]
    pub(crate) const fn allow(&self, len: usize, tagged: bool, inject: bool) -> bool {
        len <= self.least || self.allow_long(len, tagged, inject)
    }

    #[cold]
    const fn allow_long(&self, len: usize, tagged: bool, inject: bool) -> bool {
        let (message, injected) = if tagged {
            (SizeLimit::TaggedMessage, SizeLimit::TaggedInject)
        } else {
            (SizeLimit::Message, SizeLimit::Inject)
        };
        len <= self.get(message) && (!inject || len <= self.get(injected))
    }
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
        assert!(limits.allow(50, false, true) && !limits.allow(51, false, false) && !limits.allow(51, false, true));
        assert!(limits.allow(1000, true, false) && limits.allow(70, true, true) && !limits.allow(71, true, true));
        limits.set(SizeLimit::Message, 1000).unwrap();
        assert!(limits.allow(1000, false, false) && limits.least() == 70);
        assert!(limits.set(SizeLimit::Message, 1001).is_err());
        assert_eq!(limits.get(SizeLimit::Message), 1000);
    }
}
