//! The queue of the writers of one file, across processes.
//!
//! Two locks of the kernel make a turnstile. Who writes holds the second; who is next holds the first
//! and sleeps until the second is free. Whoever has just written and wants to write again finds the
//! turnstile taken, and so can't go ahead of those who wait. The kernel releases the locks of a process
//! that dies.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The two locks, in files beside the database.
#[derive(Debug)]
pub(super) struct Queue {
    next: File,
    writer: File,
}

/// A turn to write. Others go when it is dropped.
pub(super) struct Turn<'a>(&'a File);

impl Queue {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            private(name.as_ref())
        };
        Ok(Self { next: beside("-next")?, writer: beside("-writer")? })
    }

    /// Waits for its turn.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        self.next.lock()?;
        let turn = self.writer.lock().map(|()| Turn(&self.writer));
        self.next.unlock()?;
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The file is closed at the latest when the process ends, and the lock goes with it.
        drop(self.0.unlock());
    }
}

/// A file that only its owner can read, made if need be.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// What to do when the file is busy all the same, because somebody uses it without standing in the
/// queue: try again for five seconds.
pub(super) fn patience(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < 5_000
}
