//! Ten thousand tasks in one line: what they cost while they wait, and whether they are woken once
//! and in order.

use crate::hosts::limit;
use crate::process::cpu_seconds;
use crate::row::Row;
use paceline::Limiter;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

const WAITERS: usize = 10_000;
const HOST: &str = "api.example.com";
/// A thousand leave the line every second while the others wait.
const LIMIT: &str = "1000/1s";
const WATCHED: Duration = Duration::from_secs(3);

/// What the tasks report.
#[derive(Default)]
struct Seen {
    /// Their numbers in the order in which they went.
    order: RefCell<Vec<usize>>,
    /// Polls of those who have stood in line since before.
    wakes: Cell<usize>,
}

pub(super) fn ten_thousand() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let tasks = LocalSet::new();
    let (seen, share) = tasks.block_on(&runtime.expect("a runtime"), watch());
    let order = seen.order.borrow();
    let overtaken = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(order.len() > 1_000, "only {} went", order.len());
    let wakes = seen.wakes.get() as f64 / order.len() as f64;
    vec![
        Row::figure("10,000 waiters, processor while 1,000/s go", share * 100.0, "% of a core")
            .at_most(5.0),
        Row::figure("10,000 waiters, wake-ups per admission", wakes, "wake-ups").at_most(1.0),
        Row::figure("10,000 waiters, admitted out of order", overtaken as f64, "times")
            .at_most(0.0),
    ]
}

async fn watch() -> (Rc<Seen>, f64) {
    let limiter = Limiter::builder().build();
    limiter.set_limit(HOST, limit(LIMIT).with_burst(1).expect("a burst")).expect("a host");
    let seen = Rc::new(Seen::default());
    for number in 0..WAITERS {
        tokio::task::spawn_local(wait(limiter.clone(), number, Rc::clone(&seen)));
    }
    while limiter.waiting() + seen.order.borrow().len() < WAITERS {
        tokio::task::yield_now().await;
    }
    seen.order.borrow_mut().clear();
    seen.wakes.set(0);
    let (start, before) = (Instant::now(), cpu_seconds());
    tokio::time::sleep(WATCHED).await;
    let share = (cpu_seconds() - before) / start.elapsed().as_secs_f64();
    (seen, share)
}

async fn wait(limiter: Limiter, number: usize, seen: Rc<Seen>) {
    let mut waiting = pin!(limiter.acquire(HOST));
    let permit = std::future::poll_fn(|context| {
        seen.wakes.set(seen.wakes.get() + 1);
        waiting.as_mut().poll(context)
    });
    permit.await.expect("a permit").sent();
    seen.order.borrow_mut().push(number);
}
