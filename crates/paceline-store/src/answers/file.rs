//! Answers in an SQLite file.
//!
//! Keys are hashes, keyed with a secret that the file itself keeps: processes that share it find each
//! other's answers, and two files have nothing in common. The answers are stored as they are. The file is
//! for its owner only.

use super::{Answer, AnswerKey, Bounds, Secret, fresh_secret};
use crate::StoreError;
use crate::process::{self, Close, PerProcess};
use crate::sqlite::queue::{identity, make_private};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The layout of the file.
const SCHEMA: i64 = 1;
/// "PACA": tells it from the file that keeps limits, and from any other.
const APPLICATION: i64 = 0x5041_4341;
/// How many there are, and how large, is counted along.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS kept (secret BLOB NOT NULL, entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS answers (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, at INTEGER NOT NULL, used INTEGER NOT NULL,
        size INTEGER NOT NULL, answer BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS answers_at ON answers (at);
    CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
    CREATE TRIGGER IF NOT EXISTS answer_came AFTER INSERT ON answers BEGIN
        UPDATE kept SET entries = entries + 1, bytes = bytes + new.size;
    END;
    CREATE TRIGGER IF NOT EXISTS answer_went AFTER DELETE ON answers BEGIN
        UPDATE kept SET entries = entries - 1, bytes = bytes - old.size;
    END;
";
/// That an answer was asked for is written down once in so many microseconds.
const TOUCH: u64 = 60_000_000;
/// Whoever finds the file busy for longer goes on without it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    here: PerProcess<Here>,
    /// As it was read when the file was last opened, so that no key waits for it.
    secret: ArcSwap<Secret>,
}

/// What one process has of it. Closed while the process forks.
#[derive(Debug, Default)]
struct Here(Mutex<Option<Open>>);

#[derive(Debug)]
struct Open {
    connection: Connection,
    identity: (u64, u64),
}

impl Close for Here {
    fn close(&self) {
        self.0.lock().take();
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Encode(#[from] rmp_serde::encode::Error),
    #[error(transparent)]
    NoSecret(#[from] StoreError),
    #[error("it is no file of cached answers: give the cache a file of its own")]
    Foreign,
    #[error("it was written by a later release of paceline (layout {0}, this one knows {SCHEMA})")]
    Newer(i64),
}

impl File {
    /// Opens a file, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        // A process that changes its directory stays with its file.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let file = Self { path, here: PerProcess::default(), secret: ArcSwap::default() };
        file.visit(|_| Ok(()))?;
        Ok(file)
    }

    fn visit<R>(&self, step: impl FnOnce(&mut Open) -> Result<R, Error>) -> Result<R, StoreError> {
        let _visit = process::Visit::begin();
        let here = self.here.mine().unwrap_or_else(|| {
            let here = self.here.get_or_default();
            process::close_at_forks(&here);
            here
        });
        let mut open = here.0.lock();
        let told = |error: Error| {
            StoreError::new(format!("cannot use the cache {}: {error}", self.path.display()))
        };
        // Somebody deleted it: what is written to the old one would be seen by nobody.
        let there = identity(&self.path).ok();
        let open = match &mut *open {
            Some(open) if there == Some(open.identity) => open,
            stale => {
                let (open, secret) = Open::new(&self.path).map_err(told)?;
                self.secret.store(Arc::new(secret));
                stale.insert(open)
            }
        };
        step(open).map_err(told)
    }

    pub(super) fn secret(&self) -> Secret {
        **self.secret.load()
    }

    /// The answer with that key, and how long it may still be given.
    pub(super) fn get(
        &self,
        key: &AnswerKey,
        most: Option<Duration>,
        now: u64,
    ) -> Result<Option<(Answer, Option<Duration>)>, StoreError> {
        self.visit(|open| {
            let read = "SELECT id, at, used, answer FROM answers WHERE key = ?1";
            let mut read = open.connection.prepare_cached(read)?;
            let row = read.query_row(params![key], |row| {
                let stored: Vec<u8> = row.get(3)?;
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, stored))
            });
            let Some((id, at, used, stored)) = row.optional()? else { return Ok(None) };
            // A clock that was set back makes an answer too old, never young again.
            let Some(age) = now.checked_sub(at.cast_unsigned()).map(Duration::from_micros) else {
                return Ok(None);
            };
            let left = match most {
                Some(most) if age >= most => return Ok(None),
                most => most.map(|most| most.saturating_sub(age)),
            };
            // What is no answer of ours is asked for anew.
            let Ok(answer) = rmp_serde::from_slice::<Answer>(&stored) else { return Ok(None) };
            if now.abs_diff(used.cast_unsigned()) >= TOUCH {
                let touch = "UPDATE answers SET used = ?2 WHERE id = ?1";
                // Another time, if somebody is writing now.
                drop(open.connection.prepare_cached(touch)?.execute(params![id, whole(now)]));
            }
            Ok(Some((answer, left)))
        })
    }

    pub(super) fn put(
        &self,
        key: &AnswerKey,
        answer: &Answer,
        size: u64,
        bounds: Bounds,
        now: u64,
    ) -> Result<(), StoreError> {
        self.visit(|open| {
            let stored = rmp_serde::to_vec(answer)?;
            let transaction = open.connection.transaction()?;
            let run = |statement: &str, values: &[&dyn rusqlite::ToSql]| {
                transaction.prepare_cached(statement)?.execute(values)
            };
            run("DELETE FROM answers WHERE key = ?1", params![key])?;
            if let Some(age) = bounds.age {
                let since = now.saturating_sub(age.as_micros().try_into().unwrap_or(u64::MAX));
                run("DELETE FROM answers WHERE at <= ?1", params![whole(since)])?;
            }
            if size <= bounds.bytes {
                let (now, size) = (whole(now), whole(size));
                let add =
                    "INSERT INTO answers (key, at, used, size, answer) VALUES (?1, ?2, ?2, ?3, ?4)";
                run(add, params![key, now, size, stored])?;
            }
            let (entries, bytes) = (whole(bounds.entries as u64), whole(bounds.bytes));
            let oldest =
                "DELETE FROM answers WHERE id = (SELECT id FROM answers ORDER BY used, id LIMIT 1)
                          AND EXISTS (SELECT 1 FROM kept WHERE entries > ?1 OR bytes > ?2)";
            while run(oldest, params![entries, bytes])? > 0 {}
            Ok(transaction.commit()?)
        })
    }

    pub(super) fn clear(&self) -> Result<(), StoreError> {
        self.visit(|open| Ok(open.connection.execute("DELETE FROM answers", []).map(drop)?))
    }
}

impl Open {
    fn new(path: &Path) -> Result<(Self, Secret), Error> {
        // The journals of SQLite take over the mode of the file.
        make_private(path)?;
        let mut connection = Connection::open(path)?;
        // Whoever opens it at the same time may have it made.
        connection.busy_timeout(20 * PATIENCE)?;
        // Before anything is done to it, and at one instant.
        layout(&*connection.unchecked_transaction()?)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A crash of the machine may lose the last answers, never the file.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.set_transaction_behavior(rusqlite::TransactionBehavior::Immediate);
        let making = connection.transaction()?;
        if layout(&making)? < SCHEMA {
            making.execute_batch(TABLES)?;
            making.execute("INSERT INTO kept VALUES (?1, 0, 0)", params![fresh_secret()?])?;
            making.pragma_update(None, "application_id", APPLICATION)?;
            making.pragma_update(None, "user_version", SCHEMA)?;
        }
        making.commit()?;
        connection.busy_timeout(PATIENCE)?;
        let secret = connection.query_row("SELECT secret FROM kept", [], |row| row.get(0))?;
        Ok((Self { connection, identity: identity(path)? }, secret))
    }
}

/// Whose file it is: the layout of ours, 0 for an empty one.
fn layout(connection: &Connection) -> Result<i64, Error> {
    let read = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let (application, schema): (i64, i64) = (read("application_id")?, read("user_version")?);
    match (application, schema) {
        (APPLICATION, known) if known <= SCHEMA => Ok(known),
        (APPLICATION, newer) => Err(Error::Newer(newer)),
        (0, 0) => {
            let tables = "SELECT count(*) FROM sqlite_schema";
            let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
            if tables > 0 { Err(Error::Foreign) } else { Ok(0) }
        }
        _ => Err(Error::Foreign),
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
