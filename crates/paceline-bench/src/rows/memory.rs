//! Bytes in memory per key, each side in a fresh process.

use super::keyed;
use crate::hosts::{host, limit};
use crate::process::{probe as in_a_fresh_process, resident};
use crate::row::Row;
use governor::{Quota, RateLimiter};
use paceline::{Limiter, VirtualClock};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

const KEYS: usize = 1_000_000;
/// Other keys that go on being used while the million is idle.
const OTHERS: usize = 1_000;

pub(super) fn live_and_idle() -> Vec<Row> {
    let governor = in_a_fresh_process("governor");
    let ours = in_a_fresh_process("ours");
    vec![
        Row::figure("resident memory per live key of 28 bytes", ours[0], "bytes")
            .beside("governor keyed", governor[0])
            .at_most(130.0),
        // Ours keeps nothing; what is left is what the allocator has not handed back to the system,
        // a few megabytes however many keys there were.
        Row::figure("the same, idle and full again", ours[1], "bytes")
            .beside("governor keyed", governor[1])
            .at_most(6.0),
        Row::figure("idle and full keys still stored, of a million", ours[2], "keys")
            .beside("governor keyed", governor[2])
            .at_most(0.0),
    ]
}

/// The figures of one side: bytes per key while all are live and when they are idle, and how many
/// idle keys are still stored.
pub(crate) fn probe(side: &str) -> Vec<f64> {
    match side {
        "governor" => governor(),
        _ => ours(),
    }
}

fn ours() -> Vec<f64> {
    let clock = VirtualClock::default();
    let limiter = Limiter::builder().default_limits([limit("60/1m")]).clock(clock.clone()).build();
    let mut figures = measure(
        |host| keyed::check(&limiter, host),
        || {
            clock.advance(Duration::from_secs(60));
            for i in 0..4 * KEYS {
                assert!(keyed::check(&limiter, &host(KEYS + i % OTHERS)));
                clock.advance(Duration::from_millis(1));
            }
        },
    );
    let stored = limiter.endpoints().expect("the store is here").len();
    figures.push(stored.saturating_sub(OTHERS) as f64);
    figures
}

/// It drops nothing by itself; whoever uses it calls `retain_recent`, which looks at every key.
fn governor() -> Vec<f64> {
    let governor = RateLimiter::keyed(Quota::per_minute(NonZeroU32::MAX));
    let mut figures = measure(
        |host| governor.check_key(&host.to_owned()).is_ok(),
        || {
            for i in 0..4 * KEYS {
                assert!(governor.check_key(&host(KEYS + i % OTHERS)).is_ok());
            }
        },
    );
    figures.push(governor.len().saturating_sub(OTHERS) as f64);
    figures
}

fn measure(check: impl Fn(&str) -> bool, idle: impl FnOnce()) -> Vec<f64> {
    let before = resident();
    for i in 0..KEYS {
        assert!(black_box(check(&host(i))));
    }
    let live = resident();
    idle();
    let per_key = |now: f64| (now - before).max(0.0) / KEYS as f64;
    vec![per_key(live), per_key(resident())]
}
