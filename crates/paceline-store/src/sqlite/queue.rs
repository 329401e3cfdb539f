//! The queue of the writers of one file, across processes.
//!
//! Two locks of the kernel make a turnstile. Who writes holds the second; who is next holds the first
//! and sleeps until the second is free. Whoever has just written and wants to write again finds the
//! turnstile taken, and so can't go ahead of those who wait. The kernel releases the locks of a process
//! that dies.
//!
//! It only keeps order: SQLite itself keeps writers apart, so whoever can't stand in it goes on without.
//! All stores of a process on one file share one queue.

use crate::process::PerProcess;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The queues of one process, by the files that they are for.
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

    /// Closes the queues of this process: a child that inherited them would keep the locks of a parent
    /// that dies.
    pub(super) fn close_all() {
        if let Some(queues) = QUEUES.mine() {
            queues.lock().clear();
        }
    }

    /// Waits for its turn.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        let threads = self.threads.lock();
        self.next.lock()?;
        let turn = self.writer.lock().map(|()| Turn { writer: &self.writer, _threads: threads });
        self.next.unlock()?;
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The lock goes with the process at the latest.
        drop(self.writer.unlock());
    }
}

/// A file that only its owner can read, made if need be.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a file that only its owner can read, if there is none. One that is there is not even opened: to
/// close it again would release the locks that SQLite has on it in this process.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Which file a name stands for, so that one that was deleted is noticed.
#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let told = std::fs::metadata(path)?;
    Ok((told.dev(), told.ino()))
}

/// Where a file in use cannot be deleted, a name always stands for the same one.
#[cfg(not(unix))]
pub(crate) fn identity(_path: &Path) -> io::Result<(u64, u64)> {
    Ok((0, 0))
}

/// What to do when the file is busy all the same, because somebody uses it without standing in the
/// queue: try again for half a second.
pub(super) fn patience(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < 500
}
