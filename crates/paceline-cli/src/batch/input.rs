//! One line of the input: a request.

use paceline::{Amount, Cost, Dimension, Scope, llm};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use url::Url;

/// A request to send.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The number of its line, from 1.
    pub(super) line: u64,
    /// The user's name for it, as JSON; the line number when there is none.
    pub(super) id: Value,
    pub(super) method: reqwest::Method,
    pub(super) url: Url,
    pub(super) headers: reqwest::header::HeaderMap,
    pub(super) body: Option<Body>,
    pub(super) cost: Cost,
    /// Redirected to another origin, which must not see the batch's credentials.
    pub(super) foreign: bool,
}

/// What is sent with it.
#[derive(Debug, Clone)]
pub(super) enum Body {
    Json(Box<RawValue>),
    Text(String),
}

/// A line as the user writes it: our own shape, or that of OpenAI's batch files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: Option<Value>,
    custom_id: Option<Value>,
    url: Option<String>,
    path: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(default)]
    cost: BTreeMap<String, f64>,
}

impl Request {
    /// Reads one line: a JSON object, or a plain URL.
    ///
    /// The error says what is wrong and what was expected.
    pub(super) fn read(line: u64, text: &str, base: Option<&Url>) -> Result<Self, String> {
        if !text.starts_with('{') {
            return Self::plain(line, text, base);
        }
        let fields: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let target = match (&fields.url, &fields.path) {
            (Some(target), None) | (None, Some(target)) => target,
            (Some(_), Some(_)) => return Err("\"url\" and \"path\" exclude each other".into()),
            (None, None) => return Err("no \"url\" (or \"path\", with --base-url)".into()),
        };
        let body = fields.body.map(Body::read).transpose()?;
        let default = if body.is_some() { "POST" } else { "GET" };
        let method = fields.method.as_deref().unwrap_or(default).to_ascii_uppercase();
        let method = method.parse().map_err(|_| format!("bad method {method:?}"))?;
        let id = match fields.id.or(fields.custom_id) {
            None => Value::from(line),
            Some(id @ (Value::String(_) | Value::Number(_))) => id,
            Some(_) => return Err("\"id\" is neither a string nor a number".into()),
        };
        let cost = cost(&fields.cost, body.as_ref())?;
        let headers = headers(&fields.headers)?;
        Ok(Self {
            line,
            id,
            method,
            url: resolve(target, base)?,
            headers,
            body,
            cost,
            foreign: false,
        })
    }

    fn plain(line: u64, text: &str, base: Option<&Url>) -> Result<Self, String> {
        Ok(Self {
            line,
            id: Value::from(line),
            method: reqwest::Method::GET,
            url: resolve(text, base)?,
            headers: reqwest::header::HeaderMap::new(),
            body: None,
            cost: Cost::ONE,
            foreign: false,
        })
    }

    /// The scope of its host, under which limits of the command line are declared.
    pub(super) fn host(&self) -> String {
        Scope::parse(self.url.as_str()).map(|scope| scope.host().to_owned()).unwrap_or_default()
    }
}

impl Body {
    fn read(raw: &RawValue) -> Result<Self, String> {
        if raw.get().starts_with('"') {
            let text = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
            return Ok(Self::Text(text));
        }
        Ok(Self::Json(raw.to_owned()))
    }
}

/// The cost that the line states, else what an LLM body asks for, else one request.
fn cost(stated: &BTreeMap<String, f64>, body: Option<&Body>) -> Result<Cost, String> {
    let estimated = match body {
        Some(Body::Json(raw)) => llm::Request::read(raw.get().as_bytes()).map(|asked| {
            let cost = llm::Calibration::default().cost(&asked);
            as_admitted(cost, raw)
        }),
        _ => None,
    };
    let mut cost = estimated.unwrap_or(Cost::ONE);
    for (name, amount) in stated {
        let dimension = Dimension::new(name).map_err(|error| error.to_string())?;
        cost.set(dimension, Amount::from_f64(*amount).map_err(|error| error.to_string())?);
    }
    Ok(cost)
}

/// Servers do not tokenise before they admit: OpenAI estimates by the number of characters
/// (<https://platform.openai.com/docs/guides/rate-limits>), four of which are taken for a token. Where that is
/// more than the estimate, it is what counts.
fn as_admitted(mut cost: Cost, body: &RawValue) -> Cost {
    let chars = serde_json::from_str(body.get()).map_or(0, |body| characters(&body));
    let input = Dimension::new("input_tokens").map(|input| cost.of(&input)).unwrap_or_default();
    let more = Amount::units(chars.div_ceil(4)).minus(input);
    for name in ["tokens", "input_tokens"] {
        if let Ok(dimension) = Dimension::new(name) {
            let amount = cost.of(&dimension);
            if !amount.is_zero() {
                cost.set(dimension, amount.plus(more));
            }
        }
    }
    cost
}

/// How many characters of text a body asks to be read.
fn characters(value: &Value) -> u64 {
    use Value::{Array, Object, String};
    match value {
        String(text) => text.chars().count() as u64,
        Array(parts) => parts.iter().map(characters).sum(),
        // What is not text is not counted by its characters.
        Object(fields) => fields
            .iter()
            .filter(|(name, _)| {
                !matches!(name.as_str(), "model" | "role" | "type" | "url" | "data")
            })
            .map(|(_, field)| characters(field))
            .sum(),
        _ => 0,
    }
}

fn headers(named: &BTreeMap<String, String>) -> Result<reqwest::header::HeaderMap, String> {
    let mut headers = reqwest::header::HeaderMap::new();
    for (name, value) in named {
        let bad = || format!("bad header {name:?}");
        let key: reqwest::header::HeaderName = name.parse().map_err(|_| bad())?;
        headers.insert(key, value.parse().map_err(|_| bad())?);
    }
    Ok(headers)
}

fn resolve(target: &str, base: Option<&Url>) -> Result<Url, String> {
    let url = match (Url::parse(target), base) {
        (Ok(url), _) => url,
        (Err(_), Some(base)) => join(base, target)?,
        (Err(url::ParseError::RelativeUrlWithoutBase), None) if target.starts_with('/') => {
            return Err(format!("path {} needs --base-url", shown(target)));
        }
        (Err(error), None) => {
            return Err(format!("bad URL {}: {error}; expected https://host/path", shown(target)));
        }
    };
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(format!("bad URL: {}: is not http or https", url.scheme()))
    }
}

/// A path under the base. What the base has in front of its host's root stays, unless the path
/// begins with it: both `https://h/v1` and `https://gateway/openai` take `/v1/embeddings`.
fn join(base: &Url, target: &str) -> Result<Url, String> {
    let bad = |error| format!("bad path {}: {error}", shown(target));
    let prefix = base.path().trim_end_matches('/');
    let inside = target.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    if !target.starts_with('/') || inside {
        return base.join(target).map_err(bad);
    }
    base.join(&format!("{prefix}{target}")).map_err(bad)
}

/// A text for an error: without what may be a password, and not too long.
fn shown(text: &str) -> String {
    let visible =
        text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"));
    match visible.char_indices().nth(100) {
        Some((end, _)) => format!("{:?}…", &visible[..end]),
        None => format!("{visible:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, String> {
        Request::read(7, text, Some(&Url::parse("https://api.example.com/v1/").unwrap()))
    }

    /// Servers admit by characters, so to charge less would run ahead of their count.
    #[test]
    fn a_prompt_is_charged_a_quarter_of_its_characters_at_the_least() {
        let tokens = |content: &str| {
            let body = serde_json::json!({
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 50,
            });
            let url = "https://a.example/v1/chat/completions";
            let line = serde_json::json!({"url": url, "body": body}).to_string();
            read(&line).unwrap().cost.of(&Dimension::new("tokens").unwrap()).whole()
        };
        // Words that are a token each, of five characters with their space.
        assert!(tokens(&"word ".repeat(200)) >= 250 + 50);
        // What takes more tokens than that is charged what it takes.
        assert!(tokens(&"1 2 3 ".repeat(100)) > 150 + 50);
    }

    #[test]
    fn every_input_shape_is_read() {
        let own =
            read(r#"{"url": "https://a.example/x", "id": "one", "cost": {"usd": 0.5}}"#).unwrap();
        assert_eq!((own.id, own.method.as_str()), (Value::from("one"), "GET"));
        assert_eq!(own.cost.to_string(), "requests=1, usd=0.5");
        let openai = read(
            r#"{"custom_id": "q", "method": "post", "url": "/v1/chat/completions",
                "body": {"messages": [{"content": "hi"}], "max_tokens": 90}}"#,
        )
        .unwrap();
        assert_eq!(openai.url.as_str(), "https://api.example.com/v1/chat/completions");
        assert!(openai.cost.to_string().starts_with("requests=1, tokens="));
        let plain = read("https://b.example/").unwrap();
        assert_eq!((plain.id, plain.line), (Value::from(7), 7));
        let relative = read(r#"{"path": "items", "body": "text"}"#).unwrap();
        assert_eq!(relative.url.as_str(), "https://api.example.com/v1/items");
        assert_eq!(relative.method, reqwest::Method::POST);
    }

    #[test]
    fn a_base_with_a_path_keeps_it() {
        let read = |base: &str| {
            let base = Url::parse(base).unwrap();
            Request::read(1, r#"{"path": "/v1/chat"}"#, Some(&base)).unwrap().url.to_string()
        };
        assert_eq!(
            read("https://gateway.example/openai"),
            "https://gateway.example/openai/v1/chat"
        );
        assert_eq!(read("https://api.example.com/v1"), "https://api.example.com/v1/chat");
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (text, part) in [
            (r#"{"url": "https://a.example""#, "EOF"),
            (r#"{"urll": "https://a.example"}"#, "unknown field `urll`"),
            (r#"{"id": "x"}"#, "no \"url\""),
            (r#"{"url": "x", "path": "y"}"#, "exclude"),
            (r#"{"url": "https://a.example", "method": "GE T"}"#, "bad method"),
            (r#"{"url": "https://a.example", "cost": {"tokens": -1}}"#, "bad cost"),
            (r#"{"url": "https://a.example", "id": []}"#, "neither"),
            (r#"{"url": "https://a.example", "headers": {"a b": "c"}}"#, "bad header"),
            ("https://user:hunter2@exa mple.com", "…@exa mple.com"),
            ("ftp://a.example", "not http"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let error = Request::read(1, "not a url", None).unwrap_err();
        assert!(error.contains("expected https://"), "{error}");
    }
}
