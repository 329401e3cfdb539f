//! What answers of each provider report.

use paceline_core::llm::Usage;
use serde_json::{Value, json};

#[test]
fn the_usage_of_every_provider_is_read() {
    let usage =
        |input, cached, cache_written, output| Some(Usage { input, cached, cache_written, output });
    for (name, body, expected) in [
        (
            "OpenAI chat",
            json!({"choices": [{"message": {"content": "{\"usage\": 1}"}}], "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 8}}}),
            usage(100, 64, 0, 20),
        ),
        (
            "OpenAI responses",
            json!({"object": "response", "usage": {"input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 123}}),
            usage(36, 4, 0, 87),
        ),
        (
            "OpenAI embeddings",
            json!({"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 8,
            "total_tokens": 8}}),
            usage(8, 0, 0, 0),
        ),
        (
            "Anthropic",
            json!({"type": "message", "usage": {"input_tokens": 10,
            "cache_creation_input_tokens": 300, "cache_read_input_tokens": 2000,
            "cache_creation": {"ephemeral_5m_input_tokens": 300}, "output_tokens": 5}}),
            usage(2310, 2000, 300, 5),
        ),
        (
            "Gemini",
            json!({"candidates": [], "usageMetadata": {"promptTokenCount": 50,
            "candidatesTokenCount": 7, "thoughtsTokenCount": 30, "totalTokenCount": 87,
            "cachedContentTokenCount": 40}}),
            usage(50, 40, 0, 37),
        ),
        (
            "Gemini with tools",
            json!({"usageMetadata": {"promptTokenCount": 50,
            "toolUsePromptTokenCount": 100, "candidatesTokenCount": 7, "totalTokenCount": 157}}),
            usage(150, 0, 0, 7),
        ),
        (
            "Gemini stream without events",
            json!([{"usageMetadata": {"promptTokenCount": 5}},
            {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3}}]),
            usage(5, 0, 0, 3),
        ),
        (
            "Gemini interactions",
            json!({"usage": {"total_input_tokens": 7, "total_output_tokens": 20,
            "total_thought_tokens": 22, "total_tokens": 49}}),
            usage(7, 0, 0, 42),
        ),
        (
            "Mistral",
            json!({"usage": {"prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23}}),
            usage(14, 0, 0, 9),
        ),
        (
            "Cohere v1",
            json!({"text": "x", "meta": {"api_version": {"version": "1"},
            "tokens": {"input_tokens": 67, "output_tokens": 4},
            "billed_units": {"input_tokens": 3, "output_tokens": 4}}}),
            usage(67, 0, 0, 4),
        ),
        (
            "Cohere v2",
            json!({"message": {"role": "assistant"}, "usage": {
            "billed_units": {"input_tokens": 3, "output_tokens": 4},
            "tokens": {"input_tokens": 67, "output_tokens": 4}}}),
            usage(67, 0, 0, 4),
        ),
        ("Cohere embed", json!({"meta": {"billed_units": {"input_tokens": 3}}}), usage(3, 0, 0, 0)),
        (
            "Groq",
            json!({"usage": {"queue_time": 0.01, "prompt_tokens": 18, "prompt_time": 0.002,
            "completion_tokens": 5, "total_tokens": 23}, "x_groq": {"id": "r"}}),
            usage(18, 0, 0, 5),
        ),
        (
            "DeepSeek",
            json!({"usage": {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21,
            "prompt_cache_hit_tokens": 16, "prompt_cache_miss_tokens": 4}}),
            usage(20, 16, 0, 1),
        ),
        (
            "xAI, which counts reasoning in the total only",
            json!({"usage": {"prompt_tokens": 10,
            "completion_tokens": 5, "total_tokens": 115}}),
            usage(10, 0, 0, 105),
        ),
        (
            "Bedrock",
            json!({"output": {}, "usage": {"inputTokens": 30, "outputTokens": 6,
            "totalTokens": 36}}),
            usage(30, 0, 0, 6),
        ),
        (
            "Ollama",
            json!({"message": {"content": "x"}, "done": true, "prompt_eval_count": 26,
            "eval_count": 298, "eval_duration": 4_709_213_000_u64}),
            usage(26, 0, 0, 298),
        ),
        (
            "a proxy that reports caches both ways",
            json!({"usage": {"prompt_tokens": 100,
            "completion_tokens": 1, "cache_read_input_tokens": 60}}),
            usage(100, 60, 0, 1),
        ),
        ("totals only", json!({"usage": {"total_tokens": 12}}), usage(12, 0, 0, 0)),
        ("nothing", json!({"choices": []}), None),
        ("null", json!({"usage": null}), None),
        ("words", json!({"usage": {"prompt_tokens": "many"}}), None),
    ] {
        assert_eq!(Usage::read(body.to_string().as_bytes()), expected, "{name}");
    }
}

#[test]
fn what_is_no_answer_reports_nothing() {
    for body in ["", "x", "1", "null", "{", r#"{"usage": {"prompt_tokens": 1}"#] {
        assert_eq!(Usage::read(body.as_bytes()), None, "{body}");
    }
    let absurd: Value = json!({"usage": {"prompt_tokens": u64::MAX, "completion_tokens": -3}});
    let usage = Usage::read(absurd.to_string().as_bytes()).unwrap();
    assert_eq!((usage.input, usage.output), (u64::MAX, 0));
}
