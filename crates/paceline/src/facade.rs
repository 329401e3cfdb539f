//! The same sums for the facade of the crate `metrics`, and so for whatever recorder a program has.
//!
//! | Name | What it is |
//! | --- | --- |
//! | `paceline.requests.sent`, `.delayed`, `.refused`, `.rejected`, `.failed`, `.retried`, `.cached` | counters by `scope` |
//! | `paceline.wait.duration` | a histogram of seconds by `scope` |
//! | `paceline.tokens.input`, `paceline.tokens.output` | counters by `scope` |

use crate::meter::Event;
use metrics::{Counter, Histogram, counter, histogram};

/// What is told of one scope.
pub(crate) struct Told {
    sent: Counter,
    delayed: Counter,
    refused: Counter,
    rejected: Counter,
    failed: Counter,
    retried: Counter,
    cached: Counter,
    input_tokens: Counter,
    output_tokens: Counter,
    wait: Histogram,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told(..)")
    }
}

impl Told {
    pub(crate) fn new(scope: &str) -> Self {
        let scope = || scope.to_owned();
        Self {
            sent: counter!("paceline.requests.sent", "scope" => scope()),
            delayed: counter!("paceline.requests.delayed", "scope" => scope()),
            refused: counter!("paceline.requests.refused", "scope" => scope()),
            rejected: counter!("paceline.requests.rejected", "scope" => scope()),
            failed: counter!("paceline.requests.failed", "scope" => scope()),
            retried: counter!("paceline.requests.retried", "scope" => scope()),
            cached: counter!("paceline.requests.cached", "scope" => scope()),
            input_tokens: counter!("paceline.tokens.input", "scope" => scope()),
            output_tokens: counter!("paceline.tokens.output", "scope" => scope()),
            wait: histogram!("paceline.wait.duration", "scope" => scope()),
        }
    }

    pub(crate) fn add(&self, event: &Event) {
        let tally = &event.tally;
        for (counter, more) in [
            (&self.sent, tally.sent),
            (&self.delayed, tally.delayed),
            (&self.refused, tally.refused),
            (&self.rejected, tally.rejected),
            (&self.failed, tally.failed),
            (&self.retried, event.retried.into()),
            (&self.cached, tally.cached),
            (&self.input_tokens, tally.input_tokens),
            (&self.output_tokens, tally.output_tokens),
        ] {
            if more > 0 {
                counter.increment(more);
            }
        }
        if tally.sent > 0 {
            self.wait.record(tally.waited.as_secs_f64());
        }
    }
}
