//! Chance that is the same each time (SplitMix64).

use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A whole number from 0 to `most`.
    pub(super) fn upto(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let scaled = (u128::from(self.roll()) * (u128::from(most) + 1)) >> 64;
        u64::try_from(scaled).unwrap_or(most)
    }

    /// The time to the next of events that come at random, `mean` apart on average.
    // No decision of the engine depends on it: this is when callers come.
    #[allow(clippy::float_arithmetic, clippy::cast_precision_loss)]
    pub(super) fn pause(&mut self, mean: Duration) -> Duration {
        let share = (self.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        Duration::try_from_secs_f64(mean.as_secs_f64() * -(1.0 - share).ln()).unwrap_or(mean)
    }
}
