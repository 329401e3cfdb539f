//! What was used, beside the limit or instead of it: fractions (Shopify, Lightspeed), counts for
//! several windows in one header (Strava), pairs of count and seconds (Riot, Path of Exile), counts
//! whose interval is in the name (Binance).

use super::name::{begins, ends, is, label};
use super::value::{self, seconds};
use super::{Counting, Headers, Reading, Signal};
use crate::{Dimension, Window};
use std::time::Duration;

/// More pairs than any server sends.
const MOST: usize = 16;

pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    let signals = &mut reading.signals;
    for (name, text) in &headers.fields {
        if ends(name, "call-limit") || ends(name, "bucket-level") {
            signals.extend(fraction(text));
        } else if begins(name, "x-mbx-") || begins(name, "x-sapi-") {
            signals.extend(interval(name, text));
        } else if ends(name, "limit-limit") {
            by_place(headers, name, text, signals);
        } else {
            pairs(headers, name, text, signals);
        }
    }
}

/// `32/40`: used of what a leaky bucket holds.
fn fraction(text: &str) -> Option<Signal> {
    let (used, limit) = text.split_once('/')?;
    let (used, limit) = (value::count(used)?, value::count(limit).filter(|limit| *limit > 0)?);
    Some(Signal {
        limit: Some(limit),
        remaining: Some(limit.saturating_sub(used)),
        counting: Counting::Bucket,
        ..Signal::default()
    })
}

/// `X-RateLimit-Limit: 200,2000` beside `X-RateLimit-Usage: 12,148`: a quarter of an hour and a day
/// (<https://developers.strava.com/docs/rate-limits/>).
fn by_place(headers: &Headers<'_>, name: &str, limits: &str, signals: &mut Vec<Signal>) {
    const WINDOWS: [(&str, u64); 2] = [("15min", 900), ("day", 86_400)];
    let stem = &name[..name.len() - "limit".len()];
    let usage = headers.fields.iter().find(|(other, _)| {
        begins(other, stem) && is(other.get(stem.len()..).unwrap_or_default(), "usage")
    });
    let Some((_, usage)) = usage.filter(|(_, usage)| usage.contains(',')) else { return };
    let read = begins(stem, "x-read");
    for ((limit, used), (window, secs)) in limits.split(',').zip(usage.split(',')).zip(WINDOWS) {
        let Some((limit, used)) = value::count(limit).zip(value::count(used)) else { continue };
        signals.push(Signal {
            name: label(&if read { format!("read-{window}") } else { window.to_owned() }),
            limit: Some(limit),
            remaining: Some(limit.saturating_sub(used)),
            window: seconds(secs).and_then(Window::from_duration),
            ..Signal::default()
        });
    }
}

/// `X-App-Rate-Limit: 20:1,100:120` beside `X-App-Rate-Limit-Count: 3:1,57:120`, joined by their
/// seconds; `X-Rate-Limit-Ip: 10:5:10` beside `X-Rate-Limit-Ip-State: 1:5:0`, where a third number
/// is for how long who goes on is shut out.
fn pairs(headers: &Headers<'_>, name: &str, text: &str, signals: &mut Vec<Signal>) {
    let Some(limits) =
        (ends(name, "-rate-limit") || begins(name, "x-rate-limit-")).then(|| all(text)).flatten()
    else {
        return;
    };
    let count = |end: &str| {
        let count = |other: &str| {
            other.len() == name.len() + end.len() && begins(other, name) && ends(other, end)
        };
        let field = headers.fields.iter().find(|(other, _)| count(other))?;
        all(field.1)
    };
    let Some(counts) = count("-count").or_else(|| count("-state")) else { return };
    for (limit, span) in limits {
        let used = counts.iter().find(|(_, other)| *other == span).map(|(used, _)| *used);
        let whose = name.get(2..).unwrap_or_default().to_ascii_lowercase();
        let whose = whose.replace("rate-limit", "");
        signals.push(Signal {
            name: label(&format!("{}:{}", whose.trim_matches('-'), span.as_secs())),
            limit: Some(limit),
            remaining: used.map(|used| limit.saturating_sub(used)),
            window: Window::from_duration(span),
            ..Signal::default()
        });
    }
}

/// Pairs of a count and the seconds that it is for; none of them if one is malformed.
fn all(text: &str) -> Option<Vec<(u64, Duration)>> {
    let pair = |pair: &str| {
        let mut parts = pair.split(':');
        let count = value::count(parts.next()?)?;
        Some((count, value::count(parts.next()?).and_then(seconds).filter(|span| !span.is_zero())?))
    };
    text.split(',').take(MOST).map(pair).collect()
}

/// `X-MBX-USED-WEIGHT-1M: 4`: the limit is in the documentation only. M is a minute there.
fn interval(name: &str, text: &str) -> Option<Signal> {
    value::count(text).filter(|_| !text.starts_with('-'))?;
    let (stem, interval) = name.rsplit_once('-')?;
    let (number, letter) = interval.split_at(interval.len().checked_sub(1)?);
    let scale = match letter {
        "s" | "S" => 1,
        "m" | "M" => 60,
        "h" | "H" => 3_600,
        "d" | "D" => 86_400,
        _ => return None,
    };
    let span = seconds(number.parse::<u64>().ok()?.checked_mul(scale)?)?;
    let metered = if ends(stem, "weight") { "weight" } else { "orders" };
    Some(Signal {
        dimension: Dimension::new(metered).ok()?,
        name: label(&interval.to_ascii_lowercase()),
        window: Some(Window::from_duration(span)?),
        ..Signal::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};

    #[test]
    fn rule_8_what_was_used_leaves_the_rest() {
        let shopify = [("X-Shopify-Shop-Api-Call-Limit", "32/40")];
        assert_eq!(said(&read(200, &shopify)), ["requests - 40 8 - -"]);
        let strava = [("X-RateLimit-Limit", "600,30000"), ("X-RateLimit-Usage", "604,2912")];
        assert_eq!(
            said(&read(429, &strava)),
            ["requests 15min 600 0 - 15m", "requests day 30000 27088 - 1d"]
        );
        let riot =
            [("X-App-Rate-Limit", "20:1,100:120"), ("X-App-Rate-Limit-Count", "101:120,1:1")];
        assert_eq!(
            said(&read(200, &riot)),
            ["requests app:1 20 19 - 1s", "requests app:120 100 0 - 2m"]
        );
        let exile = [("X-Rate-Limit-Ip", "10:5:10"), ("X-Rate-Limit-Ip-State", "1:5:0")];
        assert_eq!(said(&read(200, &exile)), ["requests ip:5 10 9 - 5s"]);
        let binance = [("X-MBX-USED-WEIGHT-1M", "4"), ("X-MBX-USED-WEIGHT-0M", "4")];
        assert_eq!(said(&read(200, &binance)), ["weight 1m - - - 1m"]);
    }
}
