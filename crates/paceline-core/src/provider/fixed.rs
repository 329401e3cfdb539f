//! Windows that open with a request and close by the clock.

use super::{Counter, Limit};

#[derive(Debug)]
pub(super) struct Fixed {
    limit: Limit,
    used: u64,
    /// When the open window closes; not after `now` when none is open.
    closes: u64,
}

impl Fixed {
    pub(super) const fn new(limit: Limit) -> Self {
        Self { limit, used: 0, closes: 0 }
    }
}

/// When the window of a request at `now` opens: with the request, but windows of whole seconds are
/// kept in whole seconds, since that is how their resets are told.
pub(super) const fn opening(now: u64, window: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    if window.is_multiple_of(SECOND) { now - now % SECOND } else { now }
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
            self.closes = opening(now, self.limit.window).saturating_add(self.limit.window);
            self.used = 0;
        }
        self.used += cost;
    }

    fn standing(&mut self, now: u64) -> (u64, u64) {
        if now >= self.closes {
            (self.limit.units, self.limit.window)
        } else {
            (self.limit.units - self.used, self.closes - now)
        }
    }
}
