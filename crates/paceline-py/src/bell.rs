//! Waking Python: a lock for a thread, an alarm for an event loop.

use paceline::Bell;
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Whether the interpreter is about to end. A daemon thread that still waits then would be unwound
/// by force through our frames, which ends the process: it has to leave before.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The bells of all threads that wait.
static THREADS: Mutex<Vec<Weak<ThreadBell>>> = Mutex::new(Vec::new());

/// The threads that are in the middle of something.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Runs something that takes time outside of the interpreter. Raises `SystemExit` when that is about to
/// end, for whoever is outside then never comes back in.
pub(crate) fn outside<R: Send>(
    py: Python<'_>,
    something: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    if ENDING.load(Ordering::Acquire) {
        return Err(PySystemExit::new_err(()));
    }
    let _busy = Busy::new();
    Ok(py.detach(something))
}

/// A thread that is in the middle of something of ours, from where Python may take the interpreter away
/// from it: its end waits until that is over.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Wakes every thread that waits, to end; tells how many there are, with those that are in the
/// middle of something.
#[pyfunction]
pub(crate) fn end_waits(py: Python<'_>) -> usize {
    ENDING.store(true, Ordering::SeqCst);
    let bells: Vec<_> = locked().iter().filter_map(Weak::upgrade).collect();
    // Rung without the lock, and with the interpreter that is held already.
    bells.iter().for_each(|bell| bell.release(py));
    bells.len() + BUSY.load(Ordering::SeqCst)
}

fn locked() -> std::sync::MutexGuard<'static, Vec<Weak<ThreadBell>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

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
        let bell = Arc::new(Self(taken()));
        let mut threads = locked();
        threads.retain(|other| other.strong_count() > 0);
        threads.push(Arc::downgrade(&bell));
        drop(threads);
        bell
    }

    fn release(&self, py: Python<'_>) {
        // A lock that is free already has rung.
        if let Ok(lock) = &self.0 {
            drop(lock.bind(py).call_method0("release"));
        }
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
        if ENDING.load(Ordering::Acquire) {
            return Err(PySystemExit::new_err(()));
        }
        Ok(())
    }
}

impl Bell for ThreadBell {
    fn ring(&self) {
        enter(|py| self.release(py));
    }
}

/// Runs something inside of the interpreter, unless that is about to end: a thread of ours that came
/// in then would never come out again.
pub(crate) fn enter(inside: impl FnOnce(Python<'_>)) {
    let _busy = Busy::new();
    if !ENDING.load(Ordering::SeqCst) {
        Python::try_attach(inside);
    }
}

/// An object with `ring()` and `ring_after(seconds)`; see `paceline._drive.alarm`.
pub(crate) struct Alarm(PyResult<Py<PyAny>>);

impl Alarm {
    /// The alarm of the event loop that runs here.
    pub(crate) fn new(py: Python<'_>) -> Arc<Self> {
        let made = || Ok(py.import("paceline._drive")?.call_method0("alarm")?.unbind());
        Arc::new(Self(made()))
    }

    /// The object itself. Raises what kept it from being made, such as that no event loop runs.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let alarm = self.0.as_ref().map_err(|error| error.clone_ref(py))?;
        Ok(alarm.bind(py).clone())
    }
}

impl Bell for Alarm {
    fn ring_with(&self, others: &[Arc<dyn Bell>]) {
        enter(|_| {
            self.ring();
            others.iter().for_each(|bell| bell.ring());
        });
    }

    fn ring(&self) {
        // An event loop that is closed has nobody left to wake.
        if let Ok(alarm) = &self.0 {
            enter(|py| drop(alarm.bind(py).call_method0("ring")));
        }
    }

    fn ring_after(&self, after: Duration) {
        let seconds = after.as_secs_f64();
        if let Ok(alarm) = &self.0 {
            enter(|py| drop(alarm.bind(py).call_method1("ring_after", (seconds,))));
        }
    }
}
