//! Where paceline keeps its limits and buckets.
//!
//! A [`Store`] runs the engine's [`ScopeState`](paceline_core::ScopeState) under its own lock and
//! its own clock; only durations leave it. [`Memory`] is the one for a single process.

mod clock;
mod key;
mod memory;
mod store;

pub use clock::Clock;
pub use key::Key;
pub use memory::{Cell, Memory};
pub use store::{Admission, Grant, Place, Snapshot, Store, StoreError};
