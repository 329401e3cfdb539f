//! The pure engine of paceline: what to admit, when, and what a response taught.
//!
//! Nothing in this crate reads a clock, sleeps, opens a socket or starts a thread. Time comes in
//! as an argument ([`Tick`]) and only durations go out, so every rule can be tested in
//! microseconds of real time, and every store that runs it gives the same answer.
//!
//! ```
//! use paceline_core::{Cost, Limit, ScopeState, Tick, Verdict, Window};
//! use std::time::Duration;
//!
//! let mut scope = ScopeState::default();
//! scope.set_limit(Limit::new("requests", 60, Window::parse("1m")?)?, Tick::ZERO);
//! for _ in 0..60 {
//!     assert!(scope.charge(&Cost::ONE, Tick::ZERO).is_granted());
//! }
//! let Verdict::Wait(wait) = scope.charge(&Cost::ONE, Tick::ZERO) else { unreachable!() };
//! assert_eq!(wait.after, Duration::from_secs(1));
//! # Ok::<(), paceline_core::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::float_arithmetic))]

pub mod cost;
pub mod error;
pub mod fixed;
mod flight;
pub mod gate;
pub mod gcra;
pub mod headers;
pub mod lane;
mod learn;
pub mod limit;
pub mod llm;
pub mod policy;
pub mod provider;
pub mod record;
pub mod retry;
pub mod routes;
pub mod scope;
mod search;
pub mod signal;
pub mod simulate;
pub mod state;
pub mod strict;
pub mod time;
pub mod window;

pub use cost::{Amount, Cost, Dimension};
pub use error::Error;
pub use gate::{Gate, Ticket};
pub use limit::{Limit, Origin};
pub use policy::Policy;
pub use routes::Routes;
pub use scope::Scope;
pub use signal::{Counting, Reading, Signal};
pub use state::{Cause, LimitStatus, Receipt, ScopeState, Status, Verdict, Wait};
pub use time::{Tick, VirtualClock};
pub use window::Window;
