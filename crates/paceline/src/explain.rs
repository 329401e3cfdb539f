//! Why a call is paced as it is.

use crate::{Error, Limiter};
use paceline_core::{Origin, Scope, Status};
use paceline_store::Store;
use std::fmt;

/// Which limits a call meets, and why those; printed, it says so in words. See
/// [`Limiter::explain`](crate::Limiter::explain).
///
/// ```
/// use paceline::{Limit, Limiter};
/// let limiter = Limiter::builder().build();
/// limiter.set_limit("api.example.com", Limit::parse("60/1m")?)?;
/// limiter.set_limit("api.example.com/search", Limit::parse("10/1m")?)?;
/// let why = limiter.explain("https://api.example.com/search/users?q=x")?.to_string();
/// assert!(why.starts_with("https://api.example.com/search governs"), "{why}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The endpoint that was asked about.
    pub endpoint: String,
    /// Every scope about which something is known there, the one that governs first, then wider ones.
    pub scopes: Vec<(String, Status)>,
}

impl Explanation {
    pub(crate) fn of(store: &dyn Store, scope: &Scope<'_>) -> Result<Self, Error> {
        let mut scopes = Vec::new();
        let mut next = Some(scope.clone().into_owned());
        while let Some(asked) = next {
            let Some((key, state, now)) = store.snapshot(&asked)? else { break };
            if state.governs(now) {
                scopes.push((Limiter::display(&key), state.status(now)));
            }
            next = scope.wider(key.as_str()).map(Scope::into_owned);
        }
        Ok(Self { endpoint: scope.to_string(), scopes })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(((scope, status), wider)) = self.scopes.split_first() else {
            return write!(
                f,
                "nothing governs {}: no limit was set, and no response has stated one",
                self.endpoint
            );
        };
        let because = match (scope.contains("/#"), *scope == self.endpoint, wider.is_empty()) {
            (true, ..) => "the server counts it in that bucket of its own",
            (_, true, _) => "it has limits of its own",
            (_, _, true) => "no narrower one is known",
            (_, _, false) => "of the scopes with a limit it is the narrowest",
        };
        write!(f, "{scope} governs {}: {because}", self.endpoint)?;
        for level in &status.limits {
            let (limit, left) = (&level.limit, level.remaining.whole());
            write!(f, "\n  {limit}: {left} left, {}", origin(limit.origin))?;
            if let Some(name) = &limit.name {
                write!(f, "; the server calls it {name:?}")?;
            }
        }
        if !status.hold.is_zero() {
            let left = status.hold.as_secs_f64();
            write!(f, "\n  held for {left:.1} s more: the server said stop")?;
        }
        for (scope, status) in wider {
            let limits: Vec<_> =
                status.limits.iter().map(|level| level.limit.to_string()).collect();
            write!(
                f,
                "\n  wider, and charged only with also_parents: {scope} ({})",
                limits.join(", ")
            )?;
        }
        Ok(())
    }
}

/// Where a limit came from, in words.
const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Registry => "as documented by the provider, until a response says otherwise",
        Origin::Default => "a default, until a response says otherwise",
        Origin::Estimated => "learned from responses, its window estimated",
        Origin::Confirmed => "stated by the server",
        Origin::Configured => "set by you",
    }
}
