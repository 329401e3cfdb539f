//! Limit, remaining and reset in headers of their own: `X-RateLimit-*` and all its spellings, with
//! or without a dimension, a window or the name of a limit in the name of the header. Most servers
//! speak so, each with its own words; [`super::name`] takes the names apart.

use super::ietf::{self, Policy};
use super::list;
use super::name::{Name, Role, Words, begins, is, label};
use super::subject::Subject;
use super::value::{self, Unit};
use super::{Counting, Headers, Reading, Signal};
use crate::Window;
use smallvec::SmallVec;
use std::time::Duration;

/// Values of one role in the order in which they came: more than one where lines repeat.
type Values<'a> = SmallVec<[&'a str; 2]>;

/// The words for a bucket, the most specific first.
const SCOPES: [&str; 9] =
    ["resource", "bucket", "name", "rule", "category", "group", "zone", "action", "type"];

/// More groups than any server sends.
const MOST: usize = 32;

/// Whether no other family reads a header of that name, nor any wait is in it.
pub(super) fn is_plain(name: &str) -> bool {
    let words = ["limit", "rem", "res"];
    ["x-ratelimit-", "ratelimit-", "x-rate-limit-"]
        .into_iter()
        .filter(|stem| begins(name, stem))
        .any(|stem| words.into_iter().any(|word| begins(&name[stem.len()..], word)))
}

/// The headers of one limit.
#[derive(Default)]
struct Group<'a> {
    stem: &'a str,
    subject: Words<'a>,
    role_first: bool,
    limit: Values<'a>,
    remaining: Values<'a>,
    used: Values<'a>,
    /// With the unit that the name states. The first that can be read counts, deltas before others.
    reset: SmallVec<[(&'a str, Unit); 2]>,
    window: Option<Window>,
    /// Units that come back, of a token bucket, and how many it holds.
    refill: Option<u64>,
    capacity: Option<u64>,
    next: bool,
    glued: bool,
    /// A limit that no word of its name calls one.
    implied: Option<&'a str>,
}

pub(super) fn read(headers: &Headers<'_>, reading: &mut Reading) {
    let mut groups: SmallVec<[Group<'_>; 4]> = SmallVec::new();
    let mut bucket = None;
    for (field, value) in &headers.fields {
        let Some(name) = Name::parse(field).filter(|name| !is(name.stem, "x-amzn-ratelimit"))
        else {
            continue;
        };
        if name.role == Role::Reason {
            reading.reason = reading.reason.take().or_else(|| label(value));
        }
        // Of several words for it the most specific counts.
        if name.role == Role::Scope
            && name.subject.is_empty()
            && let Some(word) = field.rsplit('-').next()
            && let Some(rank) = SCOPES.iter().position(|known| is(known, word))
            && bucket.is_none_or(|(best, _)| rank < best)
            && value::named_span(value).is_none()
        {
            bucket = Some((rank, *value));
        }
        take(&mut groups, name, value);
    }
    reading.bucket = reading.bucket.take().or_else(|| label(bucket?.1));
    // Counts for several windows in one header are read with their usage (`super::usage`).
    groups.retain(|group| !group.used.first().is_some_and(|text| text.contains(',')));
    join_halves(&mut groups);
    let mut said = SmallVec::<[(Signal, &str); 4]>::new();
    for group in &groups {
        for signal in group.signals(headers) {
            said.push((signal, group.stem));
        }
    }
    // What only the stem tells apart gets its name from the stem.
    for at in 1..said.len() {
        let (before, rest) = said.split_at_mut(at);
        let (signal, stem) = &mut rest[0];
        let taken = |(other, theirs): &(Signal, &str)| {
            other.dimension == signal.dimension
                && other.name == signal.name
                && other.window == signal.window
                && theirs != stem
                && other.limit != signal.limit
        };
        if before.iter().any(taken) {
            signal.name = label(&stem.to_ascii_lowercase());
        }
    }
    reading.signals.extend(said.into_iter().map(|(signal, _)| signal));
}

/// Puts a value where its name says.
fn take<'a>(groups: &mut SmallVec<[Group<'a>; 4]>, name: Name<'a>, value: &'a str) {
    let whole = || value::count(value);
    let same = |group: &Group<'_>| {
        is(group.stem, name.stem)
            && group.subject.len() == name.subject.len()
            && group.subject.iter().zip(&name.subject).all(|(a, b)| is(a, b))
    };
    let found = groups.iter().position(same);
    let at = match (found, name.role) {
        (Some(at), _) => at,
        (None, Role::Other | Role::RetryAfter | Role::Reason | Role::Scope) => return,
        (None, _) if groups.len() == MOST => return,
        (None, _) => {
            let (stem, subject) = (name.stem, name.subject);
            groups.push(Group { stem, subject, role_first: name.role_first, ..Group::default() });
            groups.len() - 1
        }
    };
    let group = &mut groups[at];
    group.glued |= name.glued;
    match name.role {
        Role::Limit if name.implied => group.implied = Some(value),
        Role::Limit => group.limit.push(value),
        Role::Remaining => group.remaining.push(value),
        Role::Used => group.used.push(value),
        Role::Reset | Role::Next => {
            group.next |= name.role == Role::Next;
            group.reset.push((value, name.unit));
        }
        Role::Window => group.window = group.window.or(value::window(value, name.unit)),
        Role::Refill => group.refill = group.refill.or_else(whole),
        Role::Capacity => group.capacity = group.capacity.or_else(whole),
        // `X-RateLimit-Type: QPS`
        Role::Scope if group.window.is_none() => {
            group.window = value::named_span(value).and_then(Window::from_duration);
        }
        Role::Scope | Role::Reason | Role::RetryAfter | Role::Other => {}
    }
}

/// A limit under one name and what is left of it under another: `RateLimit-DailyLimit` beside
/// `RateLimit-Remaining`; a reset that is told once for several.
fn join_halves(groups: &mut SmallVec<[Group<'_>; 4]>) {
    let Some(at) = groups.iter().position(|group| group.subject.is_empty() && group.is_half())
    else {
        return;
    };
    let (limit, left) = (groups[at].limit.is_empty(), groups[at].remaining.is_empty());
    let plain = |group: &Group<'_>| {
        let mut words = group.subject.iter();
        words.all(|word| is(word, "requests") || value::named_span(word).is_some())
    };
    let other_half = (0..groups.len()).filter(|i| *i != at).find(|i| {
        let group = &groups[*i];
        let fits = group.limit.is_empty() != limit && group.remaining.is_empty() != left;
        group.is_half() && plain(group) && fits && limit != left
    });
    // The reset is that of the limit which binds.
    let left_of = |group: &Group<'_>| group.remaining.first().and_then(|text| value::count(text));
    let binding = || {
        let of_it = |i: &usize| {
            let group = &groups[*i];
            let related = is(group.stem, groups[at].stem) || group.subject.is_empty();
            *i != at && related && group.reset.is_empty() && left_of(group).is_some()
        };
        (0..groups.len()).filter(of_it).min_by_key(|i| left_of(&groups[*i]))
    };
    let binding = || (limit && left && groups[at].used.is_empty()).then(binding).flatten();
    if let Some(to) = other_half.or_else(binding) {
        let half = std::mem::take(&mut groups[at]);
        let group = &mut groups[to];
        group.window = group.window.or(half.window);
        for (mine, theirs) in [
            (&mut group.limit, half.limit),
            (&mut group.remaining, half.remaining),
            (&mut group.used, half.used),
        ] {
            mine.extend(theirs);
        }
        group.reset.extend(half.reset);
        groups.remove(at);
        join_halves(groups);
    }
}

impl Group<'_> {
    /// Whether it says but one of what belongs together.
    fn is_half(&self) -> bool {
        let told = self.used.is_empty() && self.capacity.is_none() && self.implied.is_none();
        told && (self.limit.is_empty() || self.remaining.is_empty())
    }

    fn signals(&self, headers: &Headers<'_>) -> SmallVec<[Signal; 2]> {
        let mut said = SmallVec::new();
        let listed = self.limit.iter().any(|text| text.contains(';'));
        let subject = self.subject();
        let mut signal = Signal {
            dimension: subject.dimension,
            name: subject.name,
            window: self.window.or(subject.window),
            ..Signal::default()
        };
        let mut policies: Vec<Policy> = Vec::new();
        if listed {
            let whole = self.limit.join(", ");
            policies.extend(list::members(&whole).iter().take(MOST).filter_map(Policy::of));
            // The first member is the limit that the other two headers speak of.
            if let Some(live) = policies.first() {
                signal.limit = live.quota;
                // Docker sends no more than that, with its window.
                if live.window.is_none() {
                    policies.remove(0);
                }
            }
            signal.remaining = self.remaining.first().and_then(|text| count_before_params(text));
            signal.reset = self.reset(0, headers);
        } else {
            let at = self.tightest();
            signal.limit = at_place(&self.limit, at).or(self.implied).and_then(limit);
            signal.remaining = at_place(&self.remaining, at).and_then(count_before_params);
            signal.reset = self.reset(at, headers);
            signal.window =
                signal.window.or_else(|| self.limit.first().and_then(|text| window_of_limit(text)));
        }
        self.count_bucket(&mut signal);
        signal.limit = signal.limit.or(self.capacity.filter(|_| self.refill.is_none()));
        let used = self.used.first().and_then(|text| value::count(text));
        signal.remaining = signal.remaining.or_else(|| Some(signal.limit?.saturating_sub(used?)));
        self.correct_unit(&mut signal, headers);
        // No quota, or one of calls at once: neither is a limit to learn.
        if signal.limit == Some(0) {
            let reset = signal.reset.filter(|reset| headers.status == 429 && !reset.is_zero());
            if reset.is_none() || signal.remaining != Some(0) {
                return said;
            }
            signal.dimension = crate::Dimension::new("concurrency").unwrap_or_default();
        }
        signal.counting = self.counting(&signal);
        let bare = self.subject.is_empty() && is_ietf(self.stem);
        let structured = bare && headers.any(|name| is(name, "ratelimit"));
        if bare && !structured {
            policies.extend(ietf::stated_policies(headers));
        }
        govern(&mut signal, &mut policies);
        let told = signal.limit.is_some() || signal.remaining.is_some();
        if told || signal.reset.is_some_and(|reset| !reset.is_zero()) {
            said.push(signal);
        }
        said.extend(policies.into_iter().filter_map(Policy::alone));
        said
    }

    fn subject(&self) -> Subject {
        let mut subject = Subject::of(&self.subject, self.role_first);
        if begins(self.stem, "x-ai-") {
            // APISIX counts tokens there, and names the instance that spent them.
            subject.dimension = crate::Dimension::new("tokens").unwrap_or_default();
        }
        subject
    }

    /// Which of repeated values to go by: those with the least left. A gateway and the service
    /// behind it state a limit each, under the same names.
    fn tightest(&self) -> usize {
        if let [] | [_] = self.remaining[..]
            && !self.remaining.iter().any(|text| is_list(text))
        {
            return 0;
        }
        let places = self.remaining.iter().flat_map(|text| text.split(','));
        let counts = places.take(MOST).map(|text| value::count(text).unwrap_or(u64::MAX));
        counts.enumerate().min_by_key(|(_, left)| *left).map_or(0, |(at, _)| at)
    }

    fn reset(&self, at: usize, headers: &Headers<'_>) -> Option<Duration> {
        let parsed = |(text, unit): &(&str, Unit)| {
            value::until(text, headers.now, self.unit(*unit, headers))
        };
        let place = |(text, unit): &(&'_ str, Unit)| {
            let part = text.split(',').nth(at).or_else(|| text.split(',').next())?;
            parsed(&(part, *unit))
        };
        if let [only] = &self.reset[..] {
            return parsed(only).or_else(|| place(only));
        }
        // A delta needs no clock, so that it is better than an epoch where both are sent.
        let delta = self
            .reset
            .iter()
            .filter(|(text, _)| value::decimal(text).is_some_and(|(whole, _)| whole < 100_000_000));
        delta.chain(&self.reset).find_map(|value| parsed(value).or_else(|| place(value)))
    }

    /// Milliseconds that no name tells: those of KuCoin's gateway, of hapi (Imgur, with the same
    /// names, sends epochs), and of hosts that are known for it.
    fn unit(&self, stated: Unit, headers: &Headers<'_>) -> Unit {
        let hapi = self.glued && self.subject.iter().any(|word| begins(word, "user"));
        let known = headers.profile.is_some_and(|profile| profile.millis);
        if hapi || known || begins(self.stem, "gw-") { Unit::Millis } else { stated }
    }

    /// A delta that is longer than its window is in milliseconds.
    fn correct_unit(&self, signal: &mut Signal, headers: &Headers<'_>) {
        let (Some(reset), Some(window), [(text, Unit::Told)]) =
            (signal.reset, signal.window, &self.reset[..])
        else {
            return;
        };
        let plain = value::decimal(text).is_some_and(|(whole, _)| whole == reset.as_secs());
        if plain && reset > window.duration().saturating_add(Duration::from_secs(60)) {
            let millis = value::until(text, headers.now, Unit::Millis);
            signal.reset = millis.filter(|span| *span <= window.duration()).or(signal.reset);
        }
    }

    /// A token bucket: what it holds is not its rate.
    fn count_bucket(&self, signal: &mut Signal) {
        let Some(refill) = self.refill.filter(|refill| *refill > 0) else { return };
        match (signal.limit, signal.window) {
            // So many units each interval: the window is the time in which it fills.
            (Some(holds), Some(interval)) => {
                let nanos =
                    u128::from(interval.as_nanos()) * u128::from(holds) / u128::from(refill);
                signal.window = u64::try_from(nanos).ok().and_then(Window::from_nanos);
            }
            // So many a second.
            _ => {
                signal.limit = Some(refill);
                signal.window = Window::from_nanos(1_000_000_000);
            }
        }
    }

    /// Rule 9: a fixed window, unless the family is known to refill.
    fn counting(&self, signal: &Signal) -> Counting {
        let epoch = self.reset.first().is_some_and(|(text, _)| {
            value::decimal(text).is_some_and(|(whole, _)| whole > 31_622_400)
        });
        let openai = self.role_first
            && is(self.stem, "x-ratelimit")
            && signal.window.is_none()
            && self.subject.iter().any(|word| is(word, "requests") || begins(word, "tokens"));
        let anthropic = begins(self.stem, "anthropic");
        let refills = self.refill.is_some() || self.next || openai || anthropic;
        if refills && !epoch { Counting::Bucket } else { Counting::Fixed }
    }
}

/// `RateLimit`, `X-RateLimit`: what the drafts and Envoy use.
fn is_ietf(stem: &str) -> bool {
    is(stem, "ratelimit") || is(stem, "x-ratelimit")
}

/// Finds the window of the live limit among the policies; that policy is then told.
fn govern(signal: &mut Signal, policies: &mut Vec<Policy>) {
    let Some(limit) = signal.limit else { return };
    let fits = |policy: &Policy| {
        let slack = Duration::from_secs(1);
        let long_enough =
            |window: Window| signal.reset.is_none_or(|reset| reset <= window.duration() + slack);
        policy.quota == Some(limit) && policy.window.is_some_and(long_enough)
    };
    let mut fitting = policies.iter().filter(|policy| fits(policy));
    if let (Some(only), None) = (fitting.next(), fitting.next()) {
        signal.window = signal.window.or(only.window);
        signal.name = signal.name.take().or_else(|| only.name.clone());
    }
    policies.retain(|policy| policy.quota != Some(limit));
}

/// The value in that place, of several lines or of a list in one.
fn at_place<'a>(values: &Values<'a>, at: usize) -> Option<&'a str> {
    match values[..] {
        [] => None,
        [only] if !is_list(only) || thousands(only) => Some(only),
        [only] => only.split(',').nth(at).or_else(|| only.split(',').next()),
        _ => values.get(at).or_else(|| values.first()).copied(),
    }
}

fn is_list(text: &str) -> bool {
    text.bytes().any(|b| b == b',')
}

/// `1,000`: one number, not two.
fn thousands(text: &str) -> bool {
    if !is_list(text) {
        return false;
    }
    let mut parts = text.split(',');
    let first = parts.next().is_some_and(|first| (1..=3).contains(&first.len()));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    first
        && text.contains(',')
        && parts.all(|part| part.len() == 3 && digits(part))
        && text.contains(",0")
}

/// `60`, `1,000`, or a rate.
fn limit(text: &str) -> Option<u64> {
    if thousands(text) {
        let digits: String = text.chars().filter(|c| *c != ',').collect();
        return value::count(&digits);
    }
    value::count(text).or_else(|| value::count(parts_of_rate(text)?.0))
}

/// `150/15m`, `100 per 1 minute`.
fn parts_of_rate(text: &str) -> Option<(&str, &str)> {
    text.split_once('/').or_else(|| text.split_once(" per "))
}

/// The window of a rate, or the period alone, as one .NET library has it: `1h`.
fn window_of_limit(text: &str) -> Option<Window> {
    if value::decimal(text).is_some() {
        return None;
    }
    let window = parts_of_rate(text).map_or(text, |(_, window)| window);
    value::window(&window.replace(' ', ""), Unit::Told)
}

/// `76;w=21600`, `42`.
fn count_before_params(text: &str) -> Option<u64> {
    value::count(text.split(';').next()?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, said};
    use crate::Counting;

    #[test]
    fn rule_9_github_is_a_fixed_window_whatever_its_reset() {
        let headers = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4987"),
            ("x-ratelimit-used", "13"),
            ("x-ratelimit-reset", "1800000010"),
            ("x-ratelimit-resource", "search"),
        ];
        let reading = read(200, &headers);
        assert_eq!(said(&reading), ["requests - 5000 4987 10s -"]);
        assert_eq!(reading.signals[0].counting, Counting::Fixed);
        assert_eq!(reading.bucket.as_deref(), Some("search"));
    }

    #[test]
    fn rule_9_openai_and_anthropic_say_when_their_buckets_are_full() {
        let openai = [
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "15000"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        let reading = read(200, &openai);
        assert_eq!(said(&reading), ["requests - 500 499 120ms -", "tokens - 30000 15000 360s -"]);
        assert!(reading.signals.iter().all(|signal| signal.counting == Counting::Bucket));
        let anthropic = [
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:01Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "39000"),
            ("anthropic-ratelimit-input-tokens-reset", "2027-01-15T08:00:02Z"),
        ];
        let reading = read(200, &anthropic);
        assert_eq!(said(&reading), ["requests - 50 49 1s -", "input_tokens - 40000 39000 2s -"]);
        assert!(reading.signals.iter().all(|signal| signal.counting == Counting::Bucket));
    }

    #[test]
    fn rule_6_all_limits_of_a_dimension_are_kept() {
        let headers = [
            ("X-RateLimit-Limit-Minute", "10"),
            ("X-RateLimit-Remaining-Minute", "4"),
            ("X-RateLimit-Limit-Hour", "200"),
            ("X-RateLimit-Remaining-Hour", "190"),
            ("RateLimit-Limit", "10"),
            ("RateLimit-Remaining", "4"),
            ("RateLimit-Reset", "14"),
        ];
        assert_eq!(
            said(&read(200, &headers)),
            ["requests minute 10 4 14s 1m", "requests hour 200 190 - 1h"]
        );
    }

    #[test]
    fn rule_8_words_of_vendors() {
        let bigcommerce = [
            ("X-Rate-Limit-Requests-Left", "6"),
            ("X-Rate-Limit-Requests-Quota", "25"),
            ("X-Rate-Limit-Time-Reset-Ms", "15000"),
            ("X-Rate-Limit-Time-Window-Ms", "30000"),
        ];
        assert_eq!(said(&read(200, &bigcommerce)), ["requests - 25 6 15s 30s"]);
        let aspnet = [
            ("X-Rate-Limit-Limit", "15m"),
            ("X-Rate-Limit-Remaining", "99"),
            ("X-Rate-Limit-Reset", "2027-01-15T08:01:00.1234567Z"),
        ];
        assert_eq!(said(&read(200, &aspnet)), ["requests - - 99 60.1234567s 15m"]);
        let eve = [("X-Ratelimit-Limit", "150/15m"), ("X-Ratelimit-Remaining", "148")];
        assert_eq!(said(&read(200, &eve)), ["requests - 150 148 - 15m"]);
        let hapi = [
            ("X-RateLimit-UserLimit", "300"),
            ("X-RateLimit-UserRemaining", "299"),
            ("X-RateLimit-UserReset", "59997"),
        ];
        assert_eq!(said(&read(200, &hapi)), ["requests user 300 299 59.997s -"]);
        let contentful = [
            ("X-Contentful-RateLimit-Hour-Limit", "36000"),
            ("X-Contentful-RateLimit-Hour-Remaining", "35883"),
            ("X-Contentful-RateLimit-Second-Limit", "10"),
            ("X-Contentful-RateLimit-Second-Remaining", "0"),
            ("X-Contentful-RateLimit-Reset", "1"),
        ];
        assert_eq!(
            said(&read(429, &contentful)),
            ["requests hour 36000 35883 - 1h", "requests second 10 0 1s 1s"]
        );
    }
}
