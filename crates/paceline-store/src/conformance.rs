//! The suite that every store passes: the same history gives the same verdicts, to the microsecond.
//!
//! A store of your own is tested by one call. `make` gives an empty store that follows `policy` and
//! counts by `clock`; each check gets a new one.
//!
//! ```
//! use paceline_store::{Memory, conformance};
//! use std::sync::Arc;
//!
//! conformance::check(|policy, clock| Arc::new(Memory::with_clock(policy, clock)));
//! ```
//!
//! Histories are random but the same in every run. The [`Memory`] store is the reference: it runs the
//! engine itself.

use crate::{Admission, Ask, Grant, Key, Memory, Store, Tally};
use paceline_core::provider::{self, Account};
use paceline_core::{
    Amount, Cost, Counting, Dimension, Limit, Policy, Reading, Scope, Signal, Tick, VirtualClock,
    Window,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How many histories are compared; each has a few hundred steps.
const HISTORIES: u64 = 40;
const STEPS: usize = 250;

type Make<'a> = &'a dyn Fn(Policy, VirtualClock) -> Arc<dyn Store>;

/// Runs every check.
///
/// # Panics
/// When the store breaks a rule; the message names the rule, and for a history its number and step.
pub fn check(make: impl Fn(Policy, VirtualClock) -> Arc<dyn Store>) {
    one_unit_is_spent_once(&make);
    a_refused_charge_changes_nothing(&make);
    the_narrowest_scope_governs(&make);
    those_behind_do_not_overtake(&make);
    a_scope_is_cleared_with_those_below_it(&make);
    a_limit_that_was_set_stays(&make);
    the_books_add_up(&make);
    a_day_ends_at_midnight_and_is_kept_for_35(&make);
    for number in 0..HISTORIES {
        compare(&make, number);
    }
    use provider::Policy::{Bucket, Fixed, Sliding};
    for (number, counts, stranger, tells) in [
        (1, Fixed, 0, true),
        (2, Fixed, 500_000, true),
        (3, Sliding, 0, true),
        (4, Fixed, 0, false),
        (5, Bucket, 0, false),
    ] {
        follow(&make, number, counts, stranger, tells);
    }
}

/// Checks that a store decides as [`Memory`] does while both follow a server that lets 40 requests through
/// in two seconds, and tells that or only for how long to stay away.
fn follow(make: Make<'_>, number: u64, counts: provider::Policy, stranger: u32, tells: bool) {
    const LIMIT: u64 = 40;
    const EPOCH: Duration = Duration::from_secs(1_800_000_000);
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut policy = Policy::default();
    policy.learn_first = true;
    let clock = VirtualClock::default();
    let ours = make(policy.clone(), clock.clone());
    let reference = Memory::with_clock(policy, clock.clone());
    let limit = provider::Limit::new(LIMIT, Duration::from_secs(2)).expect("a limit");
    let mut server = Account::new(counts, &[limit]).with_stranger(stranger);
    let mut flying: VecDeque<(Tick, Grant, Grant, Reading)> = VecDeque::new();
    let scope = parse(ENDPOINTS[0]);
    for step in 0..STEPS * 16 {
        let context = || format!("{counts}, stranger {stranger}, tells {tells}, step {step}");
        let next = clock.now().after(Duration::from_micros(dice.upto(10_000)));
        let due = flying.front().map_or(Tick::ZERO, |(due, ..)| *due);
        if flying.len() == 4 || (!flying.is_empty() && due <= next) {
            clock.advance(due.since(clock.now()));
            let (_, a, b, reading) = flying.pop_front().expect("one flies");
            end(&*ours, &a, 15, &Cost::ONE, &reading);
            end(&reference, &b, 15, &Cost::ONE, &reading);
            continue;
        }
        clock.advance(next.since(clock.now()));
        let a = ours.admit(&scope, &Cost::ONE).expect("the store is there");
        let b = reference.admit(&scope, &Cost::ONE).expect("the store is there");
        assert_eq!(told(&a), told(&b), "{}", context());
        let (Admission::Granted(a), Admission::Granted(b)) = (a, b) else { continue };
        let now = EPOCH + Duration::from_nanos(clock.now().as_nanos());
        let refused = server.admit(now, &[1]).err();
        let standing = server.standings(now).next().expect("a limit");
        // In whole seconds, as most servers tell it.
        let whole = |time: Duration| {
            Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
        };
        let signal = Signal {
            limit: Some(LIMIT),
            remaining: Some(standing.remaining),
            reset: Some(whole(now + standing.reset) - now),
            ..Signal::default()
        };
        let reading = Reading {
            signals: if tells { vec![signal] } else { Vec::new() },
            rejected: refused.is_some(),
            retry_after: refused.and_then(|refused| refused.wait).map(whole),
            ..Reading::default()
        };
        // All answers take as long as each other: a store that is visited need not know each of them.
        let took = Duration::from_millis(if step < STEPS * 8 { 8 } else { 20 });
        flying.push_back((clock.now().after(took), a, b, reading));
    }
}

/// Checks that a store decides as [`Memory`] does over one random history.
fn compare(make: Make<'_>, number: u64) {
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut policy = Policy::default();
    policy.learn_first = number % 3 == 1;
    if number % 4 == 2 {
        policy.set_default_limits([limit("20/1s"), limit("tokens=5000/1m")]);
    }
    policy.adaptive = number % 5 == 3;
    let clock = VirtualClock::default();
    let ours = make(policy.clone(), clock.clone());
    let reference = Memory::with_clock(policy, clock.clone());
    let mut open: Vec<(Grant, Grant)> = Vec::new();
    for step in 0..STEPS {
        let mut did = String::new();
        let context = || format!("history {number}, step {step}");
        let name = ENDPOINTS[dice.below(ENDPOINTS.len())];
        let scope = parse(name);
        match dice.below(16) {
            0..=3 => clock.advance(Duration::from_micros(dice.upto(700_000))),
            // So long is no request under way, or a store may have forgotten where it was counted.
            4 => {
                for (a, b) in open.drain(..) {
                    end(&*ours, &a, 15, &Cost::ONE, &Reading::default());
                    end(&reference, &b, 15, &Cost::ONE, &Reading::default());
                }
                clock.advance(Duration::from_micros(dice.upto(40_000_000)));
            }
            5..=9 => {
                let cost = dice.cost();
                let a = ours.admit(&scope, &cost).expect("the store is there");
                let b = reference.admit(&scope, &cost).expect("the store is there");
                assert_eq!(told(&a), told(&b), "{}: admit {name} {cost}", context());
                if let (Admission::Granted(a), Admission::Granted(b)) = (a, b) {
                    open.push((a, b));
                }
            }
            10 => {
                let cost = dice.cost();
                let a = ours.charge(&scope, &cost).expect("the store is there");
                let b = reference.charge(&scope, &cost).expect("the store is there");
                assert_eq!(a, b, "{}: charge {name} {cost}", context());
            }
            11 if dice.below(4) == 0 => {
                let limit = dice.limit();
                for store in [&*ours, &reference as &dyn Store] {
                    store.set_limit(&scope, limit.clone()).expect("the store is there");
                }
            }
            11 => {
                let cost = dice.cost();
                let a = ours.wait(&scope, &cost).expect("the store is there");
                let b = reference.wait(&scope, &cost).expect("the store is there");
                assert_eq!(a, b, "{}: wait {name} {cost}", context());
            }
            _ if open.is_empty() => {}
            which => {
                let (a, b) = open.swap_remove(dice.below(open.len()));
                let (spent, reading) = (dice.cost(), dice.reading());
                did = match which {
                    12 => format!(" after {} was settled to {spent}", a.key().as_str()),
                    13 => format!(" after {} was given back", a.key().as_str()),
                    _ => format!(" after {} heard {reading:?}", a.key().as_str()),
                };
                for (store, grant) in [(&*ours, &a), (&reference as &dyn Store, &b)] {
                    end(store, grant, which, &spent, &reading);
                }
            }
        }
        for name in ENDPOINTS {
            let scope = parse(name);
            let a = ours.snapshot(&scope).expect("the store is there");
            let b = reference.snapshot(&scope).expect("the store is there");
            let seen = |found: Option<crate::Snapshot>| {
                let (key, state, now) = found.filter(|(_, state, now)| state.governs(*now))?;
                Some((key, state.status(now)))
            };
            assert_eq!(seen(a), seen(b), "{}: status of {name}{did}", context());
        }
    }
}

/// What the store told: when it can be had, of which scope, and because of what.
fn told(admission: &Admission) -> String {
    match admission {
        Admission::Granted(grant) => format!("granted in {:?}", grant.key()),
        Admission::Wait(key, wait) => format!("{key:?}: {:?} for {:?}", wait.after, wait.by),
    }
}

fn one_unit_is_spent_once(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    let scope = parse("api.example.com");
    store.set_limit(&scope, limit("50/1h")).expect("the store is there");
    let granted: usize = std::thread::scope(|threads| {
        let asking: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let charge = |_: &i32| {
                        store.charge(&scope, &Cost::ONE).expect("the store is there").is_granted()
                    };
                    (0..25).filter(charge).count()
                })
            })
            .collect();
        asking.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    assert_eq!(granted, 50, "rule 4: one unit was spent twice, or not at all");
}

fn a_refused_charge_changes_nothing(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    let scope = parse("api.example.com");
    for text in ["100/1m", "tokens=1000/1m"] {
        store.set_limit(&scope, limit(text)).expect("the store is there");
    }
    let cost = Cost::ONE.with("tokens", Amount::units(900)).expect("a dimension");
    assert!(matches!(store.admit(&scope, &cost), Ok(Admission::Granted(_))));
    for _ in 0..50 {
        assert!(matches!(store.admit(&scope, &cost), Ok(Admission::Wait(..))), "rule 4");
    }
    let (_, state, now) = store.snapshot(&scope).expect("the store is there").expect("a limit");
    assert_eq!(
        state.status(now).limits[0].remaining,
        Amount::units(99),
        "rule 4: refused, and charged"
    );
}

fn the_narrowest_scope_governs(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    store.set_limit(&parse("api.example.com"), limit("5/1m")).expect("the store is there");
    store.set_limit(&parse("api.example.com/search"), limit("1/1m")).expect("the store is there");
    let charge =
        |url: &str| store.charge(&parse(url), &Cost::ONE).expect("the store is there").is_granted();
    assert!(charge("https://api.example.com/search/deep/down?q=1"), "rule 15");
    assert!(!charge("https://api.example.com/search"), "rule 15: a wider scope governs");
    assert!(charge("https://api.example.com/searching"), "rule 15: half a segment governs");
    assert!(charge("https://elsewhere.example.com/"), "rule 15: another host's scope governs");
}

fn those_behind_do_not_overtake(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    let scope = parse("api.example.com");
    store.set_limit(&scope, limit("tokens=10/1h")).expect("the store is there");
    let tokens = |units| Cost::ONE.with("tokens", Amount::units(units)).expect("a dimension");
    let costs = [tokens(8), tokens(5), tokens(1)];
    let asks: Vec<_> = costs.iter().map(|cost| Ask { scope: &scope, cost }).collect();
    let answers = store.admit_all(&asks).expect("the store is there");
    assert!(matches!(answers[0], Some(Admission::Granted(_))));
    assert!(matches!(answers[1], Some(Admission::Wait(..))));
    assert!(answers[2].is_none(), "rule 18: a small request overtook a large one");
}

fn a_scope_is_cleared_with_those_below_it(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    for key in ["a.example", "a.example/v1", "a.example/v1/x", "a.example/v10"] {
        store.set_limit(&parse(key), limit("5/1m")).expect("the store is there");
    }
    assert_eq!(store.clear(Some(&parse("a.example/v1"))).expect("the store is there"), 2);
    let keys = store.keys().expect("the store is there");
    let keys: Vec<_> = keys.iter().map(Key::as_str).collect();
    assert_eq!(keys, ["a.example", "a.example/v10"]);
    assert_eq!(store.clear(None).expect("the store is there"), 2);
    assert!(store.keys().expect("the store is there").is_empty());
}

fn a_limit_that_was_set_stays(make: Make<'_>) {
    let clock = VirtualClock::default();
    let store = make(Policy::default(), clock.clone());
    let scope = parse("api.example.com");
    store.set_limit(&scope, limit("1/1h")).expect("the store is there");
    for _ in 0..3 {
        clock.advance(Duration::from_secs(10 * 3_600));
        let charge = || store.charge(&scope, &Cost::ONE).expect("the store is there").is_granted();
        assert!(charge());
        assert!(!charge(), "a limit that was set by hand is gone after ten idle windows");
    }
}

fn the_books_add_up(make: Make<'_>) {
    let store = make(Policy::default(), VirtualClock::default());
    let books = || {
        let books = store.tallies().expect("the store is there");
        books.into_iter().map(|(key, _, tally)| (key.as_str().to_owned(), tally))
    };
    assert_eq!(books().count(), 0);
    store.count(&[]).expect("the store is there");
    assert_eq!(books().count(), 0);
    let each = Tally::from_numbers([1, 2_000_003, 3, 4, 5, 6, 7, 8, 9, 10]);
    let keys = ["openai:gpt-4o", "https://api.example.com/a}/{b", "openrouter:meta-llama/l", "*"];
    let mut entries: Vec<_> = keys.iter().map(|key| (Key::new(key), each)).collect();
    entries.push((Key::new("*"), Tally { sent: Tally::MOST, ..Tally::default() }));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..25 {
                    store.count(&entries).expect("the store is there");
                }
            });
        }
    });
    let all = [100, 200_000_300, 300, 400, 500, 600, 700, 800, 900, 1_000];
    let all = Tally::from_numbers(all);
    let mut expected: Vec<_> = keys.iter().map(|key| ((*key).to_owned(), all)).collect();
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    expected[0].1.sent = Tally::MOST;
    assert_eq!(books().collect::<Vec<_>>(), expected, "a count was lost, or counted twice");
    assert!(store.keys().expect("the store is there").is_empty(), "the books are no scopes");
    store.clear(None).expect("the store is there");
    assert_eq!(books().count(), keys.len(), "what was spent stays spent when limits are cleared");
}

fn a_day_ends_at_midnight_and_is_kept_for_35(make: Make<'_>) {
    let clock = VirtualClock::default();
    let store = make(Policy::default(), clock.clone());
    let scope = "openai:gpt-4o";
    let count = |sent| {
        let entry = (Key::new(scope), Tally { sent, ..Tally::default() });
        store.count(&[entry]).expect("the store is there");
    };
    let days = || {
        let books = store.tallies().expect("the store is there");
        books.into_iter().map(|(_, day, tally)| format!("{day}: {}", tally.sent))
    };
    // The virtual calendar begins on the first of January.
    clock.advance(Duration::from_micros(86_400_000_000 - 1));
    count(1);
    clock.advance(Duration::from_micros(1));
    count(2);
    count(3);
    assert_eq!(days().collect::<Vec<_>>(), ["2026-01-01: 1", "2026-01-02: 5"]);
    clock.advance(Duration::from_secs(33 * 86_400));
    assert_eq!(days().next().as_deref(), Some("2026-01-01: 1"), "after 34 days");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(days().next().as_deref(), Some("2026-01-02: 5"), "after 35 days");
    count(7);
    assert_eq!(days().collect::<Vec<_>>(), ["2026-01-02: 5", "2026-02-05: 7"]);
}

const ENDPOINTS: [&str; 4] =
    ["api.example.com", "api.example.com/v1", "api.example.com/v1/chat", "http://localhost:8080/x"];

fn parse(text: &str) -> Scope<'_> {
    Scope::parse(text).expect("an endpoint")
}

fn limit(text: &str) -> Limit {
    Limit::parse(text).expect("a limit")
}

/// One of the ways in which a request ends.
fn end(store: &dyn Store, grant: &Grant, which: usize, spent: &Cost, reading: &Reading) {
    let done = match which {
        12 => store.settle(grant, spent).and_then(|()| store.close(grant)).map(drop),
        13 => store.give_back(grant),
        _ => store.observe(grant, reading).map(drop),
    };
    done.and_then(|()| store.flush()).expect("the store is there");
}

/// The same random numbers in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn upto(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap_or(0)
    }

    fn cost(&mut self) -> Cost {
        let mut cost = Cost::ONE;
        if self.below(2) == 0 {
            cost.set(dimension("tokens"), Amount::units(self.upto(1_500)));
        }
        if self.below(5) == 0 {
            cost.set(dimension("usd"), Amount::from_millionths(self.upto(2_500_000)));
        }
        if self.below(12) == 0 {
            cost.set(Dimension::Requests, Amount::units(self.upto(25)));
        }
        cost
    }

    fn limit(&mut self) -> Limit {
        const LIMITS: [&str; 9] = [
            "7/1m",
            "10/1s",
            "100/1h",
            "3/10s",
            "tokens=4000/1m",
            "tokens=90000/1h",
            "usd=10/1d",
            "3000000000/1m",
            "tokens=1000000/1s",
        ];
        let limit = limit(LIMITS[self.below(LIMITS.len())]);
        match self.below(5) {
            0 => limit.strict().expect("no burst"),
            1 => limit.with_burst(1 + self.upto(40)).expect("not strict"),
            _ => limit,
        }
    }

    fn reading(&mut self) -> Reading {
        let rejected = self.below(6) == 0;
        let signals = (0..self.below(3)).map(|_| self.signal()).collect();
        let after =
            (rejected && self.below(2) == 0).then(|| Duration::from_millis(self.upto(90_000)));
        Reading { signals, retry_after: after, rejected, ..Reading::default() }
    }

    fn signal(&mut self) -> Signal {
        let units = [5, 20, 60, 4_000, 100_000][self.below(5)];
        let some = |dice: &mut Self, share: usize| dice.below(share) != 0;
        Signal {
            dimension: dimension(["requests", "tokens"][self.below(2)]),
            name: [None, None, Some("burst".into()), Some("day".into())][self.below(4)].clone(),
            limit: some(self, 5).then_some(units),
            remaining: some(self, 5).then(|| self.upto(units)),
            reset: some(self, 4).then(|| Duration::from_millis(self.upto(70_000))),
            window: (self.below(3) == 0).then(|| Window::parse("1m").expect("a window")),
            counting: if self.below(2) == 0 { Counting::Fixed } else { Counting::Bucket },
        }
    }
}

fn dimension(name: &str) -> Dimension {
    Dimension::new(name).expect("a dimension")
}
