//! Whether the cost of a decision grows with the number of scopes, limits or waiters.

use super::keyed::{by_key, check};
use crate::hosts::{host, hosts, limit, with_default};
use crate::race::{alone, nanos_each};
use crate::row::Row;
use paceline::{Bell, Call, Entry, Limiter, Step, VirtualClock, Waiter};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
const ROUND: usize = 200_000;

/// Random keys, beside `governor`: both pay for the caches of the machine, which a large table
/// leaves. And one key or one handle among many, which pays for the algorithm alone.
pub(super) fn scopes() -> Vec<Row> {
    let mut rows = Vec::new();
    for size in SIZES {
        rows.push(by_key(format!("decision by key, {size} scopes"), size));
    }
    for size in SIZES {
        let limiter = with_default("1000000000/1d");
        for i in 0..size {
            assert!(check(&limiter, &host(i)));
        }
        let key = host(size / 2);
        let figure = alone(|| nanos_each(ROUND, |_| check(&limiter, &key)));
        rows.push(Row::figure(format!("decision by the same key, {size} scopes"), figure, "ns"));
        let mut endpoint = limiter.endpoint(&key).expect("a host");
        let mut by_handle = |_| endpoint.check().is_ok_and(|verdict| verdict.is_granted());
        let figure = alone(|| nanos_each(ROUND, &mut by_handle));
        rows.push(Row::figure(format!("decision behind a handle, {size} scopes"), figure, "ns"));
    }
    rows
}

/// As many hosts with a limit of their own.
pub(super) fn limits() -> Vec<Row> {
    let row = |size: usize| {
        let keys = hosts(size);
        let limiter = Limiter::builder().build();
        for key in &keys {
            limiter.set_limit(key, limit("1000000/1d")).expect("a host");
        }
        let mut at = 0;
        let figure = alone(|| {
            nanos_each(ROUND, |_| {
                at = if at + 1 == size { 0 } else { at + 1 };
                check(&limiter, &keys[at])
            })
        });
        Row::figure(format!("decision by key, {size} limits"), figure, "ns")
    };
    SIZES.map(row).into()
}

/// As many limits on paths below one host, and a URL that one of them governs.
pub(super) fn paths() -> Vec<Row> {
    let row = |size: usize| {
        let limiter = Limiter::builder().build();
        for i in 0..size {
            let endpoint = format!("api.example.com/v1/method-{i}");
            limiter.set_limit(&endpoint, limit("1000000000/1d")).expect("a path");
        }
        let url = format!("https://api.example.com/v1/method-{}/items?page=2", size / 2);
        let figure = alone(|| nanos_each(ROUND, |_| check(&limiter, &url)));
        Row::figure(format!("decision by URL, {size} limits on paths of the host"), figure, "ns")
    };
    SIZES.map(row).into()
}

/// Joining a line, leaving it, and being admitted from it, on a clock that moves when told to.
pub(super) fn waiters() -> Vec<Row> {
    let mut rows = Vec::new();
    for size in &SIZES[..5] {
        let mut line = Standing::new(*size);
        let mut row = |what: &str, figure| {
            rows.push(Row::figure(format!("{what}, {size} waiters"), figure, "ns"));
        };
        row("joining the line", alone(|| line.joining()));
        row("admission from the line", alone(|| line.admission()));
        row("joining after somebody left", alone(|| line.leaving()));
    }
    rows
}

struct Standing {
    limiter: Limiter,
    clock: VirtualClock,
    waiters: std::collections::VecDeque<Waiter>,
}

struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

const HOST: &str = "api.example.com";
const STEPS: usize = 100;

impl Standing {
    fn new(size: usize) -> Self {
        let clock = VirtualClock::default();
        let limiter = Limiter::builder().clock(clock.clone()).build();
        limiter.set_limit(HOST, limit("1/1s")).expect("a host");
        limiter.acquire_now(HOST).expect("room for one").sent();
        let mut line = Self { limiter, clock, waiters: std::collections::VecDeque::new() };
        for _ in 0..size {
            line.join();
        }
        line.head().expect("a head");
        line
    }

    fn join(&mut self) {
        let entry = self.limiter.enter(&Call::to(HOST), || Arc::new(Silent));
        let Ok(Entry::Queued(waiter)) = entry else { panic!("it had to wait: {entry:?}") };
        self.waiters.push_back(waiter);
    }

    fn head(&mut self) -> Option<Step> {
        self.waiters.front_mut().map(Waiter::poll)
    }

    /// Some join; untimed, they leave again from the end, and one join is left to get over that.
    fn joining(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..STEPS {
            self.join();
        }
        let took = start.elapsed();
        for _ in 0..=STEPS {
            self.waiters.pop_back();
        }
        self.join();
        nanos(took)
    }

    /// Time passes and the head goes, again and again; untimed, others come in their place.
    fn admission(&mut self) -> f64 {
        let mut took = Duration::ZERO;
        for _ in 0..STEPS {
            self.clock.advance(Duration::from_secs(1));
            let start = Instant::now();
            let Some(Step::Done(Ok(mut permit))) = self.head() else { panic!("it was its turn") };
            permit.sent();
            drop(permit);
            took += start.elapsed();
            self.waiters.pop_front();
            self.join();
        }
        nanos(took)
    }

    /// The last in line leaves and somebody else joins.
    fn leaving(&mut self) -> f64 {
        let steps = STEPS.min(10);
        let start = Instant::now();
        for _ in 0..steps {
            self.waiters.pop_back();
            self.join();
        }
        nanos(start.elapsed()) * STEPS as f64 / steps as f64
    }
}

fn nanos(took: Duration) -> f64 {
    took.as_secs_f64() * 1e9 / STEPS as f64
}
