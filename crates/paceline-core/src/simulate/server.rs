//! Who counts at the other end, and what is heard of it.

use super::{Simulation, whole};
use crate::provider::{Account, Limit, Policy, Standing};
use crate::time::nanos;
use crate::{Cost, Counting, Dimension, Reading, Signal, Window};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Where the server's clock stands in the beginning, but for a part of a second.
const EPOCH: u64 = 1_800_000_000 * SECOND;

/// A server that counts.
#[derive(Debug, Clone)]
pub struct Server {
    /// The rule by which it counts.
    pub counts: Policy,
    /// The limits of each key.
    pub limits: Vec<(Dimension, Limit)>,
    /// What it says of them.
    pub tells: Tells,
    /// What strangers with the same key take of each limit, in millionths.
    pub strangers: u32,
    /// Whether what it refuses is counted all the same.
    pub refusals_cost: bool,
}

/// What a server says of its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tells {
    /// Nothing: a rejection is a 429 and no more.
    Nothing,
    /// `Retry-After` on a rejection, in whole seconds.
    #[default]
    RetryAfter,
    /// `X-RateLimit-*` of requests, the reset as an epoch in whole seconds, as GitHub does.
    Github,
    /// `RateLimit` and `RateLimit-Policy` of all limits, in whole seconds.
    Ietf,
    /// `x-ratelimit-*-DIMENSION` of all limits, the reset as a duration, as OpenAI does.
    Openai,
}

impl Tells {
    /// Each of them.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::RetryAfter, Self::Github, Self::Ietf, Self::Openai];

    /// The name by which the command line knows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::RetryAfter => "retry-after",
            Self::Github => "github",
            Self::Ietf => "ietf",
            Self::Openai => "openai",
        }
    }
}

/// What the server keeps for one key.
#[derive(Debug)]
pub(super) struct Counter<'a> {
    server: &'a Server,
    account: Account,
    /// Where its clock stood in the beginning.
    began: u64,
}

/// An answer as it left the server.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rejected: bool,
    wait: Option<u64>,
    standings: Vec<Standing>,
}

impl<'a> Counter<'a> {
    /// `phase` is where within a second everything begins, in nanoseconds.
    pub(super) fn new(server: &'a Server, phase: u64) -> Self {
        let limits: Vec<Limit> = server.limits.iter().map(|(_, limit)| *limit).collect();
        let account = Account::new(server.counts, &limits)
            .with_refusals_that_cost(server.refusals_cost)
            .with_stranger(server.strangers);
        Self { server, account, began: EPOCH + phase }
    }

    /// Admits a request that comes at `now`, or not.
    pub(super) fn answer(&mut self, cost: &Cost, now: u64) -> Answer {
        let now = Duration::from_nanos(self.began + now);
        let costs: Vec<u64> =
            self.server.limits.iter().map(|(dimension, _)| whole(cost.of(dimension))).collect();
        let outcome = self.account.admit(now, &costs);
        let standings = match self.server.tells {
            Tells::Nothing | Tells::RetryAfter => Vec::new(),
            Tells::Github | Tells::Ietf | Tells::Openai => self.account.standings(now).collect(),
        };
        let wait = outcome.err().map(|refusal| refusal.wait.map_or(u64::MAX, nanos));
        Answer { rejected: wait.is_some(), wait, standings }
    }

    /// What is left of each limit at `now`.
    pub(super) fn left(&mut self, now: u64) -> impl Iterator<Item = u64> + '_ {
        let now = Duration::from_nanos(self.began + now);
        self.account.standings(now).map(|standing| standing.remaining)
    }

    /// What the client hears of an answer that was made at `made` and comes at `now`: what
    /// [`detect`](crate::headers::detect) reads of such headers.
    pub(super) fn reading(&self, answer: &Answer, made: u64, now: u64) -> Reading {
        let tells = self.server.tells;
        let signal = |(dimension, limit): &(Dimension, Limit), standing: &Standing| Signal {
            dimension: dimension.clone(),
            name: None,
            limit: Some(limit.units()),
            remaining: Some(standing.remaining),
            reset: Some(Duration::from_nanos(self.reset(*standing, made, now))),
            window: (tells == Tells::Ietf).then(|| Window::from_duration(limit.window())).flatten(),
            counting: if tells == Tells::Openai { Counting::Bucket } else { Counting::Fixed },
        };
        // Some headers have no place for more than one limit, nor for its name.
        let told = if tells == Tells::Github { 1 } else { usize::MAX };
        let named =
            |dimension: &Dimension| tells != Tells::Github || *dimension == Dimension::Requests;
        let limits = self.server.limits.iter().zip(&answer.standings);
        let limits = limits.filter(|((dimension, _), _)| named(dimension)).take(told);
        let retry_after = answer.wait.filter(|_| tells == Tells::RetryAfter);
        Reading {
            signals: limits.map(|(limit, standing)| signal(limit, standing)).collect(),
            retry_after: retry_after.map(|wait| Duration::from_secs(wait.div_ceil(SECOND))),
            rejected: answer.rejected,
            ..Reading::default()
        }
    }

    /// The reset as it is read at `now`.
    fn reset(&self, standing: Standing, made: u64, now: u64) -> u64 {
        let reset = nanos(standing.reset);
        match self.server.tells {
            Tells::Github => {
                let epoch = (self.began + made + reset).div_ceil(SECOND) * SECOND;
                epoch.saturating_sub(self.began + now)
            }
            Tells::Ietf => reset.div_ceil(SECOND) * SECOND,
            _ => reset.div_ceil(1_000_000) * 1_000_000,
        }
    }
}

/// The server's side, a counter a key.
pub(super) fn counters(plan: &Simulation, phase: u64) -> Vec<Counter<'_>> {
    let servers = plan.server.iter().flat_map(|server| (0..plan.keys).map(move |_| server));
    servers.map(|server| Counter::new(server, phase)).collect()
}
