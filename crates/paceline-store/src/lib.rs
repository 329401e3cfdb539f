//! Where paceline keeps its limits and buckets.
//!
//! A [`Store`] runs the engine's [`ScopeState`](paceline_core::ScopeState) under its own lock and
//! its own clock; only durations leave it. [`Memory`] is the one for a single process; `Sqlite` and
//! `Redis`, each behind a feature of its name, are shared by many.

mod answers;
mod cell;
mod clock;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod combine;
#[cfg(feature = "conformance")]
pub mod conformance;
mod failure;
mod key;
mod memory;
mod nested;
mod process;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
mod storage;
mod store;
mod tally;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod template;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod view;

pub use answers::{Answer, AnswerKey, Answers, Bounds, CannotOpen, Found, Lru, Secret};
pub use cell::Cell;
pub use clock::Clock;
pub use failure::{FailSafe, Notice, OnFailure};
pub use key::Key;
pub use memory::Memory;
pub use nested::Nested;
pub use process::{PerProcess, after_fork_in_child, after_fork_in_parent, before_fork};
#[cfg(feature = "redis")]
pub use redis::{Redis, Server};
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
pub use storage::{BadStorage, Storage};
pub use store::{Admission, Ask, Grant, Health, Place, Snapshot, Store, StoreError};
pub use tally::{Day, Tallies, Tally};
