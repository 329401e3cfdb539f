//! What a response teaches a scope (rules 9 to 13).
//!
//! The server is the authority, but its answer is already old: requests granted and not yet
//! answered may or may not be in its count, and so may those that were answered while this answer
//! was under way, for servers do not count in the order in which answers arrive. So what is truly
//! left lies between `remaining - uncertain` and `remaining`. A prediction in that interval stands;
//! any other is set to its lower end.

mod answer;
mod rejection;

use crate::lane::Lane;
use crate::state::{Phase, Receipt, ScopeState};
use crate::{Counting, Limit, Origin, Policy, Reading, Signal, Tick, Window};
use answer::Answer;
use std::time::Duration;

/// The least hold after a rejection that names no usable wait; doubles with each repetition.
const FLOOR: Duration = Duration::from_millis(100);
/// Resets of one window, told by several responses, differ by rounding and latency: by so much, but
/// not by a whole window.
const BLUR: Duration = Duration::from_millis(1_500);
/// By so much when they are told in whole seconds.
pub(crate) const ROUNDED: Duration = Duration::from_secs(1);
/// How often it is noted that the end of a window stands still.
const OFTEN: Duration = Duration::from_millis(250);
/// And by so much in any case.
const SLIGHT: Duration = Duration::from_millis(10);
/// How many limits a server can teach one scope: a hostile one could make up names for ever.
const MOST_LEARNED: usize = 8;
/// No word of a server makes anybody wait for one unit longer than that before it is asked again.
const FARTHEST: Duration = Duration::from_secs(86_400);

impl ScopeState {
    /// The answer to the request behind `receipt` came: takes over what it says. Tells whether
    /// waits planned before may have changed.
    pub fn observe(
        &mut self,
        receipt: &Receipt,
        reading: &Reading,
        policy: &Policy,
        now: Tick,
    ) -> bool {
        let late = receipt.at < self.answered;
        let was_first = self.land(receipt);
        self.flight.turn(self.generation(), now);
        if reading.rejected {
            self.reject(receipt, reading, policy, now);
        } else {
            self.strikes = 0;
            self.count_passed(now);
        }
        let passed = (!reading.rejected).then_some(receipt.at);
        self.lanes.iter_mut().for_each(|lane| lane.search_on(passed, now));
        for signal in &reading.signals {
            self.learn(receipt, signal, late, reading.rejected, now);
        }
        if !reading.rejected {
            self.arrived(receipt, now);
        }
        if self.has_limits() && !reading.signals.is_empty() && !reading.rejected {
            self.phase = Phase::Open;
        }
        self.forget_nothing_known(now);
        was_first || !reading.is_silent()
    }

    /// Whether `observe` would only close the request: what the response says is what was expected.
    #[must_use]
    pub fn teaches_nothing(
        &self,
        receipt: &Receipt,
        reading: &Reading,
        policy: &Policy,
        now: Tick,
    ) -> bool {
        if reading.rejected || self.phase != Phase::Open {
            return false;
        }
        let alive = |lane: &Lane| lane.is_guessed() || lane.goes_one_by_one();
        if reading.is_silent() && !self.lanes.iter().any(alive) {
            return self.strikes == 0;
        }
        let mut after = self.clone();
        after.observe(receipt, reading, policy, now);
        let slower = self.quickest - self.quickest / 8;
        let timed = self.lanes.iter().any(Lane::is_timed);
        after.lanes == self.lanes
            && after.strikes == self.strikes
            && after.hold == self.hold
            && !(timed && after.quickest < slower)
    }

    /// The server has counted the request at some time since it left, and not later than the quickest
    /// answer ever took before now. Where requests go one by one, the next one is due after that.
    fn arrived(&mut self, receipt: &Receipt, now: Tick) {
        let took = now.since(receipt.at);
        // It becomes slower again, little by little, when the way does.
        let before = self.quickest + self.quickest / 64 + Duration::from_nanos(1);
        self.quickest = if self.quickest.is_zero() { took } else { took.min(before) };
        let counted = receipt.at.after(took.saturating_sub(self.quickest));
        for lane in &mut self.lanes {
            lane.counted(receipt.cost.of(lane.dimension()), receipt.at, counted);
        }
    }

    fn learn(&mut self, receipt: &Receipt, signal: &Signal, late: bool, rejected: bool, now: Tick) {
        // An answer from a window that is over says nothing about the present one.
        if signal.counting == Counting::Fixed
            && told_reset(signal).is_some_and(|left| left.is_zero())
        {
            return;
        }
        let uncertain = self.uncertain(receipt, &signal.dimension);
        let alone = self.flight.of(&signal.dimension).is_zero();
        let same = |lane: &&Lane| *lane.dimension() == signal.dimension;
        let told = told(signal);
        let configured =
            self.lanes.iter().filter(same).find(|lane| lane.limit().origin == Origin::Configured);
        if let Some(lane) = configured {
            let units = lane.limit().units;
            // Headers that deny a limit which the user declared are not believed (rule 12).
            if told.is_some_and(|told| told < units) {
                return;
            }
            if signal.counting == Counting::Bucket {
                if told == Some(units) {
                    let answer = Answer { signal, told, uncertain, alone, late, rejected, now };
                    let configured = self.lanes.iter_mut().filter(|lane| {
                        *lane.dimension() == signal.dimension && lane.limit().units == units
                    });
                    configured.for_each(|lane| answer.correct(lane));
                }
                return;
            }
        }
        if told.is_some() {
            self.lanes.retain(|lane: &mut Lane| {
                let stands = !lane.limit().origin.is_provisional();
                lane.limit().dimension != signal.dimension || (stands && !lane.is_guessed())
            });
        }
        let is_learned = |lane: &Lane| lane.limit().origin != Origin::Configured;
        let learned = self.lanes.iter().position(|lane| {
            *lane.dimension() == signal.dimension
                && lane.limit().name == signal.name
                && is_learned(lane)
        });
        let at = match (learned, told) {
            (Some(at), _) => at,
            (None, Some(units)) => {
                if self.lanes.iter().filter(|lane| is_learned(lane)).count() >= MOST_LEARNED {
                    return;
                }
                self.lanes.push(new_lane(signal, units));
                self.lanes.len() - 1
            }
            (None, None) => return,
        };
        let answer = Answer { signal, told, uncertain, alone, late, rejected, now };
        let lane = &mut self.lanes[at];
        match signal.counting {
            Counting::Fixed => answer.teach_window(lane),
            Counting::Bucket => answer.teach_bucket(lane),
        }
    }
}

/// The time until the reset. Where nothing is left and it is told as none, it was rounded down: another
/// second may pass.
pub(crate) fn told_reset(signal: &Signal) -> Option<Duration> {
    match (signal.counting, signal.reset, signal.remaining) {
        (Counting::Fixed, Some(Duration::ZERO), Some(0)) => Some(ROUNDED),
        (_, told, _) => told,
    }
}

/// The limit that a signal states, if that makes sense.
pub(crate) fn told(signal: &Signal) -> Option<u64> {
    signal.limit.filter(|units| (1..=Limit::MOST).contains(units))
}

/// A lane for a limit that was first heard of in `signal`.
pub(crate) fn new_lane(signal: &Signal, units: u64) -> Lane {
    let stated = signal.window.is_some();
    let guessed = match (signal.counting, estimate(signal)) {
        // The first reset may be the end of a long window: only later ones show the distance.
        (Counting::Fixed, Some(least)) => least.max(Window::MINUTE),
        (Counting::Bucket, Some(window)) => window,
        // Where nothing else is known, for that is met most often.
        (_, None) => Window::MINUTE,
    };
    let limit = Limit {
        dimension: signal.dimension.clone(),
        name: signal.name.clone(),
        units,
        window: bounded(signal.window.unwrap_or(guessed), units),
        burst: units,
        strict: false,
        origin: if stated { Origin::Confirmed } else { Origin::Estimated },
    };
    match signal.counting {
        Counting::Fixed => Lane::fixed(limit),
        Counting::Bucket => Lane::new(limit),
    }
}

/// The window, but none in which a single unit of a bucket takes longer than the farthest wait.
pub(crate) fn bounded(window: Window, units: u64) -> Window {
    let most = crate::time::nanos(FARTHEST).saturating_mul(units);
    Window::from_nanos(window.as_nanos().min(most)).unwrap_or(window)
}

/// The window that the arithmetic of the family implies.
pub(crate) fn estimate(signal: &Signal) -> Option<Window> {
    let reset = told_reset(signal)?;
    match signal.counting {
        // The reset is at most a window away; later resets will show the distance.
        Counting::Fixed => Window::from_duration(reset).map(Window::snapped),
        // Full again after `reset`, so a whole bucket takes `reset * limit / missing`.
        Counting::Bucket => {
            let (limit, remaining) = (signal.limit?, signal.remaining?);
            let missing = limit.checked_sub(remaining).filter(|missing| *missing > 0)?;
            let nanos = reset.as_nanos().checked_mul(u128::from(limit))? / u128::from(missing);
            Window::from_nanos(u64::try_from(nanos).ok()?).map(Window::snapped)
        }
    }
}

#[cfg(test)]
mod tests;
