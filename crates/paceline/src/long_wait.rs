//! Waits that are worth a word: who does not see them takes them for a hang.

use crate::Limiter;
use paceline_core::Cause;
use paceline_store::Key;
use std::sync::Arc;
use std::time::Duration;

/// The longest that is not.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// A call begins to wait for longer than a second; told once for all that wait in its scope meanwhile.
#[derive(Debug, Clone)]
pub struct LongWait {
    /// Where, such as `https://api.example.com`.
    pub scope: String,
    /// What for.
    pub by: Cause,
    /// How long, as far as is known.
    pub after: Duration,
}

impl std::fmt::Display for LongWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scope, by, after } = self;
        write!(f, "{scope}: waiting {:.1} s for {by}", after.as_secs_f64())
    }
}

/// Each wait is an event of `tracing` when it ends.
pub(crate) fn ended(key: &Key, by: Option<&Cause>, waited: Duration) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!(
            scope = Limiter::display(key),
            limit = by.map(tracing::field::display),
            seconds = waited.as_secs_f64(),
            "waited"
        );
    }
}

/// Who is told of long waits.
#[derive(Clone, Default)]
pub(crate) struct OnWait(pub(crate) Option<Arc<Tell>>);

type Tell = dyn Fn(&LongWait) + Send + Sync;

impl std::fmt::Debug for OnWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnWait").field(&self.0.is_some()).finish()
    }
}

impl OnWait {
    pub(crate) fn tell(&self, wait: &LongWait) {
        match &self.0 {
            Some(tell) => tell(wait),
            None => tracing::info!(
                scope = wait.scope,
                limit = %wait.by,
                seconds = wait.after.as_secs_f64(),
                "waiting"
            ),
        }
    }
}
