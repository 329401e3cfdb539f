//! What a prompt is made of.

use super::text::{GRAIN, Weight};

/// Counted features of everything in a request that will be tokenised. A
/// [`Calibration`](super::Calibration) makes tokens of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Text, and JSON that is tokenised as text: schemas, arguments.
    pub(super) text: Weight,
    /// Messages, calls of tools and their results.
    pub(super) messages: u64,
    /// The most tokens that images take.
    pub(super) images: u64,
    /// The most tokens that sound and files take.
    pub(super) files: u64,
    /// Tokens given as such.
    pub(super) tokens: u64,
    /// Nothing was said of how long the answer may be.
    pub(super) open: bool,
}

/// What frames each message: its role and its separators.
const FRAME: u64 = 4;
/// What frames them all: the opening of the answer.
const OPENING: u64 = 3;

impl Prompt {
    /// Is there nothing to tokenise? Then the request is no LLM call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_text() && self.media() == 0 && self.tokens == 0
    }

    /// Is there anything that has to be tokenised first?
    pub(super) fn has_text(&self) -> bool {
        self.text != Weight::default() || self.messages > 0
    }

    /// The most tokens that all media take.
    pub(super) fn media(&self) -> u64 {
        self.images.saturating_add(self.files)
    }

    /// What frames the text, in [`GRAIN`]ths of a token.
    pub(super) fn frame(&self) -> u64 {
        match self.messages {
            0 => 0,
            messages => {
                messages.saturating_mul(FRAME).saturating_add(OPENING).saturating_mul(GRAIN)
            }
        }
    }
}
