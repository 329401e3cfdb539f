//! The limiter, with the two ways in which Python waits.

use crate::bell::{Alarm, Busy, ThreadBell, enter, outside};
use crate::config::Config;
use crate::convert::{self, raise};
use crate::detect;
use crate::permit::{Permit, Waiter};
use crate::retry::RetryPolicy;
use paceline::{Bell, Call, Clock, Cost, Entry, Step};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyDate, PyDict, PyString, PyTuple};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The engine's limiter. It is set up by `__init__`, so that it can be subclassed as usual.
#[pyclass(module = "paceline._native", subclass, frozen)]
pub(crate) struct Limiter(OnceLock<Settled>);

/// A limiter that is set up.
struct Settled {
    limiter: paceline::Limiter,
    clock: Clock,
    raise_on_limit: bool,
    /// The account of calls that name none.
    account: Option<String>,
}

/// A scope, the seconds of its hold, and each limit.
type Scoped = (String, f64, Vec<Level>);

/// A level of one limit: dimension, window in seconds and as text, units, burst, remaining, seconds
/// until it is full, and where it came from.
type Level = (String, f64, String, u64, u64, u64, f64, &'static str);

/// A scope, a day, and what became of its calls then.
type Counted<'py> = (String, Bound<'py, PyDate>, Bound<'py, PyDict>);

/// What was measured: callers that wait, the store, and each scope by its name.
type Measured<'py> = (u64, Bound<'py, PyDict>, Vec<(String, Bound<'py, PyDict>)>);

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(storage='memory', *, default_limits=None, raise_on_limit=False, retry=None, max_wait=None, fail_closed=False, fallback=None, lease=None, storage_timeout=0.25, learn_first=False, adaptive=False, also_parents=False, account=None, headers_map=None, use_provider_profiles=True, authenticated=False, clock=None, config=None)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self(OnceLock::new())
    }

    #[pyo3(signature = (storage="memory", *, default_limits=None, raise_on_limit=false, retry=None, max_wait=None, fail_closed=false, fallback=None, lease=None, storage_timeout=0.25, learn_first=false, adaptive=false, also_parents=false, account=None, headers_map=None, use_provider_profiles=true, authenticated=false, clock=None, config=None))]
    #[allow(clippy::too_many_arguments)]
    fn __init__(
        &self,
        py: Python<'_>,
        storage: &str,
        default_limits: Option<&Bound<'_, PyAny>>,
        raise_on_limit: bool,
        retry: Option<&Bound<'_, RetryPolicy>>,
        max_wait: Option<f64>,
        fail_closed: bool,
        fallback: Option<&str>,
        lease: Option<f64>,
        storage_timeout: f64,
        learn_first: bool,
        adaptive: bool,
        also_parents: bool,
        account: Option<String>,
        headers_map: Option<&Bound<'_, PyAny>>,
        use_provider_profiles: bool,
        authenticated: bool,
        clock: Option<&Bound<'_, VirtualClock>>,
        config: Option<&Bound<'_, Config>>,
    ) -> PyResult<()> {
        let clock = clock.map_or_else(Clock::real, |clock| clock.get().0.clone().into());
        let mut builder = paceline::Limiter::builder();
        if let Some(config) = config {
            builder = builder.config(&config.get().said);
        }
        if default_limits.is_some() {
            builder = builder.default_limits(convert::default_limits(default_limits)?);
        }
        if headers_map.is_some() {
            builder = builder.headers_map(detect::headers_map(headers_map)?);
        }
        if fail_closed || fallback.is_some() {
            builder = builder.on_failure(convert::on_failure(fail_closed, fallback)?);
        }
        if learn_first {
            builder = builder.learn_first(true);
        }
        if adaptive {
            builder = builder.adaptive(true);
        }
        if also_parents {
            builder = builder.also_parents(true);
        }
        builder = builder.notify(notify).on_wait(tell).clock(clock.clone());
        if let Some(account) = &account {
            paceline::Scope::check_account(account).map_err(convert::invalid)?;
        }
        if authenticated {
            builder = builder.authenticated();
        }
        if !use_provider_profiles {
            builder = builder.without_host_profiles();
        }
        if let Some(timeout) = convert::seconds(Some(storage_timeout), "storage_timeout")? {
            builder = builder.store_timeout(timeout);
        }
        if let Some(span) = convert::seconds(lease, "lease")? {
            builder = builder.lease(span);
        }
        if let Some(most) = convert::seconds(max_wait, "max_wait")? {
            builder = builder.max_wait(most);
        }
        if let Some(retry) = retry {
            builder = builder.max_hold(retry.get().0.max_delay);
        }
        let opened = outside(py, || builder.open(storage))?;
        let limiter = opened.map_err(|error| raise(py, error))?;
        // Whoever sets it up twice keeps the first: its levels are in use.
        drop(self.0.set(Settled { limiter, clock, raise_on_limit, account }));
        Ok(())
    }

    /// Wait until a call may be made, and give its permit, which is a context manager.
    ///
    /// Raises `RateLimitExceeded` at once when it would wait longer than `max_wait`.
    #[pyo3(signature = (endpoint, cost=None, *, max_wait=None, account=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
        max_wait: Option<f64>,
        account: Option<&str>,
    ) -> PyResult<Permit> {
        let settled = self.settled()?;
        let call = settled.call(endpoint, convert::cost(cost)?, max_wait, account)?;
        if settled.raise_on_limit {
            return settled.ask(py, |limiter| limiter.acquire_now(call)).map(Permit::new);
        }
        let mut bell = None;
        let entry = if settled.limiter.is_slow() {
            // Outside of the interpreter none can be made.
            let made = Arc::clone(bell.insert(ThreadBell::new(py)));
            settled.ask(py, |limiter| limiter.enter(&call, || made))?
        } else {
            let make = || Arc::clone(bell.insert(ThreadBell::new(py))) as Arc<dyn Bell>;
            settled.limiter.enter(&call, make).map_err(|error| raise(py, error))?
        };
        match entry {
            Entry::Admitted(permit) => Ok(Permit::new(permit)),
            Entry::Queued(waiter) => settled.wait(py, waiter, bell),
        }
    }

    /// Give what to await, or to enter with `async with`, for a permit.
    #[pyo3(signature = (endpoint, cost=None, *, max_wait=None, account=None))]
    fn acquire_async(
        slf: Bound<'_, Self>,
        endpoint: Py<PyString>,
        cost: Option<&Bound<'_, PyAny>>,
        max_wait: Option<f64>,
        account: Option<String>,
    ) -> PyResult<Acquisition> {
        let cost = convert::cost(cost)?;
        let (limiter, permit) = (slf.unbind(), OnceLock::new());
        Ok(Acquisition { limiter, endpoint, cost, max_wait, account, permit })
    }

    /// Give a permit if there is room at once, else what to await for one.
    #[pyo3(signature = (endpoint, cost=None, *, max_wait=None, account=None))]
    fn acquire_soon<'py>(
        slf: &Bound<'py, Self>,
        endpoint: &str,
        cost: Option<&Bound<'py, PyAny>>,
        max_wait: Option<f64>,
        account: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _busy = Busy::new();
        let settled = slf.get().settled()?;
        let call = settled.call(endpoint, convert::cost(cost)?, max_wait, account)?;
        match settled.enter_from_loop(slf.py(), call)? {
            Entered::Admitted(permit) => Ok(Bound::new(slf.py(), permit)?.into_any()),
            Entered::Queued(waiter, alarm) => drive(slf, waiter, &alarm, None),
        }
    }

    /// Give a permit if there is room at once and nobody waits for it; else `None`.
    #[pyo3(signature = (endpoint, cost=None, *, account=None))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
        account: Option<&str>,
    ) -> PyResult<Option<Permit>> {
        let settled = self.settled()?;
        let call = settled.call(endpoint, convert::cost(cost)?, None, account)?;
        let permit = settled.ask(py, |limiter| limiter.try_acquire(call))?;
        Ok(permit.map(Permit::new))
    }

    /// Give the seconds that a call would have to wait, without taking anything.
    #[pyo3(signature = (endpoint, cost=None, *, account=None))]
    fn wait_time(
        &self,
        py: Python<'_>,
        endpoint: &str,
        cost: Option<&Bound<'_, PyAny>>,
        account: Option<&str>,
    ) -> PyResult<f64> {
        let settled = self.settled()?;
        let call = settled.call(endpoint, convert::cost(cost)?, None, account)?;
        Ok(convert::wait(settled.ask(py, |limiter| limiter.wait_time(call))?))
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
        self.settled()?.ask(py, |limiter| limiter.set_limit(endpoint, limit))
    }

    /// The governing scope, the seconds of a hold, and each limit.
    fn status(&self, py: Python<'_>, endpoint: &str) -> PyResult<Option<Scoped>> {
        let found = self.settled()?.ask(py, |limiter| limiter.status(endpoint))?;
        Ok(found.map(scoped))
    }

    /// Every scope that a call meets, the one that governs first, and why that one, in words.
    fn explained(&self, py: Python<'_>, endpoint: &str) -> PyResult<(String, Vec<Scoped>)> {
        let explanation = self.settled()?.ask(py, |limiter| limiter.explain(endpoint))?;
        let words = explanation.to_string();
        Ok((words, explanation.scopes.into_iter().map(scoped).collect()))
    }

    /// Know an API of one's own: which headers of its responses state which limits.
    #[pyo3(signature = (hosts, **dimensions))]
    fn register_provider(
        &self,
        hosts: &Bound<'_, PyAny>,
        dimensions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.settled()?.limiter.register_provider(detect::provider(hosts, dimensions)?);
        Ok(())
    }

    /// Whether one more retry is within a budget, in thousandths of all requests; if so, take it.
    fn may_retry(&self, thousandths: u16) -> PyResult<bool> {
        Ok(self.settled()?.limiter.may_retry(thousandths))
    }

    /// Give every scope about which something is known, sorted.
    fn list_endpoints(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.settled()?.ask(py, paceline::Limiter::endpoints)
    }

    /// Forget an endpoint and everything below it, or everything; tell how many there were.
    #[pyo3(signature = (endpoint=None))]
    fn clear(&self, py: Python<'_>, endpoint: Option<&str>) -> PyResult<usize> {
        self.settled()?.ask(py, |limiter| limiter.clear(endpoint))
    }

    /// Count what became of calls in a scope.
    #[pyo3(signature = (scope, **fields))]
    fn count(
        &self,
        py: Python<'_>,
        scope: &str,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let (limiter, tally) = (&self.settled()?.limiter, convert::tally(fields)?);
        if !limiter.is_slow() {
            limiter.count(scope, tally);
        } else if py.import("paceline._drive")?.call_method0("in_loop")?.is_truthy()? {
            limiter.count_from_loop(scope, tally);
        } else {
            outside(py, || limiter.count(scope, tally))?;
        }
        Ok(())
    }

    /// Give what became of calls in the last 35 days, by day and then by scope.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Vec<Counted<'py>>> {
        let books = self.settled()?.ask(py, paceline::Limiter::usage)?;
        let counted = |(scope, day, tally): (String, paceline::Day, paceline::Tally)| {
            let (year, month, date) = (day.year(), day.month(), day.day());
            let day = PyDate::new(py, year.into(), month.unsigned_abs(), date.unsigned_abs())?;
            Ok((scope, day, convert::tallied(py, &tally)?))
        };
        books.into_iter().map(counted).collect()
    }

    /// Begin to measure what becomes of calls.
    fn measure(&self) -> PyResult<()> {
        self.settled()?.limiter.measure();
        Ok(())
    }

    /// Give what was measured: callers that wait, the store, and each scope.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Measured<'py>> {
        let metrics = self.settled()?.limiter.metrics();
        let store = metrics.store;
        let beneath = PyDict::new(py);
        beneath.set_item("away", store.away)?;
        beneath.set_item("failures", store.failures)?;
        beneath.set_item("unmetered", store.unmetered)?;
        beneath.set_item("visits", store.visits)?;
        beneath.set_item("busy", store.busy.as_secs_f64())?;
        let scope = |metrics: paceline::ScopeMetrics| {
            let fields = convert::tallied(py, &metrics.tally)?;
            fields.set_item("spent", metrics.spent)?;
            fields.set_item("retried", metrics.retried)?;
            fields.set_item("holds", metrics.holds)?;
            let ends = paceline::WAITS.iter().map(Duration::as_secs_f64);
            let ends = ends.chain([f64::INFINITY]);
            fields.set_item("waits", ends.zip(metrics.waits).collect::<Vec<_>>())?;
            let (_, hold, levels) = scoped((
                String::new(),
                paceline::Status { limits: metrics.limits, hold: metrics.hold },
            ));
            fields.set_item("hold", hold)?;
            fields.set_item("limits", levels)?;
            Ok((metrics.scope, fields))
        };
        let scopes = metrics.scopes.into_iter().map(scope).collect::<PyResult<_>>()?;
        Ok((metrics.waiting, beneath, scopes))
    }

    /// Hand in what the store keeps back to save visits.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        // A limiter that was never set up keeps nothing back.
        self.0.get().map_or(Ok(()), |settled| settled.ask(py, paceline::Limiter::flush))
    }

    /// Whether the store is away, how many visits failed, and how many calls went without it.
    #[getter]
    fn storage_health(&self) -> PyResult<(bool, u64, u64)> {
        let health = self.settled()?.limiter.health();
        Ok((health.away, health.failures, health.unmetered))
    }

    #[getter]
    fn waiting(&self) -> PyResult<usize> {
        Ok(self.settled()?.limiter.waiting())
    }

    #[getter]
    fn raise_on_limit(&self) -> PyResult<bool> {
        Ok(self.settled()?.raise_on_limit)
    }

    /// Lets a pause of the lifecycle pass, on a virtual clock; `False` on a real one.
    fn pass_virtual_time(&self, seconds: f64) -> PyResult<bool> {
        let Clock::Virtual(clock) = &self.settled()?.clock else { return Ok(false) };
        clock.advance(Duration::try_from_secs_f64(seconds).unwrap_or_default());
        Ok(true)
    }
}

impl Limiter {
    #[inline]
    fn settled(&self) -> PyResult<&Settled> {
        self.0.get().ok_or_else(|| PyRuntimeError::new_err("the limiter's __init__ was not called"))
    }
}

impl Limiter {
    /// What it stands on.
    pub(crate) fn engine(&self) -> PyResult<&paceline::Limiter> {
        self.settled().map(|settled| &settled.limiter)
    }
}

impl Settled {
    #[inline]
    fn call<'a>(
        &'a self,
        endpoint: &'a str,
        cost: Cost,
        max_wait: Option<f64>,
        account: Option<&'a str>,
    ) -> PyResult<Call<'a>> {
        let mut call = Call::to(endpoint).costing(cost);
        if let Some(account) = account.or(self.account.as_deref()) {
            call = call.account(account);
        }
        Ok(match convert::seconds(max_wait, "max_wait")? {
            Some(most) => call.max_wait(most),
            None => call,
        })
    }

    /// Asks the limiter; other threads of Python run meanwhile where that takes time.
    #[inline]
    fn ask<R: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&paceline::Limiter) -> Result<R, paceline::Error> + Send,
    ) -> PyResult<R> {
        let answer = match self.limiter.is_slow() {
            true => outside(py, || question(&self.limiter))?,
            false => question(&self.limiter),
        };
        answer.map_err(|error| raise(py, error))
    }

    /// Enters without waiting for the store: an event loop does not, not even to be refused.
    fn enter_from_loop(&self, py: Python<'_>, call: Call<'_>) -> PyResult<Entered> {
        let mut alarm = None;
        let make = || Arc::clone(alarm.insert(Alarm::new(py))) as Arc<dyn Bell>;
        let entered = match (self.raise_on_limit, self.limiter.is_slow()) {
            (true, false) => self.limiter.acquire_now(call).map(Entry::Admitted),
            (true, true) => self.limiter.enter_from_loop(&call.max_wait(Duration::ZERO), make),
            (false, _) => self.limiter.enter_from_loop(&call, make),
        };
        Ok(match entered.map_err(|error| raise(py, error))? {
            Entry::Admitted(permit) => Entered::Admitted(Permit::new(permit)),
            Entry::Queued(waiter) => {
                Entered::Queued(Waiter::new(waiter), alarm.unwrap_or_else(|| Alarm::new(py)))
            }
        })
    }

    /// Waits in line on this thread.
    fn wait(
        &self,
        py: Python<'_>,
        mut waiter: paceline::Waiter,
        bell: Option<Arc<ThreadBell>>,
    ) -> PyResult<Permit> {
        let bell = bell.unwrap_or_else(|| ThreadBell::new(py));
        let slow = self.limiter.is_slow();
        loop {
            let step = if slow { outside(py, || waiter.poll())? } else { waiter.poll() };
            let slept = match (step, &self.clock) {
                (Step::Done(outcome), _) => {
                    return outcome.map(Permit::new).map_err(|error| raise(py, error));
                }
                (Step::Sleep(after), Clock::Virtual(clock)) => {
                    clock.advance(after);
                    py.check_signals()
                }
                (Step::Sleep(after), Clock::Real { .. }) => bell.wait(py, Some(after)),
                (Step::Park, _) => bell.wait(py, None),
            };
            if let Err(error) = slept {
                // To leave the line is a visit too. At the very end it is left to the process's end.
                if slow {
                    drop(outside(py, || drop(waiter)));
                }
                return Err(error);
            }
        }
    }
}

/// A scope with its levels, for Python.
fn scoped((scope, status): (String, paceline::Status)) -> Scoped {
    let level = |level: paceline::LimitStatus| {
        (
            level.limit.dimension.to_string(),
            level.limit.window.duration().as_secs_f64(),
            level.limit.window.to_string(),
            level.limit.units,
            level.limit.burst,
            level.remaining.whole(),
            level.reset.as_secs_f64(),
            level.limit.origin.as_str(),
        )
    };
    (scope, status.hold.as_secs_f64(), status.limits.into_iter().map(level).collect())
}

/// Tells Python's logging of a long wait. Who sees one of ten seconds would take it for a hang, so that is a
/// warning, which is shown unless somebody says otherwise.
fn tell(wait: &paceline::LongWait) {
    let level = if wait.after < Duration::from_secs(10) { "info" } else { "warning" };
    log(level, &wait.to_string());
}

/// Tells Python's logging that a store went away or is back.
fn notify(notice: paceline::Notice) {
    warn(&notice.to_string());
}

/// Tells Python's logging what the user ought to know.
pub(crate) fn warn(message: &str) {
    log("warning", message);
}

fn log(level: &str, message: &str) {
    enter(|py| {
        let told = py.import("logging").and_then(|logging| {
            let logger = logging.call_method1("getLogger", ("paceline",))?;
            logger.call_method1(level, ("%s", message))
        });
        // A handler that fails is no reason to fail a call.
        drop(told);
    });
}

/// The first answer to a call from an event loop.
enum Entered {
    Admitted(Permit),
    Queued(Waiter, Arc<Alarm>),
}

/// The coroutine that waits in line; an acquisition remembers what it gives.
fn drive<'py>(
    limiter: &Bound<'py, Limiter>,
    waiter: Waiter,
    alarm: &Alarm,
    acquisition: Option<&Bound<'py, Acquisition>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = limiter.py();
    let drive = py.import("paceline._drive")?;
    drive.call_method1("wait", (waiter, alarm.get(py)?, limiter, acquisition))
}

/// A permit to be awaited: `await` gives it, `async with` does and names it.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Acquisition {
    limiter: Py<Limiter>,
    endpoint: Py<PyString>,
    cost: Cost,
    max_wait: Option<f64>,
    account: Option<String>,
    /// What was given, to be closed when the block is left.
    permit: OnceLock<Py<Permit>>,
}

#[pymethods]
impl Acquisition {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let _busy = Busy::new();
        let py = slf.py();
        let this = slf.get();
        let endpoint = this.endpoint.bind(py);
        let settled = this.limiter.get().settled()?;
        let account = this.account.as_deref();
        let call = settled.call(endpoint.to_str()?, this.cost.clone(), this.max_wait, account)?;
        match settled.enter_from_loop(py, call)? {
            Entered::Admitted(permit) => {
                let permit = Py::new(py, permit)?;
                this.keep(permit.clone_ref(py));
                Ok(Bound::new(py, Ready(Some(permit)))?.into_any())
            }
            Entered::Queued(waiter, alarm) => {
                let wait = drive(this.limiter.bind(py), waiter, &alarm, Some(slf))?;
                wait.call_method0("__await__")
            }
        }
    }

    /// Remembers the permit that was waited for.
    fn keep(&self, permit: Py<Permit>) {
        // One acquisition gives one permit; awaited again, it gives another, which is not its own.
        drop(self.permit.set(permit));
    }

    const fn __aenter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __aexit__(
        &self,
        py: Python<'_>,
        _kind: Option<&Bound<'_, PyAny>>,
        _error: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> Ready {
        if let Some(permit) = self.permit.get() {
            permit.borrow_mut(py).close();
        }
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
pub(crate) struct VirtualClock(pub(crate) paceline::VirtualClock);

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
