//! `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`: OpenAI and those who copy it. A
//! bucket: the reset, a Go duration, is the time until it is full
//! (<https://platform.openai.com/docs/guides/rate-limits>).

use super::{Counting, Headers, Signal};

pub(super) fn read(headers: &Headers<'_>) -> Vec<Signal> {
    let bucket = |dimension: &&str| {
        headers
            .triple(dimension, Counting::Bucket, |field| format!("x-ratelimit-{field}-{dimension}"))
    };
    ["requests", "tokens"].iter().filter_map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use std::time::Duration;

    #[test]
    fn openai_says_two_buckets_with_go_durations() {
        let headers = [
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "15000"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let signals = detect(200, headers, Duration::ZERO).signals;
        assert_eq!(signals.len(), 2);
        assert_eq!(signals[0].reset, Some(Duration::from_millis(120)));
        assert_eq!(signals[1].dimension.as_str(), "tokens");
        assert_eq!(signals[1].reset, Some(Duration::from_secs(360)));
    }
}
