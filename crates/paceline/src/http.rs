//! The life of an HTTP request, whatever client sends it: wait for a permit, send, learn from the
//! answer, and again if need be.
//!
//! `paceline::tower` and `paceline::reqwest` are thin adapters on it. A client of your own goes through
//! the same steps:
//!
//! ```
//! use paceline::http::Pacing;
//! use paceline::{Error, Limiter};
//!
//! # fn send(_: http::Request<()>) -> std::io::Result<http::Response<()>> { Ok(http::Response::new(())) }
//! async fn paced(pacing: &Pacing, request: http::Request<()>) -> Result<http::Response<()>, Error> {
//!     let mut flight = pacing.admit(&request, Some(request.extensions())).await?;
//!     flight.leaves();
//!     let mut response = send(request).expect("an answer");
//!     flight.answered(&mut response);
//!     Ok(response)
//! }
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let pacing = Pacing::new(Limiter::builder().build());
//! let request = http::Request::get("https://api.example.com/items").body(())?;
//! paced(&pacing, request).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::headers::Detector;
use crate::retry::{Outcome, RetryConfig};
use crate::sync::Mutex;
use crate::{Call, Cause, Cost, Error, Limiter, Permit, Reading, Refused, Scope, headers};
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What has to be known of a client's request.
pub trait Outgoing {
    /// Its method.
    fn method(&self) -> &Method;

    /// Where to, as an absolute URL.
    fn url(&self) -> Cow<'_, str>;

    /// Its headers.
    fn headers(&self) -> &HeaderMap;

    /// Its body, where the client holds that whole and shows it.
    fn body(&self) -> Option<&[u8]> {
        None
    }

    /// What its sender attached to it, where the client has a place for that.
    fn extensions(&self) -> Option<&Extensions>;
}

/// What has to be known of a client's response. The body is none of it.
pub trait Incoming {
    /// Its status.
    fn status(&self) -> StatusCode;

    /// Its headers.
    fn headers(&self) -> &HeaderMap;

    /// Where it came from in the end, if the client may have followed redirects by itself.
    fn url(&self) -> Option<&str> {
        None
    }

    /// What comes with it.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

impl<B> Outgoing for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn url(&self) -> Cow<'_, str> {
        self.uri().to_string().into()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(self.extensions())
    }
}

impl<B> Incoming for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}

/// How the requests of one client are paced. Clones share the limiter.
#[derive(Clone)]
pub struct Pacing {
    limiter: Limiter,
    cost: Arc<CostOf>,
    account: Option<Arc<str>>,
}

type CostOf = dyn Fn(&dyn Outgoing) -> Cost + Send + Sync;

impl fmt::Debug for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacing").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

impl Pacing {
    /// By that limiter, each request spending one request and nothing else.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter, cost: Arc::new(|_| Cost::ONE), account: None }
    }

    /// Each request spends what `cost` says, unless a [`Cost`] is attached to it.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&dyn Outgoing) -> Cost + Send + Sync + 'static) -> Self {
        self.cost = Arc::new(cost);
        self
    }

    /// Each request counts for that account; see [`Call::account`].
    #[must_use]
    pub fn account(mut self, account: &str) -> Self {
        self.account = Some(account.into());
        self
    }

    /// Waits until a request may be sent. `extensions` is what its sender attached to it: a [`Cost`],
    /// and the [`Paced`] of an earlier attempt. Dropping the future gives everything back.
    ///
    /// # Errors
    /// The future gives [`Error::Refused`] at once when all waits for this request together would be
    /// longer than the limiter's `max_wait`, and [`Error::Invalid`] for a URL without a host.
    pub fn admit(
        &self,
        request: &dyn Outgoing,
        extensions: Option<&Extensions>,
    ) -> impl Future<Output = Result<Flight, Error>> + Send + use<> {
        let (limiter, account) = (self.limiter.clone(), self.account.clone());
        let url = request.url().into_owned();
        let cost = extensions.and_then(|it| it.get::<Cost>().cloned());
        let cost = cost.unwrap_or_else(|| (self.cost)(request));
        let before = extensions.and_then(|it| it.get::<Paced>().cloned());
        async move {
            let most = limiter.inner.max_wait;
            let (waited, attempts) =
                before.as_ref().map_or((Duration::ZERO, 0), |it| (it.waited, it.attempts));
            let left = most.map(|most| most.saturating_sub(waited));
            if let Some(before) = before
                && let (Some(told), Some(left)) = (before.reading.retry_after, left)
                && told > left
            {
                // A hold may be shorter than what the server said; that is told in full.
                let (scope, by) = (before.scope, Cause::Hold);
                return Err(Refused { scope, by, retry_after: told }.into());
            }
            let mut call = Call::to(&url).costing(cost);
            (call.max_wait, call.account) = (left, account.as_deref());
            let mut permit = limiter.acquire(call).await?;
            if attempts > 0 {
                permit.again();
            }
            let waited = waited + permit.waited();
            Ok(Flight { limiter, permit, url, waited, attempts: attempts + 1 })
        }
    }
}

/// A request that may be sent, or is under way. Dropped before it [`leaves`](Self::leaves), it gives
/// everything back; later its cost stands.
#[derive(Debug)]
#[must_use = "a flight that is dropped before it leaves is given back"]
pub struct Flight {
    limiter: Limiter,
    permit: Permit,
    url: String,
    waited: Duration,
    attempts: u32,
}

impl Flight {
    /// The request is handed to whatever sends it: from now on it may have left.
    pub fn leaves(&mut self) {
        self.permit.sent();
    }

    /// No answer came. What was never sent is given back, as far as the error shows that.
    pub fn failed(mut self, error: &(dyn std::error::Error + 'static)) {
        if never_left(error) {
            self.permit.cancel();
        } else {
            self.permit.failed();
        }
    }

    /// Learns from an answer, and leaves [`Paced`] in its extensions.
    pub fn answered(self, response: &mut dyn Incoming) {
        let Self { limiter, mut permit, url, waited, attempts } = self;
        let now = Duration::from_micros(limiter.inner.clock.wall_micros());
        let from = response.url().unwrap_or(&url);
        let reading = read(&limiter.detector(), response, from, now);
        let told = share_a_host(from, &url);
        if response.status().is_server_error() {
            permit.failed();
        }
        if told {
            // A store that is away has said so, and the answer is there all the same.
            drop(permit.answered(from, &reading));
        } else {
            permit.close();
        }
        let scope = permit.scope();
        let held = told && reading.retry_after.is_some();
        let permit = Arc::new(Mutex::new(permit));
        let paced = Paced { waited, scope, attempts, reading, held, limiter, permit };
        response.extensions_mut().insert(paced);
    }
}

/// What pacing did to a request: in the extensions of its response.
///
/// ```
/// # use paceline::{Paced, Limiter, http::Pacing};
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let request = http::Request::get("https://api.example.com/chat").body(())?;
/// # let mut response = http::Response::new(());
/// # let flight = Pacing::new(Limiter::builder().build()).admit(&request, None).await?;
/// # flight.answered(&mut response);
/// let paced = response.extensions().get::<Paced>().expect("a paced response");
/// println!("{} waited {:?}, {} attempts", paced.scope, paced.waited, paced.attempts);
/// // The body says what was really spent.
/// paced.settle(&[("tokens", 842.0)])?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Paced {
    /// How long it waited in all, for permits and between attempts.
    pub waited: Duration,
    /// The scope that was charged, such as `https://api.example.com`.
    pub scope: String,
    /// How often it was sent.
    pub attempts: u32,
    /// What the response asserted.
    pub reading: Reading,
    /// Whether the scope is held for as long as the server said.
    held: bool,
    limiter: Limiter,
    permit: Arc<Mutex<Permit>>,
}

impl Paced {
    /// Corrects the estimate to what the last attempt really spent, more or less; other dimensions
    /// stand.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a dimension or amount that is none.
    pub fn settle(&self, actual: &[(&str, f64)]) -> Result<(), Error> {
        self.permit.lock().settle(actual)
    }

    /// The pause before `request`, which was answered with `status`, is sent again; it is then part of
    /// the wait. `None` when the answer is to be handed back.
    pub fn again(
        &mut self,
        retry: &RetryConfig,
        request: &dyn Outgoing,
        status: StatusCode,
    ) -> Option<Duration> {
        if self.reading.spent {
            return None;
        }
        // Whoever was told to wait is paced by that, and multiplies nothing.
        let counted = status != StatusCode::TOO_MANY_REQUESTS;
        let outcome = Outcome {
            method: request.method().as_str(),
            keyed: request.headers().contains_key("idempotency-key"),
            status: status.as_u16(),
            retry_after: self.reading.retry_after,
            attempt: self.attempts.saturating_sub(1),
        };
        let pause = retry.pause(&outcome, fastrand::f64())?;
        if counted && !self.limiter.may_retry(retry.budget) {
            return None;
        }
        if self.held {
            // The wait for the next permit is the pause.
            return Some(Duration::ZERO);
        }
        let waited = self.waited + pause;
        if self.limiter.inner.max_wait.is_some_and(|most| waited > most) {
            return None;
        }
        self.waited = waited;
        Some(pause)
    }
}

/// What a response says of limits; `now` is the time since the Unix epoch.
fn read(detector: &Detector, response: &dyn Incoming, url: &str, now: Duration) -> Reading {
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    // The body belongs to the caller, who may want it as a stream.
    headers::detect(
        detector,
        headers::Response { status, url: Some(url), now, headers, body: None },
    )
}

/// Whether a response from `from` speaks of the host that `url` names: a client that follows redirects
/// by itself may bring the answer of another.
fn share_a_host(from: &str, url: &str) -> bool {
    let (Ok(from), Ok(url)) = (Scope::parse(from), Scope::parse(url)) else { return false };
    from.host() == url.host()
}

/// Whether an error shows that the request was never sent: there was no connection, or a limit
/// beneath refused it. Anything else may have happened after it had left.
#[must_use]
pub fn never_left(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        #[cfg(feature = "reqwest")]
        if cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_builder) {
            return true;
        }
        let hyper = cause.downcast_ref::<hyper_util::client::legacy::Error>();
        hyper.is_some_and(hyper_util::client::legacy::Error::is_connect) || cause.is::<Error>()
    })
}
