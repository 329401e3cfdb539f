//! One bucket that is stated twice is one signal: Kong, GitLab, Mistral and proxies repeat under
//! other names what they said before.

use super::Signal;
use std::time::Duration;

/// Resets of one bucket, told in two forms, differ by rounding.
const BLUR: Duration = Duration::from_secs(2);

/// Joins signals that can only be the same bucket, and keeps all others. A name tells buckets apart
/// that look alike, so at least one of two must have none.
pub(super) fn merge(signals: &mut Vec<Signal>) {
    signals.sort_by_key(|signal| {
        signal.limit.is_none() && signal.remaining.is_none() && signal.window.is_none()
    });
    let mut at = 1;
    while at < signals.len() {
        let (before, rest) = signals.split_at_mut(at);
        if let Some(first) = before.iter_mut().find(|first| same(first, &rest[0])) {
            let twin = std::mem::take(&mut rest[0]);
            first.name = first.name.take().or(twin.name);
            first.reset = first.reset.or(twin.reset);
            first.window = first.window.or(twin.window);
            signals.remove(at);
        } else {
            at += 1;
        }
    }
}

fn same(a: &Signal, b: &Signal) -> bool {
    fn agree<T>(a: Option<T>, b: Option<T>, test: impl Fn(T, T) -> bool) -> bool {
        a.zip(b).is_none_or(|(a, b)| test(a, b))
    }
    let unnamed = a.name.is_none() || b.name.is_none();
    if a.dimension != b.dimension {
        return false;
    }
    // A group that has nothing but the reset of another repeats it.
    if b.limit.is_none() && b.remaining.is_none() && b.window.is_none() && a.reset == b.reset {
        return true;
    }
    a.limit.is_some()
        && a.limit == b.limit
        && a.remaining.is_some()
        && a.remaining == b.remaining
        // What is named among tokens is named for what it meters.
        && (a.name == b.name || unnamed && a.dimension == crate::Dimension::Requests)
        && agree(a.window, b.window, |a, b| a == b)
        && agree(a.reset, b.reset, |a, b| a.abs_diff(b) <= BLUR)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};

    #[test]
    fn one_bucket_under_two_spellings_is_one_signal() {
        let headers = [
            ("x-rate-limit", "700"),
            ("ratelimit-limit", "700"),
            ("x-rate-limit-remaining", "699"),
            ("ratelimit-remaining", "699"),
            ("ratelimit-reset", "41"),
        ];
        assert_eq!(said(&read(200, &headers)), ["requests - 700 699 41s -"]);
    }

    #[test]
    fn two_buckets_that_look_alike_are_two() {
        let headers = [
            ("x-app-limit-24hour-limit", "17"),
            ("x-app-limit-24hour-remaining", "0"),
            ("x-user-limit-24hour-limit", "17"),
            ("x-user-limit-24hour-remaining", "0"),
        ];
        assert_eq!(
            said(&read(200, &headers)),
            ["requests app-24hour 17 0 - 1d", "requests user-24hour 17 0 - 1d"]
        );
    }
}
