//! What it costs to look at a response: every one of them is looked at.

use crate::race::{alone, nanos_each};
use crate::row::Row;
use paceline::headers::{Detector, Response, detect};
use std::time::Duration;

/// Short, so that most rounds are not interrupted.
const ROUND: usize = 1_000;

/// What any response carries.
const SILENT: [(&str, &str); 12] = [
    ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "1024"),
    ("connection", "keep-alive"),
    ("server", "nginx"),
    ("vary", "Accept-Encoding"),
    ("cache-control", "no-store"),
    ("etag", "W/\"5f0c\""),
    ("x-request-id", "4fd2c0a2b9f14d0f"),
    ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ("x-content-type-options", "nosniff"),
    ("access-control-allow-origin", "*"),
];

const COMMON: [(&str, &str); 3] = [
    ("x-ratelimit-limit", "5000"),
    ("x-ratelimit-remaining", "4987"),
    ("x-ratelimit-reset", "1800001770"),
];

const OPENAI: [(&str, &str); 6] = [
    ("x-ratelimit-limit-requests", "500"),
    ("x-ratelimit-limit-tokens", "30000"),
    ("x-ratelimit-remaining-requests", "499"),
    ("x-ratelimit-remaining-tokens", "15000"),
    ("x-ratelimit-reset-requests", "120ms"),
    ("x-ratelimit-reset-tokens", "6m0s"),
];

pub(super) fn all() -> Vec<Row> {
    let silent = row("detect: nothing to say", "https://api.example.com/v1", &[], 0);
    let common = row("detect: typical X-RateLimit", "https://api.example.com/v1", &COMMON, 1);
    let openai = row("detect: OpenAI", "https://api.openai.com/v1/responses", &OPENAI, 2);
    vec![silent.at_most(500.0), common.at_most(1_000.0), openai]
}

/// Nanoseconds of one reading, of which so many signals are expected.
fn row(name: &'static str, url: &str, said: &[(&str, &str)], signals: usize) -> Row {
    let detector = Detector::default();
    let (status, url, now) = (200, Some(url), Duration::from_secs(1_800_000_000));
    let all = [&SILENT[..], said].concat();
    let nanos = alone(|| {
        nanos_each(ROUND, |_| {
            let headers = all.iter().copied();
            let reading = detect(&detector, Response { status, url, now, headers, body: None });
            reading.signals.len() == signals
        })
    });
    Row::figure(name, nanos, "ns")
}
