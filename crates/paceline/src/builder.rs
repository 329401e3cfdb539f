//! The settings of a limiter, and how it comes to its store.

use crate::error::Error;
use crate::long_wait::{LongWait, OnWait};
use crate::{Config, Limiter};
use paceline_core::headers::{Detector, HeadersMap, Provider};
use paceline_core::{Limit, Policy};
#[cfg(feature = "redis")]
use paceline_store::Redis;
#[cfg(feature = "sqlite")]
use paceline_store::Sqlite;
use paceline_store::{
    BadStorage, Clock, FailSafe, Memory, Nested, Notice, OnFailure, Storage, Store,
};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a new [`Limiter`].
#[derive(Default)]
pub struct Builder {
    policy: Policy,
    clock: Option<Clock>,
    max_wait: Option<Duration>,
    on_failure: OnFailure,
    timeout: Option<Duration>,
    also_parents: bool,
    detector: Detector,
    documented: Documented,
    lease: Option<Duration>,
    notify: Option<Notify>,
    on_wait: OnWait,
}

/// Whose documented limits are used before a response tells the real ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Documented {
    /// Those of calls without credentials.
    #[default]
    Anonymous,
    /// Those of calls with credentials.
    Authenticated,
    /// None.
    Ignored,
}

type Notify = Box<dyn Fn(Notice) + Send + Sync>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Builder {
    /// Limits of every host that has none of its own, until a response says otherwise.
    #[must_use]
    pub fn default_limits(mut self, limits: impl IntoIterator<Item = Limit>) -> Self {
        self.policy.set_default_limits(limits);
        self
    }

    /// In a scope of which nothing is known, one request goes ahead and the others follow its
    /// answer.
    #[must_use]
    pub const fn learn_first(mut self, yes: bool) -> Self {
        self.policy.learn_first = yes;
        self
    }

    /// Where a server says nothing of its limits, searches for the rate that it allows: starts slowly,
    /// rises while requests pass, and falls back a little when one is refused. What was found is kept
    /// in the store.
    #[must_use]
    pub const fn adaptive(mut self, yes: bool) -> Self {
        self.policy.adaptive = yes;
        self
    }

    /// The longest wait that a server can impose at once; 60 seconds unless set.
    #[must_use]
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.policy.max_hold = max_hold;
        self
    }

    /// The longest wait of a call that does not say otherwise; for ever unless set.
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Another clock, for tests and simulations.
    #[must_use]
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// What to do while a store is away: let calls through, unless set.
    #[must_use]
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How long one visit to a server may take; 250 milliseconds unless set.
    #[must_use]
    pub const fn store_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Takes small parts of a limit in Redis at once, to be used within `span` without asking again: many
    /// requests then cost one round trip. All processes together still never exceed the limit; what a
    /// process that dies has not used is back after the span. For calls that spend one request and
    /// nothing else.
    #[must_use]
    pub const fn lease(mut self, span: Duration) -> Self {
        self.lease = Some(span);
        self
    }

    /// Reads these headers of any host, too.
    #[must_use]
    pub fn headers_map(mut self, map: HeadersMap) -> Self {
        self.detector = self.detector.map(map);
        self
    }

    /// Knows an API of the user's, too; see [`Limiter::register_provider`].
    #[must_use]
    pub fn provider(mut self, provider: Provider) -> Self {
        self.detector = self.detector.provider(provider);
        self
    }

    /// Calls carry credentials: hosts that document other limits for those are taken at these.
    #[must_use]
    pub const fn authenticated(mut self) -> Self {
        self.documented = Documented::Authenticated;
        self
    }

    /// Uses nothing of what is built in about single hosts: neither how to read them nor what they
    /// document of their limits.
    #[must_use]
    pub fn without_host_profiles(mut self) -> Self {
        self.detector = self.detector.host_profiles(false);
        self.documented = Documented::Ignored;
        self
    }

    /// Charges a request in every scope with a limit that it belongs to, not only in the narrowest: all
    /// of them or none.
    #[must_use]
    pub const fn also_parents(mut self, yes: bool) -> Self {
        self.also_parents = yes;
        self
    }

    /// Who is told when a store goes away and when it is back; unless set, it becomes a `tracing`
    /// event.
    #[must_use]
    pub fn notify(mut self, notify: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        self.notify = Some(Box::new(notify));
        self
    }

    /// The settings of a configuration, but for its storage and the limits of its scopes: see
    /// [`Config::open`](crate::Config::open).
    #[must_use]
    pub fn config(mut self, config: &Config) -> Self {
        self.policy.set_default_limits(config.default_limits.clone());
        self.policy.learn_first = config.learn_first;
        self.policy.adaptive = config.adaptive;
        if let Some(retry) = &config.retry {
            self.policy.max_hold = retry.max_delay;
        }
        self.max_wait = config.max_wait;
        self.on_failure = config.on_failure;
        self.also_parents = config.also_parents;
        self.lease = config.lease;
        self.headers_map(config.headers_map.clone())
    }

    /// Tells of calls that wait for longer than a second, once for all that wait in a scope meanwhile; an
    /// event of `tracing`, unless set. It is called by whoever waits, and must not wait itself.
    #[must_use]
    pub fn on_wait(mut self, tell: impl Fn(&LongWait) + Send + Sync + 'static) -> Self {
        self.on_wait = OnWait(Some(Arc::new(tell)));
        self
    }

    /// The limiter, keeping its state where `storage` says, such as `memory`, `sqlite:///limits.db` or
    /// `redis://localhost`: see [`Storage`].
    ///
    /// # Errors
    /// [`Error::Storage`] for a string that makes no sense; [`Error::Unavailable`] when the store
    /// cannot be reached and calls are not let through without it.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("paceline-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let file = folder.join("limits.db");
    /// use paceline::{Limit, Limiter};
    ///
    /// let storage = format!("sqlite:///{}", file.display());
    /// let limiter = Limiter::builder().open(&storage)?;
    /// limiter.set_limit("api.example.com", Limit::parse("1/1h")?)?;
    /// limiter.acquire_blocking("api.example.com")?.sent();
    ///
    /// // Every other process that opens it follows the same limit.
    /// let other = Limiter::builder().open(&storage)?;
    /// assert!(other.try_acquire("api.example.com")?.is_none());
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(self, storage: &str) -> Result<Limiter, Error> {
        let place = storage.parse::<Storage>()?;
        let clock = self.clock.clone().unwrap_or_default();
        if self.lease.is_some() && !place.takes_leases() {
            return Err(BadStorage::because(storage, "a lease goes with Redis").into());
        }
        let policy = self.policy.clone();
        let store: Arc<dyn Store> = match place {
            #[cfg(feature = "sqlite")]
            Storage::Sqlite(path) => Arc::new(Sqlite::with_clock(&path, policy, clock.clone())),
            #[cfg(feature = "redis")]
            Storage::Redis(server) => {
                let timeout = self.timeout.unwrap_or(Redis::TIMEOUT);
                let redis = Redis::with_clock(server, policy, timeout, clock.clone());
                match self.lease {
                    Some(span) => Arc::new(redis.leasing(span)),
                    None => Arc::new(redis),
                }
            }
            _ => Arc::new(Memory::with_clock(policy, clock.clone())),
        };
        if !store.is_slow() {
            return Ok(self.on(store, clock));
        }
        let (detector, documented, on_wait) = (self.detector, self.documented, self.on_wait);
        let tell = self.notify.unwrap_or_else(|| Box::new(|notice| tracing::warn!("{notice}")));
        let safe = FailSafe::new(store, self.policy, self.on_failure, clock.clone(), tell);
        safe.probe()?;
        let store = nested(Arc::new(safe), self.also_parents);
        Ok(Limiter::make(store, clock, self.max_wait, detector, documented, on_wait))
    }

    /// The limiter, keeping its state in this process.
    #[must_use]
    pub fn build(self) -> Limiter {
        let clock = self.clock.clone().unwrap_or_default();
        let store = Arc::new(Memory::with_clock(self.policy.clone(), clock.clone()));
        self.on(store, clock)
    }

    fn on(self, store: Arc<dyn Store>, clock: Clock) -> Limiter {
        let store = nested(store, self.also_parents);
        let Self { detector, documented, on_wait, .. } = self;
        Limiter::make(store, clock, self.max_wait, detector, documented, on_wait)
    }
}

fn nested(store: Arc<dyn Store>, also_parents: bool) -> Arc<dyn Store> {
    if also_parents { Arc::new(Nested::new(store)) } else { store }
}
