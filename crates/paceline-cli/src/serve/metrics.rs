//! What is in a shared storage, for Prometheus: levels as they are, and sums that only grow.
//!
//! The names are those of `paceline.prometheus` in Python, which tells of one process.

use crate::Failure;
use crate::limits::{everything, totals, utilization};
use paceline::{LimitStatus, Limiter, Status, Tally};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

/// How it is told what format the answer has.
pub(super) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A storage that is scraped again and again.
#[derive(Debug)]
pub(super) struct Exporter {
    limiter: Limiter,
    counted: Mutex<Counted>,
}

/// The books forget old days; what was counted once stays counted here.
#[derive(Debug, Default)]
struct Counted {
    /// As the books had it at last.
    books: BTreeMap<String, Tally>,
    sums: BTreeMap<String, Tally>,
}

impl Counted {
    fn add(&mut self, books: BTreeMap<String, Tally>) {
        for (scope, tally) in &books {
            let before = self.books.get(scope).copied().unwrap_or_default().numbers();
            let mut more = tally.numbers();
            for (more, before) in more.iter_mut().zip(before) {
                *more = more.saturating_sub(before);
            }
            self.sums.entry(scope.clone()).or_default().add(&Tally::from_numbers(more));
        }
        self.books = books;
    }
}

impl Exporter {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self { limiter, counted: Mutex::default() }
    }

    /// The text that Prometheus reads. It visits the storage.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let began = Instant::now();
        let scopes = everything(&self.limiter)?;
        let books = totals(&self.limiter)?;
        let sums = {
            let mut counted = self.counted.lock();
            counted.add(books);
            counted.sums.clone()
        };
        let took = began.elapsed().as_secs_f64();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape { scopes, sums, took }));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// What one scrape found.
#[derive(Debug)]
struct Scrape {
    scopes: Vec<(String, Status)>,
    sums: BTreeMap<String, Tally>,
    took: f64,
}

type Sum = fn(&Tally) -> f64;
type Level = fn(&LimitStatus) -> f64;

/// Counters by scope.
const COUNTERS: [(&str, &str, Sum); 10] = [
    ("requests_sent", "Attempts that took a permit and were sent", |it| it.sent as f64),
    ("requests_delayed", "Attempts that waited for their permit", |it| it.delayed as f64),
    ("requests_refused", "Calls that got an error in place of a wait", |it| it.refused as f64),
    ("requests_failed", "Attempts that came to nothing, but not for a limit", |it| {
        it.failed as f64
    }),
    ("requests_cached", "Calls answered from the cache", |it| it.cached as f64),
    ("tokens_input", "Tokens of prompts", |it| it.input_tokens as f64),
    ("tokens_output", "Tokens of answers", |it| it.output_tokens as f64),
    ("cost_usd", "Dollars spent", |it| it.micro_usd as f64 / 1e6),
    ("wait_seconds", "Time that attempts waited for their permits", |it| it.waited.as_secs_f64()),
    ("requests_rejected", "Attempts that the server rejected", |it| it.rejected as f64),
];

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, of) in COUNTERS {
            let name = format!("paceline_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            // Why it did so is not in the books.
            let reason = (name == "paceline_requests_rejected").then_some(("reason", "any"));
            for (scope, tally) in &self.sums {
                let labels: Vec<_> =
                    [("scope", scope.as_str())].into_iter().chain(reason).collect();
                family
                    .encode_family(&labels)?
                    .encode_counter::<[(&str, &str); 0], _, f64>(&of(tally), None)?;
            }
        }
        let levels: [(&str, &str, Level); 3] = [
            ("limit_units", "Units of a limit per window", |it| it.limit.units as f64),
            ("limit_remaining", "Units that would be granted now", |it| {
                it.remaining.whole() as f64
            }),
            ("limit_utilization", "The share of a limit in use, 0 to 1", utilization),
        ];
        for (name, help, of) in levels {
            let name = format!("paceline_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (scope, status) in &self.scopes {
                for level in tightest(&status.limits) {
                    let (dimension, window) =
                        (level.limit.dimension.to_string(), level.limit.window.to_string());
                    let labels = [
                        ("scope", scope.as_str()),
                        ("dimension", dimension.as_str()),
                        ("window", window.as_str()),
                    ];
                    family.encode_family(&labels)?.encode_gauge(&of(level))?;
                }
            }
        }
        let help = "For how long a scope is held";
        let mut family =
            encoder.encode_descriptor("paceline_hold_seconds", help, None, MetricType::Gauge)?;
        for (scope, status) in &self.scopes {
            let labels = [("scope", scope.as_str())];
            family.encode_family(&labels)?.encode_gauge(&status.hold.as_secs_f64())?;
        }
        let help = "How long it took to read the storage";
        encoder
            .encode_descriptor("paceline_scrape_seconds", help, None, MetricType::Gauge)?
            .encode_gauge(&self.took)
    }
}

/// One limit for each dimension and window: a server's may stand beside the user's, and a series has one
/// value.
fn tightest(levels: &[LimitStatus]) -> impl Iterator<Item = &LimitStatus> {
    levels.iter().enumerate().filter_map(|(i, level)| {
        let others = levels.iter().enumerate().filter(|(_, it)| it.limit.replaces(&level.limit));
        let order = |at: usize, it: &LimitStatus| (it.remaining, at);
        let least = others.map(|(at, it)| order(at, it)).min();
        (least == Some(order(i, level))).then_some(level)
    })
}
