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
            self.closes = now.saturating_add(self.limit.window);
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
