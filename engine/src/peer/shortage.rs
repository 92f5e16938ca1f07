//! Credit that peers lack: which links are blocked, and whether the account has room for them.
//! `rx/blocked.rs` says whose messages are wanted.

use super::Peers;
use super::agenda::Work;
use super::credit::cost_of;
use super::link::Blocked;
use crate::transport::LinkId;

/// Credit that peers lack.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// Links whose peers lack credit for their next message.
    blocked: Vec<LinkId>,
    /// The account has room again, which blocked links may need.
    freed: bool,
    /// Bytes charged to the account when it last had no room for a blocked link.
    starved_at: Option<usize>,
}

impl Shortage {
    /// True if a link is blocked.
    #[inline]
    pub(super) const fn is_any(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// A link is not blocked any more, or is gone.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.blocked.retain(|blocked| *blocked != id);
    }
}

/// Outcome of trying to give a blocked peer credit.
pub(crate) enum Relief {
    /// It has the credit that it needs.
    Granted,
    /// The account has no room.
    Starved,
    /// No receive wants its messages.
    Waits,
}

impl Peers {
    /// A peer lacks credit for its next message, which costs so many bytes. Returns its number in
    /// the match queues.
    pub(crate) fn note_blocked(&mut self, id: LinkId, bytes: u64) -> Option<u32> {
        let link = self.links.get_mut(id)?;
        if link.rx.blocked.need().is_none() {
            link.rx.credit.set_prompt(true);
            self.shortage.blocked.push(id);
        }
        link.rx.credit.widen(&self.account);
        // No eager message costs more, so ignore what the peer asks for beyond that.
        link.rx.blocked = Blocked::Needs(bytes.min(cost_of(link.rx.credit.eager())));
        Some(link.sender)
    }

    /// A blocked link, and its peer's number in the match queues. The next one is at the same place
    /// after [`Self::relieve`] has granted this one its credit.
    pub(crate) fn blocked_at(&self, place: usize) -> Option<(LinkId, u32)> {
        let id = *self.shortage.blocked.get(place)?;
        Some((id, self.links.get(id)?.sender))
    }

    /// Gives a blocked peer the credit that it needs, if its messages are wanted. `make_room` frees
    /// memory that is charged to the account, for the case that the account is full.
    pub(crate) fn relieve(&mut self, id: LinkId, is_wanted: bool, make_room: impl FnOnce()) -> Relief {
        self.grant_credits(id);
        let Some(link) = self.links.get_mut(id) else { return Relief::Waits };
        let Some(need) = link.rx.blocked.need() else { return Relief::Waits };
        if link.rx.credit.promised() < need {
            if !is_wanted {
                // It keeps the credit it has and waits, as any sender does.
                return Relief::Waits;
            }
            if !link.rx.credit.extend(need, &self.account) {
                make_room();
            }
            if link.rx.credit.promised() < need && !link.rx.credit.extend(need, &self.account) {
                link.rx.blocked = Blocked::Starved(need);
                return Relief::Starved;
            }
        }
        link.rx.blocked = Blocked::No;
        link.rx.credit.set_prompt(false);
        self.shortage.forget(id);
        self.mark_pending(id);
        Relief::Granted
    }

    /// The account had no room for a blocked link: polls check it until it has.
    pub(crate) fn note_starved(&mut self) {
        self.shortage.starved_at = Some(self.account.used());
        self.agenda.add(Work::DEFERRED);
    }

    /// True if no link can send a message.
    pub(crate) fn are_all_starved(&self) -> bool {
        self.links.iter().all(|(_, link)| matches!(link.rx.blocked, Blocked::Starved(_)))
    }

    /// Checks the account for room that a blocked link lacked: the transport charges the same
    /// account and may have released memory.
    pub(crate) fn check_account(&mut self) {
        if self.shortage.starved_at.is_some_and(|used| self.account.used() < used) {
            self.note_freed();
        }
        if self.shortage.starved_at.is_none() {
            self.agenda.remove(Work::DEFERRED);
        }
    }

    /// The account has room again: blocked links may get credit.
    pub(crate) fn note_freed(&mut self) {
        self.shortage.freed = true;
        if self.shortage.is_any() {
            self.agenda.add(Work::PENDING);
        }
    }

    /// The account has had room again since [`Self::take_freed`].
    pub(crate) const fn is_freed(&self) -> bool {
        self.shortage.freed
    }

    /// Whether blocked links wait for room that the account has again.
    pub(crate) const fn can_relieve(&self) -> bool {
        self.shortage.freed && self.shortage.is_any()
    }

    /// The caller looks at every blocked link now: those that were starved need credit again.
    pub(crate) fn take_freed(&mut self) {
        let Self { links, shortage, .. } = self;
        (shortage.freed, shortage.starved_at) = (false, None);
        for id in &shortage.blocked {
            if let Some(link) = links.get_mut(*id)
                && let Blocked::Starved(need) = link.rx.blocked
            {
                link.rx.blocked = Blocked::Needs(need);
            }
        }
    }
}
