//! What befalls a server, and what then becomes of calls: in each mode, and without a waiter that hangs.

#[path = "../../paceline-store/tests/servers/mod.rs"]
mod servers;

use paceline::{Call, Error, Health, Limit, Limiter, Notice, OnFailure, Reading, Tally};
use servers::{Certificates, Sentinel, Server};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const API: &str = "api.example.com";
/// What one visit may take here; a call that fails takes hardly longer.
const TIMEOUT: Duration = Duration::from_millis(150);
const HARDLY_LONGER: Duration = Duration::from_millis(700);

/// A limiter, and what it was told about its store.
struct Watched {
    limiter: Limiter,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    fn open(storage: &str, on_failure: OnFailure) -> Result<Self, Error> {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&notices);
        let notify = move |notice: Notice| heard.lock().unwrap().push(notice.to_string());
        let limiter = Limiter::builder()
            .store_timeout(TIMEOUT)
            .on_failure(on_failure)
            .notify(notify)
            .open(storage)?;
        Ok(Self { limiter, notices })
    }

    fn notices(&self) -> Vec<String> {
        self.notices.lock().unwrap().clone()
    }

    fn call(&self) -> Result<(), Error> {
        let started = Instant::now();
        let outcome = self.limiter.acquire_now(API).map(|mut permit| permit.sent());
        assert!(started.elapsed() < HARDLY_LONGER, "a call hung for {:?}", started.elapsed());
        outcome
    }

    fn health(&self) -> Health {
        self.limiter.health()
    }

    /// Calls until the store is back; it is asked again after two seconds at the latest.
    fn wait_until_back(&self) {
        let started = Instant::now();
        while self.health().away {
            assert!(started.elapsed() < Duration::from_secs(5), "the store is back, and unnoticed");
            drop(self.call());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_refused(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::Refused(_)))
}

fn is_unavailable(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::Unavailable(_)))
}

/// Every key of ours has an expiry.
fn expiries(server: &Server) {
    for key in server.command(&["KEYS", "*"]).unwrap().lines().filter(|key| !key.is_empty()) {
        let left: i64 = server.command(&["PTTL", key]).unwrap().trim().parse().unwrap();
        assert!(left > 0, "{key} has no expiry");
    }
}

/// What the server gets over by itself: nobody notices, and the limit holds.
fn unnoticed(server: &Server, trouble: impl Fn(&Server), keeps_its_data: bool) {
    for mode in [OnFailure::Open, OnFailure::Closed, OnFailure::Local] {
        server.command(&["FLUSHALL"]).unwrap();
        let watched = Watched::open(&server.url(), mode).unwrap();
        watched.limiter.set_limit(API, Limit::parse("2/1h").unwrap()).unwrap();
        watched.call().unwrap();
        trouble(server);
        watched.call().unwrap();
        if !keeps_its_data {
            // The limit was put back, with a bucket as full as a new one.
            watched.call().unwrap();
        }
        assert!(is_refused(&watched.call()), "the limit does not hold any more");
        assert_eq!(watched.notices(), [""; 0]);
        expiries(server);
    }
}

#[test]
fn rule_33_a_flushed_script_is_sent_again() {
    unnoticed(&Server::start(), |server| drop(server.command(&["SCRIPT", "FLUSH"]).unwrap()), true);
}

#[test]
fn rule_34_a_limit_set_by_code_is_put_back_when_everything_was_flushed() {
    unnoticed(&Server::start(), |server| drop(server.command(&["FLUSHALL"]).unwrap()), false);
}

#[test]
fn rule_33_a_connection_that_was_killed_is_made_anew() {
    let kill = |server: &Server| {
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    };
    unnoticed(&Server::start(), kill, true);
}

#[test]
fn rule_33_a_restart_is_survived() {
    let restart = |server: &Server| {
        server.kill();
        server.restart();
    };
    unnoticed(&Server::builder().persistent().start(), restart, true);
    // One that has lost everything is told by those who remember: nobody has a burst.
    unnoticed(&Server::start(), restart, true);
}

/// What takes a server away for a while. `trouble` begins it and `relief` ends it.
fn noticed(server: &Server, trouble: impl Fn(&Server), relief: impl Fn(&Server)) {
    for mode in [OnFailure::Open, OnFailure::Closed, OnFailure::Local] {
        server.command(&["FLUSHALL"]).unwrap();
        let watched = Watched::open(&server.url(), mode).unwrap();
        watched.limiter.set_limit(API, Limit::parse("3/1h").unwrap()).unwrap();
        watched.limiter.set_limit("slow.example", Limit::parse("1/500ms").unwrap()).unwrap();
        watched.call().unwrap();
        watched.limiter.acquire_now("slow.example").unwrap().sent();
        std::thread::scope(|threads| {
            // Somebody waits already when it begins.
            let waiting = threads.spawn(|| watched.limiter.acquire_blocking("slow.example"));
            while watched.limiter.waiting() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            trouble(server);
            let outcomes: Vec<_> = (0..6).map(|_| watched.call()).collect();
            match mode {
                // Those beyond the limit still wait for a moment: it may be back soon.
                OnFailure::Open => {
                    assert!(outcomes[..2].iter().all(Result::is_ok), "{outcomes:?}");
                    let started = Instant::now();
                    while started.elapsed() < Duration::from_secs(4) && watched.call().is_err() {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    watched.call().unwrap();
                }
                OnFailure::Closed => assert!(outcomes.iter().all(is_unavailable), "{outcomes:?}"),
                // One was used before, so two are left of this process's share.
                OnFailure::Local => {
                    assert!(outcomes[..2].iter().all(Result::is_ok), "{outcomes:?}");
                    assert!(outcomes[2..].iter().all(is_refused), "{outcomes:?}");
                }
            }
            assert!(watched.health().away);
            let started = Instant::now();
            let waited = waiting.join().unwrap();
            assert!(started.elapsed() < Duration::from_secs(3), "a waiter hung");
            assert_eq!(waited.is_ok(), mode != OnFailure::Closed, "{waited:?}");
            waited.into_iter().for_each(|mut permit| permit.sent());
        });
        assert_eq!(watched.notices().len(), 1, "{:?}", watched.notices());
        relief(server);
        watched.wait_until_back();
        let notices = watched.notices();
        assert!(notices.len() == 2 && notices[1].contains("is back"), "{notices:?}");
        // What went past the store was told to it: nobody has a burst because it was away.
        if mode != OnFailure::Closed {
            assert!(is_refused(&watched.call()), "{:?}", watched.limiter.status(API));
        }
        expiries(server);
    }
}

#[test]
fn rule_34_a_server_that_stalls_hangs_nobody() {
    noticed(&Server::start(), Server::pause, Server::resume);
}

#[test]
fn rule_34_a_server_that_is_busy_hangs_nobody() {
    let busy = |server: &Server| {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        std::io::Write::write_all(&mut stream, b"DEBUG SLEEP 2\r\n").unwrap();
        // Until it has read that; the answer is nobody's.
        std::thread::sleep(Duration::from_millis(30));
    };
    noticed(&Server::start(), busy, |_| ());
}

#[test]
fn rule_34_a_server_that_died_is_missed_and_taken_back() {
    noticed(&Server::builder().persistent().start(), Server::kill, Server::restart);
}

#[test]
fn rule_34_a_server_without_memory_is_missed_and_taken_back() {
    let set = |server: &Server, most: &str| {
        server.command(&["CONFIG", "SET", "maxmemory", most]).unwrap();
    };
    noticed(&Server::start(), |server| set(server, "1"), |server| set(server, "0"));
}

#[test]
fn rule_34_a_server_that_became_a_replica_is_missed_and_taken_back() {
    let demote = |server: &Server| {
        server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    };
    let promote = |server: &Server| drop(server.command(&["REPLICAOF", "NO", "ONE"]).unwrap());
    noticed(&Server::start(), demote, promote);
}

#[test]
fn rule_33_a_failover_by_sentinels_is_followed() {
    for mode in [OnFailure::Open, OnFailure::Closed] {
        let sentinel = Sentinel::start();
        let hosts: Vec<_> = sentinel.sentinels().iter().map(Server::address).collect();
        let url = format!("redis+sentinel://{}/{}", hosts.join(","), sentinel.service());
        let watched = Watched::open(&url, mode).unwrap();
        watched.limiter.set_limit(API, Limit::parse("2/1h").unwrap()).unwrap();
        watched.call().unwrap();
        sentinel.fail_over();
        drop(watched.call());
        watched.wait_until_back();
        let outcomes: Vec<_> = (0..3).map(|_| watched.call()).collect();
        assert!(is_refused(&outcomes[2]), "{outcomes:?}");
        expiries(sentinel.master());
    }
}

/// Who is not let in gets one clear message without the password, or goes without.
fn shut_out(storage: &str, secret: &str, part: &str) {
    let error = Watched::open(storage, OnFailure::Closed).err().unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    let watched = Watched::open(storage, OnFailure::Open).unwrap();
    watched.call().unwrap();
    watched.limiter.acquire_blocking(Call::to(API)).unwrap().sent();
    let notices = watched.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains(part), "{notices:?}");
    let shown = format!("{error} {error:?} {notices:?} {:?}", watched.limiter);
    assert!(secret.is_empty() || !shown.contains(secret), "{shown}");
}

#[test]
fn rule_17_a_wrong_password_is_told_and_not_shown() {
    let server = Server::builder().password("right").start();
    let address = server.address();
    shut_out(&format!("redis://:hunter2@{address}/0"), "hunter2", "assword");
    shut_out(&format!("redis://nobody:hunter2@{address}/0"), "hunter2", "assword");
    let watched = Watched::open(&format!("redis://:right@{address}/3"), OnFailure::Closed).unwrap();
    watched.call().unwrap();
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let certificates = Certificates::new();
    let server = Server::builder().tls(&certificates).start();
    let url = server.url();
    shut_out(&url, "", "ertificate");
    let stranger = certificates.unrelated_authority();
    shut_out(&format!("{url}?ca={}", stranger.display()), "", "ertificate");
    let ours = format!("{url}?ca={}", certificates.authority().display());
    let watched = Watched::open(&ours, OnFailure::Closed).unwrap();
    watched.call().unwrap();
}

#[test]
fn a_hiccup_does_not_send_off_all_who_wait() {
    let server = Server::start();
    let watched = Watched::open(&server.url(), OnFailure::Open).unwrap();
    watched.limiter.set_limit(API, Limit::parse("5/1s").unwrap()).unwrap();
    let went = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..100 {
            threads.spawn(|| {
                let call = Call::to(API).max_wait(Duration::from_secs(60));
                let permit = watched.limiter.acquire_blocking(call);
                if went.fetch_add(1, Ordering::Relaxed) > 40 {
                    return;
                }
                permit.unwrap().sent();
            });
        }
        while went.load(Ordering::Relaxed) < 5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.pause();
        std::thread::sleep(Duration::from_millis(600));
        server.resume();
        let during = went.load(Ordering::Relaxed);
        assert!(during <= 5 + 5, "{during} went at 5 a second");
        // The others need not be waited for.
        watched.limiter.set_limit(API, Limit::parse("1000000/1s").unwrap()).unwrap();
        watched.wait_until_back();
    });
}

#[test]
fn rule_13_a_rejection_while_the_store_is_away_is_not_forgotten() {
    for mode in [OnFailure::Open, OnFailure::Closed, OnFailure::Local] {
        let server = Server::start();
        let watched = Watched::open(&server.url(), mode).unwrap();
        watched.limiter.set_limit(API, Limit::parse("100/1s").unwrap()).unwrap();
        let mut permit = watched.limiter.acquire_now(API).unwrap();
        server.pause();
        drop(watched.call());
        let stop = Reading {
            rejected: true,
            retry_after: Some(Duration::from_secs(30)),
            ..Reading::default()
        };
        permit.observe(&stop).unwrap();
        if mode != OnFailure::Closed {
            assert!(is_refused(&watched.call()), "the server said stop");
        }
        server.resume();
        watched.wait_until_back();
        for _ in 0..3 {
            assert!(is_refused(&watched.call()), "the server said stop");
        }
    }
}

#[test]
fn what_is_counted_while_the_store_is_away_is_in_its_books_when_it_is_back() {
    for on_failure in [OnFailure::Open, OnFailure::Closed, OnFailure::Local] {
        let server = Server::builder().persistent().start();
        let watched = Watched::open(&server.url(), on_failure).unwrap();
        let count = || {
            let sent = Tally { sent: 1, ..Tally::default() };
            watched.limiter.count("openai:gpt-4o", sent);
            watched.limiter.flush()
        };
        count().unwrap();
        server.kill();
        // The first one finds out, and others go by that.
        for _ in 0..5 {
            count().unwrap();
        }
        assert!(watched.health().away);
        assert!(matches!(watched.limiter.usage(), Err(Error::Unavailable(_))));
        server.restart();
        watched.wait_until_back();
        let other = Limiter::builder().open(&server.url()).unwrap();
        let sent = |limiter: &Limiter| -> u64 {
            let books = limiter.usage().unwrap();
            // Those who found out that it was back are counted elsewhere.
            let ours = books.iter().filter(|(scope, ..)| scope == "openai:gpt-4o");
            ours.map(|(.., tally)| tally.sent).sum()
        };
        assert_eq!(sent(&other), 6, "{on_failure:?}: without asking who counted it");
        count().unwrap();
        assert_eq!((sent(&watched.limiter), sent(&other)), (7, 7), "{on_failure:?}");
    }
}

/// Nobody has to call for it: whoever counts finds out, too, that the store is back.
#[test]
fn who_only_counts_finds_out_that_the_store_is_back() {
    let server = Server::builder().persistent().start();
    let watched = Watched::open(&server.url(), OnFailure::Open).unwrap();
    server.kill();
    watched.limiter.count("openai:gpt-4o", Tally { sent: 1, ..Tally::default() });
    watched.limiter.flush().unwrap();
    assert!(watched.health().away);
    server.restart();
    let started = Instant::now();
    while watched.health().away {
        assert!(started.elapsed() < Duration::from_secs(5), "the store is back, and unnoticed");
        watched.limiter.flush().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(watched.limiter.usage().unwrap()[0].2.sent, 1);
}

#[test]
fn what_is_wrong_with_one_scope_harms_no_other() {
    let server = Server::start();
    let watched = Watched::open(&server.url(), OnFailure::Open).unwrap();
    for api in [API, "other.example"] {
        watched.limiter.set_limit(api, Limit::parse("3/1h").unwrap()).unwrap();
    }
    let later = "redis.call('SET', KEYS[1], cmsgpack.pack({99}))";
    server.command(&["EVAL", later, "1", "paceline:{other.example}"]).unwrap();
    let outcomes: Vec<_> = (0..5)
        .map(|_| {
            watched.limiter.acquire_now("other.example").unwrap().sent();
            watched.call()
        })
        .collect();
    assert!(outcomes[..3].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(outcomes[3..].iter().all(is_refused), "{outcomes:?}");
    assert!(!watched.health().away);
    let notices = watched.notices();
    assert!(notices.len() == 1 && notices[0].contains("later release"), "{notices:?}");
    // Nor do costs that no double can count.
    for _ in 0..50 {
        let call = Call::to("huge.example").cost("bytes", 1e12).unwrap();
        watched.limiter.set_limit("huge.example", Limit::parse("1000000/1s").unwrap()).unwrap();
        watched.limiter.acquire_now(call).unwrap().sent();
    }
    assert_eq!(watched.notices().len(), 1, "{:?}", watched.notices());
}

#[test]
fn nobody_listens() {
    shut_out("redis://127.0.0.1:1/0", "", "refused");
    shut_out("redis+cluster://127.0.0.1:1", "", "");
    shut_out("redis+sentinel://127.0.0.1:1/main", "", "refused");
    shut_out("unix:///nowhere/redis.sock", "", "No such file");
    shut_out("sqlite:////nowhere/at/all.db", "", "No such file");
}

#[test]
fn a_socket_of_this_machine_works() {
    let server = Server::builder().unix_socket().start();
    let watched = Watched::open(&server.unix_url(), OnFailure::Closed).unwrap();
    watched.limiter.set_limit(API, Limit::parse("1/1h").unwrap()).unwrap();
    watched.call().unwrap();
    assert!(is_refused(&watched.call()));
}
