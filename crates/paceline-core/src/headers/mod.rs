//! Reading what a response says about limits: a table of families, one small file each.
//!
//! A new family is a file with a `read` function, a row in `FAMILIES` and its test vectors; words
//! that servers put into the names of headers are in `name.rs`. Malformed values yield no signal,
//! never an error; absurd ones are dropped (rule 8).

mod body;
mod detector;
mod ietf;
mod keyed;
mod lexicon;
mod list;
mod merge;
mod name;
mod named;
pub mod profiles;
mod relevance;
mod retry_after;
mod subject;
mod usage;
pub mod value;
mod vendor;

pub use detector::{Detector, HeaderName, HeadersMap, Provider, Quota};

use crate::signal::{Counting, Reading, Signal};
use name::{ends, is};
use profiles::Profile;
use smallvec::SmallVec;
use std::time::Duration;

/// In order of precedence where two speak of one bucket: the former's words stand.
const FAMILIES: [fn(&Headers<'_>, &mut Reading); 5] =
    [ietf::read, named::read, usage::read, keyed::read, vendor::read];

/// More headers than any server says of limits; those that follow are not looked at.
const MOST_FIELDS: usize = 128;

/// More limits than any server has.
const MOST_SIGNALS: usize = 64;

/// A response, as far as it says anything of limits.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a, H> {
    /// The status.
    pub status: u16,
    /// What was asked for. Without it nothing is known of the host.
    pub url: Option<&'a str>,
    /// The local time since the Unix epoch, when the response came.
    pub now: Duration,
    /// Pairs of name and value, in the order in which they came, repeats included.
    pub headers: H,
    /// The body, where [`Detector::wants_body`] asked for it and it was there to be had.
    pub body: Option<&'a [u8]>,
}

/// The headers of one response that may speak of limits, and when they were made.
struct Headers<'a> {
    status: u16,
    /// Names are as they came; compare without case. Values are trimmed.
    fields: SmallVec<[(&'a str, &'a str); 16]>,
    /// The server's present, since the Unix epoch.
    now: Duration,
    profile: Option<&'static Profile>,
    /// The path of the URL.
    path: &'a str,
    /// Whether all names are of the most common kind, which one family alone reads.
    plain: bool,
    /// The wait that a header of the user's map states.
    told: Option<Duration>,
}

impl<'a> Headers<'a> {
    /// The value of the header called `name`; of several, the first.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().find(|(key, _)| is(key, name)).map(|(_, value)| *value)
    }

    /// All values of the headers called `name`, be it with a prefix such as `X-` or `Beta-`, joined
    /// as RFC 9110 allows for lists.
    fn list(&self, name: &str) -> Option<String> {
        let called = |key: &str| {
            ends(key, name)
                && key[..key.len() - name.len()].bytes().last().is_none_or(|b| b == b'-')
        };
        let mut all: Option<String> = None;
        for (_, value) in self.fields.iter().filter(|(key, _)| called(key)) {
            match &mut all {
                Some(all) => {
                    all.push_str(", ");
                    all.push_str(value);
                }
                None => all = Some((*value).to_owned()),
            }
        }
        all
    }

    fn any(&self, test: impl Fn(&str) -> bool) -> bool {
        self.fields.iter().any(|(name, _)| test(name))
    }
}

/// Reads one response, in this order: the API that the user registered for the host, the profile of the
/// host, the user's map, the standard families, and on a rejection `Retry-After` (rule 8).
///
/// Allocates nothing when no header speaks of limits. Takes time in proportion to the size of the
/// headers, whatever they hold.
///
/// ```
/// use paceline_core::headers::{Detector, Response, detect};
/// use std::time::Duration;
///
/// let headers = [("X-RateLimit-Limit", "60"), ("X-RateLimit-Remaining", "0"), ("Retry-After", "7")];
/// let now = Duration::from_secs(1_800_000_000);
/// let response = Response { status: 429, url: None, now, headers, body: None };
/// let reading = detect(&Detector::default(), response);
/// assert_eq!(reading.retry_after, Some(Duration::from_secs(7)));
/// assert_eq!(reading.signals[0].limit, Some(60));
/// ```
pub fn detect<'a, H>(detector: &Detector, response: Response<'a, H>) -> Reading
where
    H: IntoIterator<Item = (&'a str, &'a str)>,
{
    let Response { status, url, now, headers, body } = response;
    let headers = headers.into_iter().filter(|(name, _)| detector.is_relevant(name));
    detect_relevant(detector, Response { status, url, now, headers, body })
}

/// The same for headers that all are [relevant](Detector::is_relevant), as bindings know that copy the
/// values of no others.
pub fn detect_relevant<'a, H>(detector: &Detector, response: Response<'a, H>) -> Reading
where
    H: IntoIterator<Item = (&'a str, &'a str)>,
{
    let status = response.status;
    let mut date = None;
    let mut fields = SmallVec::<[(&'a str, &'a str); 16]>::new();
    let mut plain = true;
    for (name, value) in response.headers {
        if fields.len() == MOST_FIELDS {
            break;
        }
        if is(name, "date") {
            date = Some(value);
        } else {
            plain &= named::is_plain(name);
            fields.push((name, value::trim(value)));
        }
    }
    let mut reading = Reading { rejected: retry_after::rejects(status), ..Reading::default() };
    if fields.is_empty() && response.body.is_none() {
        return reading;
    }
    let (host, path) = response.url.and_then(profiles::host_and_path).unwrap_or_default();
    let profile = detector.profile(host);
    let now = date.map_or(response.now, |date| server_time(date, response.now));
    let mut headers = Headers { status, fields, now, profile, path, plain, told: None };
    detector.read_own(host, &mut headers, &mut reading);
    let profile_first = profile.is_some_and(|profile| profile.knows_headers);
    if !profile_first {
        detector.read_map(&mut headers, &mut reading);
    }
    let known = reading.signals.len();
    if plain {
        named::read(&headers, &mut reading);
    } else {
        FAMILIES.iter().for_each(|read| read(&headers, &mut reading));
    }
    if known > 0 {
        detector::prefer(&mut reading.signals, known);
    }
    if profile_first {
        detector.read_map(&mut headers, &mut reading);
    }
    reading.signals.truncate(MOST_SIGNALS);
    merge::merge(&mut reading.signals);
    if let Some(profile) = profile {
        (profile.adjust)(&headers, &mut reading);
        if let Some(body) = response.body {
            (profile.body)(body, &headers, &mut reading);
        }
    }
    retry_after::read(&headers, &mut reading);
    // GitHub's `core` is the host itself, at its own address and at those of its customers.
    reading.bucket = reading.bucket.filter(|bucket| **bucket != *"core");
    reading
}

/// Rule 14: epochs are read against the response's own `Date`. That has whole seconds only, so a
/// local clock that agrees with it to the second is the finer of the two.
fn server_time(date: &str, local: Duration) -> Duration {
    let Some(date) = value::http_date(date.trim()) else { return local };
    let agrees = local >= date && local - date < Duration::from_secs(2);
    if agrees { local } else { date }
}

#[cfg(test)]
mod tests;
