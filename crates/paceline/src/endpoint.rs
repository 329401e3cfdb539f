//! An endpoint that was resolved once.

use crate::call::ONE;
use paceline_core::{Cost, Scope, Verdict};
use paceline_store::{Cell, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle on the scope that governs one endpoint; see
/// [`Limiter::endpoint`](crate::Limiter::endpoint).
///
/// It holds the very bucket, so a decision costs no look-up. It follows limits that are set or
/// cleared later by resolving anew when the store has changed shape.
///
/// ```
/// use paceline::{Limit, Limiter};
/// let limiter = Limiter::builder().build();
/// limiter.set_limit("api.example.com", Limit::parse("1/1h")?)?;
/// let mut api = limiter.endpoint("https://api.example.com/v1")?;
/// assert!(api.check()?.is_granted());
/// assert!(!api.check()?.is_granted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Endpoint {
    store: Arc<dyn Store>,
    scope: Scope<'static>,
    resolved: Option<Resolved>,
}

/// The cell that governs, for as long as the store keeps its shape.
#[derive(Debug, Clone)]
struct Resolved {
    cell: Arc<Cell>,
    shape: Arc<AtomicU64>,
    seen: u64,
}

impl Endpoint {
    pub(crate) fn resolve(store: Arc<dyn Store>, scope: Scope<'static>) -> Self {
        let resolved = store.cell(&scope).map(|cell| {
            let shape = Arc::clone(cell.shape());
            Resolved { cell, seen: shape.load(Ordering::Acquire), shape }
        });
        Self { store, scope, resolved }
    }

    /// One decision without a permit: charges the request if there is room.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    #[inline]
    pub fn check(&mut self) -> Result<Verdict, StoreError> {
        self.charge(&ONE)
    }

    /// The same for any cost.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be reached.
    #[inline]
    pub fn charge(&mut self, cost: &Cost) -> Result<Verdict, StoreError> {
        if let Some(known) = &self.resolved
            && known.shape.load(Ordering::Acquire) == known.seen
            && let Some(verdict) = known.cell.charge(cost)
        {
            return Ok(verdict);
        }
        self.charge_anew(cost)
    }

    #[cold]
    fn charge_anew(&mut self, cost: &Cost) -> Result<Verdict, StoreError> {
        *self = Self::resolve(Arc::clone(&self.store), self.scope.clone());
        self.store.charge(&self.scope, cost)
    }
}
