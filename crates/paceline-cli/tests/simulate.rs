//! What is foretold, on the command line and beside what really happens.

use paceline::reqwest::RateLimitMiddleware;
use paceline::simulate::{Arrivals, Past, Server, Simulation, Spend, Tells};
use paceline::{Amount, Cost, Dimension, Error, Limit, Limiter, Window};
use paceline_cli::sandbox::{Config, Family, LimitSpec, Policy as Counts, Sandbox};
use paceline_core::provider;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn paceline(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("simulate").args(args).output().expect("it runs")
}

fn told(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_slice(&paceline(&args).stdout).expect("JSON")
}

#[test]
fn a_thousand_calls_of_two_thousand_tokens_take_nineteen_minutes() {
    let said = ["--rpm", "4410", "--tpm", "100000", "--requests", "1000", "--avg-tokens", "2000"];
    let shown = String::from_utf8(paceline(&said).stdout).expect("text");
    assert!(shown.starts_with("finished    19m\n"), "{shown}");
    assert!(shown.contains("binding     tokens=100000/1m"), "{shown}");
    assert!(shown.contains("sent          █"), "{shown}");
    let told = told(&said);
    assert_eq!((&told["finished"], &told["binding"]), (&1140.0.into(), &"tokens=100000/1m".into()));
    assert_eq!(told["limits"][1]["used"], 1.0);
    assert_eq!(told["timeline"]["slots"].as_array().map(Vec::len).unwrap_or_default() / 256, 1);
}

#[test]
fn the_exit_status_tells_whether_everything_is_answered() {
    assert_eq!(paceline(&["--rpm", "60"]).status.code(), Some(0));
    assert_eq!(paceline(&["--rpm", "60", "--on-rate-limit", "raise"]).status.code(), Some(1));
    for (said, why) in [
        (&["--requests", "0"][..], "requests must be from 1"),
        (&["--arrivals", "10"], "expected at-once"),
        (&["--cost", "tokens=9..1"], "bad cost 9..1"),
        (&["--burst", "5", "--limit", "1/1s", "--limit", "2/1m"], "--burst goes with"),
        (&["--rpm", "60", "--limit", "5/1m"], "two limits on requests per 1m"),
        (&["--tells", "github"], "--server"),
        (&["--server", "fixed"], "without limits"),
        (&["--limit", "1/365d", "--requests", "500"], "more than 100 years"),
        (&["--replay", "/nowhere"], "cannot read /nowhere"),
        (&["--latency", "soon"], "is not a time"),
    ] {
        let output = paceline(said);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_file_of_past_requests_is_replayed_and_a_bad_line_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a path");
    let lines = [
        r#"{"time": "2026-03-01T12:00:10Z", "cost": {"tokens": 400}, "latency": 0.5, "other": 1}"#,
        r#"{"time": "2026-03-01T12:00:00Z", "tokens": 800}"#,
    ];
    fs::write(path, lines.join("\n")).expect("written");
    let told = told(&["--replay", path, "--tpm", "1000", "--marks", "9"]);
    // 800 of 1,000 spent; after ten seconds 167 came back, and 33 are still to come: two seconds.
    assert_eq!(told["marks"][1]["at"], 12.0);
    assert_eq!(told["finished"], 12.5);
    for (line, why) in [
        (r#"{"tokens": 5}"#, "missing field `time`"),
        (r#"{"time": "noon"}"#, "expected a number of seconds or an RFC 3339 time"),
        (r#"{"time": 1, "tokens": -5}"#, "bad cost -5"),
        (r#"{"time": 1, "latency": -1}"#, "latency must be"),
    ] {
        fs::write(path, format!("{}\n\n{line}", lines[1])).expect("written");
        let output = paceline(&["--replay", path]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("line 3: ") && error.contains(why), "{error}");
    }
}

/// A simulation, and the server that it foretells.
#[derive(Clone)]
struct Shape {
    name: &'static str,
    /// What a request spends of them.
    tokens: u64,
    plan: Simulation,
}

fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| Limit::parse(text).expect("a limit")).collect()
}

fn plan(texts: &[&str], requests: u64) -> Simulation {
    let latency = Duration::from_millis(10);
    Simulation { limits: limits(texts), requests, latency, marks: 10_000, ..Simulation::default() }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn two_seconds() -> Window {
    Window::parse("2s").expect("a window")
}

fn server(counts: Counts, tells: Tells, units: u64) -> Option<Server> {
    let limit = provider::Limit::new(units, Duration::from_secs(2)).expect("a limit");
    let limits = vec![(Dimension::Requests, limit)];
    Some(Server { counts, limits, tells, strangers: 0, refusals_cost: false })
}

fn learned(counts: Counts, tells: Tells, requests: u64) -> Simulation {
    let mut plan = Simulation { server: server(counts, tells, 50), ..plan(&[], requests) };
    plan.policy.learn_first = true;
    plan
}

fn past() -> Arrivals {
    let past = (0..150_u64).map(|i| Past {
        after: millis(i * i * 2 / 9),
        cost: Cost::ONE.with("tokens", Amount::units(i % 7 * 100)).expect("a cost"),
        latency: Some(millis(10)),
    });
    Arrivals::Replay(past.collect())
}

fn shapes() -> Vec<Shape> {
    let with_burst =
        |text: &str, burst| vec![limits(&[text]).remove(0).with_burst(burst).expect("a burst")];
    let strict = |text: &str| vec![limits(&[text]).remove(0).strict().expect("strict")];
    let slow = |workers| Simulation { workers, latency: millis(400), ..plan(&["100/2s"], 150) };
    let coming = |arrivals, requests| Simulation { arrivals, ..plan(&["50/2s"], requests) };
    let all = [
        ("a batch at a limit of requests", 0, plan(&["50/2s"], 250)),
        ("tokens bind", 100, plan(&["90/2s", "tokens=4000/2s"], 200)),
        ("requests bind", 10, plan(&["40/2s", "tokens=4000/2s"], 200)),
        ("two limits on one dimension", 0, plan(&["60/2s", "150/8s"], 280)),
        ("one after the other", 0, Simulation { limits: with_burst("10/2s", 1), ..plan(&[], 40) }),
        ("a small burst", 0, Simulation { limits: with_burst("40/2s", 10), ..plan(&[], 170) }),
        ("strict", 0, Simulation { limits: strict("50/2s"), ..plan(&[], 230) }),
        ("workers bind", 0, slow(6)),
        ("workers do not bind", 0, Simulation { requests: 450, ..slow(60) }),
        ("one worker", 0, Simulation { workers: 1, latency: millis(200), ..plan(&["100/2s"], 40) }),
        ("steady, below the limit", 0, coming(Arrivals::Steady(40, two_seconds()), 160)),
        ("steady, above the limit", 0, coming(Arrivals::Steady(80, two_seconds()), 250)),
        ("at random", 0, coming(Arrivals::Poisson(60, two_seconds()), 240)),
        ("in bursts", 0, coming(Arrivals::Bursts(70, two_seconds()), 280)),
        (
            "as it once came",
            0,
            Simulation { arrivals: past(), ..plan(&["50/2s", "tokens=20000/2s"], 150) },
        ),
        ("two keys", 0, Simulation { keys: 2, ..plan(&["25/2s"], 250) }),
        (
            "not longer than",
            0,
            Simulation {
                max_wait: Some(millis(600)),
                workers: 40,
                ..coming(Arrivals::Bursts(100, two_seconds()), 400)
            },
        ),
        ("a jittery way", 0, Simulation { jitter: millis(40), ..plan(&["50/2s"], 250) }),
        ("learned of a bucket", 0, learned(Counts::Bucket, Tells::Openai, 250)),
        (
            "a server that allows more",
            0,
            Simulation {
                server: server(Counts::Bucket, Tells::Nothing, 60),
                ..plan(&["50/2s"], 250)
            },
        ),
    ];
    let spends = |tokens| vec![Spend::exactly("tokens", tokens).expect("a spend")];
    let shape = |(name, tokens, plan)| {
        let plan = Simulation { spends: spends(tokens), ..plan };
        Shape { name, tokens, plan }
    };
    all.map(shape).into()
}

/// Sends the very same requests for real, and tells when the last was over, and how many were answered.
async fn really(shape: &Shape) -> (Duration, u64) {
    let plan = &shape.plan;
    let foretold = plan.run().expect("an outcome");
    let mut came: Vec<Duration> = foretold.marks.iter().map(|mark| mark.came).collect();
    came.sort();
    let limits = plan
        .server
        .iter()
        .flat_map(|it| &it.limits)
        .map(|(dimension, limit)| LimitSpec { dimension: dimension.to_string(), limit: *limit });
    let tells = plan.server.as_ref().map_or(Tells::Nothing, |it| it.tells);
    let config = Config {
        limits: limits.collect(),
        policy: plan.server.as_ref().map_or(Counts::Bucket, |it| it.counts),
        headers: if tells == Tells::Openai { Family::Openai } else { Family::None },
        latency: plan.latency,
        jitter: plan.jitter,
        ..Config::default()
    };
    let sandbox = Sandbox::start(config).await.expect("a sandbox");
    let url: Arc<str> = sandbox.url().into();
    let mut builder = Limiter::builder().learn_first(plan.policy.learn_first);
    if let Some(most) = plan.max_wait {
        builder = builder.max_wait(most);
    }
    let limiter = builder.build();
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RateLimitMiddleware::new(limiter.clone()))
        .build();
    for key in 0..plan.keys {
        for limit in &plan.limits {
            limiter.set_limit(&format!("{url}/{key}"), limit.clone()).expect("a limit");
        }
    }
    // The first connection is made before anything is measured.
    client.get(format!("{url}/_sandbox")).send().await.expect("an answer");
    let (next, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let (shape, came) = (Arc::new(shape.clone()), Arc::new(came));
    let began = Instant::now();
    let workers = (0..plan.workers).map(|_| {
        let (shape, came, client, url) =
            (Arc::clone(&shape), Arc::clone(&came), client.clone(), Arc::clone(&url));
        let (next, answered) = (Arc::clone(&next), Arc::clone(&answered));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                let Some(at) = came.get(number) else { return };
                tokio::time::sleep_until((began + *at).into()).await;
                let url = format!("{url}/{}", number % shape.plan.keys as usize);
                answered
                    .fetch_add(send(&client, &url, cost(&shape, number)).await, Ordering::SeqCst);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("a worker");
    }
    (began.elapsed(), answered.load(Ordering::SeqCst))
}

fn cost(shape: &Shape, number: usize) -> Cost {
    match &shape.plan.arrivals {
        Arrivals::Replay(past) => past[number].cost.clone(),
        _ => Cost::ONE.with("tokens", Amount::units(shape.tokens)).expect("a cost"),
    }
}

async fn send(client: &ClientWithMiddleware, url: &str, cost: Cost) -> u64 {
    match client.get(url).with_extension(cost).send().await {
        Ok(answer) => u64::from(answer.status() == 200),
        Err(reqwest_middleware::Error::Middleware(error)) => {
            assert!(matches!(error.downcast_ref(), Some(Error::Refused(_))), "{error}");
            0
        }
        Err(error) => panic!("{error}"),
    }
}

/// Twenty shapes of work, each within three percent of what really happens.
#[test]
fn what_is_foretold_happens() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let shapes = shapes();
    assert_eq!(shapes.len(), 20);
    for together in shapes.chunks(10) {
        runtime.block_on(async {
            let runs = together.iter().map(|shape| async move {
                let (took, answered) = really(shape).await;
                (shape, took, answered)
            });
            for (shape, took, answered) in futures_util::future::join_all(runs).await {
                let foretold = shape.plan.run().expect("an outcome");
                let (took, finished) = (took.as_secs_f64(), foretold.finished.as_secs_f64());
                let off = (took / finished - 1.0).abs();
                assert!(off < 0.03, "{}: {finished:.3} foretold, {took:.3} measured", shape.name);
                let missing = foretold.answered.abs_diff(answered);
                assert!(missing * 100 <= foretold.answered * 3, "{}: {answered}", shape.name);
            }
        });
    }
}
