//! Paces outgoing API calls so that the provider never has a reason to answer 429.
//!
//! A [`Limiter`] knows the limits of each endpoint: those you declare, and those that it reads from
//! responses. [`acquire`](Limiter::acquire) waits until a call may be sent, first come, first
//! served, and gives a [`Permit`].
//!
//! ```
//! use paceline::{Call, Limit, Limiter};
//!
//! let limiter = Limiter::builder().build();
//! limiter.set_limit("api.example.com", Limit::parse("60/1m")?)?;
//! limiter.set_limit("api.example.com", Limit::parse("tokens=90000/1m")?)?;
//!
//! let mut permit = limiter.acquire_blocking(Call::to("api.example.com/chat").cost("tokens", 1_500.0)?)?;
//! permit.settle(&[("tokens", 842.0)])?; // the answer was shorter than feared
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | Feature | What it adds |
//! | --- | --- |
//! | `tokio` (default) | `Limiter::acquire`, which waits in a task |
//! | `sqlite`, `redis` (default) | limits that processes share |
//! | `metrics` | what became of calls, told to the facade of the crate `metrics` |
//! | `reqwest` | `paceline::reqwest::RateLimitMiddleware` |
//! | `tower` | `paceline::tower::RateLimitLayer`, for hyper-util, octocrab and others |
//! | `http` | what both stand on, for a client of your own: `paceline::http` |

mod bell;
mod blocking;
mod books;
mod budget;
mod builder;
mod cache;
mod call;
mod config;
mod desk;
mod endpoint;
mod error;
mod explain;
#[cfg(feature = "metrics")]
mod facade;
mod guard;
#[cfg(feature = "http")]
pub mod http;
mod limiter;
mod line;
mod long_wait;
mod meter;
mod permit;
mod places;
mod recording;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod sync;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(feature = "http")]
pub use self::http::Paced;
pub use bell::Bell;
pub use builder::Builder;
pub use cache::{Ask, Cache, is_volatile_cookie};
pub use call::Call;
pub use config::{Config, ConfigError, Finding};
pub use endpoint::Endpoint;
pub use error::{Error, Refused};
pub use explain::Explanation;
pub use guard::{Guard, LlmCall};
pub use limiter::{Entry, Limiter};
pub use line::{Step, Waiter, after_fork_in_child};
pub use long_wait::LongWait;
pub use meter::{Metrics, ScopeMetrics, WAITS};

pub use paceline_core::{
    Amount, Cause, Cost, Counting, Dimension, Limit, LimitStatus, Origin, Policy, Reading, Scope,
    Signal, Status, Verdict, VirtualClock, Wait, Window, headers, llm, retry, simulate,
};
#[cfg(feature = "redis")]
pub use paceline_store::Redis;
#[cfg(feature = "sqlite")]
pub use paceline_store::Sqlite;
pub use paceline_store::{
    Answer, AnswerKey, BadStorage, Bounds, Clock, Day, Found, Health, Lru, Memory, Notice,
    OnFailure, Storage, Store, StoreError, Tally,
};
pub use paceline_store::{after_fork_in_parent, before_fork};
pub use permit::Permit;
pub use recording::Recording;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
