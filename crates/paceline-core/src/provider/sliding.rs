//! A log of what was admitted within the last window.

use super::{Counter, Limit, NEVER};
use std::collections::VecDeque;

/// Exact, hence one entry per request of the last window.
#[derive(Debug)]
pub(super) struct Sliding {
    limit: Limit,
    used: u64,
    /// When each request leaves the window, and what it cost; oldest first.
    log: VecDeque<(u64, u64)>,
}

impl Sliding {
    pub(super) const fn new(limit: Limit) -> Self {
        Self { limit, used: 0, log: VecDeque::new() }
    }

    fn forget(&mut self, now: u64) {
        while let Some((_, cost)) = self.log.pop_front_if(|(leaves, _)| *leaves <= now) {
            self.used -= cost;
        }
    }
}

impl Counter for Sliding {
    fn wait(&mut self, now: u64, cost: u64) -> u64 {
        self.forget(now);
        let mut over = (self.used + cost).saturating_sub(self.limit.units);
        if over == 0 {
            return 0;
        }
        for (leaves, freed) in &self.log {
            over = over.saturating_sub(*freed);
            if over == 0 {
                return leaves - now;
            }
        }
        NEVER
    }

    fn charge(&mut self, now: u64, cost: u64) {
        self.log.push_back((now.saturating_add(self.limit.window), cost));
        self.used += cost;
    }

    fn give_back(&mut self, now: u64, cost: u64) {
        self.forget(now);
        let mut left = cost;
        for (_, counted) in self.log.iter_mut().rev() {
            let less = left.min(*counted);
            *counted -= less;
            left -= less;
            self.used -= less;
        }
    }

    fn standing(&mut self, now: u64) -> (u64, u64) {
        self.forget(now);
        let newest = self.log.back().map_or(0, |(leaves, _)| leaves - now);
        (self.limit.units.saturating_sub(self.used), newest)
    }
}
