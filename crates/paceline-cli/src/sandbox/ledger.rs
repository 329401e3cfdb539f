//! What was admitted and refused: every account's counts, and the report on them.

use super::plan::{NamedLimit, Plan, scatter};
use axum::http::StatusCode;
use jiff::Timestamp;
use paceline_core::provider::{Account, Refusal, Standing};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Credentials come from outside, so their number is bounded: beyond it the one idle for longest
/// is forgotten, and starts afresh should it come back.
const MAX_ACCOUNTS: usize = 4_096;
/// Seconds with traffic that the report remembers.
const MAX_SECONDS: usize = 3_600;
/// Decisions that the journal remembers.
const MAX_ENTRIES: usize = 65_536;

/// An admitted request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    /// Its number, from 1.
    pub(super) n: u64,
    /// The status it fails with, if it is one of the share that does.
    pub(super) fault: Option<StatusCode>,
}

/// The answer to one request.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) outcome: Result<Admission, Refusal>,
    pub(super) standings: Vec<Standing>,
    /// When it was taken: one clock counts and tells, or a reset on a whole second would be told a
    /// second late.
    pub(super) at: SystemTime,
}

#[derive(Debug)]
struct Second {
    t: u64,
    admitted: u64,
    refused: u64,
    errors: u64,
    spent: Vec<u64>,
}

/// One decision, as the journal tells it.
#[derive(Debug)]
struct Entry {
    at: SystemTime,
    admitted: bool,
    /// Where each limit stood then, and what a stranger had spent of it.
    standings: Vec<(Standing, u64)>,
}

#[derive(Debug)]
pub(super) struct Ledger {
    plan: Arc<Plan>,
    clock: Instant,
    started: Timestamp,
    accounts: HashMap<u64, (Account, Duration)>,
    /// Spent and capacity, per limit, of accounts that were forgotten.
    forgotten: Vec<(u64, u64)>,
    admitted: u64,
    refused: u64,
    errors: u64,
    first_at: Option<Duration>,
    last_admitted_at: Option<Duration>,
    seconds: VecDeque<Second>,
    journal: VecDeque<Entry>,
}

impl Ledger {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self {
            forgotten: vec![(0, 0); plan.limits.len()],
            plan,
            clock: Instant::now(),
            started: Timestamp::now(),
            accounts: HashMap::new(),
            admitted: 0,
            refused: 0,
            errors: 0,
            first_at: None,
            last_admitted_at: None,
            seconds: VecDeque::new(),
            journal: VecDeque::new(),
        }
    }

    /// Starts the count anew.
    pub(super) fn reset(&mut self) {
        *self = Self::new(Arc::clone(&self.plan));
    }

    /// Admits or refuses a request that spends `costs[i]` of limit `i`.
    pub(super) fn admit(&mut self, credential: u64, costs: &[u64]) -> Decision {
        let now = self.clock.elapsed();
        self.first_at.get_or_insert(now);
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&credential) {
            self.forget_one();
        }
        let plan = &self.plan;
        let fresh = || {
            let account = Account::new(plan.policy, &plan.limits)
                .with_refusals_that_cost(plan.refusals_cost)
                .with_stranger(plan.stranger.per_million);
            (account, now)
        };
        let (account, seen) = self.accounts.entry(credential).or_insert_with(fresh);
        *seen = now;
        // Windows of whole seconds are kept by the wall clock's seconds.
        let epoch = Duration::try_from(self.started.duration_since(Timestamp::UNIX_EPOCH));
        let at = epoch.unwrap_or_default() + now;
        let admitted = account.admit(at, costs);
        let standings: Vec<_> = account.standings(at).collect();
        if self.journal.len() == MAX_ENTRIES {
            self.journal.pop_front();
        }
        self.journal.push_back(Entry {
            at: UNIX_EPOCH + at,
            admitted: admitted.is_ok(),
            standings: standings.iter().copied().zip(account.strangers()).collect(),
        });
        let outcome = admitted.map(|()| {
            self.admitted += 1;
            self.last_admitted_at = Some(now);
            let fault = fault(plan, self.admitted);
            self.errors += u64::from(fault.is_some());
            Admission { n: self.admitted, fault }
        });
        self.refused += u64::from(outcome.is_err());
        self.note(now, outcome.ok(), costs);
        Decision { outcome, standings, at: UNIX_EPOCH + at }
    }

    /// Takes back what a request reserved and its answer did not take.
    pub(super) fn give_back(&mut self, credential: u64, unused: &[u64]) {
        let now = self.clock.elapsed();
        let epoch = Duration::try_from(self.started.duration_since(Timestamp::UNIX_EPOCH));
        if let Some((account, _)) = self.accounts.get_mut(&credential) {
            account.give_back(epoch.unwrap_or_default() + now, unused);
        }
    }

    fn note(&mut self, now: Duration, admission: Option<Admission>, costs: &[u64]) {
        let t = now.as_secs();
        if self.seconds.back().is_none_or(|second| second.t != t) {
            if self.seconds.len() == MAX_SECONDS {
                self.seconds.pop_front();
            }
            let spent = vec![0; costs.len()];
            self.seconds.push_back(Second { t, admitted: 0, refused: 0, errors: 0, spent });
        }
        let Some(second) = self.seconds.back_mut() else {
            return;
        };
        let Some(admission) = admission else {
            second.refused += 1;
            return;
        };
        second.admitted += 1;
        second.errors += u64::from(admission.fault.is_some());
        for (spent, cost) in second.spent.iter_mut().zip(costs) {
            *spent = spent.saturating_add(*cost);
        }
    }

    fn forget_one(&mut self) {
        let oldest = self.accounts.iter().min_by_key(|(_, (_, seen))| *seen).map(|(key, _)| *key);
        if let Some((account, _)) = oldest.and_then(|key| self.accounts.remove(&key)) {
            add(&mut self.forgotten, &account);
        }
    }

    pub(super) fn report(&self) -> Value {
        let mut usage = self.forgotten.clone();
        self.accounts.values().for_each(|(account, _)| add(&mut usage, account));
        let window_s = |limit: &NamedLimit| limit.spec.limit.window().as_secs_f64();
        let limits = self.plan.named.iter().map(|limit| {
            json!({
                "name": limit.name, "dimension": limit.spec.dimension,
                "limit": limit.spec.limit.units(), "window_s": window_s(limit),
            })
        });
        let dimensions = self.by_name(usage.iter().zip(&self.plan.named).map(|(used, limit)| {
            let units = limit.spec.limit.units();
            json!({"limit": units, "window_s": window_s(limit), "spent": used.0})
        }));
        let per_second = self.seconds.iter().map(|second| {
            json!({
                "t": second.t, "admitted": second.admitted, "refused": second.refused,
                "errors": second.errors,
                "spent": self.by_name(second.spent.iter().map(|spent| json!(spent))),
            })
        });
        let share = |&(spent, capacity): &(u64, u64)| spent as f64 / capacity as f64;
        let quota_used =
            usage.iter().filter(|(_, capacity)| *capacity > 0).map(share).reduce(f64::max);
        json!({
            "started": self.started.to_string(),
            "uptime_s": self.clock.elapsed().as_secs_f64(),
            "policy": self.plan.policy.name(),
            "limits": limits.collect::<Vec<_>>(),
            "admitted": self.admitted, "refused": self.refused, "errors": self.errors,
            "dimensions": dimensions,
            "first_at_s": self.first_at.map(|at| at.as_secs_f64()),
            "last_admitted_at_s": self.last_admitted_at.map(|at| at.as_secs_f64()),
            "per_second": per_second.collect::<Vec<_>>(),
            "capacity": self.by_name(usage.iter().map(|(_, capacity)| json!(capacity))),
            "quota_used": quota_used,
        })
    }

    /// The latest decisions, oldest first. `at` is in seconds since the Unix epoch.
    pub(super) fn journal(&self) -> Value {
        let entry = |entry: &Entry| {
            let standing = |(standing, stranger): &(Standing, u64)| {
                json!({
                    "remaining": standing.remaining, "reset_s": standing.reset.as_secs_f64(),
                    "stranger": stranger,
                })
            };
            let at = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
            json!({
                "at": at.as_secs_f64(), "admitted": entry.admitted,
                "standings": self.by_name(entry.standings.iter().map(standing)),
            })
        };
        self.journal.iter().map(entry).collect()
    }

    fn by_name(&self, values: impl Iterator<Item = Value>) -> Map<String, Value> {
        self.plan.named.iter().map(|limit| limit.name.clone()).zip(values).collect()
    }
}

fn add(usage: &mut [(u64, u64)], account: &Account) {
    for (total, (spent, capacity)) in usage.iter_mut().zip(account.usage()) {
        total.0 = total.0.saturating_add(spent);
        total.1 = total.1.saturating_add(capacity);
    }
}

/// The same seed fails the same admissions.
fn fault(plan: &Plan, n: u64) -> Option<StatusCode> {
    let drawn = scatter(plan.seed, n);
    let status = match drawn >> 63 {
        0 => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (drawn % 1_000_000 < u64::from(plan.error_rate.per_million)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn ledger(config: &Config) -> Ledger {
        Ledger::new(Arc::new(Plan::new(config).expect("a valid plan")))
    }

    #[test]
    fn accounts_and_seconds_are_bounded_and_what_was_spent_is_not_forgotten() {
        let limits = vec!["5/1h".parse().expect("a limit")];
        let mut ledger = ledger(&Config { limits, ..Config::default() });
        let accounts = MAX_ACCOUNTS as u64 + 10;
        (0..accounts).for_each(|credential| drop(ledger.admit(credential, &[2])));
        assert_eq!(ledger.accounts.len(), MAX_ACCOUNTS);
        let report = ledger.report();
        assert_eq!(report["dimensions"]["requests"]["spent"], 2 * accounts);
        assert_eq!(report["capacity"]["requests"], 5 * accounts);
        assert_eq!(report["quota_used"], 0.4);
        (0..2 * MAX_SECONDS as u64).for_each(|t| ledger.note(Duration::from_secs(t), None, &[1]));
        assert_eq!(ledger.seconds.len(), MAX_SECONDS);
    }

    #[test]
    fn the_seed_decides_which_admissions_fail_and_the_rate_how_many() {
        let faults = |seed| {
            let error_rate = "10%".parse().expect("a rate");
            let mut ledger = ledger(&Config { error_rate, seed, ..Config::default() });
            let outcomes = (0..2_000).map(|_| ledger.admit(0, &[]).outcome);
            outcomes.map(|outcome| outcome.expect("unlimited").fault).collect::<Vec<_>>()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
        let failed: Vec<_> = faults(7).into_iter().flatten().collect();
        assert!((150..250).contains(&failed.len()), "{} of 2000", failed.len());
        assert!(failed.contains(&StatusCode::INTERNAL_SERVER_ERROR));
        assert!(failed.contains(&StatusCode::SERVICE_UNAVAILABLE));
    }
}
