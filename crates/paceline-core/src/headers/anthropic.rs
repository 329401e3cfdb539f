//! `anthropic-ratelimit-{dimension}-{limit,remaining,reset}`: buckets, with the instant at which
//! each is full (<https://docs.anthropic.com/en/api/rate-limits>).

use super::{Counting, Headers, Signal};

/// `tokens` repeats whichever of the other two binds, so it is read only where they are absent.
const DIMENSIONS: [(&str, &str); 4] = [
    ("requests", "requests"),
    ("input-tokens", "input_tokens"),
    ("output-tokens", "output_tokens"),
    ("tokens", "tokens"),
];

pub(super) fn read(headers: &Headers<'_>) -> Vec<Signal> {
    let mut signals = Vec::new();
    for (theirs, ours) in DIMENSIONS {
        let name = |field: &str| format!("anthropic-ratelimit-{theirs}-{field}");
        let repeats = ours == "tokens" && signals.len() > 1;
        signals.extend(headers.triple(ours, Counting::Bucket, name).filter(|_| !repeats));
    }
    signals
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use std::time::Duration;

    #[test]
    fn anthropic_says_one_bucket_per_dimension() {
        let headers = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:01Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "39000"),
            ("anthropic-ratelimit-input-tokens-reset", "2027-01-15T08:00:02Z"),
            ("anthropic-ratelimit-tokens-limit", "40000"),
        ];
        let signals = detect(200, headers, Duration::from_secs(1_800_000_000)).signals;
        let names: Vec<_> = signals.iter().map(|signal| signal.dimension.as_str()).collect();
        assert_eq!(names, ["requests", "input_tokens"]);
        assert_eq!(signals[1].reset, Some(Duration::from_secs(2)));
    }
}
