//! Detection against the responses of some two hundred APIs, gateways and frameworks, and against
//! malformed and hostile ones (`tests/headers/cases.json`).
//!
//! A case gives a response and what it asserts; `also_ok` holds patches, one of which may be laid
//! over the expectation. A window that only the documentation of a host knows may be missing.
//! `PACELINE_CASES` names another file of the same form.

use paceline_core::Reading;
use paceline_core::headers::{Detector, Response, detect, value};
use serde_json::Value;
use std::time::Duration;

/// How far times may lie apart, in seconds.
const CLOSE: f64 = 0.001;

#[test]
fn rule_8_every_known_response_is_read() {
    all_of(include_str!("headers/cases.json"));
}

#[test]
fn rule_8_other_servers_of_the_same_families_are_read() {
    all_of(include_str!("headers/variants.json"));
}

#[test]
fn rule_8_cases_of_another_file_are_read() {
    if let Some(path) = std::env::var_os("PACELINE_CASES") {
        all_of(&std::fs::read_to_string(path).unwrap());
    }
}

fn all_of(text: &str) {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!cases.is_empty());
    let failures: Vec<_> = cases.iter().filter_map(check).collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases are read wrongly:\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
}

/// What is wrong with the reading of one case.
fn check(case: &Value) -> Option<String> {
    let reading = read(case);
    let expected = &case["expect"];
    let patches = expected["also_ok"].as_array().map(Vec::as_slice).unwrap_or_default();
    let patched = patches.iter().map(|patch| {
        let mut patched = expected.clone();
        for (key, value) in patch.as_object().unwrap() {
            let superset = key == "dimensions" && value == "superset";
            patched[if superset { "superset" } else { key }] = value.clone();
        }
        patched
    });
    let fits = std::iter::once(expected.clone()).chain(patched).any(|e| agrees(&reading, &e));
    let hinted = is_hinted(case, &reading);
    (!fits || !hinted).then(|| {
        let what = if fits { "scope hint" } else { "reading" };
        let headers = &case["headers"].to_string();
        let short = headers.char_indices().nth(400).map_or(&headers[..], |(at, _)| &headers[..at]);
        format!(
            "{} ({what})\n  status   {} {}\n  headers  {short}\n  expected {expected}\n  got      {}",
            case["id"],
            case["status"],
            case["url"],
            told(&reading)
        )
    })
}

fn read(case: &Value) -> Reading {
    let now = case["now"].as_str().unwrap();
    let now = since_epoch(now).unwrap();
    let headers = case["headers"].as_array().unwrap().iter();
    let headers = headers.map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    let response = Response {
        status: u16::try_from(case["status"].as_u64().unwrap()).unwrap(),
        url: case["url"].as_str(),
        now,
        headers,
        body: None,
    };
    detect(&Detector::default(), response)
}

fn agrees(reading: &Reading, expected: &Value) -> bool {
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
    if reading.rejected != expected["rejected"].as_bool().unwrap()
        || !same(seconds(reading.retry_after), &expected["retry_after_s"], CLOSE)
    {
        return false;
    }
    let dimensions = expected["dimensions"].as_array().unwrap();
    let mut left: Vec<_> = reading.signals.iter().collect();
    let found = dimensions.iter().all(|dimension| {
        let documented = dimension["window_from"] == "docs";
        let fits = left.iter().position(|signal| {
            let window = seconds(signal.window.map(|window| window.duration()));
            same(signal.limit.map(|limit| limit as f64), &dimension["limit"], 0.0)
                && same(signal.remaining.map(|left| left as f64), &dimension["remaining"], 0.0)
                && same(seconds(signal.reset), &dimension["reset_in_s"], CLOSE)
                && (same(window, &dimension["window_s"], CLOSE) || window.is_none() && documented)
        });
        fits.map(|at| left.swap_remove(at)).is_some()
    });
    found && (left.is_empty() || expected["superset"] == "superset")
}

fn same(got: Option<f64>, expected: &Value, close: f64) -> bool {
    match (got, expected) {
        (None, Value::Null) => true,
        (Some(got), Value::String(word)) if word == "clamped" => {
            got <= value::LONGEST.as_secs_f64().max(1e12)
        }
        (Some(got), Value::Number(number)) => (got - number.as_f64().unwrap()).abs() <= close,
        _ => false,
    }
}

/// Whether what tells the bucket apart is in the reading, as bucket, as name of a limit or as
/// reason: where a header states it. Hints that no header states (`service`, `per method per
/// workspace`, the host itself) are knowledge of the one who wrote the case; and GitHub's `core`
/// is the host.
fn is_hinted(case: &Value, reading: &Reading) -> bool {
    let Some(hint) = case["expect"]["scope_hint"].as_str() else { return true };
    let hint = hint.rsplit_once(':').filter(|(label, _)| matches!(*label, "bucket" | "deployment"));
    let hint = hint.map_or(case["expect"]["scope_hint"].as_str().unwrap(), |(_, hint)| hint);
    let word = hint.split([' ', ';', ',']).next().unwrap();
    let headers = case["headers"].as_array().unwrap();
    let key = word.strip_prefix("pk=").unwrap_or(word);
    let stated = headers.iter().any(|pair| pair[1].as_str().unwrap().contains(key));
    if !stated || word == "core" || case["family"] == "sentry" {
        return true;
    }
    let names = reading.signals.iter().filter_map(|signal| signal.name.as_deref());
    let told = names.chain(reading.bucket.as_deref()).chain(reading.reason.as_deref());
    told.into_iter().any(|told| told.to_lowercase().contains(&word.to_lowercase()))
}

fn told(reading: &Reading) -> String {
    let signals = reading.signals.iter().map(|signal| {
        format!(
            "\n           {} {:?}: limit {:?}, remaining {:?}, reset {:?}, window {:?}",
            signal.dimension,
            signal.name,
            signal.limit,
            signal.remaining,
            signal.reset,
            signal.window.map(|window| window.to_string())
        )
    });
    format!(
        "rejected {}, retry after {:?}, bucket {:?}, reason {:?}{}",
        reading.rejected,
        reading.retry_after,
        reading.bucket,
        reading.reason,
        signals.collect::<String>()
    )
}

/// The instant that an ISO 8601 text names.
fn since_epoch(text: &str) -> Option<Duration> {
    let instant: jiff::Timestamp = text.parse().ok()?;
    Some(Duration::from_nanos(u64::try_from(instant.as_nanosecond()).ok()?))
}
