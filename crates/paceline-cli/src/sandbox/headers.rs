//! What the families of rate-limit headers say, written the way their servers write them.

use super::Config;
use super::plan::NamedLimit;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use paceline_core::provider::Standing;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A family of rate-limit headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// x-ratelimit-{limit,remaining,used,resource}, reset as an epoch; one limit only
    Github,
    /// x-ratelimit-{limit,remaining,reset}-DIMENSION, reset as a Go duration until full
    Openai,
    /// anthropic-ratelimit-DIMENSION-{limit,remaining,reset}, reset in RFC 3339, until full
    Anthropic,
    /// RateLimit-Policy and RateLimit as structured fields; every limit
    Ietf,
    /// X-RateLimit-{Limit,Remaining,Reset}, reset in whole seconds from now; one limit only
    Legacy,
    /// no rate-limit headers
    None,
}

/// How a time is told in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Rounding {
    /// never too short
    Up,
    /// up to a second too short
    Down,
}

impl Rounding {
    fn whole_seconds(self, time: Duration) -> u64 {
        time.as_secs() + u64::from(self == Self::Up && time.subsec_nanos() > 0)
    }

    fn epoch_seconds(self, wall: SystemTime, ahead: Duration) -> u64 {
        let epoch = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.whole_seconds(epoch.saturating_add(ahead))
    }

    fn rfc3339(self, wall: SystemTime, ahead: Duration) -> String {
        let second = i64::try_from(self.epoch_seconds(wall, ahead)).unwrap_or(i64::MAX);
        Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string()
    }
}

/// The headers of one limit, as far as they never change.
#[derive(Debug)]
struct Shown {
    index: usize,
    units: u64,
    limit: (HeaderName, HeaderValue),
    remaining: HeaderName,
    reset: HeaderName,
}

/// Writes one family's headers for one set of limits.
#[derive(Debug)]
pub(super) struct HeaderWriter {
    family: Family,
    rounding: Rounding,
    /// How much later than they come resets are told.
    late: Duration,
    retry_after: Option<Rounding>,
    shown: Vec<Shown>,
    /// The names of the limits, and the constant `RateLimit-Policy`; for [`Family::Ietf`].
    ietf: Option<(Vec<String>, HeaderValue)>,
}

impl HeaderWriter {
    /// Families that state one limit per dimension state the first one given; those that state one
    /// limit at all prefer the first on requests.
    pub(super) fn new(config: &Config, limits: &[NamedLimit]) -> Self {
        let family = config.headers;
        let first = |limit: &&NamedLimit| limit.name == limit.spec.dimension;
        let single = limits
            .iter()
            .find(|limit| limit.spec.dimension == "requests")
            .or_else(|| limits.first())
            .into_iter();
        let shown: Vec<&NamedLimit> = match family {
            Family::Github | Family::Legacy => single.collect(),
            Family::Openai | Family::Anthropic => limits.iter().filter(first).collect(),
            Family::Ietf | Family::None => Vec::new(),
        };
        let shown = shown.into_iter().filter_map(|limit| Shown::new(family, limit)).collect();
        let ietf = (family == Family::Ietf && !limits.is_empty()).then(|| ietf_policy(limits));
        Self {
            family,
            rounding: config.reset_rounding,
            late: config.reset_late,
            retry_after: config.retry_after,
            shown,
            ietf,
        }
    }

    /// Adds the headers. `standings` were taken at `wall`.
    pub(super) fn write(&self, out: &mut HeaderMap, standings: &[Standing], wall: SystemTime) {
        for shown in &self.shown {
            let Standing { remaining, reset } = standings[shown.index];
            let reset = reset.saturating_add(self.late);
            out.insert(&shown.limit.0, shown.limit.1.clone());
            out.insert(&shown.remaining, remaining.into());
            let reset = match self.family {
                Family::Github => self.rounding.epoch_seconds(wall, reset).into(),
                Family::Openai => text(&go_duration(reset)),
                Family::Anthropic => text(&self.rounding.rfc3339(wall, reset)),
                _ => self.rounding.whole_seconds(reset).into(),
            };
            out.insert(&shown.reset, reset);
            if self.family == Family::Github {
                let used = shown.units.saturating_sub(remaining);
                out.insert(HeaderName::from_static("x-ratelimit-used"), used.into());
                let resource = HeaderName::from_static("x-ratelimit-resource");
                out.insert(resource, HeaderValue::from_static("core"));
            }
        }
        if let Some((names, policy)) = &self.ietf {
            out.insert(HeaderName::from_static("ratelimit-policy"), policy.clone());
            let mut list = String::with_capacity(32 * names.len());
            for (name, standing) in names.iter().zip(standings) {
                let separator = if list.is_empty() { "" } else { ", " };
                let reset = standing.reset.saturating_add(self.late);
                let (r, t) = (standing.remaining, self.rounding.whole_seconds(reset));
                let _ = write!(list, "{separator}\"{name}\";r={r};t={t}");
            }
            out.insert(HeaderName::from_static("ratelimit"), text(&list));
        }
    }

    /// Adds `Retry-After`, in whole seconds, and its exact twin where OpenAI sends one; nothing
    /// where none is asked for.
    pub(super) fn write_retry_after(&self, out: &mut HeaderMap, wait: Duration) {
        let Some(rounding) = self.retry_after else { return };
        out.insert(axum::http::header::RETRY_AFTER, rounding.whole_seconds(wait).into());
        if self.family == Family::Openai {
            let millis = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            out.insert(HeaderName::from_static("retry-after-ms"), millis.into());
        }
    }
}

impl Shown {
    /// `None` only if a dimension made no header name, which its grammar rules out.
    fn new(family: Family, limit: &NamedLimit) -> Option<Self> {
        let dimension = limit.spec.dimension.replace('_', "-");
        let name = |field: &str| {
            let name = match family {
                Family::Openai => format!("x-ratelimit-{field}-{dimension}"),
                Family::Anthropic => format!("anthropic-ratelimit-{dimension}-{field}"),
                _ => format!("x-ratelimit-{field}"),
            };
            HeaderName::try_from(name).ok()
        };
        let units = limit.spec.limit.units();
        Some(Self {
            index: limit.index,
            units,
            limit: (name("limit")?, units.into()),
            remaining: name("remaining")?,
            reset: name("reset")?,
        })
    }
}

/// A lone limit is called `default`. `w` is in whole seconds, so shorter windows leave it out.
fn ietf_policy(limits: &[NamedLimit]) -> (Vec<String>, HeaderValue) {
    let names: Vec<String> = match limits {
        [_] => vec!["default".to_owned()],
        _ => limits.iter().map(|limit| limit.name.clone()).collect(),
    };
    let policy = |(name, limit): (&String, &NamedLimit)| {
        let (units, window) = (limit.spec.limit.units(), limit.spec.limit.window());
        match window.subsec_nanos() {
            0 => format!("\"{name}\";q={units};w={}", window.as_secs()),
            _ => format!("\"{name}\";q={units}"),
        }
    };
    let policies: Vec<String> = names.iter().zip(limits).map(policy).collect();
    (names, text(&policies.join(", ")))
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// `12ms`, `1.234s`, `6m0s`, `1h0m0s`; rounded up to a millisecond.
fn go_duration(time: Duration) -> String {
    let millis = time.as_nanos().div_ceil(1_000_000);
    if millis > 0 && millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut out = match (minutes / 60, minutes % 60) {
        (0, 0) => String::new(),
        (0, minutes) => format!("{minutes}m"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    };
    let _ = write!(out, "{}", rest / 1_000);
    if !rest.is_multiple_of(1_000) {
        let fraction = format!(".{:03}", rest % 1_000);
        out.push_str(fraction.trim_end_matches('0'));
    }
    out.push('s');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_written_as_go_writes_them() {
        for (millis, written) in [
            (0, "0s"),
            (12, "12ms"),
            (1_000, "1s"),
            (1_234, "1.234s"),
            (8_640, "8.64s"),
            (179_560, "2m59.56s"),
            (360_000, "6m0s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), written);
        }
        assert_eq!(go_duration(Duration::from_nanos(1)), "1ms", "never too short");
    }

    #[test]
    fn absolute_resets_are_rounded_to_the_second() {
        let wall = UNIX_EPOCH + Duration::from_millis(1_700_000_000_400);
        for (rounding, ahead, second) in [
            (Rounding::Up, 600, 1_700_000_001),
            (Rounding::Up, 601, 1_700_000_002),
            (Rounding::Down, 600, 1_700_000_001),
            (Rounding::Down, 599, 1_700_000_000),
        ] {
            assert_eq!(rounding.epoch_seconds(wall, Duration::from_millis(ahead)), second);
        }
        let soon = Duration::from_millis(100);
        assert_eq!(Rounding::Up.rfc3339(wall, soon), "2023-11-14T22:13:21Z");
        assert_eq!(Rounding::Down.rfc3339(wall, soon), "2023-11-14T22:13:20Z");
    }
}
