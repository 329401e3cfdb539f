//! What happens when a store cannot be reached.

use crate::store::in_order;
use crate::{
    Admission, Ask, Clock, Day, Grant, Health, Key, Memory, PerProcess, Place, Snapshot, Store,
    StoreError, Tallies, Tally,
};
use paceline_core::record::Record;
use paceline_core::state::Receipt;
use paceline_core::{Cause, Cost, Limit, Policy, Reading, Scope, Tick, Verdict, Wait};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What to do while a store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Let every call through; the store is told when it is back.
    #[default]
    Open,
    /// Let no call through.
    Closed,
    /// Pace the calls of this process alone, at the share of each limit that it had before. Where no
    /// limit is known, let them through.
    Local,
}

/// A change in how a store is doing, to be told to somebody.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// It cannot be reached any more.
    Away(OnFailure, StoreError),
    /// What it has stored for a scope cannot be used. Told once.
    Damaged(StoreError),
    /// It is back, after so many calls went without it.
    Back(u64),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(OnFailure::Open, error) => {
                write!(f, "{error}; calls go through unpaced until it is back")
            }
            Self::Away(OnFailure::Closed, error) => {
                write!(f, "{error}; calls are refused until it is back")
            }
            Self::Away(OnFailure::Local, error) => {
                write!(f, "{error}; this process paces its own share until it is back")
            }
            Self::Damaged(error) => write!(f, "{error}; it is as if nothing was stored there"),
            Self::Back(unmetered) => {
                write!(f, "the store is back; {unmetered} calls went without it")
            }
        }
    }
}

/// The first and the longest pause before a store that is away is tried again.
const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(2);
/// For so long those who wait for a limit go on waiting when it is away.
const MOMENT: Duration = Duration::from_secs(2);
/// More scopes than are remembered while a store is away.
const MOST: usize = 4_096;

/// A store that may be away, and what to do then.
///
/// Only one caller at a time finds out whether it is back, at growing intervals; all others are
/// answered at once.
pub struct FailSafe {
    store: Arc<dyn Store>,
    on_failure: OnFailure,
    clock: Clock,
    notify: Box<dyn Fn(Notice) + Send + Sync>,
    away: AtomicBool,
    /// Since when, in nanoseconds of the clock.
    away_since: AtomicU64,
    damaged: AtomicBool,
    /// Somebody is telling it what it missed.
    returning: AtomicBool,
    /// When it is tried again, in nanoseconds of the clock.
    retry_at: AtomicU64,
    attempts: AtomicU64,
    failures: AtomicU64,
    unmetered: AtomicU64,
    visits: AtomicU64,
    /// How long they took, in nanoseconds.
    busy: AtomicU64,
    /// What is to be told when it is back.
    missed: Mutex<Missed>,
    /// What is to be added to its books then. A child that forks has nothing of it to tell.
    uncounted: PerProcess<Mutex<Tallies>>,
    local: Memory,
}

#[derive(Debug, Default)]
struct Missed {
    spent: HashMap<Key, Cost>,
    /// The last rejection in each scope, and when it came.
    rejections: HashMap<Key, (Reading, Tick)>,
    limits: Vec<(Key, Limit)>,
    calls: u64,
}

impl FailSafe {
    /// Watches over `store`, and tells `notify` when it goes away and when it is back.
    pub fn new(
        store: Arc<dyn Store>,
        policy: Policy,
        on_failure: OnFailure,
        clock: Clock,
        notify: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            on_failure,
            local: Memory::with_clock(policy, clock.clone()),
            clock,
            notify: Box::new(notify),
            away: AtomicBool::new(false),
            away_since: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
            returning: AtomicBool::new(false),
            retry_at: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            unmetered: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            missed: Mutex::default(),
            uncounted: PerProcess::default(),
        }
    }

    /// Visits the store once. When it is away that is told, whatever the mode.
    ///
    /// # Errors
    /// What it says, with [`OnFailure::Closed`].
    pub fn probe(&self) -> Result<(), StoreError> {
        match self.visit(|store| store.ping()) {
            Err(error) if self.on_failure == OnFailure::Closed => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs `step` on the store, unless it is known to be away.
    fn visit<R>(
        &self,
        step: impl FnOnce(&dyn Store) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        if self.away.load(Ordering::Acquire) {
            self.knock()?;
        }
        let began = self.clock.now();
        let outcome = step(&*self.store);
        let took = self.clock.now().since(began);
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(paceline_core::time::nanos(took), Ordering::Relaxed);
        match outcome {
            Ok(result) => {
                // Others go without it until it was told what it missed.
                if self.away.load(Ordering::Acquire) && !self.returning.swap(true, Ordering::AcqRel)
                {
                    self.back();
                    self.away.store(false, Ordering::Release);
                    self.returning.store(false, Ordering::Release);
                }
                Ok(result)
            }
            Err(error) if error.of_data => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if !self.damaged.swap(true, Ordering::AcqRel) {
                    (self.notify)(Notice::Damaged(error.clone()));
                }
                Err(error)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Whether it is this caller's turn to see whether the store is back.
    fn knock(&self) -> Result<(), StoreError> {
        let now = self.clock.now().as_nanos();
        let at = self.retry_at.load(Ordering::Acquire);
        let pause = self.pause();
        let next = now.saturating_add(paceline_core::time::nanos(pause));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if at <= now && self.retry_at.compare_exchange(at, next, order.0, order.1).is_ok() {
            return Ok(());
        }
        let left = Duration::from_nanos(at.saturating_sub(now)).max(SOON);
        Err(StoreError::new("it did not answer a moment ago").after(left))
    }

    fn pause(&self) -> Duration {
        let doubled = u32::try_from(self.attempts.load(Ordering::Relaxed)).unwrap_or(6).min(6);
        (SOON * 2_u32.pow(doubled)).min(LATE)
    }

    #[cold]
    fn failed(&self, error: StoreError) -> StoreError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let pause = self.pause();
        let next = self.clock.now().after(pause).as_nanos();
        self.retry_at.fetch_max(next, Ordering::AcqRel);
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let error = error.after(pause);
        if !self.away.swap(true, Ordering::AcqRel) {
            self.away_since.store(self.clock.now().as_nanos(), Ordering::Release);
            (self.notify)(Notice::Away(self.on_failure, error.clone()));
        }
        error
    }

    /// Tells the store what it missed, so that nobody has a burst because it was away.
    #[cold]
    fn back(&self) {
        self.attempts.store(0, Ordering::Relaxed);
        let missed = std::mem::take(&mut *self.missed.lock());
        for (key, (reading, at)) in missed.rejections {
            let passed = self.clock.now().since(at);
            let left = reading.retry_after.map(|after| after.saturating_sub(passed));
            if left.is_none_or(|left| !left.is_zero()) {
                let receipt = Receipt::new(Cost::NOTHING, Tick::ZERO);
                let reading = Reading { retry_after: left, rejected: true, ..Reading::default() };
                drop(self.store.observe(&Grant::new(Place::Key(key), receipt), &reading));
            }
        }
        for (key, limit) in missed.limits {
            drop(self.store.set_limit(&Scope::from_key(key.as_str()), limit));
        }
        for (key, cost) in missed.spent {
            drop(self.store.spend(&Scope::from_key(key.as_str()), &cost));
        }
        let uncounted = self.uncounted();
        if self.store.count(&uncounted).is_err_and(|error| !error.of_data) {
            self.keep(&uncounted);
        }
        drop(self.local.clear(None));
        (self.notify)(Notice::Back(missed.calls));
    }

    /// What the books still lack, which is taken.
    fn uncounted(&self) -> Vec<(Key, Tally)> {
        self.uncounted.mine().map(|uncounted| uncounted.lock().take()).unwrap_or_default()
    }

    /// Keeps what the books lack.
    fn keep(&self, entries: &[(Key, Tally)]) {
        self.uncounted.get_or_default().lock().extend(entries);
    }

    /// Decides without the store.
    fn without(
        &self,
        scope: &Scope<'_>,
        cost: &Cost,
        error: StoreError,
    ) -> Result<Admission, StoreError> {
        if self.on_failure == OnFailure::Closed {
            return Err(error);
        }
        self.take_over(scope);
        let granted = match self.on_failure {
            OnFailure::Local => match self.local.admit(scope, cost)? {
                Admission::Granted(grant) => Some(grant),
                waits => return Ok(waits),
            },
            _ => {
                if let Some(wait) = self.must_wait(scope, cost)? {
                    return Ok(wait);
                }
                self.local.spend(scope, cost)?;
                None
            }
        };
        self.unmetered.fetch_add(1, Ordering::Relaxed);
        let known = self.store.view(scope).map(|(key, ..)| key);
        let key = known.unwrap_or_else(|| Key::new(scope.host()));
        let mut missed = self.missed.lock();
        missed.calls += 1;
        if missed.spent.len() < MOST || missed.spent.contains_key(&key) {
            missed.spent.entry(key).or_default().add(cost);
        }
        drop(missed);
        // No receipt of the store's: it is older than all of those.
        let receipt = Receipt::new(cost.clone(), Tick::ZERO);
        let place = Place::Key(Key::new(scope.host()));
        Ok(Admission::Granted(granted.unwrap_or(Grant::new(place, receipt))))
    }

    /// Whether a call has to wait although calls go through. What the server said holds in any case; and
    /// a store that is away for a moment only does not send off at once all who wait for a limit.
    fn must_wait(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Option<Admission>, StoreError> {
        let Some(mut wait) = self.local.wait(scope, cost)? else { return Ok(None) };
        if matches!(wait.by, Cause::Limit(_)) {
            let since = Tick::from_nanos(self.away_since.load(Ordering::Acquire));
            let away = self.away.load(Ordering::Acquire);
            if !away || self.clock.now().since(since) > MOMENT {
                return Ok(None);
            }
            wait.after = wait.after.min(SOON);
        }
        let governing = self.local.snapshot(scope)?;
        let key = governing.map_or_else(|| Key::new(scope.host()), |(key, ..)| key);
        Ok(Some(Admission::Wait(key, wait)))
    }

    /// Takes what this process knows of a scope over into memory: its share of the limits, and holds.
    fn take_over(&self, scope: &Scope<'_>) {
        let Some((key, state, now)) = self.store.view(scope) else { return };
        if self.local.has(key.as_str()) {
            return;
        }
        let share = match self.on_failure {
            OnFailure::Local => self.store.share(&key),
            OnFailure::Open | OnFailure::Closed => 1_000,
        };
        // By way of the stored form, for the two count time from different instants.
        let record = Record::of(&state.scaled(share, now), now, 0);
        if let Ok(state) = record.state(self.clock.now(), Duration::ZERO) {
            self.local.put(key.as_str(), state);
        }
    }

    /// A request was answered while the store is away: what a rejection says is kept for it.
    fn hear(&self, grant: &Grant, reading: &Reading) {
        let key = grant.key().clone();
        if !reading.rejected {
            return;
        }
        if matches!(grant.place, Place::Key(_)) {
            self.take_over(&Scope::from_key(key.as_str()));
            let receipt = Receipt::new(Cost::NOTHING, Tick::ZERO);
            let here = Grant::new(Place::Key(key.clone()), receipt);
            drop(self.local.observe(&here, reading));
        }
        let mut missed = self.missed.lock();
        if missed.rejections.len() < MOST || missed.rejections.contains_key(&key) {
            missed.rejections.insert(key, (reading.clone(), self.clock.now()));
        }
    }

    /// Tells what became of a grant: here, if it was given in the store's absence.
    fn tell<R: Default>(
        &self,
        grant: &Grant,
        step: impl FnOnce(&dyn Store) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        match grant.place {
            Place::Cell(_) => step(&self.local),
            Place::Key(_) => self.attempt(step),
        }
    }

    /// Does what has no outcome that a caller waits for. It is given up while the store is away, in every
    /// mode: the request itself was made. Nor does it tell that the store is back, for stores keep some of
    /// it to themselves.
    fn attempt<R: Default>(
        &self,
        step: impl FnOnce(&dyn Store) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        if self.away.load(Ordering::Acquire) {
            return Ok(R::default());
        }
        Ok(step(&*self.store).unwrap_or_else(|error| {
            if !error.of_data {
                self.failed(error);
            }
            R::default()
        }))
    }
}

impl fmt::Debug for FailSafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailSafe")
            .field("store", &self.store)
            .field("on_failure", &self.on_failure)
            .field("away", &self.away)
            .finish_non_exhaustive()
    }
}

impl Store for FailSafe {
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError> {
        match self.visit(|store| store.admit(scope, cost)) {
            Err(error) => self.without(scope, cost, error),
            admission => admission,
        }
    }

    fn admit_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Option<Admission>>, StoreError> {
        let error = match self.visit(|store| store.admit_all(asks)) {
            Err(error) => error,
            answers => return answers,
        };
        in_order(asks, |ask| self.without(ask.scope, ask.cost, error.clone()))
    }

    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError> {
        match self.visit(|store| store.charge(scope, cost)) {
            Err(error) => Ok(match self.without(scope, cost, error)? {
                Admission::Granted(_) => Verdict::Granted,
                Admission::Wait(_, wait) => Verdict::Wait(wait.into()),
            }),
            verdict => verdict,
        }
    }

    fn wait(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Option<Wait>, StoreError> {
        match self.visit(|store| store.wait(scope, cost)) {
            Err(error) if self.on_failure == OnFailure::Closed => Err(error),
            Err(_) => {
                self.take_over(scope);
                self.local.wait(scope, cost)
            }
            wait => wait,
        }
    }

    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError> {
        self.tell(grant, |store| store.settle(grant, actual))
    }

    fn close(&self, grant: &Grant) -> Result<bool, StoreError> {
        self.tell(grant, |store| store.close(grant))
    }

    fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        self.tell(grant, |store| store.give_back(grant))
    }

    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError> {
        let was_away = self.away.load(Ordering::Acquire);
        let observed = self.tell(grant, |store| store.observe(grant, reading));
        if was_away || self.away.load(Ordering::Acquire) {
            self.hear(grant, reading);
        }
        observed
    }

    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError> {
        match self.visit(|store| store.set_limit(scope, limit.clone())) {
            Err(error) if self.on_failure == OnFailure::Closed => Err(error),
            Err(_) => {
                let mut missed = self.missed.lock();
                let same = |(key, known): &(Key, Limit)| {
                    key.as_str() == scope.key()
                        && (&known.dimension, known.window) == (&limit.dimension, limit.window)
                };
                missed.limits.retain(|known| !same(known));
                missed.limits.push((Key::new(scope.key()), limit.clone()));
                drop(missed);
                self.local.set_limit(scope, limit)
            }
            done => done,
        }
    }

    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError> {
        self.attempt(|store| store.spend(scope, cost))
    }

    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError> {
        // Whoever clears wants to know that it was done.
        self.visit(|store| store.clear(scope))
    }

    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError> {
        match self.visit(|store| store.snapshot(scope)) {
            Err(error) if self.on_failure == OnFailure::Closed => Err(error),
            Err(_) => Ok(self.store.view(scope)),
            found => found,
        }
    }

    fn keys(&self) -> Result<Vec<Key>, StoreError> {
        self.visit(|store| store.keys())
    }

    /// In every mode: what was sent, was sent, and is told when the store is back.
    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError> {
        let mut all = self.uncounted();
        all.extend_from_slice(entries);
        if all.is_empty() {
            return Ok(());
        }
        match self.visit(|store| store.count(&all)) {
            Err(error) if !error.of_data => self.keep(&all),
            counted => return counted,
        }
        Ok(())
    }

    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError> {
        self.count(&[])?;
        self.visit(|store| store.tallies())
    }

    fn view(&self, scope: &Scope<'_>) -> Option<Snapshot> {
        if self.away.load(Ordering::Acquire) && self.on_failure == OnFailure::Local {
            return self.local.view(scope);
        }
        self.store.view(scope)
    }

    fn share(&self, key: &Key) -> u32 {
        self.store.share(key)
    }

    fn is_slow(&self) -> bool {
        self.store.is_slow()
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.visit(|store| store.ping())
    }

    fn flush(&self) -> Result<(), StoreError> {
        drop(self.count(&[]));
        self.attempt(|store| store.flush())
    }

    fn health(&self) -> Health {
        Health {
            away: self.away.load(Ordering::Acquire),
            failures: self.failures.load(Ordering::Relaxed),
            unmetered: self.unmetered.load(Ordering::Relaxed),
            visits: self.visits.load(Ordering::Relaxed),
            busy: Duration::from_nanos(self.busy.load(Ordering::Relaxed)),
        }
    }
}
