//! A window that the server counts: what is left falls until the reset, then jumps to the limit.
//!
//! Nothing refills before the reset (rule 11), so neither refill arithmetic nor "reset minus now"
//! says anything about it; only what was spent since the last reset, and when the next one is.
//!
//! After a window that was used up the next one is too, most likely. It is then spread evenly: whoever
//! waits waits about as long as the others, instead of not at all or for a whole window, and what the
//! server says of strangers comes in time.

use crate::learn::ROUNDED;
use crate::{Amount, Tick};
use std::time::Duration;

/// Windows after a rejection in which no more is tried than passed before it, at the most and at the least.
pub(crate) const AGAIN: u8 = 40;
pub(crate) const SOONEST: u8 = 6;
/// So many times as long as it holds everybody nobody risks another rejection.
pub(crate) const DEAR: u32 = 32;

/// How far apart requests go at most while the end of a window is not told.
const UNTOLD: Duration = Duration::from_secs(1);

/// The state of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Spent since the last reset, requests without an answer included.
    pub(crate) spent: Amount,
    /// The next reset, once a response told it.
    pub(crate) reset: Option<Tick>,
    /// When the first of it was spent: where no reset is told, the window ends one window later.
    pub(crate) began: Option<Tick>,
    /// The reset before that, from which the window can be measured.
    pub(crate) last: Option<Tick>,
    /// Nobody stated the limit: it is what passed until a rejection.
    pub(crate) unstated: bool,
    /// Windows that have to pass until more is tried count up to [`AGAIN`]; zero before the rejection
    /// before which everything was counted.
    pub(crate) quiet: u8,
    /// What passed since the last rejection in windows that are over, each used up, and since when.
    pub(crate) passed: Amount,
    pub(crate) since: Option<Tick>,
    /// The window before was all but used up: this one is spread.
    pub(crate) spread: bool,
    /// When the next unit is due in a window that is spread.
    pub(crate) due: Option<Tick>,
    /// What of it was spent here, as far as is known; the rest strangers have spent.
    pub(crate) own: Amount,
    /// What is left by all that was told while the level stands at nothing, for all of it may be under way.
    pub(crate) doubt: Option<Amount>,
    /// When that was last told where strangers spend, too.
    pub(crate) at: Option<Tick>,
    /// When its end was last told.
    pub(crate) heard: Option<Tick>,
    /// When all of it is to be spent in a window that is spread; else at its end.
    pub(crate) aim: Option<Tick>,
}

impl Fixed {
    /// Nanoseconds until `amount` fits under `limit`; 0 when it does now.
    #[must_use]
    pub fn wait(&self, amount: Amount, limit: Amount, window: u64, now: Tick) -> u64 {
        let current = self.rolled(limit, window, now);
        if current.is_unknown() {
            return 0;
        }
        let limit = current.tried(limit);
        let fits = current.spent.is_zero() || current.spent.plus(amount) <= limit;
        let when = match fits {
            true => current.due.max(current.clear(amount, limit, window, now)),
            false => current.ends(window),
        };
        when.map_or(0, |when| when.as_nanos().saturating_sub(now.as_nanos()))
    }

    /// How long strangers take for `amount`, if they go on as they did until that was last told. Early in
    /// a window few of them say little.
    fn theirs(&self, amount: Amount, window: u64) -> Option<Duration> {
        let (end, at, strange) = (self.reset?, self.at?, self.spent.minus(self.own));
        let rest = crate::time::nanos(end.since(at));
        let elapsed = Duration::from_nanos(window.saturating_sub(rest).max(window / 4));
        (!strange.is_zero()).then(|| share(elapsed, amount, strange))
    }

    /// When `amount` fits beside what strangers spend until the end. What they may have spent since it was
    /// told is nobody's: whoever competes with them for the last units is refused.
    fn clear(&self, amount: Amount, limit: Amount, window: u64, now: Tick) -> Option<Tick> {
        let room = limit.minus(self.spent).minus(amount);
        let (end, at, span) = (self.reset?, self.at?, self.theirs(room, window)?);
        let from = Tick::from_nanos(end.as_nanos().saturating_sub(crate::time::nanos(span)));
        let when = from.max(now).max(self.due.unwrap_or(now));
        Some(if when > at.after(span) { end } else { when })
    }

    /// What is left for this side, beside what strangers spend from `at` until the end.
    fn ours(&self, limit: Amount, window: u64, at: Tick) -> Amount {
        let left = limit.minus(self.spent);
        let Some(one) = self.theirs(Amount::ONE, window) else { return left };
        let theirs = self.rest(at, window).as_nanos() * 1_000_000 / one.as_nanos().max(1);
        left.minus(Amount::from_millionths(u64::try_from(theirs).unwrap_or(u64::MAX)))
    }

    /// Spends `amount` of `limit` now.
    pub fn spend(&mut self, amount: Amount, limit: Amount, window: u64, now: Tick) {
        *self = self.rolled(limit, window, now);
        let limit = self.tried(limit);
        self.began.get_or_insert(now);
        if self.unstated {
            self.since.get_or_insert(now);
        }
        if self.spread {
            let due = self.due.unwrap_or(now);
            let left = self.ours(limit, window, due).max(Amount::ONE);
            let step = share(self.rest(due, window), amount.min(left), left);
            // Nobody is kept waiting for an end that is only guessed: the first answer will tell it.
            let most = if self.reset.is_some() { step } else { UNTOLD };
            self.due = Some(due.after(step.min(most)));
        }
        self.spent = self.spent.plus(amount);
        self.own = self.own.plus(amount);
    }

    /// Gives back `amount` that was spent at `at`, if that was in the present window.
    pub fn refund(&mut self, amount: Amount, at: Tick, limit: Amount, window: u64, now: Tick) {
        *self = self.rolled(limit, window, now);
        // A window that was only guessed may be too short for its reset.
        let began = self.reset.map_or(0, |reset| reset.as_nanos().saturating_sub(window));
        let began = self.began.map_or(began, |first| first.as_nanos().min(began));
        if at.as_nanos() < began {
            return;
        }
        if let Some(due) = self.due {
            let limit = self.tried(limit);
            let left = self.ours(limit, window, due);
            let step = match left.is_zero() {
                true => share(Duration::from_nanos(window), amount, limit),
                false => share(self.rest(due, window), amount, left),
            };
            let sooner = crate::time::nanos(step);
            self.due = Some(Tick::from_nanos(due.as_nanos().saturating_sub(sooner)));
        }
        self.spent = self.spent.minus(amount);
        self.own = self.own.minus(amount);
    }

    /// What is left of the present window after `due`.
    fn rest(&self, due: Tick, window: u64) -> Duration {
        self.aim.or_else(|| self.ends(window)).map_or(Duration::ZERO, |end| end.since(due))
    }

    /// What is left now.
    #[must_use]
    pub fn remaining(&self, limit: Amount, window: u64, now: Tick) -> Amount {
        limit.minus(self.spent(limit, window, now))
    }

    /// Whether nobody knows what passes in the present window, so that it is tried one at a time.
    #[must_use]
    pub fn is_tried(&self, limit: Amount, window: u64, now: Tick) -> bool {
        self.rolled(limit, window, now).is_unknown()
    }

    const fn is_unknown(&self) -> bool {
        self.unstated && self.quiet == 0 && !self.spread
    }

    /// The limit, and what is tried beyond it where nobody stated one: as much again until a rejection
    /// tells, and later a sixteenth, now and then, for it may have been raised.
    fn tried(&self, limit: Amount) -> Amount {
        let more = match self.quiet {
            _ if !self.unstated => return limit,
            0 => limit,
            1..=AGAIN => return limit,
            _ => Amount::from_millionths(limit.millionths() / 16),
        };
        limit.plus(more.max(Amount::ONE))
    }

    /// Begins a window that is over anew.
    pub(crate) fn roll(&mut self, limit: Amount, window: u64, now: Tick) {
        *self = self.rolled(limit, window, now);
    }

    /// What was spent in the present window.
    #[must_use]
    pub fn spent(&self, limit: Amount, window: u64, now: Tick) -> Amount {
        self.rolled(limit, window, now).spent
    }

    /// The next reset, if it is known and not past.
    #[must_use]
    pub fn reset(&self, now: Tick) -> Option<Tick> {
        self.reset.filter(|reset| *reset > now)
    }

    /// The latest reset that is past.
    #[must_use]
    pub fn last_reset(&self, now: Tick) -> Option<Tick> {
        self.reset.filter(|reset| *reset <= now).or(self.last)
    }

    /// Takes over what the server says: `left` of `limit`, until `reset`. Where nobody is sure of that it
    /// may have been rounded up, and the window is spread over what surely belongs to it.
    pub fn told(
        &mut self,
        left: Amount,
        limit: Amount,
        reset: Option<Tick>,
        sure: bool,
        window: u64,
        now: Tick,
    ) {
        *self = self.rolled(limit, window, now);
        self.spent = limit.minus(left);
        let untold = self.reset.is_none();
        if !sure
            && untold
            && let Some(reset) = reset
        {
            let sooner = ROUNDED.min(reset.since(now) / 2);
            self.aim = Some(Tick::from_nanos(reset.as_nanos() - crate::time::nanos(sooner)));
        }
        // What was spent before anything was told was spent by nobody knows whom, nor when.
        if untold {
            self.own = self.own.max(self.spent);
        }
        if self.spent > self.own {
            self.at = Some(now);
        }
        self.reset = reset.or(self.reset);
        self.began.get_or_insert(now);
        // The end was only guessed until now, or it comes sooner than was thought.
        if let Some(due) = self.due {
            let left = self.ours(limit, window, now).plus(Amount::ONE);
            let step = share(self.rest(now, window), Amount::ONE, left);
            let even = now.after(step);
            self.due = Some(if untold && reset.is_some() { even } else { due.min(even) });
        }
    }

    /// When the present window ends, as far as is known.
    fn ends(&self, window: u64) -> Option<Tick> {
        self.reset.or_else(|| Some(self.began?.after(Duration::from_nanos(window))))
    }

    /// The state at `now`: past its end nothing is spent. The end of the next window is the server's
    /// to tell, for that usually begins with the next request.
    fn rolled(&self, limit: Amount, window: u64, now: Tick) -> Self {
        match self.ends(window) {
            Some(end) if end <= now => {
                // A pause since then says that nobody waits for more.
                let used = limit.minus(self.spent).millionths() <= limit.millionths() / 8;
                let refused = self.unstated && self.quiet > 0 && self.since.is_none();
                let spread = (used || refused) && now.since(end) < Duration::from_nanos(window);
                let since = self.since.filter(|_| spread);
                Self {
                    last: self.reset.or(self.last),
                    unstated: self.unstated,
                    quiet: if self.quiet == 0 { 0 } else { self.quiet.saturating_add(1) },
                    spread,
                    passed: since.map_or(Amount::ZERO, |_| self.passed.plus(self.spent)),
                    since,
                    ..Self::default()
                }
            }
            _ => *self,
        }
    }
}

/// So much of `span` as `part` is of `whole`.
fn share(span: Duration, part: Amount, whole: Amount) -> Duration {
    let nanos = span.as_nanos() * u128::from(part.millionths()) / u128::from(whole.millionths());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: Amount = Amount::units(10);
    const WINDOW: u64 = 60_000_000_000;

    #[test]
    fn rule_11_nothing_refills_before_the_reset_and_everything_at_it() {
        let mut fixed = Fixed::default();
        let reset = Tick::from_nanos(30_000_000_000);
        fixed.told(Amount::ONE, LIMIT, Some(reset), true, WINDOW, Tick::ZERO);
        fixed.spend(Amount::ONE, LIMIT, WINDOW, Tick::ZERO);
        let late = Tick::from_nanos(29_999_999_999);
        assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, late), 1);
        assert_eq!(fixed.remaining(LIMIT, WINDOW, late), Amount::ZERO);
        assert_eq!(fixed.wait(LIMIT, LIMIT, WINDOW, reset), 0);
    }

    proptest! {
        /// Whatever the server says of resets, or does not say, waiting as long as told succeeds.
        #[test]
        fn rule_21_waiting_as_long_as_told_succeeds(
            history in proptest::collection::vec((0u64..90, 0u64..12, proptest::option::of(0u64..90)), 0..30),
        ) {
            let (mut fixed, mut now) = (Fixed::default(), Tick::ZERO);
            for (pause, left, reset) in history {
                now = now.after(Duration::from_secs(pause));
                fixed.spend(Amount::ONE, LIMIT, WINDOW, now);
                let reset = reset.map(|secs| now.after(Duration::from_secs(secs)));
                fixed.told(Amount::units(left), LIMIT, reset, true, WINDOW, now);
                let wait = fixed.wait(Amount::ONE, LIMIT, WINDOW, now);
                prop_assert!(wait <= 90_000_000_000);
                let then = now.after(Duration::from_nanos(wait));
                prop_assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, then), 0);
            }
        }
    }

    #[test]
    fn what_follows_a_window_that_was_used_up_is_spread_evenly() {
        let (mut fixed, mut at) = (Fixed::default(), Vec::new());
        let mut now = Tick::ZERO;
        // A server that tells its reset with each answer.
        let mut reset = now.after(Duration::from_nanos(WINDOW));
        for _ in 0..40 {
            now = now.after(Duration::from_nanos(fixed.wait(Amount::ONE, LIMIT, WINDOW, now)));
            if now >= reset {
                reset = now.after(Duration::from_nanos(WINDOW));
            }
            fixed.spend(Amount::ONE, LIMIT, WINDOW, now);
            let left = fixed.remaining(LIMIT, WINDOW, now);
            fixed.told(left, LIMIT, Some(reset), true, WINDOW, now);
            at.push(now.as_nanos() / 1_000_000_000);
        }
        assert_eq!(at[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60], "the first window goes at once");
        let gaps: Vec<_> = at[10..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (5..=6).contains(gap)), "{gaps:?}");
        // Given back, the next one is due when it would have been.
        let wait = |fixed: &Fixed| fixed.wait(Amount::ONE, LIMIT, WINDOW, now);
        let before = wait(&fixed);
        fixed.spend(Amount::ONE, LIMIT, WINDOW, now);
        fixed.refund(Amount::ONE, now, LIMIT, WINDOW, now);
        assert!(before.abs_diff(wait(&fixed)) < 10);
        // And after a pause nobody is made to wait.
        let later = now.after(Duration::from_nanos(WINDOW * 3));
        for _ in 0..10 {
            assert_eq!(fixed.wait(Amount::ONE, LIMIT, WINDOW, later), 0);
            fixed.spend(Amount::ONE, LIMIT, WINDOW, later);
        }
    }

    #[test]
    fn rule_5_an_oversize_cost_passes_a_fresh_window() {
        let fixed = Fixed::default();
        assert_eq!(fixed.wait(Amount::units(11), LIMIT, WINDOW, Tick::ZERO), 0);
    }
}
