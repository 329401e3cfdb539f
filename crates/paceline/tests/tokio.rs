//! Waiting in tasks, on real time.
#![cfg(all(feature = "tokio", not(loom)))]

use paceline::{Error, Limit, Limiter};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const API: &str = "api.example.com";

fn limited(limit: &str) -> Limiter {
    let limiter = Limiter::builder().build();
    limiter.set_limit(API, Limit::parse(limit).unwrap().with_burst(1).unwrap()).unwrap();
    limiter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_18_tasks_go_in_the_order_in_which_they_came() {
    let limiter = limited("1000/1s");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..20 {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        let waiting = limiter.waiting();
        let one = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let mut permit = one.acquire(API).await.unwrap();
            permit.sent();
            order.lock().unwrap().push(i);
        }));
        // The next one comes when this one is in line, or through.
        while limiter.waiting() == waiting && !tasks[i].is_finished() {
            tokio::task::yield_now().await;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(order.lock().unwrap().is_sorted());
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test]
async fn rule_20_a_dropped_future_gives_its_place_back() {
    let limiter = limited("25/1s");
    limiter.acquire(API).await.unwrap().sent();
    let mut leaving = Vec::new();
    for _ in 0..4 {
        let mut future = Box::pin(limiter.acquire(API));
        assert!(is_pending(future.as_mut()).await);
        leaving.push(future);
    }
    assert_eq!(limiter.waiting(), 4);
    let mut last = Box::pin(limiter.acquire(API));
    assert!(is_pending(last.as_mut()).await);
    drop(leaving);
    let mut permit = last.await.unwrap();
    permit.sent();
    assert!(permit.waited() < Duration::from_millis(160), "it went at the time of the first");
}

/// Polls once; whether it is pending.
async fn is_pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn rule_36_a_task_is_timed_by_its_own_runtime_even_if_another_made_room() {
    let limiter = limited("50/1s");
    let mut held = Some(limiter.try_acquire(API).unwrap().unwrap());
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let home = home.unwrap();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            home.spawn(async move { limiter.acquire(API).await.map(|mut permit| permit.sent()) })
        })
        .collect();
    while limiter.waiting() < 3 {
        std::thread::yield_now();
    }
    // Room is made from another runtime, which then goes away.
    let other = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    other.block_on(async { drop(held.take()) });
    drop(other);
    home.block_on(async {
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}

#[tokio::test]
async fn rule_21_max_wait_is_decided_up_front() {
    let limiter = limited("1/1h");
    limiter.acquire(API).await.unwrap().sent();
    let impatient = paceline::Call::to(API).max_wait(Duration::from_secs(5));
    let Err(Error::Refused(refused)) = limiter.acquire(impatient).await else { panic!() };
    assert!(refused.retry_after > Duration::from_secs(3_500));
}
