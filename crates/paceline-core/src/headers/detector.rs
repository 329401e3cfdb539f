//! What a user adds to what is known of headers.

use super::name::is;
use super::profiles::{self, Profile};
use super::value::{self, Unit};
use super::{Counting, Headers, Reading, Signal, relevance};
use crate::{Dimension, Error, Window};
use std::str::FromStr;
use std::time::Duration;

/// How responses are read: the built-in families and profiles, and what the user knows better.
/// Build one, and share it: reading changes nothing.
///
/// ```
/// use paceline_core::headers::{Detector, HeadersMap, Response, detect};
/// use std::time::Duration;
///
/// let map = HeadersMap { remaining: Some("X-Calls-Left".parse()?), ..HeadersMap::default() };
/// let detector = Detector::default().map(map);
/// let (url, headers) = (Some("https://api.example.com"), [("x-calls-left", "3")]);
/// let response = Response { status: 200, url, now: Duration::ZERO, headers, body: None };
/// assert_eq!(detect(&detector, response).signals[0].remaining, Some(3));
/// # Ok::<(), paceline_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Detector {
    map: Quota,
    providers: Vec<Provider>,
    host_profiles: bool,
}

impl Default for Detector {
    /// The built-in families and host profiles, and nothing else.
    fn default() -> Self {
        Self { map: Quota::default(), providers: Vec::new(), host_profiles: true }
    }
}

/// The name of a header, in any case: what RFC 9110 calls a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderName(Box<str>);

impl FromStr for HeaderName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let in_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        match !text.is_empty() && text.bytes().all(in_token) {
            true => Ok(Self(text.into())),
            false => Err(Error::HeaderName(text.to_owned())),
        }
    }
}

/// The names of the headers in which a server of the user's states a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeadersMap {
    /// Units per window.
    pub limit: Option<HeaderName>,
    /// Units left.
    pub remaining: Option<HeaderName>,
    /// When the window is over, in any form that is told by its value.
    pub reset: Option<HeaderName>,
    /// How long to stay away after a rejection, in any such form.
    pub retry_after: Option<HeaderName>,
}

/// What is known of a user's own API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its hosts; `*.example.com` means all below that domain.
    pub hosts: Vec<Box<str>>,
    /// Its limits.
    pub quotas: Vec<Quota>,
}

/// One limit of a [`Provider`], and how it is stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    /// What it meters.
    pub dimension: Dimension,
    /// Where it is stated.
    pub headers: HeadersMap,
    /// What a number in the reset counts.
    pub unit: Unit,
    /// How the server counts.
    pub counting: Counting,
    /// The window, which no header states.
    pub window: Option<Window>,
}

impl Detector {
    /// Reads these headers of any host, too, as a limit of requests.
    #[must_use]
    pub fn map(self, headers: HeadersMap) -> Self {
        Self { map: Quota { headers, ..Quota::default() }, ..self }
    }

    /// Knows this API, too.
    #[must_use]
    pub fn provider(mut self, provider: Provider) -> Self {
        self.providers.push(provider);
        self
    }

    /// Whether to use what is built in about single hosts.
    #[must_use]
    pub fn host_profiles(self, host_profiles: bool) -> Self {
        Self { host_profiles, ..self }
    }

    /// Whether [`detect`](super::detect) looks at the value of a header of that name. Cheap, because
    /// at most it does not.
    #[must_use]
    pub fn is_relevant(&self, name: &str) -> bool {
        relevance::is_relevant(name) || self.names().any(|own| is(own, name))
    }

    /// Whether the body of a response says something of limits that its headers do not: only for
    /// some hosts and statuses, and never for a stream. A caller that can have it for nothing hands
    /// it to [`detect`](super::detect).
    #[must_use]
    pub fn wants_body(&self, url: &str, status: u16, content_type: Option<&str>) -> bool {
        let Some((host, path)) = profiles::host_and_path(url) else { return false };
        let text = content_type.is_none_or(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.ends_with("json") || kind.ends_with("xml")
        });
        text && self.profile(host).is_some_and(|profile| (profile.wants_body)(status, path))
    }

    pub(super) fn profile(&self, host: &str) -> Option<&'static Profile> {
        if self.host_profiles { profiles::of(host) } else { None }
    }

    /// All headers that the user named.
    fn names(&self) -> impl Iterator<Item = &str> {
        let quotas = self.providers.iter().flat_map(|provider| &provider.quotas);
        let names = quotas.chain([&self.map]).flat_map(|quota| {
            let HeadersMap { limit, remaining, reset, retry_after } = &quota.headers;
            [limit, remaining, reset, retry_after]
        });
        names.flatten().map(|name| &*name.0)
    }

    /// Reads what the user named of the API of that host.
    pub(super) fn read_own(&self, host: &str, headers: &mut Headers<'_>, reading: &mut Reading) {
        let here = |provider: &&Provider| {
            provider.hosts.iter().any(|pattern| profiles::matches(pattern, host))
        };
        for quota in self.providers.iter().filter(here).flat_map(|provider| &provider.quotas) {
            reading.signals.extend(quota.read(headers));
            headers.told = headers.told.or_else(|| quota.wait(headers));
        }
    }

    /// Reads what the user named of any host, unless more is known already.
    pub(super) fn read_map(&self, headers: &mut Headers<'_>, reading: &mut Reading) {
        if reading.signals.iter().all(|known| known.dimension != self.map.dimension) {
            reading.signals.extend(self.map.read(headers));
        }
        headers.told = headers.told.or_else(|| self.map.wait(headers));
    }
}

impl Quota {
    fn read(&self, headers: &Headers<'_>) -> Option<Signal> {
        let HeadersMap { limit, remaining, reset, .. } = &self.headers;
        let get = |name: &Option<HeaderName>| headers.get(&name.as_ref()?.0);
        let signal = Signal {
            dimension: self.dimension.clone(),
            limit: get(limit).and_then(value::count).filter(|limit| *limit > 0),
            remaining: get(remaining).and_then(value::count),
            reset: get(reset).and_then(|text| value::until(text, headers.now, self.unit)),
            window: self.window,
            counting: self.counting,
            ..Signal::default()
        };
        let told = signal.limit.is_some() || signal.remaining.is_some() || signal.reset.is_some();
        told.then_some(signal)
    }

    fn wait(&self, headers: &Headers<'_>) -> Option<Duration> {
        let text = headers.get(&self.headers.retry_after.as_ref()?.0)?;
        value::until(text, headers.now, self.unit)
    }
}

/// What the user named stands: of those dimensions no family has a say. The first `known` signals
/// are the user's.
pub(super) fn prefer(signals: &mut Vec<Signal>, known: usize) {
    let mut at = 0;
    let own: Vec<Dimension> =
        signals[..known].iter().map(|signal| signal.dimension.clone()).collect();
    signals.retain(|signal| {
        at += 1;
        at <= known || !own.contains(&signal.dimension)
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::super::{Response, detect};
    use super::*;

    fn read(detector: &Detector, url: &str, headers: &[(&str, &str)]) -> Vec<String> {
        let (now, headers) = (Duration::from_secs(1_800_000_000), headers.iter().copied());
        said(&detect(detector, Response { status: 200, url: Some(url), now, headers, body: None }))
    }

    fn name(text: &str) -> Option<HeaderName> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn rule_8_the_users_map_comes_before_the_families() {
        let map =
            HeadersMap { limit: name("X-Max"), reset: name("X-Again"), ..HeadersMap::default() };
        let detector = Detector::default().map(map);
        assert!(detector.is_relevant("x-max") && !detector.is_relevant("x-min"));
        let headers = [("x-max", "9"), ("x-again", "1800000030"), ("x-ratelimit-limit", "60")];
        assert_eq!(read(&detector, "https://api.example", &headers), ["requests - 9 - 30s -"]);
        let other = [("x-ratelimit-limit", "60")];
        assert_eq!(read(&detector, "https://api.example", &other), ["requests - 60 - - -"]);
    }

    #[test]
    fn rule_8_a_registered_api_comes_before_the_map() {
        let quota = Quota {
            dimension: Dimension::new("credits").unwrap(),
            headers: HeadersMap {
                remaining: name("X-Credits"),
                reset: name("X-Credits-In"),
                ..HeadersMap::default()
            },
            unit: Unit::Millis,
            window: Window::parse("1h").ok(),
            ..Quota::default()
        };
        let headers = HeadersMap { limit: name("X-Max"), ..HeadersMap::default() };
        let calls = Quota { headers, counting: Counting::Bucket, ..Quota::default() };
        let provider =
            Provider { hosts: vec!["*.corp.example".into()], quotas: vec![quota, calls] };
        let map = HeadersMap { limit: name("X-Other"), ..HeadersMap::default() };
        let detector = Detector::default().provider(provider).map(map);
        let headers =
            [("x-credits", "5"), ("x-credits-in", "1500"), ("x-max", "9"), ("x-other", "8")];
        assert_eq!(
            read(&detector, "https://api.corp.example/v1", &headers),
            ["credits - - 5 1.5s 1h", "requests - 9 - - -"]
        );
        assert_eq!(read(&detector, "https://corp.example.org", &headers), ["requests - 8 - - -"]);
    }

    #[test]
    fn rule_8_the_profile_of_a_host_comes_before_the_map_and_an_api_of_ones_own_before_both() {
        let headers =
            HeadersMap { limit: name("X-Max"), remaining: name("X-Left"), ..HeadersMap::default() };
        let detector = Detector::default().map(headers.clone());
        let both = [("x-ratelimit-limit", "60"), ("x-max", "9")];
        let said = |detector: &Detector, headers: &[_]| {
            ["api.github.com", "api.stripe.com", "api.twitter.com", "api.openai.com", "a.example"]
                .map(|host| read(detector, &format!("https://{host}/v1"), headers).join(","))
                .map(|said| said.split(' ').nth(2).unwrap_or_default().to_owned())
        };
        assert_eq!(said(&detector, &both), ["60", "60", "60", "60", "9"]);
        assert_eq!(said(&detector, &both[1..]), ["9"; 5], "where the profile finds nothing");
        assert_eq!(said(&detector.clone().host_profiles(false), &both), ["9"; 5]);
        // Of an API at a cloud's address, nothing is known but the cloud's own errors.
        let url = "https://x.execute-api.eu-west-1.amazonaws.com/v1";
        assert_eq!(read(&detector, url, &both), ["requests - 9 - - -"]);
        let quota = Quota { headers, ..Quota::default() };
        let provider = Provider { hosts: vec!["api.github.com".into()], quotas: vec![quota] };
        let detector = Detector::default().provider(provider);
        assert_eq!(said(&detector, &both), ["9", "60", "60", "60", "60"]);
    }

    #[test]
    fn what_cannot_be_the_name_of_a_header_is_refused_and_named() {
        for bad in ["", " ", "X Calls", "X-Calls:", " X-Calls", "X-Calls\n", "X-Größe", "(X)"] {
            assert_eq!(bad.parse::<HeaderName>(), Err(Error::HeaderName(bad.to_owned())));
        }
        for good in ["x", "X-Calls-Left", "x_calls.left", "!#$%&'*+-.^_`|~09"] {
            assert!(good.parse::<HeaderName>().is_ok(), "{good}");
        }
    }

    #[test]
    fn rule_26_bodies_are_asked_for_only_where_nothing_else_tells() {
        let detector = Detector::default();
        let openai = "https://api.openai.com/v1/responses";
        assert!(detector.wants_body(openai, 429, Some("application/json; charset=utf-8")));
        assert!(!detector.wants_body(openai, 200, Some("application/json")));
        assert!(!detector.wants_body(openai, 429, Some("text/event-stream")));
        assert!(!detector.wants_body("https://api.example/v1", 429, None));
        assert!(!detector.host_profiles(false).wants_body(openai, 429, None));
    }
}
