//! A streamed answer, as it passes by.

use super::Usage;

/// Reads a streamed answer: server-sent events, or JSON that comes object by object.
#[derive(Debug, Default)]
pub struct Stream {
    complete: bool,
}

impl Stream {
    /// One that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads on. Chunks may be split anywhere.
    pub fn push(&mut self, _bytes: &[u8]) {}

    /// What was reported so far; complete with the last event.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        None
    }

    /// An upper estimate of the tokens of the answer so far, from its text, for streams that end
    /// without a report.
    #[must_use]
    pub fn output_seen(&self) -> u64 {
        0
    }

    /// Was the end marker seen?
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}
