//! What became of calls in this process: sums that only grow, for whoever scrapes them.
//!
//! Nothing is counted before somebody asks for it ([`Limiter::measure`](crate::Limiter::measure)).

use paceline_core::LimitStatus;
use paceline_store::{Health, Tally};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most scopes that are kept apart; what becomes of calls in others is counted in none.
const SCOPES: usize = 4_096;

/// The upper ends of the steps in which waits are counted.
pub const WAITS: [Duration; 14] = [
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// Everything that was measured since [`Limiter::measure`](crate::Limiter::measure).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Each scope in which there were calls, sorted.
    pub scopes: Vec<ScopeMetrics>,
    /// Callers that wait at the moment.
    pub waiting: u64,
    /// The store beneath.
    pub store: Health,
}

/// What became of calls in one scope of this process.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScopeMetrics {
    /// Its name, such as `https://api.example.com` or `openai:gpt-4o`.
    pub scope: String,
    /// What became of calls.
    pub tally: Tally,
    /// Rejections that say that a quota is spent, which waiting does not bring back; they are among
    /// [`Tally::rejected`].
    pub spent: u64,
    /// Attempts that were made again.
    pub retried: u64,
    /// Rejections that said how long to stay away.
    pub holds: u64,
    /// How many attempts waited no longer than each of [`WAITS`], and longer than the one before; the last
    /// is of those that waited longer than all.
    pub waits: [u64; WAITS.len() + 1],
    /// Each limit and its level, as far as this process knows.
    pub limits: Vec<LimitStatus>,
    /// How long the scope is held.
    pub hold: Duration,
}

/// What became of one attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Event {
    pub(crate) tally: Tally,
    pub(crate) spent: bool,
    pub(crate) retried: bool,
    pub(crate) held: bool,
}

impl From<Tally> for Event {
    fn from(tally: Tally) -> Self {
        Self { tally, ..Self::default() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Meter(RwLock<HashMap<Box<str>, Arc<Cell>>>);

#[derive(Debug)]
struct Cell {
    tally: [AtomicU64; Tally::NAMES.len()],
    spent: AtomicU64,
    retried: AtomicU64,
    holds: AtomicU64,
    waits: [AtomicU64; WAITS.len() + 1],
    #[cfg(feature = "metrics")]
    told: crate::facade::Told,
}

impl Cell {
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
    fn new(scope: &str) -> Self {
        Self {
            tally: Default::default(),
            spent: AtomicU64::default(),
            retried: AtomicU64::default(),
            holds: AtomicU64::default(),
            waits: Default::default(),
            #[cfg(feature = "metrics")]
            told: crate::facade::Told::new(scope),
        }
    }

    fn add(&self, event: &Event) {
        let add = |to: &AtomicU64, more: u64| {
            if more > 0 {
                to.fetch_add(more, Ordering::Relaxed);
            }
        };
        for (sum, more) in self.tally.iter().zip(event.tally.numbers()) {
            add(sum, more);
        }
        add(&self.spent, event.spent.into());
        add(&self.retried, event.retried.into());
        add(&self.holds, event.held.into());
        if event.tally.sent > 0 {
            let step = WAITS.partition_point(|most| *most < event.tally.waited);
            add(&self.waits[step], 1);
        }
        #[cfg(feature = "metrics")]
        self.told.add(event);
    }

    fn read(&self, scope: &str) -> ScopeMetrics {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        ScopeMetrics {
            scope: scope.to_owned(),
            tally: Tally::from_numbers(self.tally.each_ref().map(get)),
            spent: get(&self.spent),
            retried: get(&self.retried),
            holds: get(&self.holds),
            waits: self.waits.each_ref().map(get),
            ..ScopeMetrics::default()
        }
    }
}

impl Meter {
    pub(crate) fn add(&self, scope: &str, event: &Event) {
        if let Some(cell) = self.0.read().get(scope) {
            return cell.add(event);
        }
        let mut cells = self.0.write();
        if cells.len() < SCOPES || cells.contains_key(scope) {
            let cell = cells.entry(scope.into()).or_insert_with(|| Cell::new(scope).into());
            cell.add(event);
        }
    }

    pub(crate) fn read(&self) -> Vec<ScopeMetrics> {
        let cells = self.0.read();
        let mut scopes: Vec<_> = cells.iter().map(|(scope, cell)| cell.read(scope)).collect();
        scopes.sort_by(|a, b| a.scope.cmp(&b.scope));
        scopes
    }
}
