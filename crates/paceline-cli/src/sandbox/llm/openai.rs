//! The shapes of OpenAI's answers.

use super::super::plan::scatter;
use super::Answer;
use serde_json::{Value, json};

/// Numbers in an embedding, unless the request asks for another length.
const DIMENSIONS: u64 = 16;
const MAX_DIMENSIONS: u64 = 4_096;
/// OpenAI's own bound on the inputs of one request.
const MAX_INPUTS: usize = 2_048;

pub(super) fn chat(answer: &Answer) -> Value {
    json!({
        "id": format!("chatcmpl-{}", answer.n), "object": "chat.completion",
        "created": answer.created, "model": answer.model, "system_fingerprint": null,
        "choices": [{
            "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": answer.text(), "refusal": null},
        }],
        "usage": usage(answer),
    })
}

pub(super) fn chat_chunks(answer: &Answer, include_usage: bool) -> Vec<Value> {
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", answer.n), "object": "chat.completion.chunk",
            "created": answer.created, "model": answer.model, "choices": choices,
        });
        if include_usage {
            chunk["usage"] = usage;
        }
        chunk
    };
    let choice = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        chunk(json!([choice]), Value::Null)
    };
    let mut chunks = vec![choice(json!({"role": "assistant", "content": ""}), None)];
    chunks.extend(answer.pieces().map(|piece| choice(json!({"content": piece}), None)));
    chunks.push(choice(json!({}), Some("stop")));
    if include_usage {
        chunks.push(chunk(json!([]), usage(answer)));
    }
    chunks
}

fn usage(answer: &Answer) -> Value {
    let (input, output) = (answer.input_tokens, answer.output_tokens());
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

pub(super) fn response(answer: &Answer) -> Value {
    let mut response = started_response(answer);
    let (input, output) = (answer.input_tokens, answer.output_tokens());
    response["status"] = json!("completed");
    response["output"] = json!([output_item(answer, "completed", &[text_part(&answer.text())])]);
    response["usage"] = json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    });
    response
}

fn started_response(answer: &Answer) -> Value {
    json!({
        "id": format!("resp_{}", answer.n), "object": "response", "created_at": answer.created,
        "model": answer.model, "status": "in_progress", "output": [], "usage": null,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto",
        "tools": [],
    })
}

fn output_item(answer: &Answer, status: &str, content: &[Value]) -> Value {
    json!({
        "id": format!("msg_{}", answer.n), "type": "message", "role": "assistant",
        "status": status, "content": content,
    })
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub(super) fn response_events(answer: &Answer) -> Vec<Value> {
    let (text, started) = (answer.text(), started_response(answer));
    // Where in the answer an event belongs; there is one item with one part.
    let place = |kind: &str, field: &str, value: Value| {
        json!({
            "type": kind, "item_id": format!("msg_{}", answer.n), "output_index": 0,
            "content_index": 0, field: value,
        })
    };
    let item = |kind: &str, item: Value| json!({"type": kind, "output_index": 0, "item": item});
    let delta = |piece| {
        let mut delta = place("response.output_text.delta", "delta", json!(piece));
        delta["logprobs"] = json!([]);
        delta
    };
    let mut text_done = place("response.output_text.done", "text", json!(text));
    text_done["logprobs"] = json!([]);
    let done = output_item(answer, "completed", &[text_part(&text)]);
    let mut events = vec![
        json!({"type": "response.created", "response": started}),
        json!({"type": "response.in_progress", "response": started}),
        item("response.output_item.added", output_item(answer, "in_progress", &[])),
        place("response.content_part.added", "part", text_part("")),
    ];
    events.extend(answer.pieces().map(delta));
    events.extend([
        text_done,
        place("response.content_part.done", "part", text_part(&text)),
        item("response.output_item.done", done),
        json!({"type": "response.completed", "response": response(answer)}),
    ]);
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events
}

pub(super) fn embeddings(answer: &Answer, body: &Value, seed: u64) -> Value {
    // A list of numbers is one input, already encoded; a list of anything else is many.
    let inputs = match &body["input"] {
        Value::Array(inputs) if !inputs.iter().all(Value::is_number) => inputs.len(),
        _ => 1,
    };
    let dimensions = body["dimensions"].as_u64().unwrap_or(DIMENSIONS).clamp(1, MAX_DIMENSIONS);
    let encoded = body["encoding_format"] == "base64";
    let embedding = |index: usize| {
        let key = scatter(seed, answer.input_tokens ^ ((index as u64) << 32));
        let vector = (0..dimensions).map(|n| (scatter(key, n) % 2_001) as f32 / 1_000.0 - 1.0);
        let embedding = if encoded {
            json!(base64(&vector.flat_map(f32::to_le_bytes).collect::<Vec<_>>()))
        } else {
            json!(vector.collect::<Vec<_>>())
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    json!({
        "object": "list", "model": answer.model,
        "data": (0..inputs.min(MAX_INPUTS)).map(embedding).collect::<Vec<_>>(),
        "usage": {"prompt_tokens": answer.input_tokens, "total_tokens": answer.input_tokens},
    })
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sextet = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= group.len() { char::from(sextet) } else { '=' });
        }
    }
    out
}

pub(super) fn models() -> Value {
    let model = |id| json!({"id": id, "object": "model", "created": 0, "owned_by": "sandbox"});
    let models = ["sandbox-1", "sandbox-embedding-1"].map(model);
    json!({"object": "list", "data": models})
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_pads_to_groups_of_four() {
        let encoded = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }
}
