//! Many processes, one limit: real processes on a real file and a real server.
//!
//! A worker is this very test program, started again with `WORKER` in its environment.
#![allow(clippy::print_stdout)] // How a worker tells what it did.

#[path = "../../paceline-store/tests/servers/mod.rs"]
mod servers;

use paceline::{Call, Limit, Limiter, Tally};
use servers::Server;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const API: &str = "api.example.com";

/// What a worker does, told by its environment.
#[test]
fn worker() {
    let Ok(task) = std::env::var("WORKER") else { return };
    let (task, storage) = task.split_once(' ').unwrap();
    // A machine that is busy starting processes is slow, and nobody may go without the store here.
    let mut builder = Limiter::builder().store_timeout(Duration::from_secs(10));
    if task == "lease" {
        builder = builder.lease(Duration::from_millis(100));
    }
    let limiter = builder.open(storage).unwrap();
    // Everybody waits until everybody is there.
    println!("ready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    match task {
        "try" => {
            let granted = (0..100).filter(|_| {
                let permit = limiter.try_acquire(API).unwrap();
                permit.is_some_and(|mut permit| {
                    permit.sent();
                    true
                })
            });
            println!("granted {}", granted.count());
        }
        "pace" | "lease" => {
            let mut granted = Vec::new();
            let end = Instant::now() + RUN;
            while Instant::now() < end {
                let call = Call::to(API).max_wait(Duration::from_secs(1));
                if let Ok(mut permit) = limiter.acquire_blocking(call) {
                    granted.push(micros());
                    permit.sent();
                }
            }
            for at in granted {
                println!("at {at}");
            }
        }
        "count" => std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..1_000).for_each(|_| limiter.count(MODEL, one_call())));
            }
        }),
        log => {
            let mut log = OpenOptions::new().append(true).open(log).unwrap();
            loop {
                let mut permit = limiter.acquire_blocking(API).unwrap();
                permit.sent();
                log.write_all(b".").unwrap();
            }
        }
    }
}

const RUN: Duration = Duration::from_secs(3);

fn micros() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

const MODEL: &str = "openai:gpt-4o";

fn one_call() -> Tally {
    let waited = Duration::from_micros(3);
    Tally { sent: 1, waited, input_tokens: 900, micro_usd: 2_250, ..Tally::default() }
}

struct Worker(Child);

impl Worker {
    fn start(task: &str, storage: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["worker", "--exact", "--nocapture"])
            .env("WORKER", format!("{task} {storage}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn lines(&mut self) -> impl Iterator<Item = String> {
        BufReader::new(self.0.stdout.as_mut().unwrap()).lines().map(Result::unwrap)
    }

    fn wait_until_ready(&mut self) {
        assert!(self.lines().any(|line| line.ends_with("ready")));
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    }

    /// The numbers that it printed after `word`.
    fn told(mut self, word: &str) -> Vec<u64> {
        let told = self.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
        let told = told.collect();
        assert!(self.0.wait().unwrap().success());
        told
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts so many workers, which begin at the same time.
fn start(count: usize, task: &str, storage: &str) -> Vec<Worker> {
    let mut workers: Vec<_> = (0..count).map(|_| Worker::start(task, storage)).collect();
    workers.iter_mut().for_each(Worker::wait_until_ready);
    workers.iter_mut().for_each(Worker::go);
    workers
}

/// Runs so many workers at the same time and gives all that they told.
fn run(count: usize, task: &str, storage: &str, word: &str) -> Vec<u64> {
    let workers = start(count, task, storage);
    // All at once: a worker whose pipe is full would wait for its reader.
    let readers: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let word = word.to_owned();
            std::thread::spawn(move || worker.told(&word))
        })
        .collect();
    readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
}

fn with_limit(storage: &str, limit: &str) -> Limiter {
    let limiter = Limiter::builder().open(storage).unwrap();
    limiter.clear(None).unwrap();
    limiter.set_limit(API, Limit::parse(limit).unwrap()).unwrap();
    limiter
}

fn sqlite(folder: &Path) -> String {
    format!("sqlite:///{}", folder.join("limits.db").display())
}

fn exactly_one_hundred(storage: &str) {
    for _ in 0..20 {
        with_limit(storage, "100/1h");
        let granted: u64 = run(8, "try", storage, "granted").iter().sum();
        assert_eq!(granted, 100);
    }
}

#[test]
fn rule_32_eight_processes_of_a_hundred_tries_get_exactly_a_hundred_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    exactly_one_hundred(&sqlite(folder.path()));
}

#[test]
fn rule_33_eight_processes_of_a_hundred_tries_get_exactly_a_hundred_from_redis() {
    let server = Server::start();
    exactly_one_hundred(&server.url());
}

/// The books are exact, whoever writes them at the same time.
fn adds_up(storage: &str) {
    drop(run(8, "count", storage, "nothing"));
    let usage = Limiter::builder().open(storage).unwrap().usage().unwrap();
    // Midnight may pass meanwhile.
    let mut sum = Tally::default();
    for (scope, _, tally) in &usage {
        assert_eq!(scope, MODEL);
        sum.add(tally);
    }
    let waited = Duration::from_micros(96_000);
    let (input_tokens, micro_usd) = (28_800_000, 72_000_000);
    let expected = Tally { sent: 32_000, waited, input_tokens, micro_usd, ..Tally::default() };
    assert_eq!(sum, expected);
}

#[test]
fn eight_processes_of_four_threads_count_exactly_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    adds_up(&sqlite(folder.path()));
}

#[test]
fn eight_processes_of_four_threads_count_exactly_in_redis() {
    let server = Server::start();
    adds_up(&server.url());
}

/// Never more than `burst + rate * time` in any span, and nearly all of it.
fn keeps_to(mut granted: Vec<u64>, rate: u64, least: f64) {
    granted.sort_unstable();
    let (mut low, mut largest) = (f64::MAX, 0.0_f64);
    for (i, at) in granted.iter().enumerate() {
        let refilled = (at - granted[0]) as f64 / 1e6 * rate as f64;
        low = low.min(i as f64 - refilled);
        largest = largest.max(i as f64 + 1.0 - refilled - low);
    }
    // A grant is seen a little after it was given, by as much as a busy machine takes.
    let blur = rate as f64 * 0.02;
    assert!(largest <= rate as f64 + blur, "{largest} at once, {rate} allowed");
    // After the first second the burst is used, and the last one is not whole.
    let (from, to) = (granted[0] + 1_000_000, granted[0] + 2_500_000);
    let steady = granted.iter().filter(|at| (from..to).contains(at)).count();
    let share = steady as f64 / (1.5 * rate as f64);
    assert!(share >= least && share <= 1.02, "{share} of the limit was used");
}

#[test]
fn sixteen_processes_use_nearly_all_of_a_limit_in_a_file_and_never_more() {
    let folder = tempfile::tempdir().unwrap();
    with_limit(&sqlite(folder.path()), "400/1s");
    keeps_to(run(16, "pace", &sqlite(folder.path()), "at"), 400, 0.97);
}

#[test]
fn sixteen_processes_use_nearly_all_of_a_limit_in_redis_and_never_more() {
    let server = Server::start();
    with_limit(&server.url(), "400/1s");
    keeps_to(run(16, "pace", &server.url(), "at"), 400, 0.97);
}

#[test]
fn leases_use_nearly_all_of_a_limit_never_more_and_hardly_ask() {
    let server = Server::start();
    with_limit(&server.url(), "5000/1s");
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let granted = run(4, "lease", &server.url(), "at");
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).unwrap();
    let calls: usize = calls.split(',').next().unwrap().parse().unwrap();
    assert!(calls * 20 <= granted.len(), "{calls} commands for {} requests", granted.len());
    keeps_to(granted, 5_000, 0.98);
}

/// Who waits in several processes for the same limit waits about as long.
fn shares_fairly(storage: &str) {
    with_limit(storage, "50/1s");
    let workers = start(4, "pace", storage);
    let counts: Vec<_> = workers.into_iter().map(|worker| worker.told("at").len()).collect();
    let fair = counts.iter().sum::<usize>() / 4;
    assert!(counts.iter().all(|count| *count * 3 > fair), "{counts:?}");
}

#[test]
fn processes_share_a_limit_in_a_file_fairly() {
    let folder = tempfile::tempdir().unwrap();
    shares_fairly(&sqlite(folder.path()));
}

#[test]
fn processes_share_a_limit_in_redis_fairly() {
    let server = Server::start();
    shares_fairly(&server.url());
}

/// Kills workers at any point: nothing is granted twice, and at most one grant a worker is lost.
fn survives_kill_9(storage: &str, log: &Path, after_each: impl Fn()) {
    const LIMIT: u64 = 100_000;
    const KILLS: u64 = 50;
    let limiter = with_limit(storage, "100000/1d");
    File::create(log).unwrap();
    let mut dice = 0x9e37_79b9_u64;
    for _ in 0..KILLS {
        let mut worker = Worker::start(&log.display().to_string(), storage);
        worker.wait_until_ready();
        worker.go();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(dice >> 33 & 0x7fff));
        worker.0.kill().unwrap();
        worker.0.wait().unwrap();
        after_each();
    }
    let granted = std::fs::metadata(log).unwrap().len();
    let (_, status) = limiter.status(API).unwrap().unwrap();
    // Rounded down, with what refilled meanwhile.
    let used = LIMIT - status.limits[0].remaining.whole();
    let refilled = 1 + LIMIT * 60 / 86_400;
    assert!(granted > KILLS, "the workers did something");
    assert!(used + refilled >= granted, "overdraft: {granted} were granted, {used} are counted");
    assert!(used <= granted + KILLS, "{used} are counted, of which only {granted} were granted");
}

#[test]
fn rule_32_kill_9_at_any_point_loses_nothing_and_leaves_a_clean_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.db");
    survives_kill_9(&sqlite(folder.path()), &folder.path().join("log"), || {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let state: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(state, "ok");
    });
}

#[test]
fn rule_33_kill_9_at_any_point_loses_nothing_in_redis() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    survives_kill_9(&server.url(), &folder.path().join("log"), || ());
}
