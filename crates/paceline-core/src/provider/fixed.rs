//! Windows that open with a request and close by the clock.

use super::{Counter, Limit};

/// Where a window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    /// With a request, but windows of whole seconds in whole seconds: so their resets can be told.
    Second,
    /// With a request, to the nanosecond.
    Request,
    /// At the multiples of its length, whoever comes when.
    Clock,
}

impl Anchor {
    /// When the window of a request at `now` opens.
    pub(super) const fn opening(self, now: u64, window: u64) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Self::Second if window.is_multiple_of(SECOND) => now - now % SECOND,
            Self::Second | Self::Request => now,
            Self::Clock => now - now % window,
        }
    }
}

#[derive(Debug)]
pub(super) struct Fixed {
    limit: Limit,
    anchor: Anchor,
    used: u64,
    /// When the open window closes; not after `now` when none is open.
    closes: u64,
}

impl Fixed {
    pub(super) const fn new(limit: Limit, anchor: Anchor) -> Self {
        Self { limit, anchor, used: 0, closes: 0 }
    }

    const fn closing(&self, now: u64) -> u64 {
        self.anchor.opening(now, self.limit.window).saturating_add(self.limit.window)
    }
}

impl Counter for Fixed {
    fn wait(&mut self, now: u64, cost: u64) -> u64 {
        if now >= self.closes || self.used + cost <= self.limit.units {
            0
        } else {
            self.closes - now
        }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        if now >= self.closes {
            self.closes = self.closing(now);
            self.used = 0;
        }
        self.used += cost;
    }

    fn give_back(&mut self, now: u64, cost: u64) {
        if now < self.closes {
            self.used = self.used.saturating_sub(cost);
        }
    }

    fn standing(&mut self, now: u64) -> (u64, u64) {
        match self.anchor {
            _ if now < self.closes => {
                (self.limit.units.saturating_sub(self.used), self.closes - now)
            }
            Anchor::Clock => (self.limit.units, self.closing(now) - now),
            Anchor::Second | Anchor::Request => (self.limit.units, self.limit.window),
        }
    }
}
