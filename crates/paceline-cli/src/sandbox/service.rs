//! One request: read it, count it, answer it.

use super::errors::{Shape, json_response};
use super::headers::{Family, HeaderWriter};
use super::ledger::{Admission, Ledger};
use super::llm::{Ask, Endpoint};
use super::plan::{NamedLimit, Plan, scatter};
use super::{Config, SandboxError};
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The largest body that is read.
const MAX_BODY: usize = 16 << 20;
/// Where a request may state its own cost.
const COST: &str = "x-sandbox-cost";

#[derive(Debug)]
pub(super) struct Service {
    plan: Arc<Plan>,
    family: Family,
    headers: HeaderWriter,
    retry_after_always: bool,
    latency: Duration,
    jitter: Duration,
    /// Delays drawn so far.
    drawn: AtomicU64,
    ledger: Mutex<Ledger>,
    /// Credentials are kept as keyed hashes only.
    credentials: RandomState,
}

/// The answer of every path that is not an LLM endpoint.
#[derive(Serialize)]
struct Echo<'a> {
    path: &'a str,
    method: &'a str,
    n: u64,
}

impl Service {
    pub(super) fn new(config: &Config) -> Result<Self, SandboxError> {
        let plan = Arc::new(Plan::new(config)?);
        Ok(Self {
            family: config.headers,
            headers: HeaderWriter::new(config, &plan.named),
            retry_after_always: config.retry_after_always,
            latency: config.latency,
            jitter: config.jitter,
            drawn: AtomicU64::new(0),
            ledger: Mutex::new(Ledger::new(Arc::clone(&plan))),
            plan,
            credentials: RandomState::new(),
        })
    }

    pub(super) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        match path.strip_prefix("/_sandbox") {
            Some(control) if control.is_empty() || control.starts_with('/') => {
                return self.control(&head.method, control);
            }
            _ => {}
        }
        let endpoint = Endpoint::of(&head.method, path);
        let shape = Shape::of(endpoint, self.family);
        let body = match receive(body, endpoint.is_some()).await {
            Ok(body) => body,
            Err(Unread::TooLarge) => {
                let message = format!("The body is larger than {MAX_BODY} bytes.");
                return shape.invalid(StatusCode::PAYLOAD_TOO_LARGE, &message);
            }
            Err(Unread::Broken) => {
                return shape.invalid(StatusCode::BAD_REQUEST, "The body ended early.");
            }
        };
        let ask = match endpoint.map(|endpoint| Ask::read(endpoint, &body)).transpose() {
            Ok(ask) => ask,
            Err(message) => return shape.invalid(StatusCode::BAD_REQUEST, &message),
        };
        let costs = match self.costs(&head.headers, ask.as_ref()) {
            Ok(costs) => costs,
            Err(message) => return shape.invalid(StatusCode::BAD_REQUEST, &message),
        };
        let credential = self.credential(&head.headers);
        self.tarry().await;
        let decision = self.ledger.lock().admit(credential, &costs);
        let wall = decision.at;
        let mut response = match decision.outcome {
            Ok(Admission { n, fault }) => {
                if !self.latency.is_zero() {
                    tokio::time::sleep(self.latency).await;
                }
                match (fault, &ask) {
                    (Some(status), _) => shape.fault(status),
                    (None, Some(ask)) => {
                        let answered = ask.answer(n, &self.plan);
                        if self.plan.settle {
                            let unused = ask.max_output_tokens - answered.output_tokens;
                            self.ledger.lock().give_back(credential, &self.outputs(unused));
                        }
                        answered.response
                    }
                    (None, None) => {
                        let echo = Echo { path, method: head.method.as_str(), n };
                        json_response(StatusCode::OK, &echo)
                    }
                }
            }
            Err(refusal) => {
                let index = refusal.limit;
                let (limit, standing) = (&self.plan.named[index], decision.standings[index]);
                let mut response = shape.limited(refusal, limit, standing, costs[index]);
                if let Some(wait) = refusal.wait {
                    self.headers.write_retry_after(response.headers_mut(), wait);
                }
                response
            }
        };
        let latest = decision.standings.iter().map(|standing| standing.reset).max();
        if let Some(reset) = latest.filter(|_| self.retry_after_always && decision.outcome.is_ok())
        {
            self.headers.write_retry_after(response.headers_mut(), reset);
        }
        self.headers.write(response.headers_mut(), &decision.standings, wall);
        self.tarry().await;
        response
    }

    /// A delay as no two are alike on a real network.
    async fn tarry(&self) {
        let Ok(most @ 1..) = u64::try_from(self.jitter.as_nanos()) else { return };
        let drawn = scatter(self.plan.seed, self.drawn.fetch_add(1, Ordering::Relaxed));
        tokio::time::sleep(Duration::from_nanos(drawn % most)).await;
    }

    /// The sandbox's own endpoints, which no limit governs.
    fn control(&self, method: &Method, path: &str) -> Response<Body> {
        match (method.as_str(), path) {
            ("GET" | "HEAD", "") => {
                let report = self.ledger.lock().report();
                json_response(StatusCode::OK, &report)
            }
            ("GET" | "HEAD", "/journal") => {
                let journal = self.ledger.lock().journal();
                json_response(StatusCode::OK, &journal)
            }
            ("DELETE", "") | ("POST", "/reset") => {
                self.ledger.lock().reset();
                json_response(StatusCode::OK, &serde_json::json!({"reset": true}))
            }
            _ => {
                let message = "expected GET /_sandbox, GET /_sandbox/journal, DELETE /_sandbox or \
                    POST /_sandbox/reset";
                Shape::Plain.invalid(StatusCode::NOT_FOUND, message)
            }
        }
    }

    /// What the request spends of each limit.
    fn costs(&self, headers: &HeaderMap, ask: Option<&Ask>) -> Result<Vec<u64>, String> {
        let stated = headers.get(COST).map(|value| value.to_str().map_err(|_| bad_cost("")));
        let stated = stated.transpose()?.map(read_costs).transpose()?.unwrap_or_default();
        let (input, output) = ask.map_or((0, 0), |ask| (ask.input_tokens, ask.max_output_tokens));
        let cost = |dimension: &str| match dimension {
            "requests" => 1,
            "tokens" => input.saturating_add(output),
            "input_tokens" => input,
            "output_tokens" => output,
            _ => 0,
        };
        let costs = self.plan.named.iter().map(|limit| {
            let dimension = limit.spec.dimension.as_str();
            let own = stated.iter().find(|(name, _)| *name == dimension);
            own.map_or_else(|| cost(dimension), |(_, units)| *units)
        });
        Ok(costs.collect())
    }

    /// So many tokens of answers, as each limit counts them.
    fn outputs(&self, tokens: u64) -> Vec<u64> {
        let counted = |limit: &NamedLimit| match limit.spec.dimension.as_str() {
            "tokens" | "output_tokens" => tokens,
            _ => 0,
        };
        self.plan.named.iter().map(counted).collect()
    }

    /// Different credentials are different accounts.
    fn credential(&self, headers: &HeaderMap) -> u64 {
        let value = headers.get(header::AUTHORIZATION).or_else(|| headers.get("x-api-key"));
        self.credentials.hash_one(value.map(|value| value.as_bytes()))
    }
}

/// Reads `tokens=500,credits=3`.
fn read_costs(text: &str) -> Result<Vec<(&str, u64)>, String> {
    let cost = |part| read_cost(part).ok_or_else(|| bad_cost(part));
    text.split(',').map(cost).collect()
}

fn read_cost(part: &str) -> Option<(&str, u64)> {
    let (name, units) = part.split_once('=')?;
    Some((name.trim(), units.trim().parse().ok()?))
}

fn bad_cost(part: &str) -> String {
    format!("{COST}: `{part}` is not a cost; expected such as tokens=500,credits=3")
}

enum Unread {
    TooLarge,
    Broken,
}

/// Reads the body to its end, so that the connection can be used again; gathers it only if wanted.
async fn receive(body: Body, wanted: bool) -> Result<Bytes, Unread> {
    let stated = body.size_hint();
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if stated.lower() > MAX_BODY as u64 {
        return Err(Unread::TooLarge);
    }
    let (mut body, mut size, mut gathered) = (body.into_data_stream(), 0, Vec::new());
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|_| Unread::Broken)?;
        size += chunk.len();
        if size > MAX_BODY {
            return Err(Unread::TooLarge);
        }
        if wanted {
            gathered.extend_from_slice(&chunk);
        }
    }
    Ok(gathered.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn different_credentials_are_different_accounts() {
        let limits = vec!["1/1h".parse().expect("a limit")];
        let config = Config { limits, ..Config::default() };
        let service = Service::new(&config).expect("a service");
        for (name, value, status) in [
            ("authorization", "a", 200),
            ("authorization", "b", 200),
            ("authorization", "a", 429),
            ("x-api-key", "c", 200),
            ("x-api-key", "c", 429),
            ("x-anything-else", "a", 200),
            ("x-anything-else", "b", 429),
        ] {
            let request = Request::get("/").header(name, value).body(Body::empty());
            let answer = service.answer(request.expect("a request")).await;
            assert_eq!(answer.status(), status, "{name}: {value}");
        }
    }
    #[tokio::test]
    async fn what_an_answer_did_not_take_is_taken_back_where_that_is_asked_for() {
        for (settle, admitted, spent) in [(false, 1, 600), (true, 5, 500)] {
            let config = Config {
                limits: vec!["tokens=1000/1h".parse().expect("a limit")],
                answer_tokens: Some(100),
                settle,
                ..Config::default()
            };
            let service = Service::new(&config).expect("a service");
            for _ in 0..20 {
                let request = Request::post("/v1/chat/completions");
                let request = request.body(Body::from(r#"{"messages": [], "max_tokens": 600}"#));
                drop(service.answer(request.expect("a request")).await);
            }
            let report = service.ledger.lock().report();
            // Whoever asks for 600 needs 600 to be there; each takes 100.
            assert_eq!(report["admitted"], admitted);
            assert_eq!(report["dimensions"]["tokens"]["spent"], spent);
        }
    }

    #[tokio::test]
    async fn failures_are_charged_and_latency_delays_what_was_admitted() {
        let config = Config {
            limits: vec!["1/1h".parse().expect("a limit")],
            latency: Duration::from_millis(20),
            error_rate: "100%".parse().expect("a rate"),
            ..Config::default()
        };
        let service = Service::new(&config).expect("a service");
        let before = Instant::now();
        let failed = service.answer(Request::new(Body::empty())).await;
        assert!(failed.status().is_server_error() && before.elapsed() >= config.latency);
        let refused = service.answer(Request::new(Body::empty())).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(service.ledger.lock().report()["errors"], 1);
    }
}
