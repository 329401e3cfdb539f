//! `make demo`: the same file of requests, sent naively and through `paceline batch`, against a
//! server that counts a fixed window and against one that meters tokens.
//!
//! The naive client is what people write first: 16 workers, and retries with exponential backoff.

#![allow(clippy::print_stdout, clippy::print_stderr)] // An example shows its results.

use comfy_table::{CellAlignment, Table, presets};
use paceline_cli::sandbox::{Config, Family, Policy, Sandbox};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: usize = 16;
const RETRIES: u32 = 8;

/// A server and the file to send to it.
struct Run {
    name: &'static str,
    server: Config,
    /// The body of each request; `None` for a plain GET.
    requests: Vec<Option<Value>>,
}

/// One row of the result.
struct Figures {
    run: &'static str,
    client: &'static str,
    done: u64,
    rejected: u64,
    quota_used: f64,
    seconds: f64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut rows = Vec::new();
    for run in [fixed_window()?, token_bucket()?] {
        eprintln!("{}: {} requests, naively and paced …", run.name, run.requests.len());
        // Each client has a server of its own, so they can run at once.
        let (naive, paced) = tokio::try_join!(naive(&run), paced(&run))?;
        rows.extend([naive, paced]);
    }
    report(&rows)
}

/// Four windows of 300 requests, counted as GitHub does, and told as GitHub does.
fn fixed_window() -> Result<Run> {
    let server = Config {
        limits: vec!["300/3s".parse()?],
        policy: Policy::Fixed,
        headers: Family::Github,
        ..Config::default()
    };
    Ok(Run { name: "fixed window, 300 per 3 s", server, requests: vec![None; 1_200] })
}

/// Chat calls worth two full buckets of tokens, counted and told as OpenAI does.
fn token_bucket() -> Result<Run> {
    let server = Config {
        limits: vec!["600/10s".parse()?, "tokens=60000/10s".parse()?],
        policy: Policy::Bucket,
        headers: Family::Openai,
        ..Config::default()
    };
    let call = |i: usize| {
        let prompt = "word ".repeat(10 + i * 37 % 150);
        let messages = json!([{"role": "user", "content": prompt}]);
        Some(json!({"model": "gpt-4o", "messages": messages, "max_tokens": 50 + i * 53 % 250}))
    };
    Ok(Run { name: "tokens, 60000 per 10 s", server, requests: (0..440).map(call).collect() })
}

async fn naive(run: &Run) -> Result<Figures> {
    let sandbox = Sandbox::start(run.server.clone()).await?;
    let queue: VecDeque<_> = run.requests.iter().cloned().enumerate().collect();
    let (queue, client) = (Arc::new(Mutex::new(queue)), reqwest::Client::new());
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let workers = (0..WORKERS).map(|_| {
        let (queue, client, url) = (Arc::clone(&queue), client.clone(), sandbox.url());
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            while let Some((i, body)) = next(&queue).await {
                for attempt in 0..=RETRIES {
                    let request = match &body {
                        None => client.get(format!("{url}/items/{i}")),
                        Some(body) => client
                            .post(format!("{url}/v1/chat/completions"))
                            .header("content-type", "application/json")
                            .body(body.to_string()),
                    };
                    if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
                        done.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    let jitter = Duration::from_millis((i as u64 * 7_919) % 500);
                    tokio::time::sleep(Duration::from_millis(500 << attempt.min(3)) + jitter).await;
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    figures(run, "naive", &sandbox, done.load(Ordering::Relaxed), seconds).await
}

async fn next(queue: &Mutex<VecDeque<(usize, Option<Value>)>>) -> Option<(usize, Option<Value>)> {
    queue.lock().await.pop_front()
}

async fn paced(run: &Run) -> Result<Figures> {
    let sandbox = Sandbox::start(run.server.clone()).await?;
    let file = tempfile::Builder::new().suffix(".jsonl").tempfile()?;
    let mut text = String::new();
    for (i, body) in run.requests.iter().enumerate() {
        match body {
            None => writeln!(text, "{}/items/{i}", sandbox.url())?,
            Some(body) => {
                let url = format!("{}/v1/chat/completions", sandbox.url());
                writeln!(text, "{}", json!({"id": i, "url": url, "body": body}))?;
            }
        }
    }
    std::fs::write(file.path(), text)?;
    let output = file.path().with_extension("out");
    let started = Instant::now();
    let status = tokio::process::Command::new(paceline()?)
        .args(["batch", "--quiet", "--output"])
        .args([output.as_path(), file.path()])
        .status()
        .await?;
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("paceline batch failed: {status}").into());
    }
    let done = std::fs::read_to_string(&output)?.lines().count() as u64;
    std::fs::remove_file(&output)?;
    figures(run, "paceline", &sandbox, done, seconds).await
}

/// The binary that was built beside this example.
fn paceline() -> Result<PathBuf> {
    let example = std::env::current_exe()?;
    let directory = example.parent().and_then(Path::parent).ok_or("no build directory")?;
    Ok(directory.join("paceline"))
}

/// What the server counted.
async fn figures(
    run: &Run,
    client: &'static str,
    sandbox: &Sandbox,
    done: u64,
    seconds: f64,
) -> Result<Figures> {
    let text = reqwest::get(format!("{}/_sandbox", sandbox.url())).await?.text().await?;
    let report: Value = serde_json::from_str(&text)?;
    let rejected = report["refused"].as_u64().unwrap_or_default();
    let quota_used = report["quota_used"].as_f64().unwrap_or_default();
    Ok(Figures { run: run.name, client, done, rejected, quota_used, seconds })
}

fn report(rows: &[Figures]) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "run",
        "client",
        "requests done",
        "429s",
        "quota used",
        "time",
    ]);
    for row in rows {
        table.add_row([
            row.run.to_owned(),
            row.client.to_owned(),
            row.done.to_string(),
            row.rejected.to_string(),
            format!("{:.1} %", row.quota_used * 100.0),
            format!("{:.1} s", row.seconds),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    let json: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "run": row.run,
                "client": row.client,
                "done": row.done,
                "rejected": row.rejected,
                "quota_used": (row.quota_used * 1e4).round() / 1e4,
                "seconds": (row.seconds * 1e3).round() / 1e3,
            })
        })
        .collect();
    let target = paceline()?.with_file_name("..").join("demo.json");
    std::fs::write(&target, serde_json::to_string_pretty(&json)?)?;
    Ok(())
}
