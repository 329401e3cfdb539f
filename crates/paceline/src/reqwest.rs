//! Pacing as a middleware of [reqwest](reqwest_middleware).
//!
//! ```no_run
//! use paceline::reqwest::RateLimitMiddleware;
//! use paceline::{Amount, Cost, Limit, Limiter, Paced};
//! use reqwest_middleware::ClientBuilder;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder().build();
//! limiter.set_limit("api.example.com", Limit::parse("60/1m")?)?;
//! limiter.set_limit("api.example.com", Limit::parse("tokens=90000/1m")?)?;
//!
//! let client = ClientBuilder::new(reqwest::Client::new())
//!     .with(RateLimitMiddleware::new(limiter))
//!     .build();
//! let cost = Cost::ONE.with("tokens", Amount::units(1_500))?;
//! let response = client.post("https://api.example.com/chat").with_extension(cost).send().await?;
//!
//! let paced = response.extensions().get::<Paced>().expect("a paced response");
//! println!("waited {:?}, {} attempts", paced.waited, paced.attempts);
//! paced.settle(&[("tokens", 842.0)])?; // the answer was shorter than feared
//! # Ok(()) }
//! ```
//!
//! What takes a service, such as async-openai's `Client::with_http_service`, takes one that executes the
//! request on such a client.
//!
//! A client that follows redirects by itself takes one permit for all hops. To pace each, have it
//! follow none (`reqwest::redirect::Policy::none()`), or use
//! `tower_http::follow_redirect` above a `paceline::tower::RateLimitLayer`.

use crate::http::{Incoming, Outgoing, Paced, Pacing};
use crate::retry::RetryConfig;
use crate::{Cost, Limiter};
use http::{Extensions, HeaderMap, Method, StatusCode};
use reqwest::{Body, Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use std::borrow::Cow;

impl Outgoing for Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn url(&self) -> Cow<'_, str> {
        self.url().as_str().into()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn body(&self) -> Option<&[u8]> {
        self.body().and_then(Body::as_bytes)
    }

    fn extensions(&self) -> Option<&Extensions> {
        None
    }
}

impl Incoming for Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn url(&self) -> Option<&str> {
        Some(self.url().as_str())
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}

/// Paces every request of a client, and sends it again if need be. Clones share the limiter.
///
/// The response is handed back unread, with [`Paced`] in its extensions. Dropping the
/// future before the request is sent gives everything back.
///
/// What stands in the way of a permit is a [`paceline::Error`](crate::Error) in
/// [`Error::Middleware`], which it downcasts to.
#[derive(Debug, Clone)]
pub struct RateLimitMiddleware {
    pacing: Pacing,
    retry: RetryConfig,
}

impl RateLimitMiddleware {
    /// By that limiter, each request spending one request and nothing else, with the usual retries.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { pacing: Pacing::new(limiter), retry: RetryConfig::default() }
    }

    /// Each request spends what `cost` says, unless it comes with a [`Cost`]
    /// ([`with_extension`](reqwest_middleware::RequestBuilder::with_extension)).
    ///
    /// ```
    /// use paceline::{Cost, Limiter, llm, reqwest::RateLimitMiddleware};
    ///
    /// // The tokens of an LLM call; anything else spends one request.
    /// let middleware = RateLimitMiddleware::new(Limiter::builder().build()).cost(|request| {
    ///     let asked = request.body().and_then(llm::Request::read);
    ///     asked.map_or(Cost::ONE, |asked| llm::Calibration::default().cost(&asked))
    /// });
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&dyn Outgoing) -> Cost + Send + Sync + 'static) -> Self {
        self.pacing = self.pacing.cost(cost);
        self
    }

    /// Each request counts for that account, apart from others at the same endpoint; see
    /// [`Call::account`](crate::Call::account).
    #[must_use]
    pub fn account(mut self, account: &str) -> Self {
        self.pacing = self.pacing.account(account);
        self
    }

    /// What to send again, and when. A body that is a stream is sent once.
    #[must_use]
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }
}

#[async_trait::async_trait]
impl Middleware for RateLimitMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        loop {
            let admitted = self.pacing.admit(&request, Some(extensions));
            let mut flight = admitted.await.map_err(Error::middleware)?;
            let spare = request.try_clone();
            flight.leaves();
            let mut response = match next.clone().run(request, extensions).await {
                Ok(response) => response,
                Err(error) => {
                    match &error {
                        Error::Reqwest(error) => flight.failed(error),
                        Error::Middleware(error) => flight.failed(error.as_ref()),
                    }
                    return Err(error);
                }
            };
            flight.answered(&mut response);
            let (Some(spare), Some(mut paced)) =
                (spare, response.extensions().get::<Paced>().cloned())
            else {
                return Ok(response);
            };
            let Some(pause) = paced.again(&self.retry, &spare, response.status()) else {
                return Ok(response);
            };
            drop(response);
            // The next attempt goes on from here.
            extensions.insert(paced);
            tokio::time::sleep(pause).await;
            request = spare;
        }
    }
}
