//! What belongs to one process: connections, and whatever was in the middle of something.

use arc_swap::{ArcSwap, ArcSwapOption};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

/// A value that is made anew in a forked child.
///
/// A connection that a fork inherits is still its parent's, and a lock that another thread held at the
/// fork stays locked for ever; so a child never touches them, not even to drop them.
#[derive(Debug)]
pub struct PerProcess<T>(ArcSwapOption<(u32, Arc<T>)>);

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> PerProcess<T> {
    /// This process's value, if it has one.
    #[must_use]
    pub fn mine(&self) -> Option<Arc<T>> {
        Self::mine_of(self.0.load().as_deref())
    }

    fn mine_of(known: Option<&(u32, Arc<T>)>) -> Option<Arc<T>> {
        let (process, value) = known?;
        (*process == std::process::id()).then(|| Arc::clone(value))
    }

    /// This process's value; made by `fresh` if it has none yet.
    pub fn get(&self, fresh: impl FnOnce() -> T) -> Arc<T> {
        // Looked at once: what another thread puts there from now on is not replaced.
        let seen = self.0.load();
        if let Some(mine) = Self::mine_of(seen.as_deref()) {
            return mine;
        }
        let made = Arc::new((std::process::id(), Arc::new(fresh())));
        // Two threads may have made one at the same time: the first one counts.
        let before = self.0.compare_and_swap(&*seen, Some(Arc::clone(&made)));
        if let Some(mine) = Self::mine_of(before.as_deref()) {
            return mine;
        }
        std::mem::forget(before.as_ref().map(Arc::clone));
        Arc::clone(&made.1)
    }

    /// This process's value; the default one if it has none yet.
    pub fn get_or_default(&self) -> Arc<T>
    where
        T: Default,
    {
        self.get(T::default)
    }
}

/// What must not be open while a process forks.
///
/// SQLite keeps what it knows of locks in memory that a child inherits. A child of a process that has a
/// file open believes that it holds the locks of its parent, and then two write at the same time.
pub(crate) trait Close: Send + Sync {
    /// Closes it; it is opened again when it is next used.
    fn close(&self);
}

static FORKING: AtomicBool = AtomicBool::new(false);
static VISITS: AtomicUsize = AtomicUsize::new(0);
/// Not behind a lock: another thread might hold it at the fork.
static CLOSED_AT_FORKS: LazyLock<ArcSwap<Vec<Weak<dyn Close>>>> = LazyLock::new(ArcSwap::default);

/// A visit during which this process does not fork.
#[cfg(feature = "sqlite")]
pub(crate) struct Visit(());

#[cfg(feature = "sqlite")]
impl Visit {
    /// Waits until no thread is about to fork.
    pub(crate) fn begin() -> Self {
        loop {
            VISITS.fetch_add(1, Ordering::SeqCst);
            if !FORKING.load(Ordering::SeqCst) {
                return Self(());
            }
            VISITS.fetch_sub(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(feature = "sqlite")]
impl Drop for Visit {
    fn drop(&mut self) {
        VISITS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has something closed before each fork.
#[cfg(feature = "sqlite")]
pub(crate) fn close_at_forks(open: &Arc<impl Close + 'static>) {
    let open = Arc::downgrade(open) as Weak<dyn Close>;
    CLOSED_AT_FORKS.rcu(|known| {
        let alive = known.iter().filter(|it| it.strong_count() > 0).cloned();
        alive.chain([open.clone()]).collect::<Vec<_>>()
    });
}

/// To be called before a process forks: waits until nobody is in the middle of a visit to a file, and
/// closes it. Python does so by itself.
pub fn before_fork() {
    FORKING.store(true, Ordering::SeqCst);
    // A visit that is stuck must not keep everybody from forking: that file stays open.
    let mut tries = 0;
    while VISITS.load(Ordering::SeqCst) > 0 && tries < 20_000 {
        std::thread::sleep(Duration::from_micros(50));
        tries += 1;
    }
    for open in CLOSED_AT_FORKS.load().iter().filter_map(Weak::upgrade) {
        open.close();
    }
}

/// To be called in the parent after a fork.
pub fn after_fork_in_parent() {
    FORKING.store(false, Ordering::SeqCst);
}

/// To be called in the child after a fork, before anything else.
pub fn after_fork_in_child() {
    // Those who were about to visit are not here.
    VISITS.store(0, Ordering::SeqCst);
    FORKING.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_in_a_process() {
        let value = PerProcess::default();
        assert!(value.mine().is_none());
        assert_eq!(*value.get(|| 1), 1);
        assert_eq!(*value.get(|| 2), 1);
    }

    #[test]
    fn threads_that_come_first_at_the_same_time_have_the_same_value() {
        for _ in 0..2_000 {
            let (value, start) = (PerProcess::default(), std::sync::Barrier::new(3));
            let all: Vec<Arc<Box<u8>>> = std::thread::scope(|threads| {
                let get = || {
                    start.wait();
                    value.get(|| Box::new(1))
                };
                let getting: Vec<_> = (0..3).map(|_| threads.spawn(get)).collect();
                getting.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])), "one was replaced");
        }
    }
}
