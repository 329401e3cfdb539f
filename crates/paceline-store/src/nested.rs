//! A store that charges every scope with a limit, not only the narrowest.

use crate::store::in_order;
use crate::{Admission, Ask, Day, Grant, Health, Key, Snapshot, Store, StoreError, Tally};
use paceline_core::{Cost, Limit, Reading, Scope, Verdict, Wait};
use std::sync::Arc;

/// Charges a request in the scope that governs it and in every wider one with a limit: all of them, or
/// none. The narrowest learns from the answer.
///
/// Each scope is a visit, so where visits take time an admission takes one for each that has a limit.
#[derive(Debug)]
pub struct Nested(Arc<dyn Store>);

impl Nested {
    /// Charges wider scopes of `store` as well.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// Does the same for each scope that was charged.
    fn each<E>(grant: &Grant, step: impl FnMut(&Grant) -> Result<(), E>) -> Result<(), E> {
        std::iter::once(grant).chain(&grant.wider).try_for_each(step)
    }
}

impl Store for Nested {
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError> {
        let first = self.0.admit(scope, cost)?;
        let Admission::Granted(mut grant) = first else { return Ok(first) };
        let mut next = scope.wider(grant.key().as_str()).map(Scope::into_owned);
        while let Some(wider) = next {
            match self.0.admit(&wider, cost) {
                Ok(Admission::Granted(also)) => {
                    next = wider.wider(also.key().as_str()).map(Scope::into_owned);
                    grant.wider.push(also);
                }
                // Whatever was charged before comes back, in the order in which it went.
                refused => {
                    Self::each(&grant, |grant| self.0.give_back(grant))?;
                    return refused;
                }
            }
        }
        Ok(Admission::Granted(grant))
    }

    fn admit_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Option<Admission>>, StoreError> {
        in_order(asks, |ask| self.admit(ask.scope, ask.cost))
    }

    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError> {
        Ok(match self.admit(scope, cost)? {
            Admission::Granted(grant) => {
                self.close(&grant)?;
                Verdict::Granted
            }
            Admission::Wait(_, wait) => Verdict::Wait(wait.into()),
        })
    }

    fn wait(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Option<Wait>, StoreError> {
        let mut longest: Option<Wait> = None;
        let mut next = Some(scope.clone().into_owned());
        while let Some(scope) = next {
            let Some((key, state, now)) = self.0.snapshot(&scope)? else { break };
            longest =
                longest.into_iter().chain(state.wait(cost, now)).max_by_key(|wait| wait.after);
            next = scope.wider(key.as_str()).map(Scope::into_owned);
        }
        Ok(longest)
    }

    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError> {
        Self::each(grant, |grant| self.0.settle(grant, actual))
    }

    fn close(&self, grant: &Grant) -> Result<bool, StoreError> {
        let mut was_awaited = false;
        Self::each(grant, |grant| self.0.close(grant).map(|awaited| was_awaited |= awaited))?;
        Ok(was_awaited)
    }

    fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        Self::each(grant, |grant| self.0.give_back(grant))
    }

    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError> {
        let changed = self.0.observe(grant, reading)?;
        for wider in &grant.wider {
            self.0.close(wider)?;
        }
        Ok(changed)
    }

    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError> {
        self.0.set_limit(scope, limit)
    }

    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError> {
        self.0.spend(scope, cost)
    }

    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError> {
        self.0.clear(scope)
    }

    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError> {
        self.0.snapshot(scope)
    }

    fn view(&self, scope: &Scope<'_>) -> Option<Snapshot> {
        self.0.view(scope)
    }

    fn is_slow(&self) -> bool {
        self.0.is_slow()
    }

    fn share(&self, key: &Key) -> u32 {
        self.0.share(key)
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.0.ping()
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn keys(&self) -> Result<Vec<Key>, StoreError> {
        self.0.keys()
    }

    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError> {
        self.0.count(entries)
    }

    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError> {
        self.0.tallies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;
    use paceline_core::{Policy, VirtualClock};

    fn left(store: &Nested, endpoint: &str) -> u64 {
        let scope = Scope::parse(endpoint).unwrap();
        let (_, state, now) = store.snapshot(&scope).unwrap().unwrap();
        state.status(now).limits[0].remaining.whole()
    }

    #[test]
    fn rule_15_wider_scopes_are_charged_too_all_or_none() {
        let memory = Memory::with_clock(Policy::default(), VirtualClock::default());
        let store = Nested::new(Arc::new(memory));
        let scope = |text: &'static str| Scope::parse(text).unwrap();
        let limit = |text| Limit::parse(text).unwrap();
        store.set_limit(&scope("a.example"), limit("3/1h")).unwrap();
        store.set_limit(&scope("a.example/v1/search"), limit("5/1h")).unwrap();
        let url = scope("a.example/v1/search/x");
        let mut grants = Vec::new();
        for _ in 0..3 {
            let Admission::Granted(grant) = store.admit(&url, &Cost::ONE).unwrap() else {
                panic!()
            };
            grants.push(grant);
        }
        let Admission::Wait(key, wait) = store.admit(&url, &Cost::ONE).unwrap() else { panic!() };
        assert_eq!(key.as_str(), "a.example", "the wider one binds");
        assert_eq!(store.wait(&url, &Cost::ONE).unwrap(), Some(wait));
        assert_eq!(left(&store, "a.example/v1/search"), 2, "rule 4: a refusal charges nothing");
        store.give_back(&grants.pop().unwrap()).unwrap();
        assert_eq!(left(&store, "a.example"), 1);
        assert_eq!(left(&store, "a.example/v1/search"), 3);
        // What is not below the narrow one charges the host alone.
        assert!(store.charge(&scope("a.example/users"), &Cost::ONE).unwrap().is_granted());
        assert_eq!(left(&store, "a.example/v1/search"), 3);
        assert_eq!(left(&store, "a.example"), 0);
    }
}
