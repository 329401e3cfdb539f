//! What belongs to one process: connections, and whatever was in the middle of something.

use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// A value that is made anew in a forked child.
///
/// A connection that a fork inherits is still its parent's, and a lock that another thread held at the
/// fork stays locked for ever; so a child never touches them, not even to drop them.
#[derive(Debug)]
pub struct PerProcess<T>(ArcSwapOption<(u32, Arc<T>)>);

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> PerProcess<T> {
    /// This process's value, if it has one.
    #[must_use]
    pub fn mine(&self) -> Option<Arc<T>> {
        let known = self.0.load();
        let (process, value) = known.as_deref()?;
        (*process == std::process::id()).then(|| Arc::clone(value))
    }

    /// This process's value; made by `fresh` if it has none yet.
    ///
    /// # Errors
    /// What `fresh` says.
    pub fn get<E>(&self, fresh: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(mine) = self.mine() {
            return Ok(mine);
        }
        let made = Arc::new((std::process::id(), Arc::new(fresh()?)));
        let seen = self.0.load();
        // Two threads may have made one at the same time: the first one counts.
        let before = self.0.compare_and_swap(&*seen, Some(Arc::clone(&made)));
        if let Some(mine) = self.mine()
            && !Arc::ptr_eq(&mine, &made.1)
        {
            return Ok(mine);
        }
        std::mem::forget(before.as_ref().map(Arc::clone));
        Ok(Arc::clone(&made.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_in_a_process() {
        let value = PerProcess::default();
        assert!(value.mine().is_none());
        assert_eq!(value.get(|| Err::<u8, _>("not now")), Err("not now"));
        assert_eq!(*value.get(|| Ok::<_, ()>(1)).unwrap(), 1);
        assert_eq!(*value.get(|| Ok::<_, ()>(2)).unwrap(), 1);
    }
}
