//! The stored form of a scope's state: plain data, relative to the instant at which it was written.
//!
//! Nothing in it depends on whose clock is right. When it is read, all that has to be known is how
//! long ago it was written; a clock that was set back meanwhile makes that zero, and one that was set
//! forward fills the buckets at most. It also keeps every number small enough to be exact in a double,
//! which is all that a script inside a server has.
//!
//! The fields are written in order, as arrays; stored bytes are read by later releases, so fields are
//! only ever added at the end, and [`Record::VERSION`] moves when an older reader would misread them.

use crate::fixed::Fixed;
use crate::flight::Flight;
use crate::gcra::Rate;
use crate::lane::{Bucket, Lane};
use crate::search::Search;
use crate::state::Phase;
use crate::strict::{Entry, Log};
use crate::{Amount, Cost, Counting, Dimension, Limit, Origin, ScopeState, Signal, Tick, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds after the instant of writing; before it when negative.
type Offset = i64;
/// Amounts in millionths, by dimension.
pub type Amounts = Vec<(String, u64)>;

/// An instant that is not known.
const NEVER: Offset = -(1 << 53);
/// What is not stored is not known.
const fn never() -> Offset {
    NEVER
}

const fn unknown() -> i64 {
    -1
}

/// The farthest past that is told apart: 52 days.
const FAR: Offset = -(1 << 52);

/// The state of one scope as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u8,
    /// When it was written, in microseconds of the store's clock.
    pub at: u64,
    hold: Offset,
    strikes: u32,
    /// 0 open, 1 first, 2 asking.
    phase: u8,
    since: Offset,
    until: Offset,
    answered: Offset,
    young: Amounts,
    old: Amounts,
    began: Offset,
    before: Offset,
    over: Amounts,
    lanes: Vec<LaneRecord>,
    /// Nanoseconds.
    #[serde(default)]
    quickest: u64,
}

/// One limit with its bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRecord {
    dimension: String,
    units: u64,
    /// Nanoseconds.
    window: u64,
    burst: u64,
    /// 0 registry, 1 default, 2 estimated, 3 confirmed, 4 configured.
    origin: u8,
    /// The rate, for those who cannot compile a limit: ticks of a unit, of the bucket, and ticks per
    /// nanosecond.
    unit: u64,
    depth: u64,
    fineness: u64,
    /// 0 bucket, 1 strict, 2 fixed window, 3 the same where nobody stated the limit.
    kind: u8,
    /// A bucket: the ticks until it is full. A strict limit or a window: millionths spent.
    level: u64,
    /// A strict limit: when each part was spent, when it frees, and millionths.
    entries: Vec<(Offset, Offset, u64)>,
    /// A window: its reset, its beginning and the reset before.
    reset: Offset,
    start: Offset,
    last: Offset,
    /// What the server calls it; empty where it has no name. Not in the first release.
    #[serde(default)]
    name: String,
    /// A window that is spread, and when its next unit is due.
    #[serde(default)]
    spread: bool,
    #[serde(default = "never")]
    due: Offset,
    /// Windows since a rejection that told what nobody stated.
    #[serde(default)]
    quiet: u8,
    /// A limit that is searched for: the peak, what passed, since when, when it was refused, and what
    /// passed since then.
    #[serde(default, with = "maybe")]
    search: Option<(u64, u64, Offset, Offset, u64)>,
    /// A window: millionths spent here, and those left by all that was told while that is in doubt; -1
    /// where it is not known. When that was last told, and its end.
    #[serde(default = "unknown")]
    own: i64,
    #[serde(default = "unknown")]
    doubt: i64,
    #[serde(default = "never")]
    told: Offset,
    #[serde(default = "never")]
    heard: Offset,
    /// When all of a window that is spread is to be spent.
    #[serde(default = "never")]
    aim: Offset,
    /// Millionths that passed since a rejection in windows that are over, and since when.
    #[serde(default)]
    passed: u64,
    #[serde(default = "never")]
    counted: Offset,
}

/// What may be missing in the middle of an array: `false` then, for a script that has no other nothing
/// there.
mod maybe {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Maybe<T> {
        There(T),
        Missing(#[allow(dead_code, reason = "only its type is looked at")] bool),
        Nothing(()),
    }

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(to),
            None => to.serialize_bool(false),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(match Maybe::deserialize(from)? {
            Maybe::There(value) => Some(value),
            Maybe::Missing(_) | Maybe::Nothing(()) => None,
        })
    }
}

/// A signal with all that can be concluded from it alone, for those who imitate
/// [`ScopeState::observe`]. What is not known is -1, or 0 for a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignalRecord {
    dimension: String,
    told: i64,
    left: i64,
    reset: i64,
    window: u64,
    implied: u64,
    bucket: bool,
    limit: i64,
    new: Option<LaneRecord>,
    name: String,
}

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A later release wrote it: it must not be touched.
    #[error(
        "it was written by a later release of paceline (format {0}, this one reads up to {version})",
        version = Record::VERSION
    )]
    Later(u8),
    /// It makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl Unreadable {
    /// Whether it makes sense to somebody else.
    #[must_use]
    pub const fn is_of_later_release(&self) -> bool {
        matches!(self, Self::Later(_))
    }
}

/// Instants against the one at which the record is written or read.
#[derive(Clone, Copy)]
struct Frame {
    now: Tick,
    elapsed: u64,
}

impl Frame {
    fn offset(self, tick: Tick) -> Offset {
        let wide = i128::from(tick.as_nanos()) - i128::from(self.now.as_nanos());
        Offset::try_from(wide.max(i128::from(FAR))).unwrap_or(Offset::MAX)
    }

    fn tick(self, offset: Offset) -> Tick {
        let wide = i128::from(self.now.as_nanos()) + i128::from(offset) - i128::from(self.elapsed);
        Tick::from_nanos(u64::try_from(wide.max(0)).unwrap_or(u64::MAX))
    }

    fn known(self, tick: Option<Tick>) -> Offset {
        tick.map_or(NEVER, |tick| self.offset(tick))
    }

    fn maybe(self, offset: Offset) -> Option<Tick> {
        (offset != NEVER).then(|| self.tick(offset))
    }
}

impl Record {
    /// The version that is written.
    pub const VERSION: u8 = 1;

    /// The state of a scope at `now`, which is `at` microseconds on the store's clock.
    #[must_use]
    pub fn of(state: &ScopeState, now: Tick, at: u64) -> Self {
        let frame = Frame { now, elapsed: 0 };
        let (phase, since, until) = match state.phase {
            Phase::Open => (0, 0, 0),
            Phase::First => (1, 0, 0),
            Phase::Asking { since, until } => (2, frame.offset(since), frame.offset(until)),
        };
        Self {
            version: Self::VERSION,
            at,
            hold: frame.offset(state.hold).max(0),
            strikes: state.strikes,
            phase,
            since,
            until,
            answered: frame.offset(state.answered),
            young: amounts(&state.flight.young),
            old: amounts(&state.flight.old),
            began: frame.offset(state.flight.began),
            before: frame.offset(state.flight.before),
            over: amounts(&state.flight.over),
            lanes: state.lanes.iter().map(|lane| LaneRecord::of(lane, frame)).collect(),
            quickest: crate::time::nanos(state.quickest),
        }
    }

    /// Its limits with their buckets.
    #[must_use]
    pub fn into_lanes(self) -> Vec<LaneRecord> {
        self.lanes
    }

    /// The state at `now`, `elapsed` after it was written.
    ///
    /// # Errors
    /// [`Unreadable`] when it was written by a later release, or makes no sense.
    pub fn state(&self, now: Tick, elapsed: Duration) -> Result<ScopeState, Unreadable> {
        if self.version > Self::VERSION {
            return Err(Unreadable::Later(self.version));
        }
        let frame = Frame { now, elapsed: crate::time::nanos(elapsed) };
        let hold = frame.tick(self.hold);
        Ok(ScopeState {
            lanes: self.lanes.iter().map(|lane| lane.lane(frame)).collect::<Result<_, _>>()?,
            hold: if hold > now { hold } else { Tick::ZERO },
            strikes: self.strikes,
            phase: match self.phase {
                0 => Phase::Open,
                1 => Phase::First,
                _ => Phase::Asking { since: frame.tick(self.since), until: frame.tick(self.until) },
            },
            answered: frame.tick(self.answered),
            flight: Flight {
                young: cost(&self.young)?,
                old: cost(&self.old)?,
                began: frame.tick(self.began),
                before: frame.tick(self.before),
                over: cost(&self.over)?,
            },
            quickest: Duration::from_nanos(self.quickest),
        })
    }
}

impl LaneRecord {
    fn of(lane: &Lane, frame: Frame) -> Self {
        let (limit, rate) = (lane.limit(), lane.rate());
        let mut record = Self {
            dimension: limit.dimension.to_string(),
            units: limit.units,
            window: limit.window.as_nanos(),
            burst: limit.burst,
            origin: limit.origin as u8,
            unit: rate.ticks(Amount::ONE),
            depth: rate.depth(),
            fineness: rate.fineness(),
            kind: 0,
            level: 0,
            entries: Vec::new(),
            reset: NEVER,
            start: NEVER,
            last: NEVER,
            name: limit.name.as_deref().unwrap_or_default().to_owned(),
            spread: false,
            due: NEVER,
            quiet: 0,
            search: lane.search().map(|search| {
                let refused = (search.refused != Tick::ZERO).then_some(search.refused);
                let since = (search.since != Tick::ZERO).then_some(search.since);
                (
                    search.peak,
                    search.passed,
                    frame.known(since),
                    frame.known(refused),
                    search.streak,
                )
            }),
            own: unknown(),
            doubt: unknown(),
            told: NEVER,
            heard: NEVER,
            aim: NEVER,
            passed: 0,
            counted: NEVER,
        };
        match lane.bucket_kind() {
            Bucket::Gcra(tat) => record.level = tat.saturating_sub(rate.at(frame.now)),
            Bucket::Strict(log) => {
                record.kind = 1;
                record.level = log.spent.millionths();
                record.entries = log.entries.iter().map(|entry| entry_of(entry, frame)).collect();
            }
            Bucket::Fixed(fixed) => {
                record.kind = 2 + u8::from(fixed.unstated);
                record.spread = fixed.spread;
                record.quiet = fixed.quiet;
                record.due = frame.known(fixed.due);
                record.level = fixed.spent.millionths();
                record.reset = frame.known(fixed.reset);
                record.start = frame.known(fixed.began);
                record.last = frame.known(fixed.last);
                record.own = signed(fixed.own);
                record.doubt = fixed.doubt.map_or(unknown(), signed);
                record.told = frame.known(fixed.at);
                record.heard = frame.known(fixed.heard);
                record.aim = frame.known(fixed.aim);
                record.passed = fixed.passed.millionths();
                record.counted = frame.known(fixed.since);
            }
        }
        record
    }

    fn lane(&self, frame: Frame) -> Result<Lane, Unreadable> {
        let strict = self.kind == 1;
        let bad = |error: crate::Error| Unreadable::Senseless(error.to_string());
        let window = Window::from_nanos(self.window)
            .ok_or_else(|| Unreadable::Senseless(format!("a window of {} ns", self.window)))?;
        let mut limit = Limit::new(&self.dimension, self.units, window).map_err(bad)?;
        limit = match strict {
            true => limit.strict().map_err(bad)?,
            false => limit.with_burst(self.burst).map_err(bad)?,
        };
        limit.name = (!self.name.is_empty()).then(|| self.name.as_str().into());
        limit.origin = match self.origin {
            0 => Origin::Registry,
            1 => Origin::Default,
            2 => Origin::Estimated,
            3 => Origin::Confirmed,
            _ => Origin::Configured,
        };
        let rate = Rate::new(&limit);
        let level = Amount::from_millionths(self.level);
        let bucket = match self.kind {
            0 => {
                let left = self.level.saturating_sub(rate.at(Tick::from_nanos(frame.elapsed)));
                Bucket::Gcra(if left == 0 { 0 } else { rate.at(frame.now).saturating_add(left) })
            }
            1 => {
                let entries = self.entries.iter().map(|entry| entry_from(*entry, frame)).collect();
                Bucket::Strict(Box::new(Log { entries, spent: level }))
            }
            _ => Bucket::Fixed(Box::new(Fixed {
                spent: level,
                reset: frame.maybe(self.reset),
                began: frame.maybe(self.start),
                last: frame.maybe(self.last),
                unstated: self.kind == 3,
                spread: self.spread,
                quiet: self.quiet,
                due: frame.maybe(self.due),
                own: unsigned(self.own).unwrap_or(level),
                doubt: unsigned(self.doubt),
                at: frame.maybe(self.told),
                heard: frame.maybe(self.heard),
                aim: frame.maybe(self.aim),
                passed: Amount::from_millionths(self.passed),
                since: frame.maybe(self.counted),
            })),
        };
        let search = self.search.map(|(peak, passed, since, refused, streak)| Search {
            streak,
            peak: peak.min(Search::MOST),
            passed,
            since: frame.maybe(since).unwrap_or(Tick::ZERO),
            refused: frame.maybe(refused).unwrap_or(Tick::ZERO),
        });
        Ok(Lane::with_bucket(limit, bucket).with_search(search))
    }
}

impl SignalRecord {
    /// What a signal says.
    #[must_use]
    pub fn of(signal: &Signal) -> Self {
        // A number beyond every limit says no more than the largest one does.
        let count = |said: Option<u64>| {
            said.map_or(-1, |said| i64::try_from(said.min(Limit::MOST + 1)).unwrap_or(i64::MAX))
        };
        let told = crate::learn::told(signal);
        let new = told.map(|units| crate::learn::new_lane(signal, units));
        let nanos = |span| i64::try_from(crate::time::nanos(span)).unwrap_or(i64::MAX);
        Self {
            dimension: signal.dimension.to_string(),
            told: count(told),
            left: count(signal.remaining),
            reset: crate::learn::told_reset(signal).map_or(-1, nanos),
            window: signal.window.map_or(0, Window::as_nanos),
            implied: crate::learn::estimate(signal).map_or(0, Window::as_nanos),
            bucket: signal.counting == Counting::Bucket,
            limit: count(signal.limit),
            new: new.map(|lane| LaneRecord::of(&lane, Frame { now: Tick::ZERO, elapsed: 0 })),
            name: signal.name.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

fn signed(amount: Amount) -> i64 {
    i64::try_from(amount.millionths()).unwrap_or(i64::MAX)
}

fn unsigned(millionths: i64) -> Option<Amount> {
    u64::try_from(millionths).ok().map(Amount::from_millionths)
}

fn entry_of(entry: &Entry, frame: Frame) -> (Offset, Offset, u64) {
    let at = |nanos| frame.offset(Tick::from_nanos(nanos));
    (at(entry.opened), at(entry.frees), entry.amount.millionths())
}

fn entry_from((opened, frees, amount): (Offset, Offset, u64), frame: Frame) -> Entry {
    Entry {
        opened: frame.tick(opened).as_nanos(),
        frees: frame.tick(frees).as_nanos(),
        amount: Amount::from_millionths(amount),
    }
}

/// A cost as it is stored.
#[must_use]
pub fn amounts(cost: &Cost) -> Amounts {
    cost.iter().map(|(dimension, amount)| (dimension.to_string(), amount.millionths())).collect()
}

/// A cost as it was stored.
///
/// # Errors
/// [`Unreadable`] for a dimension that is none.
pub fn cost(amounts: &Amounts) -> Result<Cost, Unreadable> {
    let mut cost = Cost::NOTHING;
    for (name, amount) in amounts {
        let dimension =
            Dimension::new(name).map_err(|error| Unreadable::Senseless(error.to_string()))?;
        cost.set(dimension, Amount::from_millionths(*amount));
    }
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: [&str; 5] = ["10/1s", "7/1m", "tokens=1000/1m", "1000000000/1m", "3/1d"];

    proptest! {
        /// What is read back at any later instant decides as what was never written.
        #[test]
        fn rule_35_a_state_decides_the_same_after_it_was_stored(
            limits in proptest::sample::subsequence(&LIMITS[..], 1..4),
            strict in any::<bool>(),
            steps in proptest::collection::vec((0u64..90_000_000, 0u64..30, 0u64..1_200), 1..30),
            offset in 0u64..1_000_000,
        ) {
            let mut state = ScopeState::default();
            for text in limits {
                let limit = Limit::parse(text).unwrap();
                let limit = if strict { limit.strict().unwrap() } else { limit };
                state.set_limit(limit, Tick::ZERO);
            }
            let (mut now, mut stored) = (Tick::from_nanos(1_000), state.clone());
            let base = 1 << 52;
            for (pause, requests, tokens) in steps {
                let mut cost = Cost::NOTHING;
                cost.set(Dimension::Requests, Amount::units(requests));
                cost.set(Dimension::new("tokens").unwrap(), Amount::units(tokens));
                let here = Tick::from_nanos(now.as_nanos() + base + offset);
                let record = Record::of(&stored, here, 0);
                now = now.after(Duration::from_micros(pause));
                let there = Tick::from_nanos(now.as_nanos() + base);
                stored = record.state(there, Duration::from_micros(pause)).unwrap();
                prop_assert_eq!(state.charge(&cost, now), stored.charge(&cost, there));
                stored = Record::of(&stored, there, 0).state(
                    Tick::from_nanos(there.as_nanos() + offset), Duration::ZERO).unwrap();
            }
        }
    }

    #[test]
    fn rule_35_what_a_later_release_wrote_is_refused_with_the_reason() {
        let mut record = Record::of(&ScopeState::default(), Tick::ZERO, 0);
        record.version = 2;
        let error = record.state(Tick::ZERO, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("later release"), "{error}");
    }
}
