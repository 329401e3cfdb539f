//! The monotonic clock of a process.

use paceline_core::{Tick, VirtualClock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A monotonic clock, or a virtual one.
///
/// Reading the time stamp counter is all that an admission costs, so it is done by `quanta`; its
/// set-up takes microseconds and happens once.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Real time, which never runs backwards.
    Real {
        /// The counter.
        counter: quanta::Clock,
        /// Its reading when this clock was made.
        epoch: u64,
    },
    /// Time that moves when told to.
    Virtual(VirtualClock),
}

/// The reading of a clock that has just begun: tick zero is long past, and means never.
const BEGINNING: u64 = 1_000_000_000_000;

impl Clock {
    /// Real time, counted from now.
    #[must_use]
    pub fn real() -> Self {
        let counter = quanta::Clock::new();
        let epoch = counter.raw();
        Self::Real { counter, epoch }
    }

    /// The present instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Tick {
        match self {
            Self::Real { counter, epoch } => {
                Tick::from_nanos(BEGINNING + counter.delta_as_nanos(*epoch, counter.raw()))
            }
            Self::Virtual(clock) => clock.now().after(Duration::from_nanos(BEGINNING)),
        }
    }

    /// Microseconds since 1970 on the wall clock, which may be set at any time; on a virtual clock, as
    /// if that had begun in 2026.
    #[must_use]
    pub fn wall_micros(&self) -> u64 {
        let wall = match self {
            Self::Real { .. } => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Self::Virtual(clock) => {
                Duration::from_secs(1_767_225_600) + clock.now().since(Tick::ZERO)
            }
        };
        u64::try_from(wall.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The microsecond of a store's clock at which a process's ticks begin: 52 days before the first one that
/// it sees, for instants that were stored before.
#[cfg(any(feature = "redis", feature = "sqlite"))]
#[derive(Debug, Default)]
pub(crate) struct Epoch(std::sync::OnceLock<u64>);

#[cfg(any(feature = "redis", feature = "sqlite"))]
impl Epoch {
    /// A microsecond in ticks, exactly: or a request would leave before the instant at which it left.
    pub(crate) fn tick(&self, micros: u64) -> Tick {
        const BEFORE: u64 = 52 * 86_400 * 1_000_000;
        let epoch = *self.0.get_or_init(|| micros.saturating_sub(BEFORE));
        Tick::from_nanos(micros.saturating_sub(epoch).saturating_mul(1_000))
    }

    /// The microsecond at which it begins, once one was seen.
    #[cfg(feature = "redis")]
    pub(crate) fn begins(&self) -> Option<u64> {
        self.0.get().copied()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

impl From<VirtualClock> for Clock {
    fn from(clock: VirtualClock) -> Self {
        Self::Virtual(clock)
    }
}
