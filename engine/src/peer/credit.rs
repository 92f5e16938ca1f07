//! Credit: how many bytes a peer may send. Each message costs its length plus an overhead for the
//! entry that holds it while it is unexpected. Part of a link's window is guaranteed to it; the
//! rest of the window, and credit beyond it for a peer that a receive waits for, is charged to the
//! endpoint's account.
//! Invariant: credit that the peer has left, the cost of messages held, and credit to be returned
//! add up to the window plus the credit beyond it.

use crate::wire::frame::{MOST_EAGER, Violation};
use crate::wire::hello::Credits;
use ofi_sync::account::Account;

/// Cost of a message besides its bytes: at least the size of the entry that holds it.
pub const OVERHEAD: u64 = 128;
/// Credit that every open link has, outside the account: 64 KiB in 64 messages.
pub const GUARANTEED: u64 = (64 << 10) + 64 * OVERHEAD;
// fi_getinfo promises this much for every link.
const _: () = assert!(ofi_core::negotiate::EARLY_BYTES as u64 + 64 * OVERHEAD <= GUARANTEED);
/// The largest part of a window that is charged to the account.
const MOST_SHARED: u64 = 2 << 20;
/// The widest window, in bytes. As credit returns by halves, 8 GB/s may flow over a round trip of a
/// millisecond.
const WIDEST: u64 = 16 << 20;
/// What a window gains at a time is at most 1/`WIDER_SHARE` of the memory still available for
/// windows.
const WIDER_SHARE: u64 = 8;
/// A new link gets 1/`SHARE` of the memory still available for windows.
const SHARE: u64 = 32;
/// The eager limit of a link that has only the guaranteed credit, in bytes: two such messages fit.
pub(crate) const LEAST_EAGER: u64 = 32 << 10;
/// The most bytes that an RTS brings along: every link may send one with them.
pub(crate) const MOST_PREVIEW: u32 = 32 << 10;
const _: () = assert!(MOST_PREVIEW as u64 <= LEAST_EAGER);
/// Number of requests that a peer may have outstanding: each may hold a short response in memory.
pub(crate) const REQUESTS: u32 = 64;
/// Bounds of one extension beyond the window.
const STEP: core::ops::RangeInclusive<u64> = (64 << 10)..=(8 << 20);

/// Cost of a message of `len` bytes.
#[inline(always)]
pub(crate) const fn cost_of(len: usize) -> u64 {
    len as u64 + OVERHEAD
}

/// A number of messages, and the bytes that they had at this cost.
const fn bytes_of(cost: u64, messages: u64) -> (u64, u64) {
    (messages, cost.saturating_sub(messages * OVERHEAD))
}

#[allow(clippy::cast_possible_truncation, reason = "64-bit machines alone are served")]
const fn size(bytes: u64) -> usize {
    bytes as usize
}

/// Credit that the peer of a link has granted us.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxCredits {
    /// What is left, in bytes of cost.
    left: u64,
    /// All that was ever granted.
    granted: u64,
    /// Messages for which it was taken.
    messages: u64,
    /// The longest message that we may send eagerly, in bytes.
    eager: usize,
    /// This side has notified the peer that it does not suffice.
    said_blocked: bool,
    /// Number of requests that may still be sent.
    requests: u32,
    /// How many first bytes of a message its RTS brings.
    preview: u32,
}

impl TxCredits {
    /// The initial credit that the peer's hello grants.
    pub(crate) const fn granted(credits: Credits) -> Self {
        let eager = credits.eager as usize;
        let eager = if eager > MOST_EAGER { MOST_EAGER } else { eager };
        let preview = if credits.preview > MOST_PREVIEW { MOST_PREVIEW } else { credits.preview };
        let (left, granted) = (credits.bytes, credits.bytes);
        Self { left, granted, messages: 0, eager, said_blocked: false, requests: credits.requests, preview }
    }

    /// Takes the right to send a request, if there is one left.
    #[inline]
    pub(crate) const fn take_request(&mut self) -> bool {
        let any = self.requests > 0;
        self.requests = self.requests.saturating_sub(1);
        any
    }

    /// Whether a request may be sent.
    pub(crate) const fn has_request(&self) -> bool {
        self.requests > 0
    }

    /// A request has been answered.
    #[inline]
    pub(crate) const fn return_request(&mut self) {
        self.requests += 1;
    }

    /// The longest message that we may send eagerly, in bytes.
    #[inline(always)]
    pub(crate) const fn eager(&self) -> usize {
        self.eager
    }

    /// How many first bytes of a message of this length its RTS brings, unless it is one of a
    /// group.
    pub(crate) fn preview(&self, len: usize) -> usize {
        len.min(self.preview as usize)
    }

    /// The cost of sending a message of this length, eagerly or by rendezvous.
    pub(crate) fn cost_of(&self, len: usize) -> u64 {
        if len <= self.eager { cost_of(len) } else { cost_of(self.preview(len)) }
    }

    /// Whether a message of this length may leave eagerly now.
    #[inline(always)]
    pub(crate) const fn can_send(&self, len: usize) -> bool {
        len <= self.eager && self.left >= cost_of(len)
    }

    /// Whether credit of this cost is left.
    pub(crate) const fn can_afford(&self, cost: u64) -> bool {
        self.left >= cost
    }

    /// Takes credit for a message that leaves; the caller has checked that there is enough.
    #[inline(always)]
    pub(crate) const fn take_tx(&mut self, cost: u64) {
        self.left -= cost;
        self.messages += 1;
    }

    /// How many messages have left, and their bytes, without those of a rendezvous.
    pub(crate) const fn taken(&self) -> (u64, u64) {
        bytes_of(self.granted.saturating_sub(self.left), self.messages)
    }

    /// The peer grants more.
    pub(crate) const fn add(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
        self.granted = self.granted.saturating_add(bytes);
        self.said_blocked = false;
    }

    /// Whether the peer knows that it does not suffice.
    pub(crate) const fn has_said_blocked(&self) -> bool {
        self.said_blocked
    }

    /// This side has notified the peer that it does not suffice.
    pub(crate) const fn note_said_blocked(&mut self) {
        self.said_blocked = true;
    }
}

/// Credit that we grant the peer of a link.
#[derive(Debug)]
pub(crate) struct RxCredits {
    /// Credit that the peer has left.
    left: u64,
    /// All that it was ever granted.
    granted: u64,
    /// Messages for which it has used credit.
    messages: u64,
    /// Credit of consumed messages that is not returned yet.
    unreturned: u64,
    /// Return consumed credit when `unreturned` reaches this.
    return_at: u64,
    /// To be granted by the next Credit frame.
    due: u64,
    /// The initial grant, and what [`Self::widen`] has added.
    window: u64,
    /// What the peer has to use in all before the window may become wider.
    widen_from: u64,
    /// Credit beyond the window.
    extra: u64,
    /// The peer waits for credit: consumed credit is returned at once.
    prompt: bool,
    /// The longest message that the peer may send eagerly, in bytes.
    eager: u32,
}

impl RxCredits {
    /// Opens a window as large as the account allows.
    pub(crate) fn open(account: &Account) -> Self {
        // Windows share half of the account; the other half is for links that need more.
        let free = account.room().saturating_sub(account.limit() / 2) as u64;
        let shared = (free / SHARE).min(MOST_SHARED);
        let shared = if account.try_charge(size(shared)) { shared } else { 0 };
        let window = GUARANTEED + shared;
        let eager = (window / 4).clamp(LEAST_EAGER, MOST_EAGER as u64);
        let eager = u32::try_from(eager).unwrap_or(u32::MAX);
        let (return_at, widen_from) = (window / 2, window / 2);
        Self { left: window, granted: window, return_at, window, widen_from, eager, ..Self::none() }
    }

    /// No credit: the peer may not send messages.
    pub(crate) const fn none() -> Self {
        Self {
            left: 0,
            granted: 0,
            messages: 0,
            unreturned: 0,
            return_at: u64::MAX,
            due: 0,
            window: GUARANTEED,
            widen_from: u64::MAX,
            extra: 0,
            prompt: false,
            eager: 0,
        }
    }

    /// The initial grant, for the hello.
    pub(crate) const fn grant(&self) -> Credits {
        Credits { bytes: self.window, eager: self.eager, requests: REQUESTS, preview: 0 }
    }

    /// The longest message that the peer may send eagerly, in bytes.
    #[inline(always)]
    pub(crate) const fn eager(&self) -> usize {
        self.eager as usize
    }

    /// Charges the peer for a message of this cost.
    #[inline]
    pub(crate) const fn take_rx(&mut self, cost: u64) -> Result<(), Violation> {
        if self.left < cost {
            return Err(Violation("the peer sent more than it was granted"));
        }
        self.left -= cost;
        self.messages += 1;
        Ok(())
    }

    /// Records that a message of this cost was consumed. True if it is time for [`Self::settle`].
    #[inline]
    pub(crate) const fn consumed(&mut self, cost: u64) -> bool {
        self.unreturned += cost;
        self.unreturned >= self.return_at
    }

    /// Both in one, for a message that is consumed as it arrives. `None` if the peer lacked the
    /// credit; nothing has changed then.
    #[inline(always)]
    pub(crate) fn take_consumed(&mut self, cost: u64) -> Option<bool> {
        self.take_rx(cost).ok()?;
        Some(self.consumed(cost))
    }

    /// Returns consumed credit, to the account first, then to the peer. Returns the bytes that the
    /// account got.
    pub(crate) fn settle(&mut self, account: &Account) -> u64 {
        let freed = self.extra.min(self.unreturned);
        if freed > 0 {
            account.release(size(freed));
            self.extra -= freed;
            self.unreturned -= freed;
            self.set_return();
        }
        self.due += core::mem::take(&mut self.unreturned);
        freed
    }

    /// While the account or the peer waits for credit, it is returned at once, otherwise by half
    /// windows.
    const fn set_return(&mut self) {
        self.return_at = if self.extra > 0 || self.prompt { 0 } else { self.window / 2 };
    }

    /// Sets whether the peer waits for credit.
    pub(crate) const fn set_prompt(&mut self, prompt: bool) {
        self.prompt = prompt;
        self.set_return();
    }

    /// Credit that the peer has or is about to be granted.
    pub(crate) const fn promised(&self) -> u64 {
        self.left + self.due
    }

    /// Extends the credit beyond the window, so that the peer may send `need` in all. False if the
    /// account has no room.
    pub(crate) fn extend(&mut self, need: u64, account: &Account) -> bool {
        let least = need.saturating_sub(self.promised());
        let step = self.extra.clamp(*STEP.start(), *STEP.end()).min(account.room() as u64);
        let more = least.max(step);
        if !account.try_charge(size(more)) {
            return false;
        }
        self.extra += more;
        self.due += more;
        self.set_return();
        true
    }

    /// The peer lacked credit. If this side holds little of what the peer has sent, more is under
    /// way on the link than the window allows: doubles the window, unless the peer has used little
    /// credit since the last time, or there is too little memory for windows. It stays as wide
    /// until the link ends.
    pub(crate) fn widen(&mut self, account: &Account) {
        let (used, held) = (self.granted - self.left, self.window + self.extra - self.promised() - self.unreturned);
        let more = self.window.min(WIDEST.saturating_sub(self.window));
        let free = account.room().saturating_sub(account.limit() / 2) as u64;
        if used < self.widen_from || held > self.window / 4 || more > free / WIDER_SHARE {
            return;
        }
        if account.try_charge(size(more)) {
            self.window += more;
            self.due += more;
            self.widen_from = used + self.window / 2;
            self.set_return();
        }
    }

    /// Whether there is credit to grant.
    pub(crate) const fn is_due(&self) -> bool {
        self.due > 0
    }

    /// The credit to grant, in bytes.
    pub(crate) const fn due(&self) -> u64 {
        self.due
    }

    /// The credit that was due has been granted: from now on the peer may use it.
    pub(crate) const fn grant_due(&mut self) {
        self.left += self.due;
        self.granted += self.due;
        self.due = 0;
    }

    /// How many messages have arrived, and their bytes, without those of a rendezvous.
    pub(crate) const fn taken(&self) -> (u64, u64) {
        bytes_of(self.granted - self.left, self.messages)
    }

    /// The link has ended: releases its part of the account.
    pub(crate) fn close(&self, account: &Account) {
        account.release(size(self.window - GUARANTEED + self.extra));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 256 << 20;

    #[test]
    fn a_peer_that_sends_more_than_granted_is_noticed() {
        let mut credit = RxCredits::open(&Account::new(0));
        assert_eq!(credit.grant(), Credits { bytes: GUARANTEED, eager: 32 << 10, requests: REQUESTS, preview: 0 });
        assert!(credit.take_rx(GUARANTEED - 1).is_ok());
        assert!(credit.take_rx(2).is_err());
        assert!(credit.take_rx(1).is_ok());
        assert!(credit.take_consumed(1).is_none());
    }

    #[test]
    fn consumed_credit_is_returned_by_half_windows() {
        let account = Account::new(LIMIT);
        let mut credit = RxCredits::open(&account);
        let half = credit.grant().bytes / 2;
        assert_eq!(credit.take_consumed(half - 1), Some(false));
        assert_eq!(credit.take_consumed(1), Some(true));
        assert_eq!(credit.settle(&account), 0);
        assert_eq!((credit.left, credit.promised()), (credit.window - half, credit.window));
        assert_eq!(credit.due(), half);
        credit.grant_due();
        assert!(!credit.is_due());
        assert_eq!(credit.left, credit.window);
    }

    #[test]
    fn the_first_links_get_wide_windows_and_all_of_them_a_guaranteed_one() {
        let account = Account::new(LIMIT);
        let links: Vec<RxCredits> = (0..2000).map(|_| RxCredits::open(&account)).collect();
        assert!(links.iter().take(32).all(|link| link.window == GUARANTEED + MOST_SHARED && link.eager == 256 << 10));
        assert!(links.iter().all(|link| link.window >= GUARANTEED && u64::from(link.eager) * 2 <= link.window));
        assert!(account.used() <= LIMIT / 2, "half is left for links that need more");
        links.iter().for_each(|link| link.close(&account));
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_link_gets_more_until_the_account_is_full() {
        let account = Account::new(4 << 20);
        let mut credit = RxCredits::open(&account);
        let mut sent = 0;
        loop {
            while credit.take_rx(1000).is_ok() {
                sent += 1000;
            }
            if !credit.extend(1000, &account) {
                break;
            }
            credit.grant_due();
        }
        assert!(account.room() < 1000 && sent > (4 << 20) - 2000);
        // The account gets its part of the consumed credit back before the peer gets any.
        assert!(credit.consumed(1000));
        assert_eq!(credit.settle(&account), 1000);
        assert!(!credit.is_due());
        credit.consumed(sent - 1000);
        credit.settle(&account);
        assert_eq!(credit.promised(), credit.window);
        credit.close(&account);
        assert_eq!(account.used(), 0);
    }

    /// A peer has used all its credit, and this side has consumed a part of what it has sent.
    fn used_up(account: &Account, consumed: impl FnOnce(u64) -> u64) -> RxCredits {
        let mut credit = RxCredits::open(account);
        let window = credit.window;
        credit.take_rx(window).unwrap();
        credit.consumed(consumed(window));
        credit.settle(account);
        credit
    }

    #[test]
    fn a_window_that_is_shorter_than_what_is_under_way_becomes_wider() {
        let account = Account::new(LIMIT);
        let mut credit = used_up(&account, |window| window);
        let first = credit.window;
        credit.widen(&account);
        assert_eq!((credit.window, credit.promised()), (2 * first, 2 * first));
        credit.widen(&account);
        assert_eq!(credit.window, 2 * first, "the peer has used nothing since");
        credit.grant_due();
        while credit.window < WIDEST {
            let window = credit.window;
            assert_eq!(credit.take_consumed(window), Some(true));
            credit.settle(&account);
            credit.widen(&account);
            assert_eq!(credit.window, (2 * window).min(WIDEST));
            credit.grant_due();
        }
        credit.close(&account);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_window_does_not_become_wider_for_messages_that_wait_or_without_memory() {
        let account = Account::new(LIMIT);
        for (short, widens) in [(0, true), (1, false)] {
            let mut credit = used_up(&account, |window| window - window / 4 - short);
            let window = credit.window;
            credit.widen(&account);
            assert_eq!(credit.window > window, widens, "a quarter and {short} bytes are held here");
            credit.close(&account);
        }
        for (short, widens) in [(0, true), (1, false)] {
            let mut credit = used_up(&account, |window| window);
            let (window, free) = (credit.window, account.room() - LIMIT / 2);
            let taken = free - size(window * WIDER_SHARE) + short;
            assert!(account.try_charge(taken));
            credit.widen(&account);
            assert_eq!(credit.window > window, widens, "{short} bytes less than {WIDER_SHARE} times as many are free");
            account.release(taken);
            credit.close(&account);
        }
        let mut none = RxCredits::none();
        none.widen(&account);
        assert_eq!(none.promised(), 0, "the peer may not send messages");
    }

    proptest! {
        /// The parts always add up, and the account is charged exactly for its part.
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec((0u8..6, 1u64..100_000), 0..200)) {
            let account = Account::new(1 << 20);
            let mut credit = RxCredits::open(&account);
            let mut held = 0;
            for (what, bytes) in steps {
                match what {
                    0 => if credit.take_rx(bytes).is_ok() { held += bytes },
                    1 => {
                        let part = bytes.min(held);
                        held -= part;
                        if credit.consumed(part) {
                            credit.settle(&account);
                        }
                    }
                    2 => { credit.extend(bytes, &account); }
                    3 => credit.grant_due(),
                    4 => credit.widen(&account),
                    _ => { credit.settle(&account); }
                }
                prop_assert_eq!(credit.left + credit.unreturned + credit.due + held, credit.window + credit.extra);
                prop_assert_eq!(account.used() as u64, credit.window - GUARANTEED + credit.extra);
                prop_assert!(account.used() <= account.limit());
            }
        }
    }
}
