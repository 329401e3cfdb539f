//! What can stand in the way of a permit.

use paceline_core::{Cause, Dimension};
use paceline_store::{BadStorage, StoreError};
use std::time::Duration;

/// Why a call was not admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It would have to wait longer than it may. Nothing was charged.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The endpoint, limit or cost makes no sense.
    #[error(transparent)]
    Invalid(#[from] paceline_core::Error),
    /// The storage string makes no sense.
    #[error(transparent)]
    Storage(#[from] BadStorage),
    /// A budget covers a model of which no price is known.
    #[error(
        "no price is known for {0}, which a budget covers: set one, or exempt it with a price of 0"
    )]
    Unpriced(String),
    /// The store cannot be reached.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

/// The wait that was not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{scope}: {by} leaves no room{}", until(*retry_after))]
pub struct Refused {
    /// The scope whose limit binds.
    pub scope: String,
    /// What binds.
    pub by: Cause,
    /// After exactly this long the call would be admitted, if nobody else spends meanwhile;
    /// [`Duration::MAX`] for one that never would.
    pub retry_after: Duration,
}

fn until(retry_after: Duration) -> String {
    match retry_after {
        Duration::MAX => " for so much at once".to_owned(),
        span => format!(" for {span:.3?}"),
    }
}

impl Refused {
    /// The dimension that binds.
    #[must_use]
    pub fn dimension(&self) -> Dimension {
        self.by.dimension()
    }
}
