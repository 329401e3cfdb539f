//! What an answer says of one limit, and how that is taken over by the way in which its server counts.

use super::{BLUR, FARTHEST, OFTEN, ROUNDED, SLIGHT, bounded, estimate, told_reset};
use crate::lane::Lane;
use crate::{Amount, Limit, Origin, Signal, Tick, Window};
use std::time::Duration;

/// What an answer said of one dimension, and how much it can be trusted.
pub(super) struct Answer<'a> {
    pub(super) signal: &'a Signal,
    /// The limit it stated, if that makes sense.
    pub(super) told: Option<u64>,
    /// What the server may or may not have counted.
    pub(super) uncertain: Amount,
    /// Whether nothing else is under way any more.
    pub(super) alone: bool,
    /// Whether the answer to a later request was seen before.
    pub(super) late: bool,
    pub(super) rejected: bool,
    pub(super) now: Tick,
}

impl Answer<'_> {
    /// Follows a window that the server counts.
    pub(super) fn teach_window(&self, lane: &mut Lane) {
        if lane.limit().strict {
            return self.teach_span(lane);
        }
        let reset = told_reset(self.signal).map(|reset| self.now.after(reset.min(FARTHEST)));
        let fixed = lane.as_fixed();
        let known = fixed.as_ref().and_then(|fixed| fixed.reset(self.now));
        let last = fixed.as_ref().and_then(|fixed| fixed.last_reset(self.now));
        let heard = fixed.and_then(|fixed| fixed.heard);
        let blur = BLUR.min(lane.limit().window.duration());
        // More is left than there can be in the present window, so it is over, however little later the
        // next one is told to end.
        let most = lane.remaining(self.now).plus(self.uncertain);
        let came_back = self.signal.remaining.is_some_and(|left| Amount::units(left) > most);
        let next_window = reset.zip(known).is_some_and(|(told, known)| {
            told > known.after(blur) || (came_back && told > known && !self.late)
        });
        // An earlier reset is that of a window before, unless the newest answer says it.
        let sooner = reset.zip(known).is_some_and(|(told, known)| known > told.after(blur));
        if sooner && self.late {
            return;
        }
        // The end of a window stands still until it has come, and then all is there again. Where it moves
        // on before, and not even half of all is there, it is the end of a span that slides.
        let is_early = known.is_some_and(|known| known > self.now.after(blur / 4));
        let moved = reset
            .zip(known)
            .is_some_and(|(told, known)| told > known.after((ROUNDED + SLIGHT).max(blur)));
        let fell = |share| {
            let most = lane.limit().units / 4 * share;
            self.signal.remaining.is_some_and(|left| left <= most)
        };
        // Ends that are told in whole seconds move on by one at once, and not with the time that passes.
        let jumped = reset.zip(known).zip(heard).is_some_and(|((told, known), heard)| {
            told > known.after(self.now.since(heard) + ROUNDED / 2)
        });
        let moves = (moved && fell(2)) || (jumped && !came_back && fell(3));
        if moves && is_early && !self.late && !self.rejected {
            let window = self.signal.window.or(self.told_span()).unwrap_or(lane.limit().window);
            let predicted = lane.as_fixed().and_then(|fixed| fixed.doubt);
            let predicted = predicted.unwrap_or_else(|| lane.remaining(self.now));
            let told = self.signal.remaining.map_or(Amount::ZERO, Amount::units);
            lane.slide(window, told.min(predicted), self.now);
            return self.teach_span(lane);
        }
        let mut limit = Limit::clone(lane.limit());
        let supposed = limit.window;
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        let before = if next_window { known } else { last };
        // Across a pause it would be the pause that is measured.
        let measured = |told: Tick, before: Tick| {
            let distance = told.since(before);
            (self.now.since(before) <= distance / 2).then_some(distance)
        };
        let distance = reset.zip(before).and_then(|(told, before)| measured(told, before));
        if let Some(window) = self.signal.window {
            (limit.window, limit.origin) = (window, Origin::Confirmed);
        } else if let Some(distance) = distance.and_then(Window::from_duration) {
            limit.window = distance.snapped();
        } else if let Some(least) = estimate(self.signal).filter(|least| *least > limit.window) {
            limit.window = least;
        }
        limit.window = bounded(limit.window, limit.units);
        // Its length was stated, or seen before.
        let sure = limit.origin == Origin::Confirmed || limit.window == supposed;
        lane.relimit(limit, self.now);
        let whole = Amount::units(lane.limit().units);
        let before = lane.remaining(self.now);
        let window = lane.limit().window.as_nanos();
        let Some(fixed) = lane.as_fixed() else { return };
        fixed.roll(whole, window, self.now);
        if next_window {
            (fixed.aim, fixed.doubt) = (None, None);
        }
        // Of the resets told for one window the earliest is the least blurred. What differs no more
        // than the time that an answer takes says nothing new.
        let slight = SLIGHT.min(Duration::from_nanos(window / 256));
        let same = |told: Tick, known: Tick| known <= told.after(slight) && !next_window;
        let confirmed =
            reset.is_some_and(|told| known.is_none_or(|known| told <= known.after(slight)));
        if (confirmed || next_window)
            && fixed.heard.is_none_or(|heard| self.now.since(heard) >= OFTEN)
        {
            fixed.heard = Some(self.now);
        }
        let reset = match (reset, known) {
            (Some(told), Some(known)) if same(told, known) => Some(known),
            (told, known) => told.or(known),
        };
        let mut left = before;
        if let Some(told) = self.signal.remaining.map(Amount::units) {
            // Where all that is left may be under way already, the answers to that are waited for, which
            // takes no longer than they do: a stranger would be noticed only when nothing is left. The
            // last of them tells what they left.
            let late = self.late && !next_window;
            let least = fixed.doubt.take().map(|least| least.min(told));
            left = reconcile(least.unwrap_or(before), told, self.uncertain, late);
            if told <= self.uncertain && !self.alone {
                fixed.doubt = least.or(Some(before.min(told)));
                left = Amount::ZERO;
            }
        }
        fixed.told(left, whole, reset, sure, window, self.now);
    }

    /// The span that slides: its end is told as that of the newest request in it, or later by rounding.
    fn span(&self) -> Option<Window> {
        let told = told_reset(self.signal).and_then(Window::from_duration).map(Window::snapped);
        self.signal.window.or(told)
    }

    /// The same where its end has just moved on: whole seconds tell it one too late.
    fn told_span(&self) -> Option<Window> {
        let millis = told_reset(self.signal)?.as_millis().saturating_sub(500);
        let secs = u64::try_from(millis / 1_000).ok()?.max(1);
        Window::from_duration(Duration::from_secs(secs))
    }

    /// Follows a limit that holds in any span of its window.
    fn teach_span(&self, lane: &mut Lane) {
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        // Rounding tells it up to a second too long; beyond that it was taken for too short.
        let longest = limit.window.duration() + ROUNDED + SLIGHT;
        if told_reset(self.signal).is_some_and(|told| told > longest) {
            limit.window = self.signal.window.or(self.told_span()).unwrap_or(limit.window);
        } else if let Some(span) = self.span().filter(|span| *span < limit.window) {
            limit.window = span;
        }
        lane.relimit(limit, self.now);
        // What others have spent can be added; what is spent less than was thought passes by itself.
        if let Some(left) = self.signal.remaining {
            let before = lane.remaining(self.now);
            let after = reconcile(before, Amount::units(left), self.uncertain, self.late);
            // What is about to pass here and there at the same time differs by the way there and back.
            let slight = Amount::units(lane.limit().units / 32 + 1);
            if before > after.plus(slight) {
                lane.spend(before.minus(after), self.now);
            }
        }
    }

    /// Follows a bucket that refills all the time.
    pub(super) fn teach_bucket(&self, lane: &mut Lane) {
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        if let Some(window) = self.signal.window {
            (limit.window, limit.origin) = (window, Origin::Confirmed);
        } else if let (Origin::Estimated, Some(window)) = (limit.origin, estimate(self.signal)) {
            // A nearly full bucket says little: rounding of the reset is most of what it shows.
            let missing =
                self.signal.limit.unwrap_or(0).saturating_sub(self.signal.remaining.unwrap_or(0));
            if missing.saturating_mul(10) >= self.signal.limit.unwrap_or(0) {
                limit.window = window;
            }
        }
        limit.window = bounded(limit.window, limit.units);
        lane.relimit(limit, self.now);
        self.correct(lane);
    }

    /// Sets the level of a bucket to what the server says, in the light of rule 10.
    pub(super) fn correct(&self, lane: &mut Lane) {
        if let Some(left) = self.signal.remaining {
            let before = lane.remaining(self.now);
            let after = reconcile(before, Amount::units(left), self.uncertain, self.late);
            if after.whole() != before.whole() {
                lane.set_remaining(after, self.now);
            }
        }
    }
}

/// Rule 10: what is left, from what was predicted and what the server said.
fn reconcile(predicted: Amount, told: Amount, uncertain: Amount, late: bool) -> Amount {
    let lower = told.minus(uncertain);
    if (lower..=told).contains(&predicted) {
        predicted
    } else if late {
        lower.min(predicted)
    } else {
        lower
    }
}
