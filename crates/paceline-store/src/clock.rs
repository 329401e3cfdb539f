//! The monotonic clock of a process.

use paceline_core::{Tick, VirtualClock};

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
                Tick::from_nanos(counter.delta_as_nanos(*epoch, counter.raw()))
            }
            Self::Virtual(clock) => clock.now(),
        }
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
