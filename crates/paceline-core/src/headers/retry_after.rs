//! Rejections, and the waits that they name: `Retry-After` in seconds, as a float or as an HTTP
//! date (RFC 9110 §10.2.3), and its twins in milliseconds.

use super::{Counting, Headers, Signal, value};
use std::time::Duration;

/// Twins in milliseconds; they are exact where `Retry-After` is rounded to seconds.
const MILLIS: [&str; 2] = ["retry-after-ms", "x-ms-retry-after-ms"];

/// Whether the response refused the call, and how long it says to wait. On a success
/// `Retry-After` is mostly noise, and ignored.
pub(super) fn read(headers: &Headers<'_>, signals: &[Signal]) -> (bool, Option<Duration>) {
    let told = MILLIS
        .iter()
        .find_map(|name| headers.get(name).and_then(value::millis))
        .or_else(|| headers.get("retry-after").and_then(|text| value::until(text, headers.now)));
    let exhausted = signals.iter().find(|signal| signal.remaining == Some(0));
    let rejected =
        rejects(headers.status, told.is_some()) || (headers.status == 403 && exhausted.is_some());
    if !rejected {
        return (false, None);
    }
    // The reset of a bucket is when it is full: far later than the next unit.
    let reset = exhausted.filter(|signal| signal.counting == Counting::Fixed);
    (true, told.or_else(|| reset.and_then(|signal| signal.reset)))
}

/// Whether a status refuses the call for rate or load reasons.
pub(super) fn rejects(status: u16, names_a_wait: bool) -> bool {
    matches!(status, 429 | 529) || (names_a_wait && matches!(status, 403 | 418 | 503))
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use std::time::Duration;

    fn wait(status: u16, headers: &[(&str, &str)]) -> Option<Duration> {
        detect(status, headers.iter().copied(), Duration::from_secs(1_800_000_000)).retry_after
    }

    #[test]
    fn rule_23_retry_after_in_every_form() {
        let ms = |status, name, text| wait(status, &[(name, text)]).map(|span| span.as_millis());
        assert_eq!(ms(429, "Retry-After", "7"), Some(7_000));
        assert_eq!(ms(503, "retry-after", "0.5"), Some(500));
        assert_eq!(ms(429, "Retry-After", "Fri, 15 Jan 2027 08:00:09 GMT"), Some(9_000));
        assert_eq!(ms(429, "retry-after-ms", "642"), Some(642));
        assert_eq!(ms(429, "Retry-After", "soon"), None);
        assert_eq!(ms(200, "Retry-After", "7"), None);
    }

    #[test]
    fn the_exact_milliseconds_win_over_rounded_seconds() {
        let both = [("Retry-After", "1"), ("retry-after-ms", "120")];
        assert_eq!(wait(429, &both), Some(Duration::from_millis(120)));
    }

    #[test]
    fn a_rejection_without_a_wait_waits_for_the_exhausted_window() {
        let headers = [
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1800000030"),
        ];
        assert_eq!(wait(403, &headers), Some(Duration::from_secs(30)));
    }
}
