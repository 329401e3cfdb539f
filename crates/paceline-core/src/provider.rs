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

use std::fmt;
use std::time::Duration;

mod bucket;
mod fixed;
mod gcra;
mod sliding;
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
    Fixed,
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
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Sliding, Self::Bucket, Self::Gcra];

    /// The name by which the command line knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Sliding => "sliding",
            Self::Bucket => "bucket",
            Self::Gcra => "gcra",
        }
    }

    fn counter(self, limit: Limit) -> Box<dyn Counter> {
        match self {
            Self::Fixed => Box::new(fixed::Fixed::new(limit)),
            Self::Sliding => Box::new(sliding::Sliding::new(limit)),
            Self::Bucket => Box::new(bucket::Bucket::new(limit)),
            Self::Gcra => Box::new(gcra::Gcra::new(limit)),
        }
    }

    /// The most units this policy admits in `elapsed`, both ends included, when no single request
    /// costs more than `largest`.
    fn capacity(self, limit: Limit, elapsed: u64, largest: u64) -> u64 {
        let refilled = |span: u64| u128::from(limit.units) * u128::from(span) / limit.window_u128();
        let units = match self {
            Self::Fixed | Self::Sliding => {
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

/// Why a request was not admitted. Nothing was charged.
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
    /// Counts `cost`, which [`Counter::wait`] just said fits.
    fn charge(&mut self, now: u64, cost: u64);
    /// Whole units that fit now, and nanoseconds until the count is clear.
    fn standing(&mut self, now: u64) -> (u64, u64);
}

#[derive(Debug)]
struct Meter {
    limit: Limit,
    counter: Box<dyn Counter>,
    spent: u64,
    largest: u64,
}

/// What a provider keeps for one credential: a count per limit, charged all or none.
#[derive(Debug)]
pub struct Account {
    policy: Policy,
    meters: Vec<Meter>,
    first: Option<u64>,
    last_admitted: u64,
}

impl Account {
    /// An account that has sent nothing yet. Costs and standings come in the order of `limits`.
    pub fn new(policy: Policy, limits: &[Limit]) -> Self {
        let meter = |&limit| Meter { limit, counter: policy.counter(limit), spent: 0, largest: 1 };
        let meters = limits.iter().map(meter).collect();
        Self { policy, meters, first: None, last_admitted: 0 }
    }

    /// Admits a request that spends `costs[i]` of limit `i`, or refuses it and charges nothing. A
    /// limit of which it spends nothing never gates it.
    pub fn admit(&mut self, now: Duration, costs: &[u64]) -> Result<(), Refusal> {
        let now = nanos(now);
        self.first.get_or_insert(now);
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
        let (wait, limit) = longest;
        if wait > 0 {
            let wait = (wait != NEVER).then(|| Duration::from_nanos(wait));
            return Err(Refusal { limit, wait });
        }
        for (meter, cost) in spending(&mut self.meters, costs).filter(|(_, cost)| *cost > 0) {
            meter.counter.charge(now, cost);
            meter.spent = meter.spent.saturating_add(cost);
            meter.largest = meter.largest.max(cost);
        }
        self.last_admitted = now;
        Ok(())
    }

    /// Where every limit stands.
    pub fn standings(&mut self, now: Duration) -> impl Iterator<Item = Standing> + '_ {
        self.meters.iter_mut().map(move |meter| {
            let (remaining, reset) = meter.counter.standing(nanos(now));
            Standing { remaining, reset: Duration::from_nanos(reset) }
        })
    }

    /// Units admitted, and the most the policy could have admitted between the first request and
    /// the last admitted one, per limit.
    pub fn usage(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.meters.iter().map(move |meter| {
            let capacity = |first| {
                let opening = match self.policy {
                    Policy::Fixed => fixed::opening(first, meter.limit.window),
                    _ => first,
                };
                let elapsed = self.last_admitted.saturating_sub(opening);
                self.policy.capacity(meter.limit, elapsed, meter.largest)
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
