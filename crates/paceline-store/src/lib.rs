//! Where paceline keeps its limits and buckets.
//!
//! A [`Store`] runs the engine's [`ScopeState`](paceline_core::ScopeState) under its own lock and
//! its own clock; only durations leave it. [`Memory`] is the one for a single process.

mod cell;
mod clock;
mod key;
mod memory;
mod store;

pub use cell::Cell;
pub use clock::Clock;
pub use key::Key;
pub use memory::Memory;
pub use store::{Admission, Grant, Place, Snapshot, Store, StoreError};
