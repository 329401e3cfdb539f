//! Settings from a file.

use crate::bell::outside;
use crate::convert::raise;
use crate::guard::Guard;
use crate::limiter::Limiter;
use paceline::retry::{Replay, Strategy};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;

/// What a `paceline.toml` says.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Config {
    #[pyo3(get)]
    path: PathBuf,
    pub(crate) said: paceline::Config,
}

#[pymethods]
impl Config {
    /// Read a file, or the nearest `paceline.toml` if none is named.
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let named = path.or_else(|| std::env::var_os("PACELINE_CONFIG").map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None => paceline::Config::find(&std::env::current_dir()?).ok_or_else(|| {
                let name = paceline::Config::NAME;
                PyFileNotFoundError::new_err(format!(
                    "there is no {name} here or in a folder above"
                ))
            })?,
        };
        let said = py.detach(|| paceline::Config::load(&path)).map_err(|error| match error {
            paceline::ConfigError::Unreadable { .. } => PyOSError::new_err(error.to_string()),
            paceline::ConfigError::Wrong(_) => PyValueError::new_err(error.to_string()),
        })?;
        Ok(Self { path, said })
    }

    #[getter]
    fn storage(&self) -> Option<&str> {
        self.said.storage.as_deref()
    }

    #[getter]
    fn max_wait(&self) -> Option<f64> {
        self.said.max_wait.map(|most| most.as_secs_f64())
    }

    /// The fields of a `RetryConfig`; `None` where nothing is said of retries.
    #[getter]
    fn retry<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(retry) = &self.said.retry else { return Ok(None) };
        let fields = PyDict::new(py);
        fields.set_item("max_retries", retry.max_retries)?;
        fields.set_item("strategy", name(&Strategy::NAMES, &retry.strategy))?;
        fields.set_item("base_delay", retry.base_delay.as_secs_f64())?;
        fields.set_item("max_delay", retry.max_delay.as_secs_f64())?;
        fields.set_item("backoff_factor", retry.backoff_factor)?;
        fields.set_item("retry_on_status", PyTuple::new(py, &retry.retry_on_status)?)?;
        fields.set_item("jitter", retry.jitter)?;
        fields.set_item("replay", name(&Replay::NAMES, &retry.replay))?;
        fields.set_item("budget", f64::from(retry.budget) / 1_000.0)?;
        Ok(Some(fields))
    }

    /// Set its limits and know its providers; what only another one said before is gone.
    #[pyo3(signature = (limiter, before=None))]
    fn apply(&self, py: Python<'_>, limiter: &Limiter, before: Option<&Self>) -> PyResult<()> {
        let (limiter, before) = (limiter.engine()?, before.map(|before| &before.said));
        outside(py, || self.said.apply(limiter, before))?.map_err(|error| raise(py, error))
    }

    /// Set its rules and budgets; what only another one said before is gone.
    #[pyo3(signature = (guard, before=None))]
    fn guard(&self, py: Python<'_>, guard: &Guard, before: Option<&Self>) -> PyResult<()> {
        let before = before.map(|before| &before.said);
        outside(py, || self.said.guard(&guard.0, before))?.map_err(|error| raise(py, error))
    }
}

/// What a choice is called.
fn name<T: PartialEq>(names: &[(&'static str, T)], choice: &T) -> Option<&'static str> {
    names.iter().find(|(_, it)| it == choice).map(|(name, _)| *name)
}
