//! What a process last saw of the scopes in a store that takes time to visit.

use crate::{Key, Snapshot};
use paceline_core::{Scope, ScopeState, Tick};
use parking_lot::Mutex;
use std::collections::HashMap;

/// More scopes than a process waits on at once; beyond that it starts anew.
const MOST: usize = 8_192;

/// The states that came with the last answers.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<HashMap<Key, (ScopeState, Tick)>>);

impl Views {
    pub(crate) fn see(&self, key: &str, state: ScopeState, now: Tick) {
        let mut seen = self.0.lock();
        let key = Key::new(key);
        if seen.len() >= MOST && !seen.contains_key(&key) {
            seen.clear();
        }
        seen.insert(key, (state, now));
    }

    pub(crate) fn forget(&self, key: Option<&str>) {
        let mut seen = self.0.lock();
        match key {
            Some(key) => drop(seen.remove(&Key::new(key))),
            None => seen.clear(),
        }
    }

    /// The scope that governs `scope`, as far as is known.
    pub(crate) fn find(&self, scope: &Scope<'_>, now: Tick) -> Option<Snapshot> {
        let seen = self.0.lock();
        scope.candidates().find_map(|key| {
            let key = Key::new(key);
            let (state, _) = seen.get(&key)?;
            state.governs(now).then(|| (key, state.clone(), now))
        })
    }

    /// What was seen of exactly that scope, and when.
    pub(crate) fn of(&self, key: &Key) -> Option<(ScopeState, Tick)> {
        self.0.lock().get(key).cloned()
    }
}
