//! Where calls are counted: the server's own buckets, accounts, and scopes within scopes.

#![cfg(not(loom))]

use paceline::{Call, Error, Limit, Limiter, Permit, Reading, Signal, VirtualClock};
use std::time::Duration;

fn limiter() -> Limiter {
    Limiter::builder().clock(VirtualClock::default()).build()
}

fn limit(text: &str) -> Limit {
    Limit::parse(text).unwrap()
}

/// A response that was counted in `bucket`, with so much left of `limit` for a minute.
fn told(bucket: Option<&str>, limit: u64, remaining: u64) -> Reading {
    let signal = Signal {
        limit: Some(limit),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs(60)),
        ..Signal::default()
    };
    Reading { signals: vec![signal], bucket: bucket.map(Into::into), ..Reading::default() }
}

fn ask(limiter: &Limiter, url: &str, reading: &Reading) {
    let mut permit: Permit = limiter.acquire_blocking(url).unwrap();
    permit.answered(url, reading).unwrap();
}

fn left(limiter: &Limiter, url: &str) -> (String, u64) {
    let (scope, status) = limiter.status(url).unwrap().unwrap();
    (scope, status.limits[0].remaining.whole())
}

#[test]
fn rule_15_the_servers_own_buckets_are_kept_apart() {
    let limiter = limiter();
    ask(&limiter, "https://api.github.com/repos/a/b", &told(None, 5_000, 4_999));
    ask(&limiter, "https://api.github.com/search/issues", &told(Some("search"), 30, 0));
    // The core's level is the core's: what search has used is not taken from it.
    let core = ("https://api.github.com".to_owned(), 4_999);
    assert_eq!(left(&limiter, "https://api.github.com/repos/a/b"), core);
    let search = "https://api.github.com/#search".to_owned();
    assert_eq!(left(&limiter, "https://api.github.com/search/users"), (search, 0));
    assert!(limiter.try_acquire("https://api.github.com/search/users").unwrap().is_none());
    assert!(limiter.try_acquire("https://api.github.com/users").unwrap().is_some());
    // A narrower bucket is learned from the first answer that names it.
    ask(&limiter, "https://api.github.com/search/code", &told(Some("code_search"), 10, 9));
    let code = ("https://api.github.com/#code_search".to_owned(), 9);
    assert_eq!(left(&limiter, "https://api.github.com/search/code"), code);
    let why = limiter.explain("https://api.github.com/search/code").unwrap().to_string();
    assert!(why.contains("a bucket of its own") || why.contains("that bucket"), "{why}");
}

#[test]
fn a_host_that_counts_in_buckets_of_its_own_shows_the_tightest() {
    let limiter = limiter();
    let url = |path: &str| format!("https://api.example.com{path}");
    ask(&limiter, &url("/a"), &told(Some("wide"), 100, 90));
    ask(&limiter, &url("/b"), &told(Some("narrow"), 1_000, 10));
    ask(&limiter, &url("/c"), &told(Some("empty"), 10, 9));
    let shown = |text: &str| (format!("https://api.example.com/#{text}"), 10);
    assert_eq!(left(&limiter, "api.example.com"), shown("narrow"));
    // One that the server has closed comes first.
    let rejection =
        Reading { retry_after: Some(Duration::from_secs(5)), rejected: true, ..Reading::default() };
    ask(&limiter, &url("/a"), &rejection);
    assert_eq!(left(&limiter, "api.example.com").0, shown("wide").0);
    // A host with a limit of its own shows that.
    limiter.clear(Some("api.example.com")).unwrap();
    limiter.set_limit("api.example.com", limit("5/1m")).unwrap();
    assert_eq!(left(&limiter, "api.example.com"), (url(""), 5));
}

#[test]
fn rule_12_a_configured_limit_governs_whatever_the_servers_buckets_are() {
    let limiter = limiter();
    limiter.set_limit("api.example.com", limit("2/1h")).unwrap();
    for _ in 0..2 {
        ask(&limiter, "https://api.example.com/a", &told(Some("general"), 100, 99));
    }
    assert!(limiter.try_acquire("https://api.example.com/a").unwrap().is_none());
}

#[test]
fn rule_15_those_who_wait_for_a_first_answer_follow_it_into_its_bucket() {
    let limiter = Limiter::builder().clock(VirtualClock::default()).learn_first(true).build();
    let url = "https://api.example.com/search";
    let mut first = limiter.acquire_now(url).unwrap();
    assert!(matches!(limiter.acquire_now(url), Err(Error::Refused(_))));
    first.answered(url, &told(Some("search"), 3, 2)).unwrap();
    for _ in 0..2 {
        limiter.acquire_now(url).unwrap().sent();
    }
    assert!(limiter.acquire_now(url).is_err(), "three of three are spent");
}

#[test]
fn rule_17_each_account_has_its_own_bucket_of_a_limit() {
    let limiter = limiter();
    limiter.set_limit("api.example.com", limit("1/1h")).unwrap();
    let ask = |account| limiter.try_acquire(Call::to("api.example.com/x").account(account));
    for account in ["alice", "bob"] {
        ask(account).unwrap().unwrap().sent();
        assert!(ask(account).unwrap().is_none());
    }
    assert_eq!(left(&limiter, "alice@https://api.example.com").1, 0);
    assert_eq!(left(&limiter, "api.example.com").1, 1, "nobody called without an account");
    limiter.set_limit("api.example.com", limit("5/1h")).unwrap();
    assert_eq!(left(&limiter, "bob@https://api.example.com").1, 4);
    let error = ask("a secret").unwrap_err().to_string();
    assert!(error.starts_with("bad account") && !error.contains("a secret"), "{error}");
}

#[test]
fn rule_15_wider_scopes_are_charged_on_request() {
    let limiter = Limiter::builder().clock(VirtualClock::default()).also_parents(true).build();
    limiter.set_limit("api.example.com", limit("2/1m")).unwrap();
    limiter.set_limit("api.example.com/search", limit("10/1m")).unwrap();
    let url = "https://api.example.com/search/x";
    for _ in 0..3 {
        limiter.acquire_blocking(url).unwrap().sent();
    }
    // Two passed at once, and the third waited half a minute for the host's limit: in that time what
    // the first two had spent of the narrow one came back.
    assert_eq!(left(&limiter, "https://api.example.com/users").1, 0);
    assert_eq!(left(&limiter, url).1, 9);
    limiter.acquire_blocking(url).unwrap().cancel();
    assert_eq!(left(&limiter, "https://api.example.com/users").1, 1);
}

#[test]
fn an_explanation_says_which_limit_governs_and_why() {
    let limiter = limiter();
    let why = |url: &str| limiter.explain(url).unwrap().to_string();
    assert!(why("https://api.example.com").starts_with("nothing governs"));
    limiter.set_limit("api.example.com", limit("60/1m")).unwrap();
    limiter.set_limit("api.example.com/search", limit("10/1m")).unwrap();
    let text = why("https://api.example.com/search/users");
    for part in
        ["narrowest", "10/1m: 10 left, set by you", "wider", "https://api.example.com (60/1m)"]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}
