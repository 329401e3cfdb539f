//! The shapes of Anthropic's answers.

use super::Answer;
use serde_json::{Value, json};

pub(super) fn message(answer: &Answer) -> Value {
    let mut message = started_message(answer);
    message["content"] = json!([{"type": "text", "text": answer.text()}]);
    message["stop_reason"] = json!("end_turn");
    message["usage"]["output_tokens"] = json!(answer.output_tokens());
    message
}

fn started_message(answer: &Answer) -> Value {
    json!({
        "id": format!("msg_{}", answer.n), "type": "message", "role": "assistant",
        "model": answer.model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": answer.input_tokens, "output_tokens": 1,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        },
    })
}

pub(super) fn message_events(answer: &Answer) -> Vec<Value> {
    let delta = |piece| {
        json!({
            "type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": piece},
        })
    };
    let block = json!({"type": "text", "text": ""});
    let mut events = vec![
        json!({"type": "message_start", "message": started_message(answer)}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "ping"}),
    ];
    events.extend(answer.pieces().map(delta));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": answer.output_tokens()},
        }),
        json!({"type": "message_stop"}),
    ]);
    events
}
