//! What a granted caller holds.

use crate::desk::Job;
use crate::limiter::Inner;
use crate::meter::Event;
use crate::{Error, Limiter};
use paceline_core::headers::Detector;
use paceline_core::state::Receipt;
use paceline_core::{Amount, Cause, Cost, Dimension, Origin, Reading, Scope, Tick};
use paceline_store::{Grant, Key, Place, Tally};
use std::sync::Arc;
use std::time::Duration;

/// The right to send one request.
///
/// It is given back when dropped unsent: say [`sent`](Self::sent) once the request has left, or
/// hand in its answer with [`observe`](Self::observe).
#[derive(Debug)]
#[must_use = "a permit that is dropped unsent is given back"]
pub struct Permit {
    limiter: Arc<Inner>,
    grant: Grant,
    /// What was really spent, once that is known.
    settled: Option<Cost>,
    waited: Duration,
    waited_for: Option<Cause>,
    fate: Fate,
    /// What becomes of it is left at the desk: whoever holds it must not wait for the store.
    at_desk: bool,
    /// Whether its answer said what is left of anything but requests.
    is_told: bool,
    /// Whether it is for a further attempt of the same call.
    is_again: bool,
    /// Whether the attempt failed, but not for a limit.
    is_failed: bool,
}

/// What is known of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unsent,
    Sent,
    Over,
}

impl Permit {
    pub(crate) fn new(limiter: Arc<Inner>, grant: Grant, waited: Duration) -> Self {
        let (waited_for, fate) = (None, Fate::Unsent);
        Self {
            limiter,
            grant,
            settled: None,
            waited,
            waited_for,
            fate,
            at_desk: false,
            is_told: false,
            is_again: false,
            is_failed: false,
        }
    }

    pub(crate) fn waited_for(self, cause: Option<Cause>) -> Self {
        let mut permit = self;
        permit.waited_for = cause;
        permit
    }

    /// The same for a caller that must not wait for the store.
    pub(crate) fn through_desk(self) -> Self {
        let mut permit = self;
        permit.at_desk = true;
        permit
    }

    /// The request has left, or may have: its cost stands even if no answer comes.
    pub fn sent(&mut self) {
        if self.fate == Fate::Unsent {
            self.fate = Fate::Sent;
        }
    }

    /// It is for a further attempt of a call that was sent before: it is counted as such.
    pub const fn again(&mut self) {
        self.is_again = true;
    }

    /// The attempt came to nothing, and not for a limit: it is counted as such.
    pub const fn failed(&mut self) {
        self.is_failed = true;
    }

    /// Corrects the estimate to what was really spent, more or less; other dimensions stand.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a dimension or amount that is none.
    pub fn settle(&mut self, actual: &[(&str, f64)]) -> Result<(), Error> {
        let mut spent = self.cost().clone();
        for (dimension, amount) in actual {
            spent.set(Dimension::new(dimension)?, Amount::from_f64(*amount)?);
        }
        self.settle_to(&spent)
    }

    /// Corrects the estimate to exactly that.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn settle_to(&mut self, spent: &Cost) -> Result<(), Error> {
        self.sent();
        let receipt = Receipt::new(self.cost().clone(), self.grant.receipt.at);
        let grant = Grant::new(self.grant.place.clone(), receipt);
        self.settled = Some(spent.clone());
        if self.at_desk {
            self.leave_at_desk(Job::Settle(grant, spent.clone()));
            return Ok(());
        }
        Ok(self.limiter.settle(&grant, spent)?)
    }

    /// Takes over what the response asserted; see [`headers::detect`](crate::headers::detect).
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn observe(&mut self, reading: &Reading) -> Result<(), Error> {
        self.note(reading);
        self.fate = Fate::Over;
        self.is_told = reading.signals.iter().any(|it| it.dimension != Dimension::Requests);
        self.limiter.budget.answered();
        if self.at_desk {
            self.leave_at_desk(Job::Observe(self.grant.clone(), reading.clone()));
            return Ok(());
        }
        Ok(self.limiter.observe(&self.grant, reading)?)
    }

    /// The same for the response of a certain URL: a server with several buckets says in which of them it
    /// has counted the request, and that is where the answer is taken over.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn answered(&mut self, url: &str, reading: &Reading) -> Result<(), Error> {
        let is_told = reading.bucket.is_some() || !reading.signals.is_empty();
        let follows = is_told && (reading.bucket.is_some() || self.limiter.places.are_known());
        let left = if follows { self.follow(url, reading.bucket.as_deref())? } else { None };
        let observed = self.observe(reading);
        // Only now, when that is known there, may those go who waited for its answer.
        match left {
            Some(here) if self.at_desk => self.leave_at_desk(Job::GiveBack(here)),
            Some(here) => self.limiter.give_back(&here)?,
            None => {}
        }
        observed
    }

    /// Goes over to the bucket in which the server has counted the request, if that is another one. Gives
    /// what is to be given back where it was charged.
    fn follow(&mut self, url: &str, bucket: Option<&str>) -> Result<Option<Grant>, Error> {
        let charged = Scope::from_key(self.grant.key().as_str()).into_owned();
        let mut scope = Scope::parse(url)?;
        if let Some(account) = charged.account() {
            scope = scope.of_account(account)?;
        }
        let by_server = charged.depth() == 0 || charged.is_bucket();
        if scope.host() != charged.host() || !by_server {
            return Ok(None);
        }
        let counted = match bucket {
            Some(bucket) => scope.bucket_key(bucket),
            None => scope.host().to_owned(),
        };
        let is_there = counted == charged.key();
        // Where somebody has set a limit, that governs, whatever the server's buckets are. To look for
        // one is to copy a state, and most answers are counted where they were charged.
        if !is_there && self.is_configured(&charged) {
            return Ok(None);
        }
        self.limiter.places.learn(&scope, bucket);
        if is_there {
            return Ok(None);
        }
        let known = self.limiter.store.view(&Scope::from_key(&counted));
        let answered = known
            .filter(|(key, state, _)| key.as_str() == counted && *state.tally() != Cost::NOTHING);
        let Receipt { cost, at, .. } = self.grant.receipt.clone();
        let receipt = match answered {
            // It never flew there: nothing is in flight because of it, and nothing uncertain.
            Some((_, state, _)) => {
                Receipt { before: state.tally().clone(), ..Receipt::new(cost, Tick::ZERO) }
            }
            // What is learned there is kept from the first answer on, which this is.
            None => Receipt::new(cost, at),
        };
        let wider = std::mem::take(&mut self.grant.wider);
        let there = Grant { place: Place::Key(Key::new(&counted)), receipt, wider };
        Ok(Some(std::mem::replace(&mut self.grant, there)))
    }

    fn is_configured(&self, scope: &Scope<'_>) -> bool {
        let known = self.limiter.store.view(scope);
        known.is_some_and(|(_, state, now)| {
            let limits = state.status(now).limits;
            limits.iter().any(|level| level.limit.origin == Origin::Configured)
        })
    }

    /// The request is over, and its answer says nothing of limits: its cost stands, and may still be
    /// settled.
    pub fn close(&mut self) {
        if self.fate != Fate::Over {
            self.end(Fate::Sent);
        }
    }

    /// The request was never sent: everything comes back, also after it was closed.
    pub fn cancel(mut self) {
        match self.fate {
            // It is outstanding no more; what was spent is all there is to give back.
            Fate::Over => drop(self.settle_to(&Cost::NOTHING)),
            Fate::Unsent | Fate::Sent => self.end(Fate::Unsent),
        }
    }

    /// Whether a limit paces the scope that was charged, as far as this process knows; none does while
    /// the store is away.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        let store = &self.limiter.store;
        let known = || store.view(&Scope::from_key(self.grant.key().as_str()));
        !store.health().away && known().is_some_and(|(_, state, _)| state.has_limits())
    }

    /// Whether its answer said what is left of tokens, or of anything else but requests: then that has been
    /// taken over, and stands.
    #[must_use]
    pub const fn is_told_of_tokens(&self) -> bool {
        self.is_told
    }

    /// Whether to settle, observe or cancel it is a visit to a store that takes time.
    #[must_use]
    pub fn asks_slowly(&self) -> bool {
        self.limiter.is_slow && !self.at_desk
    }

    /// How long it was waited for.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// What it was waited for: the limit that bound last, or a hold; `None` when it was not waited for.
    #[must_use]
    pub const fn cause(&self) -> Option<&Cause> {
        self.waited_for.as_ref()
    }

    /// What reads responses for it.
    #[must_use]
    pub fn detector(&self) -> Arc<Detector> {
        self.limiter.detector.load_full()
    }

    /// What it counts for: the estimate, until it is settled.
    #[must_use]
    pub fn cost(&self) -> &Cost {
        self.settled.as_ref().unwrap_or(&self.grant.receipt.cost)
    }

    /// The scope that was charged, such as `https://api.example.com`.
    #[must_use]
    pub fn scope(&self) -> String {
        Limiter::display(self.grant.key())
    }

    /// Counts what became of the attempt; once, when it is over.
    #[inline]
    fn note(&self, reading: &Reading) {
        if self.fate == Fate::Over {
            return;
        }
        self.limiter.note(self.grant.key(), self.at_desk, || Event {
            tally: Tally {
                sent: 1,
                waited: self.waited,
                delayed: (!self.waited.is_zero()).into(),
                rejected: reading.rejected.into(),
                failed: (self.is_failed && !reading.rejected).into(),
                ..Tally::default()
            },
            spent: reading.spent,
            retried: self.is_again,
            held: reading.rejected && reading.retry_after.is_some(),
        });
    }

    fn leave_at_desk(&self, job: Job) {
        self.limiter.desk().post(&self.limiter, job);
    }

    fn end(&mut self, fate: Fate) {
        if fate == Fate::Sent {
            self.note(&Reading::default());
        }
        let ended = match fate {
            Fate::Unsent if self.at_desk => {
                self.leave_at_desk(Job::GiveBack(self.grant.clone()));
                Ok(())
            }
            Fate::Sent if self.at_desk => {
                self.leave_at_desk(Job::Close(self.grant.clone()));
                Ok(())
            }
            Fate::Unsent => self.limiter.give_back(&self.grant),
            Fate::Sent => self.limiter.close(&self.grant),
            Fate::Over => Ok(()),
        };
        // A store that is away forgets the grant by itself: nothing is lost that waiting would save.
        drop(ended);
        self.fate = Fate::Over;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(self.fate);
    }
}
