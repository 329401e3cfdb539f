//! A window that the server counts: what is left falls until the reset, then jumps to the limit.
//!
//! Nothing refills before the reset (rule 11), so neither refill arithmetic nor "reset minus now"
//! says anything about it; only what was spent since the last reset, and when the next one is.

use crate::{Amount, Tick};
use std::time::Duration;

/// The state of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Spent since the last reset, requests without an answer included.
    pub(crate) spent: Amount,
    /// The next reset, once a response told it.
    pub(crate) reset: Option<Tick>,
    /// When the first of it was spent: where no reset is told, the window ends one window later.
    pub(crate) began: Option<Tick>,
    /// The reset before that, from which the window can be measured.
    pub(crate) last: Option<Tick>,
    /// Nobody stated the limit: it is what passed until a rejection. Whatever is more than that is
    /// tried one at a time instead of waited for.
    pub(crate) unstated: bool,
}

impl Fixed {
    /// Nanoseconds until `amount` fits under `limit`; 0 when it does now.
    #[must_use]
    pub fn wait(&self, amount: Amount, limit: Amount, window: u64, now: Tick) -> u64 {
        if self.unstated {
            return 0;
        }
        let current = self.rolled(window, now);
        if current.spent.is_zero() || current.spent.plus(amount) <= limit {
            return 0;
        }
        let ends = current.ends(window).unwrap_or(now);
        ends.as_nanos().saturating_sub(now.as_nanos())
    }

    /// Spends `amount` now.
    pub fn spend(&mut self, amount: Amount, window: u64, now: Tick) {
        *self = self.rolled(window, now);
        self.began.get_or_insert(now);
        self.spent = self.spent.plus(amount);
    }

    /// Gives back `amount` that was spent at `at`, if that was in the present window.
    pub fn refund(&mut self, amount: Amount, at: Tick, window: u64, now: Tick) {
        *self = self.rolled(window, now);
        let began = self.reset.map_or(0, |reset| reset.as_nanos().saturating_sub(window));
        if at.as_nanos() >= began {
            self.spent = self.spent.minus(amount);
        }
    }

    /// What is left now.
    #[must_use]
    pub fn remaining(&self, limit: Amount, window: u64, now: Tick) -> Amount {
        limit.minus(self.spent(window, now))
    }

    /// What was spent in the present window.
    #[must_use]
    pub fn spent(&self, window: u64, now: Tick) -> Amount {
        self.rolled(window, now).spent
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
    pub fn told(
        &mut self,
        left: Amount,
        limit: Amount,
        reset: Option<Tick>,
        window: u64,
        now: Tick,
    ) {
        *self = self.rolled(window, now);
        self.spent = limit.minus(left);
        self.reset = reset.or(self.reset);
        self.began.get_or_insert(now);
    }

    /// When the present window ends, as far as is known.
    fn ends(&self, window: u64) -> Option<Tick> {
        self.reset.or_else(|| Some(self.began?.after(Duration::from_nanos(window))))
    }

    /// The state at `now`: past its end nothing is spent. The end of the next window is the server's
    /// to tell, for that usually begins with the next request.
    fn rolled(&self, window: u64, now: Tick) -> Self {
        match self.ends(window) {
            Some(end) if end <= now => {
                Self { last: self.reset.or(self.last), unstated: self.unstated, ..Self::default() }
            }
            _ => *self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Amount = Amount::units(10);
    const WINDOW: u64 = 60_000_000_000;

    #[test]
    fn rule_11_nothing_refills_before_the_reset_and_everything_at_it() {
        let mut fixed = Fixed::default();
        let reset = Tick::from_nanos(30_000_000_000);
        fixed.told(Amount::ONE, LIMIT, Some(reset), WINDOW, Tick::ZERO);
        fixed.spend(Amount::ONE, WINDOW, Tick::ZERO);
        let late = Tick::from_nanos(29_999_999_999);
        assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, late), 1);
        assert_eq!(fixed.remaining(LIMIT, WINDOW, late), Amount::ZERO);
        assert_eq!(fixed.wait(LIMIT, LIMIT, WINDOW, reset), 0);
    }

    proptest! {
        /// Whatever the server says of resets, or does not say, waiting as long as told succeeds.
        #[test]
        fn rule_21_waiting_as_long_as_told_succeeds(
            history in proptest::collection::vec((0u64..90, 0u64..12, proptest::option::of(0u64..90)), 0..30),
        ) {
            let (mut fixed, mut now) = (Fixed::default(), Tick::ZERO);
            for (pause, left, reset) in history {
                now = now.after(Duration::from_secs(pause));
                fixed.spend(Amount::ONE, WINDOW, now);
                let reset = reset.map(|secs| now.after(Duration::from_secs(secs)));
                fixed.told(Amount::units(left), LIMIT, reset, WINDOW, now);
                let wait = fixed.wait(Amount::ONE, LIMIT, WINDOW, now);
                prop_assert!(wait <= 90_000_000_000);
                let then = now.after(Duration::from_nanos(wait));
                prop_assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, then), 0);
            }
        }
    }

    #[test]
    fn rule_5_an_oversize_cost_passes_a_fresh_window() {
        let fixed = Fixed::default();
        assert_eq!(fixed.wait(Amount::units(11), LIMIT, WINDOW, Tick::ZERO), 0);
    }
}
