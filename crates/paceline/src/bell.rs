//! How a waiter is woken: the one thing that threads, tasks and event loops do differently.

use std::sync::Arc;
use std::time::Duration;

/// Wakes one waiter, which then calls [`Waiter::poll`](crate::Waiter::poll) again.
///
/// Bells ring outside of all locks, from whichever thread made room, and may ring without need.
pub trait Bell: Send + Sync {
    /// Wakes it now.
    fn ring(&self);

    /// Wakes it and others. What has to be entered to ring, such as an interpreter, is entered once.
    fn ring_with(&self, others: &[Arc<dyn Bell>]) {
        self.ring();
        others.iter().for_each(|bell| bell.ring());
    }

    /// Wakes it after that long, or sooner if it is to be woken sooner already. Where a timer can be set
    /// for somebody else, the waiter sleeps through becoming the head of the line; otherwise it is
    /// woken to set its own.
    fn ring_after(&self, _after: Duration) {
        self.ring();
    }
}
