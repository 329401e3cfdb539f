//! From what a prompt is made of to tokens, for one model.

use super::text::{GRAIN, Weight};
use super::{Prompt, Request, Usage};
use crate::{Amount, Cost, Dimension};
use std::collections::VecDeque;

/// How many calls are remembered. What was learned from older ones is forgotten, so that drifts
/// are followed.
const MEMORY: usize = 32;
/// The longest answer where nobody said and none was seen.
const FIRST_OUTPUT: u64 = 16;
/// No model reads or writes as much: a report of more is not believed.
const ABSURD: u64 = 1 << 24;
/// Nor is a report believed that differs from what the text weighs by more than this factor.
const FAR: u64 = 8;

/// What may come with each prompt unseen, in tokens: a system prompt of the provider's.
const FIXED: [u64; 24] = [
    0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576,
];
/// How much heavier text is that is not ASCII, in 64ths.
const FOREIGN: [u64; 9] = [36, 42, 48, 56, 64, 72, 80, 92, 108];
/// One, as a share of what was expected.
const ONE: u64 = 1 << 20;
/// The heaviest prompt that is told from heavier ones: four billion tokens.
const HEAVIEST: u64 = 1 << 42;

/// How one model counts, learned from what it reports: some tokens with each call, and so many for
/// what its text weighs.
///
/// The bound is drawn so that it covers the calls of late and wastes the least; a single one that
/// is far from all others is not believed until there is a second.
#[derive(Clone, Debug)]
pub struct Calibration {
    calls: VecDeque<Call>,
    line: Line,
    /// What media took, as shares of their bound.
    media: VecDeque<u64>,
    /// What answers took where nothing was asked.
    answers: VecDeque<u64>,
}

/// One call that was reported.
#[derive(Clone, Copy, Debug)]
struct Call {
    prompt: Prompt,
    /// 2^38 by the tokens that it took.
    inverse: u64,
}

/// How tokens follow from weight.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Places in the tables.
    fixed: usize,
    foreign: usize,
    /// Whose way to cut what is not ASCII.
    cut: Cut,
    /// The most weight that came for each token that was taken, [`ONE`] as it should be: the least
    /// of it that was seen.
    least: u64,
    /// What is added for what was not seen yet, in 1024ths.
    margin: u64,
}

/// Whose way a tokenizer has to cut what is not ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Whichever takes more.
    Either,
    Newer,
    Older,
}

/// Before any report: o200k and cl100k take no more for 98 of 100 texts.
impl Default for Line {
    fn default() -> Self {
        Self { fixed: 0, foreign: 5, cut: Cut::Either, least: ONE, margin: 154 }
    }
}

impl Default for Calibration {
    fn default() -> Self {
        let (calls, media, answers) = <(VecDeque<_>, VecDeque<_>, VecDeque<_>)>::default();
        Self { calls, line: Line::default(), media, answers }
    }
}

impl Calibration {
    /// An upper bound of the tokens that a prompt takes.
    #[must_use]
    pub fn input(&self, prompt: &Prompt) -> u64 {
        let media = match highest(&self.media) {
            Some(share) => scaled(prompt.media(), share.saturating_add(share / 16)),
            None => prompt.media(),
        };
        self.line.tokens(prompt).saturating_add(media).saturating_add(prompt.tokens)
    }

    /// The longest answer: what was asked for, else what answers were seen to take where nothing
    /// was (16 tokens at first).
    #[must_use]
    pub fn output(&self, asked: Option<u64>) -> u64 {
        asked.unwrap_or_else(|| match highest(&self.answers) {
            // The fewer were seen, the more room for longer ones.
            Some(longest) => longest + longest / self.answers.len() as u64,
            None => FIRST_OUTPUT,
        })
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
        let total = input.saturating_add(output);
        let parts = [("tokens", total), ("input_tokens", input), ("output_tokens", output)];
        for (name, units) in parts {
            if let Ok(dimension) = Dimension::new(name) {
                cost.set(dimension, Amount::units(units));
            }
        }
        cost
    }

    /// Takes in what a call was reported to have spent.
    pub fn learn(&mut self, prompt: &Prompt, usage: &Usage) {
        if prompt.open && usage.output < ABSURD {
            remember(&mut self.answers, usage.output);
        }
        let taken = usage.input.saturating_sub(prompt.tokens);
        if taken == 0 || taken > ABSURD {
            return;
        }
        // What of it the text took is not told, so that is taken to have been little.
        let text = self.line.tokens(prompt);
        let media = taken.saturating_sub(text - text / 8);
        if let Some(share) = media.saturating_mul(ONE).checked_div(prompt.media()) {
            remember(&mut self.media, share.clamp(ONE / 1024, ONE * 64));
        } else if prompt.has_text() {
            let weight = Line::default().weight(prompt) / GRAIN;
            let most = weight.saturating_mul(FAR).saturating_add(FIXED[FIXED.len() - 1]);
            if (weight / FAR..=most).contains(&taken) {
                remember(&mut self.calls, Call { prompt: *prompt, inverse: (1 << 38) / taken });
                self.line = self.line.fit(&self.calls);
            }
        }
    }
}

impl Line {
    /// What a prompt weighs, but for what comes with each, in [`GRAIN`]ths of a token.
    fn weight(&self, prompt: &Prompt) -> u64 {
        let Weight { ascii, foreign, older } = prompt.text;
        let foreign = match self.cut {
            Cut::Either => foreign.max(older),
            Cut::Newer => foreign,
            Cut::Older => older,
        };
        let foreign = foreign.saturating_mul(FOREIGN[self.foreign]) / 64;
        let text = ascii.saturating_add(foreign).min(HEAVIEST / 2);
        // A short text strays more from what its bytes tell: by half the root of its tokens.
        let stray = text.isqrt() * (GRAIN.isqrt() / 2);
        (text + stray).saturating_add(prompt.frame()).min(HEAVIEST)
    }

    /// The bound.
    fn tokens(&self, prompt: &Prompt) -> u64 {
        if !prompt.has_text() {
            return 0;
        }
        let weight = self.weight(prompt) + FIXED[self.fixed] * GRAIN;
        (weight * (ONE / GRAIN) / self.least).saturating_mul(1024 + self.margin) / 1024 + 1
    }

    /// The line that covers these calls, and wastes the least: one place in the tables after the
    /// other is tried, and near the one where it was.
    fn fit(self, calls: &VecDeque<Call>) -> Self {
        let mut weights = self.weights(calls);
        let (mut least_waste, mut best) = self.over(&weights, calls);
        let near = self.foreign.saturating_sub(1)..=(self.foreign + 1).min(FOREIGN.len() - 1);
        let cuts = [Cut::Either, Cut::Newer, Cut::Older];
        for (foreign, cut) in near.flat_map(|foreign| cuts.map(|cut| (foreign, cut))) {
            let line = Self { foreign, cut, ..self };
            let others = line.weights(calls);
            let (waste, line) = line.over(&others, calls);
            // It does not move for nothing.
            if waste + waste / 64 < least_waste {
                (least_waste, best, weights) = (waste, line, others);
            }
        }
        for fixed in 0..FIXED.len() {
            let (waste, line) = Self { fixed, ..best }.over(&weights, calls);
            if waste + waste / 64 < least_waste {
                (least_waste, best) = (waste, line);
            }
        }
        // What the next call may stray beyond those that were seen.
        Self { margin: 43 + 205 / (calls.len() as u64).max(1), ..best }
    }

    fn weights(&self, calls: &VecDeque<Call>) -> [u64; MEMORY] {
        let mut weights = [0; MEMORY];
        for (weight, call) in weights.iter_mut().zip(calls) {
            *weight = self.weight(&call.prompt);
        }
        weights
    }

    /// Draws the line over calls that weigh as much, and says how much it wastes with the mean one.
    fn over(self, weights: &[u64], calls: &VecDeque<Call>) -> (u64, Self) {
        let (mut sum, mut lowest) = (0_u64, [u64::MAX; 2]);
        for (weight, call) in weights.iter().zip(calls) {
            let weight = weight + FIXED[self.fixed] * GRAIN;
            let share = (weight.saturating_mul(call.inverse) >> 28).max(1);
            sum = sum.saturating_add(share);
            lowest = [lowest[0].min(share), lowest[1].min(share.max(lowest[0]))];
        }
        let alone = lowest[1] != u64::MAX && lowest[0] < lowest[1] / 3 * 2;
        let least = lowest[usize::from(alone)];
        (sum / least.div_ceil(1024), Self { least, ..self })
    }
}

/// Adds the latest, and forgets the oldest.
fn remember<T>(all: &mut VecDeque<T>, latest: T) {
    if all.len() == MEMORY {
        all.pop_front();
    }
    all.push_back(latest);
}

/// The highest that was seen, or the next where one is far from all others.
fn highest(seen: &VecDeque<u64>) -> Option<u64> {
    let (mut highest, mut next) = (*seen.front()?, 0);
    for one in seen.range(1..) {
        next = next.max(highest.min(*one));
        highest = highest.max(*one);
    }
    let alone = seen.len() > 1 && highest / 4 > next;
    Some(if alone { next } else { highest })
}

fn scaled(amount: u64, share: u64) -> u64 {
    let whole = u128::from(amount) * u128::from(share) / u128::from(ONE);
    u64::try_from(whole).unwrap_or(u64::MAX)
}
