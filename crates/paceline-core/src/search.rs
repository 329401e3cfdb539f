//! Searching for the rate of an API that says nothing of it.
//!
//! Requests are spaced evenly, so a rejection says that the present rate is too high whichever way the
//! server counts. What was got through between two rejections, by the time that took, is what the
//! server allows; from a little below that the rate rises again along a cubic curve (as in RFC 9438),
//! flat around what is known and steeper beyond it. The curve is one of requests that passed and not of
//! time: how often the limit is touched then depends on neither the rate nor the server's window.

use crate::Tick;

/// What is known of the rate, in units per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Search {
    /// What was got through at last; zero before the first rejection.
    pub(crate) peak: u64,
    /// Requests that passed since the last rejection.
    pub(crate) passed: u64,
    /// When counting them began.
    pub(crate) since: Tick,
    /// The last of the present run of rejections; zero when there is none.
    pub(crate) refused: Tick,
    /// Requests that passed one after another since.
    pub(crate) streak: u64,
}

impl Search {
    /// The rate to begin with.
    pub(crate) const FIRST: u64 = 300;
    /// The highest rate that is tried.
    pub(crate) const MOST: u64 = 10_000_000;
    /// Passed requests until the rate is back where it was, at the least; at high rates what passes in
    /// one and a half seconds, or the limit would be touched all the time.
    const BACK: u64 = 80;
    /// So many times as many until it rises no faster.
    const STEEPEST: u64 = 5;
    /// Passed requests that end a run of rejections: single ones pass in the middle of one.
    const OVER: u64 = 8;

    pub(crate) const fn new() -> Self {
        Self { peak: 0, passed: 0, since: Tick::ZERO, refused: Tick::ZERO, streak: 0 }
    }

    /// A request that left at `left` passed, at a rate of `rate`. Gives the next rate.
    pub(crate) fn pass(&mut self, left: Tick, rate: u64, now: Tick) -> u64 {
        if self.since == Tick::ZERO {
            self.since = now;
        }
        self.passed += 1;
        if self.refused != Tick::ZERO {
            self.streak += u64::from(left >= self.refused);
            if self.streak < Self::OVER {
                return rate;
            }
            // The server takes requests again: so much it took, in all that time. A short time says
            // little, so what was known before falls by a fifth at most.
            let nanos = now.as_nanos().saturating_sub(self.since.as_nanos()).max(1);
            let measured = u128::from(self.passed) * 60_000_000_000 / u128::from(nanos);
            let measured = u64::try_from(measured).unwrap_or(rate);
            self.peak = measured.max(self.peak - self.peak / 5).clamp(1, Self::MOST);
            (self.passed, self.since, self.refused) = (0, now, Tick::ZERO);
        }
        let next = match self.peak {
            0 => rate + (rate / 16).max(1),
            peak => cubic(peak, self.passed),
        };
        next.clamp(1, Self::MOST)
    }

    /// A request was refused, at a rate of `rate`. Gives the next rate: where too little passes between
    /// two rejections to measure anything, a lower one.
    pub(crate) fn refuse(&mut self, rate: u64, now: Tick) -> u64 {
        let again = self.refused != Tick::ZERO && self.streak > 0;
        if self.since == Tick::ZERO {
            self.since = now;
        }
        (self.refused, self.streak) = (now, 0);
        if again { (rate - rate / 4).max(1) } else { rate }
    }

    /// How many may go at once: what refills in a fiftieth of a second, for timers are no finer.
    pub(crate) const fn burst(rate: u64) -> u64 {
        1 + rate / 3_000
    }
}

/// A twentieth below the peak, the peak after so many requests, and a tenth more after as many again.
fn cubic(peak: u64, passed: u64) -> u64 {
    // In hundredths of the way back.
    const SCALE: u64 = 10 * 100_u64.pow(3);
    let back = Search::BACK.max(peak / 40);
    let far = (back.abs_diff(passed).saturating_mul(100) / back).min(Search::STEEPEST * 100);
    let part = peak * far.pow(3) / SCALE;
    if passed < back { peak - part / 2 } else { peak + part }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Policy, Reading};

    /// A server that lets `limit` pass in two seconds, and says nothing of it.
    struct Hidden {
        limit: usize,
        sliding: bool,
        admitted: Vec<u64>,
    }

    impl Hidden {
        fn admits(&mut self, ms: u64) -> bool {
            let counted = match self.sliding {
                true => self.admitted.iter().rev().take_while(|at| **at + 2_000 > ms).count(),
                false => {
                    self.admitted.iter().rev().take_while(|at| **at / 2_000 == ms / 2_000).count()
                }
            };
            if counted < self.limit {
                self.admitted.push(ms);
            }
            counted < self.limit
        }
    }

    #[test]
    fn a_hidden_limit_is_found_and_hardly_ever_exceeded() {
        for (limit, sliding) in [(100, false), (100, true), (10, false), (1_000, true), (2, false)]
        {
            let mut policy = Policy::default();
            policy.adaptive = true;
            let (mut state, mut rejected) = (policy.fresh(), 0);
            let mut server = Hidden { limit, sliding, admitted: Vec::new() };
            let mut flying: std::collections::VecDeque<(u64, crate::Receipt, bool)> = [].into();
            for ms in 1..=120_000 {
                let now = Tick::from_nanos(ms * 1_000_000);
                while flying.front().is_some_and(|(due, ..)| *due <= ms) {
                    let (_, receipt, passed) = flying.pop_front().unwrap();
                    rejected += usize::from(!passed && ms > 20_000);
                    let reading = Reading { rejected: !passed, ..Reading::default() };
                    state.observe(&receipt, &reading, &policy, now);
                }
                while flying.len() < 16
                    && let Ok(receipt) = state.admit(&Cost::ONE, now)
                {
                    flying.push_back((ms + 3, receipt, server.admits(ms)));
                }
            }
            let passed = server.admitted.iter().filter(|at| **at > 20_000).count();
            let share = passed * 100 / (50 * limit);
            // So few tell less.
            let (least, most) = if limit < 10 { (60, 100) } else { (85, 20) };
            assert!(share >= least, "{limit} {sliding}: {share} % after ten windows");
            let of_thousand = rejected * 1_000 / passed;
            assert!(
                of_thousand <= most,
                "{limit} {sliding}: {of_thousand} rejections per thousand"
            );
        }
    }

    #[test]
    fn the_rate_returns_to_what_was_got_through_and_then_goes_beyond() {
        assert_eq!(cubic(1_000, 0), 950);
        assert_eq!(cubic(1_000, 40), 994);
        assert_eq!(cubic(1_000, 80), 1_000);
        assert_eq!(cubic(1_000, 160), 1_100);
        assert_eq!(cubic(Search::MOST, u64::MAX), Search::MOST + Search::MOST / 10 * 125);
    }
}
