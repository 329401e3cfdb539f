//! What a store does.

use crate::{Cell, Key};
use paceline_core::state::Receipt;
use paceline_core::{Cost, Limit, Reading, Scope, ScopeState, Tick, Verdict, Wait};
use std::fmt;
use std::sync::Arc;

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
    fn wait(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Option<Wait>, StoreError>;

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

    /// The keys of all scopes about which something is known, sorted.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    fn keys(&self) -> Result<Vec<Key>, StoreError>;

    /// The cell behind a scope, where the store keeps it in this process: whoever holds it decides
    /// without looking it up.
    fn cell(&self, _scope: &Scope<'_>) -> Option<Arc<Cell>> {
        None
    }
}

/// A scope's key, a copy of its state, and the instant of the copy.
pub type Snapshot = (Key, ScopeState, Tick);

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
}

impl Grant {
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

/// A store that cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("the store is unavailable: {0}")]
pub struct StoreError(Box<dyn std::error::Error + Send + Sync>);

impl StoreError {
    /// The store cannot be reached because of `cause`.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}
