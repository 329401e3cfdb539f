//! What a response teaches a scope (rules 9 to 13).
//!
//! The server is the authority, but its answer is already old: requests granted and not yet
//! answered may or may not be in its count, and so may those that were answered while this answer
//! was under way, for servers do not count in the order in which answers arrive. So what is truly
//! left lies between `remaining - uncertain` and `remaining`. A prediction in that interval stands;
//! any other is set to its lower end.

use crate::lane::Lane;
use crate::state::{Phase, Receipt, ScopeState};
use crate::{Amount, Counting, Dimension, Limit, Origin, Policy, Reading, Signal, Tick, Window};
use std::time::Duration;

/// The least hold after a rejection that names no usable wait; doubles with each repetition.
const FLOOR: Duration = Duration::from_millis(100);
/// Resets of one window, told by several responses, differ by rounding and latency: by so much, but
/// not by a whole window.
const BLUR: Duration = Duration::from_millis(1_500);
/// By so much when they are told in whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);
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
        after.lanes == self.lanes && after.strikes == self.strikes && after.hold == self.hold
    }

    fn reject(&mut self, receipt: &Receipt, reading: &Reading, policy: &Policy, now: Tick) {
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
            self.learn_from_rejection(receipt, told, repeated, now);
        }
    }

    /// A server that states no limit tells one all the same: what passed before it said for how long to
    /// stay away. Requests up to there are sure to pass in the next window; those after it are tried one
    /// at a time, so that a window costs one rejection and not one for each caller.
    fn learn_from_rejection(
        &mut self,
        receipt: &Receipt,
        told: Duration,
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
            let window = if too_soon { known + told } else { longest };
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
    fn count_passed(&mut self, now: Tick) {
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

    /// The server has counted the request at some time since it left, and not later than the quickest
    /// answer ever took before now. Where requests go one by one, the next one is due after that.
    fn arrived(&mut self, receipt: &Receipt, now: Tick) {
        let took = now.since(receipt.at);
        // It becomes slower again, little by little, when the way does.
        let before = self.quickest + self.quickest / 64 + Duration::from_nanos(1);
        self.quickest = if self.quickest.is_zero() { took } else { took.min(before) };
        let counted = receipt.at.after(took.saturating_sub(self.quickest));
        for lane in &mut self.lanes {
            lane.counted(receipt.cost.of(lane.dimension()), counted);
        }
    }

    fn learn(&mut self, receipt: &Receipt, signal: &Signal, late: bool, rejected: bool, now: Tick) {
        // An answer from a window that is over says nothing about the present one.
        if signal.counting == Counting::Fixed && signal.reset.is_some_and(|left| left.is_zero()) {
            return;
        }
        let uncertain = self.uncertain(receipt, &signal.dimension);
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
                    let answer = Answer { signal, told, uncertain, late, rejected, now };
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
        let answer = Answer { signal, told, uncertain, late, rejected, now };
        let lane = &mut self.lanes[at];
        match signal.counting {
            Counting::Fixed => answer.teach_window(lane),
            Counting::Bucket => answer.teach_bucket(lane),
        }
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
    let reset = signal.reset?;
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

/// What an answer said of one dimension, and how much it can be trusted.
struct Answer<'a> {
    signal: &'a Signal,
    /// The limit it stated, if that makes sense.
    told: Option<u64>,
    /// What the server may or may not have counted.
    uncertain: Amount,
    /// Whether the answer to a later request was seen before.
    late: bool,
    rejected: bool,
    now: Tick,
}

impl Answer<'_> {
    /// Follows a window that the server counts.
    fn teach_window(&self, lane: &mut Lane) {
        if lane.limit().strict {
            return self.teach_span(lane);
        }
        let reset = self.signal.reset.map(|reset| self.now.after(reset.min(FARTHEST)));
        let fixed = lane.as_fixed();
        let known = fixed.as_ref().and_then(|fixed| fixed.reset(self.now));
        let last = fixed.and_then(|fixed| fixed.last_reset(self.now));
        let blur = BLUR.min(lane.limit().window.duration());
        // More is left than there can be in the present window, so it is over, however little later the
        // next one is told to end.
        let most = lane.remaining(self.now).plus(self.uncertain);
        let came_back = self.signal.remaining.is_some_and(|left| Amount::units(left) > most);
        let next_window = reset.zip(known).is_some_and(|(told, known)| {
            told > known.after(blur) || (came_back && told > known && !self.late)
        });
        // An earlier reset is that of a window before, unless the newest answer says it.
        let sooner = reset.zip(known).is_some_and(|(told, known)| known > told.after(blur));
        if sooner && self.late {
            return;
        }
        // The end of a window stands still until it has come, and then all is there again. Where it moves
        // on before, and not even half of all is there, it is the end of a span that slides.
        let is_early = known.is_some_and(|known| known > self.now.after(blur / 4));
        let moved = reset
            .zip(known)
            .is_some_and(|(told, known)| told > known.after((ROUNDED + SLIGHT).max(blur)));
        let half = lane.limit().units / 2;
        let fell = self.signal.remaining.is_some_and(|left| left <= half);
        if moved && is_early && fell && !self.late && !self.rejected {
            // Just after its end has moved on, whole seconds tell it one too late.
            let told = self.signal.reset.map(|told| told.as_millis().saturating_sub(500) / 1_000);
            let told = told.and_then(|secs| u64::try_from(secs.max(1)).ok());
            let told = told.and_then(|secs| Window::from_duration(Duration::from_secs(secs)));
            let window = self.signal.window.or(told).unwrap_or(lane.limit().window);
            lane.slide(window, self.signal.remaining.unwrap_or(0), self.now);
            return self.teach_span(lane);
        }
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        let before = if next_window { known } else { last };
        // Across a pause it would be the pause that is measured.
        let measured = |told: Tick, before: Tick| {
            let distance = told.since(before);
            (self.now.since(before) <= distance / 2).then_some(distance)
        };
        let distance = reset.zip(before).and_then(|(told, before)| measured(told, before));
        if let Some(window) = self.signal.window {
            (limit.window, limit.origin) = (window, Origin::Confirmed);
        } else if let Some(distance) = distance.and_then(Window::from_duration) {
            limit.window = distance.snapped();
        } else if let Some(least) = estimate(self.signal).filter(|least| *least > limit.window) {
            limit.window = least;
        }
        limit.window = bounded(limit.window, limit.units);
        lane.relimit(limit, self.now);
        let whole = Amount::units(lane.limit().units);
        let before = lane.remaining(self.now);
        let window = lane.limit().window.as_nanos();
        let Some(fixed) = lane.as_fixed() else { return };
        // Of the resets told for one window the earliest is the least blurred. What differs no more
        // than the time that an answer takes says nothing new.
        let slight = SLIGHT.min(Duration::from_nanos(window / 256));
        let reset = match (reset, known) {
            (Some(told), Some(known)) if !next_window => {
                Some(if known <= told.after(slight) { known } else { told })
            }
            (told, known) => told.or(known),
        };
        let left = match self.signal.remaining {
            Some(left) => {
                let late = self.late && !next_window;
                reconcile_window(before, Amount::units(left), self.uncertain, late)
            }
            None => before,
        };
        fixed.told(left, whole, reset, window, self.now);
    }

    /// The span that slides: its end is told as that of the newest request in it, or later by rounding.
    fn span(&self) -> Option<Window> {
        let told = self.signal.reset.and_then(Window::from_duration).map(Window::snapped);
        self.signal.window.or(told)
    }

    /// Follows a limit that holds in any span of its window.
    fn teach_span(&self, lane: &mut Lane) {
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        if let Some(span) = self.span().filter(|span| *span < limit.window) {
            limit.window = span;
        }
        lane.relimit(limit, self.now);
        // What others have spent can be added; what is spent less than was thought passes by itself.
        if let Some(left) = self.signal.remaining {
            let before = lane.remaining(self.now);
            let after = reconcile(before, Amount::units(left), self.uncertain, self.late);
            // What is about to pass here and there at the same time differs by the way there and back.
            let slight = Amount::units(lane.limit().units / 32 + 1);
            if before > after.plus(slight) {
                lane.spend(before.minus(after), self.now);
            }
        }
    }

    /// Follows a bucket that refills all the time.
    fn teach_bucket(&self, lane: &mut Lane) {
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        if let Some(window) = self.signal.window {
            (limit.window, limit.origin) = (window, Origin::Confirmed);
        } else if let (Origin::Estimated, Some(window)) = (limit.origin, estimate(self.signal)) {
            // A nearly full bucket says little: rounding of the reset is most of what it shows.
            let missing =
                self.signal.limit.unwrap_or(0).saturating_sub(self.signal.remaining.unwrap_or(0));
            if missing.saturating_mul(10) >= self.signal.limit.unwrap_or(0) {
                limit.window = window;
            }
        }
        limit.window = bounded(limit.window, limit.units);
        lane.relimit(limit, self.now);
        self.correct(lane);
    }

    /// Sets the level of a bucket to what the server says, in the light of rule 10.
    fn correct(&self, lane: &mut Lane) {
        if let Some(left) = self.signal.remaining {
            let before = lane.remaining(self.now);
            let after = reconcile(before, Amount::units(left), self.uncertain, self.late);
            if after.whole() != before.whole() {
                lane.set_remaining(after, self.now);
            }
        }
    }
}

/// Rule 10, in a window that nothing refills: where all that is left may be under way already, the
/// answers to that are waited for, which takes no longer than they do. A stranger with the same key
/// would be noticed only when nothing is left.
fn reconcile_window(predicted: Amount, told: Amount, uncertain: Amount, late: bool) -> Amount {
    match told <= uncertain {
        true => Amount::ZERO,
        false => reconcile(predicted, told, uncertain, late),
    }
}

/// Rule 10: what is left, from what was predicted and what the server said.
fn reconcile(predicted: Amount, told: Amount, uncertain: Amount, late: bool) -> Amount {
    let lower = told.minus(uncertain);
    if (lower..=told).contains(&predicted) {
        predicted
    } else if late {
        lower.min(predicted)
    } else {
        lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cost;

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn receipt(ms: u64) -> Receipt {
        Receipt::new(Cost::ONE, at(ms))
    }

    fn fixed(limit: u64, remaining: u64, reset_ms: u64) -> Reading {
        let signal = Signal {
            limit: Some(limit),
            remaining: Some(remaining),
            reset: Some(Duration::from_millis(reset_ms)),
            ..Signal::default()
        };
        Reading { signals: vec![signal], ..Reading::default() }
    }

    fn left(state: &ScopeState, ms: u64) -> u64 {
        state.status(at(ms)).limits[0].remaining.whole()
    }

    #[test]
    fn rule_10_with_nothing_outstanding_the_level_is_what_the_server_says() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(100, 42, 30_000), &policy, at(10));
        assert_eq!(left(&state, 10), 42);
        let receipt = state.admit(&Cost::ONE, at(20)).unwrap();
        state.observe(&receipt, &fixed(100, 7, 29_000), &policy, at(30));
        assert_eq!(left(&state, 30), 7);
    }

    #[test]
    fn rule_10_a_prediction_between_the_bounds_stands() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(100, 50, 30_000), &policy, at(10));
        let sent: Vec<_> = (20..25).map(|ms| state.admit(&Cost::ONE, at(ms)).unwrap()).collect();
        assert_eq!(left(&state, 25), 45);
        // The first of five is answered: the server has counted it and perhaps the others.
        state.observe(&sent[0], &fixed(100, 49, 30_000), &policy, at(30));
        assert_eq!(left(&state, 30), 45);
        // A stranger spends ten: the lower end is now below what we predicted.
        state.observe(&sent[1], &fixed(100, 38, 30_000), &policy, at(31));
        assert_eq!(left(&state, 31), 38 - 3 - 1);
    }

    #[test]
    fn rule_10_answers_out_of_order_never_raise_the_level() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(100, 50, 30_000), &policy, at(10));
        let sent: Vec<_> = (20..24).map(|ms| state.admit(&Cost::ONE, at(ms)).unwrap()).collect();
        // The server counts them last first, and the answers come first first.
        for (i, receipt) in sent.iter().enumerate() {
            state.observe(receipt, &fixed(100, 46 + i as u64, 30_000), &policy, at(40));
            assert_eq!(left(&state, 40), 46);
        }
    }

    #[test]
    fn rule_10_a_late_answer_never_raises_the_level() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(5), &fixed(100, 40, 30_000), &policy, at(10));
        state.observe(&receipt(2), &fixed(100, 60, 30_000), &policy, at(12));
        assert_eq!(left(&state, 12), 40);
    }

    #[test]
    fn rule_9_the_window_is_the_distance_between_two_resets() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(5_000, 4_000, 10_000), &policy, at(0));
        state.observe(&receipt(10_001), &fixed(5_000, 4_999, 3_599_000), &policy, at(10_002));
        let status = &state.status(at(10_002)).limits[0];
        assert_eq!(status.limit.window.to_string(), "1h");
        assert_eq!(status.limit.origin, Origin::Estimated);
    }

    #[test]
    fn rule_9_a_wrong_reset_heals_with_the_next_answer() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let ask = |state: &mut ScopeState, ms: u64, remaining: u64, reset_ms: u64| {
            let receipt = state.admit(&Cost::ONE, at(ms)).unwrap();
            state.observe(&receipt, &fixed(60, remaining, reset_ms), &policy, at(ms + 1));
        };
        ask(&mut state, 0, 59, 31_000_000_000);
        ask(&mut state, 1_000, 58, 59_000);
        assert_eq!(state.status(at(1_001)).limits[0].reset, Duration::from_secs(59));
    }

    #[test]
    fn rule_9_a_pause_is_no_window() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(60, 59, 60_000), &policy, at(0));
        let five_hours = 5 * 3_600_000;
        let receipt = state.admit(&Cost::ONE, at(five_hours)).unwrap();
        state.observe(&receipt, &fixed(60, 59, 60_000), &policy, at(five_hours));
        assert_eq!(state.status(at(five_hours)).limits[0].limit.window.to_string(), "1m");
    }

    #[test]
    fn rule_9_the_rest_of_a_window_is_not_taken_for_the_whole() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(2, 1, 50), &policy, at(0));
        // A new window, and no answer yet: its end is not known to be 50 ms away.
        for _ in 0..2 {
            state.admit(&Cost::ONE, at(50)).unwrap();
        }
        assert!(state.admit(&Cost::ONE, at(200)).is_err());
    }

    #[test]
    fn rule_10_an_answer_from_a_window_that_is_over_changes_nothing() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(10, 9, 1_000), &policy, at(0));
        let late = state.admit(&Cost::ONE, at(999)).unwrap();
        let sent: Vec<_> = (0..10).map(|_| state.admit(&Cost::ONE, at(1_000)).unwrap()).collect();
        state.observe(&late, &fixed(10, 8, 0), &policy, at(1_001));
        assert!(state.admit(&Cost::ONE, at(1_001)).is_err(), "all of the new window is in flight");
        state.observe(&sent[0], &fixed(10, 9, 999), &policy, at(1_002));
        assert_eq!(left(&state, 1_002), 0);
    }

    #[test]
    fn a_reset_that_is_always_zero_teaches_no_limit() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.observe(&receipt(0), &fixed(60, 59, 0), &policy, at(0));
        assert!(!state.has_limits());
    }

    #[test]
    fn rule_11_a_window_without_a_reset_ends_all_the_same() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let mut silent = fixed(1, 0, 0);
        silent.signals[0].reset = None;
        state.observe(&receipt(0), &silent, &policy, at(0));
        let wait = state.wait(&Cost::ONE, at(0)).unwrap();
        assert_eq!(wait.after, Duration::from_secs(60));
        assert_eq!(state.wait(&Cost::ONE, at(60_000)), None);
    }

    #[test]
    fn rule_9_a_bucket_reset_is_when_it_is_full() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let signal = Signal {
            dimension: Dimension::new("tokens").unwrap(),
            limit: Some(60_000),
            remaining: Some(30_000),
            reset: Some(Duration::from_secs(30)),
            counting: Counting::Bucket,
            ..Signal::default()
        };
        let reading = Reading { signals: vec![signal], ..Reading::default() };
        state.observe(&receipt(0), &reading, &policy, at(0));
        assert_eq!(state.status(at(0)).limits[0].limit.to_string(), "tokens=60000/1m");
        assert_eq!(left(&state, 0), 30_000);
        assert_eq!(left(&state, 10_000), 40_000);
    }

    #[test]
    fn rule_12_a_configured_limit_is_never_overwritten() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.set_limit(Limit::parse("60/1m").unwrap(), at(0));
        state.observe(&receipt(0), &fixed(30, 0, 30_000), &policy, at(1));
        assert_eq!(left(&state, 1), 60);
        assert_eq!(state.status(at(1)).limits.len(), 1);
        // A server that agrees, and counts a fixed window, is followed beside it (rule 11).
        state.observe(&receipt(2), &fixed(60, 0, 30_000), &policy, at(3));
        let wait = state.wait(&Cost::ONE, at(3)).unwrap();
        assert_eq!(wait.after, Duration::from_secs(30));
    }

    #[test]
    fn rule_13_a_rejection_holds_the_scope_and_a_known_limit_starts_empty() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        state.set_limit(Limit::parse("60/1m").unwrap(), at(0));
        let rejection = |secs| Reading {
            retry_after: Some(Duration::from_secs(secs)),
            rejected: true,
            ..Reading::default()
        };
        state.observe(&receipt(0), &rejection(5), &policy, at(0));
        assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, Duration::from_secs(6));
        assert_eq!(left(&state, 5_000), 0);
        // Beyond the cap the hold lasts the cap, and then one goes first.
        let mut state = ScopeState::default();
        state.observe(&receipt(0), &rejection(3_600), &policy, at(0));
        assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, Duration::from_secs(60));
        assert!(state.admit(&Cost::ONE, at(60_000)).is_ok());
        assert!(state.admit(&Cost::ONE, at(60_000)).is_err());
    }

    #[test]
    fn rule_9_every_limit_of_a_dimension_is_followed() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let named = |name: &str, limit, window| Signal {
            name: Some(name.into()),
            limit: Some(limit),
            remaining: Some(limit - 1),
            reset: Some(Duration::from_secs(1)),
            window: Window::parse(window).ok(),
            ..Signal::default()
        };
        let signals = vec![named("burst", 10, "1s"), named("daily", 12, "1d")];
        let reading = Reading { signals, ..Reading::default() };
        state.observe(&receipt(0), &reading, &policy, at(0));
        let limits: Vec<_> =
            state.status(at(0)).limits.iter().map(|it| it.limit.to_string()).collect();
        assert_eq!(limits, ["10/1s", "12/1d"]);
        for _ in 0..9 {
            assert!(state.admit(&Cost::ONE, at(1)).is_ok());
        }
        assert!(state.admit(&Cost::ONE, at(1)).is_err());
    }

    #[test]
    fn rule_8_a_server_that_makes_up_names_fills_no_memory() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        for n in 0..1_000 {
            let mut reading = fixed(60, 59, 60_000);
            reading.signals[0].name = Some(n.to_string().into());
            state.observe(&receipt(n), &reading, &policy, at(n));
        }
        assert_eq!(state.status(at(1_000)).limits.len(), MOST_LEARNED);
    }

    #[test]
    fn rule_8_no_reset_makes_anybody_wait_longer_than_a_day() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let years = 50 * 365 * 86_400_000;
        state.observe(&receipt(0), &fixed(60, 0, years), &policy, at(0));
        assert_eq!(state.wait(&Cost::ONE, at(0)).unwrap().after, FARTHEST);
        let mut state = ScopeState::default();
        let mut reading = fixed(1, 0, years);
        reading.signals[0].counting = Counting::Bucket;
        reading.signals[0].window = Window::parse("3650d").ok();
        state.observe(&receipt(0), &reading, &policy, at(0));
        assert!(state.wait(&Cost::ONE, at(0)).unwrap().after <= FARTHEST);
    }

    /// What a server that counts a window of `limit` and states nothing but `Retry-After` answers.
    struct Silent {
        limit: u64,
        counted: u64,
        ends: u64,
    }

    impl Silent {
        fn answer(&mut self, ms: u64) -> Reading {
            if ms >= self.ends {
                (self.counted, self.ends) = (0, ms + 2_000);
            }
            if self.counted < self.limit {
                self.counted += 1;
                return Reading::default();
            }
            let retry_after = Some(Duration::from_secs((self.ends - ms).div_ceil(1_000)));
            Reading { rejected: true, retry_after, ..Reading::default() }
        }
    }

    #[test]
    fn rule_9_a_span_that_slides_is_not_taken_for_a_window_for_long() {
        let (mut state, policy) = (ScopeState::unknown(), Policy::default());
        let (mut counted, mut rejected) = (std::collections::VecDeque::<u64>::new(), Vec::new());
        let mut passed = 0;
        let mut flying: std::collections::VecDeque<(u64, Receipt, Reading)> = [].into();
        for ms in 0..40_000 {
            while flying.front().is_some_and(|(due, ..)| *due <= ms) {
                let (_, receipt, reading) = flying.pop_front().unwrap();
                state.observe(&receipt, &reading, &policy, at(ms));
            }
            while flying.len() < 8
                && let Ok(receipt) = state.admit(&Cost::ONE, at(ms))
            {
                counted.retain(|then| then + 2_000 > ms);
                let refused = counted.len() >= 20;
                if refused {
                    rejected.push(ms);
                } else {
                    counted.push_back(ms);
                    passed += u64::from(ms > 10_000);
                }
                // The end of the span is told as an epoch in whole seconds, rounded up.
                let reset = (counted.back().unwrap() + 2_000).div_ceil(1_000) * 1_000 - ms;
                let reading = Reading {
                    rejected: refused,
                    ..fixed(20, 20 - u64::try_from(counted.len()).unwrap(), reset)
                };
                flying.push_back((ms + 4, receipt, reading));
            }
        }
        assert_eq!(rejected, [0_u64; 0]);
        assert!(passed >= 285, "{passed} of 300 passed after five spans");
        let limit = &state.status(at(40_000)).limits[0].limit;
        assert!(limit.strict && limit.window.duration().as_secs() == 2, "{limit:?}");
    }

    #[test]
    fn rule_13_what_passed_before_a_rejection_costs_one_rejection_a_window() {
        let (mut state, policy) = (ScopeState::unknown(), Policy::default());
        let mut server = Silent { limit: 20, counted: 0, ends: 0 };
        let (mut rejected, mut passed) = (0, 0);
        // Eight callers, each answered after 4 ms, for twenty windows.
        let mut flying: std::collections::VecDeque<(u64, Receipt, Reading)> = [].into();
        for ms in 0..40_000 {
            while flying.front().is_some_and(|(due, ..)| *due <= ms) {
                let (_, receipt, reading) = flying.pop_front().unwrap();
                rejected += u64::from(reading.rejected);
                passed += u64::from(!reading.rejected);
                state.observe(&receipt, &reading, &policy, at(ms));
            }
            while flying.len() < 8
                && let Ok(receipt) = state.admit(&Cost::ONE, at(ms))
            {
                flying.push_back((ms + 4, receipt, server.answer(ms)));
            }
        }
        assert!(rejected <= 8 + 20, "{rejected} rejections in 20 windows");
        assert!(passed >= 20 * 20 * 9 / 10, "{passed} of 400 passed");
        let status = &state.status(at(40_000)).limits[0];
        assert_eq!((status.limit.units, status.limit.origin), (20, Origin::Estimated));
    }

    #[test]
    fn a_rejection_without_a_wait_holds_for_a_floor_that_grows() {
        let (mut state, policy) = (ScopeState::default(), Policy::default());
        let rejection = Reading { rejected: true, ..Reading::default() };
        let mut now = 0;
        for expected in [100, 200, 400] {
            state.observe(&receipt(now), &rejection, &policy, at(now));
            let wait = state.wait(&Cost::ONE, at(now)).unwrap().after;
            assert_eq!(wait, Duration::from_millis(expected));
            now += expected;
        }
    }
}
