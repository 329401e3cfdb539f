//! The live state of one scope, and the one atomic step over all of its buckets.
//!
//! A store keeps one [`ScopeState`] per scope and runs these methods under its own kind of lock.
//! The rules of a charge:
//!
//! * every limit whose dimension the cost spends must be able to pay, or nothing is charged (4, 6);
//! * a dimension that is not spent never gates;
//! * a hold gates everything (13), and after one, or before anything is known, one request goes
//!   first while the others wait for its answer.

use crate::flight::Flight;
use crate::gcra::Rate;
use crate::lane::Lane;
use crate::search::Search;
use crate::{Amount, Cost, Dimension, Limit, Origin, Tick};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Everything that is known and counted in one scope.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScopeState {
    /// Most scopes have one limit, and its lane is then found here and not behind a pointer.
    pub(crate) lanes: SmallVec<[Lane; 1]>,
    pub(crate) hold: Tick,
    /// Rejections in a row, each at least one hold apart.
    pub(crate) strikes: u32,
    pub(crate) phase: Phase,
    /// The grant whose answer is the newest one seen.
    pub(crate) answered: Tick,
    /// Granted and not yet answered.
    pub(crate) flight: Flight,
    /// How long the quickest answer took of late; zero before the first.
    pub(crate) quickest: Duration,
}

/// Whether one request has to go ahead of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// The next request goes alone.
    First,
    /// It went at `since`; the others wait for its answer, but only to `until`, and then one more
    /// goes.
    Asking { since: Tick, until: Tick },
}

/// How long the others wait for the answer of the one that went first.
const PATIENCE: Duration = Duration::from_secs(30);

/// The least and the most that a request is taken to be in flight before nobody waits for its answer
/// any more: whoever sent it may be dead.
const SOON: Duration = Duration::from_secs(5);
const NO_ANSWER: Duration = Duration::from_secs(150);

/// How long what was learned is remembered at the least.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Idle windows after which a learned limit is forgotten.
const KEPT: u32 = 10;

/// The outcome of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Charged in every dimension.
    Granted,
    /// Nothing was charged. Boxed, so that the usual verdict is passed on in a register.
    Wait(Box<Wait>),
}

impl Verdict {
    /// Whether it was granted.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted)
    }
}

/// How long to wait, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// After exactly this long the same charge would be granted, if nobody else spends meanwhile.
    pub after: Duration,
    /// What it waits for.
    pub by: Cause,
}

impl Wait {
    /// Whether it is longer than somebody may wait. How long an answer takes nobody knows, so a wait for
    /// one is not, unless nothing may be waited for.
    #[must_use]
    pub fn is_beyond(&self, max_wait: Option<Duration>) -> bool {
        max_wait.is_some_and(|most| match self.by {
            Cause::FirstAnswer => most.is_zero(),
            Cause::Limit(_) | Cause::Hold => most < self.after,
        })
    }

    const fn new(nanos: u64, by: Cause) -> Self {
        Self { after: Duration::from_nanos(nanos), by }
    }
}

/// What a wait is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// This limit is used up.
    Limit(Arc<Limit>),
    /// The server said stop.
    Hold,
    /// Another request went first, and its answer decides.
    FirstAnswer,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit(limit) => limit.fmt(f),
            Self::Hold => f.write_str("a hold by the server"),
            Self::FirstAnswer => f.write_str("the first answer"),
        }
    }
}

impl Cause {
    /// The dimension that binds; `requests` when it is no limit's doing.
    #[must_use]
    pub fn dimension(&self) -> Dimension {
        match self {
            Self::Limit(limit) => limit.dimension.clone(),
            Self::Hold | Self::FirstAnswer => Dimension::Requests,
        }
    }
}

/// What was charged and when: needed to settle it or give it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What was charged.
    pub cost: Cost,
    /// When.
    pub at: Tick,
    /// The tally of what had been answered by then.
    pub before: Cost,
}

/// What one scope looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Each limit with its level, in the order of declaration.
    pub limits: Vec<LimitStatus>,
    /// How long the server has told everybody to stay away; zero when it has not.
    pub hold: Duration,
}

/// A limit and its level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitStatus {
    /// The limit.
    pub limit: Limit,
    /// What would be granted now.
    pub remaining: Amount,
    /// The time until it is full; for a server's window, until its reset.
    pub reset: Duration,
}

impl Status {
    /// Whether less can be had here than there: it is held for longer or, where neither is, a smaller
    /// share of its tightest limit is left.
    #[must_use]
    pub fn is_tighter_than(&self, other: &Self) -> bool {
        let left = |status: &Self| status.limits.iter().map(LimitStatus::share_left).min();
        other.hold.cmp(&self.hold).then(left(self).cmp(&left(other))).is_lt()
    }
}

impl LimitStatus {
    /// What is left of a full bucket, in millionths.
    fn share_left(&self) -> u128 {
        u128::from(self.remaining.millionths()) / u128::from(self.limit.burst.max(1))
    }
}

/// The verdict for what one limit has no room for.
#[cold]
fn refuse(nanos: u64, lane: &Lane) -> Verdict {
    Verdict::Wait(Wait::new(nanos, Cause::Limit(Arc::clone(lane.limit()))).into())
}

impl Receipt {
    /// The receipt of a charge where nothing governed, or of one that was settled before.
    #[must_use]
    pub const fn new(cost: Cost, at: Tick) -> Self {
        Self { cost, at, before: Cost::NOTHING }
    }
}

impl ScopeState {
    /// A scope with these limits, all of them full.
    #[must_use]
    pub fn with_limits(limits: &[Limit]) -> Self {
        Self { lanes: limits.iter().cloned().map(Lane::new).collect(), ..Self::default() }
    }

    /// A scope of which nothing is known: one request goes first.
    #[must_use]
    pub fn unknown() -> Self {
        Self { phase: Phase::First, ..Self::default() }
    }

    /// A scope of which nothing is known, and the rate of which is searched for.
    #[must_use]
    pub fn searching() -> Self {
        let lane = Lane::searched(Search::FIRST, Search::new());
        Self { lanes: SmallVec::from_iter([lane]), ..Self::default() }
    }

    /// Charges `cost` in every dimension that it spends, or nothing at all.
    #[inline]
    pub fn charge(&mut self, cost: &Cost, now: Tick) -> Verdict {
        if self.hold <= now {
            self.hold = Tick::ZERO;
        }
        // Most scopes have one limit: asking and paying are then one step.
        if let [lane] = self.lanes.as_mut_slice()
            && self.hold == Tick::ZERO
        {
            return match lane.charge(cost.of(lane.dimension()), now) {
                0 => Verdict::Granted,
                wait => refuse(wait, lane),
            };
        }
        if let Some(wait) = self.wait(cost, now) {
            return Verdict::Wait(wait.into());
        }
        self.spend(cost, now);
        Verdict::Granted
    }

    /// Charges `cost` and counts it as outstanding until it is closed, observed or given back.
    ///
    /// # Errors
    /// The [`Wait`], when nothing was charged.
    #[inline]
    pub fn admit(&mut self, cost: &Cost, now: Tick) -> Result<Receipt, Wait> {
        if let Phase::Asking { until, .. } = self.phase
            && until > now
        {
            return Err(Wait { after: until.since(now), by: Cause::FirstAnswer });
        }
        let doubtful =
            self.lanes.iter().any(|lane| lane.is_doubtful(cost.of(lane.dimension()), now));
        if let Verdict::Wait(wait) = self.charge(cost, now) {
            return Err(*wait);
        }
        // Another one goes when the first has no answer in time; then either answer will do.
        let since = match self.phase {
            Phase::Open => doubtful.then_some(now),
            Phase::First => Some(now),
            Phase::Asking { since, .. } => Some(since),
        };
        if let Some(since) = since {
            self.phase = Phase::Asking { since, until: now.after(PATIENCE) };
        }
        let generation = self.generation();
        self.flight.turn(generation, now);
        self.flight.add(cost);
        Ok(Receipt { cost: cost.clone(), at: now, before: self.flight.over.clone() })
    }

    /// How long `cost` has to wait and what for; `None` when it would be granted now.
    #[must_use]
    #[inline]
    pub fn wait(&self, cost: &Cost, now: Tick) -> Option<Wait> {
        let mut longest = self.hold.as_nanos().saturating_sub(now.as_nanos());
        let mut by = None;
        for lane in &self.lanes {
            let amount = cost.of(lane.dimension());
            if amount.is_zero() {
                continue;
            }
            let after = lane.wait(amount, now);
            if after > longest {
                longest = after;
                by = Some(lane);
            }
        }
        if longest == 0 {
            return None;
        }
        let by = by.map_or(Cause::Hold, |lane| Cause::Limit(Arc::clone(lane.limit())));
        Some(Wait::new(longest, by))
    }

    /// Charges without asking: for what was sent already, and for forecasts.
    #[inline]
    pub fn spend(&mut self, cost: &Cost, now: Tick) {
        for lane in &mut self.lanes {
            let amount = cost.of(lane.dimension());
            if !amount.is_zero() {
                lane.spend(amount, now);
            }
        }
    }

    /// Charges as much of `cost` as is left, for what was sent without asking.
    pub fn spend_left(&mut self, cost: &Cost, now: Tick) {
        for lane in &mut self.lanes {
            let amount = cost.of(lane.dimension()).min(lane.remaining(now));
            if !amount.is_zero() {
                lane.spend(amount, now);
            }
        }
    }

    /// Corrects what `receipt` charged to what was really spent; more may leave a debt.
    pub fn settle(&mut self, receipt: &Receipt, actual: &Cost, now: Tick) {
        for lane in &mut self.lanes {
            let charged = receipt.cost.of(lane.dimension());
            let spent = actual.of(lane.dimension());
            if spent < charged {
                lane.refund(charged.minus(spent), receipt.at, now);
            } else if spent > charged {
                lane.spend(spent.minus(charged), now);
            }
        }
    }

    /// The request behind `receipt` is over: it was answered, or its fate is unknown. Tells whether
    /// others waited for it.
    pub fn close(&mut self, receipt: &Receipt, now: Tick) -> bool {
        let was_first = self.land(receipt);
        self.forget_nothing_known(now);
        was_first
    }

    pub(crate) fn land(&mut self, receipt: &Receipt) -> bool {
        self.flight.remove(&receipt.cost, receipt.at);
        self.flight.over.add(&receipt.cost);
        self.answered = self.answered.max(receipt.at);
        let was_first = self.was_first(receipt);
        if was_first {
            self.phase = Phase::Open;
        }
        was_first
    }

    /// Where nothing is known nothing is counted.
    pub(crate) fn forget_nothing_known(&mut self, now: Tick) {
        if !self.governs(now) {
            *self = Self { answered: self.answered, ..Self::default() };
        }
    }

    /// What a server may or may not have counted when it answered the request behind `receipt`,
    /// now that this is closed: everything that was in flight at any time during its own flight.
    pub(crate) fn uncertain(&self, receipt: &Receipt, dimension: &Dimension) -> Amount {
        let others = self.flight.over.of(dimension).since(receipt.before.of(dimension));
        let answered_meanwhile = others.minus(receipt.cost.of(dimension));
        self.flight.of(dimension).plus(answered_meanwhile)
    }

    /// How long what is in flight counts as that, at the most twice.
    pub(crate) fn generation(&self) -> Duration {
        let longest = self.lanes.iter().map(|lane| lane.limit().window.duration()).max();
        longest.map_or(NO_ANSWER, |window| (window / 2).clamp(SOON, NO_ANSWER))
    }

    /// The request behind `receipt` was never sent: everything comes back (rule 20).
    pub fn give_back(&mut self, receipt: &Receipt, now: Tick) {
        self.settle(receipt, &Cost::NOTHING, now);
        self.flight.remove(&receipt.cost, receipt.at);
        if self.was_first(receipt) {
            self.phase = Phase::First;
        }
    }

    /// The rate and the integer of the one bucket of requests that is all there is to this scope at
    /// present: no other limit, no hold, nobody who went first. A store may then decide by it alone.
    #[must_use]
    #[inline]
    pub fn lone_bucket(&self) -> Option<(Rate, u64)> {
        match self.lanes.as_slice() {
            [lane] if self.hold == Tick::ZERO && self.phase == Phase::Open => lane
                .bucket()
                .filter(|(rate, _)| rate.is_plain() && *lane.dimension() == Dimension::Requests),
            _ => None,
        }
    }

    /// Takes back the integer of the one bucket.
    #[inline]
    pub fn set_lone_bucket(&mut self, full_at: u64) {
        if let [lane] = self.lanes.as_mut_slice() {
            lane.set_bucket(full_at);
        }
    }

    /// Declares a limit. One of the same dimension and window is replaced and keeps what was used
    /// of it; what was merely learned about the dimension makes way.
    pub fn set_limit(&mut self, limit: Limit, now: Tick) {
        // What is only documented says nothing where something is known.
        let known = |lane: &Lane| *lane.dimension() == limit.dimension;
        if limit.origin == Origin::Registry && self.lanes.iter().any(known) {
            return;
        }
        match self.lanes.iter().position(|lane| limit.replaces(lane.limit())) {
            Some(at) => self.lanes[at].relimit(limit.clone(), now),
            None => self.lanes.push(Lane::new(limit.clone())),
        }
        self.lanes.retain(|lane: &mut Lane| {
            lane.limit().origin == Origin::Configured
                || lane.limit().dimension != limit.dimension
                || limit.origin != Origin::Configured
        });
        self.phase = Phase::Open;
    }

    /// What one of several processes makes do with: so many thousandths of each limit and of what is
    /// used of it, and every hold.
    #[must_use]
    pub fn scaled(&self, thousandths: u32, now: Tick) -> Self {
        let lanes = self.lanes.iter().map(|lane| lane.scaled(thousandths, now)).collect();
        Self { lanes, flight: Flight::default(), ..self.clone() }
    }

    /// Nobody is admitted before `span` has passed. A hold only grows.
    pub fn hold(&mut self, span: Duration, now: Tick) {
        self.hold = self.hold.max(now.after(span));
    }

    /// Each limit with its level, and the hold.
    #[must_use]
    pub fn status(&self, now: Tick) -> Status {
        let limits = self.lanes.iter().map(|lane| LimitStatus {
            limit: Limit::clone(lane.limit()),
            remaining: lane.remaining(now),
            reset: lane.until_full(now),
        });
        Status { limits: limits.collect(), hold: self.hold.since(now) }
    }

    /// The limit at a place in the order of declaration.
    #[must_use]
    pub fn limit(&self, at: usize) -> Option<&Arc<Limit>> {
        self.lanes.get(at).map(Lane::limit)
    }

    /// What was answered here so far: the [`before`](Receipt::before) of a request that leaves now.
    #[must_use]
    pub const fn tally(&self) -> &Cost {
        &self.flight.over
    }

    /// Whether any limit is known here.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Whether it may be forgotten: it is idle, nobody configured it, and what was learned is old.
    #[must_use]
    pub fn is_forgettable(&self, now: Tick) -> bool {
        self.kept(now).is_some_and(|kept| kept.is_zero())
    }

    /// How long it has to be kept if nobody comes any more; `None` when somebody configured it.
    ///
    /// Forgetting it must change no verdict: every bucket is full by then and nothing is held or in
    /// flight. What was learned stays longer, for ten windows and at least ten minutes.
    #[must_use]
    pub fn kept(&self, now: Tick) -> Option<Duration> {
        let answered = |span: Duration| match self.answered {
            Tick::ZERO => Duration::ZERO,
            answered => answered.after(span).since(now),
        };
        let mut kept = self.hold.since(now).max(self.flight.ends(self.generation()).since(now));
        if let Phase::Asking { until, .. } = self.phase {
            kept = kept.max(until.since(now));
        }
        // So are a rejection, and that an answer said nothing: nobody has to go first again.
        if self.lanes.is_empty() {
            kept = kept.max(answered(REMEMBERED));
        }
        for lane in &self.lanes {
            let limit = lane.limit();
            kept = kept.max(lane.until_full(now));
            match limit.origin {
                Origin::Configured => return None,
                Origin::Registry | Origin::Default => {}
                Origin::Estimated | Origin::Confirmed => {
                    kept = kept.max(answered(REMEMBERED.max(limit.window.duration() * KEPT)));
                }
            }
        }
        Some(kept)
    }

    /// Whether it decides anything here.
    #[must_use]
    pub fn governs(&self, now: Tick) -> bool {
        self.has_limits() || self.hold > now || self.phase != Phase::Open
    }

    /// Whether one request went first and the others wait for its answer.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }

    pub(crate) fn was_first(&self, receipt: &Receipt) -> bool {
        matches!(self.phase, Phase::Asking { since, .. } if receipt.at >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, Window};
    use proptest::prelude::*;

    fn limit(text: &str) -> Limit {
        Limit::parse(text).unwrap()
    }

    fn tokens(units: u64) -> Cost {
        Cost::ONE.with("tokens", Amount::units(units)).unwrap()
    }

    fn secs(secs: u64) -> Tick {
        Tick::from_nanos(secs * 1_000_000_000)
    }

    fn left(state: &ScopeState, lane: usize, now: Tick) -> u64 {
        state.status(now).limits[lane].remaining.whole()
    }

    #[test]
    fn rule_4_a_refused_request_charges_nothing() {
        let mut state = ScopeState::with_limits(&[limit("100/1m"), limit("tokens=1000/1m")]);
        assert!(state.charge(&tokens(900), Tick::ZERO).is_granted());
        for _ in 0..50 {
            let Verdict::Wait(wait) = state.charge(&tokens(500), Tick::ZERO) else { panic!() };
            assert_eq!(wait.by, Cause::Limit(limit("tokens=1000/1m").into()));
            assert_eq!(wait.after, Duration::from_secs(24));
        }
        assert_eq!(left(&state, 0, Tick::ZERO), 99);
    }

    #[test]
    fn rule_4_a_dimension_that_is_not_spent_never_gates() {
        let mut state = ScopeState::with_limits(&[limit("100/1m"), limit("tokens=10/1m")]);
        assert!(state.charge(&tokens(10), Tick::ZERO).is_granted());
        assert!(state.charge(&Cost::ONE, Tick::ZERO).is_granted());
    }

    #[test]
    fn rule_6_two_limits_on_one_dimension_must_both_pay() {
        let mut state = ScopeState::with_limits(&[limit("10/1s"), limit("15/1h")]);
        for _ in 0..10 {
            assert!(state.charge(&Cost::ONE, Tick::ZERO).is_granted());
        }
        assert!(!state.charge(&Cost::ONE, Tick::ZERO).is_granted());
        for _ in 0..5 {
            assert!(state.charge(&Cost::ONE, secs(1)).is_granted());
        }
        let Verdict::Wait(wait) = state.charge(&Cost::ONE, secs(1)) else { panic!() };
        assert_eq!(wait.by, Cause::Limit(limit("15/1h").into()));
    }

    #[test]
    fn a_limit_that_changes_keeps_the_units_used() {
        let mut state = ScopeState::with_limits(&[limit("1/1m")]);
        assert!(state.charge(&Cost::ONE, Tick::ZERO).is_granted());
        state.set_limit(limit("60/1m"), Tick::ZERO);
        assert_eq!(left(&state, 0, Tick::ZERO), 59);
        let before = state.clone();
        state.set_limit(limit("60/1m"), Tick::ZERO);
        assert_eq!(state, before);
        state.set_limit(limit("1/1m"), Tick::ZERO);
        assert_eq!(left(&state, 0, Tick::ZERO), 0);
        state.set_limit(limit("7/1h"), Tick::ZERO);
        assert_eq!(state.status(Tick::ZERO).limits.len(), 2);
    }

    #[test]
    fn a_settled_permit_gives_back_the_difference_or_leaves_a_debt() {
        let mut state = ScopeState::with_limits(&[limit("tokens=1000/1m")]);
        let receipt = Receipt::new(tokens(600), Tick::ZERO);
        assert!(state.charge(&receipt.cost, Tick::ZERO).is_granted());
        state.settle(&receipt, &tokens(100), Tick::ZERO);
        assert_eq!(left(&state, 0, Tick::ZERO), 900);
        state.settle(&Receipt::new(tokens(100), Tick::ZERO), &tokens(2100), Tick::ZERO);
        let Verdict::Wait(wait) = state.charge(&tokens(1), Tick::ZERO) else { panic!() };
        assert_eq!(wait.after, Duration::from_millis(66_060));
    }

    #[test]
    fn rule_13_a_hold_gates_everything_and_only_grows() {
        let mut state = ScopeState::default();
        state.hold(Duration::from_secs(5), Tick::ZERO);
        state.hold(Duration::from_secs(2), Tick::ZERO);
        let Verdict::Wait(wait) = state.charge(&Cost::ONE, secs(1)) else { panic!() };
        assert_eq!(*wait, Wait { after: Duration::from_secs(4), by: Cause::Hold });
        assert!(state.charge(&Cost::ONE, secs(5)).is_granted());
    }

    #[test]
    fn in_an_unknown_scope_one_request_goes_first() {
        let mut state = ScopeState::unknown();
        assert!(state.admit(&Cost::ONE, Tick::ZERO).is_ok());
        let wait = state.admit(&Cost::ONE, secs(1)).unwrap_err();
        assert_eq!(wait, Wait { after: Duration::from_secs(29), by: Cause::FirstAnswer });
        state.close(&Receipt::new(Cost::ONE, Tick::ZERO), Tick::ZERO);
        assert!(state.admit(&Cost::ONE, secs(1)).is_ok());

        let mut state = ScopeState::unknown();
        assert!(state.admit(&Cost::ONE, Tick::ZERO).is_ok());
        state.give_back(&Receipt::new(Cost::ONE, Tick::ZERO), secs(1));
        assert!(state.admit(&Cost::ONE, secs(1)).is_ok(), "the next one goes first instead");
        assert!(state.admit(&Cost::ONE, secs(1)).is_err());
    }

    #[test]
    fn slow_answers_open_an_unknown_scope_all_the_same() {
        let mut state = ScopeState::unknown();
        let first = state.admit(&Cost::ONE, Tick::ZERO).unwrap();
        assert!(state.admit(&Cost::ONE, secs(29)).is_err());
        state.admit(&Cost::ONE, secs(30)).unwrap();
        assert!(state.close(&first, secs(31)), "the others waited for it");
        assert!(state.admit(&Cost::ONE, secs(33)).is_ok());
    }

    proptest! {
        /// Rule 20: whatever is given back leaves the state as if it had never been charged.
        #[test]
        fn rule_20_giving_back_restores_every_bucket(
            spent in 0u64..50, cost in 1u64..50, strict in any::<bool>(), at in 0u64..5,
        ) {
            let mut declared = Limit::new("tokens", 60, Window::parse("1m").unwrap()).unwrap();
            if strict {
                declared = declared.strict().unwrap();
            }
            let mut state = ScopeState::with_limits(&[declared]);
            state.charge(&tokens(spent), Tick::ZERO);
            let before = left(&state, 0, secs(at));
            if let Ok(receipt) = state.admit(&tokens(cost), secs(at)) {
                state.give_back(&receipt, secs(at));
            }
            prop_assert_eq!(left(&state, 0, secs(at)), before);
        }
    }
}
