//! The store of one process: a table in shards, each under its own short lock.
//!
//! Most scopes of a program with many of them have one default limit and nothing else to
//! remember, so their slot is the key and one integer, 48 bytes in all, without an allocation. A
//! scope becomes a full [`Cell`] when it has limits of its own, when a permit is out, or when a
//! response taught something. Whatever is idle and full is dropped: it equals no bucket (rule 31).

use crate::cell::Cell;
use crate::tally::{Books, day_of};
use crate::{Admission, Clock, Day, Grant, Key, Place, Snapshot, Store, StoreError, Tally};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use paceline_core::gcra::{self, Rate};
use paceline_core::state::{Cause, Receipt};
use paceline_core::{
    Cost, Dimension, Limit, Policy, Reading, Scope, ScopeState, Tick, Verdict, Wait,
};
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Enough that threads rarely meet; a power of two.
const SHARDS: usize = 64;
/// Tables smaller than this are not worth sweeping.
const SMALL: usize = 64;

/// Limits and buckets in this process's memory.
///
/// ```
/// use paceline_core::{Cost, Limit, Policy, Scope};
/// use paceline_store::{Memory, Store};
///
/// let store = Memory::new(Policy::default());
/// let scope = Scope::parse("api.example.com")?;
/// store.set_limit(&scope, Limit::parse("1/1h")?)?;
/// assert!(store.charge(&scope, &Cost::ONE)?.is_granted());
/// assert!(!store.charge(&scope, &Cost::ONE)?.is_granted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Shard]>,
    hasher: RandomState,
    clock: Clock,
    policy: Policy,
    /// The one default limit, if a lean slot can hold its bucket.
    lean: Option<Lean>,
    /// Moves when a look-up made before may no longer be right.
    shape: Arc<AtomicU64>,
    /// The most path segments of any scope that is known: narrower candidates need no look-up.
    deepest: AtomicUsize,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Lean {
    limit: Arc<Limit>,
    rate: Rate,
}

/// One lock and its part of the table, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    slots: HashTable<Slot>,
    /// Visits until the next sweep.
    until_sweep: usize,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    state: Slotted,
}

#[derive(Debug)]
enum Slotted {
    /// The `tat` of the one default limit.
    Lean(u64),
    Full(Arc<Cell>),
}

/// What is done to a state under its lock.
trait Step<R>: FnOnce(&Arc<Cell>, &mut ScopeState, Tick) -> R {}
impl<R, F: FnOnce(&Arc<Cell>, &mut ScopeState, Tick) -> R> Step<R> for F {}

impl Memory {
    /// An empty store on real, monotonic time.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_clock(policy, Clock::real())
    }

    /// An empty store on a clock of the caller's.
    #[must_use]
    pub fn with_clock(policy: Policy, clock: impl Into<Clock>) -> Self {
        let lean = match policy.default_limits() {
            [limit] if limit.dimension == Dimension::Requests && !limit.strict => {
                Some(Lean { limit: Arc::new(limit.clone()), rate: Rate::new(limit) })
            }
            _ => None,
        };
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            clock: clock.into(),
            policy,
            lean,
            shape: Arc::default(),
            deepest: AtomicUsize::new(0),
            books: Mutex::default(),
        }
    }

    /// How many scopes take up memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().slots.len()).sum()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The clock by which it counts.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    fn today(&self) -> Day {
        day_of(self.clock.wall_micros())
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> &Mutex<Table> {
        // The table itself uses the lowest and the highest bits.
        let at = usize::try_from(hash >> 40).unwrap_or(0) % SHARDS;
        &self.shards[at].0
    }

    /// The candidates that can be in the table, the narrowest first.
    #[inline]
    fn candidates<'s>(&self, scope: &'s Scope<'_>) -> impl Iterator<Item = &'s str> {
        let deepest = self.deepest.load(Ordering::Relaxed);
        let paths = (deepest > 0).then(|| {
            let skipped = scope.depth().saturating_sub(deepest);
            scope.candidates().skip(skipped).take_while(|key| *key != scope.host())
        });
        paths.into_iter().flatten().chain(std::iter::once(scope.host()))
    }

    /// Runs `step` on the state of the scope that governs `scope`: the narrowest with a limit, else
    /// the host's where defaults apply. `None` when nothing governs.
    #[inline]
    fn govern<R>(&self, scope: &Scope<'_>, step: impl Step<R>) -> Option<R> {
        match self.find(scope, step) {
            Ok(result) => Some(result),
            Err(step) => self.policy.governs().then(|| self.exactly(scope.host(), step)),
        }
    }

    /// The same without the defaults; gives `step` back when it was not run.
    #[inline]
    fn find<R, S: Step<R>>(&self, scope: &Scope<'_>, step: S) -> Result<R, S> {
        let now = self.clock.now();
        for key in self.candidates(scope) {
            let hash = self.hash(key.as_bytes());
            let table = self.shard(hash).lock();
            if let Some(Slot { state: Slotted::Full(cell), .. }) = table.find(hash, key) {
                let mut inner = cell.lock();
                if inner.state.governs(now) {
                    return Ok(step(cell, &mut inner.state, now));
                }
            }
        }
        Err(step)
    }

    /// The cell of exactly that key, made full if need be.
    fn cell_of(&self, key: &str) -> Arc<Cell> {
        let hash = self.hash(key.as_bytes());
        let mut table = self.shard(hash).lock();
        self.visit(&mut table);
        let fresh = |tat: Option<u64>| {
            let mut state = self.policy.fresh();
            if let (Some(tat), Some(lean)) = (tat, &self.lean) {
                let (now, mut used) = (self.clock.now(), Cost::NOTHING);
                used.set(Dimension::Requests, lean.rate.used(tat, now));
                state.spend(&used, now);
            }
            Arc::new(Cell::new(Key::new(key), state, self.clock.clone(), Arc::clone(&self.shape)))
        };
        match table.find_mut(hash, key) {
            Some(slot) => match &slot.state {
                Slotted::Full(cell) => Arc::clone(cell),
                Slotted::Lean(tat) => {
                    let cell = fresh(Some(*tat));
                    slot.state = Slotted::Full(Arc::clone(&cell));
                    cell
                }
            },
            None => {
                let cell = fresh(None);
                let state = Slotted::Full(Arc::clone(&cell));
                let slot = Slot { key: cell.key().clone(), state };
                table.slots.insert_unique(hash, slot, |slot| self.hash(slot.key.as_bytes()));
                let depth = Scope::from_key(key).depth();
                self.deepest.fetch_max(depth, Ordering::Relaxed);
                self.shape.fetch_add(1, Ordering::Release);
                cell
            }
        }
    }

    /// Runs `step` on the state of exactly that scope.
    fn exactly<R>(&self, key: &str, step: impl Step<R>) -> R {
        loop {
            let cell = self.cell_of(key);
            let now = self.clock.now();
            let mut inner = cell.lock();
            // Swept between the look-up and the lock: look again.
            if !inner.dropped {
                return step(&cell, &mut inner.state, now);
            }
        }
    }

    /// Runs `step` on the state that a grant was charged to, if that is still known.
    #[inline]
    fn granted<R>(
        &self,
        grant: &Grant,
        step: impl FnOnce(&mut ScopeState, &Clock) -> R,
    ) -> Option<R> {
        let known;
        let cell = match &grant.place {
            Place::Cell(cell) => cell,
            Place::Key(key) => {
                known = self.known(key.as_str())?;
                &known
            }
        };
        let mut inner = cell.lock();
        (!inner.dropped).then(|| step(&mut inner.state, &self.clock))
    }

    /// Decides in the lean slot of a host, which is made if need be.
    fn charge_lean(&self, host: &str, cost: &Cost) -> Option<Verdict> {
        let lean = self.lean.as_ref()?;
        let hash = self.hash(host.as_bytes());
        let now = self.clock.now();
        let mut table = self.shard(hash).lock();
        self.visit(&mut table);
        match table.find_mut(hash, host).map(|slot| &mut slot.state) {
            Some(Slotted::Lean(tat)) => Some(lean.charge(tat, cost, now)),
            Some(Slotted::Full(_)) => None,
            None => {
                let mut tat = 0;
                let verdict = lean.charge(&mut tat, cost, now);
                let slot = Slot { key: Key::new(host), state: Slotted::Lean(tat) };
                table.slots.insert_unique(hash, slot, |slot| self.hash(slot.key.as_bytes()));
                Some(verdict)
            }
        }
    }

    /// Counts a visit. After as many as there are slots it sweeps them, so that a visit costs a
    /// constant on average.
    #[inline]
    fn visit(&self, table: &mut Table) {
        if table.until_sweep > 0 {
            table.until_sweep -= 1;
            return;
        }
        if table.slots.len() >= SMALL {
            self.sweep(table);
        }
        table.until_sweep = table.slots.len().max(SMALL) * 2;
    }

    /// Drops what is idle and full.
    #[cold]
    fn sweep(&self, table: &mut Table) {
        let now = self.clock.now();
        let full_at = self.lean.as_ref().map_or(0, |lean| lean.rate.at(now));
        table.slots.retain(|slot| match &slot.state {
            Slotted::Lean(tat) => *tat > full_at,
            Slotted::Full(cell) => {
                let mut inner = cell.lock();
                let held = Arc::strong_count(cell) > 1;
                inner.dropped = !held && inner.state.is_forgettable(now);
                !inner.dropped
            }
        });
        let len = table.slots.len();
        if table.slots.capacity() / 4 > len {
            table.slots.shrink_to(len * 2, |slot| self.hash(slot.key.as_bytes()));
        }
    }

    /// The full cell of exactly that scope, if there is one.
    fn known(&self, key: &str) -> Option<Arc<Cell>> {
        let hash = self.hash(key.as_bytes());
        match self.shard(hash).lock().find(hash, key) {
            Some(Slot { state: Slotted::Full(cell), .. }) => Some(Arc::clone(cell)),
            _ => None,
        }
    }

    /// Puts a state in place of what is stored for exactly that scope.
    pub(crate) fn put(&self, key: &str, state: ScopeState) {
        self.exactly(key, |_, stored, _| *stored = state);
    }

    /// Whether anything is stored for exactly that scope.
    pub(crate) fn has(&self, key: &str) -> bool {
        let hash = self.hash(key.as_bytes());
        self.shard(hash).lock().find(hash, key).is_some()
    }
}

impl Table {
    #[inline]
    fn find(&self, hash: u64, key: &str) -> Option<&Slot> {
        self.slots.find(hash, |slot| slot.key.as_bytes() == key.as_bytes())
    }

    #[inline]
    fn find_mut(&mut self, hash: u64, key: &str) -> Option<&mut Slot> {
        self.slots.find_mut(hash, |slot| slot.key.as_bytes() == key.as_bytes())
    }
}

impl Lean {
    /// Decides and pays.
    #[inline]
    fn charge(&self, tat: &mut u64, cost: &Cost, now: Tick) -> Verdict {
        let now = self.rate.at(now);
        let debit = self.rate.debit(cost.of(&Dimension::Requests));
        let wait = gcra::wait(*tat, debit, now);
        if wait > 0 {
            return self.refuse(wait);
        }
        *tat = gcra::spend(*tat, debit, now);
        Verdict::Granted
    }

    #[cold]
    fn refuse(&self, wait: u64) -> Verdict {
        let by = Cause::Limit(Arc::clone(&self.limit));
        Verdict::Wait(Wait { after: self.rate.span(wait), by }.into())
    }
}

impl Store for Memory {
    #[inline]
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError> {
        let governed = self.govern(scope, |cell, state, now| match state.admit(cost, now) {
            Ok(receipt) => Admission::Granted(Grant::new(Place::Cell(Arc::clone(cell)), receipt)),
            Err(wait) => Admission::Wait(cell.key().clone(), wait),
        });
        Ok(governed.unwrap_or_else(|| {
            let receipt = Receipt::new(cost.clone(), self.clock.now());
            Admission::Granted(Grant::new(Place::Key(Key::new(scope.host())), receipt))
        }))
    }

    #[inline]
    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError> {
        // Without a scope below a host, the lean slot or the cell of the host decides.
        if self.deepest.load(Ordering::Relaxed) == 0
            && let Some(verdict) = self.charge_lean(scope.host(), cost)
        {
            return Ok(verdict);
        }
        let governed = self.govern(scope, |_, state, now| state.charge(cost, now));
        Ok(governed.unwrap_or(Verdict::Granted))
    }

    #[inline]
    fn admit_known(&self, key: &str, cost: &Cost) -> Option<Grant> {
        let hash = self.hash(key.as_bytes());
        let now = self.clock.now();
        let table = self.shard(hash).lock();
        let Slotted::Full(cell) = &table.find(hash, key)?.state else { return None };
        let mut inner = cell.lock();
        if !inner.state.governs(now) {
            return None;
        }
        let receipt = inner.state.admit(cost, now).ok()?;
        Some(Grant::new(Place::Cell(Arc::clone(cell)), receipt))
    }

    #[inline]
    fn charge_known(&self, key: &str, cost: &Cost) -> Option<Verdict> {
        let hash = self.hash(key.as_bytes());
        let now = self.clock.now();
        let mut table = self.shard(hash).lock();
        self.visit(&mut table);
        match &mut table.find_mut(hash, key)?.state {
            // A narrower scope may have a limit, and then this one's default decides nothing.
            Slotted::Lean(_) if self.deepest.load(Ordering::Relaxed) > 0 => None,
            Slotted::Lean(tat) => self.lean.as_ref().map(|lean| lean.charge(tat, cost, now)),
            Slotted::Full(cell) => {
                let mut inner = cell.lock();
                inner.state.governs(now).then(|| inner.state.charge(cost, now))
            }
        }
    }

    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError> {
        self.granted(grant, |state, clock| state.settle(&grant.receipt, actual, clock.now()));
        Ok(())
    }

    fn close(&self, grant: &Grant) -> Result<bool, StoreError> {
        Ok(self
            .granted(grant, |state, clock| state.close(&grant.receipt, clock.now()))
            .unwrap_or(false))
    }

    fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        self.granted(grant, |state, clock| state.give_back(&grant.receipt, clock.now()));
        Ok(())
    }

    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError> {
        let known = self.granted(grant, |state, clock| {
            state.observe(&grant.receipt, reading, &self.policy, clock.now())
        });
        Ok(match known {
            Some(changed) => changed,
            None if reading.is_silent() => false,
            // What was granted there is not counted here: the scope is new, or was forgotten.
            None => self.exactly(grant.key().as_str(), |_, state, now| {
                let receipt = Receipt::new(grant.receipt.cost.clone(), grant.receipt.at);
                state.observe(&receipt, reading, &self.policy, now)
            }),
        })
    }

    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError> {
        self.exactly(scope.key(), |_, state, now| state.set_limit(limit, now));
        // A cell that was there and decided nothing may do so now.
        self.shape.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError> {
        self.govern(scope, |_, state, now| state.spend_left(cost, now));
        Ok(())
    }

    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError> {
        let mut cleared = 0;
        for shard in &self.shards {
            shard.0.lock().slots.retain(|slot| {
                let goes = scope.is_none_or(|scope| scope.covers(slot.key.as_str()));
                if let (true, Slotted::Full(cell)) = (goes, &slot.state) {
                    cell.lock().dropped = true;
                }
                cleared += usize::from(goes);
                !goes
            });
        }
        Ok(cleared)
    }

    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError> {
        let copy = |cell: &Arc<Cell>, state: &mut ScopeState, now| {
            (cell.key().clone(), state.clone(), now)
        };
        let found = self.find(scope, copy).ok();
        if found.is_some() || !self.policy.governs() {
            return Ok(found);
        }
        let host = scope.host();
        if self.has(host) {
            return Ok(Some(self.exactly(host, copy)));
        }
        Ok(Some((Key::new(host), self.policy.fresh(), self.clock.now())))
    }

    fn keys(&self) -> Result<Vec<Key>, StoreError> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(shard.0.lock().slots.iter().map(|slot| slot.key.clone()));
        }
        keys.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(keys)
    }

    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError> {
        self.books.lock().count(self.today(), entries);
        Ok(())
    }

    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError> {
        Ok(self.books.lock().tallies(self.today()))
    }

    fn cell(&self, scope: &Scope<'_>) -> Option<Arc<Cell>> {
        self.govern(scope, |cell, _, _| Arc::clone(cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::VirtualClock;
    use std::time::Duration;

    fn with_default(text: &str) -> (Memory, VirtualClock) {
        let clock = VirtualClock::default();
        let mut policy = Policy::default();
        policy.set_default_limits([Limit::parse(text).unwrap()]);
        (Memory::with_clock(policy, clock.clone()), clock)
    }

    fn scope(text: &str) -> Scope<'_> {
        Scope::parse(text).unwrap()
    }

    #[test]
    fn a_slot_is_48_bytes() {
        assert_eq!(size_of::<Slot>(), 48);
    }

    #[test]
    fn rule_15_the_narrowest_scope_with_a_limit_governs() {
        let store = Memory::with_clock(Policy::default(), VirtualClock::default());
        store.set_limit(&scope("api.example.com"), Limit::parse("5/1m").unwrap()).unwrap();
        store.set_limit(&scope("api.example.com/search"), Limit::parse("1/1m").unwrap()).unwrap();
        let charge = |url: &str| store.charge(&scope(url), &Cost::ONE).unwrap().is_granted();
        assert!(charge("https://api.example.com/search/deep/down?q=1"));
        assert!(!charge("https://api.example.com/search"));
        assert!(charge("https://api.example.com/searching"));
        assert!(charge("https://elsewhere.example.com/"));
    }

    #[test]
    fn rule_31_an_idle_full_bucket_is_dropped() {
        let (store, clock) = with_default("60/1m");
        let keys: Vec<_> = (0..50_000).map(|i| format!("h{i}.example.com")).collect();
        for key in &keys {
            assert!(store.charge(&scope(key), &Cost::ONE).unwrap().is_granted());
        }
        assert_eq!(store.len(), 50_000);
        clock.advance(Duration::from_secs(60));
        // Traffic on other scopes is what sweeps.
        for _ in 0..10 {
            for i in 0..20_000 {
                store.charge(&scope(&format!("new{i}.example.com")), &Cost::ONE).unwrap();
            }
        }
        assert!(store.len() <= 20_000 + SHARDS * SMALL, "{}", store.len());
    }

    #[test]
    fn a_lean_bucket_becomes_full_without_losing_what_was_used() {
        let (store, _clock) = with_default("10/1m");
        let api = scope("api.example.com");
        for _ in 0..4 {
            assert!(store.charge(&api, &Cost::ONE).unwrap().is_granted());
        }
        for _ in 0..6 {
            let admission = store.admit(&api, &Cost::ONE).unwrap();
            assert!(matches!(admission, Admission::Granted(_)));
        }
        assert!(!store.charge(&api, &Cost::ONE).unwrap().is_granted());
    }

    #[test]
    fn clear_takes_the_scope_and_those_below_it() {
        let store = Memory::with_clock(Policy::default(), VirtualClock::default());
        for key in ["a.example", "a.example/v1", "a.example/v1/x", "a.example/v10"] {
            store.set_limit(&scope(key), Limit::parse("5/1m").unwrap()).unwrap();
        }
        assert_eq!(store.clear(Some(&scope("a.example/v1"))).unwrap(), 2);
        let keys: Vec<_> = store.keys().unwrap();
        assert_eq!(keys, [Key::new("a.example"), Key::new("a.example/v10")]);
        assert_eq!(store.clear(None).unwrap(), 2);
        assert!(store.is_empty());
    }

    #[test]
    fn where_no_limit_governs_nothing_is_stored() {
        let store = Memory::with_clock(Policy::default(), VirtualClock::default());
        let admission = store.admit(&scope("free.example.com"), &Cost::ONE).unwrap();
        let Admission::Granted(grant) = admission else { panic!() };
        store.observe(&grant, &Reading::default()).unwrap();
        assert!(store.is_empty());
    }
}
