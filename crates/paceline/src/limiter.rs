//! The limiter: scopes, a store, and a waiting line in front of each scope that is full.

use crate::bell::Bell;
use crate::books::{Age, Books};
use crate::budget::Budget;
use crate::builder::{Builder, Documented};
use crate::call::{Call, ONE};
use crate::desk::{Desk, Job};
use crate::endpoint::Endpoint;
use crate::error::{Error, Refused};
use crate::explain::Explanation;
use crate::line::{Line, Waiter};
use crate::long_wait::OnWait;
use crate::meter::{Event, Meter, Metrics};
use crate::permit::Permit;
use crate::places::Places;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use arc_swap::ArcSwap;
use paceline_core::headers::{Detector, Provider, profiles};
use paceline_core::{Cost, Limit, Origin, Reading, Scope, Status, Verdict, Wait};
use paceline_store::{
    Admission, Clock, Day, Grant, Health, Key, PerProcess, Store, StoreError, Tally,
};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Paces calls; cheap to clone, and clones share everything.
#[derive(Debug, Clone)]
pub struct Limiter {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) places: Places,
    pub(crate) budget: Budget,
    /// What reads responses.
    pub(crate) detector: ArcSwap<Detector>,
    documented: Documented,
    lines: Mutex<HashMap<Key, Arc<Line>>>,
    /// Whether asking the store takes time.
    pub(crate) is_slow: bool,
    desk: PerProcess<Desk>,
    /// A child that forks has nothing of it to tell.
    books: PerProcess<Books>,
    /// Everybody in every line: while it is zero, nobody has to look for one.
    pub(crate) waiting: AtomicUsize,
    /// Only there once somebody wants to know.
    meter: OnceLock<Meter>,
    /// Who is told of long waits.
    pub(crate) on_wait: OnWait,
}

/// The first answer to a call.
#[derive(Debug)]
pub enum Entry {
    /// It may be sent.
    Admitted(Permit),
    /// It stands in line.
    Queued(Waiter),
}

impl Limiter {
    /// Settings to start from.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A limiter on any store; `clock` times the waits of this process.
    pub fn on(store: Arc<dyn Store>, clock: Clock, max_wait: Option<Duration>) -> Self {
        Self::make(
            store,
            clock,
            max_wait,
            Detector::default(),
            Documented::default(),
            OnWait::default(),
        )
    }

    pub(crate) fn make(
        store: Arc<dyn Store>,
        clock: Clock,
        max_wait: Option<Duration>,
        detector: Detector,
        documented: Documented,
        on_wait: OnWait,
    ) -> Self {
        let inner = Inner {
            is_slow: store.is_slow(),
            store,
            clock,
            max_wait,
            places: Places::default(),
            budget: Budget::default(),
            detector: ArcSwap::from_pointee(detector),
            documented,
            lines: Mutex::new(HashMap::new()),
            desk: PerProcess::default(),
            books: PerProcess::default(),
            waiting: AtomicUsize::new(0),
            meter: OnceLock::new(),
            on_wait,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The same for callers that must not wait for a store, such as event loops: where asking takes
    /// time, the call is left at a desk, and the bell rings when it is decided.
    ///
    /// # Errors
    /// [`Error::Refused`] when the wait would be longer than allowed, and nothing was charged;
    /// [`Error::Invalid`] for an endpoint that is none.
    #[inline]
    pub fn enter_from_loop(
        &self,
        call: &Call<'_>,
        bell: impl FnOnce() -> Arc<dyn Bell>,
    ) -> Result<Entry, Error> {
        if !self.inner.is_slow {
            return self.enter(call, bell);
        }
        let scope = self.inner.scope(call)?.into_owned();
        let max_wait = call.max_wait.or(self.inner.max_wait);
        let desk = self.inner.desk();
        let place = desk.enter(self, scope, call.cost.clone(), max_wait, bell());
        Ok(Entry::Queued(Waiter::at_desk(self, place)))
    }

    /// Admits a call, or puts it in line behind those who came before. `bell` makes the means to
    /// wake it, and is only called in the second case.
    ///
    /// This is the one step beneath every way to wait; [`acquire`](Self::acquire) and
    /// [`acquire_blocking`](Self::acquire_blocking) drive it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the wait would be longer than allowed, and nothing was charged;
    /// [`Error::Invalid`] for an endpoint that is none.
    #[inline]
    pub fn enter(
        &self,
        call: &Call<'_>,
        bell: impl FnOnce() -> Arc<dyn Bell>,
    ) -> Result<Entry, Error> {
        if let Some(permit) = self.at_once(call) {
            return Ok(Entry::Admitted(permit));
        }
        let scope = self.inner.scope(call)?;
        let max_wait = call.max_wait.or(self.inner.max_wait);
        let line = match self.inner.line_before(&scope) {
            Some(line) => line,
            None => match self.inner.store.admit(&scope, &call.cost)? {
                Admission::Granted(grant) => {
                    return Ok(Entry::Admitted(self.permit(grant, Duration::ZERO)));
                }
                Admission::Wait(key, wait) if wait.is_beyond(max_wait) => {
                    return Err(self.inner.refuse(&key, wait).into());
                }
                Admission::Wait(key, _) => self.inner.line(&key),
            },
        };
        let waiter = Waiter::join(self, line, scope, call.cost.clone(), max_wait, bell())?;
        Ok(Entry::Queued(waiter))
    }

    /// The usual case, without reading the endpoint: it is the key of a scope, there is room, and
    /// nobody waits anywhere.
    #[inline]
    fn at_once(&self, call: &Call<'_>) -> Option<Permit> {
        if self.inner.waiting.load(Ordering::Acquire) > 0
            || call.account.is_some()
            || self.inner.places.are_known()
        {
            return None;
        }
        let grant = self.inner.store.admit_known(call.endpoint, &call.cost)?;
        Some(self.permit(grant, Duration::ZERO))
    }

    /// A permit if there is room at once and nobody is waiting for it; `None` otherwise.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn try_acquire<'a>(&self, call: impl Into<Call<'a>>) -> Result<Option<Permit>, Error> {
        match self.acquire_now(call) {
            Ok(permit) => Ok(Some(permit)),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A permit if there is room at once; otherwise the error that says when there will be.
    ///
    /// # Errors
    /// [`Error::Refused`] without waiting, [`Error::Invalid`] for an endpoint that is none.
    pub fn acquire_now<'a>(&self, call: impl Into<Call<'a>>) -> Result<Permit, Error> {
        let call = call.into();
        if let Some(permit) = self.at_once(&call) {
            return Ok(permit);
        }
        let scope = self.inner.scope(&call)?;
        if let Some(line) = self.inner.line_before(&scope)
            && let Some(wait) = line.forecast(&self.inner, &scope, &call.cost)
        {
            return Err(self.inner.refuse(line.key(), wait).into());
        }
        match self.inner.store.admit(&scope, &call.cost)? {
            Admission::Granted(grant) => Ok(self.permit(grant, Duration::ZERO)),
            Admission::Wait(key, wait) => Err(self.inner.refuse(&key, wait).into()),
        }
    }

    /// One decision without a permit: charges the request if there is room, and forgets about it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    #[inline]
    pub fn check(&self, endpoint: &str) -> Result<Verdict, Error> {
        if let Some(verdict) = self.inner.store.charge_known(endpoint, &ONE) {
            return Ok(verdict);
        }
        Ok(self.inner.store.charge(&Scope::parse(endpoint)?, &ONE)?)
    }

    /// An endpoint resolved once, for programs that call the same one all the time.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn endpoint(&self, endpoint: &str) -> Result<Endpoint, Error> {
        let scope = Scope::parse(endpoint)?.into_owned();
        Ok(Endpoint::resolve(Arc::clone(&self.inner.store), scope))
    }

    /// How long a call would have to wait, those in line included; zero when it could go now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn wait_time<'a>(&self, call: impl Into<Call<'a>>) -> Result<Duration, Error> {
        Ok(self.wait(call)?.map_or(Duration::ZERO, |wait| wait.after))
    }

    /// How long a call would have to wait and what for; `None` when it could go now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn wait<'a>(&self, call: impl Into<Call<'a>>) -> Result<Option<Wait>, Error> {
        let call = call.into();
        let scope = self.inner.scope(&call)?;
        match self.inner.line_before(&scope) {
            Some(line) => Ok(line.forecast(&self.inner, &scope, &call.cost)),
            None => Ok(self.inner.store.wait(&scope, &call.cost)?),
        }
    }

    /// Declares a limit for an endpoint and all below it. The same dimension and window replaces a
    /// limit and keeps what was used of it; another window adds a second limit.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn set_limit(&self, endpoint: &str, limit: Limit) -> Result<(), Error> {
        let scope = Scope::parse_shown(endpoint)?;
        self.inner.store.set_limit(&scope, limit.clone())?;
        for account in self.inner.places.declare(&scope, &limit) {
            self.inner.store.set_limit(&scope.clone().of_account(&account)?, limit.clone())?;
        }
        self.inner.nudge_all();
        Ok(())
    }

    /// Forgets an endpoint and everything below it, or everything: limits, levels, holds and what
    /// was learned. Tells how many scopes there were.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn clear(&self, endpoint: Option<&str>) -> Result<usize, Error> {
        let scope = endpoint.map(Scope::parse_shown).transpose()?;
        self.inner.places.forget(scope.as_ref());
        let cleared = self.inner.store.clear(scope.as_ref())?;
        self.inner.nudge_all();
        Ok(cleared)
    }

    /// The scope that governs an endpoint and its state; `None` where nothing is known. A bare host
    /// finds what plain `http` taught. A host that itself has no limit, because its server counts in
    /// buckets of its own, shows the one of them that is the closest to its end.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn status(&self, endpoint: &str) -> Result<Option<(String, Status)>, Error> {
        let scope = Scope::parse_shown(endpoint)?;
        self.inner.seed(&scope)?;
        if let Some(known) = self.known(scope.clone())? {
            return Ok(Some(known));
        }
        match scope.over_http().filter(|_| !endpoint.contains("://")) {
            Some(http) => self.known(http),
            None => Ok(None),
        }
    }

    fn known(&self, scope: Scope<'_>) -> Result<Option<(String, Status)>, Error> {
        let counted = self.inner.places.route(scope.clone());
        if scope.key() != scope.host() {
            return self.shown(&counted);
        }
        let is_home = counted == scope;
        let own = if is_home { self.shown(&scope)? } else { None };
        let known = if own.is_none() { self.tightest_bucket(&scope)? } else { own };
        if known.is_none() && !is_home { self.shown(&scope) } else { Ok(known) }
    }

    fn shown(&self, scope: &Scope<'_>) -> Result<Option<(String, Status)>, Error> {
        let found = self.inner.store.snapshot(scope)?;
        let known = found.map(|(key, state, now)| (Self::display(&key), state.status(now)));
        // That somebody goes first there is nothing to tell.
        Ok(known.filter(|(_, status)| !status.limits.is_empty() || !status.hold.is_zero()))
    }

    /// Knows an API of the user's from now on: which headers of its responses state which limits.
    ///
    /// ```
    /// use paceline::headers::{HeadersMap, Provider, Quota};
    /// use paceline::{Limiter, Window};
    ///
    /// let limiter = Limiter::builder().build();
    /// let headers = HeadersMap {
    ///     limit: Some("X-Calls-Allowed".parse()?),
    ///     remaining: Some("X-Calls-Left".parse()?),
    ///     ..HeadersMap::default()
    /// };
    /// let quota = Quota { headers, window: Some(Window::MINUTE), ..Quota::default() };
    /// limiter.register_provider(Provider {
    ///     hosts: vec!["*.example.com".into()],
    ///     quotas: vec![quota],
    /// });
    /// # Ok::<(), paceline::Error>(())
    /// ```
    pub fn register_provider(&self, provider: Provider) {
        self.inner.detector.rcu(|known| Detector::clone(known).provider(provider.clone()));
    }

    /// What reads responses: the built-in families and profiles, and what the user added.
    #[must_use]
    pub fn detector(&self) -> Arc<Detector> {
        self.inner.detector.load_full()
    }

    /// Whether one more retry is within the budget of [`RetryConfig`](crate::retry::RetryConfig), given
    /// in thousandths of all that was answered; if so, it is taken.
    #[must_use]
    pub fn may_retry(&self, thousandths: u16) -> bool {
        self.inner.budget.retry(thousandths.into())
    }

    /// Of the buckets that a server was heard to name, perhaps by another process, the one from which
    /// the least can be had.
    fn tightest_bucket(&self, host: &Scope<'_>) -> Result<Option<(String, Status)>, Error> {
        let mut tightest: Option<(String, Status)> = None;
        for key in self.inner.store.keys()? {
            let bucket = Scope::from_key(key.as_str());
            if !bucket.is_bucket() || bucket.host() != host.host() {
                continue;
            }
            if let Some(known) = self.shown(&bucket)?
                && tightest.as_ref().is_none_or(|(_, other)| known.1.is_tighter_than(other))
            {
                tightest = Some(known);
            }
        }
        Ok(tightest)
    }

    /// Which limits a call to `endpoint` meets, and why those.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an endpoint that is none.
    pub fn explain(&self, endpoint: &str) -> Result<Explanation, Error> {
        let scope = Scope::parse_shown(endpoint)?;
        self.inner.seed(&scope)?;
        let scope = self.inner.places.route(scope);
        Explanation::of(&*self.inner.store, &scope)
    }

    /// Every scope about which something is known, such as `https://api.example.com/search`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn endpoints(&self) -> Result<Vec<String>, Error> {
        Ok(self.inner.store.keys()?.iter().map(Self::display).collect())
    }

    /// Counts what became of calls in a scope, named as it is shown, such as `openai:gpt-4o`: the store
    /// keeps the sums of each day. What is counted waits in this process for a second or so, and then
    /// one visit, made by whoever counts next, hands in all of it; [`flush`](Self::flush) does so at
    /// once. Stores in memory are told at once.
    ///
    /// ```
    /// use paceline::{Limiter, Tally};
    ///
    /// let limiter = Limiter::builder().build();
    /// let spent = Tally { sent: 1, input_tokens: 900, micro_usd: 2_250, ..Tally::default() };
    /// limiter.count("openai:gpt-4o", spent);
    /// limiter.count("openai:gpt-4o", spent);
    ///
    /// let usage = limiter.usage()?;
    /// let (scope, _today, tally) = &usage[0];
    /// assert_eq!((scope.as_str(), tally.sent, tally.micro_usd), ("openai:gpt-4o", 2, 4_500));
    /// # Ok::<(), paceline::Error>(())
    /// ```
    pub fn count(&self, scope: &str, tally: Tally) {
        if self.inner.count(scope, &tally) == Age::Due {
            let (inner, now) = (&self.inner, self.inner.clock.now());
            inner.books().tell_if_due(&*inner.store, now);
        }
    }

    /// The same for callers that must not wait for a store, such as event loops.
    pub fn count_from_loop(&self, scope: &str, tally: Tally) {
        if self.inner.count(scope, &tally) != Age::Young {
            self.inner.desk().post(&self.inner, Job::Count);
        }
    }

    /// What became of calls, by day and then by scope: all that processes which share the store have
    /// counted in the last 35 days, and this one until now. Visits the store.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn usage(&self) -> Result<Vec<(String, Day, Tally)>, Error> {
        // A store that cannot be told cannot be asked either, and then says why.
        drop(self.inner.tell_books());
        let books = self.inner.store.tallies()?.into_iter();
        Ok(books.map(|(scope, day, tally)| (scope.as_str().to_owned(), day, tally)).collect())
    }

    /// Begins to measure what becomes of calls, for [`metrics`](Self::metrics) and, with the feature
    /// `metrics`, for the facade of that name. Before, nothing of it is done.
    pub fn measure(&self) {
        self.inner.meter.get_or_init(Meter::default);
    }

    /// What was measured in this process; nothing before [`measure`](Self::measure). It does not visit the
    /// store.
    ///
    /// ```
    /// use paceline::Limiter;
    ///
    /// let limiter = Limiter::builder().build();
    /// limiter.measure();
    /// limiter.acquire_blocking("api.example.com")?.sent();
    /// let metrics = limiter.metrics();
    /// assert_eq!(metrics.scopes[0].scope, "https://api.example.com");
    /// assert_eq!(metrics.scopes[0].tally.sent, 1);
    /// # Ok::<(), paceline::Error>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let inner = &self.inner;
        let mut scopes = inner.meter.get().map(Meter::read).unwrap_or_default();
        for metrics in &mut scopes {
            let Ok(scope) = Scope::parse(&metrics.scope) else { continue };
            if let Some((_, state, now)) = inner.store.view(&scope) {
                let status = state.status(now);
                (metrics.limits, metrics.hold) = (status.limits, status.hold);
            }
        }
        Metrics { scopes, waiting: self.waiting() as u64, store: self.health() }
    }

    /// Whether asking the store takes time, so that an event loop must not do it itself.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.inner.is_slow
    }

    /// How the store is doing.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.store.health()
    }

    /// Waits until the store was told everything that became of calls, for two seconds at most. That
    /// happens by itself soon, but not after a program has ended.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn flush(&self) -> Result<(), Error> {
        let counted = self.inner.tell_books();
        if let Some(desk) = self.inner.desk.mine() {
            desk.drain();
        }
        self.inner.store.flush()?;
        Ok(counted?)
    }

    /// How many callers of this process wait, in all scopes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Acquire)
    }

    pub(crate) fn permit(&self, grant: Grant, waited: Duration) -> Permit {
        Permit::new(Arc::clone(&self.inner), grant, waited)
    }

    pub(crate) fn display(key: &Key) -> String {
        Scope::from_key(key.as_str()).to_string()
    }
}

impl Inner {
    /// The scope of a call: of its account, and in the bucket in which the server counts it.
    #[inline]
    pub(crate) fn scope<'a>(&self, call: &Call<'a>) -> Result<Scope<'a>, Error> {
        let scope = Scope::parse(call.endpoint)?;
        match call.account {
            None => self.seed(&scope)?,
            Some(account) => return self.of_account(&scope, account),
        }
        Ok(self.places.route(scope))
    }

    /// Sets what a host documents of its limits, when it is met for the first time.
    #[inline]
    fn seed(&self, scope: &Scope<'_>) -> Result<(), Error> {
        let (name, authenticated) = match self.documented {
            Documented::Ignored => return Ok(()),
            Documented::Anonymous => (scope.host_name(), false),
            Documented::Authenticated => (scope.host_name(), true),
        };
        let seeds = profiles::seeds(name, authenticated);
        if seeds.is_empty() || !self.places.is_new(scope.host()) {
            return Ok(());
        }
        let host = Scope::from_key(scope.host());
        self.places.is_home(&host);
        for (path, limit) in seeds {
            let limit = Limit { origin: Origin::Registry, ..Limit::parse(limit)? };
            // What is below a path is counted in the server's bucket of that name.
            let Some(bucket) = path.strip_prefix('/') else {
                self.store.set_limit(&host, limit)?;
                continue;
            };
            self.places.learn(&Scope::from_key(&format!("{}{path}", scope.host())), Some(bucket));
            self.store.set_limit(&Scope::from_key(&host.bucket_key(bucket)), limit)?;
        }
        Ok(())
    }

    #[cold]
    fn of_account<'a>(&self, scope: &Scope<'_>, account: &str) -> Result<Scope<'a>, Error> {
        let set_limit =
            |scope: &Scope<'_>, limit| Ok::<_, Error>(self.store.set_limit(scope, limit)?);
        self.places.open_account(scope, account, set_limit)?;
        let scope = scope.clone().of_account(account)?;
        self.seed(&scope)?;
        Ok(self.places.route(scope))
    }

    /// The line in which somebody waits for the scope that governs `scope`: nobody overtakes
    /// (rule 18).
    #[inline]
    pub(crate) fn line_before(&self, scope: &Scope<'_>) -> Option<Arc<Line>> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (key, ..) = self.store.view(scope)?;
        self.existing_line(&key)
    }

    /// Where callers that must not wait leave what they want.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        self.desk.get_or_default()
    }

    pub(crate) fn books(&self) -> Arc<Books> {
        self.books.get_or_default()
    }

    fn count(&self, scope: &str, tally: &Tally) -> Age {
        if let Some(meter) = self.meter.get() {
            meter.add(scope, &(*tally).into());
        }
        if self.is_slow {
            return self.books().add(scope, tally, self.clock.now());
        }
        // There is nothing to save, and a store that failed here would have nobody to keep it.
        drop(self.store.count(&[(Key::new(scope), *tally)]));
        Age::Young
    }

    /// Whether anybody wants to know what becomes of calls there: in a store that many share somebody may
    /// look at any time, in this process somebody who measures. Calls of models are counted by whoever
    /// guards them, with what they spent.
    #[inline]
    fn is_counted(&self, key: &Key) -> bool {
        let is_of_use = self.is_slow || self.meter.get().is_some();
        is_of_use && !Scope::from_key(key.as_str()).is_model()
    }

    /// Counts an event, if that is of use.
    #[inline]
    pub(crate) fn note(self: &Arc<Self>, key: &Key, at_desk: bool, event: impl FnOnce() -> Event) {
        if !self.is_counted(key) {
            return;
        }
        let age = self.record(key, &event());
        if at_desk && age != Age::Young {
            self.desk().post(self, Job::Count);
        } else if age == Age::Due {
            self.books().tell_if_due(&*self.store, self.clock.now());
        }
    }

    fn record(&self, key: &Key, event: &Event) -> Age {
        if let Some(meter) = self.meter.get() {
            meter.add(key.as_str(), event);
        }
        match self.is_slow {
            true => self.books().add(&Limiter::display(key), &event.tally, self.clock.now()),
            false => Age::Young,
        }
    }

    /// The error of a call that may not wait for so long.
    pub(crate) fn refuse(&self, key: &Key, wait: Wait) -> Refused {
        if self.is_counted(key) {
            // Whoever is refused may hold a lock: those who come next tell the store.
            self.record(key, &Tally { refused: 1, ..Tally::default() }.into());
        }
        Refused { scope: Limiter::display(key), by: wait.by, retry_after: wait.after }
    }

    /// Hands in what was counted.
    fn tell_books(&self) -> Result<(), StoreError> {
        self.books.mine().map_or(Ok(()), |books| books.tell(&*self.store))
    }

    fn existing_line(&self, key: &Key) -> Option<Arc<Line>> {
        let lines = self.lines.lock();
        lines.get(key).filter(|line| line.is_ours() && !line.is_empty()).map(Arc::clone)
    }

    pub(crate) fn line(&self, key: &Key) -> Arc<Line> {
        let mut lines = self.lines.lock();
        let fresh = || Arc::new(Line::new(key.clone()));
        let line = lines.entry(key.clone()).or_insert_with(fresh);
        if !line.is_ours() {
            *line = fresh();
        }
        Arc::clone(line)
    }

    /// Forgets a line in which nobody waits any more.
    pub(crate) fn leave(&self, line: &Arc<Line>) {
        let mut lines = self.lines.lock();
        // One count is the table's, one the caller's: nobody else is about to join.
        if line.is_empty() && Arc::strong_count(line) == 2 {
            lines.remove(line.key());
        }
    }

    pub(crate) fn close(&self, grant: &Grant) -> Result<(), StoreError> {
        if self.store.close(grant)? {
            self.nudge_for(grant);
        }
        Ok(())
    }

    pub(crate) fn observe(&self, grant: &Grant, reading: &Reading) -> Result<(), StoreError> {
        if self.store.observe(grant, reading)? {
            self.nudge_for(grant);
        }
        Ok(())
    }

    pub(crate) fn settle(&self, grant: &Grant, spent: &Cost) -> Result<(), StoreError> {
        self.store.settle(grant, spent)?;
        self.nudge_for(grant);
        Ok(())
    }

    pub(crate) fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        self.store.give_back(grant)?;
        self.nudge_for(grant);
        Ok(())
    }

    /// Something changed wherever that was charged.
    #[inline]
    pub(crate) fn nudge_for(&self, grant: &Grant) {
        self.nudge(grant.key());
        grant.wider.iter().for_each(|wider| self.nudge(wider.key()));
    }

    /// Something changed in a scope: whoever waits there plans anew.
    #[inline]
    pub(crate) fn nudge(&self, key: &Key) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        if self.places.are_known() {
            // Who waits for one of a server's buckets may stand in the line of another, or of the host.
            let host = Scope::from_key(key.as_str()).host().to_owned();
            return self.nudge_where(|line| Scope::from_key(line.as_str()).host() == host);
        }
        let line = self.lines.lock().get(key).filter(|line| line.is_ours()).map(Arc::clone);
        if let Some(line) = line {
            line.replan(self);
            self.leave(&line);
        }
    }

    fn nudge_all(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.nudge_where(|_| true);
        }
    }

    fn nudge_where(&self, goes: impl Fn(&Key) -> bool) {
        let lines = self.lines.lock();
        let ours = lines.iter().filter(|(key, line)| line.is_ours() && goes(key));
        let ours: Vec<_> = ours.map(|(_, line)| Arc::clone(line)).collect();
        drop(lines);
        for line in ours {
            line.replan(self);
            self.leave(&line);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match self.desk.mine() {
            Some(desk) => desk.close(),
            // What it kept back is lost if it is away: by then that no longer matters.
            None => {
                drop(self.tell_books());
                drop(self.store.flush());
            }
        }
    }
}
