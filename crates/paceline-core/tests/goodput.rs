//! What gets through to servers of every kind, and what they refuse: the rows of `make goodput` on a clock
//! of their own, where a row takes milliseconds, and the same for other limits, windows and networks.

#[path = "goodput/world.rs"]
mod world;

use paceline_core::provider::Policy as Counts;
use paceline_core::{Limit, Policy, ScopeState};
use std::time::Duration;
use world::{Figures, Plan, Tells, run};

/// One process of sixteen threads, and four of four that share a store.
const PLACES: [(usize, usize); 2] = [(1, 16), (4, 4)];
/// The way there or back in microseconds, and what it takes longer on average: on one machine, and to
/// another one nearby.
const NEAR: (u64, u64) = (1_000, 500);
const FAR: (u64, u64) = (5_000, 4_000);

/// All that happens in worlds that differ in their noise, and in where within a second they begin.
fn all(plan: &Plan, worlds: u64) -> Figures {
    (1..=worlds).map(|seed| run(Plan { seed, ..plan.clone() })).fold(
        Figures::default(),
        |sum, one| Figures {
            admitted: sum.admitted + one.admitted,
            refused: sum.refused + one.refused,
            could: sum.could + one.could,
        },
    )
}

/// At most so many refusals per 1,000 admitted, and at least so many percent of what could be admitted.
fn reaches(plan: &Plan, ways: &[(u64, u64)], refused: u64, percent: u64) {
    for (processes, callers) in PLACES {
        for (way, jitter) in ways {
            let (way, jitter) = (Duration::from_micros(*way), Duration::from_micros(*jitter));
            let plan = Plan { processes, callers, way, jitter, ..plan.clone() };
            let found = all(&plan, if plan.limit > 100 { 1 } else { 8 });
            let place = format!("{processes} x {callers}, {way:?}: {found:?}");
            assert!(found.refused * 1_000 <= refused * found.admitted, "{place}");
            assert!(found.admitted * 100 >= percent * found.could, "{place}");
        }
    }
}

fn plan(counts: Counts, tells: Tells) -> Plan {
    Plan::new(counts, tells)
}

/// So many requests per window, for so many windows.
fn limited(plan: Plan, limit: u64, window: u64, windows: u32) -> Plan {
    Plan { limit, window: Duration::from_secs(window), windows, ..plan }
}

fn half_a_strangers(plan: Plan) -> Plan {
    Plan { stranger: 500_000, ..plan }
}

#[test]
fn a_fixed_window_is_used_up_without_a_refusal() {
    reaches(&plan(Counts::Fixed, Tells::Github), &[NEAR, FAR], 0, 97);
    reaches(&plan(Counts::Fixed, Tells::Ietf), &[NEAR, FAR], 0, 97);
    reaches(&limited(plan(Counts::Fixed, Tells::Github), 60, 60, 5), &[NEAR, FAR], 0, 99);
    reaches(&limited(plan(Counts::Fixed, Tells::Github), 5_000, 3_600, 2), &[FAR], 0, 99);
}

#[test]
fn a_bucket_is_emptied_without_a_refusal() {
    reaches(&plan(Counts::Bucket, Tells::Openai), &[NEAR, FAR], 0, 97);
    reaches(&limited(plan(Counts::Bucket, Tells::Openai), 60, 60, 5), &[NEAR, FAR], 0, 97);
}

#[test]
fn a_sliding_window_is_used_up_without_a_refusal() {
    reaches(&plan(Counts::Sliding, Tells::Github), &[NEAR], 0, 95);
    // A span of two seconds is not followed to the last request over a way that is longer now and then.
    reaches(&plan(Counts::Sliding, Tells::Github), &[FAR], 1, 95);
    reaches(&limited(plan(Counts::Sliding, Tells::Github), 60, 60, 10), &[NEAR, FAR], 0, 95);
    reaches(&limited(plan(Counts::Sliding, Tells::Github), 1_000, 3_600, 4), &[FAR], 0, 95);
}

#[test]
fn a_sliding_window_that_is_known_is_used_up_without_a_refusal() {
    let strict = Limit::parse("100/2s").unwrap().strict().unwrap();
    let state = ScopeState::with_limits(&[strict]);
    reaches(&Plan { state, ..plan(Counts::Sliding, Tells::Nothing) }, &[NEAR], 0, 95);
}

/// A server that forgives two milliseconds can only be met over a network that is as even as that.
#[test]
fn requests_that_have_to_come_evenly_do() {
    let one = Limit { burst: 1, ..Limit::parse("100/2s").unwrap() };
    let state = ScopeState::with_limits(&[one]);
    reaches(&Plan { state, ..plan(Counts::Gcra, Tells::Nothing) }, &[NEAR], 5, 92);
}

#[test]
fn what_a_stranger_leaves_of_a_window_is_used_up() {
    let fixed = plan(Counts::Fixed, Tells::Github);
    reaches(&half_a_strangers(fixed.clone()), &[NEAR, FAR], 5, 95);
    reaches(&half_a_strangers(limited(fixed.clone(), 60, 60, 10)), &[NEAR, FAR], 5, 95);
    reaches(&half_a_strangers(limited(fixed, 5_000, 3_600, 2)), &[FAR], 1, 98);
}

#[test]
fn a_server_that_only_says_when_to_come_back_refuses_once_a_window() {
    reaches(&plan(Counts::Fixed, Tells::RetryAfter), &[NEAR], 10, 90);
    reaches(&limited(plan(Counts::Fixed, Tells::RetryAfter), 60, 60, 10), &[NEAR, FAR], 16, 90);
    // It is asked again each minute, for no hold is longer.
    reaches(&limited(plan(Counts::Fixed, Tells::RetryAfter), 5_000, 3_600, 4), &[FAR], 4, 90);
}

/// All sixteen who come at first are refused once: nobody could know.
#[test]
fn a_bucket_that_only_says_when_to_come_back_refuses_hardly_more_than_at_first() {
    reaches(&plan(Counts::Bucket, Tells::RetryAfter), &[NEAR, FAR], 19, 90);
    reaches(&limited(plan(Counts::Bucket, Tells::RetryAfter), 60, 60, 10), &[NEAR, FAR], 60, 85);
}

#[test]
fn a_hidden_limit_is_found_within_ten_windows() {
    let mut policy = Policy::default();
    policy.adaptive = true;
    let hidden = plan(Counts::Bucket, Tells::Nothing);
    let hidden = Plan { warm_up: 10, state: policy.fresh(), policy, ..hidden };
    reaches(&hidden, &[NEAR, FAR], 20, 85);
}
