//! A limit as it is declared or learned.

use crate::{Dimension, Error, Window};
use std::fmt;

/// So many units of one dimension per window, in one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What it meters.
    pub dimension: Dimension,
    /// What the server calls it, where it was learned and the server has several: `burst`, `day`.
    pub name: Option<Box<str>>,
    /// Units per window.
    pub units: u64,
    /// The window.
    pub window: Window,
    /// How many units a full bucket holds; the units themselves unless said otherwise.
    pub burst: u64,
    /// Never more than `units` in any span of one window (rule 7).
    pub strict: bool,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a limit came from, which decides what may overwrite it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Origin {
    /// A documented number for a known provider: the first real response replaces it.
    Registry,
    /// One of the user's `default_limits`: holds until a response says otherwise.
    Default,
    /// Read from responses, but with a window that had to be inferred.
    Estimated,
    /// Read from responses.
    Confirmed,
    /// Set by the user: detection never overwrites it (rule 12).
    #[default]
    Configured,
}

impl Origin {
    /// Whether the first response that states a limit replaces it.
    #[must_use]
    pub const fn is_provisional(self) -> bool {
        matches!(self, Self::Registry | Self::Default)
    }

    /// The name users see: `configured`, `confirmed`, `estimated`, `registry`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::Estimated => "estimated",
            Self::Confirmed => "confirmed",
            Self::Default | Self::Configured => "configured",
        }
    }
}

impl Limit {
    /// The largest number of units: 10^12, so that all arithmetic stays inside 64 bits.
    pub const MOST: u64 = 1_000_000_000_000;

    /// `units` of `dimension` per `window`, configured, with a burst of the whole limit.
    ///
    /// # Errors
    /// [`Error::Units`] outside 1 to 10^12, [`Error::Dimension`] for a name that is none.
    pub fn new(dimension: &str, units: u64, window: Window) -> Result<Self, Error> {
        let dimension = Dimension::new(dimension)?;
        check("limit", units)?;
        let origin = Origin::Configured;
        Ok(Self { dimension, name: None, units, window, burst: units, strict: false, origin })
    }

    /// Reads `60/1m` or `tokens=90000/1m`.
    ///
    /// # Errors
    /// [`Error::Limit`] when it does not read so, and what [`Limit::new`] refuses.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || Error::Limit(text.to_owned());
        let (dimension, rate) = text.split_once('=').unwrap_or(("requests", text));
        let (units, window) = rate.split_once('/').ok_or_else(bad)?;
        let digits = units.replace('_', "");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let units = digits.parse().map_err(|_| bad())?;
        Self::new(dimension.trim(), units, Window::parse(window.trim())?)
    }

    /// Whether it takes the place of another one in the same scope: they meter the same by the same window.
    #[must_use]
    pub fn replaces(&self, other: &Self) -> bool {
        self.dimension == other.dimension && self.window == other.window
    }

    /// The same limit with a bucket of `burst` units.
    ///
    /// # Errors
    /// [`Error::Units`] outside 1 to 10^12, [`Error::StrictBurst`] on a strict limit.
    pub fn with_burst(mut self, burst: u64) -> Result<Self, Error> {
        if self.strict {
            return Err(Error::StrictBurst);
        }
        check("burst", burst)?;
        self.burst = burst;
        Ok(self)
    }

    /// The same limit, never exceeded in any span of one window (rule 7).
    ///
    /// # Errors
    /// [`Error::StrictBurst`] when it has a burst of its own.
    pub fn strict(mut self) -> Result<Self, Error> {
        if self.burst != self.units {
            return Err(Error::StrictBurst);
        }
        self.strict = true;
        Ok(self)
    }
}

fn check(what: &'static str, value: u64) -> Result<(), Error> {
    if (1..=Limit::MOST).contains(&value) {
        Ok(())
    } else {
        Err(Error::Units { what, value, max: Limit::MOST })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dimension != Dimension::Requests {
            write!(f, "{}=", self.dimension)?;
        }
        write!(f, "{}/{}", self.units, self.window)
    }
}

impl std::str::FromStr for Limit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_prints_as_it_is_read() {
        for text in ["60/1m", "tokens=90000/1m", "10/100ms"] {
            assert_eq!(Limit::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Limit::parse("tokens=90_000/m").unwrap().to_string(), "tokens=90000/1m");
    }

    #[test]
    fn a_bad_limit_says_what_was_expected() {
        for bad in ["60", "0/1m", "-1/1m", "1.5/1m", "x/1m", "60/", "60/1w", "=60/1m", "/1m", ""] {
            assert!(Limit::parse(bad).is_err(), "{bad:?}");
        }
        let text = Limit::parse("60 per minute").unwrap_err().to_string();
        assert!(text.contains("expected [DIMENSION=]N/WINDOW"), "{text}");
        let strict = Limit::parse("60/1m").unwrap().strict().unwrap();
        assert_eq!(strict.with_burst(5), Err(Error::StrictBurst));
    }
}
