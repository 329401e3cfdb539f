//! `cargo run --example with_octocrab`: octocrab paced by the limits that GitHub's headers tell.

#![allow(clippy::print_stdout)] // An example shows its results.

use futures_util::future::try_join_all;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::{AuthState, OctoBody, OctocrabBuilder};
use paceline::Limiter;
use paceline::tower::RateLimitLayer;
use paceline_cli::sandbox::{Config, Family, Sandbox};
use serde_json::Value;
use std::error::Error;
use std::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (limits, headers) = (vec!["100/3s".parse()?], Family::Github);
    let server = Sandbox::start(Config { limits, headers, ..Config::default() }).await?;

    let limiter = Limiter::builder().learn_first(true).build();
    // For api.github.com, the connector is one that speaks TLS.
    let client = Client::builder(TokioExecutor::new()).build_http::<OctoBody>();
    let github = OctocrabBuilder::new_empty()
        .with_service(client)
        .with_layer(&RateLimitLayer::new(limiter.clone()))
        // The limiter has to know the host, so what adds it stands above.
        .with_layer(&BaseUriLayer::new(server.url().parse()?))
        .with_auth(AuthState::None)
        .build()?;

    let begun = Instant::now();
    let calls = (1..=250).map(|issue| {
        let github = github.clone();
        async move {
            let route = format!("/repos/example/paced/issues/{issue}");
            github.get::<Value, _, _>(route, None::<&()>).await
        }
    });
    let answers = try_join_all(calls).await?;
    println!("{} answers in {:.1?}", answers.len(), begun.elapsed());
    for limit in limiter.status(&server.url())?.ok_or("nothing was learned")?.1.limits {
        println!("learned {}: {} left", limit.limit, limit.remaining.whole());
    }
    Ok(())
}
