//! Python's values to ours, and our errors to Python's.

use crate::guard;
use paceline::{Amount, Cost, Dimension, Error, Limit, OnFailure, Refused, Tally, Window};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping, PyString, PyTuple, PyType};
use std::time::Duration;

/// The one map of errors.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    static UNAVAILABLE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static UNPRICED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match error {
        Error::Refused(refused) => raise_refused(py, &refused),
        Error::Invalid(error) => invalid(error),
        Error::Storage(error) => PyValueError::new_err(error.to_string()),
        Error::Unavailable(error) => {
            let class = UNAVAILABLE.import(py, "paceline.errors", "StorageUnavailable");
            let made = class.and_then(|class| {
                let seconds = wait(error.retry_after);
                class.call1((error.to_string(), "", "requests", seconds))
            });
            made.map_or_else(|error| error, PyErr::from_value)
        }
        Error::Unpriced(_) => {
            let class = UNPRICED.import(py, "paceline.llm.errors", "UnknownPrice");
            let made = class.and_then(|class| class.call1((error.to_string(),)));
            made.map_or_else(|error| error, PyErr::from_value)
        }
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

fn raise_refused(py: Python<'_>, refused: &Refused) -> PyErr {
    static EXCEEDED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = EXCEEDED.import(py, "paceline.errors", "RateLimitExceeded").and_then(|class| {
        let dimension = refused.dimension();
        let seconds = wait(refused.retry_after);
        class.call1((refused.to_string(), &refused.scope, dimension.as_str(), seconds))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// What to do while the store is away.
pub(crate) fn on_failure(fail_closed: bool, fallback: Option<&str>) -> PyResult<OnFailure> {
    match (fail_closed, fallback) {
        (false, None) => Ok(OnFailure::Open),
        (true, None) => Ok(OnFailure::Closed),
        (false, Some("local")) => Ok(OnFailure::Local),
        (true, Some("local")) => Err(PyValueError::new_err(
            "fail_closed=True lets no call through, so fallback=\"local\" has nothing to pace: choose one",
        )),
        (_, Some(other)) => Err(PyValueError::new_err(format!(
            "bad fallback {other:?}: expected None or \"local\""
        ))),
    }
}

/// A mistake in what the caller said.
pub(crate) fn invalid(error: paceline_core::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A cost: one request, and what the mapping says beside it.
#[inline]
pub(crate) fn cost(given: Option<&Bound<'_, PyAny>>) -> PyResult<Cost> {
    let mut cost = Cost::ONE;
    if let Some(given) = given {
        if let Ok(cost) = given.cast::<guard::Cost>() {
            return Ok(cost.get().0.clone());
        }
        for_each(given, |name, amount| {
            let name = name.cast::<PyString>()?;
            let dimension = Dimension::new(name.to_str()?).map_err(invalid)?;
            cost.set(dimension, amount_of(amount)?);
            Ok(())
        })?;
    }
    Ok(cost)
}

/// Visits a mapping, which most of the time is a dictionary.
pub(crate) fn for_each(
    given: &Bound<'_, PyAny>,
    mut visit: impl FnMut(&Bound<'_, PyAny>, &Bound<'_, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(dict) = given.cast::<PyDict>() {
        return dict.iter().try_for_each(|(name, value)| visit(&name, &value));
    }
    for pair in given.cast::<PyMapping>()?.items()?.iter() {
        let pair = pair.cast_into::<PyTuple>()?;
        visit(&pair.get_item(0)?, &pair.get_item(1)?)?;
    }
    Ok(())
}

/// An amount of something.
pub(crate) fn amount_of(given: &Bound<'_, PyAny>) -> PyResult<Amount> {
    let number: f64 = given.extract().map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("a cost is a number, not {kind}"))
    })?;
    Amount::from_f64(number).map_err(invalid)
}

/// A wait in seconds, rounded up to what a float can hold: whoever waits it is never early. The longest span there is stands for ever.
pub(crate) fn wait(span: Duration) -> f64 {
    if span == Duration::MAX {
        return f64::INFINITY;
    }
    let seconds = span.as_secs_f64();
    match Duration::try_from_secs_f64(seconds) {
        Ok(told) if told < span => seconds.next_up(),
        _ => seconds,
    }
}

/// A span of seconds; `None` for none.
pub(crate) fn seconds(given: Option<f64>, what: &str) -> PyResult<Option<Duration>> {
    let Some(seconds) = given else { return Ok(None) };
    // Whoever means "for ever" by infinity gets it.
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let bad = || format!("bad {what} {seconds}: expected seconds, zero or more");
    Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| PyValueError::new_err(bad()))
}

/// A limit from the arguments of `set_limit`.
pub(crate) fn limit(
    units: &Bound<'_, PyAny>,
    window: &str,
    dimension: &str,
    burst: Option<&Bound<'_, PyAny>>,
    strict: bool,
) -> PyResult<Limit> {
    let window = Window::parse(window).map_err(invalid)?;
    let mut limit = Limit::new(dimension, whole("limit", units)?, window).map_err(invalid)?;
    if let Some(burst) = burst {
        if strict {
            return Err(invalid(paceline_core::Error::StrictBurst));
        }
        limit = limit.with_burst(whole("burst", burst)?).map_err(invalid)?;
    }
    if strict { limit.strict().map_err(invalid) } else { Ok(limit) }
}

/// A whole number of at least one.
pub(crate) fn whole(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number: i128 = given.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyTypeError>(given.py()) {
            return PyTypeError::new_err(format!("{what} must be a whole number, not {given}"));
        }
        PyValueError::new_err(format!("{what} {given} is too large"))
    })?;
    u64::try_from(number)
        .ok()
        .filter(|units| (1..=Limit::MOST).contains(units))
        .ok_or_else(|| PyValueError::new_err(format!("{what} must be 1 to 10^12, not {number}")))
}

/// What became of calls, from the arguments of `count`: waits in seconds, all else whole numbers.
pub(crate) fn tally(fields: Option<&Bound<'_, PyDict>>) -> PyResult<Tally> {
    let mut numbers = [0; Tally::NAMES.len()];
    for (name, value) in fields.into_iter().flatten() {
        let name: String = name.extract()?;
        let Some(at) = Tally::NAMES.iter().position(|known| *known == name) else {
            let known = Tally::NAMES.join(", ");
            return Err(PyTypeError::new_err(format!(
                "nothing is counted as {name:?}: {known} are"
            )));
        };
        numbers[at] = if name == "waited" {
            let waited = seconds(Some(value.extract()?), "waited")?.unwrap_or(Duration::MAX);
            u64::try_from(waited.as_micros()).unwrap_or(u64::MAX)
        } else {
            let number: i128 = value.extract().map_err(|_| {
                PyTypeError::new_err(format!("{name} must be a whole number, not {value}"))
            })?;
            let bad = || format!("{name} must be zero or more, not {number}");
            u64::try_from(number).map_err(|_| PyValueError::new_err(bad()))?
        };
    }
    Ok(Tally::from_numbers(numbers))
}

/// A tally with the names of those arguments.
pub(crate) fn tallied<'py>(py: Python<'py>, tally: &Tally) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, number) in Tally::NAMES.into_iter().zip(tally.numbers()) {
        fields.set_item(name, number)?;
    }
    fields.set_item("waited", tally.waited.as_secs_f64())?;
    Ok(fields)
}

/// The limits that `default_limits` names.
pub(crate) fn default_limits(given: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Limit>> {
    const KEYS: [(&str, &str, &str); 5] = [
        ("requests_per_second", "requests", "1s"),
        ("requests_per_minute", "requests", "1m"),
        ("requests_per_hour", "requests", "1h"),
        ("requests_per_day", "requests", "1d"),
        ("tokens_per_minute", "tokens", "1m"),
    ];
    let mut limits = Vec::new();
    let Some(given) = given else { return Ok(limits) };
    for_each(given, |key, units| {
        let key: String = key.extract()?;
        let Some((_, dimension, window)) = KEYS.iter().find(|(name, ..)| *name == key) else {
            let known = KEYS.map(|(name, ..)| name).join(", ");
            let message = format!("unknown key {key:?} in default_limits; known: {known}");
            return Err(PyValueError::new_err(message));
        };
        if !units.is_none() {
            limits.push(limit(units, window, dimension, None, false)?);
        }
        Ok(())
    })?;
    Ok(limits)
}
