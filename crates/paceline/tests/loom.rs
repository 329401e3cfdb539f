//! Every interleaving of those who wait, those who leave and those who make room.
//!
//! Run with `make test-loom`.
#![cfg(loom)]

use loom::thread;
use paceline::{Bell, Call, Entry, Limit, Limiter, Permit, Step, VirtualClock, Waiter};
use std::sync::Arc;
use std::time::Duration;

const API: &str = "api.example.com";

/// Two preemptions find nearly every race, in seconds instead of hours.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Nobody sleeps here, so nobody has to be woken.
struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

/// A limiter with one unit an hour, and that unit spent.
fn exhausted() -> (Limiter, VirtualClock, Permit) {
    let clock = VirtualClock::default();
    let limiter = Limiter::builder().clock(clock.clone()).build();
    limiter.set_limit(API, Limit::parse("1/1h").unwrap()).unwrap();
    let permit = limiter.try_acquire(API).unwrap().unwrap();
    (limiter, clock, permit)
}

fn queue(limiter: &Limiter) -> Waiter {
    match limiter.enter(&Call::to(API), || Arc::new(Silent)).unwrap() {
        Entry::Queued(waiter) => waiter,
        Entry::Admitted(_) => panic!("there is no room"),
    }
}

fn granted(waiter: &mut Waiter) -> Option<Permit> {
    match waiter.poll() {
        Step::Done(outcome) => Some(outcome.unwrap()),
        Step::Sleep(_) | Step::Park => None,
    }
}

#[test]
fn rule_20_leaving_in_the_tick_of_the_grant_loses_nothing() {
    explore(|| {
        let (limiter, clock, mut spent) = exhausted();
        spent.sent();
        let first = queue(&limiter);
        let mut second = queue(&limiter);
        clock.advance(Duration::from_secs(3_600));
        // The second, polled early, admits the first, while that one leaves.
        let leaving = thread::spawn(move || drop(first));
        let early = granted(&mut second);
        leaving.join().unwrap();
        let mut permit = early.or_else(|| granted(&mut second)).expect("it is the second's turn");
        permit.sent();
        assert!(limiter.try_acquire(API).unwrap().is_none(), "one unit was there");
        drop(second);
        assert_eq!(limiter.waiting(), 0);
    });
}

#[test]
fn rule_20_what_is_given_back_goes_to_exactly_one() {
    explore(|| {
        let (limiter, _clock, spent) = exhausted();
        let mut first = queue(&limiter);
        let giving = thread::spawn(move || drop(spent));
        let joining = {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let entry = limiter.enter(&Call::to(API), || Arc::new(Silent)).unwrap();
                assert!(matches!(entry, Entry::Queued(_)), "nobody overtakes");
            })
        };
        let early = granted(&mut first);
        giving.join().unwrap();
        joining.join().unwrap();
        let mut permit = early.or_else(|| granted(&mut first)).expect("it is the first's turn");
        permit.sent();
        drop(first);
        assert_eq!(limiter.waiting(), 0);
        assert!(limiter.try_acquire(API).unwrap().is_none(), "one unit was there");
    });
}
