//! What a watching user sees, and the summary at the end.

use super::output::Record;
use super::send::Sender;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use paceline::{Cause, Limiter, Notice, Origin};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The state of a batch, in numbers.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
    summary: Summary,
    /// Units spent per dimension by requests that were answered.
    spent: BTreeMap<String, f64>,
}

/// The figures of a finished batch.
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Summary {
    /// Lines with a request.
    pub(super) requests: u64,
    /// Answered with a status below 400.
    pub(super) succeeded: u64,
    /// Answered with an error, or not at all.
    pub(super) failed: u64,
    /// Already in the output.
    pub(super) resumed: u64,
    /// Those of them that had not succeeded.
    pub(super) failed_before: u64,
    /// Lines that are no request.
    pub(super) bad_lines: u64,
    /// Responses that refused for rate or load reasons, retried ones included.
    pub(super) rejected: u64,
    /// Attempts that went without the storage, because it could not be reached.
    pub(super) unmetered: u64,
    /// Attempts in all.
    pub(super) attempts: u64,
    /// Wall time.
    pub(super) seconds: f64,
    /// Answers per second.
    pub(super) rate: f64,
    /// Share of the quota used, of the limit that binds; absent without a limit.
    pub(super) quota_used: Option<f64>,
    /// The limit that binds.
    pub(super) binding: Option<String>,
    /// Stopped before the end.
    pub(super) interrupted: bool,
}

impl Progress {
    /// Draws on standard error, when that is a terminal and the user wants it.
    pub(super) fn new(quiet: bool) -> Self {
        let target = match stderr().is_terminal() && !quiet {
            true => ProgressDrawTarget::stderr_with_hz(5),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{pos} done · {per_sec} · {msg}"));
        let summary = Summary::default();
        Self { bar, started: Instant::now(), summary, spent: BTreeMap::new() }
    }

    /// How many requests there will be, once that is known.
    pub(super) fn expect(&self, total: u64) {
        self.bar.set_length(total);
        self.bar.set_style(style("{bar:24} {pos}/{len} · {per_sec} · {msg} · ETA {eta}"));
    }

    pub(super) fn resumed(&mut self) {
        self.summary.resumed += 1;
        self.bar.inc(1);
    }

    pub(super) fn bad_line(&mut self, number: u64, error: &str) {
        self.summary.bad_lines += 1;
        self.bar.inc(1);
        self.say(&format!("line {number}: {error}"));
    }

    /// One line to the user, above the progress.
    pub(super) fn say(&self, text: &str) {
        say(&self.bar, text);
    }

    /// Tells the user what becomes of the storage, from whatever thread finds out.
    pub(super) fn announcer(&self) -> impl Fn(Notice) + Send + Sync + use<> {
        let bar = self.bar.clone();
        move |notice| say(&bar, &notice.to_string())
    }

    pub(super) fn answered(&mut self, record: &Record, cost: &paceline::Cost) {
        self.summary.requests += 1;
        self.summary.attempts += u64::from(record.attempts);
        match record.succeeded() {
            true => self.summary.succeeded += 1,
            false => self.summary.failed += 1,
        }
        if record.status.is_some() {
            for (dimension, amount) in cost.iter() {
                let units = amount.millionths() as f64 / 1e6;
                *self.spent.entry(dimension.to_string()).or_default() += units;
            }
        }
        self.bar.inc(1);
    }

    /// Shows what holds the batch up at the moment.
    pub(super) fn tick(&mut self, sender: &Sender, host: Option<&str>) {
        // A shared storage takes its time to answer: it is not asked for what nobody sees.
        let Some(host) = host.filter(|_| !self.bar.is_hidden()) else { return };
        let limiter = &sender.limiter;
        let mut parts = Vec::new();
        if let Some((limit, used)) = self.quota(limiter, host) {
            parts.push(format!("{:.0}% of {limit}", used * 100.0));
        }
        if limiter.waiting() > 0
            && let Ok(Some(wait)) = limiter.wait(host)
        {
            let by = match wait.by {
                Cause::Limit(limit) => limit.to_string(),
                other => other.to_string(),
            };
            parts.push(format!("waiting for {by}"));
        }
        parts.push(format!("{} × 429", sender.rejected.load(Ordering::Relaxed)));
        self.bar.set_message(parts.join(" · "));
        self.bar.tick();
    }

    /// The limit of which most is used, and how much of it, since the batch began.
    fn quota(&self, limiter: &Limiter, host: &str) -> Option<(String, f64)> {
        let (_, status) = limiter.status(host).ok().flatten()?;
        let elapsed = self.started.elapsed().as_secs_f64();
        let share = |limit: &paceline::Limit| {
            let spent = self.spent.get(limit.dimension.as_str()).copied().unwrap_or(0.0);
            let windows = elapsed / limit.window.duration().as_secs_f64();
            // A window that the server counts is there whole from its beginning.
            let offered = match limit.origin {
                Origin::Configured if !limit.strict => {
                    limit.burst as f64 + limit.units as f64 * windows
                }
                _ => limit.units as f64 * (windows.floor() + 1.0),
            };
            (limit.to_string(), (spent / offered).min(1.0))
        };
        let shares = status.limits.iter().map(|level| share(&level.limit));
        shares.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The figures, when everything is over.
    pub(super) fn finish(mut self, sender: &Sender, host: Option<&str>, before: u64) -> Summary {
        self.bar.finish_and_clear();
        if let Some((limit, used)) = host.and_then(|host| self.quota(&sender.limiter, host)) {
            self.summary.binding = Some(limit);
            self.summary.quota_used = Some(round(used));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.summary.seconds = round(seconds);
        self.summary.rate = round(self.summary.requests as f64 / seconds.max(1e-9));
        self.summary.rejected = sender.rejected.load(Ordering::Relaxed);
        self.summary.unmetered = sender.limiter.health().unmetered;
        self.summary.failed_before = before;
        self.summary.interrupted = *sender.stop.borrow();
        self.summary
    }
}

impl Summary {
    /// For people.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("requests", self.requests.to_string());
        row("succeeded", self.succeeded.to_string());
        if self.failed > 0 {
            row("failed", self.failed.to_string());
        }
        if self.resumed > 0 {
            row("done before", self.resumed.to_string());
        }
        if self.failed_before > 0 {
            row(
                "failed before",
                format!("{} (--retry-failed sends them again)", self.failed_before),
            );
        }
        if self.bad_lines > 0 {
            row("bad lines", self.bad_lines.to_string());
        }
        row("rejected (429)", self.rejected.to_string());
        if self.unmetered > 0 {
            row("unpaced", format!("{} (the storage could not be reached)", self.unmetered));
        }
        let time = Duration::from_secs_f64(self.seconds);
        row("time", format!("{time:.1?}, {:.1} a second", self.rate));
        if let (Some(limit), Some(used)) = (&self.binding, self.quota_used) {
            row("quota used", format!("{:.1}% of {limit}", used * 100.0));
        }
        table.to_string()
    }
}

fn say(bar: &ProgressBar, text: &str) {
    bar.suspend(|| {
        // Nobody may be left to read it.
        drop(writeln!(stderr(), "paceline: {text}"));
    });
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key(
        "per_sec",
        |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // A line that cannot be drawn is drawn again in a moment.
            let _ = write!(out, "{:.1}/s", state.per_sec());
        },
    )
}
