//! What a prompt is made of.

/// Counted features of everything in a request that will be tokenised. A
/// [`Calibration`](super::Calibration) makes tokens of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Text of messages, documents, instructions, in [`GRAIN`]ths of a token.
    pub(super) text: u64,
    /// Schemas of tools and answers, and arguments, with their keys and punctuation. As above.
    pub(super) schema: u64,
    /// Messages, calls of tools and their results.
    pub(super) messages: u64,
    /// The most tokens that images, sound and files take.
    pub(super) media: u64,
    /// Tokens given as such.
    pub(super) tokens: u64,
    /// Nothing was said of how long the answer may be.
    pub(super) open: bool,
}

/// Parts of a token in which text is weighed.
pub(super) const GRAIN: u64 = 1024;
/// What frames each message: its role and its separators.
const FRAME: u64 = 4;
/// What frames them all: the opening of the answer.
const OPENING: u64 = 3;

impl Prompt {
    /// Is there nothing to tokenise? Then the request is no LLM call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { text, schema, messages, media, tokens, .. } = *self;
        text | schema | messages | media | tokens == 0
    }

    /// What its text is likely to take, in tokens.
    pub(super) fn likely(&self) -> u64 {
        if self.text | self.schema | self.messages == 0 {
            return 0;
        }
        let text = self.text.saturating_add(self.schema).div_ceil(GRAIN);
        text.saturating_add(self.messages.saturating_mul(FRAME)).saturating_add(OPENING)
    }
}
