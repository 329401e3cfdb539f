//! Rule 20 for clients: futures that are dropped anywhere, by the thousand, on a virtual clock.
#![cfg(not(loom))]

use fastrand::Rng;
use http::{Request, Response};
use paceline::http::Pacing;
use paceline::reqwest::RateLimitMiddleware;
use paceline::retry::RetryConfig;
use paceline::tower::{RateLimitLayer, Retry};
use paceline::{Amount, Cost, Limit, Limiter, VirtualClock};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tower::{BoxError, ServiceBuilder, ServiceExt};

const API: &str = "https://api.example.com";
const DROPS: usize = 20_000;
/// A second's worth of requests, which makes them wait.
const RATE: u64 = 20;
/// So many that never refill while the test lasts, and tell what was charged in all.
const TALLY: u64 = 1_000_000;

type Sending = Pin<Box<dyn Future<Output = ()>>>;

/// Stands in for the network: answers after a while, sometimes that it is busy.
#[derive(Clone, Default)]
struct Server {
    sent: Arc<AtomicU64>,
}

impl Server {
    async fn answer(self) -> u16 {
        let nth = self.sent.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(nth * 7 % 90)).await;
        if nth.is_multiple_of(5) { 503 } else { 200 }
    }
}

fn cost() -> Cost {
    Cost::ONE.with("tally", Amount::ONE).unwrap()
}

/// Begins, polls and drops requests at random, then tells whether each that left was charged once, and
/// no other.
async fn drop_at_random(seed: u64, begin: impl Fn(&Limiter, &Server) -> Sending) {
    let clock = VirtualClock::default();
    let limiter = Limiter::builder().clock(clock.clone()).build();
    limiter.set_limit(API, Limit::parse(&format!("{RATE}/1s")).unwrap()).unwrap();
    limiter.set_limit(API, Limit::parse(&format!("tally={TALLY}/365d")).unwrap()).unwrap();
    let (server, mut dice) = (Server::default(), Rng::with_seed(seed));
    let (mut under_way, mut dropped, mut done): (Vec<Sending>, _, _) = (Vec::new(), 0, 0);
    let mut passed = Duration::ZERO;
    while dropped < DROPS {
        let any = dice.usize(..under_way.len().max(1));
        match dice.u32(..16) {
            0..4 => under_way.push(begin(&limiter, &server)),
            4..14 if under_way.is_empty() => {}
            4..12 => {
                let mut cx = Context::from_waker(Waker::noop());
                if under_way[any].as_mut().poll(&mut cx).is_ready() {
                    drop(under_way.swap_remove(any));
                    done += 1;
                }
            }
            12..14 => {
                drop(under_way.swap_remove(any));
                dropped += 1;
            }
            _ => {
                let span = Duration::from_millis(dice.u64(..60));
                clock.advance(span);
                tokio::time::advance(span).await;
                passed += span;
            }
        }
    }
    under_way.clear();
    assert_eq!(limiter.waiting(), 0, "somebody is still in line");
    let sent = server.sent.load(Ordering::Relaxed);
    let (_, status) = limiter.status(API).unwrap().unwrap();
    let mut limits = status.limits.iter();
    let tally = limits.find(|it| it.limit.dimension.as_str() == "tally").unwrap();
    let refilled = passed.as_secs() * TALLY / (365 * 86_400);
    let charged = TALLY + refilled - tally.remaining.whole();
    assert!(sent.abs_diff(charged) <= 1, "{sent} were sent, {charged} charged");
    let allowed = RATE + RATE * passed.as_secs();
    assert!((allowed / 2..=allowed + 1).contains(&sent), "{sent} sent, {allowed} allowed");
    assert!(done > 1_000, "only {done} were answered");
    // And what there is room for goes, no more and no less.
    clock.advance(Duration::from_secs(1));
    for _ in 0..RATE {
        limiter.try_acquire(API).unwrap().expect("there is room").sent();
    }
    assert!(limiter.try_acquire(API).unwrap().is_none());
}

fn busy() -> RetryConfig {
    RetryConfig { base_delay: Duration::from_millis(20), ..RetryConfig::default() }
}

#[tokio::test(start_paused = true)]
async fn rule_20_a_layer_dropped_anywhere_gives_back_what_was_not_sent() {
    let begin = |limiter: &Limiter, server: &Server| {
        let server = server.clone();
        let network = tower::service_fn(move |_: Request<()>| {
            let answer = server.clone().answer();
            async move { Ok::<_, BoxError>(Response::builder().status(answer.await).body(())?) }
        });
        let client = ServiceBuilder::new()
            .retry(Retry::new(busy()))
            .layer(RateLimitLayer::new(limiter.clone()).cost(|_| cost()))
            .service(network);
        let request = Request::get(API).body(()).unwrap();
        Box::pin(async move { drop(client.oneshot(request).await.unwrap()) }) as Sending
    };
    tokio::task::unconstrained(drop_at_random(1, begin)).await;
}

#[tokio::test(start_paused = true)]
async fn rule_20_a_middleware_dropped_anywhere_gives_back_what_was_not_sent() {
    struct Network(Server);

    #[async_trait::async_trait]
    impl reqwest_middleware::Middleware for Network {
        async fn handle(
            &self,
            _: reqwest::Request,
            _: &mut http::Extensions,
            _: reqwest_middleware::Next<'_>,
        ) -> reqwest_middleware::Result<reqwest::Response> {
            let status = self.0.clone().answer().await;
            Ok(Response::builder().status(status).body("").unwrap().into())
        }
    }

    let plain = reqwest::Client::new();
    let begin = |limiter: &Limiter, server: &Server| {
        let client = reqwest_middleware::ClientBuilder::new(plain.clone())
            .with(RateLimitMiddleware::new(limiter.clone()).retry(busy()))
            .with(Network(server.clone()))
            .build();
        let request = client.get(API).with_extension(cost());
        Box::pin(async move { drop(request.send().await.unwrap()) }) as Sending
    };
    tokio::task::unconstrained(drop_at_random(2, begin)).await;
}

#[tokio::test(start_paused = true)]
async fn rule_20_a_flight_dropped_before_it_leaves_is_given_back() {
    let begin = |limiter: &Limiter, server: &Server| {
        let pacing = Pacing::new(limiter.clone()).cost(|_| cost());
        let server = server.clone();
        Box::pin(async move {
            let request = Request::get(API).body(()).unwrap();
            let mut flight = pacing.admit(&request, None).await.unwrap();
            // As a client does that looks for a connection first.
            tokio::time::sleep(Duration::from_millis(20)).await;
            flight.leaves();
            let mut response = Response::builder().status(server.answer().await).body(()).unwrap();
            flight.answered(&mut response);
        }) as Sending
    };
    tokio::task::unconstrained(drop_at_random(3, begin)).await;
}
