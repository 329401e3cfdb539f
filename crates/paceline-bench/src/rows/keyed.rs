//! Decisions by the name of the host, against `governor` keyed by `String`.

use crate::hosts::{host, hosts, shuffled, with_default};
use crate::race::{nanos_each, nanos_each_of_two, race};
use crate::row::Row;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use paceline::{Limiter, Verdict};
use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

const PEER: &str = "governor keyed";
/// Each key can be asked a million times, and a request that was spent shows for longer than a
/// round takes: every bucket is live, none could be dropped as full.
const LIMIT: &str = "1000000/1d";
const ROUND: usize = 200_000;

/// The same limit.
pub(super) fn peer() -> DefaultKeyedRateLimiter<String> {
    let burst = NonZeroU32::new(1_000_000).expect("not zero");
    let quota = Quota::with_period(Duration::from_micros(86_400)).expect("not zero");
    RateLimiter::keyed(quota.allow_burst(burst))
}

pub(super) fn ours() -> Limiter {
    with_default(LIMIT)
}

pub(super) fn check(limiter: &Limiter, host: &str) -> bool {
    matches!(limiter.check(host), Ok(Verdict::Granted))
}

/// Both with the same keys, all of them live, decided in the order of the keys: what is random is
/// where their buckets are, so that fetching the keys costs next to nothing.
pub(super) fn by_key(name: impl Into<String>, count: usize) -> Row {
    let keys = hosts(count);
    let (limiter, governor) = (ours(), peer());
    for i in shuffled(count) {
        assert!(check(&limiter, &keys[i]) && governor.check_key(&keys[i]).is_ok());
    }
    let at = (Cell::new(0), Cell::new(0));
    let next = |at: &Cell<usize>| {
        let i = at.get();
        at.set(if i + 1 == count { 0 } else { i + 1 });
        i
    };
    let race = race(
        || nanos_each(ROUND, |_| check(&limiter, &keys[next(&at.0)])),
        || nanos_each(ROUND, |_| governor.check_key(&keys[next(&at.1)]).is_ok()),
    );
    Row::versus(name, PEER, race)
}

pub(super) fn a_thousand_keys() -> Vec<Row> {
    vec![by_key("decision by key, 1,000 keys", 1_000).at_most_times(0.7)]
}

pub(super) fn a_million_keys() -> Vec<Row> {
    vec![by_key("decision by key, 1 million keys", 1_000_000).at_most_times(0.5)]
}

pub(super) fn two_threads() -> Vec<Row> {
    let key = host(7);
    let race = race(
        || {
            let limiter = ours();
            nanos_each_of_two(ROUND, [(); 2].map(|()| |_| check(&limiter, &key)))
        },
        || {
            let governor = peer();
            nanos_each_of_two(ROUND, [(); 2].map(|()| |_| governor.check_key(&key).is_ok()))
        },
    );
    vec![Row::versus("decision by key, 2 threads on one key", PEER, race).at_most_times(0.5)]
}

/// What a caller pays who wants a permit: the decision, the permit and its end. No peer has
/// permits, so `governor`'s bare decision stands beside it, and there is no goal.
pub(super) fn permits() -> Vec<Row> {
    let keys = hosts(1_000);
    let (limiter, governor) = (ours(), peer());
    let permit = |host: &str| {
        let mut permit = limiter.acquire_now(host).ok()?;
        permit.sent();
        Some(())
    };
    let race = race(
        || nanos_each(ROUND, |i| permit(&keys[i % 1_000]).is_some()),
        || nanos_each(ROUND, |i| governor.check_key(&keys[i % 1_000]).is_ok()),
    );
    vec![Row::versus("permit by key, taken and over, 1,000 keys", PEER, race)]
}
