//! The data word of a member's message: the operation that the message belongs to, or a notice in
//! place of one. A peer chooses it, so any value must parse.

use crate::op::CollectiveKind;
use crate::transport::Down;
use ofi_core::{Cause, Errno};

/// The word of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// A notice: a message that belongs to no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The member waits for this one, and has just connected to it.
    Waits,
    /// The member has left the group.
    Left,
    /// The group has failed at the member.
    Failed(Cause, Errno),
}

const NOTICE: u64 = 1 << 63;
const WAITS: u64 = 1;
const LEFT: u64 = 2;
const FAILED: u64 = 3;

impl Word {
    /// A message of the operation with this sequence number. The kind detects members that call
    /// different operations.
    pub(super) const fn of_operation(kind: CollectiveKind, number: u32) -> Self {
        Self(number as u64 | (kind as u64) << 32)
    }

    /// A number below 2^63.
    pub(super) const fn of_number(number: u64) -> Self {
        Self(number & !NOTICE)
    }

    pub(super) const fn of_notice(notice: &Notice) -> Self {
        match notice {
            Notice::Waits => Self(NOTICE | WAITS),
            Notice::Left => Self(NOTICE | LEFT),
            Notice::Failed(cause, errno) => {
                Self(NOTICE | FAILED | (cause.code() as u64 & 0xffff) << 8 | (errno.raw() as u64 & 0xffff) << 24)
            }
        }
    }

    /// The notice, if the word is one. An unknown one means that the group has failed.
    pub(super) fn notice(self) -> Option<Notice> {
        if self.0 & NOTICE == 0 {
            return None;
        }
        let part = |shift: u32| i32::try_from(self.0 >> shift & 0xffff).unwrap_or(0);
        Some(match self.0 & 0xff {
            WAITS => Notice::Waits,
            LEFT => Notice::Left,
            _ => {
                let cause = Cause::from_code(part(8)).unwrap_or(Cause::PeerDropped);
                let errno = if part(24) > 0 { Errno::from_raw(part(24)) } else { Errno::EIO };
                Notice::Failed(cause, errno)
            }
        })
    }
}

impl Notice {
    /// The notice that the group has failed for this reason.
    pub(super) const fn failed(why: &Down) -> Self {
        Self::Failed(why.cause, why.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn notices_survive() {
        let failed = Notice::Failed(Cause::Broken, Errno::ECONNRESET);
        for notice in [Notice::Waits, Notice::Left, failed] {
            assert_eq!(Word::of_notice(&notice).notice(), Some(notice));
        }
    }

    proptest! {
        #[test]
        fn any_word_is_a_message_or_a_notice(word: u64) {
            let notice = Word(word).notice();
            prop_assert_eq!(notice.is_some(), word >> 63 == 1);
            if let Some(Notice::Failed(_, errno)) = notice {
                prop_assert!(errno.raw() > 0);
            }
        }

        #[test]
        fn operations_are_no_notices(number: u32) {
            prop_assert_eq!(Word::of_operation(CollectiveKind::Gather, number).notice(), None);
        }
    }
}
