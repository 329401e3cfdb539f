//! Calls of LLMs: which limits they have, what they may spend, and what they did.

mod family;
mod price;
mod provider;
mod provisional;
mod rules;

pub use family::family;
pub use price::Price;
pub use provider::{model_in_path, provider, resource};
pub use provisional::{Calibration, Prompt, Request, Stream, Usage};
pub use rules::{Rule, Rules};
