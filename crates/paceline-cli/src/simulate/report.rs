//! What came of a simulation, for people and for programs.

use super::chart;
use crate::limits::{text, titled};
use crate::times::took;
use comfy_table::Table;
use paceline::Origin;
use paceline::simulate::{Advice, Outcome, Simulation, Waits};
use serde::Serialize;
use std::time::Duration;

/// An outcome as programs see it. Times are in seconds.
#[derive(Debug, Serialize)]
pub struct Report {
    requests: u64,
    answered: u64,
    refused: u64,
    rejected: u64,
    failed: u64,
    finished: f64,
    binding: Option<String>,
    bounds: Vec<Bounded>,
    waits: Spans,
    delays: Spans,
    limits: Vec<Used>,
    concurrency: Concurrency,
    advice: Option<Advised>,
    timeline: Timeline,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<Mark>,
}

#[derive(Debug, Serialize)]
struct Bounded {
    by: String,
    seconds: f64,
    share: f64,
}

#[derive(Debug, Serialize)]
struct Spans {
    some: u64,
    p50: f64,
    p99: f64,
    max: f64,
    mean: f64,
}

#[derive(Debug, Serialize)]
struct Used {
    limit: String,
    dimension: String,
    units: u64,
    window: f64,
    burst: u64,
    strict: bool,
    spent: f64,
    used: f64,
}

#[derive(Debug, Serialize)]
struct Concurrency {
    most: u64,
    of_use: Option<u64>,
    ceiling: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Advised {
    change: String,
    finished: f64,
    unanswered: u64,
    rejected: u64,
}

#[derive(Debug, Serialize)]
struct Timeline {
    width: f64,
    slots: Vec<Slot>,
}

#[derive(Debug, Serialize)]
struct Slot {
    came: u64,
    sent: u64,
    refused: u64,
    rejected: u64,
    waiting: u64,
    left: Vec<f64>,
    server_left: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Mark {
    came: f64,
    at: f64,
    fate: &'static str,
}

impl From<&Waits> for Spans {
    fn from(waits: &Waits) -> Self {
        Self {
            some: waits.some,
            p50: waits.p50.as_secs_f64(),
            p99: waits.p99.as_secs_f64(),
            max: waits.max.as_secs_f64(),
            mean: waits.mean.as_secs_f64(),
        }
    }
}

/// Units, of which millionths are counted.
pub(super) fn units(amount: paceline::Amount) -> f64 {
    amount.millionths() as f64 / 1e6
}

impl Report {
    pub(super) fn new(outcome: &Outcome, advice: Option<&Advice>) -> Self {
        let all = outcome.finished.as_secs_f64();
        let bounds = outcome.bounds.iter().map(|(by, span)| Bounded {
            by: by.to_string(),
            seconds: span.as_secs_f64(),
            share: if all > 0.0 { span.as_secs_f64() / all } else { 0.0 },
        });
        let limits = outcome.usage.iter().map(|usage| Used {
            limit: usage.limit.to_string(),
            dimension: usage.limit.dimension.to_string(),
            units: usage.limit.units,
            window: usage.limit.window.duration().as_secs_f64(),
            burst: usage.limit.burst,
            strict: usage.limit.strict,
            spent: units(usage.spent),
            used: usage.share as f64 / 1e6,
        });
        let slots = outcome.timeline.slots.iter().map(|slot| Slot {
            came: slot.came,
            sent: slot.sent,
            refused: slot.refused,
            rejected: slot.rejected,
            waiting: slot.waiting,
            left: slot.left.iter().copied().map(units).collect(),
            server_left: slot.server_left.clone(),
        });
        let marks = outcome.marks.iter().map(|mark| Mark {
            came: mark.came.as_secs_f64(),
            at: mark.at.as_secs_f64(),
            fate: mark.fate.name(),
        });
        Self {
            requests: outcome.requests,
            answered: outcome.answered,
            refused: outcome.refused,
            rejected: outcome.rejected,
            failed: outcome.failed,
            finished: all,
            binding: outcome.binding().map(ToString::to_string),
            bounds: bounds.collect(),
            waits: (&outcome.waits).into(),
            delays: (&outcome.delays).into(),
            limits: limits.collect(),
            concurrency: Concurrency {
                most: outcome.concurrency.most,
                of_use: outcome.concurrency.of_use,
                ceiling: outcome.concurrency.ceiling,
            },
            advice: advice.map(|advice| Advised {
                change: advice.change.to_string(),
                finished: advice.finished.as_secs_f64(),
                unanswered: advice.unanswered,
                rejected: advice.rejected,
            }),
            timeline: Timeline {
                width: outcome.timeline.width.as_secs_f64(),
                slots: slots.collect(),
            },
            marks: marks.collect(),
        }
    }
}

/// The figures that people look at: what each is called, and what it is.
pub(super) fn figures(
    simulation: &Simulation,
    outcome: &Outcome,
    advice: Option<&Advice>,
) -> Vec<(&'static str, String)> {
    let all = outcome.finished.as_secs_f64();
    let mut figures = vec![("finished", took(outcome.finished))];
    if let Some((by, span)) = outcome.bounds.first() {
        let share = 100.0 * span.as_secs_f64() / all.max(f64::MIN_POSITIVE);
        figures.push(("binding", format!("{by} ({share:.0} % of the time)")));
    }
    figures.push(("answered", format!("{} of {}", outcome.answered, outcome.requests)));
    if simulation.max_wait.is_some() {
        figures.push(("refused", format!("{} by us, before they were sent", outcome.refused)));
    }
    if simulation.server.is_some() {
        let failed = match outcome.failed {
            0 => String::new(),
            failed => format!(", {failed} given up"),
        };
        figures.push(("429s", format!("{} by the server{failed}", outcome.rejected)));
    }
    figures.push(("waits", spans(&outcome.waits)));
    if outcome.delays.max > outcome.waits.max {
        figures.push((
            "until sent",
            format!("{}, with the wait for a worker", spans(&outcome.delays)),
        ));
    }
    for usage in &outcome.usage {
        let percent = usage.share as f64 / 1e4;
        let limit = &usage.limit;
        let learned = match limit.origin {
            Origin::Configured => "",
            _ => ", as the server states it",
        };
        let spent = units(usage.spent);
        figures.push(("used", format!("{percent:.1} % of {limit}, {spent} in all{learned}")));
    }
    let concurrency = &outcome.concurrency;
    let mut under_way = format!("{} at once", concurrency.most);
    if let Some(of_use) = concurrency.of_use {
        under_way += &format!("; the limits have work for {of_use}");
    }
    if let Some(ceiling) = concurrency.ceiling {
        under_way += &format!("; {} workers get through {ceiling} a minute", simulation.workers);
    }
    figures.push(("under way", under_way));
    let helps = advice.map_or_else(|| "no single change".to_owned(), |it| advised(it, outcome));
    figures.push(("would help", helps));
    figures
}

fn spans(waits: &Waits) -> String {
    let Waits { p50, p99, max, .. } = waits;
    format!("p50 {}, p99 {}, longest {}", took(*p50), took(*p99), took(*max))
}

fn advised(advice: &Advice, outcome: &Outcome) -> String {
    let mut then = format!("{}: finished in {}", advice.change, took(advice.finished));
    if advice.rejected != outcome.rejected {
        then += &format!(", {} × 429", advice.rejected);
    }
    if advice.unanswered != outcome.refused + outcome.failed {
        then += &format!(", {} not answered", advice.unanswered);
    }
    then
}

/// All of it for a terminal that is so wide.
pub(super) fn show(
    simulation: &Simulation,
    outcome: &Outcome,
    advice: Option<&Advice>,
    width: u16,
) -> String {
    let mut table: Table = titled::<0>([]);
    for (name, figure) in figures(simulation, outcome, advice) {
        table.add_row([name.to_owned(), figure]);
    }
    let mut shown = text(table).trim_start().to_owned();
    if outcome.finished > Duration::ZERO {
        shown = format!("{shown}\n\n{}", chart::sparklines(outcome, width));
    }
    shown
}
