//! What holds for any body.

use paceline_core::llm::{Calibration, Request, Usage};
use proptest::prelude::*;
use serde_json::json;

/// Bytes that are often nearly a request.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\\u12",
        "\\ud83d",
        "\"messages\"",
        "\"content\"",
        "\"role\"",
        "\"tools\"",
        "\"input\"",
        "\"source\"",
        "\"image_url\"",
        "\"max_tokens\"",
        "\"usage\"",
        "1",
        "-1.5e9",
        "99999999999999999999999",
        "true",
        "null",
        " ",
        "\"data:image/png;base64,AAAA\"",
        "\u{1f600}",
        "你好",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(word, 0..40).prop_map(|words| words.concat().into_bytes()),
    ]
}

fn estimate(text: &str) -> u64 {
    let body = json!({"messages": [{"role": "user", "content": text}]}).to_string();
    Calibration::default().input(&Request::read(body.as_bytes()).unwrap().prompt)
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in nearly()) {
        let _ = Usage::read(&bytes);
        if let Some(request) = Request::read(&bytes) {
            let _ = Calibration::default().cost(&request);
        }
    }

    #[test]
    fn whatever_is_a_json_object_is_a_request(value in "[ -~]{0,20}", number in any::<f64>(), flag in any::<bool>()) {
        let body = json!({"messages": [{"role": value, "content": [value, number, flag, null_or(flag)]}], "x": number});
        prop_assert!(Request::read(body.to_string().as_bytes()).is_some());
        prop_assert!(Request::read(serde_json::to_string_pretty(&body).unwrap().as_bytes()).is_some());
    }

    #[test]
    fn more_text_never_takes_less(first in ".{0,60}", second in ".{0,60}") {
        let both = [&*first, &*second].concat();
        prop_assert!(estimate(&both) >= estimate(&first));
    }

    #[test]
    fn a_text_takes_the_same_however_it_is_escaped(text in ".{0,60}") {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let escaped = format!(r#"{{"messages": [{{"role": "user", "content": "{escaped}"}}]}}"#);
        let plain = json!({"messages": [{"role": "user", "content": text}]}).to_string();
        prop_assert_eq!(Request::read(escaped.as_bytes()), Request::read(plain.as_bytes()));
    }

    #[test]
    fn no_report_wrecks_a_calibration(reports in prop::collection::vec((any::<u64>(), any::<u64>(), 0_u32..64), 0..80)) {
        let body = br#"{"messages": [{"role": "user", "content": "How many calls are left, and until when?"}]}"#;
        let prompt = Request::read(body).unwrap().prompt;
        let mut calibration = Calibration::default();
        for (input, output, shift) in reports {
            calibration.learn(&prompt, &Usage { input: input >> shift, output: output >> shift, ..Usage::default() });
            let tokens = calibration.input(&prompt);
            prop_assert!((2..40_000).contains(&tokens), "{}", tokens);
            let _ = calibration.output(None);
        }
    }
}

fn null_or(flag: bool) -> Option<bool> {
    flag.then_some(flag)
}

#[test]
fn the_largest_counts_saturate() {
    let body = json!({"prompt": "x", "max_tokens": u64::MAX, "n": u64::MAX}).to_string();
    let request = Request::read(body.as_bytes()).unwrap();
    let cost = Calibration::default().cost(&request);
    let tokens = paceline_core::Dimension::new("tokens").unwrap();
    assert_eq!(cost.of(&tokens), paceline_core::Amount::units(u64::MAX));
}
