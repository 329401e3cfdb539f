//! What one change would help most.

use super::{Bound, Impossible, MOST_KEYS, MOST_WORKERS, Outcome, Simulation};
use crate::{Limit, provider};
use std::fmt;
use std::time::Duration;

/// What could be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Twice as much of a limit, at the server as well where it has the same.
    Limit(Limit),
    /// Twice as many workers.
    Workers(u32),
    /// One more key.
    Keys(u32),
    /// Wait, instead of giving up.
    Wait,
    /// Never more than the limit in any window.
    Strict(Limit),
    /// One request after the other, evenly.
    Evenly(Limit),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => write!(f, "a limit of {limit}"),
            Self::Workers(workers) => write!(f, "{workers} workers"),
            Self::Keys(keys) => write!(f, "{keys} keys"),
            Self::Wait => f.write_str("waiting as long as it takes"),
            Self::Strict(limit) => write!(f, "{limit} declared strict"),
            Self::Evenly(limit) => write!(f, "{limit} with a burst of 1"),
        }
    }
}

/// The one change that would help most, and what would come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The change.
    pub change: Change,
    /// When everything would be over.
    pub finished: Duration,
    /// How many calls would not be answered.
    pub unanswered: u64,
    /// How many 429s the server would send.
    pub rejected: u64,
}

impl Simulation {
    /// Tries single changes of what `outcome` came of, and tells the one that helps most: more calls
    /// answered, else fewer rejected, else an earlier end by at least a hundredth. `None` where none
    /// does.
    ///
    /// # Errors
    /// [`Impossible`] when the simulation makes no sense.
    pub fn advice(&self, outcome: &Outcome) -> Result<Option<Advice>, Impossible> {
        let mut best = None;
        let mut to_beat = (unanswered(outcome), outcome.rejected, outcome.finished);
        for (change, other) in self.changes(outcome) {
            let came = other.run()?;
            let (unanswered, rejected) = (unanswered(&came), came.rejected);
            let is_better = match unanswered.cmp(&to_beat.0).then(rejected.cmp(&to_beat.1)) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => came.finished < to_beat.2 - to_beat.2 / 100,
                std::cmp::Ordering::Greater => false,
            };
            if is_better {
                to_beat = (unanswered, rejected, came.finished);
                best = Some(Advice { change, finished: came.finished, unanswered, rejected });
            }
        }
        Ok(best)
    }

    /// The changes that may help, for something waited for what they change.
    fn changes(&self, outcome: &Outcome) -> Vec<(Change, Self)> {
        let mut changes = Vec::new();
        let plain = Self { marks: 0, ..self.clone() };
        let is_bound = |bound: &Bound| outcome.bounds.iter().any(|(known, _)| known.is(bound));
        let mut is_limited = false;
        for (i, limit) in self.limits.iter().enumerate() {
            let mut with = |change: &dyn Fn(Limit) -> Change, limit: Option<Limit>| {
                if let Some(limit) = limit {
                    let mut other = plain.clone();
                    other.replace(i, limit.clone());
                    changes.push((change(limit), other));
                }
            };
            if outcome.rejected > 0 && limit.burst > 1 {
                with(&Change::Strict, limit.clone().strict().ok().filter(|_| !limit.strict));
                with(&Change::Evenly, limit.clone().with_burst(1).ok());
            }
            if is_bound(&Bound::Limit(limit.clone())) || outcome.refused > 0 {
                is_limited = true;
                let twice = limit.units.saturating_mul(2).min(Limit::MOST);
                let burst = limit.burst.saturating_mul(2).min(Limit::MOST);
                with(&Change::Limit, Some(Limit { units: twice, burst, ..limit.clone() }));
            }
        }
        if is_limited && u64::from(self.keys) < MOST_KEYS {
            let keys = self.keys + 1;
            changes.push((Change::Keys(keys), Self { keys, ..plain.clone() }));
        }
        if is_bound(&Bound::Workers) {
            let workers = self.workers.saturating_mul(2).min(MOST_WORKERS);
            changes.push((Change::Workers(workers), Self { workers, ..plain.clone() }));
        }
        if outcome.refused > 0 {
            changes.push((Change::Wait, Self { max_wait: None, ..plain }));
        }
        changes
    }

    /// Puts another limit in the place of one, at the server as well where it has the same.
    fn replace(&mut self, at: usize, limit: Limit) {
        let before = std::mem::replace(&mut self.limits[at], limit.clone());
        let window = limit.window.duration();
        for (dimension, counted) in self.server.iter_mut().flat_map(|it| &mut it.limits) {
            let same = (before.units, window) == (counted.units(), counted.window());
            if *dimension == before.dimension && same {
                *counted = provider::Limit::new(limit.units, window).unwrap_or(*counted);
            }
        }
    }
}

const fn unanswered(outcome: &Outcome) -> u64 {
    outcome.refused + outcome.failed
}
