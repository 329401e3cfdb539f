//! What one request spends.

use crate::Error;
use std::fmt;
use std::sync::Arc;

/// What is metered: `requests`, `tokens`, `usd`, or any name.
#[derive(Debug, Clone, Eq, Hash, PartialOrd, Ord, Default)]
#[allow(clippy::derived_hash_with_manual_eq)] // Equal all the same, only sooner.
pub enum Dimension {
    /// One per call, unless the caller says otherwise.
    #[default]
    Requests,
    /// Anything else, by name.
    Named(Arc<str>),
}

impl Dimension {
    /// The dimension of that name.
    ///
    /// # Errors
    /// [`Error::Dimension`] when it is empty, longer than 64 bytes, or holds anything but ASCII
    /// letters, digits, `_`, `-` and `.`.
    pub fn new(name: &str) -> Result<Self, Error> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        match name {
            "requests" => Ok(Self::Requests),
            _ if !name.is_empty() && name.len() <= 64 && name.bytes().all(legal) => {
                Ok(Self::Named(name.into()))
            }
            _ => Err(Error::Dimension(name.to_owned())),
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Requests => "requests",
            Self::Named(name) => name,
        }
    }
}

impl PartialEq for Dimension {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Requests, Self::Requests) => true,
            // Names mostly are clones of one another.
            (Self::Named(a), Self::Named(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An amount of one dimension, counted in millionths so that `usd=0.013` stays an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(u64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One unit.
    pub const ONE: Self = Self(Self::UNIT);
    /// Millionths in one unit.
    pub const UNIT: u64 = 1_000_000;
    /// The most that can be spent at once: 10^12 units.
    const MOST: u64 = 1_000_000_000_000;

    /// A whole number of units, at most 10^12 (more is taken for that).
    #[must_use]
    pub const fn units(units: u64) -> Self {
        let capped = if units < Self::MOST { units } else { Self::MOST };
        Self(capped * Self::UNIT)
    }

    /// That many millionths.
    #[must_use]
    pub const fn from_millionths(millionths: u64) -> Self {
        Self(millionths)
    }

    /// An amount from a caller's number, to the nearest millionth; whatever is above zero spends
    /// at least one.
    ///
    /// # Errors
    /// [`Error::Cost`] when it is negative, not finite or above 10^12.
    // The only float in admission's neighbourhood: it is gone before anything is decided.
    #[allow(clippy::float_arithmetic, clippy::cast_precision_loss)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn from_f64(value: f64) -> Result<Self, Error> {
        if !(0.0..=Self::MOST as f64).contains(&value) {
            return Err(Error::Cost(value.to_string()));
        }
        let millionths = (value * Self::UNIT as f64).round() as u64;
        Ok(Self(if value > 0.0 { millionths.max(1) } else { 0 }))
    }

    /// Its millionths.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Whole units, rounded down.
    #[must_use]
    pub const fn whole(self) -> u64 {
        self.0 / Self::UNIT
    }

    /// Whether it is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// This and the other; saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This and the other, around zero when they are too much.
    pub(crate) const fn wrapping_plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// How far a tally went since it stood at `before`; not at all if it was begun anew meanwhile.
    pub(crate) const fn since(self, before: Self) -> Self {
        let far = self.0.wrapping_sub(before.0);
        Self(if far > u64::MAX / 2 { 0 } else { far })
    }

    /// This without the other; never below nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// What one request spends, per dimension. One request is spent unless said otherwise.
///
/// ```
/// use paceline_core::{Amount, Cost};
/// let cost = Cost::ONE.with("tokens", Amount::units(1_500))?;
/// assert_eq!(cost.to_string(), "requests=1, tokens=1500");
/// # Ok::<(), paceline_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    requests: Amount,
    others: Vec<(Dimension, Amount)>,
}

impl Cost {
    /// One request and nothing else.
    pub const ONE: Self = Self { requests: Amount::ONE, others: Vec::new() };
    /// Nothing at all: what a permit that is given back has spent.
    pub const NOTHING: Self = Self { requests: Amount::ZERO, others: Vec::new() };

    /// The same cost, spending `amount` of `dimension` instead of what it spent before.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a name that is none.
    pub fn with(mut self, dimension: &str, amount: Amount) -> Result<Self, Error> {
        self.set(Dimension::new(dimension)?, amount);
        Ok(self)
    }

    /// Spends `amount` of `dimension` instead of what it spent before.
    pub fn set(&mut self, dimension: Dimension, amount: Amount) {
        if dimension == Dimension::Requests {
            self.requests = amount;
        } else if let Some(known) = self.others.iter_mut().find(|(name, _)| *name == dimension) {
            known.1 = amount;
        } else {
            self.others.push((dimension, amount));
        }
    }

    /// Adds what another cost spends. A tally wraps around; only differences of tallies count.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.wrapping_plus(other.requests);
        for (dimension, amount) in &other.others {
            self.set(dimension.clone(), self.of(dimension).wrapping_plus(*amount));
        }
    }

    /// Takes away what another cost spends; never below nothing.
    #[inline]
    pub(crate) fn remove(&mut self, other: &Self) {
        self.requests = self.requests.minus(other.requests);
        for (dimension, amount) in &other.others {
            self.set(dimension.clone(), self.of(dimension).minus(*amount));
        }
    }

    /// How much of `dimension` it spends.
    #[must_use]
    #[inline]
    pub fn of(&self, dimension: &Dimension) -> Amount {
        match dimension {
            Dimension::Requests => self.requests,
            Dimension::Named(_) => self
                .others
                .iter()
                .find(|(name, _)| name == dimension)
                .map_or(Amount::ZERO, |(_, amount)| *amount),
        }
    }

    /// Every dimension that it spends, `requests` first.
    pub fn iter(&self) -> impl Iterator<Item = (&Dimension, Amount)> {
        let requests = (&Dimension::Requests, self.requests);
        std::iter::once(requests)
            .chain(self.others.iter().map(|(name, amount)| (name, *amount)))
            .filter(|(_, amount)| !amount.is_zero())
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (dimension, amount)) in self.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{dimension}={}", amount.whole())?;
            let part = amount.millionths() % Amount::UNIT;
            if part != 0 {
                write!(f, ".{}", format!("{part:06}").trim_end_matches('0'))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_is_no_amount_is_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(matches!(Amount::from_f64(bad), Err(Error::Cost(_))), "{bad}");
        }
        assert_eq!(Amount::from_f64(0.013).unwrap().millionths(), 13_000);
        assert_eq!(Amount::from_f64(1e-9).unwrap().millionths(), 1);
    }

    #[test]
    fn a_cost_spends_one_request_unless_told_otherwise() {
        let cost = Cost::ONE.with("usd", Amount::from_f64(0.013).unwrap()).unwrap();
        assert_eq!(cost.to_string(), "requests=1, usd=0.013");
        let free = cost.with("requests", Amount::ZERO).unwrap();
        assert_eq!(free.to_string(), "usd=0.013");
        assert!(Cost::ONE.with("no spaces", Amount::ONE).is_err());
    }
}
