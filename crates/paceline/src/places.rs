//! What a limiter knows of where calls are counted: the server's own buckets, and accounts.

use crate::Error;
use paceline_core::{Limit, Routes, Scope};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// In most programs nothing of this is known, and then it costs one look at a flag.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Whether a server has named a bucket.
    routed: AtomicBool,
    routes: Mutex<Routes>,
    accounts: Mutex<Accounts>,
    /// Hosts, by their keys, whose documented limits were set.
    seeded: Mutex<BTreeSet<String>>,
}

/// A limit that was declared for an endpoint holds for each of its accounts.
#[derive(Debug, Default)]
struct Accounts {
    /// By the key of the host.
    declared: BTreeMap<String, Vec<(String, Limit)>>,
    open: BTreeMap<String, BTreeSet<String>>,
}

impl Places {
    /// Whether any server has named a bucket.
    #[inline]
    pub(crate) fn are_known(&self) -> bool {
        self.routed.load(Ordering::Acquire)
    }

    /// The scope, in the bucket in which the server is known to count it.
    pub(crate) fn route<'a>(&self, scope: Scope<'a>) -> Scope<'a> {
        if !self.are_known() {
            return scope;
        }
        match self.routes.lock().bucket(&scope) {
            Some(bucket) => scope.in_bucket(&bucket),
            None => scope,
        }
    }

    /// A response said in which bucket a scope is counted. Tells whether that was news.
    pub(crate) fn learn(&self, scope: &Scope<'_>, bucket: Option<&str>) -> bool {
        let mut routes = self.routes.lock();
        let news = routes.learn(scope, bucket);
        if news {
            self.routed.store(true, Ordering::Release);
        }
        news
    }

    /// A host is its own bucket, as far as nothing else is said of a path.
    pub(crate) fn is_home(&self, host: &Scope<'_>) {
        self.routes.lock().is_home(host);
        self.routed.store(true, Ordering::Release);
    }

    /// Whether a host is met for the first time, so that its documented limits have to be set.
    pub(crate) fn is_new(&self, host: &str) -> bool {
        let mut seeded = self.seeded.lock();
        !seeded.contains(host) && seeded.insert(host.to_owned())
    }

    /// A limit was declared for a scope: gives the accounts that have to follow it too.
    pub(crate) fn declare(&self, scope: &Scope<'_>, limit: &Limit) -> Vec<String> {
        let mut accounts = self.accounts.lock();
        let declared = accounts.declared.entry(scope.host().to_owned()).or_default();
        declared.retain(|(key, known)| {
            let (dimension, window) = (&known.dimension, known.window);
            key != scope.key() || *dimension != limit.dimension || window != limit.window
        });
        declared.push((scope.key().to_owned(), limit.clone()));
        accounts.open.get(scope.host()).into_iter().flatten().cloned().collect()
    }

    /// Sees to it that an account follows what was declared for the endpoint: whoever calls for it first
    /// declares all of that anew, and others wait until it is done.
    pub(crate) fn open_account(
        &self,
        scope: &Scope<'_>,
        account: &str,
        set_limit: impl Fn(&Scope<'_>, Limit) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut accounts = self.accounts.lock();
        if accounts.open.get(scope.host()).is_some_and(|open| open.contains(account)) {
            return Ok(());
        }
        for (key, limit) in accounts.declared.get(scope.host()).into_iter().flatten() {
            set_limit(&Scope::from_key(key).of_account(account)?, limit.clone())?;
        }
        accounts.open.entry(scope.host().to_owned()).or_default().insert(account.to_owned());
        Ok(())
    }

    /// Forgets what is known of a scope and those below it, or of all.
    pub(crate) fn forget(&self, scope: Option<&Scope<'_>>) {
        let mut accounts = self.accounts.lock();
        let Some(scope) = scope else {
            *accounts = Accounts::default();
            *self.routes.lock() = Routes::default();
            self.seeded.lock().clear();
            self.routed.store(false, Ordering::Release);
            return;
        };
        if let Some(declared) = accounts.declared.get_mut(scope.host()) {
            declared.retain(|(key, _)| !scope.covers(key));
        }
        // What is known of a host's paths is not known of one of them alone.
        if scope.key() == scope.host() {
            self.seeded.lock().remove(scope.host());
            let mut routes = self.routes.lock();
            routes.forget(scope.host());
            self.routed.store(!routes.is_empty(), Ordering::Release);
        }
    }
}
