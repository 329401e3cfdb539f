//! A window that the server counts: what is left falls until the reset, then jumps to the limit.
//!
//! Nothing refills before the reset (rule 11), so neither refill arithmetic nor "reset minus now"
//! says anything about it; only what was spent since the last reset, and when the next one is.

use crate::{Amount, Tick};

/// The state of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Spent since the last reset, requests without an answer included.
    spent: Amount,
    /// The next reset, once a response told it.
    reset: Option<Tick>,
    /// The reset before that, from which the window can be measured.
    last: Option<Tick>,
}

impl Fixed {
    /// Nanoseconds until `amount` fits under `limit`; 0 when it does now.
    #[must_use]
    pub fn wait(&self, amount: Amount, limit: Amount, window: u64, now: Tick) -> u64 {
        let current = self.rolled(now);
        if current.spent.is_zero() || current.spent.plus(amount) <= limit {
            return 0;
        }
        match current.reset {
            Some(reset) => reset.as_nanos().saturating_sub(now.as_nanos()).max(1),
            // All of it is in flight and no answer has named the new reset yet.
            None => window,
        }
    }

    /// Spends `amount` now.
    pub fn spend(&mut self, amount: Amount, now: Tick) {
        *self = self.rolled(now);
        self.spent = self.spent.plus(amount);
    }

    /// Gives back `amount` that was spent at `at`, if that was in the present window.
    pub fn refund(&mut self, amount: Amount, at: Tick, window: u64, now: Tick) {
        *self = self.rolled(now);
        let began = self.reset.map_or(0, |reset| reset.as_nanos().saturating_sub(window));
        if at.as_nanos() >= began {
            self.spent = self.spent.minus(amount);
        }
    }

    /// What is left now.
    #[must_use]
    pub fn remaining(&self, limit: Amount, now: Tick) -> Amount {
        limit.minus(self.rolled(now).spent)
    }

    /// The next reset, if it is known and not past.
    #[must_use]
    pub fn reset(&self, now: Tick) -> Option<Tick> {
        self.reset.filter(|reset| *reset > now)
    }

    /// The latest reset that is past.
    #[must_use]
    pub fn last_reset(&self, now: Tick) -> Option<Tick> {
        self.reset.filter(|reset| *reset <= now).or(self.last)
    }

    /// Takes over what the server says: `left` of `limit`, until `reset`.
    pub fn told(&mut self, left: Amount, limit: Amount, reset: Option<Tick>, now: Tick) {
        self.last = self.last_reset(now);
        self.spent = limit.minus(left);
        self.reset = reset.or(self.reset.filter(|reset| *reset > now));
    }

    /// The state at `now`: past a reset nothing is spent. The reset after that one is the server's
    /// to tell, for its next window usually begins with the next request.
    fn rolled(&self, now: Tick) -> Self {
        match self.reset {
            Some(reset) if reset <= now => Self { last: Some(reset), ..Self::default() },
            _ => *self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Amount = Amount::units(10);
    const WINDOW: u64 = 60_000_000_000;

    #[test]
    fn rule_11_nothing_refills_before_the_reset_and_everything_at_it() {
        let mut fixed = Fixed::default();
        let reset = Tick::from_nanos(30_000_000_000);
        fixed.told(Amount::ONE, LIMIT, Some(reset), Tick::ZERO);
        fixed.spend(Amount::ONE, Tick::ZERO);
        let late = Tick::from_nanos(29_999_999_999);
        assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, late), 1);
        assert_eq!(fixed.remaining(LIMIT, late), Amount::ZERO);
        assert_eq!(fixed.wait(LIMIT, LIMIT, WINDOW, reset), 0);
    }

    #[test]
    fn rule_5_an_oversize_cost_passes_a_fresh_window() {
        let fixed = Fixed::default();
        assert_eq!(fixed.wait(Amount::units(11), LIMIT, WINDOW, Tick::ZERO), 0);
    }
}
