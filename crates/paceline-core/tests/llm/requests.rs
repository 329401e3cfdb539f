//! What bodies of each provider ask for.

use paceline_core::llm::{Calibration, Request};
use serde_json::{Value, json};

fn input(body: &Value) -> u64 {
    Calibration::default().input(&Request::read(body.to_string().as_bytes()).unwrap().prompt)
}

fn output(body: &Value) -> Option<u64> {
    Request::read(body.to_string().as_bytes()).unwrap().output
}

fn user(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[test]
fn model_and_stream_are_read() {
    let body = br#"{"stream": true, "model": "gpt-4\u006f", "messages": []}"#;
    let request = Request::read(body).unwrap();
    assert!(request.stream);
    assert_eq!(request.model.as_deref(), Some("gpt-4o"));
    let plain = Request::read(br#"{"model": null, "stream": false, "prompt": "x"}"#).unwrap();
    assert!(!plain.stream && plain.model.is_none());
}

#[test]
fn what_is_no_json_object_asks_for_nothing() {
    let deep = "[".repeat(100_000);
    let deep = format!(r#"{{"messages": {deep}"#);
    for body in [
        "",
        " ",
        "[]",
        "1",
        "\"x\"",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{}x",
        "{\"a\":nul}",
        "model=x",
        &deep,
    ] {
        assert_eq!(Request::read(body.as_bytes()), None, "{}", &body[..body.len().min(20)]);
    }
    assert!(Request::read(br#"{"q": "search"}"#).unwrap().prompt.is_empty());
}

#[test]
fn the_longest_answer_counts_for_each_choice() {
    let prompt = json!([{"role": "user", "content": "x"}]);
    for (body, expected) in [
        (json!({"messages": prompt, "max_tokens": 50, "n": 3}), Some(150)),
        (json!({"messages": prompt, "max_completion_tokens": 70}), Some(70)),
        (json!({"input": "x", "max_output_tokens": 80}), Some(80)),
        (json!({"input": [{"role": "user", "content": "x"}]}), None),
        (
            json!({"contents": [], "generationConfig": {"maxOutputTokens": 9, "candidateCount": 2}}),
            Some(18),
        ),
        (json!({"inputs": "x", "parameters": {"max_new_tokens": 20}}), Some(20)),
        (json!({"messages": prompt, "options": {"num_predict": 30}}), Some(30)),
        (json!({"messages": prompt, "options": {"num_predict": -1}}), None),
        (json!({"prompt": ["a", "b"], "max_tokens": 5, "n": 2}), Some(20)),
        (json!({"messages": prompt, "inferenceConfig": {"maxTokens": 11}}), Some(11)),
        (json!({"messages": prompt, "max_tokens": null}), None),
        (json!({"messages": prompt, "max_tokens": 12.0}), Some(12)),
        (json!({"messages": prompt, "max_tokens": "many"}), None),
        (json!({"messages": prompt}), None),
        (json!({"prompt": "x", "max_tokens": u64::MAX, "n": u64::MAX}), Some(u64::MAX)),
    ] {
        assert_eq!(output(&body), expected, "{body}");
    }
}

#[test]
fn embeddings_and_moderations_have_no_answer() {
    for body in [
        json!({"model": "e", "input": ["one text", "another"]}),
        json!({"model": "text-embedding-3-small", "input": "x"}),
        json!({"model": "omni-moderation-latest", "input": "x"}),
        json!({"model": "x", "input": "x", "encoding_format": "float"}),
        json!({"model": "embed-v4.0", "texts": ["a"], "input_type": "search_document"}),
        json!({"content": {"parts": [{"text": "a"}]}}),
        json!({"requests": [{"model": "models/x", "content": {"parts": [{"text": "a"}]}}]}),
    ] {
        assert_eq!(output(&body), Some(0), "{body}");
        assert!((1..20).contains(&input(&body)), "{body}: {}", input(&body));
    }
}

#[test]
fn tokens_given_as_such_are_counted_one_by_one() {
    assert_eq!(input(&json!({"input": [1, 2, 3]})), 3);
    assert_eq!(input(&json!({"input": [[1, 2], [3, 4, 5]]})), 5);
    assert_eq!(input(&json!({"prompt": [7, 8]})), 2);
}

#[test]
fn every_part_of_a_prompt_is_counted() {
    let text = "Nobody who reads this sentence aloud should need more than thirty tokens for it. "
        .repeat(20);
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "description": text}}});
    for body in [
        user(&json!(text)),
        user(&json!([{"type": "text", "text": text}])),
        json!({"messages": [], "system": text}),
        json!({"messages": [], "system": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}),
        json!({"input": text, "instructions": "x"}),
        json!({"input": "x", "instructions": text}),
        json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}),
        json!({"input": [{"type": "function_call_output", "call_id": "c", "output": text}]}),
        json!({"prompt": text}),
        json!({"inputs": text}),
        json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}),
        json!({"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"a": text}}}]}]}),
        json!({"contents": [], "systemInstruction": {"parts": [{"text": text}]}}),
        json!({"contents": [], "tools": [{"functionDeclarations": [{"name": "f", "description": text}]}]}),
        json!({"contents": [], "generationConfig": {"responseSchema": schema}}),
        json!({"messages": [], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}),
        json!({"messages": [], "tools": [{"name": "f", "input_schema": schema}]}),
        json!({"messages": [], "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}),
        json!({"input": "x", "text": {"format": {"type": "json_schema", "schema": schema}}}),
        user(
            &json!([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]}]),
        ),
        user(&json!([{"type": "tool_use", "id": "t", "name": "f", "input": {"id": text}}])),
        json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}]}]}),
        user(
            &json!([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}]),
        ),
        user(
            &json!([{"type": "search_result", "source": "https://a.example", "content": [{"type": "text", "text": text}]}]),
        ),
        json!({"message": "x", "chat_history": [{"role": "USER", "message": text}]}),
        json!({"messages": [], "documents": [{"data": {"title": text}}]}),
        json!({"query": "x", "documents": [text]}),
    ] {
        let tokens = input(&body);
        assert!((300..500).contains(&tokens), "{tokens}: {body}");
    }
}

#[test]
fn media_are_no_text_however_long_they_are() {
    let data = "iVBORw0KGgoAAAANSUhEUg".repeat(50_000);
    let url = format!("data:image/png;base64,{data}");
    let pdf = format!("data:application/pdf;base64,{}", &data[..100_000]);
    for (content, most) in [
        (json!([{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]), 120),
        (json!([{"type": "image_url", "image_url": {"url": url}}]), 1_650),
        (json!([{"type": "image_url", "image_url": url}]), 1_650),
        (json!([{"type": "input_image", "image_url": url, "detail": "auto"}]), 1_650),
        (
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]),
            1_650,
        ),
        (
            json!([{"type": "image", "source": {"type": "base64", "data": data, "media_type": "image/png"}}]),
            1_650,
        ),
        (
            json!([{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}]),
            1_650,
        ),
        (json!([{"image": {"format": "png", "source": {"bytes": data}}}]), 1_650),
        (json!([{"inlineData": {"mimeType": "image/png", "data": data}}]), 1_650),
        (json!([{"inline_data": {"mime_type": "image/png", "data": data}}]), 1_650),
        (json!([{"fileData": {"mimeType": "image/png", "fileUri": "gs://a/b"}}]), 1_650),
        (json!([{"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}}]), 10_000),
        (json!([{"type": "input_file", "filename": "a.pdf", "file_data": pdf}]), 10_000),
        (json!([{"type": "input_file", "file_id": "file-1"}]), 3_100),
        (
            json!([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": &data[..100_000]}}]),
            10_000,
        ),
        (
            json!([{"type": "input_audio", "input_audio": {"data": &data[..400_000], "format": "wav"}}]),
            3_000,
        ),
    ] {
        let tokens = input(&user(&content));
        let least = most / 2;
        let start: String = content.to_string().chars().take(80).collect();
        assert!((least..=most).contains(&tokens), "{tokens}: {start}");
    }
    let ollama = json!({"messages": [{"role": "user", "content": "x", "images": [data, data]}]});
    assert!((3_200..3_300).contains(&input(&ollama)));
}

#[test]
fn a_model_that_cuts_other_scripts_in_longer_tokens_is_known() {
    let mut body = user(&json!("जब किसी सर्वर को बहुत अधिक अनुरोध मिलते हैं, तो प्रतीक्षा करनी होगी।"));
    let unknown = input(&body);
    body["model"] = json!("gpt-4o-mini");
    assert!(input(&body) * 2 < unknown, "{} {unknown}", input(&body));
}

#[test]
fn what_stands_elsewhere_is_what_its_part_says() {
    let image = br#"{"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://a.example/a"}}]}]}"#;
    let tokens = Calibration::default().input(&Request::read(image).unwrap().prompt);
    assert!((1_600..1_650).contains(&tokens), "{tokens}");
}

#[test]
fn a_model_whose_images_take_more_is_known() {
    let image = json!([{"type": "image_url", "image_url": {"url": "https://a.example/a.png"}}]);
    let mut body = user(&image);
    body["model"] = json!("gpt-4o-mini-2024-07-18");
    assert!(input(&body) >= 2_833 + 8 * 5_667);
}
