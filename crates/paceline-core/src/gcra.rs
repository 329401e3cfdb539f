//! The only admission arithmetic of an ordinary bucket: the generic cell rate algorithm.
//!
//! A bucket is one integer, its *theoretical arrival time* (`tat`): the instant at which it will
//! be full again. Spending moves it later, time passing catches up with it. One unit of a limit
//! is worth `window / units` of refill, rounded up once when the limit is declared; afterwards
//! there is only max, add, subtract and compare, which every store can imitate exactly.
//!
//! Rounding once per *unit* instead of once per cost makes costs linear: exactly `burst` units
//! pass back to back however they are grouped, and one more never does. What it costs is that a
//! limit can be slower than declared by up to one tick a unit, never faster. A tick is a
//! nanosecond, and 1/256 of one for limits so high that a nanosecond would be more than 0.01 % of
//! a unit.

use crate::{Amount, Limit, Tick};
use std::time::Duration;

/// A limit compiled to ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Ticks that one unit takes to refill.
    unit: u64,
    /// Ticks that a whole bucket takes to refill.
    depth: u64,
    /// A tick is 2^-shift nanoseconds.
    shift: u32,
}

/// One cost against one bucket, ready to be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debit {
    /// How much later the bucket will be full.
    pub advance: u64,
    /// How much later than now the bucket may already be due: `max(depth, advance) - advance`.
    ///
    /// A cost above the whole bucket has no slack: it passes when the bucket is full, and leaves
    /// a debt (rule 5).
    pub slack: u64,
}

/// What a nanosecond may at most be of one unit: 0.01 %.
const FINE_ENOUGH: u64 = 10_000;
/// 1/256 ns: 64 bits of such ticks still last two years, and the finest limits are the rarest.
const FINEST: u32 = 8;
/// Debts beyond a century are not counted on, so that sums of ticks never overflow.
const CENTURY: u64 = 1 << 61;

impl Rate {
    /// Compiles a limit; this is the only division (rule 1).
    #[must_use]
    pub fn new(limit: &Limit) -> Self {
        let per_unit = |shift: u32| {
            let window = u128::from(limit.window.as_nanos()) << shift;
            capped(window.div_ceil(u128::from(limit.units.max(1))))
        };
        let mut shift = 0;
        while shift < FINEST && per_unit(shift) < FINE_ENOUGH {
            shift += 1;
        }
        let unit = per_unit(shift);
        Self { unit, depth: capped(u128::from(unit) * u128::from(limit.burst)), shift }
    }

    /// Whether it counts in whole nanoseconds.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.shift == 0
    }

    /// Ticks per nanosecond.
    #[must_use]
    pub const fn fineness(&self) -> u64 {
        1 << self.shift
    }

    /// What `amount` costs here.
    #[must_use]
    #[inline]
    pub fn debit(&self, amount: Amount) -> Debit {
        let advance = self.ticks(amount);
        Debit { advance, slack: self.depth.saturating_sub(advance) }
    }

    /// The ticks that `amount` takes to refill, rounded up.
    #[must_use]
    #[inline]
    pub fn ticks(&self, amount: Amount) -> u64 {
        if amount == Amount::ONE {
            return self.unit;
        }
        // Whole units, as most are, need no division in 128 bits.
        if amount.millionths().is_multiple_of(Amount::UNIT)
            && let Some(ticks) = self.unit.checked_mul(amount.whole())
        {
            return ticks.min(CENTURY);
        }
        let product = u128::from(amount.millionths()) * u128::from(self.unit);
        capped(product.div_ceil(u128::from(Amount::UNIT)))
    }

    /// The whole bucket, in ticks.
    #[must_use]
    pub const fn depth(&self) -> u64 {
        self.depth
    }

    /// An instant in this rate's ticks.
    #[must_use]
    #[inline]
    pub fn at(&self, now: Tick) -> u64 {
        if self.shift == 0 {
            return now.as_nanos();
        }
        u64::try_from(u128::from(now.as_nanos()) << self.shift).unwrap_or(u64::MAX)
    }

    /// A span of this rate's ticks in nanoseconds, rounded up: whoever waits it is never early.
    #[must_use]
    #[inline]
    pub const fn nanos(&self, ticks: u64) -> u64 {
        ticks.div_ceil(1 << self.shift)
    }

    /// The same as a duration.
    #[must_use]
    pub const fn span(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.nanos(ticks))
    }

    /// What is left in a bucket due at `tat`, in millionths of a unit; nothing while in debt.
    #[must_use]
    pub fn remaining(&self, tat: u64, now: Tick) -> Amount {
        let level = self.depth.saturating_sub(tat.saturating_sub(self.at(now)));
        let millionths = u128::from(level) * u128::from(Amount::UNIT) / u128::from(self.unit);
        Amount::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX))
    }

    /// What is in use of a bucket due at `tat`, debt included, rounded up to a millionth of a unit.
    #[must_use]
    pub fn used(&self, tat: u64, now: Tick) -> Amount {
        let ticks = u128::from(tat.saturating_sub(self.at(now)));
        let millionths = (ticks * u128::from(Amount::UNIT)).div_ceil(u128::from(self.unit));
        Amount::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX))
    }

    /// The `tat` of a bucket with `left` remaining at `now`.
    #[must_use]
    pub fn tat_with(&self, left: Amount, now: Tick) -> u64 {
        let missing = self.depth.saturating_sub(self.ticks(left));
        self.at(now).saturating_add(missing)
    }
}

/// How long until a debit can be paid from a bucket due at `tat`; 0 when it can be now.
#[must_use]
#[inline]
pub const fn wait(tat: u64, debit: Debit, now: u64) -> u64 {
    tat.saturating_sub(now.saturating_add(debit.slack))
}

/// The bucket after the debit is paid.
#[must_use]
#[inline]
pub fn spend(tat: u64, debit: Debit, now: u64) -> u64 {
    tat.max(now).saturating_add(debit.advance)
}

fn capped(ticks: u128) -> u64 {
    u64::try_from(ticks).unwrap_or(CENTURY).min(CENTURY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;
    use proptest::prelude::*;

    fn limit(units: u64, window_ms: u64) -> Limit {
        let window = Window::from_nanos(window_ms * 1_000_000).unwrap();
        Limit::new("requests", units, window).unwrap()
    }

    #[test]
    fn rule_3_sixty_a_minute_lets_sixty_through_and_the_next_waits_one_second() {
        let rate = Rate::new(&limit(60, 60_000));
        let debit = rate.debit(Amount::ONE);
        let mut tat = 0;
        for _ in 0..60 {
            assert_eq!(wait(tat, debit, 0), 0);
            tat = spend(tat, debit, 0);
        }
        assert_eq!(rate.span(wait(tat, debit, 0)), Duration::from_secs(1));
    }

    #[test]
    fn rule_5_a_cost_above_the_bucket_passes_when_full_and_leaves_a_debt() {
        let rate = Rate::new(&limit(10, 10_000));
        let large = rate.debit(Amount::units(25));
        let one = rate.debit(Amount::ONE);
        assert_eq!(wait(0, large, 0), 0);
        let tat = spend(0, large, 0);
        assert_eq!(rate.span(wait(tat, one, 0)), Duration::from_secs(16));
        assert_eq!(rate.remaining(tat, Tick::ZERO), Amount::ZERO);
        let half_full = spend(0, one, 0);
        assert_eq!(rate.span(wait(half_full, large, 0)), Duration::from_secs(1));
    }

    proptest! {
        /// However the units are grouped, exactly `units` pass at once and one more does not.
        #[test]
        fn rule_1_exactly_n_units_pass_back_to_back(
            units in 1u64..=1_000_000_000,
            window_ms in 1u64..=86_400_000,
            first in 0u64..=1_000_000_000,
        ) {
            let rate = Rate::new(&limit(units, window_ms));
            let first = first % (units + 1);
            let start = Tick::from_nanos(5_000_000_000_000);
            let now = rate.at(start);
            let mut tat = 0;
            for part in [first, units - first] {
                let debit = rate.debit(Amount::units(part));
                prop_assert_eq!(wait(tat, debit, now), 0);
                tat = spend(tat, debit, now);
            }
            prop_assert!(wait(tat, rate.debit(Amount::ONE), now) > 0);
            prop_assert_eq!(rate.remaining(tat, start).whole(), 0);
        }

        /// Never faster than declared, and slower by at most 0.01 % up to 10^9 a minute.
        #[test]
        fn rule_1_the_long_run_rate_is_right_to_a_hundredth_of_a_percent(
            units in 1u64..=1_000_000_000,
            window_ms in 60_000u64..=86_400_000,
        ) {
            let rate = Rate::new(&limit(units, window_ms));
            let exact = u128::from(window_ms * 1_000_000) << rate.shift;
            let ours = u128::from(rate.unit) * u128::from(units);
            prop_assert!(ours >= exact);
            prop_assert!((ours - exact) * 10_000 <= exact);
        }

        /// Waiting exactly as long as told always succeeds, and a nanosecond less never does.
        #[test]
        fn rule_21_waiting_exactly_the_told_time_succeeds(
            units in 1u64..=10_000,
            window_ms in 100u64..=86_400_000,
            spent in 0u64..=30_000,
            cost in 1u64..=20_000,
            now in 0u64..=1_000_000_000_000,
        ) {
            let rate = Rate::new(&limit(units, window_ms));
            let tat = spend(0, rate.debit(Amount::units(spent)), now);
            let debit = rate.debit(Amount::units(cost));
            let told = rate.span(wait(tat, debit, now)).as_nanos() as u64;
            prop_assert_eq!(wait(tat, debit, now + told), 0);
            prop_assert!(told == 0 || wait(tat, debit, now + told - 1) > 0);
        }
    }
}
