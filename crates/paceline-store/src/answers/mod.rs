//! Answers of servers, kept to be given again: in this process, or in a file that processes share.

#[cfg(feature = "sqlite")]
mod file;
mod lru;

pub use lru::Lru;

use crate::process::PerProcess;
use crate::{BadStorage, Clock, Storage, StoreError};
use paceline_core::Tick;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::sync::Arc;
use std::time::Duration;

/// What an answer is found by: a keyed hash, from which nothing can be read of what was asked.
pub type AnswerKey = [u8; 32];

/// What the hashes are keyed with. It belongs to one memory, or to one file and all who share it.
pub type Secret = [u8; 32];

/// An answer of a server, as it came.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The version of HTTP, such as `HTTP/1.1`, and the words beside the status.
    pub version: ByteBuf,
    /// See `version`.
    pub reason: ByteBuf,
    /// Its headers, in order.
    pub headers: Vec<(ByteBuf, ByteBuf)>,
    /// Its body, decoded.
    pub body: ByteBuf,
    /// The lengths of the parts in which the body came.
    pub parts: Vec<u32>,
    /// Whose answer it is.
    pub provider: String,
    /// Which model.
    pub model: String,
}

impl Answer {
    /// The bytes that it takes, nearly.
    #[must_use]
    pub fn size(&self) -> u64 {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + 64);
        let names = self.provider.len() + self.model.len();
        (self.body.len() + 4 * self.parts.len() + headers.sum::<usize>() + names + 256) as u64
    }
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// So many answers at most,
    pub entries: usize,
    /// and so many bytes of them. Those that were not asked for the longest go first.
    pub bytes: u64,
    /// Until an answer is that old; `None` for ever.
    pub age: Option<Duration>,
}

/// An answer that was found, and the instant from which it is too old.
pub type Found = (Arc<Answer>, Option<Tick>);

/// Answers, kept.
///
/// ```
/// use paceline_store::{Answer, Answers, Bounds, Clock};
///
/// let bounds = Bounds { entries: 1_000, bytes: 1 << 20, age: None };
/// let answers = Answers::open("memory", bounds, Clock::real())?;
/// answers.put([7; 32], Answer { status: 200, ..Answer::default() })?;
/// assert_eq!(answers.get(&[7; 32])?.unwrap().0.status, 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Answers {
    kept: Kept,
    bounds: Bounds,
    clock: Clock,
}

#[derive(Debug)]
enum Kept {
    /// A fork begins anew: another thread may hold the lock at that instant.
    Memory(PerProcess<Memory>),
    #[cfg(feature = "sqlite")]
    File(file::File),
}

#[derive(Debug)]
struct Memory {
    secret: Secret,
    answers: Mutex<Lru<Arc<Answer>>>,
}

/// Why answers cannot be kept there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CannotOpen {
    /// The storage string makes no sense.
    #[error(transparent)]
    Storage(#[from] BadStorage),
    /// The file cannot be used.
    #[error(transparent)]
    Unavailable(#[from] StoreError),
}

impl Answers {
    /// Opens `memory` or `sqlite:///file.db`, which is made if need be and is readable for its owner only.
    ///
    /// # Errors
    /// [`CannotOpen`] when the string makes no sense, or the file is not to be used.
    pub fn open(storage: &str, bounds: Bounds, clock: Clock) -> Result<Self, CannotOpen> {
        let kept = match storage.parse::<Storage>()? {
            Storage::Memory => Kept::Memory(PerProcess::default()),
            #[cfg(feature = "sqlite")]
            Storage::Sqlite(path) => Kept::File(file::File::open(&path)?),
            #[cfg(feature = "redis")]
            Storage::Redis(_) => {
                let reason = "answers are kept in \"memory\" or in \"sqlite:///file.db\"";
                return Err(BadStorage::because(storage, reason).into());
            }
        };
        Ok(Self { kept, bounds, clock })
    }

    /// Whether they are read and written without waiting for anything.
    #[must_use]
    pub const fn is_fast(&self) -> bool {
        matches!(self.kept, Kept::Memory(_))
    }

    /// The clock by which they age.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How much is kept.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// What the keys are to be made with.
    ///
    /// # Errors
    /// [`StoreError`] when the system has no random numbers.
    pub fn secret(&self) -> Result<Secret, StoreError> {
        match &self.kept {
            Kept::Memory(memory) => Ok(self.memory(memory)?.secret),
            #[cfg(feature = "sqlite")]
            Kept::File(file) => Ok(file.secret()),
        }
    }

    /// The answer with that key, unless it is too old.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read.
    pub fn get(&self, key: &AnswerKey) -> Result<Option<Found>, StoreError> {
        match &self.kept {
            Kept::Memory(memory) => {
                Ok(self.memory(memory)?.answers.lock().get(key, self.clock.now()))
            }
            #[cfg(feature = "sqlite")]
            Kept::File(file) => {
                let found = file.get(key, self.bounds.age, self.clock.wall_micros())?;
                let until = |left| self.clock.now().after(left);
                Ok(found.map(|(answer, left)| (Arc::new(answer), left.map(until))))
            }
        }
    }

    /// Keeps an answer, in place of one with the same key. One that is larger than all may be is not kept.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be written.
    pub fn put(&self, key: AnswerKey, answer: Answer) -> Result<Found, StoreError> {
        let until = self.bounds.age.map(|age| self.clock.now().after(age));
        let answer = Arc::new(answer);
        let size = answer.size();
        match &self.kept {
            Kept::Memory(memory) => {
                let memory = self.memory(memory)?;
                let displaced = memory.answers.lock().put(key, Arc::clone(&answer), size, until);
                drop(displaced);
            }
            #[cfg(feature = "sqlite")]
            Kept::File(file) => {
                file.put(&key, &answer, size, self.bounds, self.clock.wall_micros())?;
            }
        }
        Ok((answer, until))
    }

    /// Forgets all of them.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be written.
    pub fn clear(&self) -> Result<(), StoreError> {
        match &self.kept {
            Kept::Memory(memory) => {
                self.memory(memory)?.answers.lock().clear();
                Ok(())
            }
            #[cfg(feature = "sqlite")]
            Kept::File(file) => file.clear(),
        }
    }

    fn memory(&self, memory: &PerProcess<Memory>) -> Result<Arc<Memory>, StoreError> {
        if let Some(mine) = memory.mine() {
            return Ok(mine);
        }
        let secret = fresh_secret()?;
        Ok(memory.get(|| Memory { secret, answers: Mutex::new(Lru::new(self.bounds)) }))
    }
}

fn fresh_secret() -> Result<Secret, StoreError> {
    let mut secret = Secret::default();
    let filled = getrandom::fill(&mut secret);
    filled.map_err(|error| StoreError::new(format!("no random numbers: {error}")))?;
    Ok(secret)
}

#[cfg(test)]
mod tests;
