//! Whether a limit paces a scope.

use paceline::{Limiter, Permit};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For how long it is taken for granted that a limit is known, and that none is. A shared storage takes
/// its time to answer: asked for each request, it would be visited twice as often.
const KNOWN: Duration = Duration::from_secs(1);
const UNKNOWN: Duration = Duration::from_millis(100);

/// What was found out lately, by scope.
#[derive(Debug, Default)]
pub(super) struct Governed(Mutex<HashMap<String, (bool, Instant)>>);

impl Governed {
    /// Whether a limit paces those who hold such a permit.
    pub(super) async fn find(&self, limiter: &Limiter, permit: &Permit) -> bool {
        let scope = permit.scope();
        if !limiter.is_slow() {
            return ask(limiter, &scope);
        }
        // Nothing does while the storage is away.
        if limiter.health().away {
            return false;
        }
        if let Some(known) = self.remembered(&scope) {
            return known;
        }
        let asking = limiter.clone();
        let asked = scope.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&asking, &asked)).await;
        let governed = asked.unwrap_or(false);
        self.0.lock().insert(scope, (governed, Instant::now()));
        governed
    }

    /// `None` when it is this caller's turn to ask. Those who come meanwhile go by what was known.
    fn remembered(&self, scope: &str) -> Option<bool> {
        let mut seen = self.0.lock();
        let now = Instant::now();
        let Some((governed, at)) = seen.get_mut(scope) else {
            seen.insert(scope.to_owned(), (false, now));
            return None;
        };
        if now.duration_since(*at) > if *governed { KNOWN } else { UNKNOWN } {
            *at = now;
            return None;
        }
        Some(*governed)
    }
}

fn ask(limiter: &Limiter, scope: &str) -> bool {
    limiter.status(scope).is_ok_and(|found| found.is_some_and(|(_, it)| !it.limits.is_empty()))
}
