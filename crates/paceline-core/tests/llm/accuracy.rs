//! How good the estimates are, against true counts.
//!
//! `corpus.json` has texts of many kinds with the counts of `tiktoken` (o200k and cl100k). None of
//! them was there when the weights were fitted. (`scripts/fit_tokens.py`.)

use paceline_core::llm::{Calibration, Request, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Text {
    kind: String,
    text: String,
    o200k: u64,
    cl100k: u64,
}

/// What a tokenizer counts.
type Count = fn(&Text) -> u64;

/// How the tokenizers count.
const COUNTS: [(&str, Count); 2] = [("o200k", |text| text.o200k), ("cl100k", |text| text.cl100k)];

fn corpus() -> Vec<Text> {
    serde_json::from_str(include_str!("corpus.json")).unwrap()
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// A chat of some of these texts, and what OpenAI counts for it.
fn chat(texts: &[&Text], count: Count) -> (String, u64) {
    let message = |text: &&Text| json!({"role": "user", "content": text.text});
    let messages: Vec<Value> = texts.iter().map(message).collect();
    let tokens = texts.iter().map(|text| count(text) + 4).sum::<u64>() + 3;
    (json!({"model": "m", "messages": messages}).to_string(), tokens)
}

/// What became of many calls: how many of a hundred were bounded, and the median excess in percent.
fn bounded(excess: &mut [i64]) -> (usize, i64) {
    excess.sort_unstable();
    let over = excess.iter().filter(|one| **one >= 0).count();
    (over * 1000 / excess.len(), excess[excess.len() / 2] / 10)
}

/// Sends 12 times 100 chats of one to six texts. Says what is left of the estimate in thousandths of
/// the truth: before any report, and after 20.
fn simulate(count: Count, unseen: u64, which: &[&Text]) -> [(usize, i64); 2] {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for seed in 0..12 {
        let (mut dice, mut calibration) = (Dice(seed), Calibration::default());
        for call in 0..100 {
            let texts: Vec<_> = (0..=dice.roll(6)).map(|_| which[dice.roll(which.len())]).collect();
            let (body, tokens) = chat(&texts, count);
            let (prompt, tokens) =
                (Request::read(body.as_bytes()).unwrap().prompt, tokens + unseen);
            let excess = |calibration: &Calibration| {
                (calibration.input(&prompt) as i64 - tokens as i64) * 1000 / tokens as i64
            };
            before.push(excess(&Calibration::default()));
            if call >= 20 {
                after.push(excess(&calibration));
            }
            calibration.learn(&prompt, &Usage { input: tokens, ..Usage::default() });
        }
    }
    [bounded(&mut before), bounded(&mut after)]
}

#[test]
fn an_estimate_is_an_upper_bound_before_any_report_and_close_to_the_truth_after_twenty() {
    let corpus = corpus();
    let all: Vec<_> = corpus.iter().collect();
    for (name, count) in COUNTS {
        let [(before, excess), (after, close)] = simulate(count, 0, &all);
        assert!(before >= 980 && excess <= 30, "{name}: {before} {excess}");
        assert!(after >= 990 && close <= 15, "{name}: {after} {close}");
    }
}

#[test]
fn what_a_provider_adds_to_each_prompt_unseen_is_learned() {
    let corpus = corpus();
    let all: Vec<_> = corpus.iter().collect();
    for unseen in [50, 700, 9_000] {
        let [_, (after, close)] = simulate(|text| text.o200k, unseen, &all);
        assert!(after >= 990 && close <= 15, "{unseen}: {after} {close}");
    }
}

#[test]
fn a_denser_tokenizer_is_learned() {
    let corpus = corpus();
    let all: Vec<_> = corpus.iter().collect();
    let [_, (after, close)] = simulate(|text| text.o200k * 6 / 5 + 1, 300, &all);
    assert!(after >= 990 && close <= 15, "{after} {close}");
}

#[test]
fn each_kind_of_text_is_bounded_closely_where_all_calls_are_of_it() {
    let corpus = corpus();
    for kinds in [
        "rs py lua sql shell minified",
        "toml json html csv log table numbers",
        "md prose-en prose-en-chat prose-de prose-fr prose-es prose-it prose-pt",
        "prose-zh prose-zh-tw prose-ja prose-ko",
        "base64 hex ids",
    ] {
        let of_it = |text: &&Text| kinds.split(' ').any(|kind| kind == text.kind);
        let which: Vec<_> = corpus.iter().filter(of_it).collect();
        for (name, count) in COUNTS {
            let [_, (after, close)] = simulate(count, 0, &which);
            assert!(after >= 990 && close <= 15, "{name}: {kinds}: {after} {close}");
        }
    }
}

#[test]
fn tools_and_what_they_were_asked_are_counted() {
    // As JSON they take 306, with the frames of the messages.
    let request = Request::read(include_bytes!("tools.json")).unwrap();
    let estimate = Calibration::default().input(&request.prompt);
    assert!((306..306 * 3 / 2).contains(&estimate), "{estimate}");
}

#[test]
fn one_absurd_report_changes_nothing() {
    let corpus = corpus();
    let chats: Vec<_> = corpus.iter().map(|text| chat(&[text], |text| text.o200k)).collect();
    let prompts: Vec<_> = chats
        .iter()
        .map(|(body, tokens)| (Request::read(body.as_bytes()).unwrap().prompt, *tokens))
        .collect();
    let mut calibration = Calibration::default();
    for (prompt, tokens) in &prompts {
        calibration.learn(prompt, &Usage { input: *tokens, ..Usage::default() });
    }
    let (prompt, _) = &prompts[0];
    let sane = calibration.input(prompt);
    for absurd in [0, 1, 10_u64.pow(12), u64::MAX] {
        calibration.learn(prompt, &Usage { input: absurd, output: absurd, ..Usage::default() });
        assert_eq!(calibration.input(prompt), sane, "{absurd}");
    }
    // One that could be is not believed before there is a second.
    calibration.learn(prompt, &Usage { input: sane * 4, ..Usage::default() });
    let after = calibration.input(prompt);
    assert!(after <= sane * 5 / 4, "{sane} {after}");
}

#[test]
fn a_drift_is_followed() {
    let corpus = corpus();
    let (body, tokens) = chat(&[&corpus[0], &corpus[1]], |text| text.o200k);
    let prompt = Request::read(body.as_bytes()).unwrap().prompt;
    let mut calibration = Calibration::default();
    for factor in [100, 130, 90] {
        let tokens = tokens * factor / 100;
        for _ in 0..40 {
            calibration.learn(&prompt, &Usage { input: tokens, ..Usage::default() });
        }
        let excess = calibration.input(&prompt) * 100 / tokens;
        assert!((100..110).contains(&excess), "{factor}: {excess}");
    }
}

#[test]
fn answers_are_as_long_as_they_were_where_nothing_is_asked() {
    let open = Request::read(br#"{"messages": [{"role": "user", "content": "Hello."}]}"#).unwrap();
    let mut calibration = Calibration::default();
    assert_eq!(calibration.output(open.output), 16);
    for tokens in (100..200).chain([10_u64.pow(12)]) {
        calibration.learn(&open.prompt, &Usage { input: 9, output: tokens, ..Usage::default() });
    }
    assert!((199..220).contains(&calibration.output(None)), "{}", calibration.output(None));
    assert_eq!(calibration.output(Some(7)), 7);
    // What was bounded says nothing of what is not.
    let asked = Request::read(br#"{"prompt": "Hello.", "max_tokens": 9000}"#).unwrap();
    for _ in 0..40 {
        calibration.learn(&asked.prompt, &Usage { input: 9, output: 9000, ..Usage::default() });
    }
    assert!(calibration.output(None) < 220);
}

#[test]
fn what_images_take_is_learned_apart_from_text() {
    let image = json!({"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}});
    let body = json!({"messages": [{"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}]});
    let body = body.to_string();
    let prompt = Request::read(body.as_bytes()).unwrap().prompt;
    let mut calibration = Calibration::default();
    assert!(calibration.input(&prompt) >= 1_600);
    for _ in 0..20 {
        calibration.learn(&prompt, &Usage { input: 265, ..Usage::default() });
    }
    assert!((265..300).contains(&calibration.input(&prompt)), "{}", calibration.input(&prompt));
}

#[cfg(feature = "tiktoken")]
#[test]
fn exact_counts_are_those_of_tiktoken() {
    let corpus = corpus();
    for texts in corpus.chunks(3) {
        let texts: Vec<_> = texts.iter().collect();
        for (model, (_, count)) in ["gpt-4o", "gpt-4"].into_iter().zip(COUNTS) {
            let (body, tokens) = chat(&texts, count);
            assert_eq!(paceline_core::llm::exact::count(model, body.as_bytes()), Some(tokens));
        }
    }
}
