//! How many retries an outage may cost.

use std::sync::atomic::{AtomicU64, Ordering};

/// Retries that any program may make, however little it sends.
const RESERVE: u64 = 10;
/// Answers after which the past counts half.
const MEMORY: u64 = 10_000;

/// The answers and the retries of a limiter. A rejection that names its wait is not among them: those
/// who wait for it go by the limiter, and multiply nothing.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    answered: AtomicU64,
    retried: AtomicU64,
}

impl Budget {
    /// One more answer came, or none did.
    pub(crate) fn answered(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) >= MEMORY {
            self.answered.store(MEMORY / 2, Ordering::Relaxed);
            let halve = |retried: u64| Some(retried / 2);
            let _ = self.retried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve);
        }
    }

    /// Takes one retry, if so many thousandths of all that was answered leave room for it.
    pub(crate) fn retry(&self, thousandths: u64) -> bool {
        let allowed = RESERVE + self.answered.load(Ordering::Relaxed) * thousandths / 1_000;
        let one_more = |retried: u64| (retried < allowed).then_some(retried + 1);
        self.retried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_multiplied_by_no_more_than_the_stated_share() {
        let (budget, mut sent) = (Budget::default(), 0);
        for _ in 0..1_000 {
            for attempt in 0..4 {
                if attempt > 0 && !budget.retry(200) {
                    break;
                }
                budget.answered();
                sent += 1;
            }
        }
        assert!((1_200..=1_300).contains(&sent), "{sent} for a thousand calls");
    }

    #[test]
    fn a_program_that_sends_little_retries_all_the_same() {
        let budget = Budget::default();
        assert!((0..RESERVE).all(|_| budget.retry(0)));
        assert!(!budget.retry(0));
    }
}
