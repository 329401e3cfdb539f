//! When to send again, and after how long (rules 23 to 25). Pure: the caller brings the attempt,
//! the answer and a random number.

use crate::Error;
use std::time::Duration;

/// How waits grow from attempt to attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// `base_delay * backoff_factor ^ attempt`.
    #[default]
    Exponential,
    /// `base_delay * (attempt + 1)`.
    Linear,
    /// `base_delay` each time.
    Fixed,
    /// No waiting of our own: only what the server asks for.
    None,
}

impl Strategy {
    /// Each of them by its name.
    pub const NAMES: [(&str, Self); 4] = [
        ("exponential", Self::Exponential),
        ("linear", Self::Linear),
        ("fixed", Self::Fixed),
        ("none", Self::None),
    ];
}

/// Which methods may be sent again after a status that leaves open whether the call was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Replay {
    /// Every method.
    #[default]
    All,
    /// After anything but 429, only idempotent methods and requests with an idempotency key.
    Safe,
}

impl Replay {
    /// Each of them by its name.
    pub const NAMES: [(&str, Self); 2] = [("all", Self::All), ("safe", Self::Safe)];
}

/// What to retry and how long to wait.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryConfig {
    /// Further attempts after the first.
    pub max_retries: u32,
    /// How waits grow.
    pub strategy: Strategy,
    /// The first wait.
    pub base_delay: Duration,
    /// The longest wait, also when the server asks for more.
    pub max_delay: Duration,
    /// Growth of the exponential strategy.
    pub backoff_factor: f64,
    /// Statuses that are worth another attempt.
    pub retry_on_status: Vec<u16>,
    /// Share of a wait that is left to chance, 0 to 1.
    pub jitter: f64,
    /// Which methods may be sent again.
    pub replay: Replay,
    /// The share of all requests that may be retries, in thousandths: so that an outage is not
    /// multiplied. What is sent again after a 429 is not counted, for a limit paces it.
    pub budget: u16,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_retries: 3,
            strategy: Strategy::Exponential,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            backoff_factor: 2.0,
            retry_on_status: vec![429, 503, 504],
            jitter: 0.1,
            replay: Replay::All,
            budget: 200,
        }
    }
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// The request's method.
    pub method: &'a str,
    /// Whether the request carries a key by which the server knows it again (`Idempotency-Key`).
    pub keyed: bool,
    /// The response's status.
    pub status: u16,
    /// The wait that the server asked for.
    pub retry_after: Option<Duration>,
    /// Attempts made before this one.
    pub attempt: u32,
}

impl RetryConfig {
    /// Checks that the numbers make sense together.
    ///
    /// # Errors
    /// [`Error::Retry`] naming the setting that does not.
    pub fn checked(self) -> Result<Self, Error> {
        let refuse = |what: &str| Err(Error::Retry(what.to_owned()));
        if !self.backoff_factor.is_finite() || self.backoff_factor < 1.0 {
            return refuse("backoff_factor must be a number of at least 1");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse("jitter must be a share from 0 to 1");
        }
        if self.budget > 1_000 {
            return refuse("budget must be a share from 0 to 1");
        }
        if self.retry_on_status.iter().any(|status| !(100..=599).contains(status)) {
            return refuse("retry_on_status must hold HTTP statuses, 100 to 599");
        }
        Ok(self)
    }

    /// The wait before the next attempt, or `None` when the answer is to be handed back.
    ///
    /// `random` is a number from 0 to 1. What the server asks for wins over backoff, and neither
    /// is longer than `max_delay`; jitter only ever lengthens the server's wait, for less would be
    /// too early.
    #[must_use]
    #[allow(clippy::float_arithmetic)]
    pub fn pause(&self, outcome: &Outcome<'_>, random: f64) -> Option<Duration> {
        let again = outcome.attempt < self.max_retries
            && self.retry_on_status.contains(&outcome.status)
            && self.may_replay(outcome);
        if !again {
            return None;
        }
        let pause = match outcome.retry_after {
            Some(told) => told.min(self.max_delay),
            None => self.backoff(outcome.attempt).mul_f64(1.0 - self.jitter * random),
        };
        Some(pause.min(self.max_delay))
    }

    /// Whether sending again cannot repeat an effect, or the user does not mind.
    fn may_replay(&self, outcome: &Outcome<'_>) -> bool {
        let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
        self.replay == Replay::All
            || outcome.status == 429
            || outcome.keyed
            || idempotent.iter().any(|method| outcome.method.eq_ignore_ascii_case(method))
    }

    #[allow(clippy::float_arithmetic)]
    fn backoff(&self, attempt: u32) -> Duration {
        let growth = match self.strategy {
            Strategy::Exponential => {
                self.backoff_factor.powi(i32::try_from(attempt).unwrap_or(i32::MAX))
            }
            Strategy::Linear => f64::from(attempt) + 1.0,
            Strategy::Fixed => 1.0,
            Strategy::None => 0.0,
        };
        let seconds = self.base_delay.as_secs_f64() * growth;
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max_delay).min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, attempt: u32, retry_after: Option<u64>) -> Outcome<'static> {
        let retry_after = retry_after.map(Duration::from_secs);
        Outcome { method: "POST", keyed: false, status, retry_after, attempt }
    }

    #[test]
    fn rule_23_three_retries_with_growing_waits() {
        let config = RetryConfig::default();
        let waits: Vec<_> =
            (0..4).map(|attempt| config.pause(&outcome(429, attempt, None), 0.0)).collect();
        let secs = |n| Some(Duration::from_secs(n));
        assert_eq!(waits, [secs(1), secs(2), secs(4), None]);
        assert_eq!(config.pause(&outcome(500, 0, None), 0.0), None);
        assert_eq!(config.pause(&outcome(429, 0, None), 1.0), Some(Duration::from_millis(900)));
    }

    #[test]
    fn rule_23_the_server_wins_over_backoff_up_to_max_delay() {
        let config = RetryConfig::default();
        let told = |secs| config.pause(&outcome(503, 2, Some(secs)), 0.7).unwrap().as_secs();
        assert_eq!(told(7), 7);
        assert_eq!(told(3600), 60);
        let huge = RetryConfig { max_retries: u32::MAX, ..RetryConfig::default() };
        assert_eq!(huge.pause(&outcome(503, 100_000, None), 0.0), Some(Duration::from_secs(60)));
    }

    #[test]
    fn rule_23_strategies_and_replay() {
        let linear = RetryConfig { strategy: Strategy::Linear, ..RetryConfig::default() };
        assert_eq!(linear.pause(&outcome(429, 2, None), 0.0), Some(Duration::from_secs(3)));
        let none = RetryConfig { strategy: Strategy::None, ..RetryConfig::default() };
        assert_eq!(none.pause(&outcome(429, 2, None), 0.0), Some(Duration::ZERO));
        let safe = RetryConfig { replay: Replay::Safe, ..RetryConfig::default() };
        assert_eq!(safe.pause(&outcome(503, 0, None), 0.0), None);
        assert!(safe.pause(&outcome(429, 0, None), 0.0).is_some());
        let get = Outcome { method: "get", ..outcome(503, 0, None) };
        assert!(safe.pause(&get, 0.0).is_some());
        let keyed = Outcome { keyed: true, ..outcome(503, 0, None) };
        assert!(safe.pause(&keyed, 0.0).is_some(), "the server knows it again");
    }

    #[test]
    fn a_contradictory_configuration_is_refused() {
        let bad = |config: RetryConfig| assert!(config.checked().is_err());
        bad(RetryConfig { backoff_factor: 0.5, ..RetryConfig::default() });
        bad(RetryConfig { backoff_factor: f64::NAN, ..RetryConfig::default() });
        bad(RetryConfig { jitter: 2.0, ..RetryConfig::default() });
        bad(RetryConfig { budget: 1_001, ..RetryConfig::default() });
        bad(RetryConfig { retry_on_status: vec![42], ..RetryConfig::default() });
    }
}
