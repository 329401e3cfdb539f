//! `X-RateLimit-Limit`, `-Remaining`, `-Reset`, and the same with `X-Rate-Limit-`: GitHub,
//! Twitter, Okta and most gateways. Counted as a fixed window.

use super::{Counting, Headers, Signal};

pub(super) fn read(headers: &Headers<'_>) -> Vec<Signal> {
    ["x-ratelimit", "x-rate-limit"].iter().filter_map(|prefix| named(headers, prefix)).collect()
}

/// Limit, remaining and reset under one prefix.
pub(super) fn named(headers: &Headers<'_>, prefix: &str) -> Option<Signal> {
    headers.triple("requests", Counting::Fixed, |field| format!("{prefix}-{field}"))
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
