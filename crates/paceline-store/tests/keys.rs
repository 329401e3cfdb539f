//! What is in Redis, and what it costs to ask: keys, expiries and round trips.

mod servers;

use paceline_core::{Amount, Cost, Counting, Limit, Policy, Reading, Scope, Signal};
use paceline_store::{Admission, Clock, Grant, Key, Redis, Storage, Store, Tally};
use servers::Server;
use std::time::Duration;

fn connect(server: &Server, policy: Policy) -> Redis {
    let Ok(Storage::Redis(place)) = server.url().parse() else { panic!() };
    Redis::connect(place, policy, Duration::from_secs(5)).unwrap()
}

fn scope(text: &str) -> Scope<'_> {
    Scope::parse(text).unwrap()
}

fn limit(text: &str) -> Limit {
    Limit::parse(text).unwrap()
}

fn admit(store: &Redis, url: &str) -> Grant {
    match store.admit(&scope(url), &Cost::ONE).unwrap() {
        Admission::Granted(grant) => grant,
        Admission::Wait(..) => panic!("{url} has to wait"),
    }
}

fn number(server: &Server, command: &[&str]) -> i64 {
    server.command(command).unwrap().trim().parse().unwrap()
}

/// How often the script ran since the last time.
fn visits(server: &Server) -> usize {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let after = stats.split("cmdstat_evalsha:calls=").nth(1);
    after.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// A response of a server that counts a window, with so much left of 100.
fn told(remaining: u64) -> Reading {
    let signal = Signal {
        limit: Some(100),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs(3_600)),
        counting: Counting::Fixed,
        ..Signal::default()
    };
    Reading { signals: vec![signal], ..Reading::default() }
}

#[test]
fn rule_33_a_key_lives_as_long_as_it_matters() {
    const DAY: i64 = 86_400_000;
    let server = Server::start();
    let mut policy = Policy::default();
    policy.set_default_limits([limit("10/1s")]);
    let store = connect(&server, policy);
    // A default limit: until its bucket is full, or nothing of it can be in flight any more.
    admit(&store, "default.example");
    let left = number(&server, &["PTTL", "paceline:{default.example}"]);
    assert!((100..=10_000).contains(&left), "{left}");
    // What was learned: ten windows.
    store.observe(&admit(&store, "learned.example"), &told(50)).unwrap();
    let left = number(&server, &["PTTL", "paceline:{learned.example}"]);
    assert!((9 * 3_600_000..=10 * 3_600_000).contains(&left), "{left}");
    // What somebody set: a month, and twelve windows.
    store.set_limit(&scope("set.example"), limit("10/1s")).unwrap();
    let left = number(&server, &["PTTL", "paceline:{set.example}"]);
    assert!((29 * DAY..=30 * DAY).contains(&left), "{left}");
    store.set_limit(&scope("long.example"), limit("10/10d")).unwrap();
    let left = number(&server, &["PTTL", "paceline:{long.example}"]);
    assert!((119 * DAY..=120 * DAY).contains(&left), "{left}");
}

#[test]
fn where_no_limit_governs_nothing_is_stored() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    let grant = admit(&store, "free.example.com/v1/x");
    store.observe(&grant, &Reading::default()).unwrap();
    store.flush().unwrap();
    assert_eq!(number(&server, &["DBSIZE"]), 0);
}

#[test]
fn rule_33_every_key_of_a_host_has_the_same_hash_tag() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    for path in ["", "/v1", "/v1/{id}", "/v1/chat"] {
        let url = format!("http://localhost:8080{path}");
        store.set_limit(&scope(&url), limit("5/1m")).unwrap();
    }
    let keys = server.command(&["KEYS", "*"]).unwrap();
    // A cluster hashes what stands in the first braces.
    let same = |key: &str| key.starts_with("paceline:{http://localhost:8080}");
    assert!(keys.lines().count() == 4 && keys.lines().all(same), "{keys}");
}

#[test]
fn rule_33_an_admission_is_one_visit_and_learning_is_at_most_one_more() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    for text in ["100/1m", "1000/1h", "tokens=5000/1m"] {
        store.set_limit(&scope("api.example.com"), limit(text)).unwrap();
    }
    visits(&server);
    let cost = Cost::ONE.with("tokens", Amount::units(100)).unwrap();
    let url = "https://api.example.com/a/b/c/d/e/f?g=h";
    for _ in 0..10 {
        assert!(matches!(store.admit(&scope(url), &cost), Ok(Admission::Granted(_))));
    }
    assert_eq!(visits(&server), 10, "ten admissions over seven candidates and three limits");

    store.observe(&admit(&store, "told.example"), &told(90)).unwrap();
    assert_eq!(visits(&server), 2, "a limit was learned");
    for left in (80..90).rev() {
        store.observe(&admit(&store, "told.example"), &told(left)).unwrap();
    }
    assert_eq!(visits(&server), 10, "the server said what was expected, and that is no visit");
    // Somebody else used some.
    store.observe(&admit(&store, "told.example"), &told(60)).unwrap();
    assert_eq!(visits(&server), 2);
    let (_, state, now) = store.snapshot(&scope("told.example")).unwrap().unwrap();
    assert_eq!(state.status(now).limits[0].remaining, Amount::units(60));
}

/// What is no state of ours is begun anew; one of a later release is not touched.
#[test]
fn rule_35_what_cannot_be_read_is_begun_anew() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    let api = scope("api.example.com");
    let name = "paceline:{api.example.com}";
    for garbage in [&["SET", name, "garbage"][..], &["SET", name, "\u{1}"], &["RPUSH", name, "x"]] {
        server.command(&["DEL", name]).unwrap();
        server.command(garbage).unwrap();
        store.set_limit(&api, limit("1/1h")).unwrap();
        assert!(store.charge(&api, &Cost::ONE).unwrap().is_granted());
        assert!(!store.charge(&api, &Cost::ONE).unwrap().is_granted());
    }
    let later = "redis.call('SET', KEYS[1], cmsgpack.pack({99}))";
    server.command(&["EVAL", later, "1", name]).unwrap();
    let error = store.charge(&api, &Cost::ONE).unwrap_err().to_string();
    assert!(error.contains("later release"), "{error}");
}

/// A tally of one call.
fn sent(scope: &str) -> (Key, Tally) {
    (Key::new(scope), Tally { sent: 1, ..Tally::default() })
}

#[test]
fn rule_33_a_day_of_the_books_goes_by_itself_after_35_days() {
    const DAY: u64 = 86_400;
    let server = Server::start();
    let store = connect(&server, Policy::default());
    store.count(&[sent("https://api.example.com/v1"), sent("openai:gpt-4o")]).unwrap();
    let second = Clock::real().wall_micros() / 1_000_000 % DAY;
    let names = server.command(&["KEYS", "paceline:*"]).unwrap();
    assert_eq!(names.lines().count(), 2, "{names}");
    for name in names.lines() {
        let left = number(&server, &["TTL", name]);
        let ends = i64::try_from(35 * DAY - second).unwrap();
        assert!((ends - 5..=ends + 1).contains(&left), "{left} of {ends}");
    }
    assert!(names.contains(":{https://api.example.com}/v1"), "the slot of its host: {names}");
}

#[test]
fn what_is_counted_of_many_scopes_is_one_visit_each_in_one_round_trip() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    let entries: Vec<_> = (0..2_000).map(|i| sent(&format!("p:{i}"))).collect();
    store.count(&entries).unwrap();
    visits(&server);
    store.count(&entries).unwrap();
    assert_eq!(visits(&server), 2_000);
    let books = store.tallies().unwrap();
    assert_eq!(books.len(), 2_000);
    assert!(books.iter().all(|(_, _, tally)| tally.sent == 2));
}

#[test]
fn what_is_no_tally_of_ours_is_begun_anew() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    store.count(&[sent("a:b")]).unwrap();
    let name = server.command(&["KEYS", "*"]).unwrap();
    let name = name.trim();
    server.command(&["HSET", name, "sent", "many", "else", "x"]).unwrap();
    assert_eq!(store.tallies().unwrap()[0].2, Tally::default());
    store.count(&[sent("a:b")]).unwrap();
    assert_eq!(store.tallies().unwrap()[0].2, sent("a:b").1);
    server.command(&["SET", name, "garbage"]).unwrap();
    server.command(&["SET", "paceline:tally:today:{a:b}", "garbage"]).unwrap();
    assert!(store.tallies().unwrap().is_empty());
    store.count(&[sent("a:b")]).unwrap();
    assert_eq!(store.tallies().unwrap()[0].2, sent("a:b").1);
}

#[test]
fn rule_34_threads_that_give_back_at_once_are_no_outage() {
    let server = Server::start();
    let store = connect(&server, Policy::default());
    store.set_limit(&scope("api.example.com"), limit("1000/1s")).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..100 {
                    store.give_back(&admit(&store, "api.example.com")).unwrap();
                }
            });
        }
    });
    assert_eq!(store.health(), paceline_store::Health::default());
}
