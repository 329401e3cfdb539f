//! The waiting line on a virtual clock: every wait is exact, and nothing sleeps.
#![cfg(not(loom))]

use paceline::headers::{Detector, Response, detect};
use paceline::{
    Bell, Call, Cause, Entry, Error, Limit, Limiter, Permit, Reading, Refused, Step, VirtualClock,
    Waiter,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const API: &str = "api.example.com";

/// A scheduler for many callers: wakes each when its bell rings or its sleep ends.
struct Callers {
    limiter: Limiter,
    clock: VirtualClock,
    wakes: Arc<Mutex<BTreeSet<(u64, usize)>>>,
    waiting: BTreeMap<usize, Waiter>,
    /// Who was admitted when, in milliseconds.
    admitted: Vec<(usize, u64)>,
    refused: Vec<(usize, Refused)>,
    polls: usize,
    /// Permits are kept, so that nothing comes back.
    permits: Vec<Permit>,
}

struct SimulatedBell {
    id: usize,
    clock: VirtualClock,
    wakes: Arc<Mutex<BTreeSet<(u64, usize)>>>,
}

impl Bell for SimulatedBell {
    fn ring(&self) {
        self.ring_after(Duration::ZERO);
    }

    fn ring_after(&self, after: Duration) {
        self.wakes.lock().unwrap().insert((self.clock.now().after(after).as_nanos(), self.id));
    }
}

impl Callers {
    fn new(limits: &[&str]) -> Self {
        let clock = VirtualClock::default();
        let limiter = Limiter::builder().clock(clock.clone()).build();
        for limit in limits {
            limiter.set_limit(API, Limit::parse(limit).unwrap()).unwrap();
        }
        Self {
            limiter,
            clock,
            wakes: Arc::default(),
            waiting: BTreeMap::new(),
            admitted: Vec::new(),
            refused: Vec::new(),
            polls: 0,
            permits: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos() / 1_000_000
    }

    fn arrive(&mut self, id: usize, call: Call<'_>) {
        let (clock, wakes) = (self.clock.clone(), Arc::clone(&self.wakes));
        let bell = move || Arc::new(SimulatedBell { id, clock, wakes }) as Arc<dyn Bell>;
        match self.limiter.enter(&call, bell) {
            Ok(Entry::Admitted(permit)) => self.admit(id, permit),
            Ok(Entry::Queued(waiter)) => {
                self.waiting.insert(id, waiter);
                self.poll(id);
            }
            Err(Error::Refused(refused)) => self.refused.push((id, refused)),
            Err(error) => panic!("{error}"),
        }
    }

    fn admit(&mut self, id: usize, mut permit: Permit) {
        permit.sent();
        self.admitted.push((id, self.now()));
        self.permits.push(permit);
    }

    fn poll(&mut self, id: usize) {
        let Some(waiter) = self.waiting.get_mut(&id) else { return };
        self.polls += 1;
        match waiter.poll() {
            Step::Done(outcome) => {
                self.waiting.remove(&id);
                match outcome {
                    Ok(permit) => self.admit(id, permit),
                    Err(Error::Refused(refused)) => self.refused.push((id, refused)),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Sleep(after) => {
                let at = self.clock.now().after(after).as_nanos();
                self.wakes.lock().unwrap().insert((at, id));
            }
            Step::Park => {}
        }
    }

    /// Lets time pass up to `until` milliseconds, waking everybody on time.
    fn run_until(&mut self, until: u64) {
        loop {
            let next = self.wakes.lock().unwrap().first().copied();
            let Some((at, id)) = next.filter(|(at, _)| *at <= until * 1_000_000) else { break };
            self.wakes.lock().unwrap().remove(&(at, id));
            let now = self.clock.now().as_nanos();
            self.clock.advance(Duration::from_nanos(at.saturating_sub(now)));
            self.poll(id);
        }
        let now = self.clock.now().as_nanos();
        self.clock.advance(Duration::from_nanos((until * 1_000_000).saturating_sub(now)));
    }
}

#[test]
fn rule_3_sixty_go_at_once_and_the_next_waits_one_second() {
    let clock = VirtualClock::default();
    let limiter = Limiter::builder().clock(clock.clone()).build();
    limiter.set_limit(API, Limit::parse("60/1m").unwrap()).unwrap();
    for _ in 0..60 {
        limiter.acquire_blocking(API).unwrap().sent();
    }
    assert_eq!(clock.now().as_nanos(), 0);
    let mut permit = limiter.acquire_blocking(API).unwrap();
    permit.sent();
    assert_eq!(permit.waited(), Duration::from_secs(1));
    assert_eq!(clock.now().as_nanos(), 1_000_000_000);
}

#[test]
fn rule_18_first_come_first_served_and_large_ones_are_not_overtaken() {
    let mut callers = Callers::new(&["tokens=10/1s"]);
    let tokens = |n: f64| Call::to(API).cost("tokens", n).unwrap();
    callers.arrive(0, tokens(10.0));
    callers.arrive(1, tokens(9.0));
    for id in 2..10 {
        callers.arrive(id, tokens(1.0));
    }
    callers.run_until(5_000);
    let order: Vec<_> = callers.admitted.iter().map(|(id, _)| *id).collect();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
    assert_eq!(callers.admitted[1], (1, 900));
    assert_eq!(callers.admitted[9], (9, 1_700));
}

#[test]
fn rule_18_other_scopes_are_not_delayed() {
    let mut callers = Callers::new(&["1/1h"]);
    callers.arrive(0, Call::to(API));
    callers.arrive(1, Call::to(API));
    callers.arrive(2, Call::to("other.example.com"));
    assert_eq!(callers.admitted, [(0, 0), (2, 0)]);
}

#[test]
fn rule_19_one_wake_up_per_admission() {
    let mut callers = Callers::new(&["1000/1s"]);
    for id in 0..11_000 {
        callers.arrive(id, Call::to(API));
    }
    let arrivals = callers.polls;
    callers.run_until(10_000);
    assert_eq!(callers.admitted.len(), 11_000);
    assert_eq!(callers.polls - arrivals, 10_000);
}

#[test]
fn rule_20_those_who_stay_go_at_the_time_they_would_have_had() {
    let mut callers = Callers::new(&["10/1s"]);
    callers.limiter.set_limit(API, Limit::parse("10/1s").unwrap().with_burst(10).unwrap()).unwrap();
    for id in 0..50 {
        callers.arrive(id, Call::to(API));
    }
    assert_eq!(callers.admitted.len(), 10);
    callers.run_until(500);
    // Ten of those who still wait give up.
    for id in 20..30 {
        callers.waiting.remove(&id);
    }
    callers.run_until(10_000);
    assert_eq!(callers.admitted.len(), 40);
    assert_eq!(callers.admitted.last(), Some(&(49, 3_000)));
}

#[test]
fn rule_20_cancelling_in_the_tick_of_the_grant_loses_nothing() {
    let mut callers = Callers::new(&["1/1s"]);
    callers.arrive(0, Call::to(API));
    for round in 0..1_000 {
        let (first, second) = (2 * round + 1, 2 * round + 2);
        callers.arrive(first, Call::to(API));
        callers.arrive(second, Call::to(API));
        // Room comes, and in that tick the second caller, woken early, admits the first one, who
        // gives up before picking it up.
        let now = callers.now();
        callers.clock.advance(Duration::from_secs(1));
        callers.poll(second);
        callers.waiting.remove(&first);
        callers.run_until(now + 1_000);
        assert_eq!(callers.admitted.last(), Some(&(second, now + 1_000)));
    }
}

#[test]
fn rule_20_a_permit_dropped_unsent_is_given_back() {
    let mut callers = Callers::new(&["1/1h"]);
    let permit = callers.limiter.try_acquire(API).unwrap().unwrap();
    callers.arrive(1, Call::to(API));
    assert!(callers.admitted.is_empty());
    drop(permit);
    callers.run_until(0);
    assert_eq!(callers.admitted, [(1, 0)]);
}

#[test]
fn rule_21_a_wait_beyond_max_wait_is_refused_up_front_and_charges_nothing() {
    let mut callers = Callers::new(&["1/1s"]);
    callers.arrive(0, Call::to(API));
    callers.arrive(1, Call::to(API));
    let impatient = Call::to(API).max_wait(Duration::from_millis(1_999));
    callers.arrive(2, impatient);
    let (id, refused) = &callers.refused[0];
    assert_eq!((*id, refused.retry_after), (2, Duration::from_secs(2)));
    assert_eq!(refused.by, Cause::Limit(Limit::parse("1/1s").unwrap().into()));
    let just = Call::to(API).max_wait(Duration::from_secs(2));
    callers.arrive(3, just);
    callers.run_until(3_000);
    assert_eq!(callers.admitted, [(0, 0), (1, 1_000), (3, 2_000)]);
}

#[test]
fn rule_21_max_wait_is_inclusive() {
    let mut callers = Callers::new(&["1/1s"]);
    callers.arrive(0, Call::to(API));
    callers.arrive(1, Call::to(API).max_wait(Duration::from_secs(1)));
    // Whoever comes late to their own turn is still let through.
    callers.clock.advance(Duration::from_millis(2_500));
    callers.poll(1);
    callers.run_until(3_000);
    assert_eq!(callers.admitted, [(0, 0), (1, 2_500)]);
}

#[test]
fn a_first_request_that_is_lost_lets_the_others_go() {
    let mut callers = Callers::new(&[]);
    callers.limiter = Limiter::builder().clock(callers.clock.clone()).learn_first(true).build();
    for id in 0..3 {
        callers.arrive(id, Call::to(API));
    }
    callers.run_until(40);
    callers.permits.clear(); // no answer came
    callers.run_until(50);
    assert_eq!(callers.admitted, [(0, 0), (1, 40), (2, 40)]);
}

#[test]
fn rule_21_a_hold_refuses_those_who_can_no_longer_make_it() {
    let mut callers = Callers::new(&["1/1s"]);
    let mut permit = callers.limiter.try_acquire(API).unwrap().unwrap();
    callers.arrive(1, Call::to(API).max_wait(Duration::from_secs(3)));
    callers.arrive(2, Call::to(API));
    let rejection = Reading {
        retry_after: Some(Duration::from_secs(10)),
        rejected: true,
        ..Reading::default()
    };
    permit.observe(&rejection).unwrap();
    assert!(callers.admitted.is_empty());
    callers.run_until(0);
    assert_eq!(callers.refused[0].1.retry_after, Duration::from_secs(11));
    callers.run_until(20_000);
    assert_eq!(callers.admitted, [(2, 11_000)]);
}

#[test]
fn rule_22_raise_mode_tells_the_wait_without_waiting() {
    let limiter = Limiter::builder().clock(VirtualClock::default()).build();
    limiter.set_limit(API, Limit::parse("60/1m").unwrap().with_burst(1).unwrap()).unwrap();
    limiter.acquire_now(API).unwrap().sent();
    let Err(Error::Refused(refused)) = limiter.acquire_now(API) else { panic!() };
    assert_eq!(refused.retry_after, Duration::from_secs(1));
    assert_eq!(refused.scope, "https://api.example.com");
    assert_eq!(limiter.wait_time(API).unwrap(), Duration::from_secs(1));
}

#[test]
fn whoever_waits_plans_anew_when_a_limit_changes() {
    let mut callers = Callers::new(&["1/1h"]);
    callers.arrive(0, Call::to(API));
    callers.arrive(1, Call::to(API));
    callers.run_until(10);
    callers.limiter.set_limit(API, Limit::parse("2/1h").unwrap()).unwrap();
    callers.run_until(20);
    assert_eq!(callers.admitted, [(0, 0), (1, 10)]);
    callers.arrive(2, Call::to(API));
    callers.limiter.clear(None).unwrap();
    callers.run_until(30);
    assert_eq!(callers.admitted.last(), Some(&(2, 20)));
}

#[test]
fn a_settled_permit_re_times_the_head_at_once() {
    let mut callers = Callers::new(&["tokens=100/100s"]);
    let tokens = |n: f64| Call::to(API).cost("tokens", n).unwrap();
    let mut permit = callers.limiter.try_acquire(tokens(100.0)).unwrap().unwrap();
    callers.arrive(1, tokens(50.0));
    callers.run_until(1_000);
    permit.settle(&[("tokens", 20.0)]).unwrap();
    callers.run_until(1_000);
    assert_eq!(callers.admitted, [(1, 1_000)]);
    // What is left after settling once is what a second settlement starts from.
    permit.settle(&[("tokens", 30.0)]).unwrap();
    let status = callers.limiter.status(API).unwrap().unwrap().1;
    assert_eq!(status.limits[0].remaining.whole(), 100 + 1 - 50 - 30);
}

#[test]
fn one_goes_first_and_the_others_follow_its_answer() {
    let mut callers = Callers::new(&[]);
    callers.limiter = Limiter::builder().clock(callers.clock.clone()).learn_first(true).build();
    for id in 0..5 {
        callers.arrive(id, Call::to(API));
    }
    assert_eq!(callers.admitted, [(0, 0)]);
    callers.run_until(40);
    let headers =
        [("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "9")];
    let response = Response { status: 200, url: None, now: Duration::ZERO, headers, body: None };
    let reading = detect(&Detector::default(), response);
    callers.permits[0].observe(&reading).unwrap();
    callers.run_until(20_000);
    // The window was used up, so the next one is spread.
    assert_eq!(callers.admitted, [(0, 0), (1, 40), (2, 40), (3, 9_040), (4, 10_040)]);
}

proptest! {
    /// Whatever arrives, leaves and comes back: the order holds, and never more than the bucket
    /// and its refill passes.
    #[test]
    fn rules_3_18_and_20_hold_for_any_history(
        history in proptest::collection::vec((0u8..4, 0u64..400), 1..120),
    ) {
        let mut callers = Callers::new(&["5/1s"]);
        for (id, (kind, pause)) in history.into_iter().enumerate() {
            match kind {
                0 => {
                    let someone = callers.waiting.keys().nth(usize::try_from(pause).unwrap() % 3).copied();
                    if let Some(id) = someone {
                        callers.waiting.remove(&id);
                    }
                }
                1 => callers.run_until(callers.now() + pause),
                _ => callers.arrive(id, Call::to(API)),
            }
        }
        callers.run_until(callers.now() + 100_000);
        prop_assert!(callers.waiting.is_empty());
        prop_assert!(callers.admitted.is_sorted_by_key(|(id, _)| *id));
        let times: Vec<_> = callers.admitted.iter().map(|(_, at)| *at).collect();
        for (i, start) in times.iter().enumerate() {
            for (j, end) in times.iter().enumerate().skip(i) {
                prop_assert!((j - i + 1) as u64 <= 5 + (end - start) / 200 + 1);
            }
        }
    }
}
