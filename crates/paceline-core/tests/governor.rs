//! Decision by decision the same as `governor`, the reference for this arithmetic.

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use paceline_core::{Amount, Cost, Limit, ScopeState, Tick, Verdict, Window};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::time::Duration;

proptest! {
    /// Any bucket, any costs, any pauses: granted together, and refused for the same time.
    #[test]
    fn rule_1_every_verdict_is_governors(
        units in 1_u32..10_000,
        // One unit's refill, in nanoseconds: windows from 100 ms to days.
        refill in 100_000_u64..100_000_000_000,
        burst in 1_u32..10_000,
        history in proptest::collection::vec((0_u64..400, 1_u32..40), 1..200),
    ) {
        let window = Window::from_nanos(refill * u64::from(units));
        prop_assume!(window.is_some());
        let limit = Limit::new("requests", u64::from(units), window.unwrap()).unwrap();
        let mut ours = ScopeState::with_limits(&[limit.with_burst(u64::from(burst)).unwrap()]);

        let clock = FakeRelativeClock::default();
        let quota = Quota::with_period(Duration::from_nanos(refill)).unwrap();
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap());
        let theirs = RateLimiter::direct_with_clock(quota, clock.clone());

        let mut now = Tick::ZERO;
        for (pause, cost) in history {
            // In hundredths of a refill, so that many pauses end between two units.
            let pause = Duration::from_nanos(refill / 100 * pause);
            (now, _) = (now.after(pause), clock.advance(pause));
            let cost = cost.min(burst);
            let mut spent = Cost::NOTHING;
            spent.set(paceline_core::Dimension::Requests, Amount::units(u64::from(cost)));
            let verdict = ours.charge(&spent, now);
            match theirs.check_n(NonZeroU32::new(cost).unwrap()).unwrap() {
                Ok(()) => prop_assert_eq!(verdict, Verdict::Granted),
                Err(refused) => {
                    let Verdict::Wait(wait) = verdict else { panic!("granted what governor refused") };
                    prop_assert_eq!(wait.after, refused.wait_time_from(clock.now()));
                }
            }
        }
    }
}
