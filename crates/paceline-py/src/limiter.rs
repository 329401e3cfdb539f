//! The limiter, with the two ways in which Python waits.

use crate::bell::{Alarm, ThreadBell};
use crate::convert::{self, raise};
use crate::permit::{Permit, Waiter};
use crate::retry::RetryPolicy;
use paceline::{Bell, Call, Clock, Cost, Entry, Step};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::Arc;
use std::time::Duration;

/// The engine's limiter.
#[pyclass(module = "paceline._native", subclass, frozen)]
pub(crate) struct Limiter {
    inner: paceline::Limiter,
    clock: Clock,
    raise_on_limit: bool,
}

/// A level of one limit: dimension, window in seconds and as text, units, remaining, seconds until
/// it is full, and where it came from.
type Level = (String, f64, String, u64, u64, f64, &'static str);

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (*, default_limits=None, raise_on_limit=false, retry=None, max_wait=None, clock=None))]
    fn new(
        default_limits: Option<&Bound<'_, PyAny>>,
        raise_on_limit: bool,
        retry: Option<&Bound<'_, RetryPolicy>>,
        max_wait: Option<f64>,
        clock: Option<&Bound<'_, VirtualClock>>,
    ) -> PyResult<Self> {
        let clock = clock.map_or_else(Clock::real, |clock| clock.get().0.clone().into());
        let mut builder = paceline::Limiter::builder()
            .default_limits(convert::default_limits(default_limits)?)
            .clock(clock.clone());
        if let Some(most) = convert::seconds(max_wait, "max_wait")? {
            builder = builder.max_wait(most);
        }
        if let Some(retry) = retry {
            builder = builder.max_hold(retry.get().0.max_delay);
        }
        Ok(Self { inner: builder.build(), clock, raise_on_limit })
    }

    /// Wait until a call may be made, and give its permit, which is a context manager.
    ///
    /// Raises `RateLimitExceeded` at once when it would wait longer than `max_wait`.
    #[pyo3(signature = (endpoint, cost=None, *, max_wait=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
        max_wait: Option<f64>,
    ) -> PyResult<Permit> {
        let mut bell = None;
        let make = || Arc::clone(bell.insert(ThreadBell::new(py))) as Arc<dyn Bell>;
        let mut waiter = match self.enter(py, endpoint, convert::cost(cost)?, max_wait, make)? {
            Entry::Admitted(permit) => return Ok(Permit::new(permit)),
            Entry::Queued(waiter) => waiter,
        };
        let bell = bell.unwrap_or_else(|| ThreadBell::new(py));
        loop {
            match (waiter.poll(), &self.clock) {
                (Step::Done(outcome), _) => {
                    return outcome.map(Permit::new).map_err(|error| raise(py, error));
                }
                (Step::Sleep(after), Clock::Virtual(clock)) => clock.advance(after),
                (Step::Sleep(after), Clock::Real { .. }) => bell.wait(py, Some(after))?,
                (Step::Park, _) => bell.wait(py, None)?,
            }
        }
    }

    /// Give what to await, or to enter with `async with`, for a permit.
    #[pyo3(signature = (endpoint, cost=None, *, max_wait=None))]
    fn acquire_async(
        slf: Bound<'_, Self>,
        endpoint: Py<PyString>,
        cost: Option<&Bound<'_, PyAny>>,
        max_wait: Option<f64>,
    ) -> PyResult<Acquisition> {
        let cost = convert::cost(cost)?;
        Ok(Acquisition { limiter: slf.unbind(), endpoint, cost, max_wait })
    }

    /// Give a permit if there is room at once and nobody waits for it; else `None`.
    #[pyo3(signature = (endpoint, cost=None))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Permit>> {
        let call = Call::to(endpoint).costing(convert::cost(cost)?);
        let permit = self.inner.try_acquire(call).map_err(|error| raise(py, error))?;
        Ok(permit.map(Permit::new))
    }

    /// Give the seconds that a call would have to wait, without taking anything.
    #[pyo3(signature = (endpoint, cost=None))]
    fn wait_time(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let call = Call::to(endpoint).costing(convert::cost(cost)?);
        let wait = self.inner.wait_time(call).map_err(|error| raise(py, error))?;
        Ok(convert::wait(wait))
    }

    /// Declare a limit for an endpoint and everything below it.
    ///
    /// The same dimension and window replaces a limit and keeps what was used of it; another window
    /// adds a second limit, and both must pay.
    #[pyo3(signature = (endpoint, limit, window="1m", dimension="requests", burst=None, *, strict=false))]
    #[allow(clippy::too_many_arguments)]
    fn set_limit(
        &self,
        py: Python<'_>,
        endpoint: &str,
        limit: &Bound<'_, PyAny>,
        window: &str,
        dimension: &str,
        burst: Option<&Bound<'_, PyAny>>,
        strict: bool,
    ) -> PyResult<()> {
        let limit = convert::limit(limit, window, dimension, burst, strict)?;
        self.inner.set_limit(endpoint, limit).map_err(|error| raise(py, error))
    }

    /// The governing scope, the seconds of a hold, and each limit.
    fn status(
        &self,
        py: Python<'_>,
        endpoint: &str,
    ) -> PyResult<Option<(String, f64, Vec<Level>)>> {
        let found = self.inner.status(endpoint).map_err(|error| raise(py, error))?;
        Ok(found.map(|(scope, status)| {
            let level = |level: paceline::LimitStatus| {
                (
                    level.limit.dimension.to_string(),
                    level.limit.window.duration().as_secs_f64(),
                    level.limit.window.to_string(),
                    level.limit.units,
                    level.remaining.whole(),
                    level.reset.as_secs_f64(),
                    level.limit.origin.as_str(),
                )
            };
            (scope, status.hold.as_secs_f64(), status.limits.into_iter().map(level).collect())
        }))
    }

    /// Give every scope about which something is known, sorted.
    fn list_endpoints(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.inner.endpoints().map_err(|error| raise(py, error))
    }

    /// Forget an endpoint and everything below it, or everything; tell how many there were.
    #[pyo3(signature = (endpoint=None))]
    fn clear(&self, py: Python<'_>, endpoint: Option<&str>) -> PyResult<usize> {
        self.inner.clear(endpoint).map_err(|error| raise(py, error))
    }

    #[getter]
    fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    #[getter]
    fn raise_on_limit(&self) -> bool {
        self.raise_on_limit
    }

    /// Lets a pause of the lifecycle pass, on a virtual clock; `False` on a real one.
    fn pass_virtual_time(&self, seconds: f64) -> bool {
        let Clock::Virtual(clock) = &self.clock else { return false };
        clock.advance(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        true
    }
}

impl Limiter {
    /// The call, and the permit if it can be had at once; in raise mode an error otherwise.
    fn enter(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Cost,
        max_wait: Option<f64>,
        bell: impl FnOnce() -> Arc<dyn Bell>,
    ) -> PyResult<Entry> {
        let mut call = Call::to(endpoint).costing(cost);
        if let Some(most) = convert::seconds(max_wait, "max_wait")? {
            call = call.max_wait(most);
        }
        let entered = match self.raise_on_limit {
            true => self.inner.acquire_now(call).map(Entry::Admitted),
            false => self.inner.enter(&call, bell),
        };
        entered.map_err(|error| raise(py, error))
    }
}

/// A permit to be awaited: `await` gives it, `async with` does and names it.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Acquisition {
    limiter: Py<Limiter>,
    endpoint: Py<PyString>,
    cost: Cost,
    max_wait: Option<f64>,
}

#[pymethods]
impl Acquisition {
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let endpoint = self.endpoint.bind(py);
        let limiter = self.limiter.get();
        let mut alarm = None;
        let make = || Arc::clone(alarm.insert(Alarm::new(py))) as Arc<dyn Bell>;
        let cost = self.cost.clone();
        match limiter.enter(py, endpoint.to_str()?, cost, self.max_wait, make)? {
            Entry::Admitted(permit) => {
                let permit = Py::new(py, Permit::new(permit))?;
                Ok(Bound::new(py, Ready(Some(permit)))?.into_any())
            }
            Entry::Queued(waiter) => {
                let alarm = alarm.unwrap_or_else(|| Alarm::new(py)).get(py)?;
                let drive = py.import("paceline._drive")?;
                let arguments = (Waiter::new(waiter), alarm, self.limiter.bind(py));
                drive.call_method1("wait", arguments)?.call_method0("__await__")
            }
        }
    }

    const fn __aenter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __aexit__(
        &self,
        _kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> Ready {
        Ready(None)
    }
}

/// An awaitable that is done.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Ready(Option<Py<Permit>>);

#[pymethods]
impl Ready {
    const fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    const fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(match &self.0 {
            Some(permit) => PyStopIteration::new_err((permit.clone_ref(py),)),
            None => PyStopIteration::new_err(()),
        })
    }
}

/// Time that moves when told to.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct VirtualClock(paceline::VirtualClock);

#[pymethods]
impl VirtualClock {
    #[new]
    fn new() -> Self {
        Self(paceline::VirtualClock::default())
    }

    fn advance(&self, seconds: f64) -> PyResult<()> {
        self.0.advance(convert::seconds(Some(seconds), "advance")?.unwrap_or_default());
        Ok(())
    }

    #[getter]
    fn now(&self) -> f64 {
        self.0.now().since(paceline_core::Tick::ZERO).as_secs_f64()
    }
}
