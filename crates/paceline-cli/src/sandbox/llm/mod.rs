//! Just enough of the LLM APIs for their SDKs: requests are read for what they cost, and answered
//! with words that depend on the seed and the prompt only.

mod anthropic;
mod openai;
mod stream;

use super::errors::json_response;
use super::plan::{Plan, scatter};
use axum::body::Body;
use axum::http::{Method, Response, StatusCode};
use serde_json::Value;

/// What a request that names no maximum reserves.
const DEFAULT_OUTPUT: u64 = 16;
/// Longest answer, whatever maximum a request names.
const LONGEST_ANSWER: u64 = 64;
/// Characters per token, the usual rule of thumb.
const CHARS_PER_TOKEN: u64 = 4;
/// One token each.
const WORDS: [&str; 16] = [
    "steady", "water", "wears", "the", "stone", "and", "patience", "finds", "an", "open", "door",
    "where", "haste", "meets", "only", "queues",
];

/// The endpoints that are more than an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Embeddings,
    Responses,
    Messages,
    Models,
}

impl Endpoint {
    pub(super) fn of(method: &Method, path: &str) -> Option<Self> {
        match (method.as_str(), path) {
            ("POST", "/v1/chat/completions") => Some(Self::Chat),
            ("POST", "/v1/embeddings") => Some(Self::Embeddings),
            ("POST", "/v1/responses") => Some(Self::Responses),
            ("POST", "/v1/messages") => Some(Self::Messages),
            ("GET", "/v1/models") => Some(Self::Models),
            _ => None,
        }
    }
}

/// A request to an LLM endpoint.
#[derive(Debug)]
pub(super) struct Ask {
    endpoint: Endpoint,
    body: Value,
    /// Estimated from the characters of the prompt.
    pub(super) input_tokens: u64,
    /// The most it may answer, which is what providers count when they admit it.
    pub(super) max_output_tokens: u64,
}

/// An answer, and how many tokens of its reservation it took.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) response: Response<Body>,
    pub(super) output_tokens: u64,
}

/// What an answer consists of.
#[derive(Debug)]
struct Answer {
    n: u64,
    model: String,
    created: i64,
    words: Vec<&'static str>,
    input_tokens: u64,
}

impl Ask {
    /// Reads a body; the error is what to tell the client.
    pub(super) fn read(endpoint: Endpoint, body: &[u8]) -> Result<Self, String> {
        if endpoint == Endpoint::Models {
            return Ok(Self { endpoint, body: Value::Null, input_tokens: 0, max_output_tokens: 0 });
        }
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            format!("We could not parse the JSON body of your request: {error}")
        })?;
        if !body.is_object() {
            return Err("The body of your request is not a JSON object.".to_owned());
        }
        let prompt = ["messages", "input", "prompt", "system", "instructions"];
        let chars: u64 = prompt.iter().filter_map(|key| body.get(key)).map(prompt_chars).sum();
        let max_output_tokens = match endpoint {
            Endpoint::Embeddings => 0,
            _ => max_output(&body)?,
        };
        let input_tokens = chars.div_ceil(CHARS_PER_TOKEN);
        Ok(Self { endpoint, body, input_tokens, max_output_tokens })
    }

    /// The answer to the `n`-th admitted request.
    pub(super) fn answer(&self, n: u64, plan: &Plan) -> Answered {
        let seed = plan.seed;
        let model = self.body.get("model").and_then(Value::as_str).unwrap_or("sandbox-1");
        let answer = Answer {
            n,
            model: model.to_owned(),
            created: jiff::Timestamp::now().as_second(),
            words: self.words(plan),
            input_tokens: self.input_tokens,
        };
        let flag = |pointer| self.body.pointer(pointer).and_then(Value::as_bool).unwrap_or(false);
        let streamed = flag("/stream");
        let response = match self.endpoint {
            Endpoint::Chat if streamed => stream::unnamed(&openai::chat_chunks(
                &answer,
                flag("/stream_options/include_usage"),
            )),
            Endpoint::Responses if streamed => stream::named(&openai::response_events(&answer)),
            Endpoint::Messages if streamed => stream::named(&anthropic::message_events(&answer)),
            Endpoint::Chat => json_response(StatusCode::OK, &openai::chat(&answer)),
            Endpoint::Responses => json_response(StatusCode::OK, &openai::response(&answer)),
            Endpoint::Messages => json_response(StatusCode::OK, &anthropic::message(&answer)),
            Endpoint::Embeddings => {
                json_response(StatusCode::OK, &openai::embeddings(&answer, &self.body, seed))
            }
            Endpoint::Models => json_response(StatusCode::OK, &openai::models()),
        };
        let spoken = self.max_output_tokens.min(answer.output_tokens());
        Answered { response, output_tokens: spoken }
    }

    /// As many words as asked for, else between one and half of what was reserved, so that usage stays
    /// below the reservation.
    fn words(&self, plan: &Plan) -> Vec<&'static str> {
        let key = scatter(plan.seed, self.input_tokens ^ self.max_output_tokens.rotate_left(32));
        let most = (self.max_output_tokens.min(2 * LONGEST_ANSWER) / 2).max(1);
        let word = |position| WORDS[(scatter(key, position) % WORDS.len() as u64) as usize];
        let few = 1 + key % most;
        (0..plan.answer_tokens.unwrap_or(few).min(self.max_output_tokens.max(1)))
            .map(word)
            .collect()
    }
}

impl Answer {
    fn output_tokens(&self) -> u64 {
        self.words.len() as u64
    }

    fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The text as it is streamed, a word at a time.
    fn pieces(&self) -> impl Iterator<Item = String> + '_ {
        let space = |position| if position == 0 { "" } else { " " };
        self.words.iter().enumerate().map(move |(at, word)| format!("{}{word}", space(at)))
    }
}

/// Characters of everything that a model would read. A number is a token that the client encoded.
fn prompt_chars(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Number(_) => CHARS_PER_TOKEN,
        Value::Array(parts) => parts.iter().map(prompt_chars).sum(),
        Value::Object(part) => {
            let read = ["content", "text", "input", "output", "arguments"];
            read.iter().filter_map(|key| part.get(*key)).map(prompt_chars).sum()
        }
        Value::Null | Value::Bool(_) => 0,
    }
}

fn max_output(body: &Value) -> Result<u64, String> {
    let names = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
    let stated = names.iter().find_map(|name| Some((name, body.get(name)?)));
    match stated.filter(|(_, value)| !value.is_null()) {
        None => Ok(DEFAULT_OUTPUT),
        Some((name, value)) => value.as_u64().ok_or_else(|| {
            format!("Invalid '{name}': expected an integer of at least 0, got {value} instead.")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use serde_json::json;

    fn ask(endpoint: Endpoint, body: &Value) -> Result<Ask, String> {
        Ask::read(endpoint, body.to_string().as_bytes())
    }

    #[test]
    fn a_request_costs_a_quarter_of_its_characters_and_its_maximum() {
        let chat = json!({"messages": [
            {"role": "system", "content": "sixteen chars ok"},
            {"role": "user", "content": [
                {"type": "text", "text": "äöü"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
        ]});
        let costs = |ask: Ask| (ask.input_tokens, ask.max_output_tokens);
        assert_eq!(ask(Endpoint::Chat, &chat).map(costs), Ok((5, 16)));
        let embeddings = json!({"input": [[1, 2, 3], "four"], "max_tokens": 9});
        assert_eq!(ask(Endpoint::Embeddings, &embeddings).map(costs), Ok((4, 0)));
        for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            assert_eq!(ask(Endpoint::Chat, &json!({name: 700})).map(costs), Ok((0, 700)));
            assert_eq!(ask(Endpoint::Chat, &json!({name: null})).map(costs), Ok((0, 16)));
            assert!(ask(Endpoint::Chat, &json!({name: "many"})).is_err_and(|e| e.contains(name)));
        }
    }

    fn plan_of(config: Config) -> Plan {
        Plan::new(&config).expect("a plan")
    }

    #[test]
    fn answers_depend_on_seed_and_prompt_and_stay_below_the_reservation() {
        for max in [0, 1, 2, 16, 1_000, u64::MAX] {
            let ask = ask(Endpoint::Chat, &json!({"max_tokens": max})).expect("valid");
            let plan = plan_of(Config { seed: 7, ..Config::default() });
            let words = ask.words(&plan);
            assert_eq!(words, ask.words(&plan));
            assert!(max < 2 || (words.len() as u64) < max, "{} of {max}", words.len());
            let plan = plan_of(Config { answer_tokens: Some(200), ..Config::default() });
            assert_eq!(ask.words(&plan).len() as u64, max.clamp(1, 200));
        }
    }
}
