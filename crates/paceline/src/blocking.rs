//! Waiting on a thread.

use crate::bell::Bell;
use crate::{Call, Clock, Entry, Error, Limiter, Permit, Step};
use std::sync::Arc;
use std::thread::Thread;

/// Wakes a parked thread.
struct ThreadBell(Thread);

impl Bell for ThreadBell {
    fn ring(&self) {
        self.0.unpark();
    }
}

impl Limiter {
    /// Waits on this thread until the call may be sent, behind those who came before.
    ///
    /// On a [virtual clock](crate::VirtualClock) nothing sleeps: the clock is moved instead.
    ///
    /// # Errors
    /// [`Error::Refused`] at once when the wait would be longer than allowed, and nothing was
    /// charged; [`Error::Invalid`] for an endpoint that is none.
    pub fn acquire_blocking<'a>(&self, call: impl Into<Call<'a>>) -> Result<Permit, Error> {
        let bell = || Arc::new(ThreadBell(std::thread::current())) as Arc<dyn Bell>;
        let mut waiter = match self.enter(&call.into(), bell)? {
            Entry::Admitted(permit) => return Ok(permit),
            Entry::Queued(waiter) => waiter,
        };
        loop {
            match (waiter.poll(), &self.inner.clock) {
                (Step::Done(outcome), _) => return outcome,
                (Step::Sleep(after), Clock::Virtual(clock)) => clock.advance(after),
                (Step::Sleep(after), Clock::Real { .. }) => std::thread::park_timeout(after),
                (Step::Park, _) => std::thread::park(),
            }
        }
    }
}
