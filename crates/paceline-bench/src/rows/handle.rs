//! Decisions behind a handle that was resolved once, against `governor` without keys.

use crate::hosts::{limit, with_default};
use crate::race::{nanos_each, nanos_each_of_two, race};
use crate::row::Row;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use paceline::{Amount, Cost, Endpoint, Verdict};
use std::num::NonZeroU32;
use std::time::Duration;

const HOST: &str = "api.example.com";
const PEER: &str = "governor direct";
/// So large that no round is refused, and so long that its ticks are whole nanoseconds, as those
/// of everyday limits are.
const LIMIT: &str = "1000000000/1d";
const ROUND: usize = 1_000_000;

fn ours() -> Endpoint {
    with_default(LIMIT).endpoint(HOST).expect("a host")
}

/// The same limit.
fn peer() -> DefaultDirectRateLimiter {
    let burst = NonZeroU32::new(1_000_000_000).expect("not zero");
    let quota = Quota::with_period(Duration::from_nanos(86_400)).expect("not zero");
    RateLimiter::direct(quota.allow_burst(burst))
}

fn check(endpoint: &mut Endpoint) -> bool {
    matches!(endpoint.check(), Ok(Verdict::Granted))
}

pub(super) fn one_thread() -> Vec<Row> {
    let race = race(
        || {
            let mut endpoint = ours();
            nanos_each(ROUND, |_| check(&mut endpoint))
        },
        || {
            let governor = peer();
            nanos_each(ROUND, |_| governor.check().is_ok())
        },
    );
    vec![Row::versus("decision behind a handle", PEER, race).at_most_times(1.1)]
}

pub(super) fn two_threads() -> Vec<Row> {
    let race = race(
        || {
            let endpoint = ours();
            let deciders = [(); 2].map(|()| {
                let mut endpoint = endpoint.clone();
                move |_| check(&mut endpoint)
            });
            nanos_each_of_two(ROUND, deciders)
        },
        || {
            let governor = peer();
            nanos_each_of_two(ROUND, [(); 2].map(|()| |_| governor.check().is_ok()))
        },
    );
    vec![Row::versus("decision behind a handle, 2 threads", PEER, race).at_most_times(1.0)]
}

pub(super) fn two_dimensions() -> Vec<Row> {
    let tokens = NonZeroU32::new(100).expect("not zero");
    let cost = Cost::ONE.with("tokens", Amount::units(100)).expect("a dimension");
    let race = race(
        || {
            let limiter = with_default(LIMIT);
            for text in [LIMIT, "tokens=1000000000/1d"] {
                limiter.set_limit(HOST, limit(text)).expect("a host");
            }
            let mut endpoint = limiter.endpoint(HOST).expect("a host");
            nanos_each(ROUND, |_| matches!(endpoint.charge(&cost), Ok(Verdict::Granted)))
        },
        || {
            let (requests, spent) = (peer(), peer());
            nanos_each(ROUND, |_| {
                requests.check().is_ok() && spent.check_n(tokens).is_ok_and(|paid| paid.is_ok())
            })
        },
    );
    let name = "request and tokens, all or nothing";
    vec![Row::versus(name, "two governor checks", race).at_most_times(1.5)]
}
