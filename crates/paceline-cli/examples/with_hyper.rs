//! `cargo run --example with_hyper`: hyper-util's client beneath a tower layer, at a declared limit.

#![allow(clippy::print_stdout)] // An example shows its results.

use axum::http::Request;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use paceline::tower::{RateLimitLayer, Retry};
use paceline::{Limit, Limiter, Paced};
use paceline_cli::sandbox::{Config, Family, Sandbox};
use std::time::{Duration, Instant};
use tower::{BoxError, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (limits, headers) = (vec!["50/1s".parse()?], Family::Ietf);
    let server = Sandbox::start(Config { limits, headers, ..Config::default() }).await?;

    let limiter = Limiter::builder().max_wait(Duration::from_secs(30)).build();
    limiter.set_limit(&server.url(), Limit::parse("50/1s")?)?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
    let client = ServiceBuilder::new()
        .retry(Retry::default())
        .layer(RateLimitLayer::new(limiter))
        .service(client);

    let begun = Instant::now();
    let calls = (0..200).map(|i| {
        let request = Request::get(format!("{}/items/{i}", server.url())).body(Empty::new());
        let client = client.clone();
        async move {
            let response = client.oneshot(request?).await?;
            let paced = response.extensions().get::<Paced>().ok_or("not paced")?.clone();
            response.into_body().collect().await?;
            Ok::<_, BoxError>(paced.attempts)
        }
    });
    let attempts = try_join_all(calls).await?;
    let again = attempts.iter().filter(|attempts| **attempts > 1).count();
    println!("{} requests in {:.1?}, {again} sent again", attempts.len(), begun.elapsed());
    Ok(())
}
