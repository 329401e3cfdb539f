//! `paceline batch` as its users run it: the real command against a real server.

use paceline_cli::sandbox::{Config, Family, Sandbox};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server and a directory for files.
struct Bench {
    runtime: Runtime,
    sandbox: Sandbox,
    directory: TempDir,
}

impl Bench {
    fn new(config: Config) -> Self {
        let runtime = Runtime::new().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(config)).unwrap();
        Self { runtime, sandbox, directory: tempfile::tempdir().unwrap() }
    }

    fn limited(limits: &[&str], headers: Family) -> Self {
        let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        Self::new(Config { limits, headers, ..Config::default() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn input(&self, text: &str) -> PathBuf {
        let path = self.path("input.jsonl");
        fs::write(&path, text).unwrap();
        path
    }

    /// That many plain URLs.
    fn urls(&self, count: usize) -> PathBuf {
        let mut text = String::new();
        for i in 1..=count {
            writeln!(text, "{}/items/{i}", self.sandbox.url()).unwrap();
        }
        self.input(&text)
    }

    fn report(&self) -> Value {
        let url = format!("{}/_sandbox", self.sandbox.url());
        let text = self.runtime.block_on(async { reqwest::get(url).await?.text().await }).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn paceline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("batch").stdin(Stdio::null());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every whole line, which must be a record; fails on a broken one.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "broken line");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn learned_limits_are_lived_by_without_a_429() {
    let bench = Bench::limited(&["40/1s"], Family::Github);
    let output = bench.path("out.jsonl");
    // What is sent in the last moment of a window may arrive, and count, in the next one.
    let past = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_millis();
    if past > 600 {
        std::thread::sleep(Duration::from_millis(u64::from(1_000 - past)));
    }
    let status =
        paceline().arg(bench.urls(100)).args(["-q", "--output"]).arg(&output).status().unwrap();
    assert!(status.success());
    let report = bench.report();
    assert_eq!((&report["admitted"], &report["refused"]), (&100.into(), &0.into()));
    let records = records(&output);
    assert_eq!(records.len(), 100);
    assert!(records.iter().all(|record| record["status"] == 200 && record["attempts"] == 1));
    assert!(records.iter().any(|record| record["waited"].as_f64().unwrap() > 0.3));
}

#[test]
fn declared_limits_pace_a_server_that_tells_nothing() {
    let bench = Bench::limited(&["20/500ms", "tokens=600/500ms"], Family::None);
    let call = r#"{"path": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40}}"#;
    let input = bench.input(&format!("{call}\n").repeat(30));
    let summary = paceline()
        // A longer window than the server's, for what is sent apart may arrive closer together.
        .args(["--limit", "20/700ms", "--limit", "tokens=600/700ms", "--strict", "--json"])
        .args(["--base-url", &bench.sandbox.url(), "--output"])
        .args([bench.path("out.jsonl"), input])
        .output()
        .unwrap();
    assert!(summary.status.success(), "{}", stderr(&summary));
    let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
    assert_eq!((&summary["succeeded"], &summary["rejected"]), (&30.into(), &0.into()));
    assert_eq!(bench.report()["refused"], 0);
}

#[test]
fn every_input_shape_is_sent_and_answers_keep_their_ids() {
    let bench = Bench::new(Config::default());
    let url = bench.sandbox.url();
    let lines = [
        format!(r#"{{"url": "{url}/a", "id": "one", "method": "DELETE"}}"#),
        r#"{"custom_id": "two", "method": "POST", "url": "/v1/embeddings", "body": {"model": "e", "input": "x"}}"#.into(),
        format!("{url}/c"),
        String::new(),
        r#"{"path": "/d", "id": 7}"#.into(),
    ];
    let output = paceline()
        .args(["--ordered", "--headers", "--base-url", &url])
        .arg(bench.input(&lines.join("\n")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = records.iter().map(|record| record["id"].to_string()).collect();
    assert_eq!(ids, [r#""one""#, r#""two""#, "3", "7"]);
    assert_eq!(records[0]["body"]["method"], "DELETE");
    assert_eq!(records[1]["body"]["object"], "list");
    assert!(records[0]["headers"]["date"].is_string());
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_stops_nothing() {
    let bench = Bench::new(Config::default());
    let url = bench.sandbox.url();
    let text = format!("{url}/1\n{{\"url\": 5}}\nnonsense\n{{\"urll\": \"x\"}}\n{url}/5\n\u{1}\n");
    let out = bench.path("out.jsonl");
    let output = paceline().arg(bench.input(&text)).arg("-o").arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for part in ["line 2: ", "line 3: bad URL", "line 4: unknown field `urll`", "line 6: "] {
        assert!(stderr(&output).contains(part), "{part} in {}", stderr(&output));
    }
    let lines: Vec<_> = records(&out).iter().map(|record| record["line"].clone()).collect();
    assert_eq!(lines.len(), 2);
}

#[test]
fn an_unreachable_host_fails_its_requests_with_one_clear_error() {
    let bench = Bench::new(Config::default());
    let out = bench.path("out.jsonl");
    let output = paceline()
        .arg(bench.input("http://127.0.0.1:1/x\n"))
        .args(["--retries", "0", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let record = &records(&out)[0];
    assert!(record["error"].as_str().unwrap().starts_with("cannot connect"), "{record}");
    assert_eq!(record["status"], Value::Null);
}

#[test]
fn what_is_unusable_is_said_before_anything_is_sent() {
    let bench = Bench::new(Config::default());
    let input = bench.urls(3);
    let refused = |arguments: &[&str], part: &str| {
        let output = paceline().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{part} in {}", stderr(&output));
    };
    let input = input.to_str().unwrap();
    refused(&["/nowhere/input.jsonl"], "cannot read /nowhere/input.jsonl");
    refused(&[input, "-o", "/nowhere/out.jsonl"], "cannot write /nowhere/out.jsonl");
    refused(&[input, "--limit", "60 per minute"], "expected [DIMENSION=]N/WINDOW");
    refused(&[input, "--config", "/nowhere.toml"], "cannot read /nowhere.toml");
    refused(&[input, "--bearer-env", "PACELINE_UNSET"], "PACELINE_UNSET is not set");
    refused(&[input, "--resume"], "--resume needs --output");
    let foreign = bench.path("foreign.txt");
    fs::write(&foreign, "not ours\n").unwrap();
    refused(&[input, "--resume", "-o", foreign.to_str().unwrap()], "not a record of a batch");
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "not ours\n", "nothing is lost");
    assert_eq!(bench.report()["admitted"], 0);
}

#[test]
fn a_dry_run_tells_the_finish_and_the_binding_limit_without_sending() {
    let bench = Bench::new(Config::default());
    let output = paceline()
        .arg(bench.urls(300))
        .args(["--dry-run", "--json", "--limit", "60/1m", "--limit", "10000/1h"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(forecast[0]["seconds"], 240.0);
    assert_eq!(forecast[0]["binding"], "60/1m");
    assert_eq!(bench.report()["admitted"], 0);
}

#[test]
fn credentials_are_sent_and_never_echoed() {
    let bench = Bench::new(Config::default());
    let headers = bench.path("headers");
    fs::write(&headers, "X-Api-Key: hunter2\n").unwrap();
    let output = paceline()
        .args([bench.input(&format!("{}/x\nhttp://127.0.0.1:1/\n", bench.sandbox.url()))])
        .args(["--retries", "0", "--bearer-env", "PACELINE_TEST_KEY", "--header-file"])
        .arg(&headers)
        .env("PACELINE_TEST_KEY", "hunter3")
        .output()
        .unwrap();
    let shown = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
    assert!(!shown.contains("hunter"), "{shown}");
    fs::write(&headers, "X-Api-Key hunter2\n").unwrap();
    let output =
        paceline().args(["--header-file"]).arg(&headers).arg(bench.urls(1)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!stderr(&output).contains("hunter"), "{}", stderr(&output));
}

#[test]
fn resume_after_kill_answers_every_request_exactly_once() {
    let bench = Bench::limited(&["10000/1s"], Family::Github);
    const COUNT: usize = 12_000;
    let (input, out) = (bench.urls(COUNT), bench.path("out.jsonl"));
    for round in 0..20_u64 {
        let mut batch =
            paceline().arg(&input).args(["--resume", "--quiet", "-o"]).arg(&out).spawn().unwrap();
        // Killed in the middle of its work, each time after another number of answers.
        let size = || fs::metadata(&out).map_or(0, |meta| meta.len());
        let (before, grown) = (size(), round * round * 131 % 40_000);
        let deadline = Instant::now() + Duration::from_secs(20);
        while size() <= before + grown && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        batch.kill().unwrap();
        batch.wait().unwrap();
        if round % 3 == 0 {
            // A line may have been broken in the middle.
            File::options()
                .append(true)
                .create(true)
                .open(&out)
                .unwrap()
                .write_all(b"{\"id\":1")
                .unwrap();
        }
    }
    let done_before = fs::read_to_string(&out).unwrap().lines().count();
    let status = paceline().arg(&input).args(["--resume", "-q", "-o"]).arg(&out).status().unwrap();
    assert!(status.success());
    assert!((500..COUNT).contains(&done_before), "the kills came in the middle: {done_before}");
    let mut seen = BTreeMap::new();
    for record in records(&out) {
        *seen.entry(record["id"].as_u64().unwrap()).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), COUNT, "none is lost");
    assert!(seen.values().all(|times| *times == 1), "none is there twice");
}

#[cfg(unix)]
#[test]
fn ctrl_c_finishes_what_is_in_flight_and_says_how_to_go_on() {
    let latency = Duration::from_millis(300);
    let bench = Bench::new(Config { latency, ..Config::default() });
    let (input, out) = (bench.urls(2_000), bench.path("out.jsonl"));
    let batch = paceline()
        .arg(&input)
        .args(["--concurrency", "50", "-o"])
        .arg(&out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.report()["admitted"].as_u64().unwrap() < 60 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    Command::new("kill").args(["-INT", &batch.id().to_string()]).status().unwrap();
    let output = batch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("--resume"), "{}", stderr(&output));
    let done = records(&out).len();
    assert_eq!(bench.report()["admitted"], done, "whatever was sent is in the output");
    assert!((60..1_000).contains(&done), "{done}");
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let bench = Bench::new(Config::default());
    let input = bench.urls(2);
    let refused = |arguments: &[&Path], part: &str| {
        let output = paceline().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    };
    let (flag, resume) = (Path::new("-o"), Path::new("--resume"));
    refused(&[&input, flag, &input], "is the input");
    let precious = bench.path("precious");
    fs::write(&precious, "{\"precious\": 1}").unwrap();
    refused(&[&input, flag, &precious], "--resume");
    refused(&[&input, flag, &precious, resume], "not a record of a batch");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "{\"precious\": 1}");
    let status = paceline().arg(&input).arg("-o").arg(&precious).arg("--overwrite").status();
    assert!(status.unwrap().success());
    assert_eq!(records(&precious).len(), 2);
}

#[test]
fn what_failed_before_still_fails_and_can_be_sent_again() {
    let bench = Bench::new(Config::default());
    let out = bench.path("out.jsonl");
    let run = |input: &Path, more: &[&str]| {
        let mut command = paceline();
        command.arg(input).args(["-q", "--retries", "0", "-o"]).arg(&out).args(more);
        command.status().unwrap().code()
    };
    let input = bench.input("http://127.0.0.1:1/x\n");
    assert_eq!(run(&input, &[]), Some(1));
    assert_eq!(run(&input, &["--resume"]), Some(1), "it is there, and it is no success");
    let input = bench.urls(1);
    assert_eq!(run(&input, &["--resume", "--retry-failed"]), Some(0));
    let records = records(&out);
    assert_eq!(records.len(), 1, "its old record made way");
    assert_eq!(records[0]["status"], 200);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_ordered_batch_with_what_is_there() {
    let bench = Bench::limited(&["1000/1s"], Family::None);
    let mut text = String::from("http://127.0.0.1:1/never\n");
    for i in 0..30 {
        writeln!(text, "{}/{i}", bench.sandbox.url()).unwrap();
    }
    let (input, out) = (bench.input(&text), bench.path("out.jsonl"));
    let batch = paceline().arg(&input).args(["-q", "--ordered", "-o"]).arg(&out).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.report()["admitted"].as_u64().unwrap() < 30 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-INT", &batch.id().to_string()]).status().unwrap();
    let output = batch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(records(&out).len(), 30);
}

/// The most memory that a process of ours has used, in KiB.
#[cfg(target_os = "linux")]
fn peak_memory(bench: &Bench, lines: usize) -> u64 {
    let input = bench.urls(lines);
    let mut batch = paceline().arg(input).args(["-q", "-o", "/dev/null"]).spawn().unwrap();
    let status = format!("/proc/{}/status", batch.id());
    let mut peak = 0;
    while batch.try_wait().unwrap().is_none() {
        if let Ok(text) = fs::read_to_string(&status) {
            let line = text.lines().find(|line| line.starts_with("VmHWM"));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            peak = peak.max(kib.unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_file() {
    let bench = Bench::new(Config::default());
    let (short, long) = (peak_memory(&bench, 4_000), peak_memory(&bench, 40_000));
    assert!(long < short + 16_384, "{short} KiB for 4,000 lines, {long} KiB for 40,000");
}
