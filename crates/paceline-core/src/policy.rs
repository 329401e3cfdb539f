//! What a limiter does where no limit was declared.

use crate::{Limit, Origin, ScopeState};
use std::time::Duration;

/// The settings that every charge and every observation follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The limits of every host that has none of its own, until a response says otherwise.
    default_limits: Vec<Limit>,
    /// In a scope of which nothing is known, one request goes ahead and the others follow its
    /// answer.
    pub learn_first: bool,
    /// Where a server says nothing of its limits, the rate is searched for from its rejections.
    pub adaptive: bool,
    /// The longest hold that a server can ask for; afterwards one request goes first.
    pub max_hold: Duration,
}

impl Policy {
    /// Gives these limits to every host that has none of its own, until a response says otherwise.
    pub fn set_default_limits(&mut self, limits: impl IntoIterator<Item = Limit>) {
        let provisional = |limit| Limit { origin: Origin::Default, ..limit };
        self.default_limits = limits.into_iter().map(provisional).collect();
    }

    /// The limits of every host that has none of its own.
    #[must_use]
    pub fn default_limits(&self) -> &[Limit] {
        &self.default_limits
    }

    /// Whether a host about which nothing is known decides anything.
    #[must_use]
    pub fn governs(&self) -> bool {
        self.learn_first || self.adaptive || !self.default_limits.is_empty()
    }

    /// What a host looks like before anything is known or counted.
    #[must_use]
    pub fn fresh(&self) -> ScopeState {
        match (self.default_limits.as_slice(), self.adaptive, self.learn_first) {
            ([], true, _) => ScopeState::searching(),
            ([], false, true) => ScopeState::unknown(),
            (limits, ..) => ScopeState::with_limits(limits),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_limits: Vec::new(),
            learn_first: false,
            adaptive: false,
            max_hold: Duration::from_secs(60),
        }
    }
}
