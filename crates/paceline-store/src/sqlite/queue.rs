//! The queue of the writers of one file, across processes.
//!
//! Two locks of the kernel make a turnstile. Who writes holds the second; who is next holds the first
//! and sleeps until the second is free. Whoever has just written and wants to write again finds the
//! turnstile taken, and so can't go ahead of those who wait.
//!
//! The locks belong to the process: the kernel releases them when it dies, whatever it has forked.
//! They say nothing among its threads, so all stores of a process on one file share one queue.

use crate::process::PerProcess;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The queues of one process, by the files that they are for. They stay: to close a file releases all
/// locks that the process has on it, whoever of it took them.
type Queues = Mutex<HashMap<PathBuf, Arc<Queue>>>;

static QUEUES: LazyLock<PerProcess<Queues>> = LazyLock::new(PerProcess::default);

/// The two locks, in files beside the database.
#[derive(Debug)]
pub(super) struct Queue {
    threads: Mutex<()>,
    next: File,
    writer: File,
    identity: (u64, u64),
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A turn to write. Others go when it is dropped.
pub(super) struct Turn<'a> {
    writer: &'a File,
    _threads: MutexGuard<'a, ()>,
}

impl Queue {
    /// The queue of a file.
    pub(super) fn of(path: &Path) -> io::Result<Arc<Self>> {
        let queues = QUEUES.get_or_default();
        let mut queues = queues.lock();
        if let Some(known) = queues.get(path).filter(|queue| queue.is_there(path)) {
            return Ok(Arc::clone(known));
        }
        let (next, writer) = (private(&beside(path, "-next"))?, private(&beside(path, "-writer"))?);
        let identity = identity(&beside(path, "-writer"))?;
        let queue = Arc::new(Self { threads: Mutex::default(), next, writer, identity });
        queues.insert(path.to_owned(), Arc::clone(&queue));
        Ok(queue)
    }

    /// Whether nobody has deleted its files.
    fn is_there(&self, path: &Path) -> bool {
        identity(&beside(path, "-writer")).ok() == Some(self.identity)
    }

    /// Waits for its turn.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        let threads = self.threads.lock();
        lock(&self.next)?;
        let turn = lock(&self.writer).map(|()| Turn { writer: &self.writer, _threads: threads });
        unlock(&self.next)?;
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The lock goes with the process at the latest.
        drop(unlock(self.writer));
    }
}

#[cfg(unix)]
fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    Ok(rustix::io::retry_on_intr(|| fcntl_lock(file, FlockOperation::LockExclusive))?)
}

#[cfg(unix)]
fn unlock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    Ok(fcntl_lock(file, FlockOperation::Unlock)?)
}

#[cfg(not(unix))]
fn lock(file: &File) -> io::Result<()> {
    file.lock()
}

#[cfg(not(unix))]
fn unlock(file: &File) -> io::Result<()> {
    file.unlock()
}

/// A file that only its owner can read, made if need be.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Which file a name stands for, so that one that was deleted is noticed.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let told = std::fs::metadata(path)?;
    Ok((told.dev(), told.ino()))
}

/// Where a file in use cannot be deleted, a name always stands for the same one.
#[cfg(not(unix))]
pub(super) fn identity(_path: &Path) -> io::Result<(u64, u64)> {
    Ok((0, 0))
}

/// What to do when the file is busy all the same, because somebody uses it without standing in the
/// queue: try again for five seconds.
pub(super) fn patience(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < 5_000
}
