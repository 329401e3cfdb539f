//! What the name of a header says. Servers build names from the same few words in any order:
//! `X-RateLimit-Limit-Minute`, `anthropic-ratelimit-input-tokens-remaining`,
//! `X-RateLimit-UserReset`, `x-app-limit-24hour-limit`. A name has a *stem* (`X-RateLimit`), the
//! *role* of the value (limit, remaining, ...), and a *subject*: the words that are left.

use super::lexicon::Lexicon;
use super::relevance::LONGEST_NAME;
use super::value::{self, Unit};
use smallvec::SmallVec;

/// Words of a name, in place.
pub(super) type Words<'a> = SmallVec<[&'a str; 6]>;

/// What the value of a header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Limit,
    Remaining,
    Used,
    Reset,
    /// The next instant at which one more call is allowed; not when all are.
    Next,
    Window,
    /// Units that come back per window, of a token bucket.
    Refill,
    /// Units that a token bucket holds.
    Capacity,
    /// The bucket that counted the call.
    Scope,
    /// Which limit refused it.
    Reason,
    RetryAfter,
    /// Known, and no limit: the cost of a call, a state, a flag.
    Other,
}

/// The words of roles. Looked up by the last word of a name first, then by the first, then between.
static ROLES: Lexicon<Role> = Lexicon::new(&[
    ("limit", Role::Limit),
    ("remaining", Role::Remaining),
    ("reset", Role::Reset),
    ("used", Role::Used),
    ("usage", Role::Used),
    ("left", Role::Remaining),
    ("remain", Role::Remaining),
    ("available", Role::Remaining),
    ("max", Role::Limit),
    ("maximum", Role::Limit),
    ("total", Role::Limit),
    ("quota", Role::Limit),
    ("allowed", Role::Limit),
    ("allotted", Role::Limit),
    ("current", Role::Used),
    ("running", Role::Used),
    ("resets", Role::Reset),
    ("resettime", Role::Reset),
    ("expiry", Role::Reset),
    ("expire", Role::Reset),
    ("expires", Role::Reset),
    ("ttl", Role::Reset),
    ("next", Role::Next),
    ("interval", Role::Window),
    ("period", Role::Window),
    ("window", Role::Window),
    ("fillrate", Role::Refill),
    ("rate", Role::Refill),
    ("capacity", Role::Capacity),
    ("resource", Role::Scope),
    ("bucket", Role::Scope),
    ("name", Role::Scope),
    ("rule", Role::Scope),
    ("category", Role::Scope),
    ("group", Role::Scope),
    ("zone", Role::Scope),
    ("action", Role::Scope),
    ("type", Role::Scope),
    ("reason", Role::Reason),
    ("problem", Role::Reason),
    ("scope", Role::Reason),
    ("retry", Role::RetryAfter),
    ("retryafter", Role::RetryAfter),
    ("after", Role::RetryAfter),
    ("towait", Role::RetryAfter),
    ("policy", Role::Other),
    ("cost", Role::Other),
    ("increment", Role::Other),
    ("delay", Role::Other),
    ("global", Role::Other),
    ("nearlimit", Role::Other),
    ("observed", Role::Other),
    ("status", Role::Other),
    ("state", Role::Other),
    ("claim", Role::Other),
    ("utilization", Role::Other),
    ("currentrequest", Role::Other),
]);

/// Words behind `reset`, `interval` and the like that say in which unit or form.
static UNITS: Lexicon<Unit> = Lexicon::new(&[
    ("ms", Unit::Millis),
    ("millis", Unit::Millis),
    ("milliseconds", Unit::Millis),
    ("s", Unit::Told),
    ("sec", Unit::Told),
    ("secs", Unit::Told),
    ("seconds", Unit::Told),
    ("timestamp", Unit::Told),
    ("time", Unit::Told),
    ("epoch", Unit::Told),
    ("utc", Unit::Told),
    ("at", Unit::Told),
    ("in", Unit::Told),
    ("after", Unit::Told),
]);

/// One name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name<'a> {
    /// The name through its stem: what headers that belong together have in common.
    pub(super) stem: &'a str,
    pub(super) subject: Words<'a>,
    pub(super) role: Role,
    pub(super) unit: Unit,
    /// Whether the role came before the subject (`Limit-Minute`), as opposed to behind it.
    pub(super) role_first: bool,
    /// Whether subject and role are one word (`UserReset`).
    pub(super) glued: bool,
    /// Whether no word says that it is a limit (`X-Rate-Limit: 700`).
    pub(super) implied: bool,
}

impl<'a> Name<'a> {
    /// Takes a name apart, if it has a stem and a role.
    #[inline]
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        Self::plain(name).or_else(|| Self::general(name))
    }

    /// The names that most servers use, without a look into any table.
    fn plain(name: &'a str) -> Option<Self> {
        const STEMS: [&str; 3] = ["x-ratelimit", "ratelimit", "x-rate-limit"];
        const WORDS: [(&str, Role); 3] =
            [("limit", Role::Limit), ("remaining", Role::Remaining), ("reset", Role::Reset)];
        let stem = STEMS.into_iter().find(|stem| begins(name, stem))?;
        let (stem, rest) = name.split_at_checked(stem.len())?;
        let rest = rest.strip_prefix('-')?;
        let (word, role) = WORDS.into_iter().find(|(word, _)| begins(rest, word))?;
        let mut subject = Words::new();
        match rest[word.len()..].strip_prefix('-') {
            Some(only) if is(only, "requests") || is(only, "tokens") => subject.push(only),
            None if rest.len() == word.len() => {}
            _ => return None,
        }
        let role_first = !subject.is_empty();
        let (unit, glued, implied) = (Unit::Told, false, false);
        Some(Self { stem, subject, role, unit, role_first, glued, implied })
    }

    /// Any name.
    fn general(name: &'a str) -> Option<Self> {
        // A proxy repeats what its upstream said; what it says itself counts.
        if name.len() > LONGEST_NAME || begins(name, "llm_provider-") {
            return None;
        }
        let words = words(name);
        let (mut subject, end) = stem(&words)?;
        let bytes: usize = words[..end].iter().map(|word| word.len() + 1).sum();
        let mut parsed = Self {
            stem: name.get(..bytes - 1)?,
            subject: Words::new(),
            role: Role::Limit,
            unit: Unit::Told,
            role_first: false,
            glued: false,
            implied: false,
        };
        parsed.role(&words[end..], &mut subject)?;
        let filler = match parsed.role {
            Role::Refill | Role::Capacity => &["burst", "replenish", "refill"][..],
            Role::Reset => &["time", "remaining"],
            _ => &["time"],
        };
        subject.retain(|word| !filler.iter().any(|filler| is(filler, word)));
        parsed.subject = subject;
        Some(parsed)
    }

    /// Finds the role among the words behind the stem; the others join the subject.
    fn role(&mut self, rest: &[&'a str], subject: &mut Words<'a>) -> Option<()> {
        let Some((last, before)) = rest.split_last() else {
            self.implied = true; // `X-Discogs-Ratelimit: 60`
            return Some(());
        };
        let mut body = rest;
        let mut told = false;
        while let [shorter @ .., last] = body
            && !shorter.is_empty()
            && let Some(unit) = UNITS.find(last)
        {
            (self.unit, body, told) = (if told { self.unit } else { unit }, shorter, true);
        }
        if let [shorter @ .., word] = body
            && let Some(role) = ROLES.find(word)
            && let Some(role) = measured(role, told)
        {
            let named =
                role == Role::Scope && shorter.iter().any(|word| ROLES.find(word).is_some());
            if !named {
                self.role = role;
                subject.extend_from_slice(shorter);
                // `X-RateLimit-Limit-Remaining`: the stem once more.
                let repeats = shorter.len() == 1 && role != Role::Limit;
                subject.retain(|word| !(repeats && is(word, "limit")));
                return Some(());
            }
        }
        self.unit = Unit::Told;
        if let Some(role) = ROLES.find(rest[0])
            && !before.is_empty()
        {
            (self.role, self.role_first) = (role, true);
            subject.extend_from_slice(&rest[1..]);
            return Some(());
        }
        if let Some((word, role)) = unglued(last) {
            (self.role, self.glued) = (role, true);
            subject.extend_from_slice(before);
            subject.push(word);
            return Some(());
        }
        if let Some(at) = rest.iter().position(|word| is(word, "remaining") || is(word, "limit")) {
            self.role = ROLES.find(rest[at])?;
            subject
                .extend(rest.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, word)| *word));
            return Some(());
        }
        // `X-HubSpot-RateLimit-Daily: 250000`
        subject.extend_from_slice(rest);
        self.implied = true;
        rest.iter().all(|word| value::named_span(word).is_some() || number(word)).then_some(())
    }
}

/// The words between hyphens. To look for a hyphen in so short a text by the means for long ones takes
/// longer than all else that is done with a name.
fn words(name: &str) -> Words<'_> {
    let mut words = Words::new();
    let mut from = 0;
    for (at, byte) in name.bytes().enumerate() {
        if byte == b'-' {
            words.push(&name[from..at]);
            from = at + 1;
        }
    }
    words.push(&name[from..]);
    words
}

/// The role of a word that a unit stands behind: `interval-ms`, `remaining-seconds`.
fn measured(role: Role, told: bool) -> Option<Role> {
    match role {
        Role::Remaining if told => Some(Role::Reset),
        Role::Reset | Role::Next | Role::Window | Role::RetryAfter => Some(role),
        _ => (!told).then_some(role),
    }
}

/// Where the stem ends, and the words of the subject that come before that.
fn stem<'a>(words: &[&'a str]) -> Option<(Words<'a>, usize)> {
    let none = Words::new;
    // `anthropic-priority-input-tokens-limit`
    if let [first, second, ..] = words
        && is(first, "anthropic")
        && find_in(second, "ratelimit").is_none()
    {
        return Some((none(), 2));
    }
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1);
        if let Some(start) = find_in(word, "ratelimit") {
            return match &word[start + "ratelimit".len()..] {
                "" => Some((none(), at + 1)),
                // `X-RateLimits`, `ratelimitbysize-limit`: of another family.
                _ => None,
            };
        }
        if is(word, "rate") && next.is_some_and(|next| is(next, "limit")) {
            return Some((none(), at + 2));
        }
    }
    let (last, before) = words.split_last()?;
    let vendor = |word: &&&str| !is(word, "x") && !is(word, "ms");
    let quantity =
        matches!(ROLES.find(last), Some(Role::Limit | Role::Remaining | Role::Reset | Role::Used));
    for (at, word) in before.iter().enumerate() {
        // `x-ms-user-quota-remaining`, `x-app-limit-24hour-limit`
        if is(word, "quota") || (is(word, "limit") && quantity) {
            return Some((before[..at].iter().filter(vendor).copied().collect(), at + 1));
        }
        // `X-BurstLimit-Remaining`, `X-AppMinLimit-Remaining`
        if let Some((glued, Role::Limit)) = unglued(word)
            && quantity
        {
            let app = if begins(glued, "app") && glued.len() > 3 { 3 } else { 0 };
            let parts = [&glued[..app], &glued[app..]];
            return Some((parts.into_iter().filter(|part| !part.is_empty()).collect(), at + 1));
        }
    }
    None
}

/// `UserLimit`, `ConcurrentRemaining`, `DailyLimit`: a role behind a subject in one word.
fn unglued(word: &str) -> Option<(&str, Role)> {
    const GLUED: [&str; 4] = ["remaining", "limit", "reset", "used"];
    let end = GLUED.into_iter().find(|end| word.len() > end.len() && ends(word, end))?;
    Some((&word[..word.len() - end.len()], ROLES.find(end)?))
}

pub(super) fn number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Whether two words are the same but for the case of ASCII letters. Most bytes are equal, and most
/// words that are not the same differ in the first.
#[inline]
pub(super) fn is(word: &str, other: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (a ^ b == 32 && a.is_ascii_alphabetic());
    word.len() == other.len() && word.bytes().zip(other.bytes()).all(same)
}

pub(super) fn begins(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| is(start, prefix))
}

pub(super) fn ends(name: &str, end: &str) -> bool {
    let from = name.len().checked_sub(end.len());
    from.and_then(|from| name.get(from..)).is_some_and(|tail| is(tail, end))
}

fn find_in(word: &str, part: &str) -> Option<usize> {
    (0..=word.len().checked_sub(part.len())?)
        .find(|at| word.get(*at..).is_some_and(|tail| begins(tail, part)))
}

/// A text of the server's as a name: not empty, not long, nothing that a log could choke on.
pub(super) fn label(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let fit = !text.is_empty() && text.len() <= 128 && !text.chars().any(char::is_control);
    fit.then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stem, role, and the subject in words.
    fn parts(name: &str) -> Option<(String, Role, String)> {
        let name = Name::parse(name)?;
        Some((
            name.stem.to_ascii_lowercase(),
            name.role,
            name.subject.join("-").to_ascii_lowercase(),
        ))
    }

    #[test]
    fn rule_8_a_name_is_a_stem_a_role_and_a_subject_in_any_order() {
        for (name, stem, role, subject) in [
            ("X-RateLimit-Limit", "x-ratelimit", Role::Limit, ""),
            ("x-rate-limit-reset", "x-rate-limit", Role::Reset, ""),
            ("X-Rate-Limit", "x-rate-limit", Role::Limit, ""),
            ("X-RateLimit-Limit-Minute", "x-ratelimit", Role::Limit, "minute"),
            ("X-RateLimit-Requests-Limit", "x-ratelimit", Role::Limit, "requests"),
            (
                "x-ratelimit-remaining-tokens_usage_based",
                "x-ratelimit",
                Role::Remaining,
                "tokens_usage_based",
            ),
            (
                "anthropic-ratelimit-input-tokens-reset",
                "anthropic-ratelimit",
                Role::Reset,
                "input-tokens",
            ),
            ("x-ratelimit-rapid-hard-limit-limit", "x-ratelimit", Role::Limit, "rapid-hard-limit"),
            ("X-RateLimit-UserReset", "x-ratelimit", Role::Reset, "user"),
            ("X-Ratelimit-Limit-Remaining", "x-ratelimit", Role::Remaining, ""),
            ("x-rate-limit-api-token-interval-ms", "x-rate-limit", Role::Window, "api-token"),
            ("X-Rate-Limit-Time-Reset-Ms", "x-rate-limit", Role::Reset, ""),
            ("X-RateLimit-Reset-After", "x-ratelimit", Role::Reset, ""),
            ("X-Rate-Limit-Remaining-Seconds", "x-rate-limit", Role::Reset, ""),
            ("x-app-limit-24hour-limit", "x-app-limit", Role::Limit, "app-24hour"),
            ("X-AppMinLimit-Remaining", "x-appminlimit", Role::Remaining, "app-min"),
            ("X-FeatureRateLimit-Reset", "x-featureratelimit", Role::Reset, ""),
            ("x-ms-user-quota-resets-after", "x-ms-user-quota", Role::Reset, "user"),
            ("X-HubSpot-RateLimit-Daily", "x-hubspot-ratelimit", Role::Limit, "daily"),
            ("x-ratelimit-remaining-1s", "x-ratelimit", Role::Remaining, "1s"),
        ] {
            let expected = (stem.to_owned(), role, subject.to_owned());
            assert_eq!(parts(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn rule_8_plain_names_mean_what_they_would_mean_in_general() {
        for stem in ["X-RateLimit", "ratelimit", "x-rate-limit", "X-Rate-Limit"] {
            for role in ["Limit", "remaining", "RESET"] {
                for subject in ["", "-Requests", "-tokens"] {
                    let name = format!("{stem}-{role}{subject}");
                    assert!(Name::plain(&name).is_some(), "{name}");
                    assert_eq!(Name::plain(&name), Name::general(&name));
                }
            }
        }
        for name in
            ["x-ratelimit-limit-", "x-ratelimits-limit", "x-ratelimit", "x-ratelimit-r\u{e9}"]
        {
            assert_eq!(Name::plain(name), None, "{name}");
        }
    }

    #[test]
    fn rule_8_look_alikes_hold_no_limit() {
        for name in [
            "x-ratelimit-tokens-query-cost",
            "X-RateLimit-Increment",
            "X-RateLimit-NearLimit",
            "X-RateLimit-Delay",
            "RateLimit-Observed",
            "X-RateLimit-Global",
            "X-RateLimit-Used-CurrentRequest",
        ] {
            let role = Name::parse(name).map(|name| name.role);
            assert!(matches!(role, Some(Role::Other | Role::Used)), "{name}: {role:?}");
        }
        for name in ["X-RateLimit-Requested-Tokens", "Content-Type", "X-Concurrency-Limit"] {
            assert_eq!(parts(name), None, "{name}");
        }
    }
}
