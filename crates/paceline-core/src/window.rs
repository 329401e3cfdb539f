//! The span over which a limit counts.

use crate::Error;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// A positive, whole span: `"100ms"`, `"30s"`, `"15m"`, `"1h"`, `"1d"`.
///
/// ```
/// use paceline_core::Window;
/// assert_eq!(Window::parse("15m")?.duration().as_secs(), 900);
/// assert!(Window::parse("0s").is_err());
/// assert!(Window::parse("1.5h").is_err());
/// # Ok::<(), paceline_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(NonZeroU64);

/// Unit names with their nanoseconds, longest span first so that printing picks the largest.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Ten years: longer windows are typing errors, and this keeps all arithmetic inside 64 bits.
const LONGEST: u64 = 3_650 * 86_400_000_000_000;

impl Window {
    /// One minute: what limits are counted by most often.
    pub const MINUTE: Self = match NonZeroU64::new(60_000_000_000) {
        Some(nanos) => Self(nanos),
        None => unreachable!(),
    };

    /// Reads `"1m"`; a bare unit (`"m"`) means one of it.
    ///
    /// # Errors
    /// [`Error::Window`] when it is not a whole number of `ms`, `s`, `m`, `h` or `d` from 1 ms to
    /// ten years.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || Error::Window(text.to_owned());
        let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (digits, unit) = text.split_at(split);
        let count: u64 = if digits.is_empty() { 1 } else { digits.parse().map_err(|_| bad())? };
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        let total = count.checked_mul(*scale).ok_or_else(bad)?;
        Self::from_nanos(total).ok_or_else(bad)
    }

    /// The window of that many nanoseconds, unless it is zero or beyond ten years.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Option<Self> {
        match NonZeroU64::new(nanos) {
            Some(nanos) if nanos.get() <= LONGEST => Some(Self(nanos)),
            _ => None,
        }
    }

    /// The window of that length, unless it is zero or beyond ten years.
    #[must_use]
    pub fn from_duration(span: Duration) -> Option<Self> {
        Self::from_nanos(crate::time::nanos(span))
    }

    /// Its length in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get()
    }

    /// Its length.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }

    /// The natural span nearest to a measured one: servers count per second, ten seconds, minute,
    /// hour or day, else in whole seconds, and what is measured is off by latency and rounding.
    #[must_use]
    pub fn snapped(self) -> Self {
        const SECOND: u64 = 1_000_000_000;
        const NATURAL: [u64; 5] =
            [SECOND, 10 * SECOND, 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND];
        let measured = self.0.get();
        let near = |span: u64, share: u64| measured.abs_diff(span) <= span / share;
        let whole = (measured + SECOND / 2) / SECOND * SECOND;
        let natural = NATURAL.into_iter().find(|span| near(*span, 4));
        natural
            .or_else(|| (whole > 0 && near(whole, 20)).then_some(whole))
            .and_then(Self::from_nanos)
            .unwrap_or(self)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.get();
        match UNITS.iter().find(|(_, scale)| nanos.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", nanos / scale),
            None => write!(f, "{:?}", self.duration()),
        }
    }
}

impl std::str::FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_and_positive() {
        for (text, secs) in [("30s", 30), ("15m", 900), ("1h", 3600), ("1d", 86_400), ("m", 60)] {
            assert_eq!(Window::parse(text).unwrap().duration(), Duration::from_secs(secs));
        }
        for bad in ["", "0s", "-1s", "1.5h", "1", "h1", "1w", "1 m", "99999999999d", "1s ", "٣s"] {
            assert!(Window::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_window_prints_as_it_is_read() {
        for text in ["100ms", "30s", "15m", "1h", "1d", "90s"] {
            assert_eq!(Window::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_measured_window_snaps_to_a_natural_one() {
        let snap = |ms: u64| Window::from_nanos(ms * 1_000_000).unwrap().snapped().to_string();
        assert_eq!(snap(59_200), "1m");
        assert_eq!(snap(10_950), "10s");
        assert_eq!(snap(2_999), "3s");
        assert_eq!(snap(200), "200ms");
    }
}
