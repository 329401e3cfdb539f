//! What is in flight: granted, and not yet answered.
//!
//! A process that dies never says what became of its requests, so what is in flight is counted in two
//! generations: the older one is dropped when the younger one has lasted its time.

use crate::{Amount, Cost, Dimension, Tick};
use std::time::Duration;

/// A count of requests whose answers have not come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Flight {
    pub(crate) young: Cost,
    pub(crate) old: Cost,
    /// When the young generation began, and the old one.
    pub(crate) began: Tick,
    pub(crate) before: Tick,
    /// A tally of what was answered so far.
    pub(crate) over: Cost,
}

impl Flight {
    /// Begins a new generation when the present one has lasted its time.
    #[inline]
    pub(crate) fn turn(&mut self, generation: Duration, now: Tick) {
        let age = now.since(self.began);
        if age >= generation {
            let young = std::mem::take(&mut self.young);
            self.old = if age >= generation * 2 { Cost::NOTHING } else { young };
            self.before = self.began;
            self.began = now;
        }
    }

    /// A request leaves.
    #[inline]
    pub(crate) fn add(&mut self, cost: &Cost) {
        self.young.add(cost);
    }

    /// A request that left at `at` is over.
    pub(crate) fn remove(&mut self, cost: &Cost, at: Tick) {
        if at >= self.began {
            self.young.remove(cost);
        } else if at >= self.before {
            self.old.remove(cost);
        }
    }

    /// How much of a dimension is in flight.
    pub(crate) fn of(&self, dimension: &Dimension) -> Amount {
        self.young.of(dimension).plus(self.old.of(dimension))
    }

    /// When nothing of it counts any more.
    pub(crate) fn ends(&self, generation: Duration) -> Tick {
        if self.young.iter().next().is_some() {
            self.began.after(generation * 2)
        } else if self.old.iter().next().is_some() {
            self.began.after(generation)
        } else {
            Tick::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Tick {
        Tick::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn rule_10_what_the_dead_had_in_flight_stops_counting() {
        let (mut flight, generation) = (Flight::default(), Duration::from_secs(30));
        flight.turn(generation, at(100));
        flight.add(&Cost::ONE);
        flight.turn(generation, at(131));
        flight.add(&Cost::ONE);
        assert_eq!(flight.of(&Dimension::Requests), Amount::units(2));
        flight.remove(&Cost::ONE, at(100));
        assert_eq!(flight.of(&Dimension::Requests), Amount::ONE);
        // One answered too late to count takes nothing from the others.
        flight.remove(&Cost::ONE, at(50));
        assert_eq!(flight.of(&Dimension::Requests), Amount::ONE);
        flight.turn(generation, at(500));
        assert_eq!(flight.of(&Dimension::Requests), Amount::ZERO);
        assert!(flight.ends(generation) <= at(500));
    }
}
