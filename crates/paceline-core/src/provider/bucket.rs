//! A token bucket in exact integers: the level is kept in units times nanoseconds of window, so
//! one nanosecond refills exactly `limit` and one unit is exactly `window`.

use super::{Counter, Limit};

#[derive(Debug)]
pub(super) struct Bucket {
    limit: Limit,
    level: u128,
    /// When `level` was right.
    at: u64,
}

impl Bucket {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, level: full(limit), at: 0 }
    }

    fn refill(&mut self, now: u64) {
        let refilled = u128::from(self.limit.units) * u128::from(now.saturating_sub(self.at));
        self.level = full(self.limit).min(self.level + refilled);
        self.at = self.at.max(now);
    }

    fn time_until(&self, level: u128) -> u64 {
        let nanos = level.saturating_sub(self.level).div_ceil(u128::from(self.limit.units));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

fn full(limit: Limit) -> u128 {
    u128::from(limit.units) * limit.window_u128()
}

impl Counter for Bucket {
    fn wait(&mut self, now: u64, cost: u64) -> u64 {
        self.refill(now);
        self.time_until(u128::from(cost) * self.limit.window_u128())
    }

    fn charge(&mut self, _now: u64, cost: u64) {
        self.level = self.level.saturating_sub(u128::from(cost) * self.limit.window_u128());
    }

    fn give_back(&mut self, now: u64, cost: u64) {
        self.refill(now);
        let more = u128::from(cost) * self.limit.window_u128();
        self.level = full(self.limit).min(self.level + more);
    }

    fn standing(&mut self, now: u64) -> (u64, u64) {
        self.refill(now);
        let whole = self.level / self.limit.window_u128();
        (u64::try_from(whole).unwrap_or(u64::MAX), self.time_until(full(self.limit)))
    }
}
