//! The first-come-first-served queue in front of one scope, as a plain data structure.
//!
//! Who waits is whatever the driver puts in (`T`). The gate only keeps the order:
//!
//! * only the head may ask the store, so a large request is never overtaken by small ones;
//! * leaving from anywhere costs O(log n) and disturbs nobody but, perhaps, the head;
//! * it holds no clock: the driver sleeps until the head's time, and asks again.

use crate::state::Receipt;
use crate::{Cause, Cost, ScopeState, Tick, Wait};
use std::collections::BTreeMap;

/// A place in the queue; later arrivals have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The queue.
///
/// ```
/// use paceline_core::Gate;
/// let mut gate = Gate::default();
/// let first = gate.arrive("first");
/// let second = gate.arrive("second");
/// assert_eq!(gate.head(), Some((first, &"first")));
/// gate.leave(first);
/// assert_eq!(gate.head(), Some((second, &"second")));
/// ```
#[derive(Debug)]
pub struct Gate<T> {
    next: u64,
    queue: BTreeMap<u64, T>,
}

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Self { next: 0, queue: BTreeMap::new() }
    }
}

impl<T> Gate<T> {
    /// Puts `waiter` at the end.
    pub fn arrive(&mut self, waiter: T) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.queue.insert(ticket, waiter);
        Ticket(ticket)
    }

    /// The first in the queue.
    #[must_use]
    pub fn head(&self) -> Option<(Ticket, &T)> {
        self.queue.first_key_value().map(|(ticket, waiter)| (Ticket(*ticket), waiter))
    }

    /// Takes a waiter out, because it was admitted, refused or gave up.
    pub fn leave(&mut self, ticket: Ticket) -> Option<T> {
        self.queue.remove(&ticket.0)
    }

    /// The waiter with that ticket.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.queue.get_mut(&ticket.0)
    }

    /// Everybody, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.queue.iter().map(|(ticket, waiter)| (Ticket(*ticket), waiter))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The end of a queue: the scope as the next newcomer will find it, when everybody before has gone.
#[derive(Debug, Clone)]
pub struct Tail {
    state: ScopeState,
    /// When the last in line goes.
    at: Tick,
    /// What the last wait in line is for.
    by: Option<Cause>,
    /// Somebody left, so that it is too late by what they would have taken.
    late: bool,
}

impl Tail {
    /// The end of an empty queue.
    #[must_use]
    pub const fn new(state: ScopeState, now: Tick) -> Self {
        Self { state, at: now, by: None, late: false }
    }

    /// One more joins at `now`.
    pub fn add(&mut self, cost: &Cost, now: Tick) {
        let start = self.at.max(now);
        self.at = start;
        if let Some(wait) = self.state.wait(cost, start) {
            self.at = start.after(wait.after);
            self.by = Some(wait.by);
        }
        self.state.spend(cost, self.at);
    }

    /// The same with one more, who joined at `now`.
    #[must_use]
    pub fn and(mut self, cost: &Cost, now: Tick) -> Self {
        self.add(cost, now);
        self
    }

    /// How long a newcomer would wait behind everybody.
    #[must_use]
    pub fn wait(&self, cost: &Cost, now: Tick) -> Wait {
        let start = self.at.max(now);
        let (after, by) = match self.state.wait(cost, start) {
            Some(wait) => (start.after(wait.after).since(now), wait.by),
            // Whoever is last in line goes as soon as those before it have gone.
            None => (start.since(now), self.by.clone().unwrap_or(Cause::FirstAnswer)),
        };
        Wait { after, by }
    }

    /// How long whoever joined last waits.
    #[must_use]
    pub fn last(&self, now: Tick) -> Wait {
        Wait { after: self.at.since(now), by: self.by.clone().unwrap_or(Cause::FirstAnswer) }
    }

    /// Somebody left who would have spent `cost`. It is good enough to admit by from now on, not to
    /// refuse by.
    pub fn forgo(&mut self, cost: Cost) {
        let receipt = Receipt::new(cost, self.at);
        self.state.settle(&receipt, &Cost::NOTHING, self.at);
        self.late = true;
    }

    /// Whether it tells longer waits than there are, for somebody left.
    #[must_use]
    pub const fn is_late(&self) -> bool {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rule_18_first_come_first_served_whoever_leaves(
            leaving in proptest::collection::vec(0u64..50, 0..50),
        ) {
            let mut gate = Gate::default();
            let tickets: Vec<_> = (0..50u64).map(|i| gate.arrive(i)).collect();
            for i in &leaving {
                gate.leave(tickets[*i as usize]);
            }
            let mut order = Vec::new();
            while let Some((ticket, waiter)) = gate.head() {
                order.push(*waiter);
                gate.leave(ticket);
            }
            let stayed: Vec<_> = (0..50).filter(|i| !leaving.contains(i)).collect();
            prop_assert_eq!(order, stayed);
        }
    }
}
