//! What pacing did to a call.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyString};

/// What pacing did to a call: `response.paceline`, or `response.extensions["paceline"]`.
///
/// Each hop of a redirect is a call of its own.
#[pyclass(module = "paceline", frozen, get_all, freelist = 64)]
#[derive(PartialEq)]
pub(crate) struct Paced {
    /// Seconds waited in all, retries included.
    pub(crate) waited: f64,
    /// The scope that was charged, such as `https://api.example.com`.
    pub(crate) scope: String,
    /// How often it was sent.
    pub(crate) attempts: u32,
    /// The limit that was waited for last, such as `60/1m`, or what else; `None` without a wait.
    pub(crate) limit: Option<String>,
}

#[pymethods]
impl Paced {
    #[classattr]
    const fn __match_args__() -> (&'static str, &'static str, &'static str, &'static str) {
        ("waited", "scope", "attempts", "limit")
    }

    #[new]
    #[pyo3(signature = (waited, scope, attempts, limit=None))]
    const fn new(waited: f64, scope: String, attempts: u32, limit: Option<String>) -> Self {
        Self { waited, scope, attempts, limit }
    }

    fn __getnewargs__(&self) -> (f64, &str, u32, Option<&str>) {
        (self.waited, &self.scope, self.attempts, self.limit.as_deref())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self == other
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.__getnewargs__().into_pyobject(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let waited = PyFloat::new(py, self.waited).repr()?;
        let scope = PyString::new(py, &self.scope).repr()?;
        let limit = self.limit.as_deref().into_pyobject(py)?.repr()?;
        let attempts = self.attempts;
        Ok(format!("Paced(waited={waited}, scope={scope}, attempts={attempts}, limit={limit})"))
    }
}
