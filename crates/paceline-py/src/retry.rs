//! The retry policy.

use crate::convert::invalid;
use paceline::retry::{Outcome, Replay, RetryConfig, Strategy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct RetryPolicy(pub(crate) RetryConfig);

#[pymethods]
impl RetryPolicy {
    #[new]
    #[pyo3(signature = (*, max_retries, strategy, base_delay, max_delay, backoff_factor, retry_on_status, jitter, replay, budget))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        max_retries: i64,
        strategy: &str,
        base_delay: f64,
        max_delay: f64,
        backoff_factor: f64,
        retry_on_status: Vec<u16>,
        jitter: f64,
        replay: &str,
        budget: f64,
    ) -> PyResult<Self> {
        let Some((_, strategy)) = Strategy::NAMES.into_iter().find(|(name, _)| *name == strategy)
        else {
            return Err(PyValueError::new_err(format!("unknown strategy {strategy:?}")));
        };
        let Some((_, replay)) = Replay::NAMES.into_iter().find(|(name, _)| *name == replay) else {
            let message = format!("bad replay {replay:?}: expected \"all\" or \"safe\"");
            return Err(PyValueError::new_err(message));
        };
        let max_retries = u32::try_from(max_retries)
            .map_err(|_| PyValueError::new_err("max_retries must be zero or more"))?;
        let span = |seconds: f64, what: &str| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                PyValueError::new_err(format!("bad {what} {seconds}: expected seconds"))
            })
        };
        let config = RetryConfig {
            max_retries,
            strategy,
            base_delay: span(base_delay, "base_delay")?,
            max_delay: span(max_delay, "max_delay")?,
            backoff_factor,
            retry_on_status,
            jitter,
            replay,
            budget: thousandths(budget)?,
        };
        Ok(Self(config.checked().map_err(invalid)?))
    }

    /// The seconds to wait before the next attempt; `None` when the answer is to be handed back.
    #[pyo3(signature = (method, keyed, status, retry_after, attempt, random))]
    fn pause(
        &self,
        method: &str,
        keyed: bool,
        status: u16,
        retry_after: Option<f64>,
        attempt: u32,
        random: f64,
    ) -> Option<f64> {
        let retry_after =
            retry_after.map(|told| Duration::try_from_secs_f64(told).unwrap_or(self.0.max_delay));
        let outcome = Outcome { method, keyed, status, retry_after, attempt };
        Some(self.0.pause(&outcome, random)?.as_secs_f64())
    }

    /// The share of all requests that may be retries, in thousandths.
    #[getter]
    const fn budget(&self) -> u16 {
        self.0.budget
    }

    /// Whether a status is worth another attempt at all.
    fn retries(&self, status: u16) -> bool {
        self.0.retry_on_status.contains(&status)
    }
}

/// A share from 0 to 1, in thousandths.
fn thousandths(share: f64) -> PyResult<u16> {
    let bad = || PyValueError::new_err(format!("bad budget {share}: expected a share from 0 to 1"));
    (0.0..=1.0).contains(&share).then_some((share * 1_000.0).round() as u16).ok_or_else(bad)
}
