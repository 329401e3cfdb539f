//! The cache: conversions, copies of what SDKs have made of answers, and one warning when its file is away.

use crate::bell::outside;
use crate::canonical;
use crate::convert::{self, raise, whole};
use crate::copies::Copies;
use crate::guard::Guard;
use crate::limiter::{VirtualClock, warn};
use paceline::{AnswerKey, Ask, Bounds, Clock, Error, Lru};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Answers that are kept for the calls of a guard.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Cache(Arc<Shared>);

struct Shared {
    cache: paceline::Cache,
    guard: paceline::Guard,
    /// What SDKs have made of answers. No Python runs while it is locked, so nobody else waits for it.
    made: Mutex<Lru<Arc<Made>>>,
    is_away: AtomicBool,
}

struct Made {
    copies: Copies,
    answer: Arc<paceline::Answer>,
}

type Headers = Vec<(PyBackedBytes, PyBackedBytes)>;

#[pymethods]
impl Cache {
    #[new]
    fn new(
        py: Python<'_>,
        guard: &Bound<'_, Guard>,
        storage: &str,
        ttl: Option<f64>,
        entries: &Bound<'_, PyAny>,
        size: &Bound<'_, PyAny>,
        clock: Option<&Bound<'_, VirtualClock>>,
    ) -> PyResult<Self> {
        let age = convert::seconds(ttl, "cache_ttl")?;
        if age.is_some_and(|age| age.is_zero()) {
            let message = "cache_ttl is seconds above 0, or None to keep answers for ever";
            return Err(PyValueError::new_err(message));
        }
        let entries = usize::try_from(whole("cache_size", entries)?).unwrap_or(usize::MAX);
        let bounds = Bounds { entries, bytes: whole("cache_bytes", size)?, age };
        if entries == 0 || bounds.bytes == 0 {
            let message = "cache_size and cache_bytes are above 0: cache=False keeps nothing";
            return Err(PyValueError::new_err(message));
        }
        let clock = clock.map_or_else(Clock::real, |clock| clock.get().0.clone().into());
        let opened = outside(py, || paceline::Cache::open(storage, bounds, clock))?;
        let cache = opened.map_err(|error| raise(py, error))?;
        let (guard, made) = (guard.get().0.clone(), Mutex::new(Lru::new(bounds)));
        let is_away = AtomicBool::new(false);
        Ok(Self(Arc::new(Shared { cache, guard, made, is_away })))
    }

    /// What a request is known by; `None` for one whose answer is not to be kept.
    fn key<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        url: &str,
        headers: Headers,
        body: &[u8],
        account: Option<&str>,
    ) -> Option<Bound<'py, PyBytes>> {
        let headers: Vec<(&[u8], &[u8])> =
            headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        let ask = Ask { method, url, headers: &headers, body, account };
        let key = self.0.cache.key(&ask).ok()??;
        Some(PyBytes::new(py, &key))
    }

    /// The answer with that key, unless it is too old.
    fn get(&self, py: Python<'_>, key: AnswerKey) -> PyResult<Option<Answer>> {
        let shared = &self.0;
        let got = match shared.cache.answers().is_fast() {
            true => shared.cache.get(&key),
            false => outside(py, || shared.cache.get(&key))?,
        };
        Ok(shared.told(got).flatten().map(Answer))
    }

    /// A call was answered from here.
    fn count(&self, answer: &Bound<'_, Answer>) {
        // What cannot be counted was answered all the same.
        drop(self.0.guard.note_cached(&answer.get().0.0));
    }

    /// What writes an answer down as it comes; `None` for one that is not to be kept.
    #[allow(clippy::too_many_arguments)]
    fn record(
        &self,
        key: AnswerKey,
        provider: String,
        model: String,
        status: u16,
        version: Vec<u8>,
        reason: Vec<u8>,
        headers: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Option<Recording> {
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into()));
        let recording = paceline::Recording::begin(paceline::Answer {
            status,
            version: version.into(),
            reason: reason.into(),
            headers: headers.collect(),
            provider,
            model,
            ..paceline::Answer::default()
        })?;
        Some(Recording {
            shared: Arc::clone(&self.0),
            key,
            recording: Some(recording),
            found: None,
        })
    }

    /// What a call of an SDK is known by before a request is made of it, and a copy of what came of it
    /// before. `None` for the first where that is not known: it is made of the name of the method, the
    /// client's attributes `but` some, what `else` there is to say, and the arguments.
    #[pyo3(signature = (name, client, but, other, arguments))]
    #[allow(clippy::type_complexity)]
    fn meet<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        client: &Bound<'py, PyDict>,
        but: &Bound<'py, PyFrozenSet>,
        other: &Bound<'py, PyTuple>,
        arguments: &Bound<'py, PyDict>,
    ) -> PyResult<(Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyAny>>)> {
        let shared = &self.0;
        let mut said = Vec::with_capacity(2_048);
        let written = canonical::write(arguments, &mut said)
            .and_then(|()| canonical::write(other, &mut said))
            .and_then(|()| canonical::write_attributes(client, but, &mut said));
        let key = written.and_then(|()| shared.cache.hash(name, &said).ok());
        let Some(key) = key else { return Ok((None, None)) };
        let now = shared.cache.answers().clock().now();
        let made = shared.made.lock().unwrap_or_else(PoisonError::into_inner).get(&key, now);
        let Some((made, _)) = made else { return Ok((Some(PyBytes::new(py, &key)), None)) };
        drop(shared.guard.note_cached(&made.answer));
        Ok((None, Some(made.copies.make(py)?)))
    }

    /// Keeps what an SDK has made of an answer, for the same call again.
    fn keep(&self, key: AnswerKey, answer: &Bound<'_, Answer>, result: &Bound<'_, PyAny>) {
        let Some((copies, size)) = Copies::of(result) else { return };
        let (answer, until) = &answer.get().0;
        let (made, size) = (Made { copies, answer: Arc::clone(answer) }, size + answer.size());
        let made = Arc::new(made);
        let gone =
            self.0.made.lock().unwrap_or_else(PoisonError::into_inner).put(key, made, size, *until);
        drop(gone);
    }

    /// Forgets all of them.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let gone = self.0.made.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(gone);
        let cleared = outside(py, || self.0.cache.answers().clear())?;
        cleared.map_err(|error| raise(py, error.into()))
    }
}

impl Shared {
    /// A cache that is away is none; the user hears of it once.
    fn told<R>(&self, result: Result<R, Error>) -> Option<R> {
        match result {
            Ok(value) => {
                self.is_away.store(false, Ordering::Relaxed);
                Some(value)
            }
            Err(error) => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    warn(&format!("{error}; calls go on without it"));
                }
                None
            }
        }
    }
}

/// Whether a cookie of that name says nothing of whose request it is.
#[pyfunction]
pub(crate) fn is_volatile_cookie(name: &str) -> bool {
    paceline::is_volatile_cookie(name)
}

/// An answer that was kept.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Answer(paceline::Found);

#[pymethods]
impl Answer {
    #[getter]
    fn status(&self) -> u16 {
        self.0.0.status
    }

    #[getter]
    fn version<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.0.version)
    }

    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.0.reason)
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let headers = self.0.0.headers.iter();
        headers.map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value))).collect()
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.0.body)
    }

    /// The body in the parts in which it came.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let mut rest: &[u8] = &self.0.0.body;
        let parts = self.0.0.parts.iter().map(|length| {
            let (part, behind) = rest.split_at((*length as usize).min(rest.len()));
            rest = behind;
            PyBytes::new(py, part)
        });
        parts.collect()
    }

    /// Where it would have been counted.
    #[getter]
    fn scope(&self) -> String {
        format!("{}:{}", self.0.0.provider, self.0.0.model)
    }
}

/// Writes an answer down as it passes by, and keeps it if all of it came.
#[pyclass(module = "paceline._native")]
pub(crate) struct Recording {
    shared: Arc<Shared>,
    key: AnswerKey,
    recording: Option<paceline::Recording>,
    found: Option<paceline::Found>,
}

#[pymethods]
impl Recording {
    /// The next bytes of it.
    fn push(&mut self, part: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.push(part);
        }
    }

    /// There is no more of it.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(answer) = self.recording.take().and_then(paceline::Recording::end) else {
            return Ok(());
        };
        let (shared, key) = (&self.shared, self.key);
        let put = match shared.cache.answers().is_fast() {
            true => shared.cache.put(key, answer),
            false => outside(py, || shared.cache.put(key, answer))?,
        };
        self.found = shared.told(put);
        Ok(())
    }

    /// The answer, once all of it has come.
    #[getter]
    fn answer(&self) -> Option<Answer> {
        self.found.clone().map(Answer)
    }
}
