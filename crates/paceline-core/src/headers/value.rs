//! The forms in which servers write counts, spans and instants. What cannot be believed is dropped,
//! never guessed: a limiter without a number backs off by itself, one with a wrong number does not.

use super::lexicon::Lexicon;
use super::name::{begins, ends};
use crate::{Limit, Window};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::Offset;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest reset, window or wait that is believed: 366 days. Monthly and yearly quotas exist;
/// what is longer is a mistake, such as an epoch where a delta belongs.
pub const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// How long ago an epoch may lie and still be one: resets of cached answers and skewed clocks are
/// near, what looks like the year 2001 is no instant.
const AGO: Duration = Duration::from_secs(3_650 * 86_400);

/// No value that is a number, a date or a span is longer.
const LONGEST_TEXT: usize = 128;

/// What the number in a reset or a wait counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds, or an epoch in s, ms, µs or ns: told by the value, because names do not.
    #[default]
    Told,
    /// Milliseconds, or an epoch.
    Millis,
}

/// A count of units: ASCII digits, perhaps with a fraction, which is dropped. A plain negative is
/// zero. `-1`, the largest 32-bit numbers and what is above [`Limit::MOST`] mean "unknown" or
/// "unlimited", and yield nothing.
#[must_use]
pub fn count(text: &str) -> Option<u64> {
    let text = trim(text);
    if text == "-1" {
        return None;
    }
    if let Some(digits) = text.strip_prefix('-') {
        return decimal(digits).map(|_| 0);
    }
    let unlimited = [i32::MAX as u64, u32::MAX as u64];
    decimal(text)
        .map(|(whole, _)| whole)
        .filter(|whole| *whole <= Limit::MOST && !unlimited.contains(whole))
}

/// The text without spaces around it: most have none, and are known by two bytes.
pub(super) fn trim(text: &str) -> &str {
    match text.as_bytes() {
        [first, .., last] if first.is_ascii_graphic() && last.is_ascii_graphic() => text,
        _ => text.trim(),
    }
}

/// The time until a reset: a delta, an epoch, a Go duration, a clock span, an ISO 8601, HTTP or
/// JavaScript date. `now` is the server's present; what is past is zero.
#[must_use]
pub fn until(text: &str, now: Duration, unit: Unit) -> Option<Duration> {
    let text = trim(text);
    if text.len() > LONGEST_TEXT && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    if let Some((whole, nanos)) = decimal(text) {
        return number(whole, nanos, now, unit);
    }
    span(text).or_else(|| iso_span(text)).or_else(|| ahead(instant(text)?, now))
}

/// A plain number as time from now.
fn number(whole: u64, nanos: u32, now: Duration, unit: Unit) -> Option<Duration> {
    /// Milliseconds beyond this, eleven days, are rather an epoch in seconds.
    const MANY: u64 = 1_000_000_000;
    let delta = match unit {
        Unit::Told => Some(Duration::new(whole, nanos)),
        Unit::Millis => (whole < MANY).then(|| millis(whole, nanos)),
    };
    if let Some(delta) = delta.filter(|delta| *delta <= LONGEST) {
        return Some(delta);
    }
    let epochs = [
        Duration::new(whole, nanos),
        millis(whole, nanos),
        Duration::from_micros(whole),
        Duration::from_nanos(whole),
    ];
    epochs.into_iter().find_map(|instant| ahead(instant, now))
}

fn millis(whole: u64, nanos: u32) -> Duration {
    let fine = Duration::from_nanos(u64::from(nanos) / 1_000);
    Duration::from_millis(whole).saturating_add(fine)
}

/// The time until an instant, if that is near enough to be one.
fn ahead(instant: Duration, now: Duration) -> Option<Duration> {
    let near = instant.saturating_add(AGO) >= now && instant <= now.saturating_add(LONGEST);
    near.then(|| instant.saturating_sub(now))
}

/// The span in seconds, unless that is absurd.
#[must_use]
pub fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds)).filter(|span| *span <= LONGEST)
}

/// The window that a text of its own states: `60`, `1s`, `10000` in ms, `minute`.
#[must_use]
pub fn window(text: &str, unit: Unit) -> Option<Window> {
    let plain = decimal(text).map(|(whole, nanos)| match unit {
        Unit::Told => Duration::new(whole, nanos),
        Unit::Millis => millis(whole, nanos),
    });
    let span = plain.or_else(|| span(text)).or_else(|| named_span(text))?;
    Window::from_duration(span).filter(|_| span <= LONGEST)
}

/// The span that a word means: `minute`, `hourly`, `perday`, `24hour`, `5h`, `QPS`. A month is
/// taken for 30 days.
#[must_use]
pub fn named_span(word: &str) -> Option<Duration> {
    static WORDS: Lexicon<u64> = Lexicon::new(&[
        ("second", 1),
        ("secondly", 1),
        ("sec", 1),
        ("s", 1),
        ("qps", 1),
        ("rps", 1),
        ("minute", 60),
        ("minutely", 60),
        ("min", 60),
        ("m", 60),
        ("rpm", 60),
        ("tpm", 60),
        ("hour", 3_600),
        ("hourly", 3_600),
        ("h", 3_600),
        ("day", 86_400),
        ("daily", 86_400),
        ("today", 86_400),
        ("d", 86_400),
        ("rpd", 86_400),
        ("tpd", 86_400),
        ("week", 604_800),
        ("weekly", 604_800),
        ("month", 2_592_000),
        ("monthly", 2_592_000),
        ("year", 31_536_000),
    ]);
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, name) = word.split_at(digits);
    let many: u64 = if number.is_empty() { 1 } else { number.parse().ok()? };
    let name = if begins(name, "per") && number.is_empty() { &name[3..] } else { name };
    let name = if number.is_empty() { name } else { name.strip_suffix('s').unwrap_or(name) };
    let name = if name.is_empty() && ends(word, "s") { "s" } else { name };
    // A lone letter is the name of something, not a span.
    if number.is_empty() && name.len() < 3 {
        return None;
    }
    let scale = WORDS.find(name)?;
    seconds(many.checked_mul(scale)?).filter(|span| !span.is_zero())
}

/// An HTTP date (RFC 9110 §5.6.7), since the Unix epoch. A wrong weekday is forgiven.
#[must_use]
pub fn http_date(text: &str) -> Option<Duration> {
    let strict = httpdate::parse_http_date(text).ok().and_then(since_epoch);
    strict.or_else(|| {
        let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
        timestamp(parser.parse_timestamp(text).ok()?)
    })
}

/// A span with units in any order, as Go and many others print it (`6m0s`, `12ms`, `1d2h`), or on
/// a clock, as .NET does (`00:01:30`, `1.02:00:00.5`).
#[must_use]
pub fn span(text: &str) -> Option<Duration> {
    if text.len() > LONGEST_TEXT || !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let on_clock = text.bytes().any(|b| b == b':');
    let span = if on_clock { clock(text) } else { with_units(text) };
    span.filter(|span| *span <= LONGEST)
}

fn with_units(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_ascii_start();
        let (whole, nanos) = decimal(number)?;
        let letters = tail
            .find(|c: char| c.is_ascii_digit() || c == '.' || c.is_ascii_whitespace())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let scale = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000_000_000,
            "d" | "day" | "days" => 86_400_000_000_000,
            _ => return None,
        };
        let fine = u128::from(nanos) * scale / 1_000_000_000;
        let part = u64::try_from(u128::from(whole) * scale + fine).ok()?;
        total = total.checked_add(Duration::from_nanos(part))?;
        rest = tail.trim_ascii_start();
    }
    Some(total)
}

/// `PT30S`.
fn iso_span(text: &str) -> Option<Duration> {
    let span: SignedDuration = text.starts_with('P').then(|| text.parse().ok()).flatten()?;
    Duration::try_from(span).ok().filter(|span| *span <= LONGEST)
}

/// `hh:mm:ss`, perhaps with days before it and a fraction behind.
fn clock(text: &str) -> Option<Duration> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let whole = |text: &str| decimal(text).filter(|part| part.1 == 0).map(|part| part.0);
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let (seconds, nanos) = decimal(seconds)?;
    let hours = whole(days)?.checked_mul(24)?.checked_add(whole(hours)?)?;
    let minutes = hours.checked_mul(60)?.checked_add(whole(minutes)?)?;
    Some(Duration::new(minutes.checked_mul(60)?.checked_add(seconds)?, nanos))
}

/// A date in any of the forms that occur, since the Unix epoch.
fn instant(text: &str) -> Option<Duration> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        iso_date(text)
    } else {
        http_date(text).or_else(|| javascript_date(text))
    }
}

/// ISO 8601 as it occurs: to the minute, with seven digits of a fraction, without a zone (UTC),
/// with a space before the zone, or with its `+` decoded to one.
fn iso_date(text: &str) -> Option<Duration> {
    let time = text.get(11..)?;
    let end =
        time.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).map(|at| 11 + at);
    let (civil, zone) = text.split_at(end.unwrap_or(text.len()));
    let civil: DateTime = civil.parse().ok()?;
    let zone = zone.trim();
    let (sign, digits) = match zone.as_bytes().first() {
        Some(b'-') => (-1, &zone[1..]),
        Some(b'+') => (1, &zone[1..]),
        Some(b'Z' | b'z') if zone.len() == 1 => (1, ""),
        None => (1, ""),
        _ if zone == "UTC" || zone == "GMT" => (1, ""),
        _ => (1, zone),
    };
    let mut figures = digits.bytes().filter(|b| *b != b':');
    let mut two = || {
        let (tens, ones) = (figures.next()?, figures.next()?);
        let digit = |b: u8| b.is_ascii_digit().then(|| i32::from(b - b'0'));
        Some(digit(tens)? * 10 + digit(ones)?)
    };
    let seconds = match digits.len() {
        0 => 0,
        2 => two()? * 3_600,
        4 | 5 => two()? * 3_600 + two()? * 60,
        _ => return None,
    };
    timestamp(Offset::from_seconds(sign * seconds).ok()?.to_timestamp(civil).ok()?)
}

/// `Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)`.
fn javascript_date(text: &str) -> Option<Duration> {
    let text = text.split_once(" (").map_or(text, |(date, _)| date);
    let parsed = strtime::parse("%a %b %d %Y %H:%M:%S GMT%z", text).ok()?;
    timestamp(parsed.to_timestamp().ok()?)
}

fn timestamp(instant: jiff::Timestamp) -> Option<Duration> {
    u64::try_from(instant.as_nanosecond()).ok().map(Duration::from_nanos)
}

fn since_epoch(instant: SystemTime) -> Option<Duration> {
    instant.duration_since(UNIX_EPOCH).ok()
}

/// Whole part and nanoseconds of a plain decimal; no sign, exponent, or other script's digits.
/// More digits than fit are the largest number.
#[must_use]
pub(super) fn decimal(text: &str) -> Option<(u64, u32)> {
    let bytes = text.as_bytes();
    let mut whole = 0u64;
    let mut at = 0;
    while let Some(digit) = bytes.get(at).filter(|b| b.is_ascii_digit()) {
        whole = whole.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        at += 1;
    }
    if at == bytes.len() {
        return (at > 0).then_some((whole, 0));
    }
    let fraction = bytes[at..].strip_prefix(b".")?;
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut nanos = 0;
    for place in 0..9 {
        nanos = nanos * 10 + fraction.get(place).map_or(0, |digit| u32::from(digit - b'0'));
    }
    Some((whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn rule_8_a_reset_is_told_by_its_value() {
        let ms = |text| until(text, NOW, Unit::Told).map(|span| span.as_micros());
        for (text, expected) in [
            ("30", 30_000_000),
            ("0030", 30_000_000),
            ("0.642", 642_000),
            (".5", 500_000),
            ("2502381", 2_502_381_000_000),
            ("1800000060", 60_000_000),
            ("1800000060.5", 60_500_000),
            ("1800000060000", 60_000_000),
            ("1800000060000000", 60_000_000),
            ("1800000060000000000", 60_000_000),
            ("1799990000", 0),
            ("6m0s", 360_000_000),
            ("12ms", 12_000),
            ("1500000ns", 1_500),
            ("2m59.56s", 179_560_000),
            ("1h2m3s", 3_723_000_000),
            ("30s5m", 330_000_000),
            ("1d2h", 93_600_000_000),
            ("1 minute 30 seconds", 90_000_000),
            ("PT1M30S", 90_000_000),
            ("00:00:03", 3_000_000),
            ("1.00:00:00.5", 86_400_500_000),
            ("2027-01-15T08:01:00Z", 60_000_000),
            ("2027-01-15T08:01Z", 60_000_000),
            ("2027-01-15T08:01:00", 60_000_000),
            ("2027-01-15T08:01:00.1234567Z", 60_123_456),
            ("2027-01-15 10:01:00 +0200", 60_000_000),
            ("2027-01-15T08:01:00 00:00", 60_000_000),
            ("2027-01-15T03:01:00-05:00", 60_000_000),
            ("Fri, 15 Jan 2027 08:01:00 GMT", 60_000_000),
            ("Mon, 15 Jan 2027 08:01:00 GMT", 60_000_000),
            ("Fri Jan 15 08:01:00 2027", 60_000_000),
            ("Fri Jan 15 2027 09:01:00 GMT+0100 (Central European Standard Time)", 60_000_000),
        ] {
            assert_eq!(ms(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn rule_8_what_cannot_be_believed_is_dropped() {
        for bad in [
            "",
            "soon",
            "-5",
            "-3s",
            "NaN",
            "1e9",
            "٣٠",
            "3²",
            "+30",
            "1_000",
            "0x10",
            "Infinity",
            "6m0",
            "30 GMT",
            "999999999",
            "7258118400",
            "18446744073709551615",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "+010000-01-01T00:00:00Z",
            "99999999999999h",
            "30\r\nX-Evil: 1",
            "30\0",
            "2027-01-15T08:01:00ä",
            "12:99",
        ] {
            assert_eq!(until(bad, NOW, Unit::Told), None, "{bad}");
        }
        assert_eq!(until(&"9".repeat(5_000), NOW, Unit::Told), None);
    }

    #[test]
    fn rule_8_sentinels_are_unknown_and_other_negatives_are_zero() {
        assert_eq!(count("-17"), Some(0));
        assert_eq!(count("59.0"), Some(59));
        for unknown in ["-1", "2147483647", "9223372036854775807", "sixty", "", "1e400", "NaN"] {
            assert_eq!(count(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn rule_9_words_of_names_are_windows() {
        let seconds = |word| named_span(word).map(|span| span.as_secs());
        for (word, expected) in [
            ("Minute", 60),
            ("secondly", 1),
            ("perhour", 3_600),
            ("24hour", 86_400),
            ("15min", 900),
            ("5h", 18_000),
            ("QPS", 1),
        ] {
            assert_eq!(seconds(word), Some(expected), "{word}");
        }
        for word in ["long", "m", "0M", "1Q", "requests", "per", "99999999999999999d"] {
            assert_eq!(seconds(word), None, "{word}");
        }
    }
}
