//! The forms in which servers write numbers, spans and instants.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// No wait is believed beyond a year.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// A count of units: ASCII digits, perhaps with a fraction, which is dropped. A plain negative is
/// zero; `-1` alone means "unknown" or "unlimited" and yields nothing.
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    if text == "-1" {
        return None;
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let whole = decimal(digits)?.0;
    Some(if negative { 0 } else { whole.min(crate::Limit::MOST) })
}

/// The time until a reset: seconds from now, an epoch in s, ms, µs or ns, a Go duration, an
/// ISO 8601 or an HTTP date. Which one is told by the value, because the name does not.
#[must_use]
pub fn until(text: &str, now: Duration) -> Option<Duration> {
    if let Some((whole, nanos)) = decimal(text) {
        let epoch = match whole {
            0..100_000_000 => return Some(Duration::new(whole, nanos).min(LONGEST)),
            100_000_000..100_000_000_000 => Duration::new(whole, nanos),
            100_000_000_000..100_000_000_000_000 => Duration::from_millis(whole),
            100_000_000_000_000..100_000_000_000_000_000 => Duration::from_micros(whole),
            _ => Duration::from_nanos(whole),
        };
        return Some(epoch.saturating_sub(now).min(LONGEST));
    }
    if let Some(span) = span(text) {
        return Some(span);
    }
    let instant = http_date(text).or_else(|| iso_date(text))?;
    Some(instant.saturating_sub(now).min(LONGEST))
}

/// A span in whole seconds.
#[must_use]
pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST)
}

/// A span in milliseconds.
#[must_use]
pub fn millis(text: &str) -> Option<Duration> {
    let (whole, nanos) = decimal(text)?;
    let fine = Duration::from_nanos(u64::from(nanos) / 1_000);
    Some(Duration::from_millis(whole).saturating_add(fine).min(LONGEST))
}

/// An HTTP date, since the Unix epoch.
#[must_use]
pub fn http_date(text: &str) -> Option<Duration> {
    since_epoch(httpdate::parse_http_date(text).ok()?)
}

/// A Go duration: `6m0s`, `12ms`, `2m59.56s`.
fn span(text: &str) -> Option<Duration> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.len() > 40 {
        return None;
    }
    let span: jiff::SignedDuration = text.parse().ok()?;
    Some(span.unsigned_abs().min(LONGEST))
}

fn iso_date(text: &str) -> Option<Duration> {
    let instant: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(instant.as_nanosecond()).ok().map(Duration::from_nanos)
}

fn since_epoch(instant: SystemTime) -> Option<Duration> {
    instant.duration_since(UNIX_EPOCH).ok()
}

/// Whole part and nanoseconds of a plain decimal; no sign, exponent, or other script's digits.
/// More digits than fit are the largest number: a clamp, not an error.
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let padded: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some((whole.parse().unwrap_or(u64::MAX), padded.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn rule_8_a_reset_is_told_by_its_value() {
        let ms = |text| until(text, NOW).map(|span| span.as_millis());
        for (text, expected) in [
            ("30", 30_000),
            ("0.642", 642),
            ("1800000060", 60_000),
            ("1800000060.5", 60_500),
            ("1800000060000", 60_000),
            ("6m0s", 360_000),
            ("12ms", 12),
            ("2m59.56s", 179_560),
            ("1h2m3s", 3_723_000),
            ("2027-01-15T08:01:00Z", 60_000),
            ("Fri, 15 Jan 2027 08:01:00 GMT", 60_000),
            ("1700000000", 0),
        ] {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
        for bad in ["", "soon", "-5", "NaN", "1e9", "٣٠", "+30", "1_000", "0x10", "Infinity"] {
            assert_eq!(ms(bad), None, "{bad}");
        }
        assert_eq!(until(&"9".repeat(5_000), NOW), Some(LONGEST));
    }

    #[test]
    fn rule_8_minus_one_is_unknown_and_other_negatives_are_zero() {
        assert_eq!(count("-1"), None);
        assert_eq!(count("-17"), Some(0));
        assert_eq!(count("59.0"), Some(59));
        assert_eq!(count("99999999999999999999999"), Some(crate::Limit::MOST));
        assert_eq!(count("sixty"), None);
    }
}
