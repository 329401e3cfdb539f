//! What it costs to measure what becomes of calls.

use crate::hosts::with_default;
use crate::race::{nanos_each, race};
use crate::row::Row;
use paceline::Limiter;

const HOST: &str = "https://api.example.com";
const ROUND: usize = 200_000;

fn limiter() -> Limiter {
    with_default("1000000000/1d")
}

/// A permit from its grant to its end.
fn permit(limiter: &Limiter) -> bool {
    limiter.acquire_now(HOST).map(|mut permit| permit.sent()).is_ok()
}

pub(super) fn permits() -> Vec<Row> {
    let race = race(
        || {
            let limiter = limiter();
            limiter.measure();
            nanos_each(ROUND, |_| permit(&limiter))
        },
        || {
            let limiter = limiter();
            nanos_each(ROUND, |_| permit(&limiter))
        },
    );
    let added = race.ours - race.peer;
    vec![
        Row::figure("measuring, added per permit", added, "ns").at_most(200.0),
        Row::versus("permit that is measured", "not measured", race),
    ]
}
