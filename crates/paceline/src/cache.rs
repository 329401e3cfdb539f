//! Answers of models, given again to whoever asks the same (rule 28): which requests are the same, and which
//! may be answered so.

use crate::Error;
use paceline_store::{Answer, AnswerKey, Answers, Bounds, CannotOpen, Clock, Found, StoreError};
use serde::de::IgnoredAny;

/// Answers that are kept.
///
/// ```
/// use paceline::{Answer, Ask, Bounds, Cache, Clock};
///
/// let bounds = Bounds { entries: 1_000, bytes: 1 << 20, age: None };
/// let cache = Cache::open("memory", bounds, Clock::real())?;
/// let ask = Ask {
///     method: "POST",
///     url: "https://api.openai.com/v1/chat/completions",
///     headers: &[(b"content-type", b"application/json")],
///     body: br#"{"model": "gpt-4o", "messages": []}"#,
///     account: None,
/// };
/// let key = cache.key(&ask)?.unwrap();
/// cache.put(key, Answer { status: 200, ..Answer::default() })?;
/// assert!(cache.get(&key)?.is_some());
/// # Ok::<(), paceline::Error>(())
/// ```
#[derive(Debug)]
pub struct Cache {
    answers: Answers,
}

/// A request, as far as its answer may depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Its HTTP method.
    pub method: &'a str,
    /// The whole URL.
    pub url: &'a str,
    /// All headers, in any order.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// The body.
    pub body: &'a [u8],
    /// For whom it counts, where that is named.
    pub account: Option<&'a str>,
}

/// Where models are asked, and nothing is made or changed: the ends of paths.
const ASKING: [&str; 19] = [
    "/completions",
    "/responses",
    "/responses/input_tokens",
    "/embeddings",
    "/moderations",
    "/audio/speech",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/chat",
    "/v2/chat",
    "/v1/embed",
    "/v2/embed",
    "/rerank",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/converse",
    "/converse-stream",
    "/invoke",
];
/// The same at Google, behind the model's name.
const VERBS: [&str; 7] = [
    "generateContent",
    "streamGenerateContent",
    "embedContent",
    "batchEmbedContents",
    "countTokens",
    "rawPredict",
    "streamRawPredict",
];
/// Headers that differ between two requests that are the same otherwise: of the connection, of the program
/// that sends, and for tracing. Whatever else there is counts.
const VOLATILE: [&str; 21] = [
    "accept-encoding",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "b3",
    "baggage",
    "connection",
    "content-length",
    "content-type",
    "date",
    "host",
    "idempotency-key",
    "newrelic",
    "request-id",
    "sentry-trace",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "user-agent",
    "x-client-request-id",
    "x-goog-api-client",
    "x-request-id",
];
const VOLATILE_FAMILIES: [&str; 4] = ["x-stainless-", "x-b3-", "x-datadog-", "x-amzn-trace-"];
/// Cookies of Cloudflare, which stands before most providers and counts connections by them.
const VOLATILE_COOKIES: [&str; 4] = ["__cf_bm", "_cfuvid", "__cflb", "cf_clearance"];

impl Cache {
    /// Keeps answers in `memory` or `sqlite:///file.db`.
    ///
    /// # Errors
    /// [`Error::Storage`] for another place; [`Error::Unavailable`] when the file cannot be used.
    pub fn open(storage: &str, bounds: Bounds, clock: Clock) -> Result<Self, Error> {
        let answers = Answers::open(storage, bounds, clock).map_err(|error| match error {
            CannotOpen::Unavailable(error) => Error::Unavailable(error),
            CannotOpen::Storage(error) => Error::Storage(error),
            other => Error::Unavailable(StoreError::new(other)),
        })?;
        Ok(Self { answers })
    }

    /// The answers beneath.
    #[must_use]
    pub const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// What a request is known by; `None` for one whose answer is not to be kept: it does not only ask, is
    /// no JSON, or goes on with what the server keeps.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be used.
    pub fn key(&self, ask: &Ask<'_>) -> Result<Option<AnswerKey>, Error> {
        if !ask.only_asks() {
            return Ok(None);
        }
        let mut said = Vec::with_capacity(ask.body.len() + 512);
        ask.say(&mut said);
        self.hash("request", &said).map(Some)
    }

    /// The keyed hash of what can only mean one thing, among things of that kind.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be used.
    pub fn hash(&self, kind: &str, said: &[u8]) -> Result<AnswerKey, Error> {
        let mut hasher = blake3::Hasher::new_keyed(&self.answers.secret()?);
        hasher.update(kind.as_bytes()).update(b"\0").update(said);
        Ok(*hasher.finalize().as_bytes())
    }

    /// The answer with that key, unless it is too old.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be read.
    pub fn get(&self, key: &AnswerKey) -> Result<Option<Found>, Error> {
        Ok(self.answers.get(key)?)
    }

    /// Keeps an answer.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file cannot be written.
    pub fn put(&self, key: AnswerKey, answer: Answer) -> Result<Found, Error> {
        Ok(self.answers.put(key, answer)?)
    }
}

impl Ask<'_> {
    fn only_asks(&self) -> bool {
        /// What makes an answer depend on more than its request.
        #[derive(serde::Deserialize)]
        struct Fields {
            background: Option<bool>,
            conversation: Option<IgnoredAny>,
            container: Option<IgnoredAny>,
        }
        if self.method != "POST" || !self.is_json() {
            return false;
        }
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        let verb = path.rsplit_once(':').map_or("", |(_, verb)| verb);
        if !ASKING.iter().any(|end| path.ends_with(end)) && !VERBS.contains(&verb) {
            return false;
        }
        serde_json::from_slice::<Fields>(self.body).is_ok_and(|fields| {
            fields.background != Some(true)
                && fields.conversation.is_none()
                && fields.container.is_none()
        })
    }

    fn is_json(&self) -> bool {
        let kind = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
        kind.is_some_and(|(_, kind)| kind.to_ascii_lowercase().starts_with(b"application/json"))
    }

    /// Writes down what the answer may depend on, so that no two requests read the same.
    fn say(&self, said: &mut Vec<u8>) {
        let mut part = |bytes: &[u8]| {
            said.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            said.extend_from_slice(bytes);
        };
        part(self.account.map_or(b"", |_| b"account"));
        part(self.account.unwrap_or_default().as_bytes());
        part(self.url.as_bytes());
        part(self.body);
        let mut headers: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let name = name.to_ascii_lowercase();
            if name == b"cookie" {
                headers.push((name, lasting_cookies(value)));
            } else if !is_volatile(&name) {
                headers.push((name, value.to_vec()));
            }
        }
        // Stable: of two with one name, the order counts.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, value) in
            headers.iter().filter(|(name, value)| name != b"cookie" || !value.is_empty())
        {
            part(name);
            part(value);
        }
    }
}

fn is_volatile(name: &[u8]) -> bool {
    VOLATILE.iter().any(|it| it.as_bytes() == name)
        || VOLATILE_FAMILIES.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// Whether a cookie of that name says nothing of whose request it is.
#[must_use]
pub fn is_volatile_cookie(name: &str) -> bool {
    VOLATILE_COOKIES.contains(&name)
}

fn lasting_cookies(header: &[u8]) -> Vec<u8> {
    let header = String::from_utf8_lossy(header);
    let cookies = header.split(';').map(str::trim);
    let lasting =
        cookies.filter(|it| !is_volatile_cookie(it.split('=').next().unwrap_or_default()));
    lasting.collect::<Vec<_>>().join("; ").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    type Headers = [(&'static [u8], &'static [u8])];
    const JSON: (&[u8], &[u8]) = (b"Content-Type", b"application/json");
    const URL: &str = "https://api.openai.com/v1/chat/completions";
    const BODY: &[u8] = br#"{"model": "gpt-4o"}"#;

    fn cache() -> Cache {
        let bounds = Bounds { entries: 10, bytes: 1 << 20, age: Some(Duration::from_secs(60)) };
        Cache::open("memory", bounds, Clock::real()).unwrap()
    }

    fn ask<'a>(headers: &'a Headers) -> Ask<'a> {
        Ask { method: "POST", url: URL, headers, body: BODY, account: None }
    }

    #[test]
    fn whatever_changes_an_answer_is_part_of_its_key() {
        let cache = cache();
        let key = |ask: &Ask<'_>| cache.key(ask).unwrap().unwrap();
        let plain = ask(&[JSON]);
        let headers = |headers: &'static Headers| Ask { headers, ..plain };
        let different = [
            plain,
            Ask { url: "https://api.openai.com/v1/completions", ..plain },
            Ask { url: "https://api.openai.com/v1/chat/completions?api-version=1", ..plain },
            Ask { body: br#"{"model": "gpt-4o", "stream": true}"#, ..plain },
            Ask { account: Some("team-a"), ..plain },
            Ask { account: Some(""), ..plain },
            headers(&[JSON, (b"authorization", b"Bearer one")]),
            headers(&[JSON, (b"authorization", b"Bearer two")]),
            headers(&[JSON, (b"openai-organization", b"Bearer two")]),
            headers(&[JSON, (b"anthropic-version", b"2023-06-01")]),
            headers(&[JSON, (b"anthropic-beta", b"one")]),
            headers(&[JSON, (b"anthropic-beta", b"one"), (b"anthropic-beta", b"two")]),
            headers(&[JSON, (b"anthropic-beta", b"two"), (b"anthropic-beta", b"one")]),
            headers(&[JSON, (b"cookie", b"session=1")]),
        ];
        for (n, one) in different.iter().enumerate() {
            for (m, other) in different.iter().enumerate() {
                assert_eq!(key(one) == key(other), n == m, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_differs_from_one_sending_to_the_next_is_no_part_of_it() {
        let cache = cache();
        let key = |more: &[(&'static [u8], &'static [u8])]| {
            let headers = [&[JSON, (b"x-api-key", b"k")], more].concat();
            cache.key(&Ask { headers: &headers, ..ask(&[]) }).unwrap().unwrap()
        };
        let plain = key(&[]);
        assert_eq!(key(&[(b"X-Stainless-Retry-Count", b"2")]), plain);
        assert_eq!(key(&[(b"Idempotency-Key", b"x"), (b"User-Agent", b"x")]), plain);
        assert_eq!(key(&[(b"traceparent", b"x")]), plain);
        assert_eq!(key(&[(b"cookie", b"__cf_bm=1; _cfuvid=2")]), plain);
        assert_ne!(key(&[(b"cookie", b"__cf_bm=1; session=2")]), plain);
        let turned: &Headers = &[(b"X-API-Key", b"k"), JSON];
        assert_eq!(cache.key(&ask(turned)).unwrap(), Some(plain));
    }

    #[test]
    fn a_key_is_of_no_use_elsewhere() {
        let key = |cache: Cache| cache.key(&ask(&[JSON])).unwrap();
        assert_ne!(key(cache()), key(cache()));
    }

    #[test]
    fn only_what_only_asks_is_kept() {
        let cache = cache();
        let is_kept = |ask: &Ask<'_>| cache.key(ask).unwrap().is_some();
        let plain = ask(&[JSON]);
        let at = |url| Ask { url, ..plain };
        for url in [
            URL,
            "https://api.anthropic.com/v1/messages",
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
            "https://h/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
            "http://localhost:11434/api/chat",
        ] {
            assert!(is_kept(&at(url)), "{url}");
        }
        for url in [
            "https://api.openai.com/v1/threads/t/messages",
            "https://api.openai.com/v1/responses/r/cancel",
            "https://api.openai.com/v1/batches",
            "https://api.openai.com/v1/files",
            "https://api.openai.com/v1/images/generations",
            "https://h/v1beta/cachedContents",
            "",
        ] {
            assert!(!is_kept(&at(url)), "{url}");
        }
        assert!(!is_kept(&Ask { method: "GET", ..plain }));
        assert!(!is_kept(&ask(&[])));
        assert!(!is_kept(&ask(&[(b"content-type", b"multipart/form-data; boundary=x")])));
        for (body, kept) in [
            (br#"{"background": true}"# as &[u8], false),
            (br#"{"background": false}"#, true),
            (br#"{"conversation": "conv_1"}"#, false),
            (br#"{"conversation": null}"#, true),
            (br#"{"container": {"id": "c"}}"#, false),
            (b"not json", false),
            (b"[]", false),
            (b"", false),
        ] {
            assert_eq!(is_kept(&Ask { body, ..plain }), kept, "{body:?}");
        }
    }
}
