//! What became of calls, counted by a limiter: when the store is told, and that nothing is lost.

#[path = "../../paceline-store/tests/servers/mod.rs"]
mod servers;

use paceline::{Limiter, Tally, VirtualClock};
use servers::Server;
use std::time::{Duration, Instant};

const MODEL: &str = "openai:gpt-4o";

fn sent(sent: u64) -> Tally {
    Tally { sent, ..Tally::default() }
}

fn open(storage: &str, clock: &VirtualClock) -> Limiter {
    let builder = Limiter::builder().store_timeout(Duration::from_secs(5));
    builder.clock(clock.clone()).open(storage).unwrap()
}

/// All that was sent, each day and scope: `2026-01-01 openai:gpt-4o 7`.
fn told(limiter: &Limiter) -> Vec<String> {
    let usage = limiter.usage().unwrap().into_iter();
    usage.map(|(scope, day, tally)| format!("{day} {scope} {}", tally.sent)).collect()
}

/// Runs a check on a file and on a server.
fn on_both(check: impl Fn(&str)) {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    check(&format!("sqlite:///{}", folder.path().join("limits.db").display()));
    check(&server.url());
}

#[test]
fn to_count_is_no_visit_until_a_second_has_passed() {
    on_both(|storage| {
        let clock = VirtualClock::default();
        let (one, other) = (open(storage, &clock), open(storage, &clock));
        one.count(MODEL, sent(1));
        clock.advance(Duration::from_millis(999));
        one.count(MODEL, sent(2));
        assert!(told(&other).is_empty());
        assert_eq!(told(&one), ["2026-01-01 openai:gpt-4o 3"], "who counted it knows of it");
        one.count(MODEL, sent(4));
        clock.advance(Duration::from_secs(1));
        assert_eq!(told(&other), ["2026-01-01 openai:gpt-4o 3"]);
        one.count("https://api.example.com/v1", sent(8));
        let all = ["2026-01-01 https://api.example.com/v1 8", "2026-01-01 openai:gpt-4o 7"];
        assert_eq!(told(&other), all);
    });
}

#[test]
fn what_was_counted_is_handed_in_at_the_end() {
    on_both(|storage| {
        let clock = VirtualClock::default();
        let (one, other) = (open(storage, &clock), open(storage, &clock));
        one.count(MODEL, sent(1));
        one.flush().unwrap();
        assert_eq!(told(&other), ["2026-01-01 openai:gpt-4o 1"]);
        one.count(MODEL, sent(2));
        drop(one);
        assert_eq!(told(&other), ["2026-01-01 openai:gpt-4o 3"]);
    });
}

#[test]
fn a_day_is_over_at_midnight() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), VirtualClock::default());
    let file = format!("sqlite:///{}", folder.path().join("limits.db").display());
    for storage in ["memory", &file] {
        let limiter = open(storage, &clock);
        clock.advance(Duration::from_secs(86_399) - Duration::from_secs(clock_second(&clock)));
        limiter.count(MODEL, sent(1));
        limiter.flush().unwrap();
        clock.advance(Duration::from_secs(1));
        limiter.count(MODEL, sent(2));
        let days = told(&limiter);
        assert_eq!(days.len(), 2, "{days:?}");
        assert!(days[0].ends_with("gpt-4o 1") && days[1].ends_with("gpt-4o 2"), "{days:?}");
    }
}

/// Seconds since midnight.
fn clock_second(clock: &VirtualClock) -> u64 {
    paceline::Clock::from(clock.clone()).wall_micros() / 1_000_000 % 86_400
}

#[test]
fn threads_count_exactly() {
    on_both(|storage| {
        for storage in [storage, "memory"] {
            let limiter = Limiter::builder().open(storage).unwrap();
            std::thread::scope(|threads| {
                for i in 0..8 {
                    let limiter = &limiter;
                    threads.spawn(move || {
                        for _ in 0..1_000 {
                            limiter.count(MODEL, sent(1));
                            if i == 0 {
                                limiter.flush().unwrap();
                            }
                        }
                    });
                }
            });
            let all: u64 = limiter.usage().unwrap().iter().map(|(.., tally)| tally.sent).sum();
            assert_eq!(all, 8_000, "{storage}");
        }
    });
}

/// Whoever must not wait for a visit has it made by somebody else, soon and without counting again.
#[test]
fn an_event_loop_leaves_what_it_counts_at_the_desk() {
    on_both(|storage| {
        let (one, other) = [(); 2].map(|()| Limiter::builder().open(storage).unwrap()).into();
        one.count_from_loop(MODEL, sent(1));
        one.count_from_loop(MODEL, sent(2));
        let all = || other.usage().unwrap().iter().map(|(.., tally)| tally.sent).sum::<u64>();
        let started = Instant::now();
        while all() < 3 {
            assert!(started.elapsed() < Duration::from_secs(5), "{} of 3", all());
            std::thread::sleep(Duration::from_millis(5));
        }
        one.count_from_loop(MODEL, sent(4));
        assert_eq!(one.usage().unwrap().iter().map(|(.., tally)| tally.sent).sum::<u64>(), 7);
        // What is left there when the limiter goes is told all the same.
        one.count_from_loop(MODEL, sent(8));
        drop(one);
        while all() < 15 {
            assert!(started.elapsed() < Duration::from_secs(10), "{} of 15", all());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}
