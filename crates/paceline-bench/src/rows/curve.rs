//! Whether the cost of a decision grows with the number of scopes, limits or waiters.

use super::keyed::{by_key, check};
use crate::hosts::{host, hosts, limit, with_default};
use crate::race::{alone, nanos_each};
use crate::row::Row;
use paceline::{Bell, Call, Entry, Limiter, Step, Verdict, VirtualClock, Waiter};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
const MOST_WAITERS: usize = 100_000;
const ROUND: usize = 200_000;
/// Never used up here, and no bucket is full for long.
const LARGE: &str = "1000000000/1d";

/// Keys all over the table, beside `governor`: both pay for the caches, which a large table leaves.
pub(super) fn random_keys() -> Vec<Row> {
    let point = |size: usize| {
        by_key(format!("decision by key, {size} scopes"), size).on("decision by key, scopes", size)
    };
    SIZES.map(point).into()
}

/// One key and one handle among many, which pay for the algorithm alone.
pub(super) fn scopes() -> Vec<Row> {
    let (mut by_key, mut by_handle) = (Vec::new(), Vec::new());
    for size in SIZES {
        let limiter = with_default(LARGE);
        for i in 0..size {
            assert!(check(&limiter, &host(i)));
        }
        let key = host(size / 2);
        let figure = alone(|| nanos_each(ROUND, |_| check(&limiter, &key)));
        by_key.push((size, figure));
        let mut endpoint = limiter.endpoint(&key).expect("a host");
        let mut decide = |_| matches!(endpoint.check(), Ok(Verdict::Granted));
        by_handle.push((size, alone(|| nanos_each(ROUND, &mut decide))));
    }
    let mut rows = flat("decision by one key, scopes", &by_key);
    rows.extend(flat("decision behind a handle, scopes", &by_handle));
    rows
}

/// As many hosts with a limit of their own: one of them, and all of them, which leaves the caches.
pub(super) fn limits() -> Vec<Row> {
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for size in SIZES {
        let keys = hosts(size);
        let limiter = Limiter::builder().build();
        for key in &keys {
            limiter.set_limit(key, limit(LARGE)).expect("a host");
        }
        one.push((size, alone(|| nanos_each(ROUND, |_| check(&limiter, &keys[size / 2])))));
        let mut at = 0;
        let figure = alone(|| {
            nanos_each(ROUND, |_| {
                at = if at + 1 == size { 0 } else { at + 1 };
                check(&limiter, &keys[at])
            })
        });
        let curve = "decision by key, limits";
        all.push(Row::figure(format!("{curve}: {size}"), figure, "ns").on(curve, size));
    }
    let mut rows = flat("decision by one key, limits", &one);
    rows.extend(all);
    rows
}

/// As many limits on paths below one host, and a URL that one of them governs.
pub(super) fn paths() -> Vec<Row> {
    let point = |size: usize| {
        let limiter = Limiter::builder().build();
        for i in 0..size {
            let endpoint = format!("api.example.com/v1/method-{i}");
            limiter.set_limit(&endpoint, limit(LARGE)).expect("a path");
        }
        let url = format!("https://api.example.com/v1/method-{}/items?page=2", size / 2);
        (size, alone(|| nanos_each(ROUND, |_| check(&limiter, &url))))
    };
    flat("decision by URL, limits on paths of its host", &SIZES.map(point))
}

/// Joining a line, leaving it, and being admitted from it, on a clock that moves when told to.
pub(super) fn waiters() -> Vec<Row> {
    let (mut joining, mut admission, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
    for size in SIZES.into_iter().filter(|size| *size <= MOST_WAITERS) {
        let mut line = Standing::new(size);
        joining.push((size, alone(|| line.joining())));
        admission.push((size, alone(|| line.admission())));
        leaving.push((size, alone(|| line.leaving())));
    }
    let mut rows = flat("joining the line, waiters", &joining);
    rows.extend(flat("admission from the line, waiters", &admission));
    rows.extend(flat("leaving, and another joins, waiters", &leaving));
    rows
}

fn flat(curve: &'static str, points: &[(usize, f64)]) -> Vec<Row> {
    let rows = points.iter().map(|(size, figure)| {
        Row::figure(format!("{curve}: {size}"), *figure, "ns").on(curve, *size)
    });
    Row::flat(rows.collect())
}

struct Standing {
    limiter: Limiter,
    clock: VirtualClock,
    waiters: VecDeque<Waiter>,
}

struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

const HOST: &str = "api.example.com";
const STEPS: usize = 100;
const FEW: usize = 10;

impl Standing {
    fn new(size: usize) -> Self {
        let clock = VirtualClock::default();
        let limiter = Limiter::builder().clock(clock.clone()).build();
        limiter.set_limit(HOST, limit("1/1s")).expect("a host");
        limiter.acquire_now(HOST).expect("room for one").sent();
        let mut line = Self { limiter, clock, waiters: VecDeque::new() };
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
        let start = Instant::now();
        for _ in 0..FEW {
            self.waiters.pop_back();
            self.join();
        }
        start.elapsed().as_secs_f64() * 1e9 / FEW as f64
    }
}

fn nanos(took: Duration) -> f64 {
    took.as_secs_f64() * 1e9 / STEPS as f64
}
