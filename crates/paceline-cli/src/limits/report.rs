//! A scope and its limits, for people and for programs.

use crate::times;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use paceline::{Error, Limit, LimitStatus, Limiter, Status, Tally};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// A scope as programs see it: the limit of its requests (or its first one), and all others. The
/// names are those of `RateLimitStatus` in Python.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    endpoint: String,
    #[serde(flatten)]
    first: Level,
    /// Seconds for which the server has told everybody to stay away.
    hold: Option<f64>,
    #[serde(serialize_with = "in_order")]
    dimensions: Vec<(String, Level)>,
}

/// One limit and its level. Where no limit is known, what it would be is null.
#[derive(Debug, Clone, Default, Serialize)]
struct Level {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_in: Option<f64>,
    window: Option<f64>,
    confidence: Option<&'static str>,
    utilization: Option<f64>,
    is_exceeded: bool,
}

impl Report {
    pub(crate) fn new(scope: &str, status: &Status) -> Self {
        let mut dimensions: Vec<(String, Level)> = Vec::new();
        for level in &status.limits {
            let limit = &level.limit;
            let mut name = limit.dimension.to_string();
            if dimensions.iter().any(|(other, _)| *other == name) {
                name = format!("{name}/{}", limit.window);
            }
            dimensions.push((name, Level::new(level)));
        }
        let hold = (!status.hold.is_zero()).then_some(status.hold.as_secs_f64());
        let first = dimensions.iter().find(|(name, _)| name == "requests").or(dimensions.first());
        let first = first.map(|(_, level)| level.clone()).unwrap_or_else(|| Level::unknown(hold));
        Self { endpoint: scope.to_owned(), first, hold, dimensions }
    }
}

impl Level {
    fn new(level: &LimitStatus) -> Self {
        let (limit, remaining) = (&level.limit, level.remaining.whole());
        Self {
            limit: Some(limit.units),
            remaining: Some(remaining),
            reset_in: Some(level.reset.as_secs_f64()),
            window: Some(limit.window.duration().as_secs_f64()),
            confidence: Some(limit.origin.as_str()),
            utilization: Some(utilization(level)),
            is_exceeded: remaining == 0,
        }
    }

    fn unknown(hold: Option<f64>) -> Self {
        Self { reset_in: hold, is_exceeded: hold.is_some(), ..Self::default() }
    }
}

/// The share of a bucket in use, 0 to 1.
pub(crate) fn utilization(level: &LimitStatus) -> f64 {
    let left = level.remaining.whole() as f64 / level.limit.burst as f64;
    (1.0 - left).clamp(0.0, 1.0)
}

/// A JSON object in the order of declaration.
fn in_order<S: Serializer>(levels: &[(String, Level)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(levels.iter().map(|(name, level)| (name, level)))
}

/// Every scope of a store with its state.
pub(crate) fn everything(limiter: &Limiter) -> Result<Vec<(String, Status)>, Error> {
    let mut found = Vec::new();
    for scope in limiter.endpoints()? {
        // Where a wider scope governs, nothing but its name is known of this one.
        let own = limiter.status(&scope)?.filter(|(governing, _)| *governing == scope);
        let nothing = Status { limits: Vec::new(), hold: Duration::ZERO };
        let status = own.map_or(nothing, |(_, status)| status);
        found.push((scope, status));
    }
    Ok(found)
}

/// What became of calls in each scope, on all days that the books go back.
pub(crate) fn totals(limiter: &Limiter) -> Result<BTreeMap<String, Tally>, Error> {
    let mut totals = BTreeMap::<String, Tally>::new();
    for (scope, _, tally) in limiter.usage()? {
        totals.entry(scope).or_default().add(&tally);
    }
    Ok(totals)
}

/// Scopes for people, a limit a row; as wide as the terminal at most.
pub(crate) fn table<'a>(scopes: impl IntoIterator<Item = (&'a str, &'a Status)>) -> String {
    let mut table = titled(["endpoint", "dimension", "limit", "left", "full in", "origin", "hold"]);
    for (scope, status) in scopes {
        let hold = if status.hold.is_zero() { String::new() } else { times::show(status.hold) };
        if status.limits.is_empty() {
            table.add_row([scope, "", "none known", "", "", "", &hold]);
        }
        for (i, level) in status.limits.iter().enumerate() {
            let (scope, hold) = if i == 0 { (scope, hold.as_str()) } else { ("", "") };
            table.add_row([
                scope,
                level.limit.dimension.as_str(),
                &rate(&level.limit),
                &level.remaining.whole().to_string(),
                &times::show(level.reset),
                level.limit.origin.as_str(),
                hold,
            ]);
        }
    }
    if let Some(left) = table.column_mut(3) {
        left.set_cell_alignment(CellAlignment::Right);
    }
    text(table)
}

/// A table without rows.
pub(crate) fn titled<const N: usize>(titles: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(titles);
    table
}

/// A table as it is shown.
pub(crate) fn text(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// `60/1m`, with what is special about it.
fn rate(limit: &Limit) -> String {
    let rate = format!("{}/{}", limit.units, limit.window);
    match () {
        () if limit.strict => format!("{rate} strict"),
        () if limit.burst != limit.units => format!("{rate} burst {}", limit.burst),
        () => rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(limits: &[&str], hold: u64) -> Status {
        let limiter = Limiter::builder().build();
        for limit in limits {
            limiter.set_limit("a.example", Limit::parse(limit).unwrap()).unwrap();
        }
        let found = limiter.status("a.example").unwrap();
        let limits = found.map(|(_, status)| status.limits).unwrap_or_default();
        Status { limits, hold: Duration::from_secs(hold) }
    }

    #[test]
    fn a_second_limit_on_a_dimension_is_named_with_its_window() {
        let status = status(&["tokens=9/1s", "10/1s", "1000/1h"], 0);
        let report = serde_json::to_value(Report::new("https://a.example", &status)).unwrap();
        let names: Vec<_> = report["dimensions"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["requests", "requests/1h", "tokens"]);
        assert_eq!(report["dimensions"]["requests/1h"]["window"], 3600.0);
        assert_eq!((&report["limit"], &report["window"]), (&10.into(), &1.0.into()));
        assert_eq!((&report["confidence"], &report["hold"]), (&"configured".into(), &().into()));
    }

    #[test]
    fn a_hold_is_told_where_no_limit_is_known() {
        let status = status(&[], 7);
        let report = serde_json::to_value(Report::new("https://a.example", &status)).unwrap();
        assert_eq!((&report["limit"], &report["hold"]), (&().into(), &7.0.into()));
        assert_eq!(report["is_exceeded"], true);
        let table = table([("https://a.example", &status)]);
        assert!(table.contains("none known") && table.ends_with("7.0s"), "{table}");
    }
}
