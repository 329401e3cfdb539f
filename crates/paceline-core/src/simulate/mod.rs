//! What would happen: the engine on a clock of its own, with the callers before it and a server behind it.
//!
//! There is no second implementation. Requests are admitted by the same [`ScopeState`](crate::ScopeState) and
//! refused by the same [`Tail`](crate::gate::Tail) as real ones, a server counts by [`provider`](crate::provider), and what
//! it says is learned from. Only time is not waited for, so an hour of traffic takes milliseconds, and the same
//! simulation has the same outcome each time.
//!
//! ```
//! use paceline_core::simulate::{Bound, Simulation, Spend};
//! use paceline_core::Limit;
//!
//! let mut simulation = Simulation::default();
//! simulation.limits = vec![Limit::parse("4410/1m")?, Limit::parse("tokens=100000/1m")?];
//! simulation.requests = 1_000;
//! simulation.spends = vec![Spend::exactly("tokens", 2_000)?];
//!
//! let outcome = simulation.run()?;
//! assert_eq!(outcome.finished.as_secs(), 19 * 60);
//! assert_eq!(outcome.binding(), Some(&Bound::Limit("tokens=100000/1m".parse()?)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod dice;
mod outcome;
mod server;
mod timeline;
mod workload;
mod world;

pub use advice::{Advice, Change};
pub use outcome::{Bound, Concurrency, Fate, Mark, Outcome, Usage, Waits};
pub use server::{Server, Tells};
pub use timeline::{Slot, Timeline};
pub use workload::{Arrivals, Past, Spend};

use crate::retry::RetryConfig;
use crate::{Amount, Cost, Limit, Policy};
use std::time::Duration;

/// The most requests of one simulation: how long each waited is remembered.
const MOST_REQUESTS: u64 = 10_000_000;
const MOST_WORKERS: u32 = 1_000_000;
/// The most keys: the level of each is looked at in each slot of the timeline.
const MOST_KEYS: u64 = 1_000;
/// Whatever takes longer is a mistake.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// What is simulated. The default is a hundred requests at once, by sixteen workers and without limits.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The limits that are lived by, of each key. Where there are none they are learned from the
    /// [`Server`].
    pub limits: Vec<Limit>,
    /// How many requests there are; of a replay no more than it has.
    pub requests: u64,
    /// When they come.
    pub arrivals: Arrivals,
    /// What each spends beside itself.
    pub spends: Vec<Spend>,
    /// How many are under way or waiting at once.
    pub workers: u32,
    /// How many keys, accounts or credentials take turns. Each has all of the limits.
    pub keys: u32,
    /// How long an answer takes.
    pub latency: Duration,
    /// By how much at most a request is delayed before the server counts it, and its answer again.
    pub jitter: Duration,
    /// The longest wait of one call; zero never waits.
    pub max_wait: Option<Duration>,
    /// What is sent again.
    pub retry: RetryConfig,
    /// How answers are lived by.
    pub policy: Policy,
    /// Who counts at the other end; nobody refuses anything unless there is one.
    pub server: Option<Server>,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Of so many requests at most it is told what became of each.
    pub marks: usize,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            requests: 100,
            arrivals: Arrivals::Together,
            spends: Vec::new(),
            workers: 16,
            keys: 1,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            max_wait: None,
            retry: RetryConfig::default(),
            policy: Policy::default(),
            server: None,
            seed: 0,
            marks: 0,
        }
    }
}

/// Why a simulation makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Impossible {
    /// A number out of its range.
    #[error("{what} must be from 1 to {most}, not {value}")]
    Number {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What it may be at most.
        most: u64,
    },
    /// Nothing ever comes.
    #[error("there is nothing to replay")]
    Empty,
    /// A server that refuses such a request whenever it comes.
    #[error(
        "a request that spends {spends} {dimension} is above the server's {limit} per window: it would be refused for ever"
    )]
    NeverAdmitted {
        /// The dimension.
        dimension: String,
        /// What a request may spend of it.
        spends: u64,
        /// The server's limit.
        limit: u64,
    },
    /// It goes on for a hundred years.
    #[error("it would take more than 100 years; raise a limit, or send fewer requests")]
    Endless,
}

impl Simulation {
    /// Runs it to its end.
    ///
    /// # Errors
    /// [`Impossible`] when it makes no sense.
    pub fn run(&self) -> Result<Outcome, Impossible> {
        self.check()?;
        world::World::new(self).run()
    }

    fn check(&self) -> Result<(), Impossible> {
        let within = |what, value: u64, most: u64| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(Impossible::Number { what, value, most }),
        };
        within("requests", self.requests, MOST_REQUESTS)?;
        within("workers", self.workers.into(), MOST_WORKERS.into())?;
        within("keys", self.keys.into(), MOST_KEYS)?;
        if matches!(&self.arrivals, Arrivals::Replay(past) if past.is_empty()) {
            return Err(Impossible::Empty);
        }
        let most = self.most();
        for (dimension, limit) in self.server.iter().flat_map(|server| &server.limits) {
            let spends = whole(most.of(dimension));
            if spends > limit.units() {
                let (dimension, limit) = (dimension.to_string(), limit.units());
                return Err(Impossible::NeverAdmitted { dimension, spends, limit });
            }
        }
        Ok(())
    }

    /// The most that a request spends of anything.
    fn most(&self) -> Cost {
        let mut most = Cost::ONE;
        for spend in &self.spends {
            most.set(spend.dimension.clone(), spend.most);
        }
        if let Arrivals::Replay(past) = &self.arrivals {
            for (dimension, amount) in past.iter().flat_map(|past| past.cost.iter()) {
                most.set(dimension.clone(), most.of(dimension).max(amount));
            }
        }
        most
    }
}

/// Units as a server counts them.
fn whole(amount: Amount) -> u64 {
    amount.millionths().div_ceil(Amount::UNIT)
}
