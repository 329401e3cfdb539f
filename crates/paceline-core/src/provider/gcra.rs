//! Even spacing. Times are kept multiplied by the limit, so `window / limit` never has to be rounded.

use super::{Counter, Limit};

/// The tolerance is never less than this: no network is more even.
const JITTER: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Gcra {
    limit: Limit,
    /// When the next request is due.
    due: u128,
}

impl Gcra {
    pub(super) const fn new(limit: Limit) -> Self {
        Self { limit, due: 0 }
    }

    fn scaled(&self, time: u64) -> u128 {
        u128::from(time) * u128::from(self.limit.units)
    }

    fn time_until_due(&self, now: u64) -> u64 {
        let ahead = self.due.saturating_sub(self.scaled(now));
        u64::try_from(ahead.div_ceil(u128::from(self.limit.units))).unwrap_or(u64::MAX)
    }
}

/// How early a request may come: a tenth of its interval, at least [`JITTER`].
pub(super) fn tolerance(limit: Limit) -> u64 {
    (limit.window / limit.units / 10).max(JITTER)
}

impl Counter for Gcra {
    fn wait(&mut self, now: u64, _cost: u64) -> u64 {
        self.time_until_due(now).saturating_sub(tolerance(self.limit))
    }

    fn charge(&mut self, now: u64, cost: u64) {
        let spacing = u128::from(cost) * self.limit.window_u128();
        self.due = self.due.max(self.scaled(now)) + spacing;
    }

    fn give_back(&mut self, _now: u64, cost: u64) {
        self.due = self.due.saturating_sub(u128::from(cost) * self.limit.window_u128());
    }

    fn standing(&mut self, now: u64) -> (u64, u64) {
        (u64::from(self.wait(now, 1) == 0), self.time_until_due(now))
    }
}
