//! When requests come, and what they spend.

use super::Simulation;
use super::dice::Dice;
use crate::time::nanos;
use crate::{Amount, Cost, Dimension, Error, Window};
use std::time::Duration;

/// When requests come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// All are there from the beginning, as in a batch.
    #[default]
    Together,
    /// So many per window, evenly.
    Steady(u64, Window),
    /// So many per window on average, at random (a Poisson process).
    Poisson(u64, Window),
    /// So many at once, and again a window later.
    Bursts(u64, Window),
    /// As they once came, the earliest first.
    Replay(Vec<Past>),
}

/// A request that once came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// How long after the first.
    pub after: Duration,
    /// What it spent.
    pub cost: Cost,
    /// How long its answer took, where that is known.
    pub latency: Option<Duration>,
}

/// What each request spends of a dimension: any whole number of units from the least to the most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spend {
    pub(super) dimension: Dimension,
    pub(super) least: Amount,
    pub(super) most: Amount,
}

impl Spend {
    /// The same each time.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a name that is none.
    pub fn exactly(dimension: &str, units: u64) -> Result<Self, Error> {
        Self::between(dimension, Amount::units(units), Amount::units(units))
    }

    /// From `least` to `most`, each as likely.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a name that is none, [`Error::Cost`] when the least is above the most.
    pub fn between(dimension: &str, least: Amount, most: Amount) -> Result<Self, Error> {
        if least > most {
            return Err(Error::Cost(format!("{}..{}", least.whole(), most.whole())));
        }
        Ok(Self { dimension: Dimension::new(dimension)?, least, most })
    }

    fn roll(&self, dice: &mut Dice) -> Amount {
        let more = self.most.minus(self.least).whole();
        self.least.plus(Amount::units(dice.upto(more)))
    }
}

/// One request as it comes.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Nanoseconds from the beginning.
    pub(super) at: u64,
    pub(super) cost: Cost,
    pub(super) latency: u64,
}

/// All requests, in the order in which they come.
#[derive(Debug)]
pub(super) struct Workload<'a> {
    plan: &'a Simulation,
    next: u64,
    requests: u64,
    at: u64,
    dice: Dice,
}

impl<'a> Workload<'a> {
    pub(super) fn new(plan: &'a Simulation) -> Self {
        let requests = match &plan.arrivals {
            Arrivals::Replay(past) => plan.requests.min(past.len() as u64),
            _ => plan.requests,
        };
        // What comes when must not depend on what becomes of it.
        Self { plan, next: 0, requests, at: 0, dice: Dice::new(plan.seed ^ 0x5EED) }
    }

    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }

    /// When the request of that number comes, the one before having come at `before`.
    fn time(&mut self, number: u64, before: u64) -> u64 {
        let share = |count: u64, of: u64, window: Window| {
            let span = u128::from(count) * u128::from(window.as_nanos()) / u128::from(of.max(1));
            u64::try_from(span).unwrap_or(u64::MAX)
        };
        match &self.plan.arrivals {
            Arrivals::Together => 0,
            Arrivals::Steady(count, window) => share(number, *count, *window),
            Arrivals::Bursts(size, window) => share(number / (*size).max(1), 1, *window),
            Arrivals::Poisson(count, window) => {
                let mean = Duration::from_nanos(share(1, *count, *window));
                before.saturating_add(nanos(self.dice.pause(mean)))
            }
            Arrivals::Replay(_) => {
                self.past(number).map_or(before, |past| nanos(past.after).max(before))
            }
        }
    }

    /// The request of that number, where they come as they once came.
    fn past(&self, number: u64) -> Option<&'a Past> {
        match &self.plan.arrivals {
            Arrivals::Replay(past) => past.get(usize::try_from(number).ok()?),
            _ => None,
        }
    }

    fn cost(&mut self, number: u64) -> (Cost, u64) {
        let usual = nanos(self.plan.latency);
        if let Some(past) = self.past(number) {
            return (past.cost.clone(), past.latency.map_or(usual, nanos));
        }
        let mut cost = Cost::ONE;
        for spend in &self.plan.spends {
            cost.set(spend.dimension.clone(), spend.roll(&mut self.dice));
        }
        (cost, usual)
    }
}

impl Iterator for Workload<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.next == self.requests {
            return None;
        }
        let at = self.time(self.next, self.at);
        let (cost, latency) = self.cost(self.next);
        (self.at, self.next) = (at, self.next + 1);
        Some(Request { at, cost, latency })
    }
}
