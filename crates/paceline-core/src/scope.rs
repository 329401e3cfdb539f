//! Endpoint scopes (rule 15): what a URL belongs to, and which scopes may govern it.
//!
//! Between a host and its paths stand the buckets that the server itself names, such as GitHub's
//! `search`: their keys end in `/#search`, which no URL's can. Another account of the same host is
//! another host as far as scopes go: its keys begin with `alice@` (rule 17).
//!
//! A model is a scope as well, `openai:gpt-4o` (rule 16). It has neither scheme nor path, and stands
//! for itself: what it shares with others are rules, not levels.

use crate::Error;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt;

/// A normalised endpoint: scheme and host, optionally a path.
///
/// Query, fragment, trailing slash, userinfo and default port are dropped, the case of the host is
/// folded, and a bare domain means https. Its text is the key under which a store keeps it; `https`
/// is left out of the text so that the usual URL can be borrowed instead of copied.
///
/// ```
/// use paceline_core::Scope;
/// let scope = Scope::parse("https://user:pw@API.example.com:443/v1/users/?page=2")?;
/// assert_eq!(scope.to_string(), "https://api.example.com/v1/users");
/// let wider: Vec<_> = scope.candidates().collect();
/// assert_eq!(wider, ["api.example.com/v1/users", "api.example.com/v1", "api.example.com"]);
/// # Ok::<(), paceline_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope<'a> {
    text: Cow<'a, str>,
    /// Where the path begins in `text`; its length when there is none.
    path: usize,
    /// The key of the server's own bucket that it is counted in, if that is known.
    bucket: Option<Box<str>>,
}

impl<'a> Scope<'a> {
    /// Reads a URL, or a host with an optional path.
    ///
    /// # Errors
    /// [`Error::Scope`] when there is no host in it.
    #[inline]
    pub fn parse(input: &'a str) -> Result<Self, Error> {
        match plain(input) {
            Some(scope) => Ok(scope),
            None if is_model(after_account(input)) => Ok(model(input)),
            None => general(input),
        }
    }

    /// The scope of a model at a provider: `openai:gpt-4o`. Either may be `*`, for what all of them share.
    ///
    /// ```
    /// use paceline_core::Scope;
    /// let scope = Scope::model("openrouter", "meta-llama/llama-3");
    /// assert_eq!(scope.to_string(), "openrouter:meta-llama/llama-3");
    /// assert_eq!(Scope::parse("openrouter:meta-llama/llama-3")?, scope);
    /// # Ok::<(), paceline_core::Error>(())
    /// ```
    #[must_use]
    pub fn model(provider: &str, model: &str) -> Scope<'static> {
        let [provider, model] = [provider, model].map(|name| utf8_percent_encode(name, ODD));
        let text = match format!("{provider}:{model}") {
            all if all == "*:*" => "*".to_owned(),
            text => text,
        };
        Scope::new(Cow::Owned(text.clone()), text.len())
    }

    /// Reads what a scope is shown as, which may be a bucket that the server named: in
    /// `https://api.github.com/#search` a URL would have a fragment, which says nothing.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_shown(input: &'a str) -> Result<Self, Error> {
        match input.split_once("/#") {
            Some((host, bucket)) if !bucket.is_empty() => {
                let scope = Self::parse(host)?;
                let text = format!("{}/#{bucket}", scope.key());
                Ok(Self::new(Cow::Owned(text), scope.path))
            }
            _ => Self::parse(input),
        }
    }

    /// The scope of a store's key: the text of a scope that was parsed before.
    #[must_use]
    pub fn from_key(key: &'a str) -> Self {
        let host = key.find("://").map_or(0, |at| at + 3);
        let path = key[host..].find('/').map_or(key.len(), |at| host + at);
        Self::new(Cow::Borrowed(key), path)
    }

    const fn new(text: Cow<'a, str>, path: usize) -> Self {
        Self { text, path, bucket: None }
    }

    /// The same scope of one of several accounts, whose requests are counted apart (rule 17). The
    /// name is not a secret: it is part of keys and messages.
    ///
    /// # Errors
    /// [`Error::Account`] for a name that is none.
    pub fn of_account(self, account: &str) -> Result<Scope<'static>, Error> {
        Self::check_account(account)?;
        let text = format!("{account}@{}", self.text);
        Ok(Scope {
            path: self.path + account.len() + 1,
            text: Cow::Owned(text),
            ..self.into_owned()
        })
    }

    /// Checks that an account is named by a word, and not by its secret.
    ///
    /// # Errors
    /// [`Error::Account`] when it is not.
    pub fn check_account(name: &str) -> Result<(), Error> {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
        match (1..=64).contains(&name.len()) && name.bytes().all(is_word) {
            true => Ok(()),
            false => Err(Error::Account),
        }
    }

    /// The same scope, counted by the server in the bucket of that name.
    #[must_use]
    pub fn in_bucket(self, name: &str) -> Self {
        let bucket = Some(self.bucket_key(name).into());
        Self { bucket, ..self }
    }

    /// The key of the bucket of that name on this host.
    #[must_use]
    pub fn bucket_key(&self, name: &str) -> String {
        format!("{}/#{name}", self.host())
    }

    /// Whether this is a bucket that a server has named.
    #[must_use]
    pub fn is_bucket(&self) -> bool {
        self.text[self.path..].starts_with("/#")
    }

    /// Whether this is a model.
    #[must_use]
    pub fn is_model(&self) -> bool {
        is_model(&self.text[self.account_length()..])
    }

    /// The account that it belongs to, where there are several.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.host().split_once('@').map(|(account, _)| account)
    }

    /// The scope that is the next wider one than that of `key`, one of its candidates.
    #[must_use]
    pub fn wider(&self, key: &str) -> Option<Scope<'_>> {
        let wider = self.candidates().skip_while(|candidate| *candidate != key).nth(1)?;
        let bucket = self.bucket.clone().filter(|bucket| **bucket != *key);
        Some(Scope { bucket, ..Scope::from_key(wider) })
    }

    /// Its text, which is its key in a store: `api.example.com/v1`, `http://localhost:8080`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.text
    }

    /// The key of its host alone.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.text[..self.path]
    }

    /// The name of its host: without scheme, account and port.
    #[must_use]
    pub fn host_name(&self) -> &str {
        let host = self.host();
        let host = host.rsplit_once("://").map_or(host, |(_, host)| host);
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        host.split_once(':').map_or(host, |(host, _)| host)
    }

    /// How many path segments it has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.text[self.path..].matches('/').count()
    }

    /// The keys of the scopes that may govern it, the narrowest first, whole segments only.
    pub fn candidates(&self) -> impl Iterator<Item = &str> {
        let mut end = self.text.len();
        let paths = std::iter::from_fn(move || {
            let narrower = (end > self.path).then(|| &self.text[..end])?;
            end = self.path + self.text[self.path..end].rfind('/').unwrap_or(0);
            Some(narrower)
        });
        paths.chain(self.bucket.as_deref()).chain(std::iter::once(self.host()))
    }

    /// The segments of its path.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.text[self.path..].split('/').skip(1)
    }

    /// Whether `key` is this scope or lies below it.
    #[must_use]
    pub fn covers(&self, key: &str) -> bool {
        key.strip_prefix(self.key()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The same scope over plain http, for a bare host that only http has taught about.
    #[must_use]
    pub fn over_http(&self) -> Option<Scope<'static>> {
        if self.text.contains("://") || self.is_model() {
            return None;
        }
        let scheme = "http://";
        let (account, rest) = self.text.split_at(self.account_length());
        Some(Scope::new(Cow::Owned(format!("{account}{scheme}{rest}")), self.path + scheme.len()))
    }

    /// The length of the account with its `@`.
    fn account_length(&self) -> usize {
        self.account().map_or(0, |account| account.len() + 1)
    }

    /// The same scope, owning its text.
    #[must_use]
    pub fn into_owned(self) -> Scope<'static> {
        let Self { text, path, bucket } = self;
        Scope { text: Cow::Owned(text.into_owned()), path, bucket }
    }
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (account, rest) = self.text.split_at(self.account_length());
        f.write_str(account)?;
        if is_model(rest) {
            return f.write_str(&rest.replace("%2F", "/"));
        }
        if !rest.contains("://") {
            f.write_str("https://")?;
        }
        f.write_str(rest)
    }
}

/// The usual case, without an allocation: lower-case https or bare host, plain path. Anything that
/// is not plainly that is left to the URL parser.
fn plain(input: &str) -> Option<Scope<'_>> {
    let text = input.strip_prefix("https://").unwrap_or(input);
    let host = plain_host(text.as_bytes())?;
    let rest = &text[host..];
    if rest.is_empty() {
        return Some(Scope::new(Cow::Borrowed(text), host));
    }
    let path = plain_path(rest.as_bytes())?;
    Some(Scope::new(Cow::Borrowed(&text[..host + path]), host))
}

/// What cannot stand in the name of a model within a key.
const ODD: &AsciiSet =
    &CONTROLS.add(b' ').add(b'#').add(b'%').add(b'/').add(b'?').add(b'@').add(b'{').add(b'}');

/// Whether a text without an account is a model: `provider:model`, or `*`. A port is none, and what has an
/// `@` may hold a password.
fn is_model(text: &str) -> bool {
    let Some((provider, model)) = text.split_once(':') else { return text == "*" };
    let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'%' | b'*');
    let port = model.split('/').next().unwrap_or_default();
    let is_port = port.bytes().all(|b| b.is_ascii_digit());
    let odd = |b: u8| b.is_ascii_whitespace() || matches!(b, b'@' | b'{' | b'}');
    !provider.is_empty()
        && provider.bytes().all(named)
        && !matches!(provider, "http" | "https")
        && !is_port
        && !model.bytes().any(odd)
}

/// What stands behind an account, as a scope shows it.
fn after_account(text: &str) -> &str {
    match text.split_once('@') {
        Some((account, rest)) if Scope::check_account(account).is_ok() => rest,
        _ => text,
    }
}

/// A model as its key or as users write it, which may hold a slash.
fn model(input: &str) -> Scope<'_> {
    let text = match input.contains('/') {
        true => Cow::Owned(input.replace('/', "%2F")),
        false => Cow::Borrowed(input),
    };
    let path = text.len();
    Scope::new(text, path)
}

const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const DOT: u8 = 4;
const DASH: u8 = 8;

/// What each byte is in a host: its class below, and above it the classes that may not follow. An
/// empty label is none, and two dashes may hide an encoded name.
const HOST: [u8; 256] = {
    let mut classes = [0; 256];
    let mut b: u8 = 0;
    while b < 128 {
        classes[b as usize] = match b {
            b'a'..=b'z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'.' => DOT | (DOT | DASH) << 4,
            b'-' => DASH | (DOT | DASH) << 4,
            _ => 0,
        };
        b += 1;
    }
    classes
};

/// The length of a host of lower-case letters, digits, single dots and dashes, the last label of
/// which is no number in disguise.
fn plain_host(bytes: &[u8]) -> Option<usize> {
    let (mut end, mut label, mut wrong, mut forbidden) = (0, 0, 0, DOT | DASH);
    let mut opens = true;
    for b in bytes {
        let class = HOST[usize::from(*b)];
        if class == 0 {
            break;
        }
        wrong |= class & forbidden;
        label = if opens { class } else { label };
        opens = class & DOT != 0;
        forbidden = class >> 4;
        end += 1;
    }
    (wrong == 0 && !opens && label == LETTER && end <= 253).then_some(end)
}

/// The length of the path before a query or a fragment, without its last slash: whole, ordinary
/// segments, none empty, none with a dot in front, nothing encoded.
fn plain_path(bytes: &[u8]) -> Option<usize> {
    let (mut end, mut after_slash) = (0, false);
    for b in bytes {
        match b {
            b'?' | b'#' => break,
            b'/' | b'.' if after_slash => return None,
            b'/' => after_slash = true,
            _ if end == 0 => return None,
            b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                after_slash = false;
            }
            _ => return None,
        }
        end += 1;
    }
    // What is dropped must not be what no URL can hold.
    let dropped = bytes.get(end..)?;
    if dropped.iter().any(u8::is_ascii_control) {
        return None;
    }
    Some(end - usize::from(after_slash))
}

fn general(input: &str) -> Result<Scope<'static>, Error> {
    let trimmed = input.trim();
    // As it is shown: the account first, which in front of a scheme no URL has.
    if let Some((account, url)) = trimmed.split_once('@')
        && (url.starts_with("https://") || url.starts_with("http://"))
        && !account.contains("://")
    {
        return Scope::parse(url)?.of_account(account);
    }
    // Never echo what may hold a password.
    let shown = || match trimmed.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => trimmed.to_owned(),
    };
    let refuse = |reason: &str| Error::Scope { input: shown(), reason: reason.to_owned() };
    if trimmed.is_empty() {
        return Err(refuse("it is empty"));
    }
    let bare = !trimmed.contains("://");
    if bare && trimmed.starts_with('/') {
        return Err(refuse("it has no host"));
    }
    let parsed = if bare {
        url::Url::parse(&format!("https://{trimmed}"))
    } else {
        url::Url::parse(trimmed)
    };
    let parsed = parsed.map_err(|error| refuse(&error.to_string()))?;
    let Some(host) = parsed.host_str().filter(|host| !host.is_empty()) else {
        return Err(refuse("it has no host"));
    };
    let mut text = match parsed.scheme() {
        "https" => String::new(),
        scheme => format!("{scheme}://"),
    };
    text.push_str(host);
    if let Some(port) = parsed.port() {
        text.push_str(&format!(":{port}"));
    }
    let path = text.len();
    for segment in parsed.path().split('/').filter(|segment| !segment.is_empty()) {
        text.push('/');
        text.push_str(segment);
    }
    Ok(Scope::new(Cow::Owned(text), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rule_15_a_scope_is_scheme_host_and_path() {
        for (input, expected) in [
            ("https://api.github.com/users/octocat", "https://api.github.com/users/octocat"),
            ("api.github.com", "https://api.github.com"),
            ("API.GitHub.com:443/", "https://api.github.com"),
            ("http://api.github.com:80", "http://api.github.com"),
            ("http://localhost:8080/a//b/", "http://localhost:8080/a/b"),
            ("localhost:8080", "https://localhost:8080"),
            ("https://user:secret@api.example.com/x?y=1#z", "https://api.example.com/x"),
            ("https://api.example.com?next=/a/b", "https://api.example.com"),
            ("https://bücher.example/", "https://xn--bcher-kva.example"),
            ("https://[::1]:9000/v1/", "https://[::1]:9000/v1"),
            ("https://a.example/x/../y", "https://a.example/y"),
        ] {
            assert_eq!(Scope::parse(input).unwrap().to_string(), expected, "{input}");
        }
    }

    #[test]
    fn rule_15_whole_segments_only() {
        let search = Scope::parse("api.example.com/search").unwrap();
        assert!(search.covers("api.example.com/search/x"));
        assert!(!search.covers("api.example.com/searching"));
        assert!(!search.covers("api.example.com"));
        let url = Scope::parse("https://api.example.com/searching?q=1").unwrap();
        assert!(url.candidates().all(|key| key != search.key()));
    }

    #[test]
    fn rule_15_the_servers_own_bucket_stands_between_the_host_and_its_paths() {
        let url = Scope::parse("https://api.github.com/search/issues?q=1").unwrap();
        let scope = url.in_bucket("search");
        let keys: Vec<_> = scope.candidates().collect();
        let [path, parent, bucket, host] = keys[..] else { panic!("{keys:?}") };
        assert_eq!((path, parent), ("api.github.com/search/issues", "api.github.com/search"));
        assert_eq!((bucket, host), ("api.github.com/#search", "api.github.com"));
        assert!(Scope::from_key(host).covers(bucket));
        assert_eq!(Scope::from_key(bucket).to_string(), "https://api.github.com/#search");
        let shown = Scope::parse_shown("https://api.github.com/#search").unwrap();
        assert_eq!(shown.candidates().collect::<Vec<_>>(), [bucket, host]);
        // A fragment of a URL says nothing.
        assert_eq!(Scope::parse("https://api.github.com/#search").unwrap().key(), host);
    }

    #[test]
    fn rule_17_accounts_are_counted_apart() {
        let scope = |text| Scope::parse(text).unwrap().of_account("alice").unwrap();
        let alice = scope("https://api.example.com/v1");
        assert_eq!(alice.to_string(), "alice@https://api.example.com/v1");
        assert_eq!(alice.host(), "alice@api.example.com");
        assert_eq!(Scope::parse(&alice.to_string()).unwrap(), alice);
        assert_eq!(Scope::from_key(alice.key()), alice);
        assert_eq!(scope("http://a.example").to_string(), "alice@http://a.example");
        let http = alice.over_http().unwrap();
        assert_eq!(http.to_string(), "alice@http://api.example.com/v1");
        assert_eq!(http.host(), "alice@http://api.example.com");
        for bad in ["", "a b", "a@b", "a/b", &"a".repeat(65)] {
            let scope = Scope::parse("api.example.com").unwrap();
            assert_eq!(scope.of_account(bad), Err(Error::Account), "{bad:?}");
        }
    }

    #[test]
    fn rule_16_a_model_is_a_scope_of_its_own() {
        for (provider, name, shown) in [
            ("openai", "gpt-4o", "openai:gpt-4o"),
            ("openrouter", "meta-llama/llama-3:free", "openrouter:meta-llama/llama-3:free"),
            ("google", "claude@2024 x", "google:claude%402024%20x"),
            ("llm.internal", "größe", "llm.internal:gr%C3%B6%C3%9Fe"),
            ("openai", "*", "openai:*"),
            ("*", "*", "*"),
        ] {
            let scope = Scope::model(provider, name);
            assert_eq!(scope.to_string(), shown);
            assert_eq!(Scope::parse(shown).unwrap(), scope);
            assert_eq!(Scope::parse(scope.key()).unwrap(), scope);
            assert_eq!(Scope::from_key(scope.key()), scope);
            assert_eq!(scope.candidates().collect::<Vec<_>>(), [scope.key()]);
            assert!(scope.is_model() && scope.over_http().is_none());
            let alice = scope.clone().of_account("alice").unwrap();
            assert_eq!(alice.to_string(), format!("alice@{shown}"));
            assert_eq!(Scope::parse(&alice.to_string()).unwrap(), alice);
            assert!(alice.is_model() && alice.account() == Some("alice"));
        }
        for endpoint in ["localhost:8080", "localhost:8080/v1", "api.example.com", "http://a:80/b"]
        {
            assert!(!Scope::parse(endpoint).unwrap().is_model(), "{endpoint}");
        }
        // What may hold a password is none.
        let scope = Scope::parse("user:secret@api.example.com").unwrap();
        assert_eq!(scope.to_string(), "https://api.example.com");
    }

    #[test]
    fn wider_scopes_follow_one_another_up_to_the_host() {
        let scope = Scope::parse("a.example/v1/chat").unwrap().in_bucket("b");
        let mut keys = vec![scope.key().to_owned()];
        while let Some(wider) = scope.wider(keys.last().unwrap()) {
            let next = wider.candidates().next().unwrap().to_owned();
            keys.push(next);
        }
        assert_eq!(keys, ["a.example/v1/chat", "a.example/v1", "a.example/#b", "a.example"]);
    }

    #[test]
    fn rule_17_a_bad_endpoint_is_refused_without_its_secret() {
        for bad in ["", "   ", "https://", "http://a b", "/v1"] {
            assert!(Scope::parse(bad).is_err(), "{bad:?}");
        }
        let text = Scope::parse("https://user:hunter2@exa mple.com").unwrap_err().to_string();
        assert!(!text.contains("hunter2"), "{text}");
    }

    proptest! {
        /// The borrowed reading is only an optimisation.
        #[test]
        fn the_plain_reading_agrees_with_the_url_parser(
            input in "(https://)?[a-z0-9.-]{1,12}(:[0-9]{1,4})?(/[a-zA-Z0-9._%@/-]{0,12})?([?#][a-z/@]{0,4})?",
        ) {
            if let Some(scope) = plain(&input) {
                let general = general(&input);
                prop_assert_eq!(Ok(scope.to_string()), general.map(|scope| scope.to_string()));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(input in ".{0,40}") {
            if let Ok(scope) = Scope::parse(&input) {
                let again = Scope::parse(scope.key()).unwrap().to_string();
                prop_assert_eq!(again, scope.to_string());
            }
        }
    }
}
