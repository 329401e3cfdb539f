//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`, and the same with `X-Rate-Limit-`: GitHub,
//! Twitter, Okta and most gateways. Counted as a fixed window.

use super::{Headers, Signal, value};

pub(super) fn read(headers: &Headers<'_>) -> Vec<Signal> {
    ["x-ratelimit", "x-rate-limit"].iter().filter_map(|prefix| triple(headers, prefix)).collect()
}

/// Limit, remaining and reset under one prefix.
pub(super) fn triple(headers: &Headers<'_>, prefix: &str) -> Option<Signal> {
    let field = |name: &str| headers.get(&format!("{prefix}-{name}"));
    let signal = Signal {
        limit: field("limit").and_then(value::count).filter(|limit| *limit > 0),
        remaining: field("remaining").and_then(value::count),
        reset: field("reset").and_then(|text| value::until(text, headers.now)),
        ..Signal::default()
    };
    (signal.limit.is_some() || signal.remaining.is_some()).then_some(signal)
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use std::time::Duration;

    #[test]
    fn github_says_limit_remaining_and_epoch() {
        let headers = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4987"),
            ("x-ratelimit-used", "13"),
            ("x-ratelimit-reset", "1800000010"),
            ("x-ratelimit-resource", "core"),
        ];
        let signal = &detect(200, headers, Duration::from_secs(1_800_000_000)).signals[0];
        assert_eq!((signal.limit, signal.remaining), (Some(5_000), Some(4_987)));
        assert_eq!(signal.reset, Some(Duration::from_secs(10)));
        assert_eq!(signal.window, None, "ten seconds before its reset GitHub is still per hour");
    }
}
