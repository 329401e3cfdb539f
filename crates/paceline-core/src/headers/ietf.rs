//! The IETF drafts (`draft-ietf-httpapi-ratelimit-headers`): `RateLimit` and `RateLimit-Policy`, as
//! lists of named items (since -08) or as one dictionary (-07). The three separate fields of the
//! older drafts are read with all others of their kind ([`super::named`]); what they know of
//! policies is here.

use super::list::{self, Member};
use super::name::{ends, label};
use super::subject::metered;
use super::value::{self, Unit};
use super::{Headers, Reading, Signal};
use crate::{Dimension, Window};
use std::time::Duration;

/// More policies than any server has at once.
const MOST: usize = 16;

pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    reading.bucket = partition(headers);
    let signals = &mut reading.signals;
    let Some(stated) = headers.list("ratelimit") else {
        return policies_alone(headers, signals);
    };
    let mut policies = stated_policies(headers);
    let mut items: Vec<_> = list::members(&stated)
        .iter()
        .filter_map(|member| item(member, headers.now))
        .take(MOST)
        .collect();
    if items.is_empty() {
        items.extend(draft_07(&stated, headers.now));
    }
    // One of each belongs together, whatever it is called: names in the wild do not always match.
    let alone = items.len() == 1 && policies.len() == 1;
    for mut signal in items {
        let same = |policy: &Policy| {
            alone
                || policy.name == signal.name
                    && (policy.name.is_some() || policy.quota == signal.limit)
        };
        if let Some(at) = policies.iter().position(same) {
            let policy = policies.swap_remove(at);
            signal.limit = signal.limit.or(policy.quota);
            signal.window = policy.window;
            signal.dimension = policy.dimension;
        }
        signals.push(signal);
    }
    signals.extend(policies.into_iter().filter_map(Policy::alone));
}

/// A policy with a name of its own says what holds, also without a word on what is left.
fn policies_alone(headers: &Headers<'_>, signals: &mut Vec<Signal>) {
    let fields = ["-limit", "-remaining", "-reset"];
    if !headers.any(|name| fields.iter().any(|field| ends(name, field))) {
        signals.extend(stated_policies(headers).into_iter().filter_map(Policy::alone));
    }
}

/// One member of `RateLimit-Policy`, or of an older `RateLimit-Limit`.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: Option<Box<str>>,
    pub(super) quota: Option<u64>,
    pub(super) window: Option<Window>,
    dimension: Dimension,
}

impl Policy {
    /// `"default";q=100;w=60`, or in older drafts `100;w=60`, `100;window=60;name="per-ip"`.
    pub(super) fn of(member: &Member) -> Option<Self> {
        let item = member.item.as_deref()?;
        let number = value::count(item);
        let window = member.get("w").or_else(|| member.get("window"));
        let unit = member.get("qu").filter(|unit| *unit != "requests");
        let named = if number.is_some() { member.get("name") } else { Some(item) };
        let policy = Self {
            name: named.and_then(label),
            quota: member.get("q").and_then(value::count).or(number).filter(|quota| *quota > 0),
            window: window.and_then(|text| value::window(text, Unit::Told)),
            dimension: unit.map_or_else(Dimension::default, dimension),
        };
        (policy.quota.is_some() || policy.window.is_some()).then_some(policy)
    }

    /// What it says where nothing is said of what is left: nothing, unless it is complete.
    pub(super) fn alone(self) -> Option<Signal> {
        let (limit, window) = (Some(self.quota?), Some(self.window?));
        Some(Signal {
            dimension: self.dimension,
            name: self.name,
            limit,
            window,
            ..Signal::default()
        })
    }
}

/// What `qu` counts in, be it known or not: it is not requests.
fn dimension(unit: &str) -> Dimension {
    metered(unit).or_else(|| Dimension::new(unit).ok()).unwrap_or_default()
}

/// What `RateLimit-Policy` says.
pub(super) fn stated_policies(headers: &Headers<'_>) -> Vec<Policy> {
    let stated = headers.list("ratelimit-policy");
    let members = stated.map(|text| list::members(&text)).unwrap_or_default();
    members.iter().filter_map(Policy::of).take(MOST).collect()
}

/// `"default";r=50;t=30`. What the drafts call malformed is dropped, with its siblings kept.
fn item(member: &Member, now: Duration) -> Option<Signal> {
    let remaining = member.get("r").map(value::count);
    let reset = member.get("t").and_then(|text| value::until(text, now, Unit::Told));
    let said = remaining != Some(None) && (remaining.is_some() || reset.is_some());
    said.then(|| Signal {
        name: member.item.as_deref().and_then(label),
        remaining: remaining.flatten(),
        reset,
        ..Signal::default()
    })
}

/// `limit=100, remaining=50, reset=30`.
fn draft_07(text: &str, now: Duration) -> Option<Signal> {
    let said = list::dictionary(text);
    let signal = Signal {
        limit: said.get("limit").and_then(value::count).filter(|limit| *limit > 0),
        remaining: said.get("remaining").and_then(value::count),
        reset: said.get("reset").and_then(|text| value::until(text, now, Unit::Told)),
        ..Signal::default()
    };
    (signal.limit.is_some() || signal.remaining.is_some()).then_some(signal)
}

/// The partition of the quota that counted the call, as the server wrote it: `pk=dXNlcjE=`. Its
/// bytes mean nothing to others.
fn partition(headers: &Headers<'_>) -> Option<Box<str>> {
    let names = ["ratelimit", "ratelimit-policy"];
    let parts = |text: &str| {
        let (_, rest) = text.split_once("pk=:")?;
        let (key, _) = rest.split_once(':')?;
        label(&format!("pk={key}"))
    };
    names.iter().find_map(|name| parts(headers.get(name)?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};

    #[test]
    fn rule_8_items_and_policies_are_joined_by_name() {
        let headers = [
            ("RateLimit-Policy", "\"burst\";q=10;w=1, \"daily\";q=1000;w=86400"),
            ("RateLimit", "\"daily\";r=7;t=3000, \"burst\";r=9;t=1"),
        ];
        assert_eq!(
            said(&read(200, &headers)),
            ["requests daily 1000 7 3000s 1d", "requests burst 10 9 1s 1s"]
        );
    }

    #[test]
    fn rule_8_older_drafts_name_all_policies_beside_the_live_one() {
        let headers = [
            ("RateLimit-Limit", "100, 100;w=60, 5000;w=3600"),
            ("RateLimit-Remaining", "42"),
            ("RateLimit-Reset", "17"),
        ];
        let all = ["requests - 100 42 17s 1m", "requests - 5000 - - 1h"];
        assert_eq!(said(&read(200, &headers)), all);
        let headers =
            [("RateLimit", "limit=100, remaining=50, reset=30"), ("RateLimit-Policy", "100;w=60")];
        assert_eq!(said(&read(200, &headers)), ["requests - 100 50 30s 1m"]);
    }

    #[test]
    fn rule_4_a_quota_in_other_units_is_another_dimension() {
        let headers = [
            ("RateLimit-Policy", "\"p\";q=65535;qu=\"content-bytes\";w=10;pk=:sdfjLJUOUH==:"),
            ("RateLimit", "\"p\";r=300;t=7;pk=:sdfjLJUOUH==:"),
        ];
        let reading = read(200, &headers);
        assert_eq!(said(&reading), ["bytes p 65535 300 7s 10s"]);
        assert_eq!(reading.bucket.as_deref(), Some("pk=sdfjLJUOUH=="));
    }
}
