//! What belongs to one process: connections, and whatever was in the middle of something.

use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// A value that is made anew in a forked child.
///
/// A connection that a fork inherits is still its parent's, and a lock that another thread held at the
/// fork stays locked for ever; so a child never touches them, not even to drop them.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(ArcSwapOption<(u32, Arc<T>)>);

impl<T> PerProcess<T> {
    /// A value for this process.
    pub(crate) fn new(value: T) -> Self {
        Self(ArcSwapOption::from_pointee((std::process::id(), Arc::new(value))))
    }

    /// This process's value; made by `fresh` in a child that has none yet.
    pub(crate) fn get<E>(&self, fresh: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let here = std::process::id();
        if let Some(known) = self.0.load().as_deref()
            && known.0 == here
        {
            return Ok(Arc::clone(&known.1));
        }
        let value = Arc::new(fresh()?);
        if let Some(inherited) = self.0.swap(Some(Arc::new((here, Arc::clone(&value))))) {
            std::mem::forget(Arc::clone(&inherited));
        }
        Ok(value)
    }
}
