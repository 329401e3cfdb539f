//! What a rejection teaches: to stay away, and where nothing else tells the limit, that too.

use super::FLOOR;
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
    /// stay away. Requests up to there are sure to pass in the next window; those after it are tried one
    /// at a time, so that a window costs one rejection and not one for each caller.
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
        let passed = fixed.spent.minus(in_flight).whole().min(Limit::MOST);
        let seen = fixed.began.map_or(Duration::ZERO, |began| now.since(began)) + told;
        // Nothing passed: it is not the limit that is lower, but the window that is longer.
        let too_soon = passed == 0 && fixed.quiet > 0;
        if !repeated {
            let known = limit.window.duration();
            let longest = if fixed.quiet > 0 { known.min(seen) } else { seen };
            // Beyond the longest hold one goes first long before the window is over.
            let longer = if is_beyond { known.max(told) } else { known + told };
            let window = if too_soon { longer } else { longest };
            limit.window = Window::from_duration(window).unwrap_or(limit.window);
        }
        if !too_soon {
            limit.units = passed.max(1);
            limit.burst = limit.units;
        }
        fixed.quiet = u8::from(fixed.began.is_some());
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
