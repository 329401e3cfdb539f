//! Streams of each provider, cut anywhere.

use paceline_core::llm::{Stream, Usage};
use proptest::prelude::*;

const OPENAI: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"content":" world"},"finish_reason":"stop"}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}

data: [DONE]

"#;

const RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"r","status":"in_progress","usage":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Hello"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":" world"}

event: response.output_text.done
data: {"type":"response.output_text.done","text":"Hello world"}

event: response.completed
data: {"type":"response.completed","response":{"output":[{"content":[{"text":"Hello world"}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}}

"#;

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"model":"c","usage":{"input_tokens":4,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" world"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"#;

const GEMINI: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"}}],"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}

data: {"candidates":[{"content":{"parts":[{"text":" world"}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"totalTokenCount":11}}

"#;

const GEMINI_ARRAY: &str = r#"[{
  "candidates": [{"content": {"parts": [{"text": "Hello"}]}}]
}
,
{
  "candidates": [{"content": {"parts": [{"text": " world"}]}, "finishReason": "STOP"}],
  "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}
}
]"#;

const OLLAMA: &str = r#"{"model":"l","message":{"role":"assistant","content":"Hello"},"done":false}
{"model":"l","message":{"role":"assistant","content":" world"},"done":false}
{"model":"l","message":{"role":"assistant","content":""},"done":true,"prompt_eval_count":9,"eval_count":2}
"#;

const COHERE: &str = r#"data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Hello"}}}}

data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":" world"}}}}

data: {"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"tokens":{"input_tokens":9,"output_tokens":2}}}}

"#;

const GROQ: &str = r#"data: {"choices":[{"delta":{"content":"Hello"}}]}

data: {"choices":[{"delta":{"content":" world"}}],"x_groq":{"usage":{"prompt_tokens":9,"completion_tokens":2}}}

data: [DONE]

"#;

const ALL: [(&str, &str); 8] = [
    ("OpenAI", OPENAI),
    ("Responses", RESPONSES),
    ("Anthropic", ANTHROPIC),
    ("Gemini", GEMINI),
    ("Gemini array", GEMINI_ARRAY),
    ("Ollama", OLLAMA),
    ("Cohere", COHERE),
    ("Groq", GROQ),
];

fn read(chunks: &[&[u8]]) -> Stream {
    let mut stream = Stream::new();
    for chunk in chunks {
        stream.push(chunk);
    }
    stream
}

fn is_whole(name: &str, stream: &Stream) {
    let usage = stream.usage().unwrap_or_default();
    assert_eq!((usage.input, usage.output), (9, 2), "{name}");
    assert!(stream.is_complete(), "{name}");
    assert!((2..=5).contains(&stream.output_seen()), "{name}: {}", stream.output_seen());
}

#[test]
fn a_stream_is_read_wherever_it_is_cut_and_however_its_lines_end() {
    for (name, text) in ALL {
        for ending in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', ending);
            let bytes = text.as_bytes();
            is_whole(name, &read(&[bytes]));
            for cut in 0..bytes.len() {
                is_whole(name, &read(&[&bytes[..cut], &bytes[cut..]]));
            }
            let ones: Vec<&[u8]> = bytes.chunks(1).collect();
            is_whole(name, &read(&ones));
        }
    }
}

#[test]
fn a_stream_is_complete_with_its_end_and_not_before() {
    for (name, text) in ALL {
        let last = text.trim_end().rfind('\n').unwrap();
        let before = &text[..last];
        // The array ends with a bracket; its last object says that it is the last.
        assert_eq!(read(&[before.as_bytes()]).is_complete(), name == "Gemini array", "{name}");
    }
}

#[test]
fn what_was_seen_bounds_a_stream_that_breaks_off() {
    let piece = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let mut stream = Stream::new();
    assert_eq!(stream.output_seen(), 0);
    for _ in 0..100 {
        stream.push(piece(" word").as_bytes());
    }
    assert!((100..150).contains(&stream.output_seen()), "{}", stream.output_seen());
    assert!(stream.usage().is_none() && !stream.is_complete());
    // Tools are called by text as well.
    let call = br#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{\"city\""}}]}}]}

"#;
    let before = stream.output_seen();
    stream.push(call);
    assert!(stream.output_seen() > before);
}

#[test]
fn an_event_may_have_several_lines_of_data() {
    let text = b": a comment\nid: 7\ndata: {\"usage\":\ndata: {\"prompt_tokens\": 3,\ndata:\"completion_tokens\": 4}}\n\n";
    let usage = Usage { input: 3, output: 4, ..Usage::default() };
    assert_eq!(read(&[text]).usage(), Some(usage));
}

#[test]
fn an_event_without_end_is_not_kept_and_the_next_is_read() {
    for (start, end) in [
        ("data: {\"x\": \"", "\"}\n\n"),
        ("data: x\n\n{\"x\": \"", "\"}\n\n"),
        ("{\"x\": \"", "\"}\n"),
    ] {
        let mut stream = read(&[start.as_bytes()]);
        for _ in 0..40 {
            stream.push(&[b'x'; 65_536]);
        }
        stream.push(end.as_bytes());
        let last = r#"{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}"#;
        let last =
            if start.starts_with('{') { format!("{last}\n") } else { format!("data: {last}\n\n") };
        stream.push(last.as_bytes());
        assert_eq!(stream.usage().map(|usage| usage.input), Some(3), "{start}");
    }
}

proptest! {
    #[test]
    fn no_stream_panics(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
        let stream = read(&chunks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let _ = (stream.usage(), stream.output_seen(), stream.is_complete());
    }

    #[test]
    fn a_broken_stream_says_no_more_than_its_parts(at in 0_usize..2000, byte in any::<u8>(), which in 0..ALL.len()) {
        let mut bytes = ALL[which].1.as_bytes().to_vec();
        let place = at % bytes.len();
        bytes[place] = byte;
        let stream = read(&[&bytes]);
        prop_assert!(stream.output_seen() < 100);
    }
}
