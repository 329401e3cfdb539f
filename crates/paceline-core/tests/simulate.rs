//! What a simulation foretells.

use paceline_core::headers::{Detector, Response, detect};
use paceline_core::provider::{self, Policy as Counts};
use paceline_core::simulate::{
    Arrivals, Bound, Change, Fate, Impossible, Outcome, Past, Server, Simulation, Spend, Tells,
};
use paceline_core::{Amount, Cost, Dimension, Limit, Window};
use proptest::prelude::*;
use std::time::Duration;

fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| Limit::parse(text).unwrap()).collect()
}

fn plan(texts: &[&str], requests: u64) -> Simulation {
    Simulation { limits: limits(texts), requests, ..Simulation::default() }
}

fn server(counts: Counts, tells: Tells, units: u64, window: u64) -> Option<Server> {
    let limit = provider::Limit::new(units, Duration::from_secs(window)).unwrap();
    let limits = vec![(Dimension::Requests, limit)];
    Some(Server { counts, limits, tells, strangers: 0, refusals_cost: false })
}

fn secs(outcome: &Outcome) -> f64 {
    outcome.finished.as_secs_f64()
}

#[test]
fn rule_3_of_sixty_a_minute_sixty_go_at_once_and_the_sixty_first_waits_a_second() {
    let outcome = Simulation { workers: 61, ..plan(&["60/1m"], 61) }.run().unwrap();
    assert_eq!((outcome.waits.some, outcome.waits.max), (1, Duration::from_secs(1)));
    assert_eq!(outcome.finished, Duration::from_secs(1));
}

#[test]
fn a_thousand_calls_of_two_thousand_tokens_take_nineteen_minutes() {
    let mut plan = plan(&["4410/1m", "tokens=100000/1m"], 1_000);
    plan.spends = vec![Spend::exactly("tokens", 2_000).unwrap()];
    let outcome = plan.run().unwrap();
    assert_eq!(outcome.finished, Duration::from_secs(19 * 60));
    assert_eq!(outcome.binding().unwrap().to_string(), "tokens=100000/1m");
    assert_eq!(outcome.usage[1].share, 1_000_000);
    let advice = plan.advice(&outcome).unwrap().unwrap();
    assert_eq!(advice.change, Change::Limit(limits(&["tokens=200000/1m"]).remove(0)));
    assert_eq!(advice.finished, Duration::from_secs(9 * 60));
}

#[test]
fn workers_bind_where_answers_are_slow() {
    let plan =
        Simulation { workers: 4, latency: Duration::from_secs(2), ..plan(&["600/1m"], 1_000) };
    let outcome = plan.run().unwrap();
    assert_eq!(outcome.binding(), Some(&Bound::Workers));
    assert_eq!(outcome.finished, Duration::from_secs(500));
    assert_eq!(outcome.concurrency.ceiling, Some(120));
    assert_eq!(outcome.concurrency.of_use, Some(21));
    assert_eq!(outcome.concurrency.most, 4);
    let advice = plan.advice(&outcome).unwrap().unwrap();
    assert_eq!(advice.change, Change::Workers(8));
    assert_eq!(advice.finished, Duration::from_secs(250));
}

#[test]
fn rule_22_whoever_may_not_wait_is_refused_at_once() {
    let plan = Simulation { max_wait: Some(Duration::ZERO), ..plan(&["60/1m"], 1_000) };
    let outcome = plan.run().unwrap();
    assert_eq!((outcome.answered, outcome.refused), (60, 940));
    assert_eq!(outcome.finished, Duration::ZERO);
    assert_eq!(plan.advice(&outcome).unwrap().unwrap().change, Change::Wait);
}

#[test]
fn rule_21_a_wait_that_would_be_longer_is_refused_up_front() {
    let most = Duration::from_secs(5);
    let plan = Simulation { max_wait: Some(most), workers: 100, ..plan(&["60/1m"], 100) };
    let outcome = plan.run().unwrap();
    assert_eq!((outcome.answered, outcome.refused), (65, 35));
    assert_eq!(outcome.waits.max, most);
}

#[test]
fn each_key_has_all_of_the_limits() {
    let one = plan(&["60/1m"], 600).run().unwrap();
    let three = Simulation { keys: 3, ..plan(&["60/1m"], 600) }.run().unwrap();
    assert_eq!((secs(&one), secs(&three)), (540.0, 140.0));
}

#[test]
fn arrivals_come_when_they_are_said_to() {
    let minute = Window::MINUTE;
    let came = |arrivals| {
        let plan = Simulation { arrivals, marks: 1_000, ..plan(&[], 100) };
        let outcome = plan.run().unwrap();
        outcome.marks.iter().map(|mark| mark.came.as_secs_f64()).collect::<Vec<_>>()
    };
    assert_eq!(came(Arrivals::Steady(60, minute))[99], 99.0);
    assert_eq!(came(Arrivals::Bursts(50, minute))[49..51], [0.0, 60.0]);
    let random = came(Arrivals::Poisson(60, minute));
    assert!((50.0..200.0).contains(&random[99]), "{random:?}");
    let gaps: Vec<_> = random.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().any(|gap| *gap < 0.2) && gaps.iter().any(|gap| *gap > 2.0));
}

#[test]
fn a_replay_comes_as_it_once_came() {
    let past = |after, tokens| Past {
        after: Duration::from_secs(after),
        cost: Cost::ONE.with("tokens", Amount::units(tokens)).unwrap(),
        latency: Some(Duration::from_secs(3)),
    };
    let arrivals = Arrivals::Replay(vec![past(0, 500), past(1, 600), past(8, 1)]);
    let plan = Simulation { arrivals, marks: 9, ..plan(&["tokens=1000/1m"], 100) };
    let outcome = plan.run().unwrap();
    assert_eq!(outcome.requests, 3);
    // Of the second 83 tokens were missing, which refill at 16.7 a second.
    let at: Vec<_> = outcome.marks.iter().map(|it| (it.at.as_secs_f64(), it.fate)).collect();
    assert_eq!(at, [(0.0, Fate::Sent), (6.0, Fate::Waited), (8.0, Fate::Sent)]);
    assert_eq!(outcome.finished, Duration::from_secs(11));
}

#[test]
fn what_the_server_counts_differently_is_foretold() {
    // A full bucket and its refill are almost twice the limit in one window: rule 7.
    let steady = Simulation {
        server: server(Counts::Sliding, Tells::Nothing, 60, 60),
        ..plan(&["60/1m"], 300)
    };
    let outcome = steady.run().unwrap();
    assert!(outcome.rejected > 0);
    let advice = steady.advice(&outcome).unwrap().unwrap();
    assert!(matches!(advice.change, Change::Strict(_)), "{advice:?}");
    assert_eq!(advice.rejected, 0);
    // A bucket is counted as we do.
    let bucket = server(Counts::Bucket, Tells::Nothing, 60, 60);
    assert_eq!(Simulation { server: bucket, ..steady }.run().unwrap().rejected, 0);
}

#[test]
fn a_server_that_tells_its_limit_is_followed_without_having_been_told() {
    for (counts, tells) in [
        (Counts::Fixed, Tells::Github),
        (Counts::Fixed, Tells::Ietf),
        (Counts::Bucket, Tells::Openai),
    ] {
        let mut plan = Simulation {
            server: server(counts, tells, 100, 2),
            latency: Duration::from_millis(20),
            ..plan(&[], 1_000)
        };
        plan.policy.learn_first = true;
        let outcome = plan.run().unwrap();
        assert_eq!((outcome.answered, outcome.rejected), (1_000, 0), "{tells:?}");
        assert!((17.0..21.0).contains(&secs(&outcome)), "{tells:?}: {:?}", outcome.finished);
        let total: Duration = outcome.bounds.iter().map(|(_, span)| *span).sum();
        assert_eq!(total, outcome.finished, "{tells:?}");
    }
}

#[test]
fn strangers_take_their_part_and_the_rest_is_used() {
    let mut with = server(Counts::Fixed, Tells::Github, 100, 2).unwrap();
    with.strangers = 500_000;
    let mut plan = Simulation { server: Some(with), ..plan(&[], 500) };
    plan.latency = Duration::from_millis(20);
    plan.policy.learn_first = true;
    let outcome = plan.run().unwrap();
    assert!(outcome.rejected * 1_000 <= outcome.answered * 5, "{}", outcome.rejected);
    assert!((15.0..22.0).contains(&secs(&outcome)), "{:?}", outcome.finished);
}

#[test]
fn all_time_is_accounted_for() {
    let mut plan = Simulation {
        latency: Duration::from_millis(300),
        jitter: Duration::from_millis(50),
        arrivals: Arrivals::Bursts(40, Window::parse("20s").unwrap()),
        ..plan(&["60/1m"], 200)
    };
    plan.server = server(Counts::Fixed, Tells::RetryAfter, 50, 60);
    let outcome = plan.run().unwrap();
    let total: Duration = outcome.bounds.iter().map(|(_, span)| *span).sum();
    assert_eq!(total, outcome.finished);
    let slots = &outcome.timeline.slots;
    let sum =
        |count: fn(&paceline_core::simulate::Slot) -> u64| slots.iter().map(count).sum::<u64>();
    assert_eq!(sum(|slot| slot.came), outcome.requests);
    assert_eq!(sum(|slot| slot.rejected), outcome.rejected);
    assert_eq!(sum(|slot| slot.sent), outcome.answered + outcome.rejected);
    assert_eq!(outcome.requests, outcome.answered + outcome.refused + outcome.failed);
}

#[test]
fn the_same_seed_has_the_same_outcome() {
    let run = |seed| {
        let arrivals = Arrivals::Poisson(100, Window::MINUTE);
        let plan = Simulation { seed, arrivals, ..plan(&["60/1m"], 300) };
        plan.run().unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).finished, run(2).finished);
}

#[test]
fn what_makes_no_sense_is_said() {
    let said = |plan: &Simulation| plan.run().unwrap_err();
    assert!(matches!(said(&plan(&[], 0)), Impossible::Number { what: "requests", .. }));
    let nobody = Simulation { workers: 0, ..plan(&[], 1) };
    assert!(matches!(said(&nobody), Impossible::Number { what: "workers", .. }));
    let empty = Simulation { arrivals: Arrivals::Replay(Vec::new()), ..plan(&[], 1) };
    assert_eq!(said(&empty), Impossible::Empty);
    assert_eq!(said(&plan(&["1/365d"], 1_000)), Impossible::Endless);
    let mut plan = plan(&[], 1);
    plan.server = server(Counts::Fixed, Tells::Nothing, 5, 1);
    plan.spends = vec![Spend::exactly("requests", 6).unwrap()];
    assert!(said(&plan).to_string().contains("spends 6 requests is above the server's 5"));
    assert!(Spend::between("tokens", Amount::units(2), Amount::units(1)).is_err());
}

/// A simulated answer says what is read of the headers that such a server sends.
#[test]
fn what_is_heard_is_what_headers_say() {
    let told = |tells, headers: &[(&str, &str)]| {
        let mut plan = Simulation { server: server(Counts::Fixed, tells, 100, 60), ..plan(&[], 1) };
        plan.policy.learn_first = true;
        let learned = plan.run().unwrap().usage;
        let now = Duration::from_secs(1_800_000_000);
        let headers = headers.iter().copied();
        let response = Response { status: 200, url: None, now, headers, body: None };
        let signal = detect(&Detector::default(), response).signals.remove(0);
        assert_eq!(learned.len(), 1);
        assert_eq!(Some(learned[0].limit.units), signal.limit);
        assert_eq!(learned[0].limit.dimension, signal.dimension);
        signal.counting
    };
    let github = [
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "99"),
        ("x-ratelimit-reset", "1800000060"),
    ];
    let openai = [
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", "99"),
        ("x-ratelimit-reset-requests", "600ms"),
    ];
    let ietf =
        [("ratelimit-policy", "\"default\";q=100;w=60"), ("ratelimit", "\"default\";r=99;t=60")];
    use paceline_core::Counting::{Bucket, Fixed};
    assert_eq!(told(Tells::Github, &github), Fixed);
    assert_eq!(told(Tells::Ietf, &ietf), Fixed);
    assert_eq!(told(Tells::Openai, &openai), Bucket);
}

proptest! {
    /// However many requests and workers there are, a bucket decides when the last one goes.
    #[test]
    fn a_batch_ends_when_the_bucket_says(
        requests in 1_u64..3_000, workers in 1_u32..50, units in 1_u64..500,
    ) {
        let limit = Limit::new("requests", units, Window::MINUTE).unwrap();
        let plan = Simulation { limits: vec![limit], requests, workers, ..Simulation::default() };
        let outcome = plan.run().unwrap();
        let beyond = requests.saturating_sub(units) as f64;
        let expected = beyond * 60.0 / units as f64;
        prop_assert!((secs(&outcome) - expected).abs() < 1e-4, "{} {expected}", secs(&outcome));
        prop_assert_eq!(outcome.answered, requests);
    }
}
