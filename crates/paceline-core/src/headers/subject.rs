//! What the words of a name mean that are left when its stem and its role are taken away: what is
//! metered, over which window, and what the server calls that limit.

use super::lexicon::Lexicon;
use super::name::{Words, begins, is, label, number};
use super::value;
use crate::{Dimension, Window};

/// What the subject of a name means.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) dimension: Dimension,
    pub(super) name: Option<Box<str>>,
    pub(super) window: Option<Window>,
}

/// Words for calls: the dimension `requests`.
const CALLS: [&str; 8] = ["requests", "request", "req", "reqs", "calls", "call", "per", "this"];

/// Words for what else is metered. Whoever does not spend it is not held up by its limit.
static METERED: Lexicon<&str> = Lexicon::new(&[
    ("points", "points"),
    ("credit", "credits"),
    ("credits", "credits"),
    ("complexity", "complexity"),
    ("cost", "cost"),
    ("byte", "bytes"),
    ("bytes", "bytes"),
    ("content-bytes", "bytes"),
    ("bandwidth", "bytes"),
    ("weight", "weight"),
    ("image", "images"),
    ("images", "images"),
    ("pixels", "pixels"),
    ("characters", "characters"),
    ("chars", "characters"),
    ("units", "units"),
    ("neurons", "neurons"),
    ("orders", "orders"),
    ("errors", "errors"),
    ("error", "errors"),
    ("concurrent", "concurrency"),
    ("concurrent-requests", "concurrency"),
    ("concurrency", "concurrency"),
    ("conn", "connections"),
    ("connections", "connections"),
    ("tstu", "tstu"),
]);

/// The unit that a word names, apart from requests and tokens.
pub(super) fn metered(word: &str) -> Option<Dimension> {
    Dimension::new(METERED.find(word)?).ok()
}

impl Subject {
    /// Reads the words that are left of a name. `unit_first` tells that an unknown word before a
    /// window is what is metered, as in Kong's `Limit-videos-minute`.
    pub(super) fn of(words: &[&str], unit_first: bool) -> Self {
        let mut subject = Self::default();
        match words {
            [] => return subject,
            [only] if is(only, "requests") => return subject,
            [only] if is(only, "tokens") => {
                return Self { dimension: tokens_of(words), ..subject };
            }
            _ => {}
        }
        let mut count = "";
        let mut left = Words::new();
        for word in words {
            let counted = (!count.is_empty()).then(|| value::named_span(&format!("{count}{word}")));
            match counted.flatten().or_else(|| value::named_span(word)) {
                Some(span) => subject.window = Window::from_duration(span),
                None if !CALLS.iter().any(|call| is(call, word)) => left.push(word),
                None => {}
            }
            count = if number(word) { word } else { "" };
        }
        let calls = words.iter().any(|word| is(word, "requests") || is(word, "req"));
        let tokens = left.iter().any(|word| begins(word, "tokens"))
            || matches!(left[..], [only] if is(only, "token"));
        if tokens && !calls {
            subject.dimension = tokens_of(&left);
            left.retain(|word| !is_token_word(word));
        } else if let Some((at, unit)) =
            left.iter().enumerate().find_map(|(at, word)| Some((at, metered(word)?)))
        {
            subject.dimension = unit;
            left.remove(at);
        } else if let [unit] = left[..]
            && unit_first
            && subject.window.is_some()
            && !calls
        {
            subject.dimension = Dimension::new(&unit.to_ascii_lowercase()).unwrap_or_default();
            left.clear();
        }
        let mut name = String::new();
        for word in words
            .iter()
            .filter(|word| left.contains(word) || value::named_span(word).is_some() || number(word))
        {
            name.push_str(if name.is_empty() { "" } else { "-" });
            name.extend(word.chars().map(|c| c.to_ascii_lowercase()));
        }
        subject.name = label(&name);
        subject
    }
}

fn tokens_of(words: &[&str]) -> Dimension {
    let any = |known: &[&str]| words.iter().any(|word| known.iter().any(|known| is(known, word)));
    let name = if any(&["input", "prompt"]) {
        "input_tokens"
    } else if any(&["output", "generated", "completion"]) {
        "output_tokens"
    } else if any(&["cached"]) {
        "cached_tokens"
    } else {
        "tokens"
    };
    Dimension::new(name).unwrap_or_default()
}

fn is_token_word(word: &str) -> bool {
    ["tokens", "token", "input", "prompt", "output", "generated", "completion", "cached"]
        .iter()
        .any(|known| is(known, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_4_a_subject_tells_what_is_metered() {
        let of = |words: &[&str], first| {
            let subject = Subject::of(words, first);
            let window = subject.window.map(|window| window.to_string()).unwrap_or_default();
            (
                subject.dimension.to_string(),
                subject.name.map(String::from).unwrap_or_default(),
                window,
            )
        };
        for (words, first, dimension, name, window) in [
            (&["requests"][..], false, "requests", "", ""),
            (&["minute"], true, "requests", "minute", "1m"),
            (&["req", "minute"], true, "requests", "minute", "1m"),
            (&["tokens", "per", "day"], true, "tokens", "day", "1d"),
            (&["tokens_usage_based"], true, "tokens", "tokens_usage_based", ""),
            (&["input", "tokens"], false, "input_tokens", "", ""),
            (&["tokens", "prompt"], true, "input_tokens", "", ""),
            (&["videos", "minute"], true, "videos", "minute", "1m"),
            (&["complexity"], false, "complexity", "", ""),
            (&["api", "token"], false, "requests", "api-token", ""),
            (&["app", "24hour"], false, "requests", "app-24hour", "1d"),
            (&["24", "hour"], false, "requests", "24-hour", "1d"),
            (&["long"], true, "requests", "long", ""),
        ] {
            let expected = (dimension.to_owned(), name.to_owned(), window.to_owned());
            assert_eq!(of(words, first), expected, "{words:?}");
        }
    }
}
