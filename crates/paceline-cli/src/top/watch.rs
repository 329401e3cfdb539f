//! What changed between two looks at a storage.

use crate::Failure;
use crate::limits::{everything, totals};
use jiff::Timestamp;
use paceline::{LimitStatus, Limiter, Status, Tally};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Over how long rates are taken.
const SPAN: Duration = Duration::from_secs(5);

/// A storage that is looked at again and again.
#[derive(Debug)]
pub(super) struct Watch {
    prefix: Option<String>,
    looks: VecDeque<Look>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    scopes: Vec<(String, Status)>,
    totals: BTreeMap<String, Tally>,
}

/// A limit of a scope, or a scope without one.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Row {
    pub(super) scope: String,
    pub(super) limit: Option<String>,
    pub(super) left: Option<u64>,
    /// The share of the bucket that is left, 0 to 1.
    pub(super) share_left: Option<f64>,
    /// The rate, as a share of what the limit allows.
    pub(super) used: Option<f64>,
    /// Seconds for which the scope is held.
    pub(super) hold: Option<f64>,
    /// Attempts a second.
    pub(super) rate: f64,
    pub(super) waiting: f64,
    /// A minute.
    pub(super) rejected: f64,
    pub(super) refused: f64,
    pub(super) binds: bool,
    /// Whether it is the first row of its scope.
    #[serde(skip)]
    pub(super) is_first: bool,
}

#[derive(Serialize)]
struct Line {
    at: Timestamp,
    rows: Vec<Row>,
}

impl Watch {
    pub(super) fn new(prefix: Option<&str>) -> Self {
        Self { prefix: prefix.map(str::to_owned), looks: VecDeque::new() }
    }

    /// Looks once more.
    pub(super) fn look(&mut self, limiter: &Limiter) -> Result<(), Failure> {
        let (mut scopes, mut totals) = (everything(limiter)?, totals(limiter)?);
        let is_meant = |scope: &str| {
            let bare = scope.split_once("://").map_or(scope, |(_, bare)| bare);
            let prefix = self.prefix.as_deref().unwrap_or_default();
            scope.starts_with(prefix) || bare.starts_with(prefix)
        };
        scopes.retain(|(scope, _)| is_meant(scope));
        totals.retain(|scope, _| is_meant(scope));
        // What is called where nothing is limited shows as well.
        for scope in totals.keys() {
            if !scopes.iter().any(|(known, _)| known == scope) {
                let nothing = Status { limits: Vec::new(), hold: Duration::ZERO };
                scopes.push((scope.clone(), nothing));
            }
        }
        let at = Instant::now();
        self.looks.push_back(Look { at, scopes, totals });
        while self.looks.get(1).is_some_and(|second| at - second.at >= SPAN) {
            self.looks.pop_front();
        }
        Ok(())
    }

    /// Every limit, by scope.
    pub(super) fn rows(&self) -> Vec<Row> {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else {
            return Vec::new();
        };
        let span = (last.at - first.at).as_secs_f64();
        let mut rows = Vec::new();
        for (scope, status) in &last.scopes {
            let now = last.totals.get(scope).copied().unwrap_or_default();
            let before = first.totals.get(scope).copied().unwrap_or_default();
            let per_second = |now: f64, before: f64| match span > 0.0 {
                true => (now - before).max(0.0) / span,
                false => 0.0,
            };
            let count = |of: fn(&Tally) -> u64| per_second(of(&now) as f64, of(&before) as f64);
            let of_scope = Row {
                scope: scope.clone(),
                hold: (!status.hold.is_zero()).then_some(status.hold.as_secs_f64()),
                rate: count(|tally| tally.sent),
                // What waits is what comes by how long it waits (Little's law).
                waiting: per_second(now.waited.as_secs_f64(), before.waited.as_secs_f64()),
                rejected: 60.0 * count(|tally| tally.rejected),
                refused: 60.0 * count(|tally| tally.refused),
                is_first: true,
                ..Row::default()
            };
            let binding =
                status.limits.iter().min_by(|a, b| share_left(a).total_cmp(&share_left(b)));
            let binding = binding.map(|level| level.limit.clone());
            for (i, level) in status.limits.iter().enumerate() {
                rows.push(Row {
                    limit: Some(level.limit.to_string()),
                    left: Some(level.remaining.whole()),
                    share_left: Some(share_left(level)),
                    used: used(level, &of_scope, &now, &before, span),
                    binds: status.limits.len() > 1 && binding.as_ref() == Some(&level.limit),
                    is_first: i == 0,
                    ..of_scope.clone()
                });
            }
            if status.limits.is_empty() {
                rows.push(of_scope);
            }
        }
        rows
    }

    /// The rows as a line of JSON.
    pub(super) fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(&Line { at: Timestamp::now(), rows: self.rows() })?)
    }
}

fn share_left(level: &LimitStatus) -> f64 {
    (level.remaining.millionths() as f64 / 1e6 / level.limit.burst.max(1) as f64).clamp(0.0, 1.0)
}

/// The rate as a share of what a limit allows, where it is known what is spent of it.
fn used(level: &LimitStatus, row: &Row, now: &Tally, before: &Tally, span: f64) -> Option<f64> {
    let tokens = |of: fn(&Tally) -> u64| (of(now) as f64 - of(before) as f64).max(0.0) / span;
    let rate = match level.limit.dimension.as_str() {
        _ if span <= 0.0 => return None,
        "requests" => row.rate,
        "tokens" => tokens(|tally| tally.input_tokens + tally.output_tokens),
        "input_tokens" => tokens(|tally| tally.input_tokens),
        "output_tokens" => tokens(|tally| tally.output_tokens),
        "usd" => tokens(|tally| tally.micro_usd) / 1e6,
        _ => return None,
    };
    let allowed = level.limit.units as f64 / level.limit.window.duration().as_secs_f64();
    Some(rate / allowed)
}
