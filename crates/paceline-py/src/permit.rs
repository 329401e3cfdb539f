//! Permits and places in line.

use crate::bell::outside;
use crate::convert::{amount_of, invalid, raise, wait};
use crate::paced::Paced;
use paceline::{Amount, Cost, Dimension, Step, headers};
use pyo3::Borrowed;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use std::time::{SystemTime, UNIX_EPOCH};

/// The right to make one call. Its cost stands unless it is cancelled.
#[pyclass(module = "paceline._native", freelist = 64)]
pub(crate) struct Permit(Option<paceline::Permit>, bool);

impl Permit {
    /// Only the caller knows whether the request left, so in Python the cost stands unless it is
    /// cancelled.
    pub(crate) fn new(mut permit: paceline::Permit) -> Self {
        permit.sent();
        Self(Some(permit), false)
    }

    /// The call is over; what it cost stands, and may still be settled or cancelled.
    pub(crate) fn close(&mut self) {
        if let Some(permit) = &mut self.0 {
            permit.close();
        }
    }

    pub(crate) fn held(&mut self) -> PyResult<&mut paceline::Permit> {
        self.0.as_mut().ok_or_else(|| PyRuntimeError::new_err("the permit was cancelled"))
    }
}

/// A header's name or value, as a client keeps it: text or bytes. `None` where it is no UTF-8.
pub(crate) fn text<'a>(field: Borrowed<'a, '_, PyAny>) -> PyResult<Option<&'a str>> {
    if field.is_instance_of::<PyBytes>() {
        return Ok(std::str::from_utf8(field.extract()?).ok());
    }
    field.cast::<PyString>()?;
    Ok(field.extract().ok())
}

#[pymethods]
impl Permit {
    /// Correct the estimate to what was spent, more or less; other dimensions stand.
    #[pyo3(signature = (**actual))]
    fn settle(&mut self, py: Python<'_>, actual: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let permit = self.held()?;
        let mut spent: Cost = permit.cost().clone();
        for (name, amount) in actual.into_iter().flat_map(|actual| actual.iter()) {
            let dimension = Dimension::new(&name.extract::<String>()?).map_err(invalid)?;
            spent.set(dimension, amount_of(&amount)?);
        }
        let settled = match permit.asks_slowly() {
            true => outside(py, || permit.settle_to(&spent))?,
            false => permit.settle_to(&spent),
        };
        settled.map_err(|error| raise(py, error))
    }

    /// Count it as one for a further attempt of the same call.
    fn again(&mut self) -> PyResult<()> {
        self.held()?.again();
        Ok(())
    }

    /// Give everything back: the call was never made.
    fn cancel(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.0.take() {
            Some(permit) if permit.asks_slowly() => outside(py, || permit.cancel())?,
            Some(permit) => permit.cancel(),
            None => {}
        }
        Ok(())
    }

    /// Learn from a response's status and headers, as pairs of name and value; give the seconds
    /// for which a rejection says to stay away.
    #[pyo3(signature = (status, fields, url=None, body=None))]
    fn observe(
        &mut self,
        py: Python<'_>,
        status: u16,
        fields: &Bound<'_, PyAny>,
        url: Option<&str>,
        body: Option<&[u8]>,
    ) -> PyResult<Option<f64>> {
        // Few responses say anything of limits, so values are looked at only where names do.
        let detector = self.held()?.detector();
        let mut said = Vec::new();
        for pair in fields.try_iter()? {
            let pair = pair?.cast_into::<PyTuple>()?;
            let name = text(pair.get_borrowed_item(0)?)?;
            if name.is_some_and(|name| detector.is_relevant(name)) {
                said.push(pair);
            }
        }
        let pairs = said.iter().filter_map(|pair| {
            let field = |at| text(pair.get_borrowed_item(at).ok()?).ok()?;
            Some((field(0)?, field(1)?))
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let response = headers::Response { status, url, now, headers: pairs, body };
        let reading = headers::detect_relevant(&detector, response);
        let permit = self.held()?;
        if status >= 500 {
            permit.failed();
        }
        let learn = |permit: &mut paceline::Permit| match url {
            Some(url) => permit.answered(url, &reading),
            None => permit.observe(&reading),
        };
        let observed = match permit.asks_slowly() {
            true => outside(py, || learn(permit))?,
            false => learn(permit),
        };
        observed.map_err(|error| raise(py, error))?;
        self.1 = reading.spent;
        Ok(reading.retry_after.map(wait))
    }

    /// Whether the body of a response says something of limits that its headers do not.
    #[pyo3(signature = (url, status, content_type=None))]
    fn wants_body(&mut self, url: &str, status: u16, content_type: Option<&str>) -> PyResult<bool> {
        Ok(self.held()?.detector().wants_body(url, status, content_type))
    }

    /// What pacing did to the call that it was the last permit of.
    #[pyo3(signature = (waited, attempts, limit=None))]
    fn paced(&mut self, waited: f64, attempts: u32, limit: Option<String>) -> PyResult<Paced> {
        Ok(Paced { waited, scope: self.held()?.scope(), attempts, limit })
    }

    /// Whether the response said that the quota does not come back by waiting.
    #[getter]
    const fn spent(&self) -> bool {
        self.1
    }

    /// What it was waited for: a limit such as `60/1m`, or a hold; `None` when it was not waited for.
    #[getter]
    fn limit(&mut self) -> PyResult<Option<String>> {
        Ok(self.held()?.cause().map(ToString::to_string))
    }

    /// Seconds waited for it.
    #[getter]
    fn waited(&mut self) -> PyResult<f64> {
        Ok(self.held()?.waited().as_secs_f64())
    }

    /// The scope that was charged.
    #[getter]
    fn scope(&mut self) -> PyResult<String> {
        Ok(self.held()?.scope())
    }

    /// What it counts for.
    #[getter]
    fn cost<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cost = PyDict::new(py);
        for (dimension, amount) in self.held()?.cost().iter() {
            cost.set_item(dimension.as_str(), amount.millionths() as f64 / Amount::UNIT as f64)?;
        }
        Ok(cost)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &mut self,
        _kind: Option<&Bound<'_, PyType>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            Some(permit) => format!("<Permit {}: {}>", permit.scope(), permit.cost()),
            None => "<Permit cancelled>".to_owned(),
        }
    }
}

/// A place in line, for a driver that can wait.
#[pyclass(module = "paceline._native")]
pub(crate) struct Waiter(Option<paceline::Waiter>);

impl Waiter {
    pub(crate) fn new(waiter: paceline::Waiter) -> Self {
        Self(Some(waiter))
    }
}

#[pymethods]
impl Waiter {
    /// A permit when its turn came; the seconds to sleep as the head of the line; else `None`.
    fn poll<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(waiter) = &mut self.0 else {
            return Err(PyRuntimeError::new_err("left the line"));
        };
        match waiter.poll() {
            Step::Done(outcome) => {
                self.0 = None;
                let permit = outcome.map_err(|error| raise(py, error))?;
                Ok(Some(Bound::new(py, Permit::new(permit))?.into_any()))
            }
            Step::Sleep(after) => Ok(Some(wait(after).into_pyobject(py)?.into_any())),
            Step::Park => Ok(None),
        }
    }

    /// Leaves the line, and gives back what was granted meanwhile.
    fn close(&mut self) {
        // Waits at a desk are left there, and others are in memory: neither takes time.
        self.0 = None;
    }
}
