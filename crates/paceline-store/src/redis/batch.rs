//! What is sent to the script, and what comes back.

use super::PREFIX;
use crate::template::Templates;
use paceline_core::record::{Amounts, LaneRecord, Record, SignalRecord, amounts};
use paceline_core::state::Receipt;
use paceline_core::{Cost, Limit, Reading, Scope, ScopeState, Tick};
use redis::Value;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Operations on the scopes of one host, done in one step.
#[derive(Debug)]
pub(super) struct Batch {
    host: String,
    keys: Vec<String>,
    /// What rides along, done first: others go when it is over.
    ended: Vec<Operation>,
    operations: Vec<Operation>,
}

/// The name of an operation of the script, and its arguments. Scopes go by their numbers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Operation {
    Charge(&'static str, Vec<usize>, Amounts),
    Lease(&'static str, Vec<usize>, Amounts, u64, u64),
    End(&'static str, usize, Amounts, u64),
    Settle(&'static str, usize, Amounts, u64, Amounts),
    Observe(&'static str, usize, Amounts, u64, Amounts, bool, u64, Vec<SignalRecord>),
    Limit(&'static str, usize, LaneRecord),
}

/// The answer to one operation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    /// Done or not; not, too, where others wait before it. Nobody asks which.
    Done(#[allow(dead_code)] bool),
    /// The number of the scope, the instant, and the tally before.
    Granted(usize, u64, Amounts),
    /// The same, and how many requests were granted at once.
    Leased(usize, u64, Amounts, u64),
    /// The number of the scope, nanoseconds, and what for.
    Wait(usize, u64, i64),
}

/// What a batch did; nothing, if it could not be read.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// When, by the server's clock.
    pub(super) at: u64,
    pub(super) now: Tick,
    pub(super) answers: Vec<Answer>,
    pub(super) keys: Vec<String>,
    /// The states of its scopes, as they are now.
    pub(super) states: Vec<(String, ScopeState)>,
}

impl Reply {
    pub(super) fn state(&self, key: &str) -> Option<&ScopeState> {
        self.states.iter().find(|(known, _)| known == key).map(|(_, state)| state)
    }
}

/// The arguments of the script.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) keys: Vec<String>,
    pub(super) packed: Vec<u8>,
}

/// What is wrong with an answer of the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum Garbled {
    #[error("a batch cannot be sent: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("the server's answer cannot be read: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    #[error("the server's answer cannot be read")]
    Shape,
}

/// The key in Redis of a scope.
pub(super) fn name(key: &str) -> String {
    format!("{PREFIX}{}", tagged(key))
}

/// The scope of a key in Redis.
pub(super) fn key(name: &str) -> Option<String> {
    untagged(name.strip_prefix(PREFIX)?)
}

/// A key with its host in braces, by which a cluster chooses the slot.
pub(super) fn tagged(key: &str) -> String {
    let host = Scope::from_key(key).host().len();
    format!("{{{}}}{}", &key[..host], &key[host..])
}

/// The key that was tagged so. It may have braces of its own, but a host ends where its path begins.
pub(super) fn untagged(tagged: &str) -> Option<String> {
    let rest = tagged.strip_prefix('{')?;
    match rest.find("}/") {
        Some(end) => Some(format!("{}{}", &rest[..end], &rest[end + 1..])),
        None => rest.strip_suffix('}').map(str::to_owned),
    }
}

impl Batch {
    pub(super) fn new(host: &str) -> Self {
        let (keys, ended, operations) = (Vec::new(), Vec::new(), Vec::new());
        Self { host: host.to_owned(), keys, ended, operations }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether a lease is asked for that covers `scope`.
    pub(super) fn leases(&mut self, scope: &Scope<'_>) -> bool {
        let candidates = self.look(scope);
        let same =
            |it: &Operation| matches!(it, Operation::Lease(_, known, ..) if *known == candidates);
        self.operations.iter().any(same)
    }

    /// The number of a scope, counted from 1.
    fn number(&mut self, key: &str) -> usize {
        let at = self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.to_owned());
            self.keys.len() - 1
        });
        at + 1
    }

    /// Has the states of every scope that may govern `scope` sent back.
    pub(super) fn look(&mut self, scope: &Scope<'_>) -> Vec<usize> {
        scope.candidates().map(|key| self.number(key)).collect()
    }

    pub(super) fn admit(&mut self, scope: &Scope<'_>, cost: &Cost) {
        let candidates = self.look(scope);
        self.operations.push(Operation::Charge("admit", candidates, amounts(cost)));
    }

    /// Admits many requests at once, to be used within a span.
    pub(super) fn lease(&mut self, scope: &Scope<'_>, many: u64, span: Duration) {
        let candidates = self.look(scope);
        let span = paceline_core::time::nanos(span);
        let one = amounts(&Cost::ONE);
        self.operations.push(Operation::Lease("lease", candidates, one, many, span));
    }

    pub(super) fn charge(&mut self, scope: &Scope<'_>, cost: &Cost) {
        let candidates = self.look(scope);
        self.operations.push(Operation::Charge("charge", candidates, amounts(cost)));
    }

    pub(super) fn spend(&mut self, scope: &Scope<'_>, cost: &Cost) {
        let candidates = self.look(scope);
        self.operations.push(Operation::Charge("spend", candidates, amounts(cost)));
    }

    /// A request is over, or was never sent.
    pub(super) fn end(&mut self, key: &str, receipt: &Receipt, at: u64, sent: bool) {
        let number = self.number(key);
        let operation = if sent { "close" } else { "give_back" };
        self.ended.push(Operation::End(operation, number, amounts(&receipt.cost), at));
    }

    pub(super) fn settle(&mut self, key: &str, receipt: &Receipt, at: u64, actual: &Cost) {
        let number = self.number(key);
        let (cost, actual) = (amounts(&receipt.cost), amounts(actual));
        self.operations.push(Operation::Settle("settle", number, cost, at, actual));
    }

    pub(super) fn observe(&mut self, key: &str, receipt: &Receipt, at: u64, reading: &Reading) {
        let number = self.number(key);
        let (cost, before) = (amounts(&receipt.cost), amounts(&receipt.before));
        let nanos = reading.retry_after.map_or(0, paceline_core::time::nanos);
        let signals = reading.signals.iter().map(SignalRecord::of).collect();
        self.operations.push(Operation::Observe(
            "observe",
            number,
            cost,
            at,
            before,
            reading.rejected,
            nanos,
            signals,
        ));
    }

    pub(super) fn limit(&mut self, key: &str, limit: Limit) {
        let number = self.number(key);
        let state = ScopeState::with_limits(&[limit]);
        let lanes = Record::of(&state, Tick::ZERO, 0).into_lanes();
        let operation = |lane| Operation::Limit("limit", number, lane);
        self.operations.extend(lanes.into_iter().map(operation));
    }

    /// What is sent. `instant` is 0 for the server's own; `lost` gives what was seen of a scope before the
    /// server may have lost it.
    pub(super) fn encode(
        &self,
        instant: u64,
        templates: &Templates,
        lost: impl Fn(&str) -> Option<Record>,
    ) -> Result<Arguments, Garbled> {
        let lanes = |state: &ScopeState| Record::of(state, Tick::ZERO, 0).into_lanes();
        let (mut fresh, unknown) = (Vec::new(), templates.policy.fresh());
        for (i, key) in self.keys.iter().enumerate() {
            if let Some(record) = lost(key) {
                fresh.push((i + 1, true, Vec::new(), Some(record)));
            } else if let Some(declared) = templates.declared(key) {
                fresh.push((i + 1, true, lanes(&declared), None));
            } else if unknown.has_limits() {
                fresh.push((i + 1, false, lanes(&unknown), None));
            }
        }
        let operations: Vec<_> = self.ended.iter().chain(&self.operations).collect();
        let max_hold = paceline_core::time::nanos(templates.policy.max_hold);
        let learn_first = templates.policy.learn_first;
        let packed = rmp_serde::to_vec(&(instant, max_hold, learn_first, fresh, operations))?;
        Ok(Arguments { keys: self.keys.iter().map(|key| name(key)).collect(), packed })
    }

    /// What came back.
    pub(super) fn decode(
        &self,
        value: Value,
        tick: impl Fn(u64) -> Tick,
    ) -> Result<Reply, Garbled> {
        let Value::Array(parts) = value else { return Err(Garbled::Shape) };
        let [Value::Int(at), Value::BulkString(answers), states @ ..] = parts.as_slice() else {
            return Err(Garbled::Shape);
        };
        let at = u64::try_from(*at).map_err(|_| Garbled::Shape)?;
        let now = tick(at);
        let mut answers: Vec<Answer> = rmp_serde::from_slice(answers)?;
        if answers.len() != self.ended.len() + self.operations.len() {
            return Err(Garbled::Shape);
        }
        answers.drain(..self.ended.len());
        let mut reply = Reply { at, now, answers, keys: self.keys.clone(), states: Vec::new() };
        for pair in states.chunks(2) {
            let [Value::Int(number), Value::BulkString(bytes)] = pair else {
                return Err(Garbled::Shape);
            };
            let key = usize::try_from(*number)
                .ok()
                .and_then(|number| self.keys.get(number.checked_sub(1)?));
            let key = key.ok_or(Garbled::Shape)?.clone();
            // What makes no sense is not seen here either; the script has begun it anew or will.
            let record = rmp_serde::from_slice::<Record>(bytes).ok();
            let elapsed = |record: &Record| Duration::from_micros(at.saturating_sub(record.at));
            let state = record.and_then(|record| record.state(now, elapsed(&record)).ok());
            reply.states.extend(state.map(|state| (key, state)));
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_key_is_found_again_whatever_is_in_it() {
        for key in [
            "api.example.com",
            "http://localhost:8080/v1/{id}",
            "alice@api.github.com/#search",
            "https://api.example.com/a}/{b",
            "openai:gpt-4o",
            "openrouter:meta-llama/llama-3",
            "a}b",
            "}",
            "",
        ] {
            assert_eq!(untagged(&tagged(key)).as_deref(), Some(key));
        }
    }
}
