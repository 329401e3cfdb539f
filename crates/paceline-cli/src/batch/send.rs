//! The life of one request: wait, send, learn, and again if need be.

use super::input::{Body, Request};
use super::output::{Record, body_of, headers_of};
use paceline::retry::{Outcome, RetryConfig};
use paceline::{Call, Error, Limiter, Permit, headers};
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// A longer answer is not kept: it may never end.
const LONGEST_BODY: usize = 256 << 20;
/// As many hops as browsers follow.
const MAX_REDIRECTS: u32 = 10;

/// What all requests of a batch share.
pub(super) struct Sender {
    pub(super) client: reqwest::Client,
    pub(super) limiter: Limiter,
    pub(super) retry: RetryConfig,
    /// Credentials and other headers that every request carries.
    pub(super) headers: HeaderMap,
    pub(super) keep_headers: bool,
    /// Bounds what is in flight where no limit does.
    pub(super) unlimited: Semaphore,
    /// Turns true when the user asks to stop.
    pub(super) stop: watch::Receiver<bool>,
    pub(super) rejected: AtomicU64,
}

/// How an attempt ended.
enum Attempt {
    Answered(Response),
    /// It never left.
    Unsent(reqwest::Error),
    /// It left, and nothing usable came back.
    Lost(reqwest::Error),
}

impl Sender {
    /// Sends a request until it has an answer to keep. `None` when the batch was stopped before.
    pub(super) async fn send(self: &Arc<Self>, mut request: Request) -> Option<Record> {
        let mut record = Record::of(&request);
        let mut redirects = 0;
        loop {
            let mut permit = match self.permit(&request).await? {
                Ok(permit) => permit,
                Err(error) => {
                    record.error = Some(error.to_string());
                    return Some(record);
                }
            };
            record.wait(permit.waited());
            // Where no limit paces, a bound on what is in flight keeps us from flooding the host.
            let _slot = if permit.is_paced() { None } else { Some(self.slot().await?) };
            record.attempts += 1;
            record.error = None;
            let attempt = self.attempt(&request, &mut permit).await;
            let (status, told, error) = match attempt {
                Attempt::Answered(response) => {
                    let status = response.status();
                    let reading = observe(&response, &mut permit);
                    self.rejected.fetch_add(u64::from(reading.rejected), Ordering::Relaxed);
                    if let Some(next) = hop(&request, &response) {
                        redirects += 1;
                        if redirects <= MAX_REDIRECTS {
                            request = next;
                            continue;
                        }
                        record.error = Some(format!("more than {MAX_REDIRECTS} redirects"));
                        record.status = Some(status.as_u16());
                        return Some(record);
                    }
                    let told = reading.rejected.then_some(Duration::ZERO).or(reading.retry_after);
                    match self.keep(&mut record, response).await {
                        // A quota that is spent does not come back by asking again (rule 25).
                        Ok(()) if is_spent(&record) => (0, None, None),
                        Ok(()) => (status.as_u16(), told, None),
                        Err(error) => (status.as_u16(), None, Some(error)),
                    }
                }
                Attempt::Unsent(error) => {
                    permit.cancel();
                    (503, None, Some(error))
                }
                // A connection that was idle for too long, most of the time: worth another attempt if
                // that repeats no effect.
                Attempt::Lost(error) if request.method.is_idempotent() && !error.is_timeout() => {
                    (503, None, Some(error))
                }
                Attempt::Lost(error) => (0, None, Some(error)),
            };
            if let Some(error) = error {
                record.error = Some(describe(&error));
            }
            let outcome = Outcome {
                method: request.method.as_str(),
                keyed: request.headers.contains_key("idempotency-key"),
                status,
                // A rejection holds the whole scope, so the wait for a new permit is the pause.
                retry_after: told,
                attempt: record.attempts - 1,
            };
            let Some(pause) = self.retry.pause(&outcome, random()) else { return Some(record) };
            // Whoever was told to wait is paced by that, and multiplies nothing.
            if told.is_none() && !self.limiter.may_retry(self.retry.budget) {
                return Some(record);
            }
            self.pause(pause).await?;
        }
    }

    /// Waits for a permit; `None` when the batch was stopped meanwhile.
    ///
    /// A storage that nothing may be sent without is tried again like any server.
    async fn permit(&self, request: &Request) -> Option<Result<Permit, Error>> {
        let mut stop = self.stop.clone();
        let mut away = 0;
        loop {
            let call = Call::to(request.url.as_str()).costing(request.cost.clone());
            let permit = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return None,
                permit = self.limiter.acquire(call) => permit,
            };
            if !matches!(permit, Err(Error::Unavailable(_))) {
                return Some(permit);
            }
            let method = request.method.as_str();
            // It was never sent.
            let outcome =
                Outcome { method, keyed: true, status: 503, retry_after: None, attempt: away };
            match self.retry.pause(&outcome, random()) {
                Some(pause) => self.pause(pause).await?,
                None => return Some(permit),
            }
            away += 1;
        }
    }

    /// A place among those that are in flight where no limit is known; `None` when the batch was
    /// stopped meanwhile.
    async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => None,
            slot = self.unlimited.acquire() => slot.ok(),
        }
    }

    async fn pause(&self, pause: Duration) -> Option<()> {
        let mut stop = self.stop.clone();
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            () = tokio::time::sleep(pause) => Some(()),
        }
    }

    async fn attempt(&self, request: &Request, permit: &mut Permit) -> Attempt {
        let mut headers = if request.foreign { HeaderMap::new() } else { self.headers.clone() };
        for (name, value) in &request.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut builder = self.client.request(request.method.clone(), request.url.clone());
        match &request.body {
            Some(Body::Json(raw)) => {
                if !headers.contains_key(CONTENT_TYPE) {
                    builder = builder.header(CONTENT_TYPE, "application/json");
                }
                builder = builder.body(raw.get().to_owned());
            }
            Some(Body::Text(text)) => builder = builder.body(text.clone()),
            None => {}
        }
        match builder.headers(headers).send().await {
            Ok(response) => Attempt::Answered(response),
            Err(error) if error.is_connect() || error.is_builder() => Attempt::Unsent(error),
            Err(error) => {
                permit.sent();
                Attempt::Lost(error)
            }
        }
    }

    /// Takes the answer into the record.
    async fn keep(
        &self,
        record: &mut Record,
        mut response: Response,
    ) -> Result<(), reqwest::Error> {
        record.status = Some(response.status().as_u16());
        record.headers = self.keep_headers.then(|| headers_of(response.headers()));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > LONGEST_BODY {
                record.error =
                    Some(format!("the answer is longer than {} MiB", LONGEST_BODY >> 20));
                return Ok(());
            }
            body.extend_from_slice(&chunk);
        }
        record.body = body_of(&body);
        Ok(())
    }
}

/// Teaches the limiter what the response says of limits.
fn observe(response: &Response, permit: &mut Permit) -> paceline::Reading {
    let headers = response
        .headers()
        .iter()
        .filter_map(|(name, value)| value.to_str().ok().map(|value| (name.as_str(), value)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (status, url) = (response.status().as_u16(), Some(response.url().as_str()));
    let said = headers::Response { status, url, now, headers, body: None };
    let reading = headers::detect(&permit.detector(), said);
    // A storage that is away has said so, and the answer is there all the same.
    drop(permit.answered(response.url().as_str(), &reading));
    reading
}

/// The next hop, as RFC 9110 §15.4 has it; `None` where there is none.
fn hop(request: &Request, response: &Response) -> Option<Request> {
    let target = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = request.url.join(target).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let mut next = request.clone();
    match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if request.method != Method::POST => {}
        StatusCode::SEE_OTHER if request.method == Method::HEAD => {}
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
            (next.method, next.body) = (Method::GET, None);
        }
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {}
        _ => return None,
    }
    if url.origin() != request.url.origin() {
        // Any header may be a credential there.
        next.headers.clear();
        next.foreign = true;
    }
    next.url = url;
    Some(next)
}

/// Whether an error says that the account has nothing left: OpenAI's `insufficient_quota`.
fn is_spent(record: &Record) -> bool {
    let failed = record.status.is_some_and(|status| status >= 400);
    let code = |body: &RawValue| {
        let body: Value = serde_json::from_str(body.get()).ok()?;
        let error = body.get("error")?;
        let is = |name: &str| error.get(name).and_then(Value::as_str) == Some("insufficient_quota");
        Some(is("code") || is("type"))
    };
    failed && record.body.as_deref().and_then(code).unwrap_or(false)
}

/// The error and what caused it, without the URL, which may hold a secret.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    let mut text = match () {
        () if error.is_timeout() => "timed out".to_owned(),
        () if error.is_connect() => "cannot connect".to_owned(),
        () => "no usable answer".to_owned(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A number from 0 to 1 for the jitter: it spreads retries, and need not be a good one.
fn random() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    f64::from(nanos % 1_000_003) / 1_000_003.0
}
