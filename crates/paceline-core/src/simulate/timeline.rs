//! What happened when, in a number of slots that does not grow: when they are used up, two become one.

use crate::Amount;
use std::time::Duration;

/// The most slots.
const MOST: usize = 512;
/// How wide they are in the beginning, in nanoseconds.
const NARROW: u64 = 1_000_000;

/// What happened in one slot of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    /// Requests that came.
    pub came: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Calls that were refused, for they would have waited too long.
    pub refused: u64,
    /// Requests that the server rejected.
    pub rejected: u64,
    /// The most that waited at once.
    pub waiting: u64,
    /// What was left of each limit at the end, of all keys together.
    pub left: Vec<Amount>,
    /// What was left of each limit by the server's count.
    pub server_left: Vec<u64>,
}

/// What happened when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// How long a slot is.
    pub width: Duration,
    /// One slot after the other, from the beginning on.
    pub slots: Vec<Slot>,
}

impl Timeline {
    pub(super) const fn new() -> Self {
        Self { width: Duration::from_nanos(NARROW), slots: Vec::new() }
    }

    fn width(&self) -> u64 {
        crate::time::nanos(self.width)
    }

    /// Makes room for `now`, and tells when the slots before it ended that are not closed yet, oldest
    /// first.
    pub(super) fn reach(&mut self, now: u64) -> std::ops::Range<usize> {
        while now / self.width() >= MOST as u64 {
            self.merge();
        }
        let slot = usize::try_from(now / self.width()).unwrap_or(MOST);
        self.slots.len().max(1) - 1..slot
    }

    /// When a slot ends.
    pub(super) fn end(&self, slot: usize) -> u64 {
        (slot as u64 + 1) * self.width()
    }

    /// The slot that is open.
    pub(super) fn open(&mut self) -> &mut Slot {
        if self.slots.is_empty() {
            self.slots.push(Slot::default());
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last]
    }

    /// Closes it, and opens the next.
    pub(super) fn close(&mut self, left: Vec<Amount>, server_left: Vec<u64>) {
        let open = self.open();
        (open.left, open.server_left) = (left, server_left);
        self.slots.push(Slot::default());
    }

    fn merge(&mut self) {
        let mut merged = Vec::with_capacity(MOST);
        let mut slots = std::mem::take(&mut self.slots).into_iter();
        while let Some(first) = slots.next() {
            merged.push(match slots.next() {
                Some(second) => first.then(second),
                None => first,
            });
        }
        self.slots = merged;
        self.width *= 2;
    }
}

impl Slot {
    fn then(self, later: Self) -> Self {
        Self {
            came: self.came + later.came,
            sent: self.sent + later.sent,
            refused: self.refused + later.refused,
            rejected: self.rejected + later.rejected,
            waiting: self.waiting.max(later.waiting),
            ..later
        }
    }
}
