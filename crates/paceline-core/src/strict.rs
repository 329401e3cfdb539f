//! A strict window (rule 7): never more than the limit in *any* span of one window.
//!
//! A bucket lets almost twice its limit through in the first window: it starts full and refills
//! meanwhile. A provider that counts windows exactly answers that with 429s. A strict limit keeps
//! a log of what was spent and frees each part one window after it was spent. To keep the log
//! small, what is spent within 1/128 of a window shares one entry, which is freed one window after
//! the *last* of it: at most 130 entries whatever the limit, and at least 99 % of it usable.

use crate::{Amount, Tick};
use std::collections::VecDeque;

/// Entries per window.
const GRAIN: u64 = 128;

/// What was spent in the last window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) spent: Amount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// When the first of it was spent.
    pub(crate) opened: u64,
    /// When all of it is free again.
    pub(crate) frees: u64,
    pub(crate) amount: Amount,
}

impl Log {
    /// What `spent` looks like when it was spent evenly over the last `span`, to last so long each.
    pub(crate) fn spread(spent: Amount, span: u64, lasting: u64, now: Tick) -> Self {
        const PARTS: u64 = 8;
        let part = Amount::from_millionths(spent.millionths() / PARTS);
        let entry = |k: u64| {
            let opened = now.as_nanos().saturating_sub(span / PARTS * (PARTS - 1 - k));
            let all = (0..k).fold(Amount::ZERO, |sum, _| sum.plus(part));
            let amount = if k == PARTS - 1 { spent.minus(all) } else { part };
            Entry { opened, frees: opened.saturating_add(lasting).saturating_add(1), amount }
        };
        Self { entries: (0..PARTS).map(entry).collect(), spent }
    }

    /// How many nanoseconds until `amount` fits under `limit`; 0 when it does now.
    ///
    /// An amount above the whole limit fits when nothing else is in the window (rule 5).
    #[must_use]
    pub fn wait(&self, amount: Amount, limit: Amount, now: Tick) -> u64 {
        let now = now.as_nanos();
        let room = limit.minus(amount);
        let mut spent = self.spent;
        for entry in &self.entries {
            if spent <= room && entry.frees > now {
                return 0;
            }
            if entry.frees > now && spent.minus(entry.amount) <= room {
                return entry.frees - now;
            }
            spent = spent.minus(entry.amount);
        }
        0
    }

    /// How many nanoseconds until the next unit is due where the window is filled evenly: in fifteen
    /// sixteenths of it, so that those who come a little late lose nothing.
    #[must_use]
    pub fn due(&self, limit: Amount, window: u64, now: Tick) -> u64 {
        let Some(last) = self.entries.back() else { return 0 };
        let share = u128::from(last.amount.millionths()) * 15 / 16;
        let span = u128::from(window) * share / u128::from(limit.millionths().max(1));
        let due = u128::from(last.opened) + span;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(now.as_nanos())
    }

    /// Spends `amount` now.
    pub fn spend(&mut self, amount: Amount, limit: Amount, window: u64, now: Tick) {
        self.forget(now);
        if amount.is_zero() {
            return;
        }
        let now = now.as_nanos();
        // One nanosecond more than the window: a span includes both of its ends.
        let mut frees = now.saturating_add(window).saturating_add(1);
        if amount > limit {
            frees = frees.saturating_add(debt(amount.minus(limit), limit, window));
        }
        self.spent = self.spent.plus(amount);
        match self.entries.back_mut() {
            Some(last) if now < last.opened.saturating_add(window / GRAIN) => {
                last.amount = last.amount.plus(amount);
                last.frees = last.frees.max(frees);
            }
            _ => {
                let frees = self.entries.back().map_or(frees, |last| frees.max(last.frees));
                self.entries.push_back(Entry { opened: now, frees, amount });
            }
        }
    }

    /// Gives back up to `amount` of what was spent at `at`; nothing when that is free already.
    pub fn refund(&mut self, amount: Amount, at: Tick) {
        let after = self.entries.partition_point(|entry| entry.opened <= at.as_nanos());
        let Some(entry) = after.checked_sub(1).and_then(|i| self.entries.get_mut(i)) else {
            return;
        };
        let back = amount.min(entry.amount);
        entry.amount = entry.amount.minus(back);
        self.spent = self.spent.minus(back);
    }

    /// The same, where what is spent counts for another time.
    pub(crate) fn stretched(&self, before: u64, after: u64) -> Self {
        let frees = |entry: &Entry| entry.frees.saturating_sub(before).saturating_add(after);
        let entries = self.entries.iter().map(|entry| Entry { frees: frees(entry), ..*entry });
        Self { entries: entries.collect(), spent: self.spent }
    }

    /// What was spent at `at` is free at `frees` and not before: the server counted it later than it left.
    pub(crate) fn delay(&mut self, at: Tick, frees: u64) {
        let after = self.entries.partition_point(|entry| entry.opened <= at.as_nanos());
        for entry in self.entries.iter_mut().skip(after.saturating_sub(1)) {
            entry.frees = entry.frees.max(frees);
        }
    }

    /// What was spent in the window that ends now.
    #[must_use]
    pub fn spent(&self, now: Tick) -> Amount {
        let alive = self.entries.iter().filter(|entry| entry.frees > now.as_nanos());
        alive.fold(Amount::ZERO, |sum, entry| sum.plus(entry.amount))
    }

    /// Nanoseconds until everything is free.
    #[must_use]
    pub fn until_full(&self, now: Tick) -> u64 {
        self.entries.back().map_or(0, |last| last.frees.saturating_sub(now.as_nanos()))
    }

    fn forget(&mut self, now: Tick) {
        while let Some(entry) = self.entries.front().filter(|e| e.frees <= now.as_nanos()) {
            self.spent = self.spent.minus(entry.amount);
            self.entries.pop_front();
        }
    }
}

/// The time that an overdraft of `over` takes to pay off at `limit` per `window`.
fn debt(over: Amount, limit: Amount, window: u64) -> u64 {
    let spans = u128::from(over.millionths()) * u128::from(window);
    u64::try_from(spans.div_ceil(u128::from(limit.millionths().max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u64 = 1_000_000_000;

    /// Sends as fast as the log allows for `windows` windows; the instants of each grant.
    fn saturate(limit: u64, windows: u64, gaps: &[u64]) -> Vec<u64> {
        let (mut log, mut now, mut sent) = (Log::default(), 0, Vec::new());
        let mut gaps = gaps.iter().cycle();
        while now < windows * WINDOW {
            let at = Tick::from_nanos(now);
            match log.wait(Amount::ONE, Amount::units(limit), at) {
                0 => {
                    log.spend(Amount::ONE, Amount::units(limit), WINDOW, at);
                    sent.push(now);
                    now += gaps.next().copied().unwrap_or(0);
                }
                wait => now += wait,
            }
        }
        sent
    }

    proptest! {
        #[test]
        fn rule_7_a_strict_limit_is_never_exceeded_in_any_window(
            limit in 1u64..300,
            gaps in proptest::collection::vec(0u64..20_000_000, 1..40),
        ) {
            let sent = saturate(limit, 6, &gaps);
            for (i, start) in sent.iter().enumerate() {
                let within = sent[i..].partition_point(|at| at - start <= WINDOW);
                prop_assert!(within as u64 <= limit);
            }
        }

        #[test]
        fn rule_7_at_least_98_percent_of_a_strict_limit_is_usable(
            limit in 1u64..2_000,
            gap in 0u64..400_000,
        ) {
            // Only a caller who asks faster than the limit can use all of it.
            prop_assume!(gap * limit < WINDOW);
            let windows = 50;
            let sent = saturate(limit, windows, &[gap]).len() as u64;
            prop_assert!(sent * 100 >= limit * windows * 98, "{} of {}", sent, limit * windows);
        }
    }

    #[test]
    fn rule_5_an_oversize_cost_passes_an_empty_window_and_is_paid_off() {
        let (mut log, limit) = (Log::default(), Amount::units(10));
        log.spend(Amount::units(25), limit, WINDOW, Tick::ZERO);
        assert_eq!(log.wait(Amount::ONE, limit, Tick::ZERO), WINDOW * 5 / 2 + 1);
    }

    #[test]
    fn rule_20_a_refund_frees_what_was_spent() {
        let (mut log, limit) = (Log::default(), Amount::units(10));
        log.spend(Amount::units(10), limit, WINDOW, Tick::ZERO);
        assert!(log.wait(Amount::ONE, limit, Tick::ZERO) > 0);
        log.refund(Amount::units(4), Tick::ZERO);
        assert_eq!(log.wait(Amount::units(4), limit, Tick::ZERO), 0);
        assert!(log.wait(Amount::units(5), limit, Tick::ZERO) > 0);
    }
}
