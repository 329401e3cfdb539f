//! What a scope looks like that a store does not know: what this process declared for it, else what
//! the policy says.

use crate::Key;
use arc_swap::ArcSwap;
use paceline_core::{Limit, Policy, ScopeState, Tick};
use std::collections::HashMap;

/// The policy of a process, and the limits that its code declared: they are put back when a store has
/// lost them.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) policy: Policy,
    /// Not behind a lock: a fork may happen while another thread holds it.
    declared: ArcSwap<HashMap<Key, Vec<Limit>>>,
}

impl Templates {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, declared: ArcSwap::default() }
    }

    /// Remembers a limit that was declared here.
    pub(crate) fn declare(&self, key: &str, limit: Limit) {
        self.declared.rcu(|declared| {
            let mut declared = HashMap::clone(declared);
            let limits = declared.entry(Key::new(key)).or_default();
            limits.retain(|old| old.dimension != limit.dimension || old.window != limit.window);
            limits.push(limit.clone());
            declared
        });
    }

    /// Forgets what was declared for the keys that `goes` picks.
    pub(crate) fn forget(&self, goes: impl Fn(&str) -> bool) {
        self.declared.rcu(|declared| {
            let kept = declared.iter().filter(|(key, _)| !goes(key.as_str()));
            kept.map(|(key, limits)| (key.clone(), limits.clone())).collect::<HashMap<_, _>>()
        });
    }

    /// The state that was declared for exactly that scope.
    pub(crate) fn declared(&self, key: &str) -> Option<ScopeState> {
        let declared = self.declared.load();
        if declared.is_empty() {
            return None;
        }
        let limits = declared.get(&Key::new(key))?;
        let mut state = self.policy.fresh();
        for limit in limits {
            state.set_limit(limit.clone(), Tick::ZERO);
        }
        Some(state)
    }
}
