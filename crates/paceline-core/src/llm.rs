//! What an LLM call will spend, before it is sent, and what its answer says that it spent (rule 27).
//!
//! A [`Request`] is read from its body in one pass. A [`Calibration`], one per model, makes an
//! upper bound in tokens of it, and comes closer with each [`Usage`] that is reported. A streamed
//! answer is read by a [`Stream`] as it passes by.
//!
//! ```
//! use paceline_core::llm::{Calibration, Request, Usage};
//!
//! let mut calibration = Calibration::default();
//! let body = br#"{"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Say hello."}]}"#;
//! let request = Request::read(body).unwrap();
//! assert_eq!(calibration.output(request.output), 100);
//! assert!((8..20).contains(&calibration.input(&request.prompt)));
//!
//! let answer = br#"{"usage": {"prompt_tokens": 10, "completion_tokens": 9}}"#;
//! calibration.learn(&request.prompt, &Usage::read(answer).unwrap());
//! ```

mod calibration;
#[cfg(feature = "tiktoken")]
pub mod exact;
mod family;
mod json;
mod media;
mod price;
mod prompt;
mod provider;
mod request;
mod rules;
mod stream;
mod text;
mod usage;
mod walk;
mod weights;

pub use calibration::Calibration;
pub use family::family;
pub use price::Price;
pub use prompt::Prompt;
pub use provider::{model_in_path, provider, provider_names, resource};
pub use request::Request;
pub use rules::{Rule, Rules};
pub use stream::Stream;
pub use usage::Usage;
