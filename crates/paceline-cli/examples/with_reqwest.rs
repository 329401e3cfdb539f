//! `cargo run --example with_reqwest`: chat calls through reqwest, paced by requests and by tokens.
//!
//! Nothing is declared: one call goes first, and its answer tells the limits. What a call spends is
//! estimated from its body.

#![allow(clippy::print_stdout)] // An example shows its results.

use futures_util::future::try_join_all;
use paceline::reqwest::RateLimitMiddleware;
use paceline::{Cost, Limiter, Paced, llm};
use paceline_cli::sandbox::{Config, Family, Policy, Sandbox};
use reqwest_middleware::ClientBuilder;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = vec!["40/1s".parse()?, "tokens=4000/1s".parse()?];
    let (policy, headers) = (Policy::Bucket, Family::Openai);
    let server = Sandbox::start(Config { limits, policy, headers, ..Config::default() }).await?;

    let limiter = Limiter::builder().learn_first(true).build();
    let pace = RateLimitMiddleware::new(limiter).cost(|request| {
        let asked = request.body().and_then(llm::Request::read);
        asked.map_or(Cost::ONE, |asked| llm::Calibration::default().cost(&asked))
    });
    let client = ClientBuilder::new(reqwest::Client::new()).with(pace).build();
    let begun = Instant::now();
    let calls = (1..=100).map(|words| {
        let (client, url) = (client.clone(), format!("{}/v1/chat/completions", server.url()));
        async move {
            let prompt = "word ".repeat(words);
            let messages = json!([{"role": "user", "content": prompt}]);
            let body = json!({"model": "gpt-4o", "messages": messages, "max_tokens": 100});
            let response = client
                .post(url)
                .header("content-type", "application/json")
                .body(body.to_string())
                .send()
                .await?
                .error_for_status()?;
            let paced = response.extensions().get::<Paced>().ok_or("not paced")?.clone();
            response.bytes().await?;
            Ok::<_, Box<dyn Error>>(paced)
        }
    });
    let paced = try_join_all(calls).await?;
    let longest = paced.iter().map(|paced| paced.waited).max().unwrap_or_default();
    println!("{} calls in {:.1?}, the longest wait {longest:.1?}", paced.len(), begun.elapsed());

    let report = reqwest::get(format!("{}/_sandbox", server.url())).await?.text().await?;
    let report: Value = serde_json::from_str(&report)?;
    println!("the server refused {}", report["refused"]);
    Ok(())
}
