//! The IETF drafts (`draft-ietf-httpapi-ratelimit-headers`): `RateLimit` and `RateLimit-Policy`
//! as structured fields, and the three separate fields of the older drafts.

use super::x_ratelimit::named;
use super::{Headers, Signal, value};
use crate::Window;
use sfv::{BareItem, Dictionary, Integer, List, ListEntry, Parser};
use std::time::Duration;

pub(super) fn read(headers: &Headers<'_>) -> Vec<Signal> {
    let policies = headers.list("ratelimit-policy").map(|text| policies(&text)).unwrap_or_default();
    let stated = headers.list("ratelimit");
    let mut signals = stated.as_deref().map(|text| items(text, &policies)).unwrap_or_default();
    if signals.is_empty() {
        signals.extend(stated.as_deref().and_then(|text| draft_07(text, headers.now)));
    }
    if signals.is_empty() {
        signals.extend(older(headers, &policies));
    }
    // Several policies on one resource: the tightest is the one to live by.
    signals.sort_by_key(|signal| signal.remaining.unwrap_or(u64::MAX));
    signals
}

/// One member of `RateLimit-Policy`.
struct Policy {
    name: Option<String>,
    quota: Option<u64>,
    window: Option<Window>,
}

/// `"default";q=100;w=60`, or in older drafts `100;w=60`.
fn policies(text: &str) -> Vec<Policy> {
    let Ok(list) = Parser::new(text).parse::<List>() else { return Vec::new() };
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { return None };
        let number = |key: &str| item.params.get(key).and_then(integer);
        let counted_otherwise = item.params.get("qu").and_then(BareItem::as_string);
        if counted_otherwise.is_some_and(|unit| unit.as_str() != "requests") {
            return None;
        }
        Some(Policy {
            name: name(&item.bare_item),
            quota: number("q").or_else(|| integer(&item.bare_item)),
            window: number("w").map(value::seconds).and_then(Window::from_duration),
        })
    };
    list.iter().filter_map(item).collect()
}

/// `"default";r=50;t=30`.
fn items(text: &str, policies: &[Policy]) -> Vec<Signal> {
    let Ok(list) = Parser::new(text).parse::<List>() else { return Vec::new() };
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { return None };
        let number = |key: &str| item.params.get(key).and_then(integer);
        let remaining = number("r")?;
        let own = name(&item.bare_item);
        let policy = match policies {
            [only] => Some(only),
            several => several.iter().find(|policy| policy.name == own),
        };
        Some(Signal {
            limit: policy.and_then(|policy| policy.quota),
            remaining: Some(remaining),
            reset: number("t").map(value::seconds),
            window: policy.and_then(|policy| policy.window),
            ..Signal::default()
        })
    };
    list.iter().filter_map(item).collect()
}

/// `limit=100, remaining=50, reset=30`.
fn draft_07(text: &str, now: Duration) -> Option<Signal> {
    let dictionary = Parser::new(text).parse::<Dictionary>().ok()?;
    let member = |key: &str| match dictionary.get(key)? {
        ListEntry::Item(item) => integer(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    Some(Signal {
        limit: member("limit"),
        remaining: Some(member("remaining")?),
        reset: member("reset").and_then(|reset| value::until(&reset.to_string(), now)),
        ..Signal::default()
    })
}

/// `RateLimit-Limit`, `-Remaining`, `-Reset`, the first perhaps with its policies behind it.
fn older(headers: &Headers<'_>, stated: &[Policy]) -> Option<Signal> {
    let mut signal = named(headers, "ratelimit").or_else(|| named(headers, "rate-limit"))?;
    let listed = headers.list("ratelimit-limit").map(|text| policies(&text)).unwrap_or_default();
    signal.limit = signal.limit.or_else(|| listed.first().and_then(|first| first.quota));
    let mut known = stated.iter().chain(&listed);
    let governing = known.find(|policy| policy.quota == signal.limit && policy.window.is_some());
    signal.window = governing.and_then(|policy| policy.window);
    Some(signal)
}

fn name(item: &BareItem) -> Option<String> {
    item.as_string().map(|name| name.as_str().to_owned())
}

fn integer(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer().unwrap_or(Integer::constant(-1)))).ok()
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use std::time::Duration;

    fn check(headers: &[(&str, &str)], expected: (Option<u64>, Option<u64>, Option<u64>, &str)) {
        let reading = detect(200, headers.iter().copied(), Duration::from_secs(1_800_000_000));
        let signal = &reading.signals[0];
        let window = signal.window.map(|window| window.to_string()).unwrap_or_default();
        let reset = signal.reset.map(|reset| reset.as_secs());
        assert_eq!((signal.limit, signal.remaining, reset, window.as_str()), expected);
    }

    #[test]
    fn the_current_draft_joins_policy_by_name() {
        let headers = [
            ("RateLimit-Policy", "\"burst\";q=10;w=1, \"daily\";q=1000;w=86400"),
            ("RateLimit", "\"daily\";r=7;t=3000, \"burst\";r=9;t=1"),
        ];
        check(&headers, (Some(1_000), Some(7), Some(3_000), "1d"));
    }

    #[test]
    fn older_drafts_use_three_fields() {
        let headers = [
            ("RateLimit-Limit", "100, 100;w=60, 5000;w=3600"),
            ("RateLimit-Remaining", "42"),
            ("RateLimit-Reset", "17"),
        ];
        check(&headers, (Some(100), Some(42), Some(17), "1m"));
        check(
            &[("RateLimit", "limit=100, remaining=50, reset=30")],
            (Some(100), Some(50), Some(30), ""),
        );
    }
}
