//! What a response asserted.

use crate::{Dimension, Window};
use std::time::Duration;

/// How a server counts, which decides what its `reset` means (rule 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Counting {
    /// What is left falls until the reset, then jumps to the limit.
    #[default]
    Fixed,
    /// What is left refills all the time; the reset is when it is *full*.
    Bucket,
}

/// What a response asserted about one dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signal {
    /// The dimension.
    pub dimension: Dimension,
    /// What the server calls this limit, where it may have several on one dimension: `burst`, `day`.
    pub name: Option<Box<str>>,
    /// Units per window.
    pub limit: Option<u64>,
    /// Units left.
    pub remaining: Option<u64>,
    /// Time until the reset, from when the response was made.
    pub reset: Option<Duration>,
    /// The window, where the server states it.
    pub window: Option<Window>,
    /// How the server counts.
    pub counting: Counting,
}

/// Everything that one response asserted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// One signal for each limit that was named; several on one dimension differ in their name or
    /// window.
    pub signals: Vec<Signal>,
    /// How long to stay away, on a rejection.
    pub retry_after: Option<Duration>,
    /// Whether the response refused the call for rate or load reasons.
    pub rejected: bool,
    /// Whether what is used up does not come back by waiting, such as OpenAI's `insufficient_quota`:
    /// another attempt is no use (rule 25).
    pub spent: bool,
    /// What the server calls the bucket that it counted the request in, where one host has several.
    pub bucket: Option<Box<str>>,
    /// What the server calls the limit that refused the call, where it says so.
    pub reason: Option<Box<str>>,
}

impl Reading {
    /// Whether there is nothing to learn from it.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.signals.is_empty() && self.retry_after.is_none() && !self.rejected
    }
}
