//! What is wrong with a configuration.

use std::fmt;
use std::ops::Range;

/// Something that is wrong, or doubtful, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The line, from 1 on.
    pub line: usize,
    /// The column, from 1 on.
    pub column: usize,
    /// Whether it is wrong; else it is only doubtful, and accepted.
    pub is_error: bool,
    /// What kind of mistake it is, such as `unknown-key`.
    pub kind: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl Finding {
    pub(super) fn new(
        text: &str,
        span: &Range<usize>,
        kind: &'static str,
        what: String,
        help: String,
    ) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[start..].chars().count() + 1;
        Self { line, column, is_error: true, kind, what, help }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.help)
    }
}

/// The one of `known` that somebody may have meant.
fn meant<'a>(said: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |known: &&&str| strsim::jaro_winkler(said, known);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&nearest) > 0.8).then_some(*nearest)
}

/// A help that names the one that may have been meant, or all.
pub(super) fn help(said: &str, known: &[&str]) -> String {
    match meant(said, known) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// The help for a name that is nearly, but not quite, one that is known.
pub(super) fn nearly(said: &str, known: &[&str]) -> Option<String> {
    (!known.contains(&said) && meant(said, known).is_some()).then(|| help(said, known))
}
