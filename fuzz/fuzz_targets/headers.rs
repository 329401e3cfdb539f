//! No response can make detection fail, stall or believe what is absurd (rule 8).
//!
//! An input is a response as text: status and URL, a header a line, an empty line, the body.
//! `make fuzz` runs it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paceline_core::headers::{Detector, HeadersMap, Response, detect, value};
use std::sync::LazyLock;
use std::time::Duration;

static DETECTOR: LazyLock<Detector> = LazyLock::new(|| {
    let name = |text: &str| Some(text.parse().unwrap());
    let (limit, remaining) = (name("X-Calls"), name("X-Calls-Left"));
    let (reset, retry_after) = (name("X-Calls-Again"), name("X-Calls-Wait"));
    Detector::default().map(HeadersMap { limit, remaining, reset, retry_after })
});

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let (status, url) = first.split_once(' ').unwrap_or((first, ""));
    let status = status.parse().unwrap_or(429);
    let headers = rest.split('\n').map(|line| line.split_once(": ").unwrap_or((line, "")));
    let now = Duration::from_secs(1_773_144_000);
    let (url, body) = (Some(url), Some(body.as_bytes()));
    let reading = detect(&DETECTOR, Response { status, url, now, headers, body });
    assert!(reading.retry_after.is_none_or(|wait| wait <= value::LONGEST));
    for signal in reading.signals {
        assert!(signal.reset.is_none_or(|reset| reset <= value::LONGEST));
        assert!(signal.limit.is_none_or(|limit| limit <= 1_000_000_000_000));
        assert!(signal.remaining.is_none_or(|left| left <= 1_000_000_000_000));
    }
    std::hint::black_box(DETECTOR.wants_body(url.unwrap_or_default(), status, None));
});
