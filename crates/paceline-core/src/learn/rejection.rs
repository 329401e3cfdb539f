//! What a rejection teaches: to stay away, and where nothing else tells the limit, that too.

use super::FLOOR;
use crate::fixed::{AGAIN, DEAR, SOONEST};
use crate::lane::Lane;
use crate::state::{Phase, Receipt, ScopeState};
use crate::{Amount, Dimension, Limit, Origin, Policy, Reading, Tick, Window};
use std::time::Duration;

impl ScopeState {
    pub(super) fn reject(
        &mut self,
        receipt: &Receipt,
        reading: &Reading,
        policy: &Policy,
        now: Tick,
    ) {
        let repeated = self.hold > now;
        let floor = FLOOR.saturating_mul(1 << self.strikes.min(16));
        let named = reading.retry_after.filter(|told| !told.is_zero());
        let span = named.unwrap_or(floor).min(policy.max_hold);
        self.hold(span, now);
        if !repeated {
            self.strikes = self.strikes.saturating_add(1);
        }
        // A known limit starts from an empty bucket, so that those who waited go one by one. Where
        // none refills, one goes first and the others follow its answer.
        for lane in &mut self.lanes {
            lane.empty(self.hold);
        }
        let beyond = named.is_some_and(|told| told > policy.max_hold);
        if beyond || !self.lanes.iter().any(|lane| lane.bucket().is_some()) {
            self.phase = Phase::First;
        }
        if !repeated {
            // A span that was only seen to slide is longer than it looked.
            let seen =
                |lane: &&mut Lane| lane.limit().strict && lane.limit().origin != Origin::Configured;
            for lane in self.lanes.iter_mut().filter(seen) {
                let nanos = lane.limit().window.as_nanos();
                let longer = Window::from_nanos(nanos + nanos / 16).unwrap_or(lane.limit().window);
                lane.relimit(Limit { window: longer, ..Limit::clone(lane.limit()) }, now);
            }
        }
        if let Some(told) = named {
            self.learn_from_rejection(receipt, told, beyond, repeated, now);
        }
    }

    /// A server that states no limit tells one all the same: what passed before it said for how long to
    /// stay away. As much passes again in as long a time, the wait included, however it counts; spread
    /// evenly, so that what is refused is one and not one for each caller.
    fn learn_from_rejection(
        &mut self,
        receipt: &Receipt,
        told: Duration,
        is_beyond: bool,
        repeated: bool,
        now: Tick,
    ) {
        let in_flight = self.flight.of(&Dimension::Requests);
        if self.lanes.is_empty() {
            self.lanes.extend(Window::from_duration(told).map(Lane::unstated));
        }
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.is_unstated()) else { return };
        // It did not pass.
        lane.refund(receipt.cost.of(&Dimension::Requests), receipt.at, now);
        let mut limit = Limit::clone(lane.limit());
        let (hold, Some(fixed)) = (self.hold, lane.as_fixed()) else { return };
        fixed.roll(Amount::units(limit.units), limit.window.as_nanos(), now);
        if repeated {
            return;
        }
        let passed = fixed.passed.plus(fixed.spent).minus(in_flight).whole().min(Limit::MOST);
        let took = fixed.since.map_or(Duration::ZERO, |since| now.since(since)) + told;
        let known = limit.window.duration();
        let window = if passed == 0 {
            // It is not the limit that is lower, but the window that is longer. Beyond the longest hold one
            // goes first long before the window is over.
            match fixed.quiet {
                0 => took,
                _ if is_beyond => known.max(told),
                _ => known + told,
            }
        } else if fixed.quiet == 0 {
            // Now it was counted from the beginning. Waits are told in whole seconds, and windows last
            // some; a little more leaves room for a request that comes early.
            limit.units = passed;
            let whole = Duration::from_secs(took.as_secs());
            let one = fixed.passed.is_zero() && !whole.is_zero();
            let window = if one { whole } else { took };
            window + window / 64
        } else {
            // So much passed in all that time, the hold included: the server allows no more.
            let units = limit.units.min(passed);
            let before = part_of(known, units, limit.units);
            limit.units = units;
            part_of(took, units, passed).max(before)
        };
        limit.window = Window::from_duration(window).unwrap_or(limit.window);
        limit.burst = limit.units;
        if passed > 0 || fixed.quiet > 0 {
            let dear = told.as_nanos() * u128::from(DEAR) / u128::from(limit.window.as_nanos());
            let again = u8::try_from(dear).unwrap_or(AGAIN).clamp(SOONEST, AGAIN);
            fixed.quiet = AGAIN + 1 - again;
        }
        (fixed.passed, fixed.since) = (Amount::ZERO, None);
        fixed.reset = Some(hold);
        lane.relimit(limit, now);
    }

    /// Where nobody stated a limit, it is at least what has passed in this window.
    pub(super) fn count_passed(&mut self, now: Tick) {
        let in_flight = self.flight.of(&Dimension::Requests);
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.is_unstated()) else { return };
        let (mut limit, window) = (Limit::clone(lane.limit()), lane.limit().window.as_nanos());
        let Some(fixed) = lane.as_fixed() else { return };
        let whole = Amount::units(limit.units);
        let passed = fixed.spent(whole, window, now).minus(in_flight).whole().min(Limit::MOST);
        if passed > limit.units {
            (limit.units, limit.burst) = (passed, passed);
            lane.relimit(limit, now);
        }
    }
}

/// So much of `span` as `part` is of `whole`.
fn part_of(span: Duration, part: u64, whole: u64) -> Duration {
    let nanos = span.as_nanos() * u128::from(part) / u128::from(whole.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
