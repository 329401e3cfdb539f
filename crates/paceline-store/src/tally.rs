//! The books of a store: what became of calls, in each scope and on each day.

use crate::Key;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A day of the calendar, in UTC, by the clock of the store.
pub type Day = jiff::civil::Date;

/// How many days are kept: today and those before it.
pub(crate) const DAYS: i64 = 35;
/// The most scopes that this process keeps apart at once.
const SCOPES: usize = 4_096;
/// Where the calls of any further scope are counted.
const OTHERS: &str = "(others)";

/// What became of calls in one scope: sums that only grow, as far as [`Tally::MOST`].
///
/// ```
/// use paceline_store::Tally;
///
/// let mut tally = Tally { sent: 1, ..Tally::default() };
/// tally.add(&Tally { input_tokens: 900, micro_usd: 2_250, ..Tally::default() });
/// assert_eq!((tally.sent, tally.input_tokens), (1, 900));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Attempts that took a permit and were sent.
    pub sent: u64,
    /// How long calls waited for a permit, all together; whole microseconds count.
    pub waited: Duration,
    /// Calls that had to wait.
    pub delayed: u64,
    /// Calls that we refused: they got an error in place of a wait.
    pub refused: u64,
    /// Attempts that the server answered with a 429.
    pub rejected: u64,
    /// Attempts that failed in another way, at the server or on the way there.
    pub failed: u64,
    /// Calls that were answered from a cache.
    pub cached: u64,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// What was spent, in millionths of a dollar.
    pub micro_usd: u64,
}

impl Tally {
    /// Where a sum stops: beyond that, a script of Redis counts no longer exactly.
    pub const MOST: u64 = (1 << 53) - 1;

    /// The names under which the sums are stored, in the order of [`numbers`](Self::numbers).
    pub const NAMES: [&str; 10] = [
        "sent",
        "waited",
        "delayed",
        "refused",
        "rejected",
        "failed",
        "cached",
        "input_tokens",
        "output_tokens",
        "micro_usd",
    ];

    /// The sums as they are stored, none above [`Tally::MOST`]; waits in microseconds.
    #[must_use]
    pub fn numbers(&self) -> [u64; 10] {
        [
            self.sent,
            u64::try_from(self.waited.as_micros()).unwrap_or(u64::MAX),
            self.delayed,
            self.refused,
            self.rejected,
            self.failed,
            self.cached,
            self.input_tokens,
            self.output_tokens,
            self.micro_usd,
        ]
        .map(|sum| sum.min(Self::MOST))
    }

    /// The tally with those sums.
    #[must_use]
    pub const fn from_numbers(numbers: [u64; 10]) -> Self {
        let [sent, waited, delayed, refused, rejected, failed, cached, input, output, usd] =
            numbers;
        Self {
            sent,
            waited: Duration::from_micros(waited),
            delayed,
            refused,
            rejected,
            failed,
            cached,
            input_tokens: input,
            output_tokens: output,
            micro_usd: usd,
        }
    }

    /// Adds what became of further calls.
    pub fn add(&mut self, other: &Self) {
        let mut sums = self.numbers();
        for (sum, more) in sums.iter_mut().zip(other.numbers()) {
            *sum = (*sum + more).min(Self::MOST);
        }
        *self = Self::from_numbers(sums);
    }
}

/// Tallies by scope, of so many scopes that they take little memory; any further scopes are counted
/// together, as `(others)`.
#[derive(Debug, Clone, Default)]
pub struct Tallies(HashMap<Key, Tally>);

impl Tallies {
    /// Adds what became of calls in a scope.
    pub fn add(&mut self, scope: &Key, tally: &Tally) {
        if let Some(known) = self.0.get_mut(scope) {
            return known.add(tally);
        }
        let scope = if self.0.len() < SCOPES { scope.clone() } else { Key::new(OTHERS) };
        self.0.entry(scope).or_default().add(tally);
    }

    /// Adds what became of calls in several scopes.
    pub fn extend(&mut self, entries: &[(Key, Tally)]) {
        entries.iter().for_each(|(scope, tally)| self.add(scope, tally));
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, as [`Store::count`](crate::Store::count) takes them; none are left.
    #[must_use]
    pub fn take(&mut self) -> Vec<(Key, Tally)> {
        std::mem::take(&mut self.0).into_iter().collect()
    }
}

/// The books of one process.
#[derive(Debug, Default)]
pub(crate) struct Books(BTreeMap<Day, Tallies>);

impl Books {
    /// Adds to a day, and drops those that are too long ago.
    pub(crate) fn count(&mut self, today: Day, entries: &[(Key, Tally)]) {
        self.0.entry(today).or_default().extend(entries);
        let oldest = oldest(today);
        while self.0.first_key_value().is_some_and(|(day, _)| *day < oldest) {
            self.0.pop_first();
        }
    }

    /// All that is kept.
    pub(crate) fn tallies(&self, today: Day) -> Vec<(Key, Day, Tally)> {
        let kept = self.0.range(oldest(today)..);
        in_order(kept.flat_map(|(day, tallies)| {
            tallies.0.iter().map(|(scope, tally)| (scope.clone(), *day, *tally))
        }))
    }
}

/// The books as every store tells them: by day, then by scope.
pub(crate) fn in_order(
    tallies: impl IntoIterator<Item = (Key, Day, Tally)>,
) -> Vec<(Key, Day, Tally)> {
    let mut tallies: Vec<_> = tallies.into_iter().collect();
    tallies
        .sort_by(|(a, a_day, _), (b, b_day, _)| (a_day, a.as_bytes()).cmp(&(b_day, b.as_bytes())));
    tallies
}

/// The day of an instant, in microseconds since 1970.
pub(crate) fn day_of(micros: u64) -> Day {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    let instant = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    jiff::tz::Offset::UTC.to_datetime(instant).date()
}

/// The first microsecond of a day.
#[cfg(feature = "redis")]
pub(crate) fn begin_of(day: Day) -> u64 {
    let begin = jiff::tz::Offset::UTC.to_timestamp(day.to_datetime(jiff::civil::Time::midnight()));
    begin.map_or(0, |begin| u64::try_from(begin.as_microsecond()).unwrap_or(0))
}

/// The first day that is kept.
pub(crate) fn oldest(today: Day) -> Day {
    today.saturating_sub(jiff::Span::new().days(DAYS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sent: u64) -> Tally {
        Tally { sent, ..Tally::default() }
    }

    #[test]
    fn a_tally_is_what_its_numbers_say() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let tally = Tally::from_numbers(numbers);
        assert_eq!(tally.numbers(), numbers);
        assert_eq!((tally.waited, tally.micro_usd), (Duration::from_micros(2), 10));
    }

    #[test]
    fn a_sum_stops_where_it_would_no_longer_be_exact() {
        let mut tally = Tally { waited: Duration::MAX, ..sent(u64::MAX) };
        tally.add(&Tally { failed: 7, ..sent(1) });
        assert_eq!((tally.sent, tally.failed), (Tally::MOST, 7));
        assert_eq!(tally.waited, Duration::from_micros(Tally::MOST));
    }

    #[test]
    fn rule_31_scopes_beyond_those_there_is_room_for_are_counted_together() {
        let mut tallies = Tallies::default();
        for i in 0..SCOPES + 10 {
            tallies.add(&Key::new(&format!("p:{i}")), &sent(1));
        }
        tallies.add(&Key::new("p:0"), &sent(1));
        let all = tallies.take();
        assert_eq!(all.len(), SCOPES + 1);
        assert_eq!(all.iter().map(|(_, tally)| tally.sent).sum::<u64>(), SCOPES as u64 + 11);
        let others = all.iter().find(|(scope, _)| scope.as_str() == OTHERS).unwrap();
        assert_eq!(others.1, sent(10));
        assert!(tallies.is_empty());
    }

    #[test]
    fn rule_31_a_day_is_dropped_after_35_days() {
        let (mut books, first) = (Books::default(), jiff::civil::date(2026, 1, 31));
        let day = |days: i64| first.saturating_add(jiff::Span::new().days(days));
        let entries = [(Key::new("openai:gpt-4o"), sent(1))];
        (0..100).for_each(|days| books.count(day(days), &entries));
        assert_eq!(books.0.len(), 35);
        let kept = books.tallies(day(99));
        assert_eq!((kept.len(), kept[0].1, kept[34].1), (35, day(65), day(99)));
        // Nobody has counted since.
        assert_eq!(books.tallies(day(110)).len(), 24);
    }

    #[test]
    fn a_day_is_one_of_utc() {
        let day = |seconds: u64| day_of(seconds * 1_000_000).to_string();
        assert_eq!(
            (day(0), day(86_399), day(86_400)),
            ("1970-01-01".to_owned(), "1970-01-01".to_owned(), "1970-01-02".to_owned())
        );
        assert_eq!(day(1_767_225_600), "2026-01-01");
        assert_eq!(day_of(u64::MAX).year(), 9999);
    }
}
