//! What was asked for last stays.

use super::{AnswerKey, Bounds};
use lru::LruCache;
use paceline_core::Tick;

/// Values by key, bounded in number and in bytes: those that were not asked for the longest go first.
#[derive(Debug)]
pub struct Lru<V> {
    kept: LruCache<AnswerKey, Entry<V>, foldhash::fast::RandomState>,
    bytes: u64,
    bounds: Bounds,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    size: u64,
    until: Option<Tick>,
}

impl<V: Clone> Lru<V> {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let kept = LruCache::unbounded_with_hasher(foldhash::fast::RandomState::default());
        Self { kept, bytes: 0, bounds }
    }

    /// The value with that key and the instant from which it is too old, unless it is.
    pub fn get(&mut self, key: &AnswerKey, now: Tick) -> Option<(V, Option<Tick>)> {
        let entry = self.kept.get(key)?;
        if entry.until.is_none_or(|until| now < until) {
            return Some((entry.value.clone(), entry.until));
        }
        self.remove(key);
        None
    }

    /// Keeps a value of that size until then. Gives what had to go for it, itself if it is too large, for
    /// the caller to drop when no lock is held.
    #[must_use]
    pub fn put(&mut self, key: AnswerKey, value: V, size: u64, until: Option<Tick>) -> Vec<V> {
        let mut gone: Vec<V> = self.remove(&key).into_iter().collect();
        if size > self.bounds.bytes {
            gone.push(value);
            return gone;
        }
        self.bytes += size;
        self.kept.put(key, Entry { value, size, until });
        while self.bytes > self.bounds.bytes || self.kept.len() > self.bounds.entries {
            let Some((_, entry)) = self.kept.pop_lru() else { break };
            self.bytes -= entry.size;
            gone.push(entry.value);
        }
        gone
    }

    fn remove(&mut self, key: &AnswerKey) -> Option<V> {
        let entry = self.kept.pop(key)?;
        self.bytes -= entry.size;
        Some(entry.value)
    }

    /// Forgets all of them, and gives them to be dropped.
    pub fn clear(&mut self) -> Vec<V> {
        self.bytes = 0;
        std::iter::from_fn(|| self.kept.pop_lru()).map(|(_, entry)| entry.value).collect()
    }
}
