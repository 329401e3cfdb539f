//! What a process last saw of the scopes in a store that takes time to visit.

use crate::{Grant, Key, Snapshot};
use paceline_core::{Dimension, Scope, ScopeState, Tick};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// More scopes than a process waits on at once; beyond that it starts anew.
const MOST: usize = 8_192;
/// The grants over which a share is measured.
const LATELY: u64 = 512;

/// The states that came with the last answers.
#[derive(Debug, Default)]
pub(crate) struct Views {
    seen: Mutex<HashMap<Key, View>>,
    /// How often the store may have lost everything.
    losses: AtomicU64,
}

#[derive(Debug)]
struct View {
    state: ScopeState,
    /// The number of losses when it was seen.
    losses: u64,
    /// Requests granted here lately, and the tally of all when that began and now.
    mine: u64,
    since: u64,
    all: u64,
}

impl Views {
    pub(crate) fn see(&self, key: &str, state: ScopeState) {
        let mut seen = self.seen.lock();
        let (key, losses) = (Key::new(key), self.losses.load(Ordering::Acquire));
        if let Some(view) = seen.get_mut(&key) {
            (view.state, view.losses) = (state, losses);
            return;
        }
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(key, View { state, losses, mine: 0, since: 0, all: 0 });
    }

    /// The store may have lost everything.
    #[cfg(feature = "redis")]
    pub(crate) fn doubt(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// What was seen of exactly that scope before the store may have lost it.
    #[cfg(feature = "redis")]
    pub(crate) fn doubted(&self, key: &str) -> Option<ScopeState> {
        let seen = self.seen.lock();
        let view = seen.get(&Key::new(key))?;
        (view.losses != self.losses.load(Ordering::Acquire)).then(|| view.state.clone())
    }

    /// Counts a grant that this process got.
    pub(crate) fn count(&self, grant: &Grant) {
        let mut seen = self.seen.lock();
        let Some(view) = seen.get_mut(grant.key()) else { return };
        view.all = grant.receipt.before.of(&Dimension::Requests).whole();
        if view.mine == 0 || view.all < view.since {
            (view.mine, view.since) = (0, view.all);
        }
        view.mine += 1;
        if view.mine == LATELY {
            view.mine /= 2;
            view.since += (view.all - view.since) / 2;
        }
    }

    /// What this process has had of all that was granted lately, in thousandths.
    pub(crate) fn share(&self, key: &Key) -> u32 {
        let seen = self.seen.lock();
        let Some(view) = seen.get(key).filter(|view| view.mine > 0) else { return 1_000 };
        let all = view.all.saturating_sub(view.since).max(view.mine);
        u32::try_from(view.mine * 1_000 / all).unwrap_or(1_000).max(1)
    }

    pub(crate) fn forget(&self, key: Option<&str>) {
        let mut seen = self.seen.lock();
        match key {
            Some(key) => drop(seen.remove(&Key::new(key))),
            None => seen.clear(),
        }
    }

    /// The scope that governs `scope`, as far as is known.
    pub(crate) fn find(&self, scope: &Scope<'_>, now: Tick) -> Option<Snapshot> {
        let seen = self.seen.lock();
        scope.candidates().find_map(|key| {
            let key = Key::new(key);
            let state = &seen.get(&key)?.state;
            state.governs(now).then(|| (key, state.clone(), now))
        })
    }

    /// Looks at what was seen of exactly that scope.
    pub(crate) fn of<R>(&self, key: &Key, look: impl FnOnce(&ScopeState) -> R) -> Option<R> {
        self.seen.lock().get(key).map(|view| look(&view.state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use paceline_core::state::Receipt;
    use paceline_core::{Amount, Cost};

    #[test]
    fn rule_34_a_share_is_what_this_process_had_of_all_that_was_granted_lately() {
        let (views, key) = (Views::default(), Key::new("api.example.com"));
        assert_eq!(views.share(&key), 1_000, "nothing is known: all of it");
        views.see("api.example.com", ScopeState::default());
        let grant = |all: u64| {
            let mut before = Cost::NOTHING;
            before.set(Dimension::Requests, Amount::units(all));
            let receipt = Receipt { before, ..Receipt::new(Cost::ONE, Tick::ZERO) };
            Grant::new(Place::Key(key.clone()), receipt)
        };
        // One of four, from 700 on.
        (0..100).for_each(|i| views.count(&grant(700 + 4 * i)));
        assert!((240..=260).contains(&views.share(&key)), "{}", views.share(&key));
        // Then every one; what was before fades.
        (0..5_000).for_each(|i| views.count(&grant(1_100 + i)));
        assert!(views.share(&key) >= 950, "{}", views.share(&key));
    }
}
