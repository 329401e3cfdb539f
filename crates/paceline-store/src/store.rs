//! What a store does.

use crate::{Cell, Day, Key, Tally};
use paceline_core::state::Receipt;
use paceline_core::{Cost, Limit, Reading, Scope, ScopeState, Tick, Verdict, Wait};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Keeps limits and buckets, and makes each charge one atomic step.
///
/// Scopes are resolved inside the store, the narrowest with a limit first, so that an admission is
/// one visit whatever the number of candidates.
pub trait Store: Send + Sync + fmt::Debug {
    /// Charges `cost` in the scope that governs `scope`, and counts it as outstanding until the
    /// grant is closed, observed or given back.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError>;

    /// Admits several calls to one host in one visit, in order, as far as there is room. Where one has
    /// to wait, those behind it may be left undecided (`None`): they do not overtake it.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached; then nobody was admitted.
    fn admit_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Option<Admission>>, StoreError> {
        in_order(asks, |ask| self.admit(ask.scope, ask.cost))
    }

    /// Charges `cost` and forgets about it: a decision without a permit.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError>;

    /// Admits at once in the scope with that very key, if there is one and it has room. `None`
    /// otherwise, and nothing was charged. Endpoints mostly come as the keys that they are, and then
    /// need not be read.
    fn admit_known(&self, _key: &str, _cost: &Cost) -> Option<Grant> {
        None
    }

    /// Charges in the scope with that very key. `None` when there is none, or when another may
    /// govern.
    fn charge_known(&self, _key: &str, _cost: &Cost) -> Option<Verdict> {
        None
    }

    /// How long `cost` would have to wait; `None` when it would be granted now.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn wait(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Option<Wait>, StoreError> {
        Ok(self.snapshot(scope)?.and_then(|(_, state, now)| state.wait(cost, now)))
    }

    /// Corrects what a grant charged to what was spent.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError>;

    /// The request of a grant is over, and taught nothing. Tells whether others waited for it.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn close(&self, grant: &Grant) -> Result<bool, StoreError>;

    /// The request of a grant was never sent.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn give_back(&self, grant: &Grant) -> Result<(), StoreError>;

    /// The request of a grant was answered. Tells whether waits planned before may have changed.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError>;

    /// Declares a limit for exactly that scope.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError>;

    /// Spends as much of `cost` as is left in the scope that governs `scope`, without asking: for calls
    /// that went past the store.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError>;

    /// Forgets a scope and every scope below it, or everything. Tells how many there were.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError>;

    /// The key of the scope that governs `scope` and a copy of its state, with the instant of the
    /// copy; `None` where nothing is known.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError>;

    /// What this process last saw of the scope that governs `scope`, without a visit where visits take
    /// time: good enough for forecasts.
    fn view(&self, scope: &Scope<'_>) -> Option<Snapshot> {
        self.snapshot(scope).ok().flatten()
    }

    /// Whether a visit takes so long that an event loop must not wait for it.
    fn is_slow(&self) -> bool {
        false
    }

    /// What this process has had of all that was admitted lately in the scope with that key, in
    /// thousandths.
    fn share(&self, _key: &Key) -> u32 {
        1_000
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// [`StoreError`] with the reason why not.
    fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Hands in what was kept back to save visits.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How the store is doing.
    fn health(&self) -> Health {
        Health::default()
    }

    /// The keys of all scopes about which something is known, sorted.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn keys(&self) -> Result<Vec<Key>, StoreError>;

    /// Adds to the books of today, by the store's clock: one visit for all entries. A key is any text
    /// that tells scopes apart. [`clear`](Self::clear) leaves the books as they are.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError>;

    /// The books of the last 35 days, by day and then by key.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError>;

    /// The cell behind a scope, where the store keeps it in this process: whoever holds it decides
    /// without looking it up.
    fn cell(&self, _scope: &Scope<'_>) -> Option<Arc<Cell>> {
        None
    }
}

/// Admits one after the other until one has to wait; those behind it are left undecided.
pub(crate) fn in_order(
    asks: &[Ask<'_>],
    mut admit: impl FnMut(&Ask<'_>) -> Result<Admission, StoreError>,
) -> Result<Vec<Option<Admission>>, StoreError> {
    let mut answers = Vec::with_capacity(asks.len());
    for ask in asks {
        let admission = admit(ask)?;
        let waits = matches!(admission, Admission::Wait(..));
        answers.push(Some(admission));
        if waits {
            break;
        }
    }
    answers.resize_with(asks.len(), || None);
    Ok(answers)
}

/// A scope's key, a copy of its state, and the instant of the copy.
pub type Snapshot = (Key, ScopeState, Tick);

/// One call that asks for admission.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Where it goes.
    pub scope: &'a Scope<'a>,
    /// What it spends.
    pub cost: &'a Cost,
}

/// How a store is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Whether it cannot be reached at present.
    pub away: bool,
    /// Visits that failed since the beginning.
    pub failures: u64,
    /// Calls that were admitted without it.
    pub unmetered: u64,
    /// Visits since the beginning.
    pub visits: u64,
    /// How long they took, all together.
    pub busy: Duration,
}

/// The outcome of asking for admission.
#[derive(Debug)]
pub enum Admission {
    /// Admitted.
    Granted(Grant),
    /// Not yet, in the scope with this key.
    Wait(Key, Wait),
}

/// What was charged where: needed to settle it, observe its answer or give it back.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Where.
    pub place: Place,
    /// What and when.
    pub receipt: Receipt,
    /// The same in wider scopes, where these are charged as well; see [`Nested`](crate::Nested).
    pub wider: Vec<Self>,
}

impl Grant {
    /// What was charged in that scope and in no other.
    #[must_use]
    pub const fn new(place: Place, receipt: Receipt) -> Self {
        Self { place, receipt, wider: Vec::new() }
    }

    /// The key of the scope that was charged; of the host, where nothing governed.
    #[must_use]
    pub fn key(&self) -> &Key {
        match &self.place {
            Place::Key(key) => key,
            Place::Cell(cell) => cell.key(),
        }
    }
}

/// The scope of a grant.
#[derive(Debug, Clone)]
pub enum Place {
    /// By name, to be looked up.
    Key(Key),
    /// The cell itself, where the store keeps it in this process.
    Cell(Arc<Cell>),
}

/// A store that cannot be reached, or does not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store is unavailable: {cause}")]
pub struct StoreError {
    cause: Arc<dyn std::error::Error + Send + Sync>,
    /// The store is there; what is stored for this one scope cannot be used.
    pub(crate) of_data: bool,
    /// When it is asked again at the earliest.
    pub retry_after: Duration,
}

impl StoreError {
    /// The store cannot be reached because of `cause`.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { cause: Arc::from(cause.into()), of_data: false, retry_after: Duration::ZERO }
    }

    /// What is stored for one scope cannot be used because of `cause`; other scopes are as they were.
    pub fn of_data(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { of_data: true, ..Self::new(cause) }
    }

    /// The same, to be tried again after that long.
    #[must_use]
    pub fn after(self, retry_after: Duration) -> Self {
        Self { retry_after, ..self }
    }
}
