//! What it costs to estimate an LLM call: every one of them is estimated.

use crate::race::{alone, nanos_each};
use crate::row::Row;
use paceline::llm::{Calibration, Request, Stream, Usage};
use serde_json::json;
use std::hint::black_box;

/// Short, so that most rounds are not interrupted.
const ROUND: usize = 200;
/// The longest prompt that is read, in bytes.
const LONG: usize = 32_000;

const PROSE: &str = include_str!("../../../../ARCHITECTURE.md");
const CODE: &str = include_str!("../../../paceline/src/line.rs");

pub(super) fn all() -> Vec<Row> {
    let usage = json!({"choices": [{"message": {"role": "assistant", "content": &PROSE[..700]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 200, "total_tokens": 300,
            "prompt_tokens_details": {"cached_tokens": 0}}})
    .to_string();
    let event = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": null}]});
    let event = format!("data: {event}\n\n");
    let mut stream = Stream::new();
    vec![
        request("llm: a short request", "How many calls are left?").at_most(1_000.0),
        request("llm: 32 kB of prose", &PROSE.repeat(3)[..LONG]).at_most(20_000.0),
        request("llm: 32 kB of code", &CODE.repeat(2)[..LONG]).at_most(20_000.0),
        row("llm: usage of an answer of 1 kB", || {
            Usage::read(black_box(usage.as_bytes())).is_some()
        })
        .at_most(1_000.0),
        row("llm: an event of a stream", || {
            stream.push(black_box(event.as_bytes()));
            !stream.is_complete()
        })
        .at_most(1_000.0),
    ]
}

/// Nanoseconds to read a request of that text and bound its tokens.
fn request(name: &'static str, text: &str) -> Row {
    let body = json!({"model": "m", "max_tokens": 100, "messages": [
        {"role": "system", "content": "You are brief."}, {"role": "user", "content": text}]})
    .to_string();
    let calibration = Calibration::default();
    row(name, || {
        let request = Request::read(black_box(body.as_bytes()));
        request.is_some_and(|request| calibration.input(&request.prompt) > 0)
    })
}

fn row(name: &'static str, mut once: impl FnMut() -> bool) -> Row {
    Row::figure(name, alone(|| nanos_each(ROUND, |_| once())), "ns")
}
