//! What became of calls, as programs in Rust hear of it.
#![cfg(not(loom))]

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use paceline::{Limit, Limiter, Reading, VirtualClock, WAITS};
use std::collections::BTreeMap;
use std::time::Duration;

const HOST: &str = "https://api.example.com";

fn limiter(limit: &str) -> Limiter {
    let limiter = Limiter::builder().clock(VirtualClock::default()).build();
    limiter.set_limit(HOST, Limit::parse(limit).unwrap()).unwrap();
    limiter
}

/// One that is answered, one that is rejected, one that fails, one that is given back, one refused.
fn calls(limiter: &Limiter) {
    let rejected =
        Reading { rejected: true, retry_after: Some(Duration::from_secs(5)), ..Reading::default() };
    let mut permit = limiter.acquire_blocking(HOST).unwrap();
    permit.observe(&Reading::default()).unwrap();
    let mut permit = limiter.acquire_blocking(HOST).unwrap();
    permit.again();
    permit.observe(&rejected).unwrap();
    let mut permit = limiter.acquire_blocking(HOST).unwrap();
    permit.failed();
    permit.close();
    limiter.acquire_blocking(HOST).unwrap().cancel();
    let _held = limiter.acquire_blocking(HOST).unwrap();
    limiter.acquire_now(HOST).unwrap_err();
}

#[test]
fn nothing_is_measured_before_somebody_asks_and_then_everything_is() {
    let limiter = limiter("1/10s");
    limiter.acquire_blocking(HOST).unwrap().sent();
    assert!(limiter.metrics().scopes.is_empty());
    limiter.measure();
    calls(&limiter);
    let metrics = limiter.metrics();
    let [scope] = metrics.scopes.as_slice() else { panic!("{metrics:?}") };
    assert_eq!(scope.scope, HOST);
    let tally = &scope.tally;
    assert_eq!((tally.sent, tally.rejected, tally.failed, tally.refused), (3, 1, 1, 1));
    assert_eq!((tally.delayed, scope.retried, scope.holds, scope.spent), (3, 1, 1, 0));
    let within = |secs| {
        let step = WAITS.iter().position(|most| *most == Duration::from_secs(secs));
        scope.waits[step.unwrap()]
    };
    // After the hold of five seconds the bucket was empty.
    assert_eq!((within(10), within(30)), (2, 1));
    assert_eq!(tally.waited, Duration::from_secs(35));
    // The last one was never sent.
    assert_eq!(scope.limits[0].remaining.whole(), 1);
}

#[test]
fn a_recorder_of_the_program_hears_of_it() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let limiter = limiter("1/10s");
        limiter.measure();
        calls(&limiter);
    });
    let told: BTreeMap<String, DebugValue> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| (key.key().name().to_owned(), value))
        .collect();
    assert_eq!(told["paceline.requests.sent"], DebugValue::Counter(3));
    assert_eq!(told["paceline.requests.rejected"], DebugValue::Counter(1));
    assert_eq!(told["paceline.requests.refused"], DebugValue::Counter(1));
    let DebugValue::Histogram(waits) = &told["paceline.wait.duration"] else { panic!("{told:?}") };
    assert_eq!(waits.len(), 3);
}
