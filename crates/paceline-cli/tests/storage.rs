//! A storage that processes share, as its users see it: the real command on real files and servers.
#![cfg(unix)]

#[path = "../../paceline-store/tests/servers/mod.rs"]
mod servers;

use paceline::{Limiter, Tally, VirtualClock};
use paceline_cli::sandbox::{Config, Family, Sandbox};
use serde_json::{Value, json};
use servers::Server;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// For what takes an hour, or never comes, when something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a check on a file, and on Redis.
fn on_every_storage(check: impl Fn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    check(&format!("sqlite:///{}", folder.path().join("limits.db").display()));
    check(&Server::start().url());
}

fn paceline(storage: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.env("PACELINE_STORAGE", storage).stdin(Stdio::null());
    command
}

fn run(storage: &str, arguments: &[&str]) -> Output {
    paceline(storage).args(arguments).output().unwrap()
}

/// What a command that succeeds prints.
fn said(storage: &str, arguments: &[&str]) -> String {
    let output = run(storage, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn told(storage: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(storage, &[arguments, &["--json"]].concat())).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with this status, and one line about it.
fn refused(storage: &str, arguments: &[&str], status: i32, part: &str) {
    let output = run(storage, arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    assert!(text.contains(part), "{arguments:?}: {part} in {text}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    // The parser of the command line adds where to read more.
    assert!(text.lines().count() == 1 || text.contains("try '--help'"), "{text}");
}

/// A server that limits nothing, and a folder for files.
struct Bench {
    runtime: Runtime,
    sandbox: Sandbox,
    folder: TempDir,
}

impl Bench {
    fn new(config: Config) -> Self {
        let runtime = Runtime::new().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
        Self { runtime, sandbox, folder: tempfile::tempdir().unwrap() }
    }

    /// A file with that many URLs.
    fn urls(&self, count: usize) -> PathBuf {
        let mut text = String::new();
        for i in 1..=count {
            writeln!(text, "{}/items/{i}", self.sandbox.url()).unwrap();
        }
        let path = self.folder.path().join(format!("{count}.txt"));
        fs::write(&path, text).unwrap();
        path
    }

    fn batch(&self, storage: &str, count: usize, options: &[&str]) -> Child {
        let mut command = paceline(storage);
        command.arg("batch").arg(self.urls(count)).arg("--quiet").args(options);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn admitted(&self) -> u64 {
        let url = format!("{}/_sandbox", self.sandbox.url());
        let text = self.runtime.block_on(async { reqwest::get(url).await?.text().await }).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["admitted"].as_u64().unwrap()
    }

    fn await_admitted(&self, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.admitted() < count {
            assert!(Instant::now() < deadline, "{} of {count} admitted", self.admitted());
            sleep(Duration::from_millis(10));
        }
        assert_eq!(self.admitted(), count);
    }
}

fn finished(batch: Child) {
    let output = batch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn what_one_process_sets_others_see_and_clear() {
    on_every_storage(|storage| {
        let now = said(storage, &["set", "a.example", "60/1m", "tokens=90000/1m"]);
        assert!(now.contains("https://a.example") && now.contains("90000/1m"), "{now}");
        let search = told(storage, &["set", "a.example/search", "10/1m", "--burst", "3"]);
        assert_eq!((&search["limit"], &search["remaining"]), (&json!(10), &json!(3)));
        said(storage, &["set", "b.example", "5/1s", "--strict"]);

        let host = told(storage, &["status", "https://A.example/other?page=2"]);
        assert_eq!(host["endpoint"], "https://a.example");
        assert_eq!((&host["limit"], &host["window"]), (&json!(60), &json!(60.0)));
        assert_eq!((&host["remaining"], &host["reset_in"]), (&json!(60), &json!(0.0)));
        assert_eq!((&host["confidence"], &host["hold"]), (&json!("configured"), &Value::Null));
        assert_eq!((&host["utilization"], &host["is_exceeded"]), (&json!(0.0), &json!(false)));
        assert_eq!(host["dimensions"]["tokens"]["remaining"], 90_000);
        let narrow = said(storage, &["status", "a.example/search/x"]);
        assert!(narrow.contains("https://a.example/search  requests   10/1m burst 3"), "{narrow}");

        let list = told(storage, &["list"]);
        let list: Vec<_> = list.as_array().unwrap().iter().map(|it| &it["endpoint"]).collect();
        let names = ["https://a.example", "https://a.example/search", "https://b.example"];
        assert_eq!(list, names);
        let list = said(storage, &["list"]);
        assert_eq!(list.lines().count(), 5, "a heading, and a row for each limit: {list}");
        assert!(list.contains("5/1s strict"), "{list}");

        assert_eq!(told(storage, &["clear", "a.example/search"]), json!({"cleared": 1}));
        let wider = told(storage, &["status", "a.example/search"]);
        assert_eq!(wider["endpoint"], "https://a.example");
        let cleared = said(storage, &["clear", "a.example"]);
        assert_eq!(cleared, "cleared 1 scope at and below https://a.example\n");
        refused(storage, &["status", "a.example"], 1, "nothing is known of https://a.example");
        assert_eq!(said(storage, &["clear", "--all"]), "cleared 1 scope\n");
        assert_eq!(told(storage, &["list"]), json!([]));
        assert_eq!(said(storage, &["list"]), "");
    });
}

#[test]
fn a_running_batch_follows_a_limit_that_is_set_beside_it() {
    on_every_storage(|storage| {
        let bench = Bench::new(Config::default());
        let batch = bench.batch(storage, 6, &["--limit", "1/1h"]);
        bench.await_admitted(1);
        // By now the others stand in line, for hours.
        sleep(Duration::from_millis(300));
        assert_eq!(bench.admitted(), 1);
        let url = bench.sandbox.url();
        let now = told(storage, &["set", &url, "100/1h"]);
        let set = Instant::now();
        assert_eq!((&now["limit"], &now["remaining"]), (&json!(100), &json!(99)));
        bench.await_admitted(6);
        // The head of the line asks every 750 ms; the rest is for a busy machine.
        assert!(set.elapsed() < Duration::from_secs(5), "{:?}", set.elapsed());
        finished(batch);
        assert_eq!(told(storage, &["status", &url])["remaining"], 94);
    });
}

#[test]
fn batches_on_one_storage_share_one_limit() {
    on_every_storage(|storage| {
        let bench = Bench::new(Config::default());
        let url = bench.sandbox.url();
        said(storage, &["set", &url, "20/1h"]);
        let batches = [15, 15].map(|count| bench.batch(storage, count, &[]));
        bench.await_admitted(20);
        sleep(Duration::from_millis(300));
        assert_eq!(bench.admitted(), 20, "nobody has more than its part");
        let full = told(storage, &["status", &url]);
        assert_eq!((&full["remaining"], &full["is_exceeded"]), (&json!(0), &json!(true)));
        said(storage, &["set", &url, "30/1h"]);
        bench.await_admitted(30);
        batches.into_iter().for_each(finished);
    });
}

#[test]
fn what_a_batch_learned_is_there_for_others() {
    on_every_storage(|storage| {
        let limits = vec!["40/1h".parse().unwrap()];
        let bench = Bench::new(Config { limits, headers: Family::Github, ..Config::default() });
        // Even the last answer of a batch is not lost when it ends.
        for (count, left) in [(1, 39), (9, 30)] {
            finished(bench.batch(storage, count, &["--concurrency", "1"]));
            let learned = told(storage, &["status", &bench.sandbox.url()]);
            assert_eq!((&learned["limit"], &learned["remaining"]), (&json!(40), &json!(left)));
            assert_ne!(learned["confidence"], "configured");
        }
    });
}

#[test]
fn where_nothing_is_to_be_learned_one_answer_is_enough_to_know_it() {
    on_every_storage(|storage| {
        let bench = Bench::new(Config { headers: Family::None, ..Config::default() });
        let started = Instant::now();
        finished(bench.batch(storage, 100, &[]));
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        assert_eq!(bench.admitted(), 100);
    });
}

#[test]
fn a_forecast_counts_with_the_limits_of_the_storage() {
    on_every_storage(|storage| {
        let bench = Bench::new(Config::default());
        let file = bench.urls(11);
        let forecast = |options: &[&str]| {
            let options = [&["batch", file.to_str().unwrap(), "--dry-run"], options].concat();
            told(storage, &options)[0].clone()
        };
        assert_eq!(forecast(&[])["limits"], json!([]));
        said(storage, &["set", &bench.sandbox.url(), "1/10s", "60/1h"]);
        let stored = forecast(&[]);
        assert_eq!((&stored["binding"], &stored["seconds"]), (&json!("1/10s"), &json!(100.0)));
        assert_eq!(forecast(&["--limit", "10/10s"])["seconds"], 1.0, "it would be set instead");
        assert_eq!(bench.admitted(), 0);
    });
}

#[test]
fn what_a_limiter_counts_the_command_shows() {
    on_every_storage(|storage| {
        said(storage, &["set", "a.example", "60/1m"]);
        assert_eq!(said(storage, &["usage"]), "");
        assert!(stderr(&run(storage, &["usage"])).contains("its books are empty"));
        let none = told(storage, &["usage"]);
        assert_eq!((&none["rows"], &none["total"]["sent"]), (&json!([]), &json!(0)));

        let limiter = Limiter::builder().open(storage).unwrap();
        let call = Tally {
            sent: 2,
            waited: Duration::from_millis(1_500),
            delayed: 1,
            rejected: 1,
            input_tokens: 900,
            output_tokens: 50,
            micro_usd: 2_250,
            ..Tally::default()
        };
        limiter.count("openai:gpt-4o", call);
        limiter.count("openai:gpt-4o", call);
        limiter.count("anthropic:claude", Tally { refused: 3, ..Tally::default() });
        let api = Tally { sent: 5, failed: 1, cached: 2, ..Tally::default() };
        limiter.count("https://api.example.com/v1", api);
        drop(limiter);

        let table = said(storage, &["usage"]);
        let rows: Vec<Vec<_>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0].join(" "), "scope sent waited refused 429s tokens in tokens out USD");
        assert_eq!(rows[1].join(" "), "anthropic:claude 0 0s 3 0 0 0 0.0000");
        assert_eq!(rows[2].join(" "), "https://api.example.com/v1 5 0s 0 0 0 0 0.0000");
        assert_eq!(rows[3].join(" "), "openai:gpt-4o 4 3.0s 0 2 1800 100 0.0045");
        assert_eq!(rows[4].join(" "), "total 9 3.0s 3 2 1800 100 0.0045");
        assert_eq!(rows.len(), 5, "{table}");

        let openai = told(storage, &["usage", "openai:"]);
        let sums = json!({
            "sent": 4, "waited": 3.0, "delayed": 2, "refused": 0, "rejected": 2, "failed": 0,
            "cached": 0, "input_tokens": 1800, "output_tokens": 100, "usd": 0.0045,
        });
        let mut row = sums.clone();
        row["scope"] = json!("openai:gpt-4o");
        let expected = json!({"since": null, "by": "scope", "rows": [row], "total": sums});
        assert_eq!(openai, expected);
        for prefix in ["api.example.com", "https://api."] {
            assert_eq!(told(storage, &["usage", prefix])["total"]["sent"], 5);
        }
        assert_eq!(said(storage, &["usage", "openai:gpt-5"]), "");
        assert_eq!(told(storage, &["list"]).as_array().unwrap().len(), 1, "no scope with a limit");
        said(storage, &["clear", "--all"]);
        assert_eq!(told(storage, &["usage"])["total"]["sent"], 9, "spent is spent");
    });
}

#[test]
fn usage_is_told_by_day_and_since_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let storage = format!("sqlite:///{}", folder.path().join("limits.db").display());
    // The command reads by real time, and what is shown is kept for 35 days.
    let today = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::now()).date();
    let ago = |days: i64| today.saturating_sub(jiff::Span::new().days(days));
    let clock = VirtualClock::default();
    let behind = ago(2).since(jiff::civil::date(2026, 1, 1)).unwrap().get_days();
    clock.advance(Duration::from_secs(86_400 * u64::try_from(behind).unwrap()));
    let limiter = Limiter::builder().clock(clock.clone()).open(&storage).unwrap();
    for sent in [1, 2, 4] {
        limiter.count("openai:gpt-4o", Tally { sent, ..Tally::default() });
        limiter.count("openai:o1", Tally { sent: sent * 10, ..Tally::default() });
        limiter.flush().unwrap();
        clock.advance(Duration::from_secs(86_400));
    }
    let days = told(&storage, &["usage", "--by", "day"]);
    let days: Vec<_> = days["rows"].as_array().unwrap().iter().collect();
    let expected = [(ago(2), 11), (ago(1), 22), (ago(0), 44)];
    assert_eq!(days.len(), 3);
    for (row, (day, sent)) in days.iter().zip(expected) {
        assert_eq!((&row["day"], &row["sent"]), (&json!(day.to_string()), &json!(sent)));
        assert!(row.get("scope").is_none());
    }
    let yesterday = ago(1).to_string();
    let since = told(&storage, &["usage", "openai:g", "--since", &yesterday]);
    assert_eq!((&since["since"], &since["total"]["sent"]), (&json!(yesterday), &json!(6)));
    assert_eq!(told(&storage, &["usage", "--since", "7d"])["total"]["sent"], 77);
    assert!(said(&storage, &["usage", "--by", "day"]).starts_with("day  "));
    let late = told(&storage, &["usage", "--since", "9999-01-01"]);
    assert_eq!(late["rows"], json!([]));
    refused(&storage, &["usage", "--since", "yesterday"], 2, "a number of days such as 7d");
    refused(&storage, &["usage", "--by", "hour"], 2, "scope, day");
}

#[test]
fn a_storage_that_is_missing_or_makes_no_sense_is_named() {
    let commands: [&[&str]; 5] = [
        &["status", "a.example"],
        &["list"],
        &["set", "a.example", "1/1s"],
        &["clear", "--all"],
        &["usage"],
    ];
    for command in commands {
        for none in ["", "memory"] {
            refused(none, command, 2, "give --storage URL or set PACELINE_STORAGE");
        }
        refused("mysql://h", command, 2, "bad storage \"mysql://h\": unknown scheme");
        refused("redis://h/one", command, 2, "the database \"one\" is no number");
        refused("redis://127.0.0.1:1", command, 1, "Connection refused");
    }
    let batch = ["batch", "/dev/null"];
    refused("sqlite://file.db", &batch, 2, "three slashes");
    let output = paceline("").args(["batch", "/dev/null", "--fail-closed"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "memory is always there");
}

#[test]
fn bad_input_sets_and_clears_nothing() {
    on_every_storage(|storage| {
        said(storage, &["set", "a.example", "60/1m"]);
        refused(storage, &["set", "a.example"], 2, "<LIMIT>");
        refused(
            storage,
            &["set", "a.example", "1/1s", "60 per minute"],
            2,
            "expected [DIMENSION=]",
        );
        refused(storage, &["set", "a.example", "1/1s", "2/1h", "--burst", "1"], 2, "one limit");
        refused(storage, &["set", "a.example", "9/1s", "--burst", "1", "--strict"], 2, "no burst");
        refused(storage, &["set", "a.example", "9/1s", "--burst", "0"], 2, "bad burst 0");
        refused(storage, &["set", "a b", "1/1s"], 2, "bad endpoint");
        refused(storage, &["clear"], 2, "<ENDPOINT|--all>");
        refused(storage, &["clear", ""], 2, "bad endpoint");
        refused(storage, &["clear", "a.example", "--all"], 2, "cannot be used with");
        let list = told(storage, &["list"]);
        assert_eq!((list.as_array().unwrap().len(), &list[0]["limit"]), (1, &json!(60)));
        assert_eq!(list[0]["dimensions"].as_object().unwrap().len(), 1);
    });
}

#[test]
fn looking_makes_no_file_and_takes_no_foreign_one() {
    let folder = tempfile::tempdir().unwrap();
    let storage = |name: &str| format!("sqlite:///{}", folder.path().join(name).display());
    let looks: [&[&str]; 4] =
        [&["list"], &["status", "a.example"], &["clear", "--all"], &["usage"]];
    for look in looks {
        refused(&storage("limits.db"), look, 1, "limits.db; paceline set makes it");
    }
    let bench = Bench::new(Config::default());
    said(&storage("limits.db"), &["batch", bench.urls(1).to_str().unwrap(), "--dry-run"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "Not a database, and longer than the heading of one would be.").unwrap();
    let foreign = rusqlite::Connection::open(folder.path().join("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE precious (x); INSERT INTO precious VALUES (7)").unwrap();
    for command in looks.into_iter().chain([&["set", "a.example", "1/1s"] as &[_]]) {
        refused(&storage("notes.txt"), command, 1, "notes.txt: file is not a database");
        refused(&storage("foreign.db"), command, 1, "foreign.db: it is an SQLite file of another");
    }
    assert!(fs::read_to_string(notes).unwrap().starts_with("Not a database"));
    let kept: i64 = foreign.query_row("SELECT x FROM precious", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 7);
}

#[test]
fn a_batch_goes_on_without_its_storage_and_says_so() {
    let bench = Bench::new(Config::default());
    let storage = "redis://127.0.0.1:1";
    let output = bench.batch(storage, 3, &["--json"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    let (notice, summary) = text.split_once('\n').unwrap();
    assert!(notice.contains("Connection refused") && notice.contains("unpaced"), "{notice}");
    let summary: Value = serde_json::from_str(summary).unwrap();
    assert_eq!((&summary["succeeded"], &summary["unmetered"]), (&json!(3), &json!(3)));

    let refused = bench.batch(storage, 3, &["--fail-closed"]).wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("Connection refused"), "{}", stderr(&refused));
    assert_eq!(bench.admitted(), 3);
}

#[test]
fn a_batch_that_fails_closed_waits_for_its_storage() {
    let server = Server::builder().persistent().start();
    let bench = Bench::new(Config::default());
    let options = ["--limit", "20/1s", "--fail-closed"];
    let batch = bench.batch(&server.url(), 60, &options);
    let deadline = Instant::now() + PATIENCE;
    while bench.admitted() < 22 && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    server.kill();
    // What was granted before is on its way.
    sleep(Duration::from_millis(200));
    let before = bench.admitted();
    sleep(Duration::from_secs(1));
    assert_eq!(bench.admitted(), before);
    assert!((22..60).contains(&before), "{before}");
    server.restart();
    let output = batch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("calls are refused until it is back"), "{}", stderr(&output));
    assert!(stderr(&output).contains("the store is back"), "{}", stderr(&output));
    assert_eq!(bench.admitted(), 60);
}

#[test]
fn rule_17_no_password_is_ever_shown() {
    let server = Server::builder().password("hunter2").start();
    let bench = Bench::new(Config::default());
    let file = bench.urls(2);
    let file = file.to_str().unwrap();
    let right = server.url();
    let wrong = right.replace("hunter2", "hunter3");
    let down = "redis://hunter1:hunter2@127.0.0.1:1";
    let bad = "redis://hunter1:hunter2@127.0.0.1:port";
    for storage in [right.as_str(), &wrong, down, bad] {
        let shown = |command: &mut Command| {
            let output = command.output().unwrap();
            let text = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
            assert!(!text.contains("hunter"), "{command:?} shows {text}");
            output.status.success()
        };
        let commands: [&[&str]; 9] = [
            &["set", "https://hunter1:hunter2@a.example/x", "1/1s"],
            &["status", "https://hunter1:hunter2@a.example/x"],
            &["status", "https://hunter1:hunter2@b.example"],
            &["list", "--json"],
            &["usage", "https://hunter1:hunter2@a.example"],
            &["clear", "https://hunter1:hunter2@a.example/x"],
            &["batch", file],
            &["batch", file, "--fail-closed", "--json"],
            &["batch", file, "--dry-run"],
        ];
        for (i, command) in commands.into_iter().enumerate() {
            let succeeded = shown(paceline(storage).args(command));
            // Without its storage a batch goes on, but for the one that must not.
            let can = storage == right && i != 2 || storage != bad && i == 6;
            assert_eq!(succeeded, can, "{command:?} on {storage}");
            shown(paceline("").args(command).args(["--storage", storage]));
            shown(paceline(storage).args([command[0], "--help"]));
        }
        // Who forgets to say --storage, too.
        shown(paceline("").args(["list", storage]));
        shown(paceline("").args(["batch", file, "--base-url", "https://hunter1:hunter2@a b"]));
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said("", &["completions", shell]);
        for word in ["status", "list", "set", "clear", "usage", "storage", "fail-closed", "burst"] {
            assert!(script.contains(word), "{word} in {shell}");
        }
    }
}
