//! Instants without a clock: a [`Tick`] is handed in, never read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An instant: nanoseconds since the epoch of whichever clock produced it.
///
/// Ticks of different stores are not comparable, which is why only durations leave a store.
/// Arithmetic saturates: 2^64 nanoseconds are 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(u64);

impl Tick {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` later; the end of time if there is no such instant.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// How long ago `earlier` was; zero when it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole nanoseconds, saturating.
#[must_use]
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock that stands still until it is told to move: for tests and simulations.
///
/// Clones share the same time.
///
/// ```
/// use paceline_core::VirtualClock;
/// use std::time::Duration;
///
/// let clock = VirtualClock::default();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().as_nanos(), 60_000_000_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick(self.0.load(Ordering::Acquire))
    }

    /// Moves the present forward by `span`.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(nanos(span), Ordering::AcqRel);
    }
}
