//! Lists of keys and values in one header: Auth0, Zendesk, Salesforce, Upbit, Azure Compute, EPO.

use super::list::split;
use super::name::{begins, is, label};
use super::value::{self, Unit};
use super::{Headers, Reading, Signal};
use crate::Window;
use std::time::Duration;

/// More entries than any server sends.
const MOST: usize = 16;

pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    for (name, text) in &headers.fields {
        let signals = &mut reading.signals;
        if begins(name, "auth0-") {
            signals.extend(
                split(text, |c| c == ',')
                    .take(MOST)
                    .filter_map(|part| quota(name, part, headers.now)),
            );
        } else if begins(name, "zendesk-ratelimit-") {
            signals.extend(endpoint(name, text, headers.now));
        } else if is(name, "sforce-limit-info") {
            signals.extend(split(text, |c| c == ';').take(MOST).filter_map(usage));
        } else if is(name, "remaining-req") {
            signals.extend(["sec", "min"].into_iter().filter_map(|word| left(text, word)));
            reading.bucket = get(text, "group").and_then(label);
        } else if is(name, "x-ms-ratelimit-remaining-resource") {
            signals.extend(split(text, |c| c == ',').take(MOST).filter_map(policy));
        } else if is(name, "x-throttling-control") {
            signals.extend(lights(text));
        }
    }
}

/// What is set to a key among `a=1; b=2`.
fn get<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.split([';', ',']).take(MOST).filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(known, value)| (known.trim(), value.trim()))
        .find(|(known, _)| is(known, key))
        .map(|(_, value)| value)
}

/// `Auth0-Client-Quota-Limit: b=per_hour;q=10;r=7;t=3540`.
fn quota(name: &str, text: &str, now: Duration) -> Option<Signal> {
    let number = |key| get(text, key).and_then(value::count);
    let bucket = get(text, "b")?;
    let whose = name.split('-').nth(1)?.to_ascii_lowercase();
    let span = value::named_span(bucket.rsplit('_').next()?);
    let signal = Signal {
        name: label(&format!("{whose}:{bucket}")),
        limit: number("q").filter(|limit| *limit > 0),
        remaining: number("r"),
        reset: get(text, "t").and_then(|text| value::until(text, now, Unit::Told)),
        window: span.and_then(Window::from_duration),
        ..Signal::default()
    };
    (signal.limit.is_some() || signal.remaining.is_some()).then_some(signal)
}

/// `Zendesk-RateLimit-Tickets-Index: total=100; remaining=99; resets=41`.
fn endpoint(name: &str, text: &str, now: Duration) -> Option<Signal> {
    let number = |key| get(text, key).and_then(value::count);
    let signal = Signal {
        name: label(&name["zendesk-ratelimit-".len()..].to_ascii_lowercase()),
        limit: number("total").filter(|limit| *limit > 0),
        remaining: number("remaining"),
        reset: get(text, "resets").and_then(|text| value::until(text, now, Unit::Told)),
        ..Signal::default()
    };
    (signal.limit.is_some() || signal.remaining.is_some()).then_some(signal)
}

/// `api-usage=18/5000`, and `per-app-api-usage=17/250(appName=x)`: the former is per day
/// (<https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/headers_api_usage.htm>).
fn usage(text: &str) -> Option<Signal> {
    let (name, counts) = text.split_once('=')?;
    let (used, limit) = counts.split_once('/')?;
    let limit = limit.split('(').next()?;
    let (used, limit) = (value::count(used)?, value::count(limit).filter(|limit| *limit > 0)?);
    let span = (name.trim() == "api-usage").then(|| value::seconds(86_400)).flatten();
    Some(Signal {
        name: label(name),
        limit: Some(limit),
        remaining: Some(limit.saturating_sub(used)),
        window: span.and_then(Window::from_duration),
        ..Signal::default()
    })
}

/// `Remaining-Req: group=default; min=1799; sec=29`.
fn left(text: &str, word: &str) -> Option<Signal> {
    Some(Signal {
        name: label(word),
        remaining: Some(get(text, word).and_then(value::count)?),
        window: value::named_span(word).and_then(Window::from_duration),
        ..Signal::default()
    })
}

/// `Microsoft.Compute/HighCostGet3Min;159`: the window is in the name of the policy.
fn policy(text: &str) -> Option<Signal> {
    let (name, left) = text.rsplit_once(';')?;
    let from = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let digits = from.bytes().rev().take_while(u8::is_ascii_digit).count();
    let span = name.get(from.len() - digits..).filter(|_| digits > 0).and_then(value::named_span);
    Some(Signal {
        name: label(name),
        remaining: Some(value::count(left)?),
        window: span.and_then(Window::from_duration),
        ..Signal::default()
    })
}

/// `idle (retrieval=green:200, search=yellow:20)`: so many a minute, for each service, as the load
/// allows (EPO). `PubChem` sends percentages under the same name, which are no limits.
fn lights(text: &str) -> Vec<Signal> {
    let inside =
        text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside);
    let light = |part: &str| {
        let (name, light) = part.split_once('=')?;
        Some(Signal {
            name: label(name),
            limit: Some(value::count(light.split_once(':')?.1).filter(|limit| *limit > 0)?),
            window: value::seconds(60).and_then(Window::from_duration),
            ..Signal::default()
        })
    };
    inside.unwrap_or_default().split(',').take(MOST).filter_map(light).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};

    #[test]
    fn rule_8_lists_of_keys() {
        for (name, text, expected) in [
            (
                "Auth0-Client-Quota-Limit",
                "b=per_hour;q=10;r=7;t=3540,b=per_day;q=50;r=47;t=43200",
                &[
                    "requests client:per_hour 10 7 3540s 1h",
                    "requests client:per_day 50 47 43200s 1d",
                ][..],
            ),
            (
                "zendesk-ratelimit-tickets-index",
                "total=100; remaining=99; resets=41",
                &["requests tickets-index 100 99 41s -"],
            ),
            (
                "Sforce-Limit-Info",
                "api-usage=10018/100000; api-bursts=1/750",
                &["requests api-usage 100000 89982 - 1d", "requests api-bursts 750 749 - -"],
            ),
            ("Remaining-Req", "group=default; sec=29", &["requests sec - 29 - 1s"]),
            (
                "x-ms-ratelimit-remaining-resource",
                "Microsoft.Compute/Get3Min;159,Microsoft.Compute/Get;7",
                &[
                    "requests Microsoft.Compute/Get3Min - 159 - 3m",
                    "requests Microsoft.Compute/Get - 7 - -",
                ],
            ),
            (
                "X-Throttling-Control",
                "idle (images=green:200, other=black:0)",
                &["requests images 200 - - 1m"],
            ),
            (
                "X-Throttling-Control",
                "Request Count status: Green (0%), Request Time status: Green (0%)",
                &[],
            ),
        ] {
            assert_eq!(said(&read(200, &[(name, text)])), expected, "{name}");
        }
    }
}
