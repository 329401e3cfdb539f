//! Servers whose headers have no word in common with others: each is a few names and what they
//! mean.

use super::name::{begins, is, label};
use super::value::{self, Unit, seconds};
use super::{Counting, Headers, Reading, Signal};
use crate::{Dimension, Window};
use serde::Deserialize;
use std::time::Duration;

pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    etsy(headers, reading);
    reading.signals.extend(bybit(headers));
    reading.signals.extend(ip_api(headers));
    reading.signals.extend(selling_partner(headers));
    reading.signals.extend(trakt(headers));
    mistral(headers, reading);
    // Docker counts for an address or an account, and says which.
    if let Some(source) = headers.get("docker-ratelimit-source") {
        reading.bucket = reading.bucket.take().or_else(|| label(source));
    }
}

fn window(secs: u64) -> Option<Window> {
    seconds(secs).and_then(Window::from_duration)
}

/// `x-limit-per-second` belongs to `x-remaining-this-second`, `x-limit-per-day` to
/// `x-remaining-today`.
fn etsy(headers: &Headers<'_>, reading: &mut Reading) {
    for (name, limit, left, secs) in [
        ("second", "x-limit-per-second", "x-remaining-this-second", 1),
        ("day", "x-limit-per-day", "x-remaining-today", 86_400),
    ] {
        let limit = headers.get(limit).and_then(value::count).filter(|limit| *limit > 0);
        // A proxy in between is known to drop the last letter.
        let cut = |(name, value): &(&str, &'_ str)| begins(left, name).then(|| value::count(value));
        let long = headers.fields.iter().filter(|(name, _)| name.len() + 1 >= left.len());
        let remaining = long.filter_map(cut).flatten().next();
        if limit.is_some() || remaining.is_some() {
            let (name, window) = (label(name), window(secs));
            reading.signals.push(Signal { name, limit, remaining, window, ..Signal::default() });
        }
    }
}

/// `X-Bapi-Limit-Status` is what is left in this second
/// (<https://bybit-exchange.github.io/docs/v5/rate-limit>).
fn bybit(headers: &Headers<'_>) -> Option<Signal> {
    let reset = headers.get("x-bapi-limit-reset-timestamp");
    Some(Signal {
        limit: headers.get("x-bapi-limit").and_then(value::count).filter(|limit| *limit > 0),
        remaining: Some(headers.get("x-bapi-limit-status").and_then(value::count)?),
        reset: reset.and_then(|text| value::until(text, headers.now, Unit::Millis)),
        window: window(1),
        ..Signal::default()
    })
}

/// `X-Rl` calls are left for `X-Ttl` seconds; elsewhere `X-Ttl` is the age of a cache.
fn ip_api(headers: &Headers<'_>) -> Option<Signal> {
    Some(Signal {
        remaining: Some(headers.get("x-rl").and_then(value::count)?),
        reset: headers.get("x-ttl").and_then(|text| value::until(text, headers.now, Unit::Told)),
        window: window(60),
        ..Signal::default()
    })
}

/// `x-amzn-RateLimit-Limit: 0.0167`: calls per second, a rate and no count
/// (<https://developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits>).
fn selling_partner(headers: &Headers<'_>) -> Option<Signal> {
    let (whole, nanos) = value::decimal(headers.get("x-amzn-ratelimit-limit")?)?;
    let (limit, window) = if nanos == 0 {
        (whole, window(1)?)
    } else {
        // Of less than one call a second the time for one is the better whole number.
        let per_second = u128::from(whole) * 1_000_000_000 + u128::from(nanos);
        let many = u128::from(whole.max(1));
        let span = many * 1_000_000_000_000_000_000 / per_second;
        (u64::try_from(many).ok()?, Window::from_nanos(u64::try_from(span).ok()?)?.snapped())
    };
    let limit = Some(limit).filter(|limit| (1..=crate::Limit::MOST).contains(limit))?;
    let window = Some(window);
    Some(Signal { limit: Some(limit), window, counting: Counting::Bucket, ..Signal::default() })
}

/// `X-Ratelimit: {"name":"...","period":300,"limit":1000,"remaining":0,"until":"..."}`.
fn trakt(headers: &Headers<'_>) -> Option<Signal> {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow)]
        name: Option<&'a str>,
        period: Option<u64>,
        limit: u64,
        remaining: u64,
        until: Option<&'a str>,
    }
    let text = headers.get("x-ratelimit").filter(|text| text.starts_with('{'))?;
    let said: Said<'_> = serde_json::from_str(text).ok()?;
    Some(Signal {
        name: said.name.and_then(label),
        limit: Some(said.limit).filter(|limit| (1..=crate::Limit::MOST).contains(limit)),
        remaining: Some(said.remaining).filter(|left| *left <= crate::Limit::MOST),
        reset: said.until.and_then(|text| value::until(text, headers.now, Unit::Told)),
        window: said.period.and_then(window),
        ..Signal::default()
    })
}

/// `ratelimitbysize-*`, of tokens; the one without a window repeats the minute.
fn mistral(headers: &Headers<'_>, reading: &mut Reading) {
    let bysize =
        |name: &str| begins(name, "x-ratelimitbysize-") || begins(name, "ratelimitbysize-");
    if !headers.any(bysize) {
        return;
    }
    for (name, secs) in [("minute", 60), ("month", 2_592_000)] {
        let field = |field: &str| headers.get(&format!("x-ratelimitbysize-{field}-{name}"));
        let bare = |field: &str| {
            let bare = headers.get(&format!("ratelimitbysize-{field}"));
            bare.filter(|_| name == "minute")
        };
        let number = |word: &str| field(word).or_else(|| bare(word)).and_then(value::count);
        let (limit, remaining) = (number("limit").filter(|limit| *limit > 0), number("remaining"));
        if limit.is_some() || remaining.is_some() {
            reading.signals.push(Signal {
                dimension: Dimension::new("tokens").unwrap_or_default(),
                name: label(name),
                limit,
                remaining,
                reset: bare("reset").and_then(|text| value::until(text, headers.now, Unit::Told)),
                window: window(secs),
                ..Signal::default()
            });
        }
    }
}

/// What Meta says in percent of an unstated limit: whether all is used, and for how long
/// (<https://developers.facebook.com/docs/graph-api/overview/rate-limiting>).
pub(super) fn meta(headers: &Headers<'_>) -> Option<(bool, Option<Duration>)> {
    const NAMES: [&str; 3] = ["x-business-use-case-usage", "x-ad-account-usage", "x-app-usage"];
    let text = NAMES.into_iter().find_map(|name| headers.get(name))?;
    let said: serde_json::Value = serde_json::from_str(text).ok()?;
    let (mut used_up, mut wait) = (false, None);
    let lists = said.as_object()?.values().filter_map(|value| value.as_array()).flatten();
    for usage in lists.chain([&said]).filter_map(|usage| usage.as_object()) {
        for (key, value) in usage {
            let Some(number) = value.as_u64() else { continue };
            let secs = match key.as_str() {
                "estimated_time_to_regain_access" => number.saturating_mul(60),
                "reset_time_duration" => number,
                _ => {
                    used_up |= number >= 100;
                    continue;
                }
            };
            if secs > 0 {
                wait = wait.max(seconds(secs));
            }
        }
    }
    Some((used_up, wait))
}

/// Seconds of the longest entry of `X-Sentry-Rate-Limits: 60:transaction:key, 2700:default:...`.
pub(super) fn sentry(headers: &Headers<'_>) -> Option<Duration> {
    let entries = headers.get("x-sentry-rate-limits")?.split(',').take(64);
    entries.filter_map(|entry| value::count(entry.split(':').next()?).and_then(seconds)).max()
}

/// What the header says of an error at AWS, such as `ThrottlingException:http://...`.
pub(super) fn throttled(headers: &Headers<'_>) -> bool {
    let code = headers.get("x-amzn-errortype").and_then(|text| text.split([':', '#']).next());
    code.is_some_and(is_throttling)
}

/// Whether an error code of AWS is about a rate (as its SDKs have it).
pub(super) fn is_throttling(code: &str) -> bool {
    const CODES: [&str; 14] = [
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottledException",
        "RequestThrottled",
        "TooManyRequestsException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "SlowDown",
        "PriorRequestNotComplete",
        "TransactionInProgressException",
        "EC2ThrottledException",
    ];
    CODES.iter().any(|known| is(known, code))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};
    use std::time::Duration;

    #[test]
    fn rule_8_a_rate_is_no_count() {
        for (text, expected) in [
            ("0.0167", &["requests - 1 - - 1m"][..]),
            ("5.0", &["requests - 5 - - 1s"]),
            ("0.5", &["requests - 1 - - 2s"]),
            ("0.0", &[]),
        ] {
            assert_eq!(said(&read(200, &[("x-amzn-RateLimit-Limit", text)])), expected, "{text}");
        }
    }

    #[test]
    fn rule_8_json_in_a_header_is_read_whole_or_not_at_all() {
        let trakt = r#"{"name":"X","period":300,"limit":1000,"remaining":5,"until":"2027-01-15T08:05:00Z"}"#;
        assert_eq!(said(&read(200, &[("X-Ratelimit", trakt)])), ["requests X 1000 5 300s 5m"]);
        let deep = "{\"a\":".repeat(10_000);
        assert!(read(200, &[("X-Ratelimit", &deep), ("X-App-Usage", &deep)]).is_silent());
    }

    #[test]
    fn rule_13_meta_counts_waits_in_minutes() {
        let usage =
            r#"{"1":[{"type":"ads","call_count":100,"estimated_time_to_regain_access":7}]}"#;
        let reading = read(400, &[("X-Business-Use-Case-Usage", usage)]);
        assert!(reading.rejected);
        assert_eq!(reading.retry_after, Some(Duration::from_secs(420)));
        let healthy = r#"{"call_count":28,"total_time":25,"total_cputime":25}"#;
        assert!(!read(400, &[("X-App-Usage", healthy)]).rejected);
    }
}
