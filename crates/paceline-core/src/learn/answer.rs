//! What an answer says of one limit, and how that is taken over by the way in which its server counts.

use super::{BLUR, FARTHEST, ROUNDED, SLIGHT, bounded, estimate, told_reset};
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
        let last = fixed.and_then(|fixed| fixed.last_reset(self.now));
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
        let half = lane.limit().units / 2;
        let fell = self.signal.remaining.is_some_and(|left| left <= half);
        if moved && is_early && fell && !self.late && !self.rejected {
            // Just after its end has moved on, whole seconds tell it one too late.
            let told =
                told_reset(self.signal).map(|told| told.as_millis().saturating_sub(500) / 1_000);
            let told = told.and_then(|secs| u64::try_from(secs.max(1)).ok());
            let told = told.and_then(|secs| Window::from_duration(Duration::from_secs(secs)));
            let window = self.signal.window.or(told).unwrap_or(lane.limit().window);
            lane.slide(window, self.signal.remaining.unwrap_or(0), self.now);
            return self.teach_span(lane);
        }
        let mut limit = Limit::clone(lane.limit());
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
        lane.relimit(limit, self.now);
        let whole = Amount::units(lane.limit().units);
        let before = lane.remaining(self.now);
        let window = lane.limit().window.as_nanos();
        let Some(fixed) = lane.as_fixed() else { return };
        // Of the resets told for one window the earliest is the least blurred. What differs no more
        // than the time that an answer takes says nothing new.
        let slight = SLIGHT.min(Duration::from_nanos(window / 256));
        let reset = match (reset, known) {
            (Some(told), Some(known)) if !next_window => {
                Some(if known <= told.after(slight) { known } else { told })
            }
            (told, known) => told.or(known),
        };
        let left = match self.signal.remaining {
            Some(left) => {
                let late = self.late && !next_window;
                reconcile_window(before, Amount::units(left), self.uncertain, late)
            }
            None => before,
        };
        fixed.told(left, whole, reset, window, self.now);
    }

    /// The span that slides: its end is told as that of the newest request in it, or later by rounding.
    fn span(&self) -> Option<Window> {
        let told = told_reset(self.signal).and_then(Window::from_duration).map(Window::snapped);
        self.signal.window.or(told)
    }

    /// Follows a limit that holds in any span of its window.
    fn teach_span(&self, lane: &mut Lane) {
        let mut limit = Limit::clone(lane.limit());
        if let Some(units) = self.told {
            (limit.units, limit.burst) = (units, units);
        }
        if let Some(span) = self.span().filter(|span| *span < limit.window) {
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

/// Rule 10, in a window that nothing refills: where all that is left may be under way already, the
/// answers to that are waited for, which takes no longer than they do. A stranger with the same key
/// would be noticed only when nothing is left.
fn reconcile_window(predicted: Amount, told: Amount, uncertain: Amount, late: bool) -> Amount {
    match told <= uncertain {
        true => Amount::ZERO,
        false => reconcile(predicted, told, uncertain, late),
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
