//! What is known of single hosts. A profile earns its place where headers alone are read wrongly or
//! not at all; a window that is merely documented is learned from two resets as well.

use super::body;
use super::name::{begins, is, label};
use super::{Headers, Reading};
use crate::{Dimension, Window};
use std::fmt::Write;

/// What is known of a host.
#[derive(Debug)]
pub(super) struct Profile {
    hosts: &'static [&'static str],
    /// Whether it is known how its headers are meant. What the user says of any host then comes second.
    pub(super) knows_headers: bool,
    /// Whether plain numbers in resets are milliseconds, which no name tells.
    pub(super) millis: bool,
    /// Whether it refuses for the rate with status 400.
    pub(super) rejects_with_400: bool,
    /// Completes what the families read.
    pub(super) adjust: fn(&Headers<'_>, &mut Reading),
    /// Which responses say more in their body: status and path.
    pub(super) wants_body: fn(u16, &str) -> bool,
    /// Reads that.
    pub(super) body: fn(&[u8], &Headers<'_>, &mut Reading),
}

const PLAIN: Profile = Profile {
    hosts: &[],
    knows_headers: false,
    millis: false,
    rejects_with_400: false,
    adjust: |_, _| {},
    wants_body: |_, _| false,
    body: |_, _, _| {},
};

const PROFILES: &[Profile] = &[
    // Several buckets on one host, one of which is in points; rejects with 403; the second system
    // of limits tells itself in the body only
    // (<https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>).
    Profile {
        hosts: &["api.github.com", "github.com"],
        knows_headers: true,
        adjust: github,
        wants_body: |status, _| matches!(status, 403 | 429),
        body: body::github,
        ..PLAIN
    },
    // A spent budget looks like a rate limit but for the code in the body
    // (<https://platform.openai.com/docs/guides/error-codes>).
    Profile {
        hosts: &["api.openai.com"],
        knows_headers: true,
        wants_body: |status, _| status == 429,
        body: body::openai,
        ..PLAIN
    },
    // The same, and each deployment has limits of its own.
    Profile {
        hosts: &["*.openai.azure.com"],
        knows_headers: true,
        adjust: azure_openai,
        wants_body: |status, _| status == 429,
        body: body::openai,
        ..PLAIN
    },
    // Limits per endpoint under one host
    // (<https://docs.x.com/x-api/fundamentals/rate-limits>).
    Profile {
        hosts: &["api.x.com", "api.twitter.com"],
        knows_headers: true,
        adjust: by_endpoint,
        ..PLAIN
    },
    // Names the limit that refused: those of an endpoint do not concern the others
    // (<https://docs.stripe.com/rate-limits>).
    Profile { hosts: &["api.stripe.com"], knows_headers: true, adjust: stripe, ..PLAIN },
    // A bucket counts apart for each channel, guild or webhook
    // (<https://discord.com/developers/docs/topics/rate-limits>).
    Profile {
        hosts: &["discord.com", "discordapp.com"],
        knows_headers: true,
        adjust: discord,
        ..PLAIN
    },
    // Rejects with 400 (<https://linear.app/developers/rate-limiting>).
    Profile { hosts: &["api.linear.app"], knows_headers: true, rejects_with_400: true, ..PLAIN },
    // Deltas in milliseconds under names that say nothing of it.
    Profile {
        hosts: &["*.prisjakt.nu", "*.prisjakt.no", "*.pricespy.co.uk"],
        knows_headers: true,
        millis: true,
        ..PLAIN
    },
    // Says in the body alone which quota refused and for how long
    // (<https://ai.google.dev/gemini-api/docs/rate-limits>).
    Profile {
        hosts: &["generativelanguage.googleapis.com"],
        wants_body: |status, _| matches!(status, 429 | 503),
        body: body::google,
        ..PLAIN
    },
    // GraphQL is metered in points, and refuses with 200
    // (<https://shopify.dev/docs/api/usage/limits>).
    Profile {
        hosts: &["*.myshopify.com"],
        wants_body: |status, path| matches!(status, 200 | 429) && path.ends_with("graphql.json"),
        body: body::shopify,
        ..PLAIN
    },
    // Throttling hides among other errors, in their codes
    // (<https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html>).
    Profile {
        hosts: &["*.amazonaws.com"],
        wants_body: |status, _| matches!(status, 400 | 403 | 503),
        body: body::aws,
        ..PLAIN
    },
    // Refuses with 200 (<https://bybit-exchange.github.io/docs/v5/error>).
    Profile {
        hosts: &["api.bybit.com", "api.bytick.com"],
        wants_body: |status, _| status == 200,
        body: body::bybit,
        ..PLAIN
    },
];

/// The profile of a host.
pub(super) fn of(host: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.hosts.iter().any(|pattern| matches(pattern, host)))
}

/// Whether a host is the one that a pattern names, or below it where that begins with `*.`.
pub(super) fn matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(domain) => {
            let from = host.len().checked_sub(domain.len()).filter(|from| *from > 0);
            from.and_then(|from| host.get(from..)).is_some_and(|tail| is(tail, domain))
        }
        None => is(pattern, host),
    }
}

/// Host and path of a URL, in place: without scheme, user, port, query and fragment.
pub(super) fn host_and_path(url: &str) -> Option<(&str, &str)> {
    let scheme = url.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let rest = url[scheme..].strip_prefix("://").unwrap_or(url);
    let (authority, path) = rest.split_at(until(rest, b"/?#\\"));
    let user = authority.bytes().rposition(|b| b == b'@').map_or(0, |at| at + 1);
    let host = &authority[user..];
    let host = &host[..until(host, b":")];
    (!host.is_empty()).then(|| (host, &path[..until(path, b"?#")]))
}

/// Where the first of these bytes is, or the end. A URL is short, and this is asked for each response.
fn until(text: &str, ends: &[u8]) -> usize {
    text.bytes().position(|b| ends.contains(&b)).unwrap_or(text.len())
}

/// Limits that are documented for a host, by the prefix of the path that they govern: known before
/// the first response, and replaced by it.
///
/// ```
/// use paceline_core::headers::profiles::seeds;
/// assert_eq!(seeds("api.github.com", false), [("", "60/1h"), ("/search", "10/1m")]);
/// assert!(seeds("api.example.com", false).is_empty());
/// ```
#[must_use]
pub fn seeds(host: &str, authenticated: bool) -> &'static [(&'static str, &'static str)] {
    match authenticated {
        _ if !is(host, "api.github.com") => &[],
        false => &[("", "60/1h"), ("/search", "10/1m")],
        true => &[("", "5000/1h"), ("/search", "30/1m")],
    }
}

fn github(_: &Headers<'_>, reading: &mut Reading) {
    let minute = |resource: &str| matches!(resource, "search" | "code_search");
    let resource = reading.bucket.take();
    let window = if resource.as_deref().is_some_and(minute) { 60 } else { 3_600 };
    for signal in &mut reading.signals {
        signal.window = signal.window.or_else(|| Window::from_nanos(window * 1_000_000_000));
        if resource.as_deref() == Some("graphql") {
            signal.dimension = Dimension::new("points").unwrap_or_default();
        }
    }
    reading.bucket = resource;
}

fn azure_openai(headers: &Headers<'_>, reading: &mut Reading) {
    let in_path = || headers.path.split_once("/deployments/")?.1.split('/').next();
    let deployment = headers.get("x-ms-deployment-name").or_else(in_path);
    reading.bucket = deployment.and_then(|name| label(&format!("deployment:{name}")));
}

fn by_endpoint(headers: &Headers<'_>, reading: &mut Reading) {
    if !reading.signals.is_empty() {
        reading.bucket = endpoint(headers.path);
    }
}

fn stripe(headers: &Headers<'_>, reading: &mut Reading) {
    if headers.get("stripe-rate-limited-reason").is_some_and(|reason| begins(reason, "endpoint")) {
        reading.bucket = endpoint(headers.path);
    }
}

/// A path with its ids left open: `/2/users/:id/tweets`.
fn endpoint(path: &str) -> Option<Box<str>> {
    let mut all = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let id = part.bytes().any(|b| b.is_ascii_digit()) && part.len() > 2;
        // Writing to a string cannot fail.
        let _ = write!(all, "/{}", if id { ":id" } else { part });
    }
    label(&all)
}

fn discord(headers: &Headers<'_>, reading: &mut Reading) {
    let mut parts = headers.path.split('/');
    let major = parts.by_ref().find(|part| matches!(*part, "channels" | "guilds" | "webhooks"));
    if let (Some(bucket), Some(_), Some(id)) = (&reading.bucket, major, parts.next()) {
        reading.bucket = label(&format!("{bucket}:{id}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_from, said};
    use super::*;

    #[test]
    fn rule_15_the_host_is_what_stands_behind_the_last_at_sign() {
        for (url, expected) in [
            ("https://api.github.com/user?x#y", Some(("api.github.com", "/user"))),
            ("https://api.github.com@evil.example/v1", Some(("evil.example", "/v1"))),
            ("http://localhost:3000", Some(("localhost", ""))),
            ("api.github.com/user", Some(("api.github.com", "/user"))),
            ("", None),
        ] {
            assert_eq!(host_and_path(url), expected, "{url}");
        }
        assert!(matches("*.myshopify.com", "acme.MyShopify.com"));
        assert!(!matches("*.myshopify.com", "myshopify.com"));
        assert!(!matches("*.myshopify.com", "evilmyshopify.com"));
    }

    #[test]
    fn rule_9_github_has_a_window_and_buckets() {
        let github = |resource| {
            let headers = [
                ("x-ratelimit-limit", "30"),
                ("x-ratelimit-remaining", "29"),
                ("x-ratelimit-reset", "1800000060"),
                ("x-ratelimit-resource", resource),
            ];
            let reading = read_from(200, Some("https://api.github.com/x"), &headers);
            (said(&reading).join(","), reading.bucket.map(String::from).unwrap_or_default())
        };
        assert_eq!(github("core"), ("requests - 30 29 60s 1h".to_owned(), String::new()));
        assert_eq!(github("search"), ("requests - 30 29 60s 1m".to_owned(), "search".to_owned()));
        assert_eq!(github("graphql"), ("points - 30 29 60s 1h".to_owned(), "graphql".to_owned()));
    }

    #[test]
    fn discord_counts_apart_for_each_channel() {
        let headers = [("X-RateLimit-Remaining", "9"), ("X-RateLimit-Bucket", "abcd")];
        let bucket = |url| read_from(200, Some(url), &headers).bucket.map(String::from);
        let of = |url| bucket(url).unwrap_or_default();
        assert_eq!(of("https://discord.com/api/v10/channels/123/messages/7"), "abcd:123");
        assert_eq!(of("https://discord.com/api/v10/webhooks/5/secret"), "abcd:5");
        assert_eq!(of("https://discord.com/api/v10/users/@me"), "abcd");
    }

    #[test]
    fn limits_of_endpoints_are_kept_apart() {
        let headers = [("x-rate-limit-limit", "450"), ("x-rate-limit-remaining", "449")];
        let url = Some("https://api.x.com/2/users/2244994945/tweets?max=5");
        assert_eq!(read_from(200, url, &headers).bucket.as_deref(), Some("/2/users/:id/tweets"));
        let stripe = |reason| {
            let url = Some("https://api.stripe.com/v1/charges/ch_3MqLiJLkdIwHu7ix0");
            read_from(429, url, &[("Stripe-Rate-Limited-Reason", reason)])
        };
        assert_eq!(stripe("endpoint-rate").bucket.as_deref(), Some("/v1/charges/:id"));
        assert_eq!(stripe("global-rate").bucket, None);
        assert_eq!(stripe("global-rate").reason.as_deref(), Some("global-rate"));
    }
}
