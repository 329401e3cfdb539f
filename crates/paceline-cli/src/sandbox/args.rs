//! The command line of the sandbox, and the small grammars of its values.

use super::headers::{Family, Rounding};
use crate::times;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use paceline_core::provider::{Limit, Policy};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Serve a local API that really enforces rate limits
///
/// Speaks enough of OpenAI (/v1/chat/completions, /v1/responses, /v1/embeddings, /v1/models) and
/// Anthropic (/v1/messages) for their SDKs; any other path answers 200 with a small JSON object.
/// Each value of Authorization or x-api-key is an account of its own. GET /_sandbox reports what
/// was admitted and refused, GET /_sandbox/journal lists the latest decisions one by one, DELETE
/// /_sandbox starts the count anew; none of them counts as a request.
#[derive(Debug, Clone, clap::Args)]
pub struct SandboxArgs {
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 8429)]
    pub port: u16,

    /// Address or host name to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,

    /// A limit, such as 60/1m, 5/s or tokens=90000/1m; repeatable, all apply [default: unlimited]
    ///
    /// The dimension is `requests` unless named. LLM endpoints spend `tokens`, `input_tokens` and
    /// `output_tokens`: a character estimate of the prompt, and max_tokens (16 if absent). The
    /// request header `x-sandbox-cost: tokens=500,credits=3` states any cost on any path. A
    /// request that costs more than a whole limit is never admitted.
    #[arg(long = "limit", value_name = "[DIMENSION=]N/WINDOW")]
    pub limits: Vec<LimitSpec>,

    /// How requests are counted [default: bucket for openai and anthropic headers, else fixed]
    #[arg(long, value_parser = policies())]
    pub policy: Option<Policy>,

    /// Which rate-limit headers every counted response carries
    #[arg(long, value_enum, default_value_t = Family::Legacy)]
    pub headers: Family,

    /// Tell resets in whole seconds rounded so
    #[arg(long, value_enum, default_value_t = Rounding::Up)]
    pub reset_rounding: Rounding,

    /// Tell resets so much later than they come, such as 1s
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = times::parse)]
    pub reset_late: Duration,

    /// Add Retry-After to a 429 (and retry-after-ms with openai headers), rounded so
    #[arg(
        long, value_enum, value_name = "ROUNDING",
        num_args = 0..=1, require_equals = true, default_missing_value = "up"
    )]
    pub retry_after: Option<Rounding>,

    /// Add Retry-After to every other counted response as well: the time until the latest reset
    #[arg(long, requires = "retry_after")]
    pub retry_after_always: bool,

    /// Count what is refused as if it had been admitted
    #[arg(long)]
    pub refusals_cost: bool,

    /// Share of each limit that a stranger with the same key spends, unit by unit, such as 50%
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub stranger: Share,

    /// Let each answer of a model take so many tokens, at most what its request allows [default: a few]
    #[arg(long, value_name = "N")]
    pub answer_tokens: Option<u64>,

    /// Take back, once a model has answered, what its request reserved and the answer did not take
    #[arg(long)]
    pub settle: bool,

    /// Delay each admitted response, such as 50ms
    #[arg(long, default_value = "0ms", value_parser = times::parse)]
    pub latency: Duration,

    /// Delay each request before it is counted, and its response, by up to so much each
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = times::parse)]
    pub jitter: Duration,

    /// Share of admitted requests that fail with 500 or 503, such as 1%
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub error_rate: Share,

    /// Decides which requests fail, how much jitter delays each, and what the models say
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Announce the address as JSON: {"url":"http://127.0.0.1:8429"}
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn policies() -> impl TypedValueParser<Value = Policy> {
    let help = |policy| match policy {
        Policy::Fixed => {
            "windows that open in the second of a request; the count is zero after them"
        }
        Policy::FixedFirst => "windows that open exactly with a request",
        Policy::FixedClock => "windows that open by the clock, at the multiples of their length",
        Policy::Sliding => "never more than the limit in any span of one window",
        Policy::Bucket => "a full limit at once, then a continuous refill",
        Policy::Gcra => "evenly spaced, no burst",
    };
    let values = Policy::ALL.map(|policy| PossibleValue::new(policy.name()).help(help(policy)));
    PossibleValuesParser::new(values).map(|name| {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).unwrap_or(Policy::Fixed)
    })
}

/// A limit and the dimension it governs, read from `[dimension=]N/window`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSpec {
    /// What is counted: `requests`, `tokens`, any name of `a-z`, `0-9` and `_`.
    pub dimension: String,
    /// How many per window.
    pub limit: Limit,
}

impl LimitSpec {
    /// The window as it would be written, in the largest unit that divides it.
    pub(super) fn window_text(&self) -> String {
        let nanos = self.limit.window().as_nanos();
        let fits = |unit: &&(&str, Duration)| nanos.is_multiple_of(unit.1.as_nanos());
        UNITS.iter().find(fits).map_or_else(
            || format!("{nanos}ns"),
            |(name, unit)| format!("{}{name}", nanos / unit.as_nanos()),
        )
    }
}

impl FromStr for LimitSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (dimension, rate) = text.split_once('=').unwrap_or(("requests", text));
        let named = dimension.starts_with(|c: char| c.is_ascii_lowercase())
            && dimension.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !named {
            return Err(format!(
                "`{dimension}` is not a dimension; expected a name such as requests or tokens"
            ));
        }
        let (count, window) = rate.split_once('/').ok_or_else(|| {
            format!("`{rate}` has no window; expected N/window, such as 60/1m or tokens=90000/1m")
        })?;
        let units = count.parse().ok().filter(|units| *units > 0).ok_or_else(|| {
            format!("`{count}` is not a count; expected a whole number of at least 1")
        })?;
        let limit = Limit::new(units, parse_window(window)?)
            .ok_or_else(|| format!("`{rate}` is too large; expected at most 2^53 per 366d"))?;
        Ok(Self { dimension: dimension.to_owned(), limit })
    }
}

const UNITS: [(&str, Duration); 5] = [
    ("d", Duration::from_secs(86_400)),
    ("h", Duration::from_secs(3_600)),
    ("m", Duration::from_secs(60)),
    ("s", Duration::from_secs(1)),
    ("ms", Duration::from_millis(1)),
];

fn parse_window(text: &str) -> Result<Duration, String> {
    let expected = "expected a whole, positive number and a unit, such as 100ms, 1s, 15m, 1h, 1d";
    parse_time(text)
        .filter(|window| !window.is_zero())
        .ok_or_else(|| format!("`{text}` is not a window; {expected}"))
}

/// `15m`, and `m` for `1m`.
fn parse_time(text: &str) -> Option<Duration> {
    let (count, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let count = if count.is_empty() { 1 } else { count.parse().ok()? };
    unit.checked_mul(count)
}

/// A share of requests or of a limit, kept in parts per million and written as a percentage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    pub(super) per_million: u32,
}

impl Share {
    /// Parts of a million.
    pub(crate) const fn per_million(self) -> u32 {
        self.per_million
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        match percent {
            // In range, so the cast only drops what is below one in a million.
            Some(percent) if (0.0..=100.0).contains(&percent) => {
                Ok(Self { per_million: (percent * 10_000.0).round() as u32 })
            }
            _ => Err(format!("`{text}` is not a share; expected 0% to 100%, such as 1% or 0.5%")),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.per_million) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Result<(String, u64, Duration), String> {
        let spec: LimitSpec = text.parse()?;
        Ok((spec.dimension, spec.limit.units(), spec.limit.window()))
    }

    #[test]
    fn limits_read_with_and_without_dimension_and_number_of_units() {
        let minute = Duration::from_secs(60);
        assert_eq!(limit("60/1m"), Ok(("requests".into(), 60, minute)));
        assert_eq!(limit("60/m"), Ok(("requests".into(), 60, minute)));
        assert_eq!(limit("tokens=90000/1m"), Ok(("tokens".into(), 90_000, minute)));
        assert_eq!(limit("5/100ms"), Ok(("requests".into(), 5, Duration::from_millis(100))));
        for text in ["5/90s", "5/1m", "5/36h", "5/2d", "5/1500ms"] {
            let spec: LimitSpec = text.parse().expect("a limit");
            assert_eq!(format!("5/{}", spec.window_text()), text);
        }
    }

    #[test]
    fn bad_limits_say_what_was_wrong_and_what_was_expected() {
        for (text, wrong) in [
            ("60", "has no window"),
            ("0/1m", "`0` is not a count"),
            ("-1/1m", "`-1` is not a count"),
            ("1.5/1m", "`1.5` is not a count"),
            ("60/1w", "`1w` is not a window"),
            ("60/0s", "`0s` is not a window"),
            ("60/60", "`60` is not a window"),
            ("60/", "`` is not a window"),
            ("1/99999999999d", "`99999999999d` is not a window"),
            ("1/400d", "is too large"),
            ("Tokens=1/1m", "`Tokens` is not a dimension"),
            ("=1/1m", "`` is not a dimension"),
        ] {
            let error = limit(text).expect_err(text);
            assert!(error.contains(wrong) && error.contains("expected"), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!("0.5%".parse(), Ok(Share { per_million: 5_000 }));
        for text in ["1", "101%", "-1%", "NaN%", "%", "one%"] {
            assert!(text.parse::<Share>().is_err_and(|error| error.contains("expected")));
        }
    }
}
