//! What can be wrong with what a caller said.

/// Why a limit, window, cost or scope was not accepted.
///
/// Every message says what was wrong, what was expected and, where it helps, an example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A window that is not a whole, positive number of a known unit.
    #[error(
        "bad window {0:?}: expected a whole number above zero and a unit (ms, s, m, h, d), such as \"30s\" or \"1h\""
    )]
    Window(String),
    /// A limit that does not read as `[dimension=]units/window`.
    #[error(
        "bad limit {0:?}: expected [DIMENSION=]N/WINDOW, such as \"60/1m\" or \"tokens=90000/1m\""
    )]
    Limit(String),
    /// A limit or burst outside what can be counted.
    #[error("bad {what} {value}: expected a whole number from 1 to {max}")]
    Units {
        /// Which number it was: `limit` or `burst`.
        what: &'static str,
        /// The number given.
        value: u64,
        /// The largest that is accepted.
        max: u64,
    },
    /// `strict` and `burst` together: a strict limit has no burst of its own.
    #[error(
        "a strict limit takes no burst: it already lets the whole limit pass in any window, and never more"
    )]
    StrictBurst,
    /// A dimension without a name, or with characters that would not survive a store key.
    #[error("bad dimension {0:?}: expected letters, digits, '_', '-' or '.', such as \"tokens\"")]
    Dimension(String),
    /// A cost that is negative, not a number, or beyond counting.
    #[error("bad cost {0}: expected a number from 0 to 1e12")]
    Cost(String),
    /// An endpoint that has no host.
    #[error(
        "bad endpoint {input:?}: {reason}; expected a URL or a host, such as \"api.example.com/search\""
    )]
    Scope {
        /// What was given, without any userinfo.
        input: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An account that is no plain name. It is not shown, for it may be the secret itself.
    #[error(
        "bad account: expected a name of at most 64 letters, digits, '-', '.', '_' or '~', such as \"team-a\""
    )]
    Account,
    /// A text that cannot be the name of a header.
    #[error(
        "bad header name {0:?}: expected ASCII letters, digits and dashes, such as \"X-RateLimit-Limit\""
    )]
    HeaderName(String),
    /// A retry configuration that contradicts itself.
    #[error("bad retry configuration: {0}")]
    Retry(String),
}
