//! Measuring two contenders fairly on a noisy machine.
//!
//! They run in turn, in many short rounds, and the order changes from round to round: a neighbour
//! who takes the processor for a while spoils some rounds of both, which the medians leave out.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Odd, so that the median is a round that happened.
const ROUNDS: usize = 31;

/// The medians of both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) ours: f64,
    pub(crate) peer: f64,
}

/// Runs both in turn; each call is one round and returns its figure.
pub(crate) fn race(mut ours: impl FnMut() -> f64, mut peer: impl FnMut() -> f64) -> Outcome {
    let mut figures = (Vec::new(), Vec::new());
    // One round of each to warm up.
    black_box((ours(), peer()));
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            figures.0.push(ours());
            figures.1.push(peer());
        } else {
            figures.1.push(peer());
            figures.0.push(ours());
        }
    }
    Outcome { ours: median(figures.0), peer: median(figures.1) }
}

/// The median of as many rounds, for a figure without a peer.
pub(crate) fn alone(mut ours: impl FnMut() -> f64) -> f64 {
    black_box(ours());
    median((0..ROUNDS).map(|_| ours()).collect())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Nanoseconds that each of `count` decisions takes. All have to be granted: a refusal takes
/// another path.
#[inline]
pub(crate) fn nanos_each(count: usize, mut decide: impl FnMut(usize) -> bool) -> f64 {
    let mut granted = true;
    let start = Instant::now();
    for i in 0..count {
        granted &= black_box(decide(i));
    }
    let elapsed = start.elapsed();
    assert!(granted, "a decision that was to be granted was refused");
    elapsed.as_secs_f64() * 1e9 / count as f64
}

/// The same with two threads at once, each of which makes `count` decisions: from the start of the
/// first to the end of the last.
pub(crate) fn nanos_each_of_two<D: FnMut(usize) -> bool + Send>(
    count: usize,
    deciders: [D; 2],
) -> f64 {
    let ready = AtomicUsize::new(0);
    let spans = std::thread::scope(|threads| {
        let started = deciders.map(|mut decide| {
            let ready = &ready;
            threads.spawn(move || {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                nanos_each(count, &mut decide);
                (start, Instant::now())
            })
        });
        started.map(|thread| thread.join().expect("a decision was refused"))
    });
    let [(start, end), (other_start, other_end)] = spans;
    let span = end.max(other_end) - start.min(other_start);
    span.as_secs_f64() * 1e9 / count as f64
}
