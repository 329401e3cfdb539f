//! What calls came to, until the books of a store are told.

use paceline_core::Tick;
use paceline_store::{Key, Store, StoreError, Tallies, Tally};
use parking_lot::Mutex;
use std::time::Duration;

/// How long it may lie here while calls are counted.
const SOON: Duration = Duration::from_secs(1);

/// What a store that takes time to visit was not told yet: one visit a second is enough.
#[derive(Debug, Default)]
pub(crate) struct Books {
    untold: Mutex<Untold>,
    /// Held by whoever tells the store, so that nobody reads its books meanwhile.
    telling: Mutex<()>,
}

#[derive(Debug, Default)]
struct Untold {
    tallies: Tallies,
    since: Tick,
}

/// How long something has been lying here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// There was nothing before.
    New,
    Young,
    Due,
}

impl Books {
    pub(crate) fn add(&self, scope: &str, tally: &Tally, now: Tick) -> Age {
        let mut untold = self.untold.lock();
        let age = if untold.tallies.is_empty() {
            untold.since = now;
            Age::New
        } else if now.since(untold.since) < SOON {
            Age::Young
        } else {
            Age::Due
        };
        untold.tallies.add(&Key::new(scope), tally);
        age
    }

    /// Tells the store, and waits for whoever is about to.
    pub(crate) fn tell(&self, store: &dyn Store) -> Result<(), StoreError> {
        let _telling = self.telling.lock();
        self.tell_all(store)
    }

    /// Tells the store what has been lying here for long enough, unless somebody is about to.
    pub(crate) fn tell_if_due(&self, store: &dyn Store, now: Tick) {
        let Some(_telling) = self.telling.try_lock() else { return };
        if now.since(self.untold.lock().since) >= SOON {
            // Whoever watches over the store keeps what it cannot be told now.
            drop(self.tell_all(store));
        }
    }

    fn tell_all(&self, store: &dyn Store) -> Result<(), StoreError> {
        let entries = self.untold.lock().tallies.take();
        if entries.is_empty() { Ok(()) } else { store.count(&entries) }
    }
}
