//! `--dry-run`: when the batch would be done, and which limit decides that, without sending.

use super::input::Request;
use paceline::{Cause, Limit, Scope};
use paceline_core::{ScopeState, Tick};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The engine itself, run ahead of time: one state per scope, each request sent as early as the
/// limits allow.
#[derive(Debug, Default)]
pub(super) struct Plan {
    scopes: BTreeMap<String, Scheduled>,
    bad_lines: u64,
}

#[derive(Debug)]
struct Scheduled {
    state: ScopeState,
    requests: u64,
    /// When the last one goes.
    at: Tick,
    /// Time spent waiting for each limit.
    waits: BTreeMap<String, Duration>,
}

/// The forecast for one scope.
#[derive(Debug, Serialize)]
pub(super) struct Forecast {
    scope: String,
    requests: u64,
    /// Seconds until the last request may be sent; answers take their own time.
    seconds: f64,
    /// The limit that decides it; absent when no limit is declared.
    binding: Option<String>,
    limits: Vec<String>,
}

impl Plan {
    pub(super) fn bad_line(&mut self) {
        self.bad_lines += 1;
    }

    pub(super) fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    /// Adds a request. `limits` tells those that are declared for a scope's key.
    pub(super) fn add(&mut self, request: &Request, limits: impl Fn(&str) -> Vec<Limit>) {
        let Ok(scope) = Scope::parse(request.url.as_str()) else { return };
        let governing = scope.candidates().find(|key| !limits(key).is_empty());
        let key = governing.unwrap_or_else(|| scope.host()).to_owned();
        let scheduled = self.scopes.entry(key.clone()).or_insert_with(|| Scheduled {
            state: ScopeState::with_limits(&limits(&key)),
            requests: 0,
            at: Tick::ZERO,
            waits: BTreeMap::new(),
        });
        scheduled.requests += 1;
        if let Some(wait) = scheduled.state.wait(&request.cost, scheduled.at) {
            scheduled.at = scheduled.at.after(wait.after);
            if let Cause::Limit(limit) = wait.by {
                *scheduled.waits.entry(limit.to_string()).or_default() += wait.after;
            }
        }
        scheduled.state.spend(&request.cost, scheduled.at);
    }

    pub(super) fn forecasts(&self) -> Vec<Forecast> {
        let forecast = |(key, scheduled): (&String, &Scheduled)| {
            let limits: Vec<_> = scheduled
                .state
                .status(Tick::ZERO)
                .limits
                .iter()
                .map(|level| level.limit.to_string())
                .collect();
            let longest = scheduled.waits.iter().max_by_key(|(_, waited)| **waited);
            Forecast {
                scope: Scope::from_key(key).to_string(),
                requests: scheduled.requests,
                seconds: scheduled.at.since(Tick::ZERO).as_secs_f64(),
                // Without a wait the first limit is the one that would bind next.
                binding: longest
                    .map(|(limit, _)| limit.clone())
                    .or_else(|| limits.first().cloned()),
                limits,
            }
        };
        self.scopes.iter().map(forecast).collect()
    }
}

impl Forecast {
    /// For people.
    pub(super) fn sentence(&self) -> String {
        let Self { scope, requests, .. } = self;
        let Some(binding) = &self.binding else {
            return format!(
                "{scope}: {requests} requests; no limit is declared, so the finish depends on what \
                 its server says"
            );
        };
        let time = Duration::from_secs_f64(self.seconds);
        format!("{scope}: {requests} requests; the last one goes after {time:.1?}; {binding} binds")
    }
}
