//! Where paceline keeps its limits and buckets.
//!
//! A [`Store`] runs the engine's [`ScopeState`](paceline_core::ScopeState) under its own lock and
//! its own clock; only durations leave it. [`Memory`] is the one for a single process.

mod cell;
mod clock;
mod combine;
#[cfg(feature = "conformance")]
pub mod conformance;
mod failure;
mod key;
mod memory;
mod process;
mod redis;
mod sqlite;
mod storage;
mod store;
mod template;
mod view;

pub use cell::Cell;
pub use clock::Clock;
pub use failure::{FailSafe, Notice, OnFailure};
pub use key::Key;
pub use memory::Memory;
pub use process::{PerProcess, after_fork_in_child, after_fork_in_parent, before_fork};
pub use redis::{Redis, Server};
pub use sqlite::Sqlite;
pub use storage::{BadStorage, Storage};
pub use store::{Admission, Ask, Grant, Health, Place, Snapshot, Store, StoreError};
