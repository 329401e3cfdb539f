//! The full state of one scope in memory.

use crate::{Clock, Key};
use paceline_core::gcra::{self, Debit};
use paceline_core::{Amount, Cost, Dimension, ScopeState, Tick, Verdict};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The full state of one scope.
///
/// Most scopes are one ordinary bucket, which is one integer. While nothing else matters there, that
/// integer lies open, beside the lock instead of under it, and a decision is one compare-and-swap.
/// Whoever takes the lock first takes the integer in, so that under the lock everything is in one
/// place, and lays it open again when leaving.
#[derive(Debug)]
pub struct Cell {
    key: Key,
    clock: Clock,
    shape: Arc<AtomicU64>,
    open: Open,
    inner: Mutex<Inner>,
}

/// What is under the lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: ScopeState,
    /// No longer in the table: whoever holds the cell has to look again.
    pub(crate) dropped: bool,
}

/// The one bucket of a scope, while it lies open.
#[derive(Debug)]
struct Open {
    /// When it is full; [`TAKEN`] while it is under the lock.
    tat: AtomicU64,
    /// What one request costs there. Changes only while the bucket is taken.
    advance: AtomicU64,
    slack: AtomicU64,
}

/// No bucket lies open. No bucket is ever due then: it is 584 years away.
const TAKEN: u64 = u64::MAX;

impl Open {
    /// Pays for one request if there is room. `false` also when no bucket lies open: ask under the
    /// lock.
    #[inline]
    fn charge_one(&self, now: Tick) -> bool {
        let mut tat = self.tat.load(Ordering::Acquire);
        let advance = self.advance.load(Ordering::Relaxed);
        let debit = Debit { advance, slack: self.slack.load(Ordering::Relaxed) };
        let now = now.as_nanos();
        loop {
            if gcra::wait(tat, debit, now) > 0 {
                return false;
            }
            let paid = gcra::spend(tat, debit, now);
            // A limit that changed meanwhile and left the same integer behind charges this one
            // request by the rate that was in force when it came.
            match self.tat.compare_exchange_weak(tat, paid, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => tat = other,
            }
        }
    }
}

/// The lock of a cell, with everything under it.
pub(crate) struct Locked<'a> {
    open: &'a Open,
    inner: MutexGuard<'a, Inner>,
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.inner.dropped {
            return;
        }
        if let Some((rate, tat)) = self.inner.state.lone_bucket() {
            let one = rate.debit(Amount::ONE);
            self.open.advance.store(one.advance, Ordering::Relaxed);
            self.open.slack.store(one.slack, Ordering::Relaxed);
            self.open.tat.store(tat, Ordering::Release);
        }
    }
}

impl Cell {
    pub(crate) fn new(key: Key, state: ScopeState, clock: Clock, shape: Arc<AtomicU64>) -> Self {
        let (advance, slack) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = Open { tat: AtomicU64::new(TAKEN), advance, slack };
        let inner = Mutex::new(Inner { state, dropped: false });
        Self { key, clock, shape, open, inner }
    }

    /// Takes the lock, and the bucket that lay open.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        let mut inner = self.inner.lock();
        let tat = self.open.tat.swap(TAKEN, Ordering::AcqRel);
        if tat != TAKEN {
            inner.state.set_lone_bucket(tat);
        }
        Locked { open: &self.open, inner }
    }

    /// The key of its scope.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// A number that moves when another cell may have come to govern instead of this one.
    #[must_use]
    pub fn shape(&self) -> &Arc<AtomicU64> {
        &self.shape
    }

    /// Charges `cost` here; `None` when the cell is no longer the one in the store.
    #[must_use]
    #[inline]
    pub fn charge(&self, cost: &Cost) -> Option<Verdict> {
        let now = self.clock.now();
        if cost.of(&Dimension::Requests) == Amount::ONE && self.open.charge_one(now) {
            return Some(Verdict::Granted);
        }
        let mut inner = self.lock();
        (!inner.dropped).then(|| inner.state.charge(cost, now))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Admission, Memory, Store};
    use paceline_core::{Cost, Limit, Policy, Scope, VirtualClock};
    use std::thread;

    /// With and without the lock at once, exactly the limit is granted.
    #[test]
    fn rule_4_every_unit_is_spent_once_whichever_way_it_is_asked_for() {
        let store = Memory::with_clock(Policy::default(), VirtualClock::default());
        let scope = Scope::parse("api.example.com").unwrap();
        store.set_limit(&scope, Limit::parse("20000/1h").unwrap()).unwrap();
        let cell = store.cell(&scope).unwrap();
        let granted: usize = thread::scope(|threads| {
            let open =
                || (0..9_000).filter(|_| cell.charge(&Cost::ONE).unwrap().is_granted()).count();
            let by_key = || {
                let charge = |_: &u32| store.charge(&scope, &Cost::ONE).unwrap().is_granted();
                (0..9_000).filter(charge).count()
            };
            let locked = || {
                let admit = |_: &u32| {
                    matches!(store.admit(&scope, &Cost::ONE).unwrap(), Admission::Granted(_))
                };
                (0..9_000).filter(admit).count()
            };
            let both = [threads.spawn(open), threads.spawn(by_key)];
            let last = threads.spawn(locked);
            both.into_iter().map(|it| it.join().unwrap()).sum::<usize>() + last.join().unwrap()
        });
        assert_eq!(granted, 20_000);
        assert_eq!(store.wait(&scope, &Cost::ONE).unwrap().unwrap().after.as_millis(), 180);
    }
}
