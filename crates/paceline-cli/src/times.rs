//! Spans of time, as people write and read them.

use jiff::{SignedDuration, Unit};
use std::time::Duration;

/// `50ms`, `1.5s`, `2m 30s`; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let span = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => text.parse::<SignedDuration>().ok().and_then(|span| span.try_into().ok()),
    };
    span.ok_or_else(|| format!("`{text}` is not a time; expected such as 50ms, 2s or 0.5"))
}

/// To the tenth of a second, and in whole seconds from ten on.
pub(crate) fn show(span: Duration) -> String {
    if span.is_zero() {
        return "now".to_owned();
    }
    let tenths = Duration::from_millis(span.as_millis().div_ceil(100) as u64 * 100);
    if tenths < Duration::from_secs(10) {
        return format!("{:.1}s", tenths.as_secs_f64());
    }
    let whole = SignedDuration::try_from(span).and_then(|span| span.round(Unit::Second));
    whole.map_or_else(|_| format!("{span:.0?}"), |whole| format!("{whole:#}"))
}

/// How long something took: to the millisecond, and coarser the longer it is.
pub(crate) fn took(span: Duration) -> String {
    if span.is_zero() {
        return "0s".to_owned();
    }
    match span < Duration::from_secs(10) {
        true => format!("{}s", (span.as_secs_f64() * 1_000.0).round() / 1_000.0),
        false => show(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_write_them() {
        for (text, millis) in [("50ms", 50), ("1.5s", 1_500), ("2m 30s", 150_000), ("0.25", 250)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "fast", "-1", "-2s", "NaN", "1e300", "5 parsecs"] {
            assert!(parse(text).is_err_and(|error| error.contains("expected")), "{text}");
        }
    }

    #[test]
    fn times_are_as_exact_as_is_of_use() {
        for (millis, text) in [
            (0, "now"),
            (1, "0.1s"),
            (9_901, "10s"),
            (59_400, "59s"),
            (90_000, "1m 30s"),
            (4_000_000, "1h 6m 40s"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
        for (millis, text) in [(0, "0s"), (12, "0.012s"), (1_500, "1.5s"), (90_000, "1m 30s")] {
            assert_eq!(took(Duration::from_millis(millis)), text);
        }
    }
}
