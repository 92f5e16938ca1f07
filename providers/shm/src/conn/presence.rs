//! Words that the two sides of a link write for each other beside the lines: whether a side polls
//! or sleeps, that it has gone, and which bit of its ready bitmap stands for the link.

use crate::region::{ReadyBitmap, Region, Side};
use crate::window::Words;
use ofi_sync::lines::{self, News, Order, SleepState, WakeAction, order_own, wake_action};
use ofi_sync::primitive::Ordering;
use std::sync::Arc;

/// The words that each side writes for the other.
#[derive(Debug)]
pub(crate) struct Presence {
    region: Arc<Region>,
    side: Side,
    order: Order,
    /// The other side's bitmap, and this link's bit in it.
    bitmap: Option<(ReadyBitmap, usize)>,
    /// This side has set the bit with its last notification.
    noted: bool,
}

impl Presence {
    pub(super) const fn new(region: Arc<Region>, side: Side) -> Self {
        Self { region, side, order: Order::ByBoth, bitmap: None, noted: false }
    }

    /// Sets who orders memory accesses: the sleeper alone, if both processes take part.
    pub(crate) const fn set_order(&mut self, ours: bool, theirs: bool) {
        self.order = if ours && theirs { Order::ByReader } else { Order::ByBoth };
    }

    /// Sets the other side's bitmap, if there is one, and this link's bit in it.
    pub(crate) fn set_bitmap(&mut self, bitmap: Option<(ReadyBitmap, usize)>) {
        self.bitmap = bitmap;
    }

    /// Whether this side has set its bit with the last notification. Prefetches the bit then.
    #[inline(always)]
    pub(crate) fn fetch_bit(&self) -> bool {
        if self.noted
            && let Some((bitmap, place)) = &self.bitmap
        {
            bitmap.fetch_to_set(*place);
        }
        self.noted
    }

    /// Notifies the other side of `news`, unless it polls the link anyway. True if it must be
    /// woken.
    #[inline(always)]
    pub(crate) fn must_wake(&mut self, news: News) -> bool {
        self.noted = false;
        match wake_action(self.region.asleep(self.side.other()), news, self.order) {
            WakeAction::Nothing => false,
            WakeAction::Wake => true,
            WakeAction::Note => {
                self.noted = true;
                if let Some((bitmap, place)) = &self.bitmap {
                    bitmap.set(*place);
                }
                false
            }
        }
    }

    /// Whether the other side polls, so that a line which it need not read may be of use to it.
    pub(super) fn is_attentive(&self) -> bool {
        !lines::sleep_hint(self.region.asleep(self.side.other())).0
    }

    /// Lets the other side, if it polls, notice such a line soon.
    pub(super) fn hint(&self) {
        let (_, is_idle) = lines::sleep_hint(self.region.asleep(self.side.other()));
        if is_idle && let Some((bitmap, place)) = &self.bitmap {
            bitmap.set(*place);
        }
    }

    /// Publishes whether this side polls or sleeps.
    pub(crate) fn announce(&self, state: SleepState) {
        state.announce(self.region.asleep(self.side));
    }

    /// Whether the other side has woken this one since it announced its sleep.
    pub(crate) fn was_woken(&self) -> bool {
        lines::was_woken(self.region.asleep(self.side))
    }

    /// The words of the window that this side opens for the payload of that number.
    pub(super) fn own_window(&self, number: u32) -> Words<'_> {
        self.region.window(self.side, number)
    }

    /// The same of the other side.
    pub(super) fn their_window(&self, number: u32) -> Words<'_> {
        self.region.window(self.side.other(), number)
    }

    /// Marks this side as gone.
    pub(crate) fn leave(&self) {
        // Release pairs with the Acquire in `Region::has_left`: the other side sees lines written
        // before.
        self.region.gone(self.side).store(1, Ordering::Release);
        // Before the application reuses the memory that the other side was reading.
        order_own();
    }

    /// Whether the other side has marked itself as gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.region.has_left(self.side.other())
    }
}
