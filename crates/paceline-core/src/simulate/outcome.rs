//! What came of a simulation.

use super::{Simulation, Timeline};
use crate::time::nanos;
use crate::{Amount, Cause, Limit};
use std::fmt;
use std::time::Duration;

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How many requests came.
    pub requests: u64,
    /// How many were answered.
    pub answered: u64,
    /// How many calls were refused before they were sent, for they would have waited too long.
    pub refused: u64,
    /// How many 429s the server sent.
    pub rejected: u64,
    /// How many requests were given up after their last attempt was rejected.
    pub failed: u64,
    /// When everything was over.
    pub finished: Duration,
    /// How long answered requests waited for their limits, retries included.
    pub waits: Waits,
    /// How long after they came they were sent at first: the wait for a worker, too.
    pub delays: Waits,
    /// What each limit was used, in the order of declaration; at the end learned ones, too.
    pub usage: Vec<Usage>,
    /// What everything waited for, and for how long: it adds up to all of the time. The longest first.
    pub bounds: Vec<(Bound, Duration)>,
    /// How much was under way at once.
    pub concurrency: Concurrency,
    /// What happened when.
    pub timeline: Timeline,
    /// What became of the first requests, in the order in which that was decided.
    pub marks: Vec<Mark>,
}

impl Outcome {
    /// What decides how long it takes.
    #[must_use]
    pub fn binding(&self) -> Option<&Bound> {
        self.bounds.first().map(|(bound, _)| bound)
    }
}

/// What has to pass before the next request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// This limit is used up.
    Limit(Limit),
    /// The server said stop.
    Hold,
    /// Another request went first where nothing is known.
    FirstAnswer,
    /// All workers wait for answers.
    Workers,
    /// No request has come.
    Arrivals,
    /// Everything is sent, and the last answers are under way.
    Answers,
    /// A pause before a rejected request is sent again.
    Retries,
}

impl Bound {
    /// The same for limits that differ in nothing that a caller sees, in whatever state they are.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Limit(a), Self::Limit(b)) => is_same(a, b),
            _ => self == other,
        }
    }
}

/// Whether a caller sees no difference between two limits.
pub(super) fn is_same(a: &Limit, b: &Limit) -> bool {
    a.replaces(b) && a.units == b.units
}

impl From<&Cause> for Bound {
    fn from(cause: &Cause) -> Self {
        match cause {
            Cause::Limit(limit) => Self::Limit(Limit::clone(limit)),
            Cause::Hold => Self::Hold,
            Cause::FirstAnswer => Self::FirstAnswer,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limit(limit) => return limit.fmt(f),
            Self::Hold => "a hold by the server",
            Self::FirstAnswer => "the first answer",
            Self::Workers => "workers",
            Self::Arrivals => "arrivals",
            Self::Answers => "the last answers",
            Self::Retries => "pauses before retries",
        })
    }
}

/// How long something took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many took any time.
    pub some: u64,
    /// Half took no longer.
    pub p50: Duration,
    /// Ninety-nine of a hundred took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// The average.
    pub mean: Duration,
}

impl Waits {
    pub(super) fn of(mut spans: Vec<u64>) -> Self {
        if spans.is_empty() {
            return Self::default();
        }
        let total: u128 = spans.iter().map(|span| u128::from(*span)).sum();
        let mean = u64::try_from(total / spans.len() as u128).unwrap_or(u64::MAX);
        let rank = |spans: &mut Vec<u64>, percent: usize| {
            let at = (spans.len() * percent).div_ceil(100).max(1) - 1;
            Duration::from_nanos(*spans.select_nth_unstable(at).1)
        };
        Self {
            some: spans.iter().filter(|span| **span > 0).count() as u64,
            p50: rank(&mut spans, 50),
            p99: rank(&mut spans, 99),
            max: Duration::from_nanos(spans.iter().copied().max().unwrap_or(0)),
            mean: Duration::from_nanos(mean),
        }
    }
}

/// How much of a limit was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The limit.
    pub limit: Limit,
    /// What was spent of it.
    pub spent: Amount,
    /// The share of what it allows from the first request to the last one, in millionths.
    pub share: u64,
}

/// How much is under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// The most that was.
    pub most: u64,
    /// As many as the limits have work for: more would only wait. `None` where there is no limit.
    pub of_use: Option<u64>,
    /// What all workers get through in a minute, whatever the limits are. `None` where answers take no
    /// time.
    pub ceiling: Option<u64>,
}

impl Concurrency {
    /// By Little's law: what is under way is the rate by the time that it takes. `answers` took `busy`
    /// nanoseconds in all.
    pub(super) fn new(
        plan: &Simulation,
        most: u64,
        limits: &[Limit],
        spent: &[Amount],
        answers: u64,
        busy: u128,
    ) -> Self {
        const MINUTE: u128 = 60_000_000_000;
        let answers = u128::from(answers.max(1));
        let latency = busy / answers;
        // The time that a request takes of a limit, on average; the slowest limit decides.
        let each = limits.iter().zip(spent).filter(|(_, spent)| !spent.is_zero());
        let pace = each
            .map(|(limit, spent)| {
                let window = u128::from(limit.window.as_nanos());
                let of_all = u128::from(spent.millionths()) * window / answers;
                of_all / (u128::from(limit.units) * u128::from(Amount::UNIT))
            })
            .max();
        let of_use = pace.map(|pace| latency * u128::from(plan.keys) / pace.max(1) + 1);
        let ceiling = (u128::from(plan.workers) * MINUTE).checked_div(latency);
        let small = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Self { most, of_use: of_use.map(small), ceiling: ceiling.map(small) }
    }
}

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When it came.
    pub came: Duration,
    /// When it was sent at last, or refused.
    pub at: Duration,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Sent at once.
    Sent,
    /// Sent after a wait.
    Waited,
    /// Refused before it was sent.
    Refused,
    /// Rejected by the server, at least once.
    Rejected,
}

impl Fate {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Waited => "waited",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
        }
    }
}

/// The share of a limit that was used, where `keys` have it each and everything was sent within `span`.
pub(super) fn share(limit: &Limit, spent: Amount, keys: u32, span: Duration) -> u64 {
    let refilled = u128::from(limit.units) * u128::from(nanos(span)) * u128::from(Amount::UNIT)
        / u128::from(limit.window.as_nanos());
    let could = (u128::from(limit.burst) * u128::from(Amount::UNIT) + refilled) * u128::from(keys);
    let share = u128::from(spent.millionths()) * 1_000_000 / could.max(1);
    u64::try_from(share).unwrap_or(u64::MAX)
}
