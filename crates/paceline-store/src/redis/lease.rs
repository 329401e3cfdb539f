//! Leases: a small part of a limit that a process takes at once and uses without asking.
//!
//! What is taken may be used a little later than it was charged, and a bucket refills meanwhile. So that
//! all processes together still never send more than `burst + rate * time`, a lease is only given where
//! the bucket would have had room that much earlier: the script takes the span of the lease off the
//! depth of the bucket. A process that dies leaves no more behind than what refills within a span.

use crate::Key;
use paceline_core::Tick;
use paceline_core::state::Receipt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The most requests in one lease.
const LARGEST: u64 = 4_096;
/// Scopes whose leases are remembered; beyond that, expired ones are dropped.
const MANY: usize = 1_024;

/// The leases of one process.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) span: Duration,
    shares: Mutex<HashMap<Key, Share>>,
}

#[derive(Debug)]
struct Share {
    receipt: Receipt,
    expires: Tick,
    left: u64,
    taken: u64,
    /// How many to ask for next.
    next: u64,
}

impl Leases {
    pub(super) fn new(span: Duration) -> Self {
        Self { span, shares: Mutex::default() }
    }

    /// One request of the lease on a scope.
    pub(super) fn take(&self, key: &Key, now: Tick) -> Option<Receipt> {
        let mut shares = self.shares.lock();
        let share = shares.get_mut(key).filter(|share| share.left > 0 && share.expires > now)?;
        share.left -= 1;
        Some(share.receipt.clone())
    }

    /// How many requests to ask for: twice as many as before if those went in time, else as many as
    /// were used. Gives, too, what is left of the lease that is over.
    pub(super) fn ask(&self, key: &Key, now: Tick) -> (u64, Option<(Receipt, u64)>) {
        let mut shares = self.shares.lock();
        let Some(share) = shares.get_mut(key) else { return (1, None) };
        if share.taken > 0 {
            let in_time = share.left == 0 && share.expires > now;
            let used = share.taken - share.left;
            share.next = if in_time { share.taken * 2 } else { used };
            share.next = share.next.clamp(1, LARGEST);
        }
        let rest = (share.left > 0).then(|| (share.receipt.clone(), share.left));
        (share.left, share.taken) = (0, 0);
        (share.next, rest)
    }

    /// Takes in a lease of `taken` requests that was asked for at `asked`; one of them is used at once.
    pub(super) fn put(&self, key: &Key, receipt: Receipt, taken: u64, asked: Tick) {
        let mut shares = self.shares.lock();
        if shares.len() >= MANY {
            shares.retain(|_, share| share.expires > asked);
        }
        let expires = asked.after(self.span);
        let share = Share { receipt, expires, left: taken - 1, taken, next: taken };
        shares.insert(key.clone(), share);
    }

    /// The server said stop: nothing more of the lease is used.
    pub(super) fn stop(&self, key: &Key) {
        if let Some(share) = self.shares.lock().get_mut(key) {
            share.expires = Tick::ZERO;
        }
    }

    /// What is left of leases that are over.
    pub(super) fn rests(&self, now: Tick) -> Vec<(Key, Receipt, u64)> {
        let mut shares = self.shares.lock();
        let over = shares.iter_mut().filter(|(_, share)| share.left > 0 && share.expires <= now);
        over.map(|(key, share)| {
            let left = std::mem::take(&mut share.left);
            share.taken -= left;
            (key.clone(), share.receipt.clone(), left)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_core::Cost;

    #[test]
    fn a_lease_grows_while_it_is_used_up_and_shrinks_to_what_is_used() {
        let leases = Leases::new(Duration::from_millis(100));
        let (key, at) = (Key::new("api.example.com"), |ms: u64| Tick::from_nanos(ms * 1_000_000));
        let receipt = || Receipt::new(Cost::ONE, Tick::ZERO);
        assert!(leases.take(&key, at(0)).is_none());
        assert_eq!(leases.ask(&key, at(0)).0, 1);
        leases.put(&key, receipt(), 1, at(0));
        assert_eq!(leases.ask(&key, at(1)).0, 2);
        leases.put(&key, receipt(), 2, at(1));
        assert!(leases.take(&key, at(2)).is_some());
        assert!(leases.take(&key, at(2)).is_none());
        assert_eq!(leases.ask(&key, at(3)).0, 4);
        leases.put(&key, receipt(), 4, at(3));
        assert!(leases.take(&key, at(103)).is_none(), "it is over");
        let (next, rest) = leases.ask(&key, at(103));
        assert_eq!((next, rest.unwrap().1), (1, 3), "one of four was used, three go back");
    }
}
