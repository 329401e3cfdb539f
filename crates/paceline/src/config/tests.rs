//! Every kind of mistake, with its line and what to do about it.

use super::*;
use paceline_core::VirtualClock;
use paceline_core::retry::Strategy;
use paceline_store::Clock;
use std::collections::BTreeSet;

/// A file, and what is found in it: the kind, whether it is wrong, the line, what is said, and the help.
const MISTAKES: &[(&str, &str, bool, usize, &str, &str)] = &[
    ("max_wait = \n", "syntax", true, 1, "", "toml.io"),
    (
        "default_limts = []",
        "unknown-key",
        true,
        1,
        "\"default_limts\"",
        "did you mean \"default_limits\"?",
    ),
    ("\nzebra = 1", "unknown-key", true, 2, "\"zebra\"", "known are storage"),
    (
        "default_limits = \"60/1m\"",
        "wrong-type",
        true,
        1,
        "expected a list, not a string",
        "[\"60/1m\"]",
    ),
    ("default_limits = [7]", "wrong-type", true, 1, "expected a text, not an integer", "60/1m"),
    ("learn_first = \"yes\"", "wrong-type", true, 1, "expected true or false", "true"),
    (
        "default_limits = [\n  \"60 per minute\",\n]",
        "bad-limit",
        true,
        2,
        "60 per minute",
        "expected [DIMENSION=]N/WINDOW",
    ),
    (
        "default_limits = [\"0/1m\"]",
        "bad-limit",
        true,
        1,
        "bad limit 0",
        "expected a whole number from 1",
    ),
    (
        "default_limits = [\"60/1w\"]",
        "bad-window",
        true,
        1,
        "1w",
        "expected a whole number above zero and a unit",
    ),
    ("max_wait = \"soon\"", "bad-window", true, 1, "bad window \"soon\"", "expected"),
    ("max_wait = -5", "bad-number", true, 1, "-5 is out of range", "expected 0 to"),
    (
        "default_limits = [\"two words=1/1s\"]",
        "bad-dimension",
        true,
        1,
        "two words",
        "expected letters",
    ),
    (
        "default_limits = [{ burst = 5 }]",
        "missing-key",
        true,
        1,
        "limit is missing",
        "add limit = \"60/1m\"",
    ),
    (
        "default_limits = [{ limit = \"9/1s\", burst = 0 }]",
        "bad-number",
        true,
        1,
        "0 is out of range",
        "expected 1 to",
    ),
    (
        "default_limits = [{ limit = \"9/1s\", burst = 5, strict = true }]",
        "strict-burst",
        true,
        1,
        "exclude each other",
        "take one of them out",
    ),
    (
        "[[scope]]\nlimits = [\"9/1s\"]",
        "missing-key",
        true,
        1,
        "endpoint is missing",
        "add endpoint",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"",
        "missing-key",
        true,
        1,
        "limits is missing",
        "add limits",
    ),
    (
        "[[scope]]\nendpoint = \"\"\nlimits = [\"9/1s\"]",
        "bad-endpoint",
        true,
        2,
        "it is empty",
        "expected a URL or a host",
    ),
    (
        "[[scope]]\nendpoint = \"a.example?q=1\"\nlimits = [\"9/1s\"]",
        "query-ignored",
        false,
        2,
        "no part of a scope",
        "write \"https://a.example\"",
    ),
    (
        "[[scope]]\nendpoint = \"https://me:pw@a.example\"\nlimits = [\"9/1s\"]",
        "login-ignored",
        false,
        2,
        "a login is no part",
        "write \"https://a.example\"",
    ),
    (
        "[[scope]]\nendpoint = \"http://a.example\"\nlimits = [\"9/1s\"]",
        "plain-http",
        false,
        2,
        "different scopes",
        "write \"https://a.example\"",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = []",
        "no-limits",
        false,
        2,
        "has no limits",
        "give it limits",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [\"9/1s\"]\n[[scope]]\nendpoint = \"https://A.example/\"\nlimits = [\"5/1h\"]",
        "same-endpoint",
        true,
        5,
        "is there already",
        "in one [[scope]]",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [\"9/1s\",\n\"8/1s\"]",
        "same-limit",
        true,
        4,
        "requests per 1s is limited already",
        "keep one",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [\"token=9/1s\"]",
        "odd-dimension",
        false,
        3,
        "nothing spends \"token\"",
        "did you mean \"tokens\"?",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [{ limit = \"9/1s\", burst = 20 }]",
        "long-burst",
        false,
        3,
        "more than 9/1s allows",
        "at most 9",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [\"1/1s\", \"9000/1h\"]",
        "never-binds",
        false,
        3,
        "9000/1h never binds",
        "make it tighter",
    ),
    (
        "max_wait = 5\n[[scope]]\nendpoint = \"a.example\"\nlimits = [\"1/1m\"]",
        "short-patience",
        false,
        4,
        "brings a unit back in 60s",
        "raise max_wait",
    ),
    (
        "[[scope]]\nendpoint = \"a.example\"\nlimits = [\"60/1m\"]\n[[scope]]\nendpoint = \"a.example/x\"\nlimits = [\"600/1m\"]",
        "more-than-around",
        false,
        6,
        "more than 60/1m",
        "also_parents",
    ),
    ("storage = \"mysql://db\"", "bad-storage", true, 1, "mysql", ""),
    (
        "storage = \"redis://u:secret@h:1/0\"",
        "password-in-file",
        false,
        1,
        "a password stands in this file",
        "PACELINE_STORAGE",
    ),
    ("on_failure = \"closd\"", "bad-choice", true, 1, "\"closd\"", "did you mean \"closed\"?"),
    (
        "on_failure = \"closed\"",
        "nothing-fails",
        false,
        1,
        "memory is always there",
        "name a storage",
    ),
    ("lease = \"100ms\"", "lease-without-redis", true, 1, "a lease", "redis://"),
    (
        "[retry]\nretry_on_status = [42]",
        "bad-number",
        true,
        2,
        "42 is out of range",
        "expected 100 to 599",
    ),
    ("[retry]\njitter = 2.5", "bad-number", true, 2, "2.5 is out of range", "expected 0 to 1"),
    (
        "[retry]\nstrategy = \"exponental\"",
        "bad-choice",
        true,
        2,
        "exponental",
        "did you mean \"exponential\"?",
    ),
    (
        "[[provider]]\nrequests = { limit = \"X-L\" }",
        "missing-key",
        true,
        1,
        "hosts is missing",
        "add hosts",
    ),
    (
        "[[provider]]\nhosts = [\"a.example\"]",
        "missing-key",
        true,
        1,
        "not said what it states",
        "add requests",
    ),
    (
        "[[provider]]\nhosts = [\"https://a.example/x\"]\nrequests = { limit = \"X-L\" }",
        "bad-host",
        true,
        2,
        "is no host",
        "the name alone",
    ),
    (
        "[[provider]]\nhosts = [\"a.example\"]\nrequests = { window = \"1h\" }",
        "no-header",
        true,
        3,
        "in no header",
        "X-Limit",
    ),
    (
        "[[provider]]\nhosts = [\"a.example\"]\nrequests = { limit = \"X Limit\" }",
        "bad-header",
        true,
        3,
        "X Limit",
        "expected ASCII letters",
    ),
    ("[[rule]]\nrequests_per_minute = 5", "missing-key", true, 1, "model is missing", "add model"),
    (
        "[[rule]]\nmodel = \"\"\nrequests_per_minute = 5",
        "bad-model",
        true,
        2,
        "has no name",
        "name a model",
    ),
    (
        "[[rule]]\nmodel = \"gpt-4o\"\nrequests_per_minute = 0",
        "bad-number",
        true,
        3,
        "0 is out of range",
        "expected 1",
    ),
    ("[[rule]]\nmodel = \"gpt-4o\"", "unlimited", false, 1, "unlimited", "requests_per_minute"),
    (
        "[[rule]]\nmodel = \"gpt-4o\"\ntokens_per_minute = 9\nburst = 5",
        "burst-of-nothing",
        false,
        1,
        "burst",
        "add requests_per_minute",
    ),
    (
        "[[rule]]\nmodel = \"m\"\nrequests_per_minute = 5\n[[rule]]\nmodel = \"m\"\nrequests_per_minute = 6",
        "same-rule",
        true,
        4,
        "a rule for m",
        "put them together",
    ),
    (
        "[[rule]]\nmodel = \"opnai:*\"\nrequests_per_minute = 5",
        "unknown-provider",
        false,
        1,
        "opnai",
        "did you mean \"openai\"?",
    ),
    (
        "[[rule]]\nmodel = \"openai/gpt-4o\"\nrequests_per_minute = 5",
        "slash-in-model",
        false,
        1,
        "one name here",
        "write \"openai:gpt-4o\"",
    ),
    ("[[budget]]\nmodel = \"*\"", "missing-key", true, 1, "usd is missing", "add usd = 10"),
    (
        "[[budget]]\nmodel = \"my-own\"\nusd = 5",
        "no-price",
        false,
        1,
        "no price of my-own is known",
        "set_price",
    ),
];

#[test]
fn every_mistake_is_found_with_its_line_and_what_to_do() {
    let mut kinds = BTreeSet::new();
    for (text, kind, is_error, line, what, help) in MISTAKES {
        let (_, findings) = Config::check(text);
        let found = findings.iter().find(|it| it.kind == *kind);
        let found = found.unwrap_or_else(|| panic!("{kind} in {text:?}: {findings:?}"));
        assert_eq!((found.is_error, found.line), (*is_error, *line), "{text:?}: {found:?}");
        assert!(found.what.contains(what), "{text:?}: {found:?}");
        assert!(found.help.contains(help), "{text:?}: {found:?}");
        assert_eq!(Config::parse(text).is_err(), findings.iter().any(|it| it.is_error), "{text:?}");
        kinds.insert(*kind);
    }
    assert!(kinds.len() >= 30, "{}", kinds.len());
}

#[test]
fn all_mistakes_are_found_at_once_in_the_order_of_lines() {
    let text = "max_wait = true\n[[scope]]\nendpoint = \"\"\nlimits = [\"x\", 5]\nmore = 1";
    let (_, findings) = Config::check(text);
    let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [1, 3, 4, 4, 5], "{findings:?}");
    assert_eq!(findings[3].column, 16);
}

const EVERYTHING: &str = r#"
storage = "sqlite:///limits.db"
on_failure = "local"
max_wait = "30s"
learn_first = true
adaptive = true
also_parents = true
default_limits = ["10/1s", { limit = "tokens=90000/1m", burst = 9000 }]
headers_map = { remaining = "X-Calls-Left", retry_after = "X-Again" }

[retry]
max_retries = 5
strategy = "linear"
base_delay = 0.5
max_delay = "20s"
retry_on_status = [429, 500]
jitter = 0
replay = "safe"
budget = 0.1

[[scope]]
endpoint = "api.example.com"
limits = ["60/1m", { limit = "5/1s", strict = true }]

[[provider]]
hosts = ["api.internal", "*.api.internal"]
requests = { limit = "X-L", remaining = "X-R", window = "1h" }
credits = { remaining = "X-C", counting = "bucket" }

[[rule]]
model = "gpt-4o"
requests_per_minute = 500
tokens_per_minute = 200_000

[[budget]]
model = "*"
usd = 10
per = "1d"
"#;

#[test]
fn everything_that_can_be_said_is_understood() {
    let (config, findings) = Config::check(EVERYTHING);
    assert_eq!(findings, []);
    let retry = config.retry.as_ref().expect("retries");
    assert_eq!((retry.max_retries, retry.strategy), (5, Strategy::Linear));
    assert_eq!((retry.base_delay, retry.budget), (Duration::from_millis(500), 100));
    assert_eq!(config.on_failure, OnFailure::Local);
    assert_eq!(config.default_limits[1].burst, 9_000);
    assert!(config.scopes[0].1[1].strict);
    assert_eq!(config.providers[0].quotas.len(), 2);
    assert_eq!(config.rules[0].2.tokens, Some(200_000));
    assert_eq!(config.budgets, [("*".to_owned(), None, 10, Window::parse("1d").expect("a day"))]);
}

#[test]
fn a_limiter_lives_by_it_and_reloading_keeps_what_was_used() {
    let clock = VirtualClock::default();
    let read = |limits: &str| {
        let text = format!("[[scope]]\nendpoint = \"api.example.com\"\nlimits = [{limits}]");
        Config::parse(&text).expect("a configuration")
    };
    let first = read("\"10/1m\", \"100/1h\"");
    let limiter = Builder::default().config(&first).clock(Clock::from(clock)).build();
    first.apply(&limiter, None).expect("applied");
    let left = |limiter: &Limiter| -> Vec<u64> {
        let (_, status) = limiter.status("api.example.com").expect("a store").expect("a scope");
        status.limits.iter().map(|level| level.remaining.whole()).collect()
    };
    for _ in 0..4 {
        limiter.acquire_now("api.example.com").expect("room").sent();
    }
    assert_eq!(left(&limiter), [6, 96]);
    let second = read("\"20/1m\", \"100/1h\"");
    second.apply(&limiter, Some(&first)).expect("applied");
    assert_eq!(left(&limiter), [16, 96], "what was used stays used");
    let third = read("\"20/1m\"");
    third.apply(&limiter, Some(&second)).expect("applied");
    assert_eq!(left(&limiter), [20], "an endpoint that lost a limit begins anew");
    Config::default().apply(&limiter, Some(&third)).expect("applied");
    assert!(limiter.status("api.example.com").expect("a store").is_none());
}

#[test]
fn it_is_found_in_the_folder_or_above() {
    let folder = std::env::temp_dir().join(format!("paceline-{}", std::process::id()));
    let below = folder.join("a").join("b");
    std::fs::create_dir_all(&below).expect("a folder");
    let file = folder.join(Config::NAME);
    std::fs::write(&file, "").expect("a file");
    assert_eq!(Config::find(&below), Some(file));
    std::fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(Config::find(&below), None);
}

#[test]
fn an_error_says_where() {
    let error = Config::parse("\nmax_wit = 5").expect_err("a mistake").to_string();
    assert_eq!(error, "line 2: unknown key \"max_wit\"; did you mean \"max_wait\"?");
}
