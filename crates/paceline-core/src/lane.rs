//! One limit with its live state.

use crate::fixed::Fixed;
use crate::gcra::{self, Rate};
use crate::search::Search;
use crate::strict::Log;
use crate::{Amount, Dimension, Limit, Origin, Tick, Window};
use std::sync::Arc;
use std::time::Duration;

/// A limit and the bucket that it fills.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// The limit's, at hand because every charge looks at it.
    dimension: Dimension,
    rate: Rate,
    bucket: Bucket,
    limit: Arc<Limit>,
    /// How the limit is searched for, where the server says nothing of it.
    search: Option<Box<Search>>,
}

/// The three ways to count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bucket {
    /// Refills all the time; the integer says when it is full.
    Gcra(u64),
    /// Never more than the limit in any window.
    Strict(Box<Log>),
    /// The server's own window.
    Fixed(Box<Fixed>),
}

impl Lane {
    /// A full bucket of `limit`.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let bucket = if limit.strict { Bucket::Strict(Box::default()) } else { Bucket::Gcra(0) };
        let (dimension, rate) = (limit.dimension.clone(), Rate::new(&limit));
        Self { dimension, rate, bucket, limit: Arc::new(limit), search: None }
    }

    /// An untouched window of `limit` that a server counts.
    #[must_use]
    pub fn fixed(limit: Limit) -> Self {
        Self::with_bucket(limit, Bucket::Fixed(Box::default()))
    }

    /// What passes in a window of a server that states no limit, of which nothing is known yet.
    pub(crate) fn unstated(window: Window) -> Self {
        let limit = Limit {
            dimension: Dimension::Requests,
            name: None,
            units: 1,
            window,
            burst: 1,
            strict: false,
            origin: Origin::Estimated,
        };
        Self::with_bucket(
            limit,
            Bucket::Fixed(Box::new(Fixed { unstated: true, ..Fixed::default() })),
        )
    }

    /// Requests at the rate that a search has found, or begins with.
    pub(crate) fn searched(rate: u64, search: Search) -> Self {
        let limit = Limit {
            dimension: Dimension::Requests,
            name: None,
            units: rate,
            window: Window::MINUTE,
            burst: Search::burst(rate),
            strict: false,
            origin: Origin::Estimated,
        };
        Self::new(limit).with_search(Some(search))
    }

    pub(crate) fn with_search(self, search: Option<Search>) -> Self {
        Self { search: search.map(Box::new), ..self }
    }

    /// The search for the limit, where there is one.
    pub(crate) fn search(&self) -> Option<&Search> {
        self.search.as_deref()
    }

    /// A request passed, or was refused: searches on from there.
    pub(crate) fn search_on(&mut self, passed: Option<Tick>, now: Tick) {
        let Some(mut search) = self.search.take() else { return };
        let rate = self.limit.units;
        let next = match passed {
            Some(left) => search.pass(left, rate, now),
            None => search.refuse(rate, now),
        };
        let limit = Limit { units: next, burst: Search::burst(next), ..Limit::clone(&self.limit) };
        self.relimit(limit, now);
        self.search = Some(search);
    }

    /// Whether the server has stated nothing of the limit.
    pub(crate) fn is_guessed(&self) -> bool {
        self.is_unstated() || self.search.is_some()
    }

    /// Whether it is what passed before a rejection.
    pub(crate) fn is_unstated(&self) -> bool {
        matches!(&self.bucket, Bucket::Fixed(fixed) if fixed.unstated)
    }

    /// Whether it matters when the server has counted what was sent.
    pub(crate) fn is_timed(&self) -> bool {
        let seen = self.limit.strict && self.limit.origin != Origin::Configured;
        seen || self.goes_one_by_one()
    }

    /// Whether units go one by one.
    pub(crate) fn goes_one_by_one(&self) -> bool {
        matches!(self.bucket, Bucket::Gcra(_)) && self.limit.burst == 1
    }

    /// The server counted `amount`, which was paid at `at`, by `counted` at the latest. Where units go one
    /// by one the next one is due after that, and in a span that slides it is free one window after it.
    /// What comes to less than a sixteenth of a unit, or 1/512 of a window is not worth a visit.
    pub(crate) fn counted(&mut self, amount: Amount, at: Tick, counted: Tick) {
        if amount.is_zero() {
            return;
        }
        let (one_by_one, lasting) = (self.goes_one_by_one(), self.lasting());
        let slight = self.window() / 512;
        match &mut self.bucket {
            Bucket::Gcra(tat) if one_by_one => {
                let debit = self.rate.debit(amount);
                let due = gcra::spend(0, debit, self.rate.at(counted));
                if due > tat.saturating_add(self.rate.ticks(amount) / 16) {
                    *tat = due;
                }
            }
            Bucket::Strict(log)
                if self.limit.origin != Origin::Configured
                    && counted.as_nanos() > at.as_nanos().saturating_add(slight) =>
            {
                log.delay(at, counted.as_nanos().saturating_add(lasting).saturating_add(1));
            }
            _ => {}
        }
    }

    /// Turns a window of the server's, of which so many units are left, into a limit that holds in any
    /// span of `window`. What was spent was spent evenly since it began, as far as is known.
    pub(crate) fn slide(&mut self, window: Window, left: Amount, now: Tick) {
        let limit = Limit { window, strict: true, ..Limit::clone(&self.limit) };
        let spent = self.whole().minus(left);
        let began = self.as_fixed().and_then(|fixed| fixed.began).unwrap_or(Tick::ZERO);
        *self = Self::new(limit);
        let span = crate::time::nanos(now.since(began)).min(self.window());
        let log = Log::spread(spent, span, self.lasting(), now);
        self.bucket = Bucket::Strict(Box::new(log));
    }

    /// How long what was spent counts: where that was only seen, a little longer than the window, for a
    /// request is counted later than it leaves.
    fn lasting(&self) -> u64 {
        match self.limit.origin {
            Origin::Configured => self.window(),
            _ => self.window() + self.window() / 256,
        }
    }

    /// Whether nobody knows if the server has room for `amount`: it has to be tried.
    pub(crate) fn is_doubtful(&self, amount: Amount, now: Tick) -> bool {
        let Bucket::Fixed(fixed) = &self.bucket else { return false };
        fixed.is_tried(self.whole(), self.window(), now)
            && !amount.is_zero()
            && self.remaining(now) < amount
    }

    /// A limit with the bucket that it has.
    pub(crate) fn with_bucket(limit: Limit, bucket: Bucket) -> Self {
        Self { bucket, ..Self::new(limit) }
    }

    pub(crate) fn rate(&self) -> &Rate {
        &self.rate
    }

    pub(crate) fn bucket_kind(&self) -> &Bucket {
        &self.bucket
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// What it meters.
    #[must_use]
    #[inline]
    pub fn dimension(&self) -> &Dimension {
        &self.dimension
    }

    /// The rate and the integer of an ordinary bucket.
    #[must_use]
    #[inline]
    pub fn bucket(&self) -> Option<(Rate, u64)> {
        match self.bucket {
            Bucket::Gcra(tat) => Some((self.rate, tat)),
            Bucket::Strict(_) | Bucket::Fixed(_) => None,
        }
    }

    /// Sets the integer of an ordinary bucket.
    #[inline]
    pub fn set_bucket(&mut self, full_at: u64) {
        if let Bucket::Gcra(tat) = &mut self.bucket {
            *tat = full_at;
        }
    }

    /// Nanoseconds until `amount` can be paid; 0 when it can be now.
    #[must_use]
    #[inline]
    pub fn wait(&self, amount: Amount, now: Tick) -> u64 {
        match &self.bucket {
            Bucket::Gcra(tat) => {
                let rate = &self.rate;
                rate.nanos(gcra::wait(*tat, rate.debit(amount), rate.at(now)))
            }
            // What a server was seen to count so is filled evenly, so that its answers tell how.
            Bucket::Strict(log) if self.limit.origin != Origin::Configured => {
                let due = log.due(self.whole(), self.window(), now);
                log.wait(amount, self.whole(), now).max(due)
            }
            Bucket::Strict(log) => log.wait(amount, self.whole(), now),
            Bucket::Fixed(fixed) => fixed.wait(amount, self.whole(), self.window(), now),
        }
    }

    /// Pays `amount` if it can be paid now, and tells 0; else the nanoseconds until it can.
    #[inline]
    pub fn charge(&mut self, amount: Amount, now: Tick) -> u64 {
        // What is not spent here is not gated here, not even while others pay off a debt.
        if amount.is_zero() {
            return 0;
        }
        if let Bucket::Gcra(tat) = &mut self.bucket {
            let (debit, at) = (self.rate.debit(amount), self.rate.at(now));
            let wait = gcra::wait(*tat, debit, at);
            if wait == 0 {
                *tat = gcra::spend(*tat, debit, at);
            }
            return self.rate.nanos(wait);
        }
        let wait = self.wait(amount, now);
        if wait == 0 {
            self.spend(amount, now);
        }
        wait
    }

    /// Pays `amount`, whether or not it could wait longer.
    #[inline]
    pub fn spend(&mut self, amount: Amount, now: Tick) {
        let (whole, window, lasting) = (self.whole(), self.window(), self.lasting());
        match &mut self.bucket {
            Bucket::Gcra(tat) => {
                *tat = gcra::spend(*tat, self.rate.debit(amount), self.rate.at(now));
            }
            Bucket::Strict(log) => log.spend(amount, whole, lasting, now),
            Bucket::Fixed(fixed) => fixed.spend(amount, whole, window, now),
        }
    }

    /// Gives back `amount` that was paid at `at`.
    pub fn refund(&mut self, amount: Amount, at: Tick, now: Tick) {
        let (whole, window) = (self.whole(), self.window());
        match &mut self.bucket {
            Bucket::Gcra(tat) => *tat = tat.saturating_sub(self.rate.ticks(amount)),
            Bucket::Strict(log) => log.refund(amount, at),
            Bucket::Fixed(fixed) => fixed.refund(amount, at, whole, window, now),
        }
    }

    /// What would be granted now.
    #[must_use]
    pub fn remaining(&self, now: Tick) -> Amount {
        match &self.bucket {
            Bucket::Gcra(tat) => self.rate.remaining(*tat, now),
            Bucket::Strict(log) => self.whole().minus(log.spent(now)),
            Bucket::Fixed(fixed) => fixed.remaining(self.whole(), self.window(), now),
        }
    }

    /// The time until it is full: for a server's window, until its reset.
    #[must_use]
    pub fn until_full(&self, now: Tick) -> Duration {
        match &self.bucket {
            Bucket::Gcra(tat) => self.rate.span(tat.saturating_sub(self.rate.at(now))),
            Bucket::Strict(log) => Duration::from_nanos(log.until_full(now)),
            Bucket::Fixed(fixed) => {
                fixed.reset(now).map_or(Duration::ZERO, |reset| reset.since(now))
            }
        }
    }

    /// The state of a server's window, if this is one.
    pub(crate) fn as_fixed(&mut self) -> Option<&mut Fixed> {
        match &mut self.bucket {
            Bucket::Fixed(fixed) => Some(fixed),
            Bucket::Gcra(_) | Bucket::Strict(_) => None,
        }
    }

    /// Sets the level of a bucket that refills. Other ways to count are left as they are.
    pub(crate) fn set_remaining(&mut self, left: Amount, now: Tick) {
        if let Bucket::Gcra(tat) = &mut self.bucket {
            *tat = self.rate.tat_with(left, now);
        }
    }

    /// Empties a bucket that refills, as of `at`.
    pub(crate) fn empty(&mut self, at: Tick) {
        if let Bucket::Gcra(tat) = &mut self.bucket {
            *tat = (*tat).max(self.rate.tat_with(Amount::ZERO, at));
        }
    }

    /// Puts another limit in place of this one and keeps the units that were used: raising the
    /// limit grants the difference, lowering it never grants.
    pub(crate) fn relimit(&mut self, limit: Limit, now: Tick) {
        if limit == *self.limit {
            return;
        }
        let mut next = match &self.bucket {
            Bucket::Fixed(fixed) if !limit.strict && limit.origin != Origin::Configured => {
                Self::with_bucket(limit, Bucket::Fixed(fixed.clone()))
            }
            // What was spent frees as much later as the window is longer.
            Bucket::Strict(log) if limit.strict => {
                let mut next = Self::with_bucket(limit, Bucket::Gcra(0));
                let log = log.stretched(self.lasting(), next.lasting());
                next.bucket = Bucket::Strict(Box::new(log));
                next
            }
            _ => {
                let mut next = Self::new(limit);
                // More than the whole bucket was only used where there is a debt: a limit that is
                // lowered leaves an empty bucket, not one that takes years to pay off.
                let used = self.used(now);
                let debt = used.minus(Amount::units(self.limit.burst));
                let used = used.minus(debt).min(Amount::units(next.limit.burst)).plus(debt);
                next.spend(used, now);
                next
            }
        };
        // Whoever sets a limit searches for none.
        next.search = self.search.take().filter(|_| next.limit.origin != Origin::Configured);
        *self = next;
    }

    /// So many thousandths of it: of the limit, and of what is used.
    pub(crate) fn scaled(&self, thousandths: u32, now: Tick) -> Self {
        let part = |whole: u64| (whole.saturating_mul(thousandths.into()) / 1_000).max(1);
        let used = |whole: Amount| {
            Amount::from_millionths((whole.millionths() / 1_000).saturating_mul(thousandths.into()))
        };
        let mut limit = Limit::clone(&self.limit);
        (limit.units, limit.burst) = (part(limit.units), part(limit.burst));
        match &self.bucket {
            Bucket::Fixed(fixed) => {
                let (spent, own) = (used(fixed.spent), used(fixed.own));
                let fixed = Fixed { spent, own, ..**fixed };
                Self::with_bucket(limit, Bucket::Fixed(Box::new(fixed)))
            }
            _ => {
                let mut part = Self::new(limit);
                part.spend(used(self.used(now)), now);
                part
            }
        }
    }

    /// Units in use, debt included.
    fn used(&self, now: Tick) -> Amount {
        match &self.bucket {
            Bucket::Gcra(tat) => self.rate.used(*tat, now),
            Bucket::Strict(_) | Bucket::Fixed(_) => self.whole().minus(self.remaining(now)),
        }
    }

    fn whole(&self) -> Amount {
        Amount::units(self.limit.units)
    }

    fn window(&self) -> u64 {
        self.limit.window.as_nanos()
    }
}
