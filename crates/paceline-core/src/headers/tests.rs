use super::{Detector, Reading, Response, detect, value};
use proptest::prelude::*;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_800_000_000);

/// What headers of an unknown host say.
pub(super) fn read(status: u16, headers: &[(&str, &str)]) -> Reading {
    read_from(status, None, headers)
}

/// What headers of a known one say.
pub(super) fn read_from(status: u16, url: Option<&str>, headers: &[(&str, &str)]) -> Reading {
    let headers = headers.iter().copied();
    detect(&Detector::default(), Response { status, url, now: NOW, headers, body: None })
}

/// Dimension, name, limit, remaining, reset and window of each signal, in words.
pub(super) fn said(reading: &Reading) -> Vec<String> {
    fn or_dash(text: Option<impl ToString>) -> String {
        text.map_or_else(|| "-".to_owned(), |text| text.to_string())
    }
    let words = |signal: &crate::Signal| {
        let reset = signal.reset.map(|reset| format!("{reset:?}"));
        [
            signal.dimension.to_string(),
            or_dash(signal.name.as_deref()),
            or_dash(signal.limit),
            or_dash(signal.remaining),
            or_dash(reset),
            or_dash(signal.window),
        ]
        .join(" ")
    };
    reading.signals.iter().map(words).collect()
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
    assert_eq!(said(&read(200, &headers)), ["requests - 60 1 30s -"]);
}

#[test]
fn rule_8_thousands_of_headers_take_no_time() {
    let long = "9".repeat(20_000);
    let names: Vec<_> = (0..5_000).map(|i| format!("X-RateLimit-Limit-{i}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
    assert!(read(429, &headers).signals.len() <= super::MOST_SIGNALS);
}

proptest! {
    /// No header can make us fail, and no wait is beyond a year.
    #[test]
    fn rule_8_hostile_headers_neither_fail_nor_stall(
        status in 100u16..600,
        headers in proptest::collection::vec((
            "(?i)(x-rate-?limit|ratelimit|anthropic-ratelimit|x-app-rate-limit|gw-ratelimit|x-ms-user-quota)(-(limit|remaining|reset|used|policy|tokens|minute|interval-ms|fillrate|count|resource)){0,3}|retry-after(-ms|-short)?|date|x-mbx-used-weight-[0-9]{0,9}[mq]|sforce-limit-info|x-app-usage|x-bapi-limit(-status|-reset-timestamp)?|auth0-client-quota-limit|.{0,20}",
            "(-?[0-9]{0,40}|[0-9.]{0,9}(ms|s|m|h|:[0-9]{2}:[0-9]{2})|NaN|1e309|(\"[a-z]\"|[0-9]{1,4});(r|q|w)=[0-9]{0,20};(t|w|qu)=[0-9]{0,20}(,.{0,9})?|[0-9]{4}-[0-9]{2}-[0-9]{2}.{0,16}|[0-9]{1,9}[:/,][0-9]{0,9}|.{0,30})",
        ), 0..12),
    ) {
        let pairs: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let reading = read(status, &pairs);
        prop_assert!(reading.retry_after.is_none_or(|wait| wait <= value::LONGEST));
        for signal in reading.signals {
            prop_assert!(signal.reset.is_none_or(|reset| reset <= value::LONGEST));
            prop_assert!(signal.limit.is_none_or(|limit| limit <= crate::Limit::MOST));
            prop_assert!(signal.remaining.is_none_or(|left| left <= crate::Limit::MOST));
        }
    }
}
