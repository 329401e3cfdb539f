//! Waiting in a task.

use crate::bell::Bell;
use crate::sync::Mutex;
use crate::{Call, Entry, Error, Limiter, Permit, Step};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Sleep;

/// Wakes a task, and can set its timer from outside, so that a task sleeps through becoming the
/// head of the line: one wake-up per admission.
struct TaskBell {
    /// Where the task runs: its timer lives and ends there, whoever sets it.
    runtime: Handle,
    waker: Mutex<Waker>,
    /// Made when first needed: only the head of a line has a timer.
    timer: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Bell for TaskBell {
    fn ring(&self) {
        let waker = self.waker.lock().clone();
        waker.wake();
    }

    fn ring_after(&self, after: Duration) {
        let _inside = self.runtime.enter();
        let waker = self.waker.lock().clone();
        let mut timer = self.timer.lock();
        let deadline = tokio::time::Instant::now() + after;
        match timer.as_mut() {
            // Two who made room may ring in the wrong order: the sooner one counts.
            Some(sleep) if !sleep.is_elapsed() && sleep.deadline() <= deadline => {}
            Some(sleep) => sleep.as_mut().reset(deadline),
            None => *timer = Some(Box::pin(tokio::time::sleep_until(deadline))),
        }
        let fired =
            timer.as_mut().map(|sleep| sleep.as_mut().poll(&mut Context::from_waker(&waker)));
        if fired.is_some_and(|poll| poll.is_ready()) {
            waker.wake();
        }
    }
}

impl Limiter {
    /// Waits in this task until the call may be sent, behind those who came before. Needs a tokio
    /// runtime with time enabled.
    ///
    /// Dropping the future leaves the line and gives everything back.
    ///
    /// # Panics
    /// Outside of a tokio runtime, when it has to wait.
    ///
    /// # Errors
    /// [`Error::Refused`] at once when the wait would be longer than allowed, and nothing was
    /// charged; [`Error::Invalid`] for an endpoint that is none.
    pub async fn acquire<'a>(&self, call: impl Into<Call<'a>>) -> Result<Permit, Error> {
        let call = call.into();
        let mut bell = None;
        let make = || {
            let (runtime, waker) = (Handle::current(), Mutex::new(Waker::noop().clone()));
            let made = Arc::new(TaskBell { runtime, waker, timer: Mutex::new(None) });
            bell = Some(Arc::clone(&made));
            made as Arc<dyn Bell>
        };
        let mut waiter = match self.enter_from_loop(&call, make)? {
            Entry::Admitted(permit) => return Ok(permit),
            Entry::Queued(waiter) => waiter,
        };
        poll_fn(|cx| {
            if let Some(bell) = &bell {
                bell.waker.lock().clone_from(cx.waker());
            }
            match (waiter.poll(), &bell) {
                (Step::Done(outcome), _) => return Poll::Ready(outcome),
                (Step::Sleep(after), Some(bell)) => bell.ring_after(after),
                (Step::Sleep(_) | Step::Park, _) => {}
            }
            Poll::Pending
        })
        .await
    }
}
