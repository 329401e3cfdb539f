//! Event loops and stores that take their time: nobody waits for a visit, and nothing is lost.

#[path = "../../paceline-store/tests/servers/mod.rs"]
mod servers;

use paceline::{Call, Error, Limit, Limiter, OnFailure};
use servers::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const API: &str = "api.example.com";

fn open(storage: &str, limit: &str) -> Limiter {
    let limiter = Limiter::builder().store_timeout(Duration::from_secs(5)).open(storage).unwrap();
    limiter.set_limit(API, Limit::parse(limit).unwrap()).unwrap();
    limiter
}

/// Runs a check on a file and on a server.
async fn on_both<F: Future<Output = ()>>(check: impl Fn(String) -> F) {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
    check(format!("sqlite:///{}", folder.path().join("limits.db").display())).await;
    check(server.url()).await;
}

fn left(limiter: &Limiter) -> u64 {
    limiter.status(API).unwrap().unwrap().1.limits[0].remaining.whole()
}

#[tokio::test]
async fn rule_18_tasks_are_served_in_the_order_in_which_they_came() {
    on_both(|storage| async move {
        let limiter = open(&storage, "10/100ms");
        let turn = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..40)
            .map(|i| {
                let (limiter, turn) = (limiter.clone(), Arc::clone(&turn));
                tokio::spawn(async move {
                    limiter.acquire(API).await.unwrap().sent();
                    assert_eq!(turn.fetch_add(1, Ordering::Relaxed), i, "overtaken");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn rule_20_a_task_that_is_cancelled_at_any_point_gives_everything_back() {
    on_both(|storage| async move {
        let limiter = open(&storage, "500/1h");
        for i in 0..200_u64 {
            let task = tokio::spawn({
                let limiter = limiter.clone();
                async move { limiter.acquire(API).await.map(drop) }
            });
            for _ in 0..i % 7 {
                tokio::task::yield_now().await;
            }
            if i % 3 == 0 {
                tokio::time::sleep(Duration::from_micros(i * 2)).await;
            }
            task.abort();
            drop(task.await);
        }
        // What was left at the desk is done by and by.
        for _ in 0..100 {
            if left(&limiter) == 500 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} of 500 came back", left(&limiter));
    })
    .await;
}

#[tokio::test]
async fn rule_21_a_wait_that_is_not_allowed_is_refused_at_once() {
    on_both(|storage| async move {
        let limiter = open(&storage, "1/1h");
        limiter.acquire(API).await.unwrap().sent();
        let call = || Call::to(API).max_wait(Duration::from_millis(100));
        let error = limiter.acquire(call()).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
        // Behind somebody who waits, too.
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(API).await.map(drop) }
        });
        while limiter.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let error = limiter.acquire(call()).await.unwrap_err();
        let Error::Refused(refused) = error else { panic!("{error}") };
        assert!(refused.retry_after > Duration::from_secs(7_000), "{refused}");
        waiting.abort();
    })
    .await;
}

#[tokio::test]
async fn a_stalled_server_does_not_stall_an_event_loop() {
    let server = Server::start();
    let limiter = Limiter::builder()
        .store_timeout(Duration::from_millis(200))
        .on_failure(OnFailure::Closed)
        .open(&server.url())
        .unwrap();
    server.pause();
    let call = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(API).await.map(drop) }
    });
    // One thread runs both: it turns as long as the call takes.
    let mut turns = 0;
    while !call.is_finished() {
        turns += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(turns > 30, "the loop turned {turns} times in 200 ms");
    assert!(matches!(call.await.unwrap(), Err(Error::Unavailable(_))));
    server.resume();
}

#[tokio::test]
async fn a_permit_is_settled_and_observed_without_waiting_for_the_store() {
    on_both(|storage| async move {
        let limiter = open(&storage, "tokens=1000/1h");
        let mut permit =
            limiter.acquire(Call::to(API).cost("tokens", 600.0).unwrap()).await.unwrap();
        assert!(!permit.asks_slowly());
        permit.settle(&[("tokens", 100.0)]).unwrap();
        permit.close();
        // The same desk does one after the other.
        let second = limiter.acquire(Call::to(API).cost("tokens", 900.0).unwrap()).await.unwrap();
        second.cancel();
        limiter.acquire(Call::to(API).cost("tokens", 1.0).unwrap()).await.unwrap().sent();
        assert_eq!(left(&limiter), 899);
    })
    .await;
}
