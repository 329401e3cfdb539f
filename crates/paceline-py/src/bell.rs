//! Waking Python: a lock for a thread, an alarm for an event loop.

use paceline::Bell;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::time::Duration;

/// A lock that a thread waits for: Python's own means to sleep, which signals interrupt.
///
/// It is made where no error can be raised, so it keeps one until somebody waits.
pub(crate) struct ThreadBell(PyResult<Py<PyAny>>);

impl ThreadBell {
    /// A bell with its lock taken, so that the next to take it waits.
    pub(crate) fn new(py: Python<'_>) -> Arc<Self> {
        let taken = || {
            let lock = py.import("_thread")?.call_method0("allocate_lock")?;
            lock.call_method0("acquire")?;
            Ok(lock.unbind())
        };
        Arc::new(Self(taken()))
    }

    /// Sleeps until it rings, or that long. Raises what a signal handler raises.
    pub(crate) fn wait(&self, py: Python<'_>, at_most: Option<Duration>) -> PyResult<()> {
        // Python's locks take no longer waits; whoever wakes early waits again.
        const LONGEST: Duration = Duration::from_secs(86_400);
        let arguments = PyDict::new(py);
        if let Some(span) = at_most {
            arguments.set_item("timeout", span.min(LONGEST).as_secs_f64())?;
        }
        let lock = self.0.as_ref().map_err(|error| error.clone_ref(py))?;
        lock.bind(py).call_method("acquire", (), Some(&arguments))?;
        Ok(())
    }
}

impl Bell for ThreadBell {
    fn ring(&self) {
        // A lock that is free already has rung.
        if let Ok(lock) = &self.0 {
            Python::attach(|py| drop(lock.bind(py).call_method0("release")));
        }
    }
}

/// An object with `ring()` and `ring_after(seconds)`; see `paceline._drive.Alarm`.
pub(crate) struct Alarm(PyResult<Py<PyAny>>);

impl Alarm {
    /// The alarm of the event loop that runs here.
    pub(crate) fn new(py: Python<'_>) -> Arc<Self> {
        let made = || Ok(py.import("paceline._drive")?.call_method0("Alarm")?.unbind());
        Arc::new(Self(made()))
    }

    /// The object itself. Raises what kept it from being made, such as that no event loop runs.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let alarm = self.0.as_ref().map_err(|error| error.clone_ref(py))?;
        Ok(alarm.bind(py).clone())
    }
}

impl Bell for Alarm {
    fn ring(&self) {
        // An event loop that is closed has nobody left to wake.
        if let Ok(alarm) = &self.0 {
            Python::attach(|py| drop(alarm.bind(py).call_method0("ring")));
        }
    }

    fn ring_after(&self, after: Duration) {
        let seconds = after.as_secs_f64();
        if let Ok(alarm) = &self.0 {
            Python::attach(|py| drop(alarm.bind(py).call_method1("ring_after", (seconds,))));
        }
    }
}
