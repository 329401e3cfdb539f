//! Reading what a response says about limits: a table of families, one small file each.
//!
//! A new family is a file with a `read` function, a row in `FAMILIES` and its test vectors.
//! Malformed values yield no signal, never an error; absurd ones are clamped or dropped (rule 8).

mod anthropic;
mod ietf;
mod openai;
mod retry_after;
pub mod value;
mod x_ratelimit;

use crate::Dimension;
use crate::signal::{Counting, Reading, Signal};
use std::time::Duration;

/// One way of saying it.
struct Family {
    /// What the lower-case names of its headers begin with.
    prefix: &'static str,
    read: fn(&Headers<'_>) -> Vec<Signal>,
}

/// In order of precedence: for each dimension the first family that speaks of it is believed.
const FAMILIES: [Family; 5] = [
    Family { prefix: "anthropic-ratelimit-", read: anthropic::read },
    Family { prefix: "x-ratelimit-", read: openai::read },
    Family { prefix: "ratelimit", read: ietf::read },
    Family { prefix: "x-ratelimit-", read: x_ratelimit::read },
    Family { prefix: "x-rate-limit-", read: x_ratelimit::read },
];

/// The headers of one response that may speak of limits, and when they were made.
#[derive(Debug)]
pub struct Headers<'a> {
    status: u16,
    /// Names are as they came; compare without case.
    fields: Vec<(&'a str, &'a str)>,
    /// The server's present, since the Unix epoch.
    now: Duration,
}

impl<'a> Headers<'a> {
    /// The value of the header called `name`; of several, the first.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// All values of the header called `name`, joined as RFC 9110 allows for lists.
    fn list(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .fields
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// A signal told in three fields, `name` giving the header of `limit`, `remaining` and `reset`.
    fn triple(
        &self,
        dimension: &str,
        counting: Counting,
        name: impl Fn(&str) -> String,
    ) -> Option<Signal> {
        let signal = Signal {
            dimension: Dimension::new(dimension).ok()?,
            name: None,
            limit: self.get(&name("limit")).and_then(value::count).filter(|limit| *limit > 0),
            remaining: self.get(&name("remaining")).and_then(value::count),
            reset: self.get(&name("reset")).and_then(|text| value::until(text, self.now)),
            window: None,
            counting,
        };
        (signal.limit.is_some() || signal.remaining.is_some()).then_some(signal)
    }

    fn speaks(&self, prefix: &str) -> bool {
        self.fields.iter().any(|(name, _)| begins(name, prefix))
    }
}

/// Reads one response. `now` is the local time since the Unix epoch.
///
/// Allocates nothing when no header speaks of limits.
///
/// ```
/// use paceline_core::headers::detect;
/// use std::time::Duration;
///
/// let headers = [("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "0"), ("Retry-After", "7")];
/// let reading = detect(429, headers, Duration::from_secs(1_800_000_000));
/// assert_eq!(reading.retry_after, Some(Duration::from_secs(7)));
/// assert_eq!(reading.signals[0].limit, Some(60));
/// ```
pub fn detect<'a>(
    status: u16,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    now: Duration,
) -> Reading {
    let mut date = None;
    let mut fields = Vec::new();
    for (name, value) in headers {
        if speaks_of_limits(name) {
            fields.push((name, value.trim()));
        } else if name.eq_ignore_ascii_case("date") {
            date = Some(value);
        }
    }
    if fields.is_empty() {
        return Reading { rejected: retry_after::rejects(status, false), ..Reading::default() };
    }
    let now = date.map_or(now, |date| server_time(date, now));
    let headers = Headers { status, fields, now };
    let mut signals: Vec<Signal> = Vec::new();
    for family in &FAMILIES {
        if !headers.speaks(family.prefix) {
            continue;
        }
        for signal in (family.read)(&headers) {
            if signals.iter().all(|known| known.dimension != signal.dimension) {
                signals.push(signal);
            }
        }
    }
    let (rejected, retry_after) = retry_after::read(&headers, &signals);
    Reading { signals, retry_after, rejected, ..Reading::default() }
}

/// Whether [`detect`] looks at a header's value. Cheap, because at most it does not.
#[must_use]
pub fn is_relevant(name: &str) -> bool {
    name.eq_ignore_ascii_case("date") || speaks_of_limits(name)
}

fn speaks_of_limits(name: &str) -> bool {
    matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'r' | b'R' | b'a' | b'A'))
        && (begins(name, "retry-after")
            || FAMILIES.iter().any(|family| begins(name, family.prefix)))
}

fn begins(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Rule 14: epochs are read against the response's own `Date`. That has whole seconds only, so a
/// local clock that agrees with it to the second is the finer of the two.
fn server_time(date: &str, local: Duration) -> Duration {
    let Some(date) = value::http_date(date) else { return local };
    let agrees = local >= date && local - date < Duration::from_secs(2);
    if agrees { local } else { date }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn read(status: u16, headers: &[(&str, &str)]) -> Reading {
        detect(status, headers.iter().copied(), NOW)
    }

    #[test]
    fn a_response_with_nothing_to_say_teaches_nothing() {
        assert!(read(200, &[("content-type", "text/html"), ("x-request-id", "7")]).is_silent());
    }

    #[test]
    fn rule_14_epochs_are_read_against_the_date_header() {
        let headers = [
            ("Date", "Fri, 15 Jan 2027 07:00:00 GMT"),
            ("X-RateLimit-Limit", "60"),
            ("X-RateLimit-Remaining", "1"),
            ("X-RateLimit-Reset", "1799996430"),
        ];
        // The local clock is an hour ahead of the server.
        let signal = &read(200, &headers).signals[0];
        assert_eq!(signal.reset, Some(Duration::from_secs(30)));
    }

    proptest! {
        /// Rule 8: no header can make us fail, and no wait is beyond a year.
        #[test]
        fn rule_8_hostile_headers_neither_fail_nor_stall(
            status in 100u16..600,
            headers in proptest::collection::vec((
                "(?i)(x-ratelimit-limit|x-ratelimit-remaining|x-ratelimit-reset|ratelimit|ratelimit-policy|retry-after|x-ratelimit-reset-tokens|anthropic-ratelimit-tokens-reset|date|retry-after-ms)",
                "(-?[0-9]{0,40}|[0-9.]{0,9}(ms|s|m|h)|NaN|1e309|\"[a-z]\";r=[0-9]{0,20};t=[0-9]{0,20}|.{0,30})",
            ), 0..8),
        ) {
            let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let reading = detect(status, pairs, NOW);
            let year = Duration::from_secs(366 * 86_400);
            prop_assert!(reading.retry_after.is_none_or(|wait| wait <= year));
            for signal in reading.signals {
                prop_assert!(signal.reset.is_none_or(|reset| reset <= year));
            }
        }
    }
}
