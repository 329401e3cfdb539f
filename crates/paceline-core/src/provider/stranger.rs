//! Somebody else who spends of the same account, unseen by the client: single units, evenly spaced.

use super::{Counter, Limit};

const MILLION: u128 = 1_000_000;

#[derive(Debug)]
pub(super) struct Stranger {
    /// The share of the limit that it asks for.
    per_million: u32,
    /// When somebody first looked.
    began: Option<u64>,
    asked: u64,
    /// What it got.
    pub(super) spent: u64,
}

impl Stranger {
    pub(super) const fn new(per_million: u32) -> Self {
        Self { per_million, began: None, asked: 0, spent: 0 }
    }

    /// Does what it did until `now`. What it is refused it does without.
    pub(super) fn catch_up(&mut self, limit: Limit, counter: &mut dyn Counter, now: u64) {
        let began = *self.began.get_or_insert(now);
        while let Some(due) = self.due(limit, began).filter(|due| *due <= now) {
            self.asked += 1;
            if counter.wait(due, 1) == 0 {
                counter.charge(due, 1);
                self.spent += 1;
            }
        }
    }

    /// When it asks for its next unit.
    fn due(&self, limit: Limit, began: u64) -> Option<u64> {
        let rate = u128::from(self.per_million) * u128::from(limit.units);
        let spans = u128::from(self.asked + 1) * limit.window_u128();
        let after = (spans * MILLION).checked_div(rate)?;
        began.checked_add(u64::try_from(after).ok()?)
    }
}
