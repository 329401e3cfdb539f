//! Rejections, and the waits that they name: `Retry-After` in seconds, as a float, a date or an
//! epoch (RFC 9110 §10.2.3), its twins in milliseconds, and what servers call it else.

use super::name::{begins, is, label};
use super::value::{self, Unit};
use super::{Counting, Headers, Reading, vendor};
use std::time::Duration;

/// Twins in milliseconds; they are exact where `Retry-After` is rounded to seconds.
const MILLIS: [&str; 5] = [
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-amz-retry-after",
    "grpc-retry-pushback-ms",
    "x-retry-after-ms",
];

/// Tells whether the response refused the call, how long it says to wait, and which limit it was.
/// On a success `Retry-After` is mostly noise, and ignored.
pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    if headers.plain && headers.status < 400 && !reading.rejected {
        reading.reason = None;
        return;
    }
    let meta = vendor::meta(headers);
    let told = headers
        .told
        .or_else(|| told(headers))
        .or_else(|| meta?.1)
        .or_else(|| vendor::sentry(headers));
    let spent = |signal: &&crate::Signal| signal.remaining == Some(0);
    let exhausted = reading.signals.iter().any(|signal| spent(&signal));
    let waits = told.is_some_and(|wait| !wait.is_zero());
    reading.rejected |= rejects(headers.status)
        || match headers.status {
            403 => waits || exhausted || meta.is_some_and(|meta| meta.0),
            413 | 502 | 504 => waits,
            418 | 420 | 503 => told.is_some() || exhausted || vendor::throttled(headers),
            400 => {
                let linear = headers.profile.is_some_and(|profile| profile.rejects_with_400);
                linear && exhausted || meta.is_some_and(|meta| meta.0) || vendor::throttled(headers)
            }
            // gRPC's RESOURCE_EXHAUSTED and UNAVAILABLE, and MediaWiki's lag.
            200 => {
                headers.get("grpc-status") == Some("8")
                    || headers.get("grpc-status") == Some("14") && told.is_some()
                    || waits && headers.get("mediawiki-api-error").is_some()
            }
            _ => false,
        };
    if !reading.rejected {
        (reading.retry_after, reading.reason) = (None, None);
        return;
    }
    // The call needs all of its limits: it is the last reset that counts. That of a bucket is when
    // it is full, far later than the next unit.
    let fixed =
        reading.signals.iter().filter(spent).filter(|signal| signal.counting == Counting::Fixed);
    let reset = fixed.filter_map(|signal| signal.reset).max();
    reading.retry_after = reading.retry_after.or(told).or(reset);
    reading.reason = reading.reason.take().or_else(|| reason(headers));
}

/// Whether a status alone refuses the call for rate or load reasons.
pub(super) fn rejects(status: u16) -> bool {
    matches!(status, 429 | 509 | 529)
}

/// The wait that is stated, the exact form first.
fn told(headers: &Headers<'_>) -> Option<Duration> {
    let until = |text: &str| value::until(text, headers.now, Unit::Told);
    let exact = || {
        MILLIS.iter().find_map(|name| value::until(headers.get(name)?, headers.now, Unit::Millis))
    };
    // A singleton; where a gateway and a service disagree, the longer is the safer.
    let standard = || {
        let lines = headers.fields.iter().filter(|(name, _)| is(name, "retry-after"));
        lines.filter_map(|(_, text)| until(text)).max()
    };
    let other = || {
        let named = headers.fields.iter().filter(|(name, _)| is_wait(name));
        named.filter_map(|(_, text)| until(text)).max()
    };
    exact().or_else(standard).or_else(other)
}

/// `RetryAfter`, `X-RateLimit-Retry-After`, `Retry-After-short`, `X-Retry-In`,
/// `X-RateLimit-ToWait-Sec`.
fn is_wait(name: &str) -> bool {
    let mut words = name.split('-').skip_while(|word| !begins(word, "retry"));
    match words.next() {
        Some(word) if is(word, "retryafter") => true,
        Some(word) if is(word, "retry") => {
            words.next().is_some_and(|word| is(word, "after") || is(word, "in"))
        }
        _ => is(name, "x-ratelimit-after") || is(name, "x-ratelimit-towait-sec"),
    }
}

/// What the server calls the limit that refused, where no header of a family says it.
fn reason(headers: &Headers<'_>) -> Option<Box<str>> {
    const NAMES: [&str; 2] = ["stripe-rate-limited-reason", "mediawiki-api-error"];
    let suffix = || {
        let prefix = "retry-after-";
        let (name, _) = headers
            .fields
            .iter()
            .find(|(name, _)| begins(name, prefix) && !is(name, "retry-after-ms"))?;
        label(&name[prefix.len()..])
    };
    NAMES.iter().find_map(|name| label(headers.get(name)?)).or_else(suffix)
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use std::time::Duration;

    fn wait(status: u16, headers: &[(&str, &str)]) -> Option<Duration> {
        read(status, headers).retry_after
    }

    #[test]
    fn rule_23_retry_after_in_every_form() {
        let ms = |status, name, text| wait(status, &[(name, text)]).map(|span| span.as_millis());
        assert_eq!(ms(429, "Retry-After", "7"), Some(7_000));
        assert_eq!(ms(503, "retry-after", "0.5"), Some(500));
        assert_eq!(ms(429, "Retry-After", "0"), Some(0));
        assert_eq!(ms(429, "Retry-After", "Fri, 15 Jan 2027 08:00:09 GMT"), Some(9_000));
        assert_eq!(ms(429, "Retry-After", "2027-01-15T08:00:09Z"), Some(9_000));
        assert_eq!(ms(429, "Retry-After", "1800000009"), Some(9_000));
        assert_eq!(ms(429, "retry-after-ms", "642"), Some(642));
        assert_eq!(ms(503, "x-amz-retry-after", "1500"), Some(1_500));
        assert_eq!(ms(429, "RetryAfter", "17"), Some(17_000));
        assert_eq!(ms(429, "Retry-After-short", "4"), Some(4_000));
        assert_eq!(ms(429, "X-Should-Retry", "1"), None);
        assert_eq!(ms(429, "Retry-After", "soon"), None);
        assert_eq!(ms(200, "Retry-After", "7"), None);
        assert_eq!(ms(202, "Retry-After", "7"), None);
    }

    #[test]
    fn the_exact_milliseconds_win_over_rounded_seconds() {
        let both = [("Retry-After", "1"), ("retry-after-ms", "120")];
        assert_eq!(wait(429, &both), Some(Duration::from_millis(120)));
        let garbled = [("Retry-After", "7"), ("retry-after-ms", "soon")];
        assert_eq!(wait(429, &garbled), Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_rejection_without_a_wait_waits_for_the_exhausted_window() {
        let headers = [
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1800000030"),
        ];
        assert_eq!(wait(403, &headers), Some(Duration::from_secs(30)));
        // The reset of a bucket is when it is full: the next unit comes far sooner.
        let bucket = [
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "59.4s"),
        ];
        assert_eq!(wait(429, &bucket), None);
    }

    #[test]
    fn a_rejection_by_one_of_several_limits_waits_for_that_one() {
        let headers = [
            ("x-rate-limit-limit", "450"),
            ("x-rate-limit-remaining", "449"),
            ("x-rate-limit-reset", "1800000900"),
            ("x-app-limit-24hour-limit", "17"),
            ("x-app-limit-24hour-remaining", "0"),
            ("x-app-limit-24hour-reset", "1800050000"),
        ];
        assert_eq!(wait(429, &headers), Some(Duration::from_secs(50_000)));
    }

    #[test]
    fn what_only_looks_like_a_rejection_is_none() {
        let healthy = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "59")];
        assert!(!read(403, &healthy).rejected);
        let served = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0")];
        assert!(!read(200, &served).rejected);
        assert!(read(200, &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "250")]).rejected);
    }
}
