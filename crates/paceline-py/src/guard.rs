//! The guard of LLM calls: rules, and what a call may spend and did spend.

use crate::bell::outside;
use crate::convert::{self, invalid, raise, whole};
use crate::limiter::Limiter;
use crate::permit::Permit;
use paceline::llm::{Price, Request, Rule, Stream, Usage, model_in_path, provider, resource};
use paceline::{Tally, Window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rules, prices and budgets for the models that a limiter paces.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Guard(pub(crate) paceline::Guard);

/// Sums of one model: sent, seconds waited, delayed, refused, rejected, failed, cached, tokens of
/// prompts and of answers, dollars.
type Sums = (u64, f64, u64, u64, u64, u64, u64, u64, u64, f64);

/// A number as Python gave it.
type Number<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

#[pymethods]
impl Guard {
    #[new]
    fn new(limiter: &Bound<'_, Limiter>) -> PyResult<Self> {
        Ok(Self(paceline::Guard::new(limiter.get().engine()?.clone())))
    }

    #[allow(clippy::too_many_arguments)]
    fn set_rule(
        &self,
        py: Python<'_>,
        model: &str,
        provider: Option<&str>,
        requests: Number<'_, '_>,
        tokens: Number<'_, '_>,
        input_tokens: Number<'_, '_>,
        output_tokens: Number<'_, '_>,
        burst: Number<'_, '_>,
    ) -> PyResult<()> {
        if burst.is_some() && requests.is_none() {
            let message = "burst says how many of requests_per_minute go at once: give both";
            return Err(PyValueError::new_err(message));
        }
        let units = |name, given: Number<'_, '_>| given.map(|it| whole(name, it)).transpose();
        let rule = Rule {
            requests: units("requests_per_minute", requests)?,
            tokens: units("tokens_per_minute", tokens)?,
            input_tokens: units("input_tokens_per_minute", input_tokens)?,
            output_tokens: units("output_tokens_per_minute", output_tokens)?,
            burst: units("burst", burst)?,
        };
        self.0.set_rule(model, provider, rule).map_err(|error| raise(py, error))
    }

    fn remove_rule(&self, model: &str, provider: Option<&str>) -> bool {
        self.0.remove_rule(model, provider)
    }

    /// Requests, tokens and burst of the rule that governs a model.
    fn rule(&self, provider: &str, model: &str) -> (Option<u64>, Option<u64>, Option<u64>) {
        let rule = self.0.rule(provider, model);
        (rule.requests, rule.tokens, rule.burst)
    }

    fn set_budget(
        &self,
        py: Python<'_>,
        model: &str,
        provider: Option<&str>,
        usd: Number<'_, '_>,
        per: &str,
    ) -> PyResult<()> {
        let window = Window::parse(per).map_err(invalid)?;
        let budget = usd.map(|usd| Ok::<_, PyErr>((whole("usd", usd)?, window))).transpose()?;
        let set = outside(py, || self.0.set_budget(model, provider, budget))?;
        set.map_err(|error| raise(py, error))
    }

    fn set_price(&self, model: &str, provider: Option<&str>, dollars: [f64; 4]) -> PyResult<()> {
        let Some(price) = Price::of_dollars(dollars) else {
            let message = "a price is dollars for a million tokens, from 0 to a million";
            return Err(PyValueError::new_err(message));
        };
        self.0.set_price(model, provider, price);
        Ok(())
    }

    /// What became of calls in this process, by model.
    fn stats(&self) -> BTreeMap<String, Sums> {
        self.0.stats().into_iter().map(|(scope, tally)| (scope, sums(&tally))).collect()
    }

    /// The call of a request: whose API its host is, or `own` if that is not known, unless `own` is the
    /// provider wherever it runs.
    #[allow(clippy::too_many_arguments)]
    fn call(
        &self,
        py: Python<'_>,
        own: &str,
        any_host: bool,
        host: &str,
        path: &str,
        body: Option<&[u8]>,
        model: Option<&str>,
    ) -> PyResult<LlmCall> {
        let by_host = provider(host);
        let provider = by_host.unwrap_or(if any_host { own } else { host });
        let request = body.and_then(Request::read);
        let named = request.as_ref().and_then(|request| request.model.as_deref());
        let model =
            model.or(named).or_else(|| model_in_path(path)).unwrap_or_else(|| resource(path));
        // To put a rule into a store takes a visit, once.
        let call = self.0.call(own, provider, model, request.as_ref());
        let call = call.map_err(|error| raise(py, error))?;
        let (provider, model) = (provider.to_owned(), model.to_owned());
        Ok(LlmCall { guard: self.0.clone(), call, provider, model })
    }
}

/// One attempt of a call: what it may spend, and what becomes of it.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct LlmCall {
    guard: paceline::Guard,
    call: paceline::LlmCall,
    #[pyo3(get)]
    provider: String,
    #[pyo3(get)]
    model: String,
}

#[pymethods]
impl LlmCall {
    /// Where it is counted.
    #[getter]
    fn scope(&self) -> &str {
        self.call.scope()
    }

    /// What it may spend there.
    #[getter]
    fn cost(&self) -> Cost {
        Cost(self.call.cost())
    }

    /// The scopes of the budgets that it is paid from, and what it may spend of each.
    #[getter]
    fn budgets(&self, py: Python<'_>) -> PyResult<Vec<(String, Cost)>> {
        let budgets = self.call.budgets().map_err(|error| raise(py, error))?;
        Ok(budgets.into_iter().map(|(scope, cost)| (scope.to_owned(), Cost(cost))).collect())
    }

    /// The same for a prompt that somebody has counted.
    fn with_input(&self, tokens: &Bound<'_, PyAny>) -> PyResult<Self> {
        let call = self.call.clone().with_input(convert::amount_of(tokens)?.whole());
        let (provider, model) = (self.provider.clone(), self.model.clone());
        Ok(Self { guard: self.guard.clone(), call, provider, model })
    }

    /// It was answered so.
    fn answered(&self, status: u16) {
        let (rejected, failed) = (u64::from(status == 429), u64::from(status >= 400));
        let failed = failed - rejected;
        self.guard.note(&self.call, &Tally { sent: 1, rejected, failed, ..Tally::default() });
    }

    /// It waited that many seconds.
    fn waited(&self, seconds: f64) {
        let waited = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        if !waited.is_zero() {
            self.guard.note(&self.call, &Tally { waited, delayed: 1, ..Tally::default() });
        }
    }

    /// It was not let through.
    fn refused(&self) {
        self.guard.note(&self.call, &Tally { refused: 1, ..Tally::default() });
    }

    /// Settles for what an answer says it used.
    fn settle(
        &self,
        py: Python<'_>,
        permit: &Bound<'_, Permit>,
        budgets: Vec<Bound<'_, Permit>>,
        status: u16,
        body: Option<&[u8]>,
    ) -> PyResult<()> {
        let usage = match body {
            _ if status >= 400 => Some(Usage::default()),
            Some(body) => Usage::read(body),
            None => None,
        };
        self.settle_for(py, permit, &budgets, usage)
    }

    /// What reads an answer along that comes bit by bit.
    fn watch(
        slf: Py<Self>,
        permit: Py<Permit>,
        budgets: Vec<Py<Permit>>,
        content_type: Option<&str>,
    ) -> Watch {
        Watch {
            held: Some(Held { call: slf, permit, budgets }),
            reading: Reading::of(content_type),
        }
    }
}

impl LlmCall {
    /// Settles; without a report the estimate stands.
    fn settle_for(
        &self,
        py: Python<'_>,
        permit: &Bound<'_, Permit>,
        budgets: &[Bound<'_, Permit>],
        usage: Option<Usage>,
    ) -> PyResult<()> {
        let Some(usage) = usage else { return Ok(()) };
        let mut permit = permit.borrow_mut();
        let mut budgets: Vec<_> = budgets.iter().map(|it| it.borrow_mut()).collect();
        let permit = permit.held()?;
        let budgets = budgets.iter_mut().map(|it| it.held()).collect::<PyResult<Vec<_>>>()?;
        let settled = match permit.asks_slowly() {
            true => outside(py, || self.guard.settle(&self.call, permit, budgets, usage))?,
            false => self.guard.settle(&self.call, permit, budgets, usage),
        };
        settled.map_err(|error| raise(py, error))
    }
}

/// Reads an answer along, and settles for it once when it ends, however it does.
#[pyclass(module = "paceline._native")]
pub(crate) struct Watch {
    held: Option<Held>,
    reading: Reading,
}

/// What an answer settles.
struct Held {
    call: Py<LlmCall>,
    permit: Py<Permit>,
    budgets: Vec<Py<Permit>>,
}

enum Reading {
    /// Events, each of which may report.
    Stream(Stream),
    /// One document, the end of which must be there to be read.
    Whole(Vec<u8>),
    /// Sound, pictures and whatever else reports nothing.
    Nothing,
}

impl Reading {
    fn of(content_type: Option<&str>) -> Self {
        let kind = content_type.unwrap_or_default();
        let is = |names: &[&str]| names.iter().any(|name| kind.contains(name));
        match () {
            () if is(&["event-stream", "ndjson", "jsonl", "json-seq"]) => {
                Self::Stream(Stream::new())
            }
            () if is(&["json"]) => Self::Whole(Vec::new()),
            () => Self::Nothing,
        }
    }
}

/// A longer document than this is no answer of a model.
const LONGEST: usize = 8 << 20;

#[pymethods]
impl Watch {
    /// The next bytes of it.
    fn push(&mut self, part: &[u8]) {
        match &mut self.reading {
            Reading::Stream(stream) => stream.push(part),
            Reading::Whole(body) if body.len() + part.len() <= LONGEST => {
                body.extend_from_slice(part);
            }
            Reading::Whole(_) => self.reading = Reading::Nothing,
            Reading::Nothing => {}
        }
    }

    /// There is no more of it.
    fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(Held { call, permit, budgets }) = self.held.take() else { return Ok(()) };
        let call = call.get();
        let usage = match &self.reading {
            Reading::Stream(stream) => {
                Some(stream.usage().unwrap_or_else(|| call.call.seen(stream.output_seen())))
            }
            Reading::Whole(body) => Usage::read(body),
            Reading::Nothing => None,
        };
        let budgets: Vec<_> = budgets.iter().map(|it| it.bind(py).clone()).collect();
        call.settle_for(py, permit.bind(py), &budgets, usage)
    }
}

/// What a call spends, as the engine keeps it.
#[pyclass(module = "paceline._native", frozen)]
pub(crate) struct Cost(pub(crate) paceline::Cost);

#[pymethods]
impl Cost {
    fn __repr__(&self) -> String {
        format!("<Cost {}>", self.0)
    }
}

fn sums(tally: &Tally) -> Sums {
    (
        tally.sent,
        convert::wait(tally.waited),
        tally.delayed,
        tally.refused,
        tally.rejected,
        tally.failed,
        tally.cached,
        tally.input_tokens,
        tally.output_tokens,
        tally.micro_usd as f64 / 1e6,
    )
}
