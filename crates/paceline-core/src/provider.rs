//! How providers count: the server's side of a rate limit.
//!
//! The sandbox enforces these policies and a simulation can play them. They share no code with the
//! client's engine, on purpose: a mistake that both sides make would never show. Like the engine
//! they read no clock; `now` is the time since any fixed origin and must not run backwards.
//!
//! ```
//! use paceline_core::provider::{Account, Limit, Policy};
//! use std::time::Duration;
//!
//! let sixty_a_minute = Limit::new(60, Duration::from_secs(60)).unwrap();
//! let mut account = Account::new(Policy::Bucket, &[sixty_a_minute]);
//! let now = Duration::ZERO;
//! for _ in 0..60 {
//!     assert!(account.admit(now, &[1]).is_ok());
//! }
//! let refusal = account.admit(now, &[1]).unwrap_err();
//! assert_eq!(refusal.wait, Some(Duration::from_secs(1)));
//! ```

use fixed::Anchor;
use std::fmt;
use std::time::Duration;
use stranger::Stranger;

mod bucket;
mod fixed;
mod gcra;
mod sliding;
mod stranger;
#[cfg(test)]
mod tests;

/// Largest count of a [`Limit`]: up to here every product below is exact in 128 bits.
const MAX_UNITS: u64 = 1 << 53;
/// Longest window of a [`Limit`].
const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The wait of a cost that no amount of waiting admits.
const NEVER: u64 = u64::MAX;

/// The rule by which a server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// A window opens with the first request after the last one closed; the count falls back to
    /// zero when it closes. Twice the limit can pass around that instant, as on most real servers.
    /// Windows of whole seconds are kept in whole seconds, since that is how their resets are told.
    Fixed,
    /// The same, but a window opens exactly with its first request.
    FixedFirst,
    /// The same, but windows open and close by the clock, at the multiples of their length.
    FixedClock,
    /// An exact log: never more than the limit in any span of one window (its end excluded).
    Sliding,
    /// A token bucket that holds one limit's worth and refills continuously.
    Bucket,
    /// Evenly spaced, no burst: each unit delays the next request by `window / limit`. A request
    /// may come early by a tenth of that, or by one millisecond if that is more, because no network
    /// delivers more evenly; the delay is counted from the due time, so the rate never rises.
    Gcra,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 6] =
        [Self::Fixed, Self::FixedFirst, Self::FixedClock, Self::Sliding, Self::Bucket, Self::Gcra];

    /// The name by which the command line knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::FixedFirst => "fixed-first",
            Self::FixedClock => "fixed-clock",
            Self::Sliding => "sliding",
            Self::Bucket => "bucket",
            Self::Gcra => "gcra",
        }
    }

    /// Where its windows open, if they open anywhere.
    const fn anchor(self) -> Option<Anchor> {
        match self {
            Self::Fixed => Some(Anchor::Second),
            Self::FixedFirst => Some(Anchor::Request),
            Self::FixedClock => Some(Anchor::Clock),
            Self::Sliding | Self::Bucket | Self::Gcra => None,
        }
    }

    fn counter(self, limit: Limit) -> Box<dyn Counter> {
        match (self, self.anchor()) {
            (_, Some(anchor)) => Box::new(fixed::Fixed::new(limit, anchor)),
            (Self::Bucket, _) => Box::new(bucket::Bucket::new(limit)),
            (Self::Gcra, _) => Box::new(gcra::Gcra::new(limit)),
            _ => Box::new(sliding::Sliding::new(limit)),
        }
    }

    /// The most units this policy admits in `elapsed`, both ends included, when no single request
    /// costs more than `largest`.
    fn capacity(self, limit: Limit, elapsed: u64, largest: u64) -> u64 {
        let refilled = |span: u64| u128::from(limit.units) * u128::from(span) / limit.window_u128();
        let units = match self {
            Self::Fixed | Self::FixedFirst | Self::FixedClock | Self::Sliding => {
                u128::from(limit.units) * (u128::from(elapsed / limit.window) + 1)
            }
            Self::Bucket => u128::from(limit.units) + refilled(elapsed),
            Self::Gcra => {
                u128::from(largest) + refilled(elapsed.saturating_add(gcra::tolerance(limit)))
            }
        };
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// So many units per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    units: u64,
    window: u64,
}

impl Limit {
    /// A limit of `units` per `window`; `None` when either is zero, `units` is above 2^53 or the
    /// window is longer than 366 days.
    pub fn new(units: u64, window: Duration) -> Option<Self> {
        let fits = (1..=MAX_UNITS).contains(&units) && !window.is_zero() && window <= MAX_WINDOW;
        fits.then(|| Self { units, window: nanos(window) })
    }

    /// The count per window.
    pub const fn units(self) -> u64 {
        self.units
    }

    /// The window.
    pub const fn window(self) -> Duration {
        Duration::from_nanos(self.window)
    }

    fn window_u128(self) -> u128 {
        u128::from(self.window)
    }
}

/// What a server could tell about one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Whole units that would be admitted now. Without burst ([`Policy::Gcra`]) that is 1 or 0.
    pub remaining: u64,
    /// Time until everything is available again, if nothing more is sent. A fixed window that has
    /// not opened shows a whole window, as GitHub does.
    pub reset: Duration,
}

/// Why a request was not admitted. Nothing was charged, unless refusals cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Position of the limit with the longest wait.
    pub limit: usize,
    /// Time after which the same request fits, if nothing else is admitted; `None` when its cost
    /// is above the limit itself, which no server ever admits.
    pub wait: Option<Duration>,
}

/// The count of one limit, one implementation per policy. Costs are at least 1 and at most the limit.
trait Counter: Send + fmt::Debug {
    /// Nanoseconds until `cost` fits; 0 if it does now.
    fn wait(&mut self, now: u64, cost: u64) -> u64;
    /// Counts `cost`, which [`Counter::wait`] just said fits, or which is refused and costs all the
    /// same.
    fn charge(&mut self, now: u64, cost: u64);
    /// Takes back part of what was counted for a request that turned out to need less.
    fn give_back(&mut self, now: u64, cost: u64);
    /// Whole units that fit now, and nanoseconds until the count is clear.
    fn standing(&mut self, now: u64) -> (u64, u64);
}

#[derive(Debug)]
struct Meter {
    limit: Limit,
    counter: Box<dyn Counter>,
    spent: u64,
    largest: u64,
    stranger: Option<Stranger>,
    /// What the stranger had spent at the last admission.
    beside: u64,
}

impl Meter {
    fn strangers(&self) -> u64 {
        self.stranger.as_ref().map_or(0, |stranger| stranger.spent)
    }
}

/// What a provider keeps for one credential: a count per limit, charged all or none.
#[derive(Debug)]
pub struct Account {
    policy: Policy,
    meters: Vec<Meter>,
    first: Option<u64>,
    last_admitted: u64,
    refusals_cost: bool,
}

impl Account {
    /// An account that has sent nothing yet. Costs and standings come in the order of `limits`.
    pub fn new(policy: Policy, limits: &[Limit]) -> Self {
        let meter = |&limit| Meter {
            limit,
            counter: policy.counter(limit),
            spent: 0,
            largest: 1,
            stranger: None,
            beside: 0,
        };
        Self {
            policy,
            meters: limits.iter().map(meter).collect(),
            first: None,
            last_admitted: 0,
            refusals_cost: false,
        }
    }

    /// The same, where a refused request is counted as if it had been admitted.
    #[must_use]
    pub fn with_refusals_that_cost(mut self, yes: bool) -> Self {
        self.refusals_cost = yes;
        self
    }

    /// The same, of which somebody else spends as well: from the first request on, single units of
    /// each limit, evenly spaced, so many parts of a million of it.
    #[must_use]
    pub fn with_stranger(mut self, per_million: u32) -> Self {
        for meter in &mut self.meters {
            meter.stranger = (per_million > 0).then(|| Stranger::new(per_million));
        }
        self
    }

    /// Admits a request that spends `costs[i]` of limit `i`, or refuses it. A limit of which it
    /// spends nothing never gates it.
    pub fn admit(&mut self, now: Duration, costs: &[u64]) -> Result<(), Refusal> {
        let now = nanos(now);
        self.first.get_or_insert(now);
        self.catch_up(now);
        let (mut wait, mut limit) = self.longest_wait(now, costs);
        let fits = wait == 0;
        if fits || self.refusals_cost {
            for (meter, cost) in spending(&mut self.meters, costs).filter(|(_, cost)| *cost > 0) {
                meter.counter.charge(now, cost.min(meter.limit.units));
                if fits {
                    meter.spent = meter.spent.saturating_add(cost);
                    meter.largest = meter.largest.max(cost);
                }
            }
        }
        if fits {
            self.last_admitted = now;
            for meter in &mut self.meters {
                meter.beside = meter.strangers();
            }
            return Ok(());
        }
        if self.refusals_cost {
            (wait, limit) = self.longest_wait(now, costs);
        }
        let wait = (wait != NEVER).then(|| Duration::from_nanos(wait));
        Err(Refusal { limit, wait })
    }

    /// Takes back what an admitted request reserved and did not need, where a server does so.
    pub fn give_back(&mut self, now: Duration, costs: &[u64]) {
        for (meter, cost) in spending(&mut self.meters, costs) {
            meter.counter.give_back(nanos(now), cost);
            meter.spent = meter.spent.saturating_sub(cost);
        }
    }

    /// How long until the request fits everywhere, and where it takes so long.
    fn longest_wait(&mut self, now: u64, costs: &[u64]) -> (u64, usize) {
        let mut longest = (0, 0);
        for (index, (meter, cost)) in spending(&mut self.meters, costs).enumerate() {
            let wait = match cost {
                0 => 0,
                cost if cost > meter.limit.units => NEVER,
                cost => meter.counter.wait(now, cost),
            };
            if wait > longest.0 {
                longest = (wait, index);
            }
        }
        longest
    }

    /// What a stranger did until now.
    fn catch_up(&mut self, now: u64) {
        for meter in &mut self.meters {
            if let Some(stranger) = &mut meter.stranger {
                stranger.catch_up(meter.limit, &mut *meter.counter, now);
            }
        }
    }

    /// Where every limit stands.
    pub fn standings(&mut self, now: Duration) -> impl Iterator<Item = Standing> + '_ {
        self.catch_up(nanos(now));
        self.meters.iter_mut().map(move |meter| {
            let (remaining, reset) = meter.counter.standing(nanos(now));
            Standing { remaining, reset: Duration::from_nanos(reset) }
        })
    }

    /// Units that a stranger spent, per limit.
    pub fn strangers(&self) -> impl Iterator<Item = u64> + '_ {
        self.meters.iter().map(Meter::strangers)
    }

    /// Units admitted, and the most the policy could have admitted between the first request and
    /// the last admitted one, beside what a stranger spent; per limit.
    pub fn usage(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.meters.iter().map(move |meter| {
            let capacity = |first| {
                let opening = match self.policy.anchor() {
                    Some(anchor) => anchor.opening(first, meter.limit.window),
                    None => first,
                };
                let elapsed = self.last_admitted.saturating_sub(opening);
                self.policy
                    .capacity(meter.limit, elapsed, meter.largest)
                    .saturating_sub(meter.beside)
            };
            (meter.spent, self.first.map_or(0, capacity))
        })
    }
}

/// Pairs meters with what a request spends of them; a missing cost is none.
fn spending<'a>(
    meters: &'a mut [Meter],
    costs: &'a [u64],
) -> impl Iterator<Item = (&'a mut Meter, u64)> {
    meters.iter_mut().zip(costs.iter().copied().chain(std::iter::repeat(0)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
