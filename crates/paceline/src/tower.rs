//! Pacing as a [`tower::Layer`], for any service that sends HTTP requests.
//!
//! ```no_run
//! use http_body_util::Empty;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use paceline::tower::{RateLimitLayer, Retry};
//! use paceline::{Limit, Limiter, Paced};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main] async fn main() -> Result<(), tower::BoxError> {
//! let limiter = Limiter::builder().build();
//! limiter.set_limit("http://api.example.com", Limit::parse("60/1m")?)?;
//!
//! let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
//! let mut client = ServiceBuilder::new()
//!     .retry(Retry::default()) // above the layer, so that every attempt takes a permit
//!     .layer(RateLimitLayer::new(limiter))
//!     .service(client);
//!
//! let request = http::Request::get("http://api.example.com/items").body(Empty::new())?;
//! let response = client.ready().await?.call(request).await?;
//! println!("{:?}", response.extensions().get::<Paced>());
//! # Ok(()) }
//! ```
//!
//! Whatever stands above the layer and sends several requests, such as retries and redirects
//! (`tower_http::follow_redirect`), takes a permit for each. What stands above sees the response as soon
//! as its head is there; bodies pass through as they are.

use crate::http::{Incoming, Outgoing, Paced, Pacing};
use crate::retry::RetryConfig;
use crate::{Cost, Limiter};
use http::Request;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::retry::Policy;
use tower::{BoxError, Layer, Service};

/// Paces every request that passes through. Clones, and the services made of them, share the limiter.
///
/// A request needs an absolute URL, so what adds the host belongs above it. It waits in the future that
/// [`call`](Service::call) gives; readiness is that of the service beneath. Dropping the future before
/// the request is handed on gives everything back.
///
/// The response's extensions hold [`Paced`]. Errors are those of the service beneath, and
/// [`paceline::Error`](crate::Error), which they downcast to.
#[derive(Debug, Clone)]
pub struct RateLimitLayer {
    pacing: Pacing,
}

impl RateLimitLayer {
    /// By that limiter, each request spending one request and nothing else.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { pacing: Pacing::new(limiter) }
    }

    /// Each request spends what `cost` says, unless its extensions hold a [`Cost`].
    ///
    /// ```
    /// use paceline::{Amount, Cost, Limiter, tower::RateLimitLayer};
    ///
    /// let search = Cost::ONE.with("points", Amount::units(5))?;
    /// let layer = RateLimitLayer::new(Limiter::builder().build())
    ///     .cost(move |request| match request.url().contains("/search") {
    ///         true => search.clone(),
    ///         false => Cost::ONE,
    ///     });
    ///
    /// // This one is known to be worth more.
    /// let mut request = http::Request::post("https://api.example.com/chat").body(())?;
    /// request.extensions_mut().insert(Cost::ONE.with("tokens", Amount::units(1_500))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
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
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, pacing: self.pacing.clone() }
    }
}

/// A service whose requests are paced: what [`RateLimitLayer`] makes.
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    inner: S,
    pacing: Pacing,
}

impl<S, Req> Service<Req> for RateLimit<S>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Incoming + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
    Req: Outgoing + Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let clone = self.inner.clone();
        // The one that is ready, and not its clone, which may not be.
        let mut inner = mem::replace(&mut self.inner, clone);
        let admitted = self.pacing.admit(&request, request.extensions());
        Box::pin(async move {
            let mut flight = admitted.await?;
            flight.leaves();
            match inner.call(request).await {
                Ok(mut response) => {
                    flight.answered(&mut response);
                    Ok(response)
                }
                Err(error) => {
                    let error = error.into();
                    flight.failed(&*error);
                    Err(error)
                }
            }
        })
    }
}

/// When to send again, for [`tower::ServiceBuilder::retry`] above a [`RateLimitLayer`]: it goes by what
/// that layer read from the response, and what that layer has not paced is not sent again.
///
/// A request is sent again as its clone. That of a body must have the whole body, which octocrab's does
/// not: there, use octocrab's own retries above the layer.
#[derive(Debug, Clone, Default)]
pub struct Retry {
    config: RetryConfig,
}

impl Retry {
    /// As `config` says.
    #[must_use]
    pub const fn new(config: RetryConfig) -> Self {
        Self { config }
    }
}

impl<B: Clone, R: Incoming, E> Policy<Request<B>, R, E> for Retry {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<R, E>,
    ) -> Option<Self::Future> {
        let response = result.as_mut().ok()?;
        let status = response.status();
        let mut paced = response.extensions_mut().get::<Paced>()?.clone();
        let pause = paced.again(&self.config, request, status)?;
        // The next attempt goes on from here.
        request.extensions_mut().insert(paced);
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}
