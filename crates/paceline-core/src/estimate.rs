//! What an LLM call will spend, as an upper bound, before it is sent (rule 27).

use crate::{Amount, Cost, Dimension};
use serde_json::Value;

/// Bytes of text per token. Tokenizers average about four characters of English a token; three
/// bytes leave room for code, other scripts and the tokens that frame each message.
const BYTES_PER_TOKEN: u64 = 3;
/// What a request costs beyond its text: roles, separators, the opening of the answer.
const FRAME: u64 = 8;
/// The longest answer where the caller set none.
const DEFAULT_OUTPUT: u64 = 16;

/// The most tokens that one call can spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// The prompt.
    pub input: u64,
    /// The longest answer that it allows.
    pub output: u64,
}

impl Tokens {
    /// What a call costs that asks for these: one request, and `tokens`, `input_tokens` and
    /// `output_tokens` for whichever of them is limited.
    #[must_use]
    pub fn cost(self) -> Cost {
        let mut cost = Cost::ONE;
        let total = self.input.saturating_add(self.output);
        let parts =
            [("tokens", total), ("input_tokens", self.input), ("output_tokens", self.output)];
        for (name, units) in parts {
            if let Ok(dimension) = Dimension::new(name) {
                cost.set(dimension, Amount::units(units));
            }
        }
        cost
    }
}

/// What an LLM request body asks for.
///
/// `None` when the body is not an LLM call (no `messages`, `input`, `prompt` or `contents`).
///
/// ```
/// let body = serde_json::json!({"model": "m", "max_tokens": 100,
///     "messages": [{"role": "user", "content": "Say hello."}]});
/// let tokens = paceline_core::estimate::tokens(&body).unwrap();
/// assert_eq!(tokens.output, 100);
/// assert!((10..20).contains(&tokens.input));
/// assert_eq!(paceline_core::estimate::tokens(&serde_json::json!({"q": "search"})), None);
/// ```
#[must_use]
pub fn tokens(body: &Value) -> Option<Tokens> {
    let fields = body.as_object()?;
    let prompts = ["messages", "input", "prompt", "contents"];
    if !prompts.iter().any(|name| fields.contains_key(*name)) {
        return None;
    }
    let read = ["messages", "input", "prompt", "contents", "system", "instructions", "tools"];
    let text: u64 = read.iter().filter_map(|name| fields.get(*name)).map(bytes_of_text).sum();
    let answers = fields.get("n").and_then(Value::as_u64).unwrap_or(1).clamp(1, 1_000);
    let output = ["max_completion_tokens", "max_output_tokens", "max_tokens"]
        .iter()
        .find_map(|name| fields.get(*name).and_then(Value::as_u64))
        // Embeddings have an input and no answer.
        .unwrap_or(if fields.contains_key("messages") { DEFAULT_OUTPUT } else { 0 });
    let input = text.div_ceil(BYTES_PER_TOKEN) + FRAME;
    Some(Tokens { input, output: output.saturating_mul(answers) })
}

/// The bytes of every string below, keys not counted.
fn bytes_of_text(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(|item| bytes_of_text(item) + 1).sum(),
        Value::Object(fields) => fields.values().map(bytes_of_text).sum(),
        Value::Number(_) => BYTES_PER_TOKEN,
        Value::Bool(_) | Value::Null => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_longest_allowed_answer_counts_for_each_choice() {
        let body = json!({"messages": [{"content": "abc"}], "max_tokens": 50, "n": 3});
        assert_eq!(tokens(&body).unwrap().output, 150);
    }

    #[test]
    fn an_embedding_has_no_answer() {
        let body = json!({"model": "e", "input": ["one text", "another"]});
        let tokens = tokens(&body).unwrap();
        assert!(tokens.output == 0 && tokens.input < 20);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let body = json!({"prompt": "x", "max_tokens": u64::MAX, "n": u64::MAX});
        let tokens = tokens(&body).unwrap();
        assert_eq!(tokens.output, u64::MAX);
        assert_eq!(tokens.cost().of(&Dimension::new("tokens").unwrap()), Amount::units(u64::MAX));
    }
}
