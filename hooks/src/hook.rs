//! What a hook gets to know of a call.

use crate::tables::{Owner, Slot};
use ofi_core::Errno;

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The provider whose object it is.
    pub(crate) owner: &'a Owner,
    /// The slot, and the table's name.
    pub(crate) slot: &'a Slot,
    /// The object's address.
    pub(crate) object: usize,
    /// The object's class (fi_fabric(3)).
    pub(crate) class: usize,
    /// The arguments as machine words, beginning with the object; more than there are.
    pub(crate) arguments: [usize; 16],
    /// Bytes that the call handed over, if its slot moves data.
    pub(crate) bytes: u64,
    /// What it returned.
    pub(crate) outcome: Outcome,
    /// Nanoseconds that it took; 0 if no hook asks for times.
    pub(crate) took: u64,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// 0, or a number of entries or bytes.
    Good(u64),
    /// A negative error number.
    Failed(Errno),
}

impl Outcome {
    /// Whether it only says that there is nothing now.
    pub(crate) fn is_again(self) -> bool {
        self == Self::Failed(Errno::AGAIN)
    }
}

/// A hook.
pub(crate) trait Hook: Send + Sync {
    /// Whether it needs to know how long calls take.
    fn is_timed(&self) -> bool {
        false
    }

    /// A call has returned. The object may be closed.
    fn called(&self, call: &Call<'_>);

    /// An object was opened.
    fn opened(&self, _owner: &Owner, _object: usize, _class: usize) {}

    /// What it has to say at the end of the process.
    fn report(&self) -> String {
        String::new()
    }
}
