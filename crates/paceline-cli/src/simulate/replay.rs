//! Requests as they once came: a file of JSON lines.

use crate::Failure;
use jiff::Timestamp;
use paceline::simulate::Past;
use paceline::{Amount, Cost};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

#[derive(Deserialize)]
struct Line {
    time: Time,
    tokens: Option<f64>,
    #[serde(default)]
    cost: BTreeMap<String, f64>,
    latency: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of seconds or an RFC 3339 time")]
enum Time {
    Seconds(f64),
    Instant(Timestamp),
}

impl Time {
    fn seconds(&self) -> f64 {
        match self {
            Self::Seconds(seconds) => *seconds,
            Self::Instant(instant) => instant.as_nanosecond() as f64 / 1e9,
        }
    }
}

/// Reads it, the earliest first.
pub(super) fn read(path: &Path) -> Result<Vec<Past>, Failure> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| format!("cannot read {shown}: {error}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let read = request(&line);
        lines.push(read.map_err(|error| format!("{shown}, line {}: {error}", number + 1))?);
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = lines.first().map_or(0.0, |line| line.0);
    let past = |(at, past): (f64, Past)| {
        let after = Duration::try_from_secs_f64(at - first).unwrap_or_default();
        Past { after, ..past }
    };
    Ok(lines.into_iter().map(past).collect())
}

fn request(line: &str) -> Result<(f64, Past), Failure> {
    let line: Line = serde_json::from_str(line)?;
    let mut cost = Cost::ONE;
    let tokens = line.tokens.map(|tokens| ("tokens".to_owned(), tokens));
    for (dimension, units) in tokens.into_iter().chain(line.cost) {
        cost = cost.with(&dimension, Amount::from_f64(units)?)?;
    }
    let latency = line.latency.map(Duration::try_from_secs_f64).transpose();
    let latency = latency.map_err(|_| "latency must be a number of seconds, at least 0")?;
    Ok((line.time.seconds(), Past { after: Duration::ZERO, cost, latency }))
}
