//! Pending work of an endpoint besides events: links with something to send or to abort, and
//! deferred acknowledgments.

use crate::transport::{Down, LinkId};

/// Polls after which deferred work runs even if they were busy.
const MOST_DEFERRALS: u32 = 8;

/// Kinds of pending work, as flags in one byte that each poll tests: more of it would be
/// loaded a moment after one byte of it was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work(u8);

impl Work {
    /// Links are pending, or blocked ones may get credit.
    pub(crate) const PENDING: Self = Self(1);
    /// The next tick has work, now or at a deadline.
    pub(crate) const STIRRED: Self = Self(2);
    /// There is work that is deferred until an idle poll or for [`MOST_DEFERRALS`] polls.
    pub(crate) const DEFERRED: Self = Self(4);
    /// Since the last poll, a flush has sent deferred acknowledgments.
    const FLUSHED: Self = Self(8);
    /// Since the last poll, a flush has left deferred acknowledgments for a reply to take along.
    const LEFT: Self = Self(16);
    /// Receives wait for handles that another process may insert: nothing but a look tells.
    pub(crate) const WATCHES: Self = Self(32);
    /// Collective operations are in progress: each poll may have ended a step of one.
    pub(crate) const GROUPS: Self = Self(64);
    /// Deferred operations wait until others have completed.
    pub(crate) const ROOM: Self = Self(128);
    /// What a tick leaves.
    const LASTING: Self =
        Self(Self::DEFERRED.0 | Self::FLUSHED.0 | Self::LEFT.0 | Self::WATCHES.0 | Self::GROUPS.0 | Self::ROOM.0);
}

/// Pending work of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    work: Work,
    /// Links with control frames, credit or data to send.
    pending: Vec<LinkId>,
    /// Links for the transport to abort. With a reason, their operations fail for that reason.
    aborted: Vec<(LinkId, Option<Down>)>,
    /// Links with deferred arrival acknowledgments. May name links that are gone.
    deferred: Vec<LinkId>,
    /// Polls since deferred work last ran.
    deferrals: u32,
    /// The application has replied to a peer's last frames before it polled again, and is expected
    /// to do so once more.
    expects_reply: bool,
    /// The only link whose acknowledgments the latest flush has sent or left.
    watched: Option<LinkId>,
    /// A read has left entries behind, and deferred acknowledgments for one that may not come.
    put_off: bool,
}

impl Agenda {
    #[inline(always)]
    pub(crate) const fn add(&mut self, work: Work) {
        self.work.0 |= work.0;
    }

    pub(crate) const fn remove(&mut self, work: Work) {
        self.work.0 &= !work.0;
    }

    /// Whether there is any work.
    #[inline(always)]
    pub(crate) const fn is_any(&self) -> bool {
        self.work.0 != 0
    }

    pub(crate) const fn has(&self, work: Work) -> bool {
        self.work.0 & work.0 != 0
    }

    /// Whether links wait for the transport.
    pub(crate) const fn has_links(&self) -> bool {
        !self.pending.is_empty() || !self.aborted.is_empty()
    }

    /// Lists a link that has something to send.
    pub(crate) fn push_pending(&mut self, id: LinkId) {
        self.pending.push(id);
        self.add(Work::PENDING);
    }

    pub(crate) fn pop_pending(&mut self) -> Option<LinkId> {
        self.pending.pop()
    }

    /// Lists a link for the transport to abort.
    pub(crate) fn push_aborted(&mut self, id: LinkId, why: Option<Down>) {
        self.aborted.push((id, why));
        self.add(Work::PENDING);
    }

    pub(crate) fn pop_aborted(&mut self) -> Option<(LinkId, Option<Down>)> {
        self.aborted.pop()
    }

    /// A link is down: it needs no abort, and the transport may reuse its number.
    pub(crate) fn forget_aborted(&mut self, id: LinkId) {
        self.aborted.retain(|(aborted, _)| *aborted != id);
    }

    /// Lists a link with deferred arrival acknowledgments.
    pub(crate) fn push_deferred(&mut self, id: LinkId) {
        self.deferred.push(id);
        self.add(Work::DEFERRED);
    }

    pub(crate) fn retain_deferred(&mut self, mut stays: impl FnMut(LinkId) -> bool) {
        self.deferred.retain(|id| stays(*id));
        self.put_off &= self.has_deferred();
    }

    pub(crate) fn pop_deferred(&mut self) -> Option<LinkId> {
        self.put_off = false;
        self.deferred.pop()
    }

    /// A read has left entries behind. True if it puts off acknowledgments that no read did before.
    pub(crate) const fn puts_off(&mut self) -> bool {
        let begins = self.has_deferred() && !self.put_off;
        self.put_off |= begins;
        begins
    }

    pub(crate) const fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether deferred work is to run now: after an idle poll, and after [`MOST_DEFERRALS`] busy
    /// ones, because a peer that always sends must not delay the others' completions.
    pub(crate) const fn is_deferral_over(&mut self, idle: bool) -> bool {
        if !self.has(Work::DEFERRED) {
            return false;
        }
        self.deferrals += 1;
        if !idle && self.deferrals < MOST_DEFERRALS {
            return false;
        }
        self.deferrals = 0;
        true
    }

    /// A flush for a caller that may not poll again. True if deferred work is to run now, not if an
    /// operation of the endpoint's own is expected to take the acknowledgments along: an
    /// application that answers each message or write of a peer then sends one packet, not two.
    /// Only if a backstop flushes once more (`is_backed`): a second flush leaves nothing that the
    /// first one has left.
    pub(crate) fn flushes_deferred(&mut self, is_backed: bool) -> bool {
        if !self.has_deferred() {
            return false;
        }
        self.watched = if let [only] = self.deferred[..] { Some(only) } else { None };
        let leaves = is_backed && self.expects_reply && self.watched.is_some() && !self.has(Work::LEFT);
        self.remove(Work::LEFT);
        if leaves {
            self.add(Work::LEFT);
        }
        !leaves
    }

    /// A flush has run deferred work.
    pub(crate) const fn note_flushed(&mut self) {
        self.add(Work::FLUSHED);
    }

    /// Whether an operation of the endpoint's own that is posted now tells about replies, or may be
    /// one that takes acknowledgments along.
    #[inline(always)]
    pub(crate) const fn watches_replies(&self) -> bool {
        self.has_flushed() || self.expects_reply && self.has(Work::DEFERRED)
    }

    /// Whether there was a flush with deferred acknowledgments since the last poll.
    const fn has_flushed(&self) -> bool {
        self.has(Work(Work::FLUSHED.0 | Work::LEFT.0))
    }

    /// An operation is posted before the next poll. It leaves now, on `link`, unless that is
    /// `None`. Returns the link whose acknowledgments it takes along, or those that were left for a
    /// reply.
    pub(crate) fn note_reply(&mut self, link: Option<LinkId>) -> Option<LinkId> {
        if !self.has_flushed() {
            // The poll returned entries, so no flush followed it.
            return link.filter(|link| self.deferred == [*link]);
        }
        self.expects_reply = link.is_some() && link == self.watched;
        let left = self.has(Work::LEFT);
        self.end_watch();
        if left { self.watched } else { None }
    }

    /// A poll begins: what was left for a reply is deferred as before.
    pub(crate) const fn note_poll(&mut self) {
        if self.has_flushed() {
            self.expects_reply = false;
            self.end_watch();
        }
    }

    /// Whether the next flush may leave acknowledgments for a reply.
    #[inline(always)]
    pub(crate) const fn may_leave_to_reply(&self) -> bool {
        self.expects_reply && self.has_deferred()
    }

    /// Whether acknowledgments are left for a reply.
    pub(crate) const fn leaves_to_reply(&self) -> bool {
        self.has(Work::LEFT)
    }

    /// Whether acknowledgments are left for a call that may not come.
    #[inline(always)]
    pub(crate) const fn leaves_acknowledgments(&self) -> bool {
        self.leaves_to_reply() || self.put_off
    }

    const fn end_watch(&mut self) {
        self.remove(Work(Work::FLUSHED.0 | Work::LEFT.0));
    }

    /// Begins a tick, which does all stirred work; [`Self::add`] records the work that it leaves.
    /// True if there was any.
    pub(crate) const fn begin_tick(&mut self) -> bool {
        let stirred = self.has(Work::STIRRED);
        self.work.0 &= Work::LASTING.0;
        stirred
    }

    /// Describes the listed links.
    pub(crate) fn describe(&self) -> String {
        format!("links are listed: {:?}, {:?}", self.pending, self.aborted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_ends_with_what_is_deferred() {
        let mut agenda = Agenda::default();
        assert!(!agenda.puts_off());
        let ends: [fn(&mut Agenda); 2] =
            [|agenda| agenda.retain_deferred(|_| false), |agenda| assert_eq!(agenda.pop_deferred(), Some(LinkId(1)))];
        for end in ends {
            agenda.push_deferred(LinkId(1));
            assert!(agenda.puts_off() && !agenda.puts_off() && agenda.leaves_acknowledgments());
            end(&mut agenda);
            assert!(!agenda.leaves_acknowledgments());
        }
    }
}
